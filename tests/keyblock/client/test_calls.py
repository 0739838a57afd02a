"""Both clients against the running service, and against one that fails: answers, retries, budgets, fallbacks, errors."""

import gzip
import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
import zstandard

from benchmarks.performance.service import Service
from keyblock.client import (
    AccessError,
    AnswerError,
    Client,
    Document,
    InvalidRequestError,
    KeyBlockError,
    NotFoundError,
    RerankOptions,
    TimeUpError,
    UnavailableError,
    UnreachableError,
    uploads,
)
from keyblock.client.calls import Calls
from keyblock.client.options import OWN, Configuration
from keyblock.client.steps import LARGE, Send, Work
from keyblock.wire import Options
from tests.keyblock.client.conftest import Connect
from tests.keyblock.client.proxy import Fault, Proxy, broken, closed, cut, dripping, half, says, silent

QUERY, TEXTS = "Which river flows through Vienna?", ["The Thames flows through London.", "The Danube flows through Vienna."]
SOON = 0.4  # seconds: a budget that tests can wait for
LATE = 5.0  # seconds over the budget, on a machine that does other work as well


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


def test_a_single_text_is_a_list_of_one(client: Client) -> None:
    assert [result.text for result in client.rerank(QUERY, TEXTS[1])] == [TEXTS[1]]


@pytest.mark.parametrize("given", [[b"bytes"], [7], [None], TEXTS[0].encode()])
def test_what_is_no_document_is_a_type_error(client: Client, given: Any) -> None:
    with pytest.raises(TypeError, match=r"documents\[\d\] must be a string, a mapping or a Document, not"):
        client.rerank(QUERY, given)


def test_a_misspelt_option_is_an_error(client: Client) -> None:
    with pytest.raises(TypeError, match="has no option 'deadline'; there are model, top_n"):
        client.rerank(QUERY, TEXTS, deadline=5)  # type: ignore[call-arg]


def test_options_are_those_of_the_wire() -> None:
    elsewhere = {*Options.not_honoured(), "rank_fields"}  # of Cohere's clients, where documents are rows of a table
    assert set(RerankOptions.__annotations__) - OWN == set(Options.model_fields) - elsewhere


@pytest.mark.parametrize("text", ["a \ud800 river \udc00 in Vienna", "\ud83d\ude00 Vienna's river", "😀 مرحبا 東京都 Vienna\u0301"])
def test_offsets_hold_for_any_text(client: Client, text: str) -> None:
    (result,) = client.rerank(QUERY, [text])
    (block,) = result.blocks
    assert block.text == text[block.start : block.end]
    assert "Vienna" in block.text


def test_only_work_on_large_documents_is_given_away() -> None:
    calls = Calls(Configuration(url="http://x", compression="gzip"))
    assert isinstance(next(calls.rerank(QUERY, TEXTS, {})), Send)
    steps = calls.rerank(QUERY, ["x" * LARGE], {})
    body = next(steps)
    assert isinstance(body, Work)
    packed = steps.send(body.do())
    assert isinstance(packed, Work)
    assert isinstance(steps.send(packed.do()), Send)


def test_large_bodies_are_compressed(connect: Connect, proxy: Proxy) -> None:
    texts = [f"{n} The Danube flows through Vienna. " * 100 for n in range(12)]
    scores = [connect(proxy.url).rerank(QUERY, texts)]
    for how, unpack in (("gzip", gzip.decompress), ("zstd", lambda body: zstandard.ZstdDecompressor().decompress(body))):
        packing = connect(proxy.url, compression=how)
        scores.append(packing.rerank(QUERY, texts))
        packing.rerank(QUERY, TEXTS)
        large, small = proxy.seen[-2:]
        assert large.headers["content-encoding"] == how
        assert json.loads(unpack(large.body))["documents"] == texts
        assert "content-encoding" not in small.headers
    assert scores[0].results == scores[1].results == scores[2].results


def test_headers(connect: Connect, proxy: Proxy) -> None:
    client = connect(proxy.url, api_key="secret", headers={"X-Team": "search", "User-Agent": "ours"})
    assert client.rerank(QUERY, TEXTS).request_id == proxy.seen[0].headers["x-request-id"] != ""
    assert proxy.seen[0].headers["authorization"] == "Bearer secret"
    assert (proxy.seen[0].headers["x-team"], proxy.seen[0].headers["user-agent"]) == ("search", "ours")
    assert "secret" not in repr(client)


def test_a_password_in_the_url_is_in_no_message(connect: Connect) -> None:
    with pytest.raises(UnreachableError, match=r"^http://127\.0\.0\.1:1/v1: ") as caught:
        connect("http://user:secret@127.0.0.1:1/v1", retries=0).rerank(QUERY, TEXTS)
    assert "secret" not in str(caught.value)


def test_documents_by_id(client: Client) -> None:
    told = client.put_documents([{"id": n, "text": text, "title": "A river"} for n, text in enumerate(TEXTS)])
    assert (told.stored, told.failed, told.errors) == (2, 0, ())
    ranking = client.rerank(QUERY, [{"id": 0}, {"id": 1}], return_documents=True)
    assert [(result.id, result.text) for result in ranking] == [(1, TEXTS[1]), (0, TEXTS[0])]
    assert ranking[0].blocks[0].text == TEXTS[1]
    assert [result.blocks[0].text for result in client.rerank(QUERY, [{"id": 1}])] == [None]
    stored = client.get_document(0)
    assert (stored.id, stored.text, stored.title, stored.blocks, stored.expires) == ("0", TEXTS[0], "A river", 1, None)
    assert [client.delete_document("0"), client.delete_document("0"), client.delete_document(1)] == [True, False, True]
    with pytest.raises(NotFoundError, match="no document is stored under the id '0'"):
        client.get_document(0)


@pytest.mark.parametrize("name", [".", "..", "a/../b", "/", "?", "#", "%2F", "a b", "ü", "😀", "x" * 512])
def test_any_name_is_an_id(client: Client, name: str) -> None:
    client.put_documents([{"id": name, "text": name}])
    assert client.get_document(name).text == name
    assert client.delete_document(name)


def test_no_name_is_no_id(client: Client) -> None:
    with pytest.raises(ValueError, match="an id must have at least one character"):
        client.get_document("")


def test_refused_with_the_services_words(client: Client) -> None:
    with pytest.raises(InvalidRequestError, match=r"^query: is empty: say what") as caught:
        client.rerank(" ", TEXTS, fallback=True)
    assert (caught.value.status, caught.value.answer.kind, caught.value.retry_after) == (422, "invalid_request", None)
    with pytest.raises(InvalidRequestError, match="the store has no document of these ids: 'nobody'"):
        client.rerank(QUERY, [{"id": "nobody"}], strict=True)


def test_a_deadline_is_kept_and_told(client: Client) -> None:
    texts = [f"{n} The Danube flows through Vienna, and on to the sea. " * 800 for n in range(60)]
    ranking = client.rerank(QUERY, texts, deadline_ms=30)
    assert ranking.degraded
    assert {result.scored_by for result in ranking} & {"selector", "order"}
    assert any(warning.startswith("deadline_ms: ") for warning in ranking.warnings)


AGAIN: dict[str, Fault] = {
    "busy": says(429, retry_after="0"),
    "unready": says(503, retry_after="0"),
    "no replica": says(502, b"<html>Bad gateway</html>"),
    "broken": broken,
    "closed": closed,
    "cut": cut,
}


@pytest.mark.parametrize("fault", AGAIN.values(), ids=AGAIN)
def test_tried_again(connect: Connect, proxy: Proxy, fault: Fault) -> None:
    proxy.faults = [fault, fault]
    assert connect(proxy.url).rerank(QUERY, TEXTS, deadline_ms=20_000)[0].index == 1
    assert len(proxy.seen) == 3
    assert len({seen.headers["x-request-id"] for seen in proxy.seen}) == 1
    deadlines = [json.loads(seen.body)["deadline_ms"] for seen in proxy.seen]
    assert 20_000 > deadlines[0] > deadlines[1] > deadlines[2] > 0


def test_retry_after_is_waited_for(connect: Connect, proxy: Proxy) -> None:
    proxy.faults = [says(429, retry_after="1")]
    connect(proxy.url).rerank(QUERY, TEXTS)
    assert 1 <= proxy.seen[1].at - proxy.seen[0].at < 1.25 + LATE


@pytest.mark.parametrize(("options", "tries"), [({"timeout": SOON}, 1), ({"deadline_ms": 500}, 1), ({"timeout": 2.0}, 2)])
def test_what_cannot_be_waited_for_is_not(connect: Connect, proxy: Proxy, options: Any, tries: int) -> None:
    """Neither beyond the timeout nor beyond the deadline; and the answer that there was is what is raised."""
    proxy.faults = [says(429, retry_after="1")] * 9
    started = time.monotonic()
    with pytest.raises(UnavailableError, match=r"told so \(status 429") as caught:
        connect(proxy.url).rerank(QUERY, TEXTS, **options)
    assert (caught.value.retry_after, len(proxy.seen)) == (1.0, tries)
    assert time.monotonic() - started < 1.25 * tries + LATE


def test_no_more_often_than_told(connect: Connect, proxy: Proxy) -> None:
    proxy.faults = [broken] * 9
    with pytest.raises(UnreachableError):
        connect(proxy.url, retries=2).rerank(QUERY, TEXTS)
    with pytest.raises(UnreachableError):
        connect(proxy.url, retries=0).rerank(QUERY, TEXTS)
    assert len(proxy.seen) == 4


@pytest.mark.parametrize("fault", [silent, dripping, half])
@pytest.mark.parametrize("options", [{"timeout": SOON}, {"deadline_ms": SOON * 1000 - 100}])
def test_the_budget_ends_it(connect: Connect, proxy: Proxy, fault: Fault, options: Any) -> None:
    proxy.faults = [fault]
    client = connect(proxy.url, margin=0.1)
    started = time.monotonic()
    with pytest.raises(TimeUpError, match="no answer in the time that the call had"):
        client.rerank(QUERY, TEXTS, **options)
    assert SOON <= time.monotonic() - started < SOON + LATE
    assert len(proxy.seen) == 1
    assert client.rerank(QUERY, TEXTS)[0].index == 1


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


@pytest.mark.parametrize(
    ("fault", "kind", "told"),
    [
        (says(401), AccessError, r"told so \(status 401"),
        (says(403, b"<h1>no</h1>"), AccessError, r"<h1>no</h1> \(status 403"),
        (says(413, b""), InvalidRequestError, r"an error without a message \(status 413"),
        (says(200, b"<html>Welcome"), AnswerError, "not KeyBlock's answer .* it begins b'<html>Welcome'"),
        (says(200, b'[{"index": 0, "score": 1}]'), AnswerError, "not KeyBlock's answer"),
        (says(307, b"", location="https://elsewhere/"), AnswerError, "answers 307 and points to https://elsewhere/"),
        (says(200, b"{}", content_encoding="gzip"), UnreachableError, "."),
    ],
)
def test_a_fallback_hides_no_mistake_of_ours(
    connect: Connect, proxy: Proxy, fault: Fault, kind: type[KeyBlockError], told: str
) -> None:
    proxy.faults = [fault]
    with pytest.raises(kind, match=told) as caught:
        connect(proxy.url).rerank(QUERY, TEXTS, fallback=kind is not UnreachableError)
    assert caught.value.request_id == proxy.seen[0].headers["x-request-id"]
    assert len(proxy.seen) == 1


def test_an_answer_about_other_documents(connect: Connect, proxy: Proxy) -> None:
    meta = {"degraded": False, "warnings": [], "timings_ms": {}, "tokens_per_document": 1, "api_version": {}, "billed_units": {}}
    answer = {"id": "", "object": "rerank", "created": 0, "model": "m", "usage": {"prompt_tokens": 0, "total_tokens": 0}}
    results = [{"index": 2, "relevance_score": 1}]
    proxy.faults = [says(200, json.dumps(answer | {"results": results, "meta": meta | {"tokens": {}}}).encode())]
    with pytest.raises(AnswerError, match="names a document that was not sent: there were 2"):
        connect(proxy.url).rerank(QUERY, TEXTS)


def test_nobody_there(connect: Connect) -> None:
    client = connect("http://127.0.0.1:1", timeout=SOON)
    with pytest.raises(UnreachableError, match=r"^http://127.0.0.1:1: "):
        client.rerank(QUERY, TEXTS)
    assert (client.live(), client.ready()) == (False, False)
    with pytest.raises(TimeUpError, match="not ready after"):
        client.wait_ready(0.1)


def test_health(client: Client, connect: Connect, running: Service) -> None:
    client.wait_ready()
    assert (client.live(), client.ready()) == (True, True)
    assert connect(running.url + "/").info()["limits"]["max_document_chars"] == 2_000_000
    with pytest.raises(NotFoundError):
        connect(running.url + "/elsewhere").ready()


def test_an_upload_of_any_length_in_batches(connect: Connect, proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    n, most = 30, 10_000
    monkeypatch.setattr(uploads, "BATCH_BYTES", most)

    def documents() -> Iterator[dict[str, Any]]:
        for number in range(n):
            yield {"id": f"long-{number}", "text": f"{number:02} Vienna " * 100}

    proxy.faults = [broken, says(429, retry_after="0")]
    client = connect(proxy.url)
    assert client.put_documents(documents()).stored == n
    assert len(proxy.seen) == 2 + 4
    assert max(len(seen.body) for seen in proxy.seen) <= most
    assert all(client.delete_document(f"long-{number}") for number in range(n))


def test_wrong_documents_are_named_by_their_place(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uploads, "BATCH_BYTES", 400)
    good = [{"id": f"good-{n}", "text": "x" * 180} for n in range(3)]
    wrong = [{"id": "no text"}, {"id": "", "text": "y"}, {"text": "no id"}]
    told = client.put_documents([good[0], wrong[0], good[1], good[2], {"id": "huge", "text": "y" * 2_000_001}, *wrong[1:]])
    assert (told.stored, told.failed) == (3, 4)
    assert [(one.index, one.message.split(":")[0]) for one in told.errors] == [(1, "text"), (4, "text"), (5, "id"), (6, "id")]
    assert client.put_documents([]).stored == 0
    assert (client.put_documents(wrong).failed, client.put_documents(wrong).stored) == (3, 0)


def test_an_upload_cut_short_says_what_is_stored(connect: Connect, proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uploads, "BATCH_BYTES", 400)
    documents = [{"id": f"some-{n}", "text": "z " * 90} for n in range(6)]
    proxy.faults = [says(200, b'{"stored": 2, "failed": 0, "errors": [], "warnings": []}'), says(507)]
    with pytest.raises(UnavailableError, match="told so") as caught:
        connect(proxy.url).put_documents(documents)
    assert caught.value.stored == 2


@pytest.mark.parametrize("given", [{"id": 1, "text": "x"}, "x", Document(text="x")])
def test_one_document_is_not_several(connect: Connect, given: Any) -> None:
    """Its fields or letters would be put, and refused one by one."""
    with pytest.raises(TypeError, match="documents must be several"):
        connect("http://127.0.0.1:1").put_documents(given)


@pytest.mark.parametrize("given", [b"bytes", 7, None])
def test_what_is_no_document_is_not_put(client: Client, given: Any) -> None:
    with pytest.raises(TypeError, match=r"documents\[1\] must be"):
        client.put_documents([{"id": 1, "text": "x"}, given])


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"url": "localhost:8000"}, "url must be like http://127.0.0.1:8000, not 'localhost:8000'"),
        ({"url": "http://x?y=1"}, "url must be like"),
        ({"compression": "br"}, "compression must be one of gzip, zstd, or None, not 'br'"),
        ({"timeout": -1}, "timeout must be at least 0.0, not -1"),
        ({"timeout": float("nan")}, "timeout must be at least 0.0, not nan"),
        ({"max_connections": 0}, "max_connections must be at least 1, not 0"),
        ({"api_key": "kb_secret\n"}, "^api_key has a character that no header can carry, such as the end of a line$"),
        ({"api_key": "schlüssel"}, "^api_key has a character"),
        ({"headers": {"x-team": "a\r\nb"}}, "^x-team has a character"),
    ],
)
def test_a_client_that_cannot_be_made(connect: Connect, options: Any, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        connect(**options)
