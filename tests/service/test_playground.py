"""The files of the page at / and of the reference at /docs; both in a browser: test_playground_browser.py."""

import json
import tomllib

import pytest
from starlette.testclient import TestClient

from service import reference
from service.app import RERANK_PATHS, create_app
from service.assets import TYPES
from service.playground import FOLDER, PAGE
from service.playground.reading import PATH as READING
from service.ranking.ranker import Ranker
from service.settings import Settings
from tests.conftest import ROOT

SOURCES = ROOT / "service" / "playground"
PATHS = ["/", *(f"{FOLDER}/{path.name}" for path in SOURCES.iterdir() if path.suffix[1:] in TYPES and path.name != PAGE)]


def test_each_file_is_served_as_what_it_is_and_not_again(client: TestClient) -> None:
    files = {path: (SOURCES / (path.rpartition("/")[2] or PAGE)).read_bytes() for path in PATHS}
    files |= {path: file.read_bytes() for path, file in reference.files().items()}
    for path, content in files.items():
        response = client.get(path)
        assert (response.status_code, response.content) == (200, content)
        kind = path.rpartition(".")[2]
        assert response.headers["content-type"] == TYPES.get(kind, TYPES["html"])
        assert response.headers["x-content-type-options"] == "nosniff"
        assert response.headers["cache-control"] == "no-cache"
        assert client.head(path).headers["content-length"] == str(len(response.content))
        etag = response.headers["etag"]
        for known in (etag, f"W/{etag}", f'"other", {etag}', "*"):
            again = client.get(path, headers={"if-none-match": known})
            assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", etag)
        assert client.get(path, headers={"if-none-match": '"other"'}).status_code == 200


@pytest.mark.parametrize("path", ["/", reference.PATH])
def test_the_policy_lets_nothing_in_from_elsewhere(client: TestClient, path: str) -> None:
    policy = dict(rule.split(" ", 1) for rule in client.get(path).headers["content-security-policy"].split("; "))
    if path == "/":
        assert policy.pop("require-trusted-types-for") == "'script'"
    assert policy.pop("img-src") == ("'self'" if path == "/" else "'self' data:")
    assert policy["default-src"] == policy["frame-ancestors"] == "'none'"
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
    sample = json.loads((SOURCES / "sample.json").read_text(encoding="utf-8"))
    assert min(len(document["text"].split()) for document in sample["documents"]) > 1500
    response = client.post("/rerank", json=sample)
    assert (response.status_code, response.json()["meta"]["warnings"]) == (200, [])


def test_the_reference_is_one_page_of_ours(client: TestClient) -> None:
    assert client.get("/redoc").status_code == 404
    assert f"{reference.PATH}/swagger-ui-bundle.js" in reference.files()
    assert len(RERANK_PATHS) == len([path for path in client.get("/openapi.json").json()["paths"] if path.endswith("/rerank")])
