"""The page at /docs: its files, and in Chromium at a real service."""

import tomllib
from collections.abc import Iterator

import pytest
from selenium.webdriver import Chrome
from starlette.testclient import TestClient

from service.app import RERANK_PATHS
from service.reference import PATH, assets
from tests.conftest import ROOT
from tests.service.browser import Page, chromium, served

SOURCES = ROOT / "service" / "reference"


@pytest.fixture(scope="module")
def driver() -> Iterator[Chrome]:
    with chromium() as driver:
        yield driver


def test_shown_without_the_internet(driver: Chrome) -> None:
    with served() as url:
        page = Page(driver, url)
        page.open("docs", "#reference .opblock")
        operations = page.run(
            "return [...document.querySelectorAll('.opblock-summary')].map((line) => line.innerText.split('\\n').slice(0, 2))"
        )
        assert ["POST", "/rerank"] in [[part.strip() for part in operation] for operation in operations]
        page.all(".opblock-summary-control")[0].click()
        page.wait(lambda: page.all(".opblock-body .try-out__btn"))[0].click()
        page.wait(lambda: page.all(".opblock-body .execute"))
        page.run("document.querySelector('.opblock-body .execute').click()")
        page.wait(lambda: "200" in " ".join(page.texts(".live-responses-table .response .response-col_status")))
        fetched = [request["url"] for request in page.fetched()]
        assert {f"{url}openapi.json", f"{url}rerank"} <= {*fetched}
        assert [address for address in fetched if not address.startswith((url, "data:"))] == []
        assert [entry["message"] for entry in driver.get_log("browser")] == []


def test_the_page_and_its_files(client: TestClient) -> None:
    for path, asset in assets().items():
        response = client.get(path)
        assert (response.status_code, response.content) == (200, asset.content)
        policy = dict(rule.split(" ", 1) for rule in response.headers["content-security-policy"].split("; "))
        assert policy["default-src"] == policy["frame-ancestors"] == "'none'"
        assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
        assert response.headers["x-content-type-options"] == "nosniff"
        assert client.get(path, headers={"if-none-match": response.headers["etag"]}).status_code == 304
    assert client.get("/redoc").status_code == 404
    assert f"{PATH}/swagger-ui-bundle.js" in assets()
    assert len(RERANK_PATHS) == len([path for path in client.get("/openapi.json").json()["paths"] if path.endswith("/rerank")])


def test_all_of_it_is_installed() -> None:
    package_data = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]["package-data"]
    installed = {path for pattern in package_data["service.reference"] for path in SOURCES.glob(pattern)}
    assert installed == {path for path in SOURCES.iterdir() if path.is_file() and path.suffix != ".py"}
