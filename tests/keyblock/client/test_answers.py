"""How both clients read answers: rankings, stored documents, errors, pages of other servers, and invalid answers."""

import json
import pickle
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keyblock.client import AccessError, AnswerError, Client, InvalidRequestError, KeyBlockError, NotFoundError, UnreachableError
from keyblock.client.errors import StatusError, UnavailableError, read_error
from keyblock.client.results import read_ranking, read_stored
from keyblock.results import Block, Result
from service.command.inputs import Input
from service.command.rankers import Asked, RemoteRanker
from service.command.report import Report
from tests.keyblock.client.conftest import QUERY, TEXTS, Connect
from tests.keyblock.client.proxy import Fault, Proxy, says


def test_an_answer_by_hand() -> None:
    """What the answer brings back of a document goes before what was sent; a block of a text that nobody has is without one."""
    sent = [{"text": "a river"}, {"id": "b", "title": "sent"}, {"text": "sent", "title": "sent"}]
    block = {"start": 2, "end": 7, "score": 0.5}
    answer: Any = {
        "model": "m",
        "usage": {"prompt_tokens": 9, "total_tokens": 9},
        "meta": {"degraded": False, "warnings": [], "timings_ms": {}},
        "results": [
            {"index": 2, "relevance_score": 0.75, "document": {"text": "a stone"}, "blocks": [block]},
            {"index": 0, "relevance_score": 0.5, "blocks": [block]},
            {"index": 1, "relevance_score": 0.25, "id": "b", "blocks": [block], "scored_by": "order", "fused_score": 1.5},
        ],
    }
    assert list(read_ranking(answer, sent, "id")) == [
        Result(2, 0.75, None, None, "a stone", (Block(2, 7, 0.5, "stone"),)),
        Result(0, 0.5, None, None, "a river", (Block(2, 7, 0.5, "river"),)),
        Result(1, 0.25, "b", "sent", None, (Block(2, 7, 0.5, None),), "order", fused_score=1.5),
    ]


def test_when_a_document_is_forgotten() -> None:
    stored = read_stored({"id": "a", "text": "t", "blocks": 1, "tokens": 2, "expires": 1.5})
    assert stored.expires == datetime(1970, 1, 1, 0, 0, 1, 500_000, tzinfo=UTC)
    assert "'t'" not in repr(stored)


NAMES = st.sampled_from(["message", "error", "detail", "type", "error_type"]) | st.text()
LEAVES = st.none() | st.booleans() | st.integers() | st.text()
JSON = st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3), max_leaves=9)


@given(st.integers(400, 599), st.binary() | JSON.map(lambda value: json.dumps(value).encode()))
def test_any_body_of_an_error_is_read(status: int, content: bytes) -> None:
    error = read_error(status, content, "r1", None)
    assert (error.status, error.request_id) == (status, "r1")
    assert str(error).endswith(f"(status {status}, request r1)")
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy), vars(copy)) == (type(error), str(error), vars(error))
    assert all(isinstance(one, dict) for one in error.details)


@pytest.mark.parametrize(
    ("statuses", "kind"),
    [
        ((400, 408, 413, 415, 422), InvalidRequestError),
        ((401, 403), AccessError),
        ((404,), NotFoundError),
        ((429, 500, 502, 503, 504, 507), UnavailableError),
    ],
)
def test_kinds_of_errors(statuses: tuple[int, ...], kind: type[StatusError]) -> None:
    assert {type(read_error(status, b"", "", None)) for status in statuses} == {kind}


def test_refused_with_the_services_words(client: Client) -> None:
    with pytest.raises(InvalidRequestError, match=r"^query: is empty: say what") as caught:
        client.rerank(" ", TEXTS, fallback=True)
    assert (caught.value.status, caught.value.kind, caught.value.retry_after) == (422, "invalid_request", None)
    with pytest.raises(InvalidRequestError, match="the store has no document of these ids: 'nobody'"):
        client.rerank(QUERY, [{"id": "nobody"}], strict=True)


@pytest.mark.parametrize(
    ("fault", "kind", "problem"),
    [
        (says(401), AccessError, r"told so \(status 401"),
        (says(403, b"<h1>no</h1>"), AccessError, r"<h1>no</h1> \(status 403"),
        (says(413, b""), InvalidRequestError, r"an error without a message \(status 413"),
        (says(200, b"<html>Welcome"), AnswerError, r"not KeyBlock's answer \(body: .* it begins b'<html>Welcome'"),
        (says(200, b'[{"index": 0, "score": 1}]'), AnswerError, "not KeyBlock's answer"),
        (says(307, b"", location="https://elsewhere/"), AnswerError, "answers 307 and points to https://elsewhere/"),
        (says(200, b"{}", content_encoding="gzip"), UnreachableError, "."),
    ],
)
def test_a_fallback_hides_no_mistake_of_ours(
    connect: Connect, proxy: Proxy, fault: Fault, kind: type[KeyBlockError], problem: str
) -> None:
    proxy.faults = [fault]
    with pytest.raises(kind, match=problem) as caught:
        connect(proxy.url).rerank(QUERY, TEXTS, fallback=kind is not UnreachableError)
    assert caught.value.request_id == proxy.seen[0].headers["x-request-id"]
    assert len(proxy.seen) == 1


def test_an_answer_about_other_documents(proxied: Client, proxy: Proxy) -> None:
    meta = {"degraded": False, "warnings": [], "timings_ms": {}, "tokens_per_document": 1, "api_version": {}, "billed_units": {}}
    answer = {"id": "", "object": "rerank", "created": 0, "model": "m", "usage": {"prompt_tokens": 0, "total_tokens": 0}}
    results = [{"index": 2, "relevance_score": 1}]
    proxy.faults = [says(200, json.dumps(answer | {"results": results, "meta": meta | {"tokens": {}}}).encode())]
    with pytest.raises(AnswerError, match="names a document that was not sent: there were 2"):
        proxied.rerank(QUERY, TEXTS)


def test_a_key_that_may_only_rank_is_enough_for_the_command(proxied: Client, proxy: Proxy) -> None:
    proxy.faults = [says(403)]  # of GET /info
    assert len(RemoteRanker(proxied, Asked("river"), Report()).rank([Input("a", "a river")])) == 1
