"""Pictures of the playground for the README and the docs, taken of a running service.

python -m tests.service.screenshot http://127.0.0.1:8000/ docs/images/playground.png
"""

import base64
import json
import sys
from pathlib import Path
from typing import Any

from tests.service.browser import Page, chromium

WIDTH, HEIGHT = 1280, 900


def shoot(
    url: str, path: Path, width: int = WIDTH, height: int = HEIGHT, dark: bool = False, request: dict[str, Any] | None = None
) -> None:
    """The answer to the sample, or to another request, whose best three cards are open, as a screen of this size shows it."""
    with chromium() as driver:
        page = Page(driver, url)
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size(width, height))
        features = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
        page.open()
        if request is None:
            page.run("document.getElementById('try').click()")
        else:
            ask(page, request)
            page.run("[...document.querySelectorAll('.card details')].slice(0, 3).forEach((details) => (details.open = true))")
        page.wait(lambda: page.all(".card .text"))
        page.run("document.activeElement.blur(); scrollTo(0, 0)")
        path.write_bytes(base64.b64decode(driver.execute_cdp_cmd("Page.captureScreenshot", {"format": "png"})["data"]))


def ask(page: Page, request: dict[str, Any]) -> None:
    """Fill the form with a request whose documents have titles, and rank."""
    page.ask(request["query"], [document["text"] for document in request["documents"]])
    for number, document in enumerate(request["documents"], 1):
        page.fill(f"#documents li:nth-child({number}) .title", document["title"])
    page.rank()


def size(width: int, height: int) -> dict[str, object]:
    """A window, as the debugging protocol takes it."""
    return {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}


if __name__ == "__main__":
    asked = json.loads(Path(sys.argv[3]).read_text(encoding="utf-8")) if len(sys.argv) > 3 else None
    shoot(sys.argv[1], Path(sys.argv[2]), height=HEIGHT if asked is None else 1100, request=asked)
