import json
import re
import tomllib
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from service.app import create_app
from service.assets import TYPES
from service.playground import FOLDER, PAGE, assets
from service.ranking.ranker import Ranker
from service.settings import Settings
from tests.conftest import ROOT

SOURCES = ROOT / "service" / "playground"
PATHS = ["/", *(f"{FOLDER}/{path.name}" for path in SOURCES.iterdir() if path.suffix[1:] in TYPES and path.name != PAGE)]


@pytest.fixture(scope="module")
def without(settings: Settings, ranker: Ranker) -> TestClient:
    """The application with the page switched off."""
    return TestClient(create_app(settings.model_copy(update={"playground": False}), ranker))


@pytest.mark.parametrize("path", PATHS)
def test_each_file_is_served_as_what_it_is(client: TestClient, path: str) -> None:
    response = client.get(path)
    name = path.rpartition("/")[2] or PAGE
    assert response.status_code == 200
    assert response.content == (SOURCES / name).read_bytes()
    assert response.headers["content-type"] == TYPES[name.rpartition(".")[2]]
    assert response.headers["x-content-type-options"] == "nosniff"
    assert client.head(path).headers["content-length"] == str(len(response.content))


@pytest.mark.parametrize("path", PATHS)
def test_a_browser_that_asks_again_gets_not_modified(client: TestClient, path: str) -> None:
    etag = client.get(path).headers["etag"]
    assert client.get(path).headers["cache-control"] == "no-cache"
    for known in (etag, f"W/{etag}", f'"other", {etag}', "*"):
        again = client.get(path, headers={"if-none-match": known})
        assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", etag)
    assert client.get(path, headers={"if-none-match": '"other"'}).status_code == 200


def test_the_policy_lets_nothing_in_from_elsewhere(client: TestClient) -> None:
    policy = dict(rule.split(" ", 1) for rule in client.get("/").headers["content-security-policy"].split("; "))
    assert policy.pop("require-trusted-types-for") == "'script'"
    assert policy["default-src"] == "'none'"
    assert set(policy.values()) == {"'none'", "'self'"}


def test_the_page_has_nothing_that_the_policy_forbids_and_names_no_other_host() -> None:
    page = (SOURCES / PAGE).read_text(encoding="utf-8")
    assert re.findall(r"<style|\sstyle=|\son\w+=|<script(?![^>]*\ssrc=)", page) == []
    texts = {path.name: path.read_text(encoding="utf-8") for path in SOURCES.iterdir() if path.suffix[1:] in TYPES}
    linked = {
        name: re.findall(r"(?:https?:)?//[\w.-]+\.\w+[^\s\"']*", text) for name, text in texts.items() if name != "sample.json"
    }
    assert {link for links in linked.values() for link in links} == {"http://www.w3.org/2000/svg"}


def test_every_file_is_used_and_every_one_used_is_there(client: TestClient) -> None:
    named = {name for asset in assets().values() for name in re.findall(rb"[\w-]+\.(?:css|js|json|svg)(?=\")", asset.content)}
    assert {f"{FOLDER}/{name.decode()}" for name in named} == set(assets()) - {"/"}


@pytest.mark.parametrize("path", ["__init__.py", "", "index.html", "../app.py", "%2e%2e/app.py", "no.js"])
def test_nothing_else_is_served(client: TestClient, path: str) -> None:
    assert client.get(f"{FOLDER}/{path}").status_code == 404


def test_the_page_is_not_part_of_the_interface(client: TestClient) -> None:
    assert not [path for path in client.get("/openapi.json").json()["paths"] if path == "/" or path.startswith(FOLDER)]
    assert client.post("/", content=b"{}").status_code == 405


@pytest.mark.parametrize("path", PATHS)
def test_switched_off_there_is_no_such_path(without: TestClient, path: str) -> None:
    response = without.get(path)
    assert response.status_code == 404
    assert response.json()["error"]["type"] == "not_found"


def test_all_of_it_is_installed() -> None:
    package_data = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]["package-data"]
    installed = {path for pattern in package_data["service.playground"] for path in SOURCES.glob(pattern)}
    assert installed == {path for path in SOURCES.iterdir() if path.is_file() and path.suffix != ".py"}


def test_the_sample_is_of_long_documents_and_is_ranked(client: TestClient) -> None:
    sample = json.loads(Path(SOURCES / "sample.json").read_text(encoding="utf-8"))
    assert min(len(document["text"].split()) for document in sample["documents"]) > 1500
    response = client.post("/rerank", json=sample)
    assert (response.status_code, response.json()["meta"]["warnings"]) == (200, [])
