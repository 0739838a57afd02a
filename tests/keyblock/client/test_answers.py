"""How both clients read answers: errors, pages of other servers, and invalid answers."""

import json

import pytest

from keyblock.client import (
    AccessError,
    AnswerError,
    Client,
    InvalidRequestError,
    KeyBlockError,
    UnreachableError,
)
from service.command.inputs import Input
from service.command.rankers import Asked, RemoteRanker
from service.command.report import Report
from tests.keyblock.client.conftest import Connect
from tests.keyblock.client.proxy import Fault, Proxy, says

QUERY, TEXTS = "Which river flows through Vienna?", ["The Thames flows through London.", "The Danube flows through Vienna."]


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


def test_an_answer_about_other_documents(connect: Connect, proxy: Proxy) -> None:
    meta = {"degraded": False, "warnings": [], "timings_ms": {}, "tokens_per_document": 1, "api_version": {}, "billed_units": {}}
    answer = {"id": "", "object": "rerank", "created": 0, "model": "m", "usage": {"prompt_tokens": 0, "total_tokens": 0}}
    results = [{"index": 2, "relevance_score": 1}]
    proxy.faults = [says(200, json.dumps(answer | {"results": results, "meta": meta | {"tokens": {}}}).encode())]
    with pytest.raises(AnswerError, match="names a document that was not sent: there were 2"):
        connect(proxy.url).rerank(QUERY, TEXTS)


def test_a_key_that_may_only_rank_is_enough_for_the_command(proxy: Proxy) -> None:
    proxy.faults = [says(403)]  # of GET /info
    with Client(proxy.url) as client:
        assert len(RemoteRanker(client, Asked("river"), Report("keyblock")).rank([Input("a", "a river")])) == 1
