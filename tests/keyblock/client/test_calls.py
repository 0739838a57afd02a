"""The calls of both clients, against the running service and one that is away: rankings, fallbacks, documents by id, health."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from keyblock.client import Client, Document, NotFoundError, TimeUpError, UnavailableError, UnreachableError, uploads
from keyblock.client.calls import LARGE, Calls, Send, Work
from keyblock.client.options import Configuration
from tests.keyblock.client.conftest import QUERY, SOON, TEXTS, Connect
from tests.keyblock.client.proxy import Fault, Proxy, broken, says, silent
from tests.support.serving import Service


def test_a_ranking(client: Client, lease: dict[str, Any]) -> None:
    ranking = client.rerank(lease["query"], lease["documents"])
    assert [result.id for result in ranking] == ["lease", "advice-column", "gym"]
    assert (len(ranking), ranking[0].index, ranking[0].scored_by) == (3, 2, "model")
    assert ranking[0].relevance_score > ranking[1].relevance_score > ranking[-1].relevance_score
    text = lease["documents"][2]["text"]
    best = ranking[0].blocks[0]
    assert best.text == text[best.start : best.end]
    assert "two months' notice is enough" in best.text
    assert (ranking.degraded, ranking.fallback, ranking.warnings) == (False, False, ())
    assert ranking.total_tokens > 0
    assert ranking.timings_ms["total"] > 0
    assert ranking.model == client.info()["model"]


@pytest.mark.parametrize("given", [TEXTS, [{"text": text} for text in TEXTS], [Document(text=text) for text in TEXTS]])
def test_documents_of_every_kind(client: Client, given: list[Any]) -> None:
    ranking = client.rerank(QUERY, iter(given), top_n=1, return_blocks=False)
    assert [(result.index, result.text, result.blocks) for result in ranking] == [(1, TEXTS[1], ())]


def test_a_single_text_is_a_list_of_one_and_none_an_empty_text(client: Client) -> None:
    assert [result.text for result in client.rerank(QUERY, TEXTS[1])] == [TEXTS[1]]
    ranking = client.rerank(QUERY, [None, TEXTS[1], Document(text=None)])
    assert [(result.index, result.scored_by) for result in ranking] == [(1, "model"), (0, "order"), (2, "order")]


NO_DOCUMENT = "must be a string, a mapping or a Document, not"
WRONG_CALLS: list[tuple[Callable[[Any], object], str]] = [
    (lambda client: client.rerank(QUERY, [b"bytes"]), rf"documents\[0\] {NO_DOCUMENT}"),
    (lambda client: client.rerank(QUERY, ["a text", 7]), rf"documents\[1\] {NO_DOCUMENT}"),
    (lambda client: client.rerank(QUERY, b"bytes"), rf"documents\[0\] {NO_DOCUMENT}"),
    (lambda client: client.put_documents([{"id": 1, "text": "x"}, 7]), r"documents\[1\] must be"),
    # one document is not several: its fields or letters would be put, and refused one by one
    (lambda client: client.put_documents({"id": 1, "text": "x"}), "documents must be several"),
    (lambda client: client.put_documents("x"), "documents must be several"),
    (lambda client: client.put_documents(Document(text="x")), "documents must be several"),
    (lambda client: client.rerank(QUERY, TEXTS, deadline=5), "has no option 'deadline'; there are model, top_n"),
    (lambda client: client.rerank(QUERY, TEXTS, deadline_ms="20"), "deadline_ms must be a number, not '20'"),
    (lambda client: client.rerank(QUERY, TEXTS, timeout=[20]), r"timeout must be a number, not \[20\]"),
    (lambda client: client.rerank(QUERY, TEXTS, timeout=True), "timeout must be a number, not True"),
]


@pytest.mark.parametrize(("call", "problem"), WRONG_CALLS)
def test_a_wrong_call_is_a_type_error(client: Client, call: Callable[[Any], object], problem: str) -> None:
    with pytest.raises(TypeError, match=problem):
        call(client)


def test_documents_by_id(client: Client) -> None:
    outcome = client.put_documents([{"id": n, "text": text, "title": "A river"} for n, text in enumerate(TEXTS)])
    assert (outcome.stored, outcome.failed, outcome.errors) == (2, 0, ())
    ranking = client.rerank(QUERY, [{"id": 0}, {"id": 1}], return_documents=True)
    assert [(result.id, result.text) for result in ranking] == [(1, TEXTS[1]), (0, TEXTS[0])]
    assert ranking[0].blocks[0].text == TEXTS[1]
    assert [result.blocks[0].text for result in client.rerank(QUERY, [{"id": 1}])] == [None]
    stored = client.get_document(0)
    assert (stored.id, stored.text, stored.title, stored.blocks, stored.expires) == ("0", TEXTS[0], "A river", 1, None)
    assert [client.delete_document("0"), client.delete_document("0"), client.delete_document(1)] == [True, False, True]
    with pytest.raises(NotFoundError, match="no document is stored under the id '0'"):
        client.get_document(0)


@pytest.mark.parametrize("name", [".", "..", "a/../b", "/", "?", "#", "%2F", "a b", "ü", "😀", "\ud800", "x" * 512])
def test_any_name_is_an_id(client: Client, name: str) -> None:
    client.put_documents([{"id": name, "text": name}])
    assert client.get_document(name).text == name.replace("\ud800", "\ufffd")
    assert client.delete_document(name)
    with pytest.raises(ValueError, match="an id must have at least one character"):
        client.get_document("")


REACHED_NOT: dict[str, list[Fault]] = {
    "silent": [silent],
    "broken": [broken] * 9,
    "busy": [says(429, retry_after="60")],
    "failing": [says(500)],
    "garbage of a proxy": [says(504, b"<html>")],
}


@pytest.mark.parametrize("faults", REACHED_NOT.values(), ids=REACHED_NOT)
def test_a_fallback_is_the_order_given(connect: Connect, proxy: Proxy, faults: list[Fault]) -> None:
    proxy.faults = list(faults)
    documents = [{"id": "a", "title": "t", "text": "one"}, "two", "three"]
    ranking = connect(proxy.url, timeout=SOON).rerank(QUERY, documents, fallback=True, top_n=2)
    assert (ranking.fallback, ranking.degraded, ranking.model) == (True, True, "")
    assert ranking.warnings[0].startswith("the order given: ")
    assert [(r.index, r.id, r.title, r.text, r.relevance_score, r.scored_by) for r in ranking] == [
        (0, "a", "t", "one", 0.0, "order"),
        (1, None, None, "two", 0.0, "order"),
    ]


def test_nobody_there(connect: Connect) -> None:
    client = connect("http://127.0.0.1:1", retries=0)
    with pytest.raises(UnreachableError, match=r"^http://127.0.0.1:1: .* \(is a service running there\?\)$"):
        client.rerank(QUERY, TEXTS)
    assert (client.live(), client.ready()) == (False, False)
    with pytest.raises(TimeUpError, match="not ready after"):
        client.wait_ready(0.1)


def test_health(connect: Connect, running: Service) -> None:
    client = connect(running.url + "/")
    client.wait_ready()
    assert (client.live(), client.ready()) == (True, True)
    assert client.info()["limits"]["max_document_chars"] == 2_000_000
    with pytest.raises(NotFoundError):
        connect(running.url + "/elsewhere").ready()


def test_an_upload_of_any_length_in_batches(proxied: Client, proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    n, most = 12, 4_000
    monkeypatch.setattr(uploads, "BATCH_BYTES", most)

    def documents() -> Iterator[dict[str, Any]]:
        for number in range(n):
            yield {"id": f"long-{number}", "text": f"{number:02} Vienna " * 100}

    proxy.faults = [broken, says(429, retry_after="0")]
    assert proxied.put_documents(documents()).stored == n
    assert len(proxy.seen) == 2 + 4
    assert max(len(seen.body) for seen in proxy.seen) <= most
    assert all(proxied.delete_document(f"long-{number}") for number in range(n))


def test_wrong_documents_are_named_by_their_place(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uploads, "BATCH_BYTES", 400)
    good = [{"id": f"good-{n}", "text": "x" * 180} for n in range(3)]
    wrong = [{"id": "no text"}, {"id": "", "text": "y"}, {"text": "no id"}]
    outcome = client.put_documents([good[0], wrong[0], good[1], good[2], {"id": "huge", "text": "y" * 2_000_001}, *wrong[1:]])
    assert (outcome.stored, outcome.failed) == (3, 4)
    assert [(one.index, one.message.split(":")[0]) for one in outcome.errors] == [(1, "text"), (4, "text"), (5, "id"), (6, "id")]
    assert client.put_documents([]).stored == 0
    assert (client.put_documents(wrong).failed, client.put_documents(wrong).stored) == (3, 0)


def test_an_upload_cut_short_says_what_is_stored(proxied: Client, proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uploads, "BATCH_BYTES", 400)
    documents = [{"id": f"some-{n}", "text": "z " * 90} for n in range(6)]
    proxy.faults = [says(200, b'{"stored": 2, "failed": 0, "errors": [], "warnings": []}'), says(507)]
    with pytest.raises(UnavailableError, match="told so") as caught:
        proxied.put_documents(documents)
    assert caught.value.stored == 2


def test_only_work_on_large_documents_is_given_away() -> None:
    calls = Calls(Configuration(url="http://x", compression="gzip"))
    assert isinstance(next(calls.rerank(QUERY, TEXTS, {})), Send)
    steps = calls.rerank(QUERY, ["x" * LARGE], {})
    body = next(steps)
    assert isinstance(body, Work)
    packed = steps.send(body.do())
    assert isinstance(packed, Work)
    assert isinstance(steps.send(packed.do()), Send)
