import json
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium.webdriver import Chrome
from starlette.testclient import TestClient

from service.app import RERANK_PATHS, create_app
from service.assets import TYPES
from service.playground import FOLDER, PAGE
from service.playground.reading import PATH as READING
from service.ranking.ranker import Ranker
from service.reference import PATH, assets
from service.settings import Settings
from tests.conftest import ROOT
from tests.service.browser import Page, chromium, served

SOURCES = ROOT / "service" / "playground"
PATHS = ["/", *(f"{FOLDER}/{path.name}" for path in SOURCES.iterdir() if path.suffix[1:] in TYPES and path.name != PAGE)]


def test_each_file_is_served_as_what_it_is_and_not_again(client: TestClient) -> None:
    for path in PATHS:
        response = client.get(path)
        name = path.rpartition("/")[2] or PAGE
        assert (response.status_code, response.content) == (200, (SOURCES / name).read_bytes())
        assert response.headers["content-type"] == TYPES[name.rpartition(".")[2]]
        assert response.headers["x-content-type-options"] == "nosniff"
        assert response.headers["cache-control"] == "no-cache"
        assert client.head(path).headers["content-length"] == str(len(response.content))
        etag = response.headers["etag"]
        for known in (etag, f"W/{etag}", f'"other", {etag}', "*"):
            again = client.get(path, headers={"if-none-match": known})
            assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", etag)
        assert client.get(path, headers={"if-none-match": '"other"'}).status_code == 200


def test_the_policy_lets_nothing_in_from_elsewhere(client: TestClient) -> None:
    policy = dict(rule.split(" ", 1) for rule in client.get("/").headers["content-security-policy"].split("; "))
    assert policy.pop("require-trusted-types-for") == "'script'"
    assert policy["default-src"] == "'none'"
    assert set(policy.values()) == {"'none'", "'self'"}


@pytest.mark.parametrize("path", ["__init__.py", "", "index.html", "../app.py", "%2e%2e/app.py", "no.js"])
def test_nothing_else_is_served(client: TestClient, path: str) -> None:
    assert client.get(f"{FOLDER}/{path}").status_code == 404


def test_the_page_is_not_part_of_the_interface(client: TestClient) -> None:
    assert not [path for path in client.get("/openapi.json").json()["paths"] if path == "/" or path.startswith(FOLDER)]
    assert client.post("/", content=b"{}").status_code == 405


def test_switched_off_there_is_no_such_path(settings: Settings, ranker: Ranker) -> None:
    without = TestClient(create_app(settings.model_copy(update={"playground": False}), ranker))
    for path in PATHS:
        assert (without.get(path).status_code, without.get(path).json()["error"]["type"]) == (404, "not_found")
    assert without.post(READING).status_code == 404


@pytest.mark.parametrize("page", ["playground", "reference"])
def test_all_of_it_is_installed(page: str) -> None:
    package_data = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]["package-data"]
    sources = ROOT / "service" / page
    installed = {path for pattern in package_data[f"service.{page}"] for path in sources.glob(pattern)}
    assert installed == {path for path in sources.iterdir() if path.is_file() and path.suffix != ".py"}


def test_the_sample_is_of_long_documents_and_is_ranked(client: TestClient) -> None:
    sample = json.loads(Path(SOURCES / "sample.json").read_text(encoding="utf-8"))
    assert min(len(document["text"].split()) for document in sample["documents"]) > 1500
    response = client.post("/rerank", json=sample)
    assert (response.status_code, response.json()["meta"]["warnings"]) == (200, [])


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
