"""Debian's Chromium, without a screen, at a page of a real service."""

import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from selenium.webdriver import ActionChains, Chrome, ChromeOptions, ChromeService, Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.wait import WebDriverWait

from service.keys.keys import New
from service.settings import DEFAULT_BUNDLE
from tests.service.faults import PATIENCE
from tests.support.programs import need
from tests.support.serving import Service

PIECES = "[...one.childNodes].map((node) => [node.textContent, node.dataset?.blocks ?? null, node.dataset?.label ?? null])"
FILL = """const [selector, value] = arguments;
const element = document.querySelector(selector);
element.value = value;
element.dispatchEvent(new Event("input", { bubbles: true }));"""


@contextmanager
def chromium(*more: str) -> Iterator[Chrome]:
    """A browser with these arguments, and a log of what it fetches and of what it complains about."""
    options = ChromeOptions()
    options.binary_location = need("chromium", "chromium")
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--window-size=1280,900", "--disable-gpu", *more):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"performance": "ALL", "browser": "ALL"})
    driver = Chrome(options=options, service=ChromeService(need("chromedriver", "chromium-driver")))
    try:
        yield driver
    finally:
        driver.quit()


@contextmanager
def served(*keys: New, bundles: Sequence[Path] = (DEFAULT_BUNDLE,), **settings: str) -> Iterator[str]:
    """The page's address, at a service with these keys, settings and bundles, the default one first."""
    given = {"bundle": os.pathsep.join(map(str, bundles)), "api_keys": "\n".join(key.entry for key in keys), **settings}
    with Service(0, Path(os.devnull), provider="cpu", **given) as service:
        yield f"{service.url}/"


class Page:
    """The playground as somebody sees and uses it."""

    def __init__(self, driver: Chrome, url: str) -> None:
        self.driver = driver
        self.url = url

    def open(self, path: str = "", shown: str = "#documents li") -> None:
        """A new page, in a browser that remembers nothing of the last, once an element of it is shown."""
        self.driver.get_log("performance")
        self.driver.get_log("browser")
        self.driver.execute_cdp_cmd("Storage.clearDataForOrigin", {"origin": self.url, "storageTypes": "all"})
        self.driver.get(self.url + path)
        self.wait(lambda: self.all(shown))

    def wait(self, happened: Callable[[], Any]) -> Any:
        return WebDriverWait(self.driver, PATIENCE, 0.05).until(lambda _: happened())

    def one(self, selector: str) -> WebElement:
        return self.driver.find_element("css selector", selector)

    def all(self, selector: str) -> list[WebElement]:
        return self.driver.find_elements("css selector", selector)

    def each(self, selector: str, expression: str) -> list[Any]:
        """The value of an expression in JavaScript for each element, `one`."""
        found: list[Any] = self.run(f"return [...document.querySelectorAll(arguments[0])].map((one) => {expression})", selector)
        return found

    def texts(self, selector: str) -> list[str]:
        """The texts of elements, shown or not."""
        return self.each(selector, "one.textContent")

    def press_on(self, selector: str) -> None:
        """Clicks on the first of these elements, wherever it stands."""
        self.run("document.querySelector(arguments[0]).click()", selector)

    def run(self, script: str, *arguments: Any) -> Any:
        return self.driver.execute_script(script, *arguments)

    def module(self, name: str, expression: str, *arguments: Any) -> Any:
        """The value, or what it resolves to, of an expression of a module `m` of the page and of `a`, the arguments."""
        script = f"""const [done, a] = [arguments[arguments.length - 1], arguments];
            import({json.dumps(f"{self.url}playground/{name}.js")}).then(async (m) => done(await ({expression})))"""
        return self.driver.execute_async_script(script, *arguments)

    def fill(self, selector: str, value: str) -> None:
        """As if pasted; typing is for characters of the basic plane only."""
        self.run(FILL, selector, value)

    def ask(self, query: str, documents: list[str]) -> None:
        """Fills the form and ranks."""
        self.press_on("#clear")
        for number, document in enumerate(documents, 1):
            if number > 1:
                self.press_on("#add")
            self.fill(f"#documents li:nth-child({number}) .text", document)
        self.fill("#query", query)
        self.rank()

    def rank(self) -> None:
        """Presses the button, and waits for the answer or the error."""
        self.press_on("#rank")
        self.wait(lambda: self.one("#answer").get_attribute("aria-busy") == "false")

    def press(self, *keys: str) -> None:
        ActionChains(self.driver).send_keys(*keys).perform()

    def press_with_control(self, key: str) -> None:
        ActionChains(self.driver).key_down(Keys.CONTROL).send_keys(key).key_up(Keys.CONTROL).perform()

    def pieces(self, index: int) -> list[tuple[str, str | None, str | None]]:
        """The text of a card in pieces: (text, numbers of the blocks over it, label)."""
        self.run("const d = document.querySelector(`#result-${arguments[0]} details`); d.open = true", index)
        (pieces,) = self.wait(lambda: self.each(f"#result-{index} .text", PIECES))
        return [tuple(piece) for piece in pieces]

    def answer(self) -> Any:
        """The answer that is shown, from its JSON."""
        return json.loads(self.texts("#json code")[0])

    def fetched(self) -> list[dict[str, Any]]:
        """The requests of the page since it was opened, or since this was asked for."""
        events = (json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance"))
        return [event["params"]["request"] for event in events if event["method"] == "Network.requestWillBeSent"]

    def sent(self) -> dict[str, Any]:
        """The one request for a ranking among those."""
        (request,) = (request for request in self.fetched() if request["url"].endswith("/rerank"))
        return request
