"""The text of files for the page: read by a process that cannot harm the service, for whoever may rank."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest
from starlette.testclient import TestClient

from service.app import create_app
from service.playground import reading
from service.playground.reading import PATH
from service.ranking.ranker import Ranker
from service.settings import Settings
from service.telemetry import metrics
from tests.service.files.made import SAMPLES, paragraph, pdf, word
from tests.service.keyed import bearing, keyed

TITLES = {"an EPUB": "A book", "an HTML page": "Rivers"}


@pytest.mark.parametrize("kind", SAMPLES)
def test_the_text_of_a_file(client: TestClient, kind: str) -> None:
    response = client.post(PATH, content=SAMPLES[kind])
    assert (response.status_code, response.headers["content-type"]) == (200, "application/json")
    known = {"title": TITLES.get(kind, ""), "problem": "", "paged": kind == "a PDF"}
    assert response.json() == {"text": "The river rises.", **known}


def test_a_piece_of_a_page_is_known_by_its_name(client: TestClient) -> None:
    assert client.post(PATH, params={"name": "a & b?.html"}, content=b"<p>It</p>").json()["text"] == "It"
    assert client.post(PATH, params={"name": "a.txt"}, content=b"<p>It</p>").json()["text"] == "<p>It</p>"


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (pdf([[]]), "is a PDF, skipped: it holds no text: run OCR first (ocrmypdf)"),
        (b"%PDF-1.7", "is a PDF, skipped: it is broken ("),
        (b"\x89PNG\r\n\x1a\n\0", "is an image, skipped: "),
    ],
)
def test_what_has_no_text_is_refused_in_a_line(client: TestClient, content: bytes, problem: str) -> None:
    response = client.post(PATH, content=content)
    assert response.status_code == 422
    assert response.json()["message"].startswith(problem)


def client_with(settings: Settings, ranker: Ranker, **more: object) -> TestClient:
    """A client of an application with more settings."""
    return TestClient(create_app(settings.model_copy(update=more), ranker))


def test_a_file_and_its_text_are_as_large_as_a_body_and_a_document_may_be(settings: Settings, ranker: Ranker) -> None:
    small = client_with(settings, ranker, max_body_bytes=1000, max_document_chars=900)
    assert [small.post(PATH, content=b"x" * n).status_code for n in (900, 901, 1001)] == [200, 422, 413]
    problem = "has a text of 901 characters; a document may have 900: take a part of it"
    assert small.post(PATH, content=b"x" * 901).json()["message"] == problem


def test_a_file_comes_as_it_is(client: TestClient) -> None:
    assert client.post(PATH, content=b"x", headers={"content-encoding": "gzip"}).status_code == 415


def test_files_are_read_only_for_keys_that_may_rank(settings: Settings, ranker: Ranker) -> None:
    asked = client_with(keyed(settings), ranker)
    senders = ({}, bearing("ops"), bearing("reader"))
    assert [asked.post(PATH, content=b"x", headers=headers).status_code for headers in senders] == [401, 403, 200]


def outcomes(ranker: Ranker) -> Counter[str]:
    value = ranker.metrics.registry.get_sample_value
    return Counter({one: int(value("keyblock_files_total", {"outcome": one}) or 0) for one in metrics.FILES})


def test_files_are_read_one_at_a_time_and_counted(client: TestClient, ranker: Ranker) -> None:
    before = outcomes(ranker)
    slow = word(paragraph("The river rises.") * 8_000)
    with ThreadPoolExecutor(4) as senders:
        answers = list(senders.map(lambda content: client.post(PATH, content=content), [slow] * 4))
    assert Counter(answer.status_code for answer in answers) == {200: 1, 429: 3}
    assert {answer.headers.get("retry-after") for answer in answers} == {None, "1"}
    assert client.post(PATH, content=pdf([[]])).status_code == 422
    assert outcomes(ranker) - before == {"ok": 1, "busy": 3, "refused": 1}


@pytest.mark.parametrize(("name", "value"), [("WAIT", 0), ("COMMAND", ("/bin/false",))])
def test_a_process_that_does_not_end_well_is_a_file_that_takes_too_much(
    client: TestClient, monkeypatch: pytest.MonkeyPatch, name: str, value: object
) -> None:
    monkeypatch.setattr(f"service.playground.reading.{name}", value)
    response = client.post(PATH, content=b"x")
    assert (response.status_code, response.json()["message"]) == (422, reading.TOO_MUCH)
