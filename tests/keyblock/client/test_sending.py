"""How a request gets an answer, with both clients: headers, compression, attempts and budgets, through a proxy that fails."""

import gzip
import json
import time
from typing import Any

import pytest

from keyblock.client import Client, TimeUpError, UnavailableError, UnreachableError
from tests.keyblock.client.conftest import QUERY, SOON, TEXTS, Connect
from tests.keyblock.client.proxy import Fault, Proxy, broken, closed, cut, dripping, half, says, silent


def test_large_bodies_are_compressed(connect: Connect, proxy: Proxy) -> None:
    texts = [f"{n} The Danube flows through Vienna. " * 20 for n in range(2)]
    plain = connect(proxy.url).rerank(QUERY, texts)
    packing = connect(proxy.url, compression="gzip", compress_from=1000)
    assert packing.rerank(QUERY, texts).results == plain.results
    packing.rerank(QUERY, TEXTS)
    large, small = proxy.seen[-2:]
    assert large.headers["content-encoding"] == "gzip"
    assert json.loads(gzip.decompress(large.body))["documents"] == texts
    assert "content-encoding" not in small.headers


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


def test_retry_after_is_waited_for(proxied: Client, proxy: Proxy) -> None:
    proxy.faults = [says(429, retry_after="1")]
    proxied.rerank(QUERY, TEXTS)
    assert proxy.seen[1].at - proxy.seen[0].at >= 1


@pytest.mark.parametrize(
    ("options", "waits"), [({"timeout": 60}, ["3600"]), ({"deadline_ms": 60_000}, ["3600"]), ({"timeout": 60}, ["0", "3600"])]
)
def test_what_cannot_be_waited_for_is_not(connect: Connect, proxy: Proxy, options: Any, waits: list[str]) -> None:
    """Neither beyond the timeout nor beyond the deadline; and the answer that there was is what is raised."""
    proxy.faults = [says(429, retry_after=wait) for wait in waits]
    with pytest.raises(UnavailableError, match=r"told so \(status 429") as caught:
        connect(proxy.url).rerank(QUERY, TEXTS, **options)
    assert (caught.value.retry_after, len(proxy.seen)) == (3600.0, len(waits))


def test_a_request_is_sent_no_more_often_than_allowed(connect: Connect, proxy: Proxy) -> None:
    proxy.faults = [broken] * 9
    with pytest.raises(UnreachableError):
        connect(proxy.url, retries=2).rerank(QUERY, TEXTS)
    with pytest.raises(UnreachableError):
        connect(proxy.url, retries=0).rerank(QUERY, TEXTS)
    assert len(proxy.seen) == 4


@pytest.mark.parametrize(
    ("fault", "options"),
    [(silent, {"timeout": SOON}), (dripping, {"timeout": SOON}), (half, {"deadline_ms": SOON * 1000 - 100})],
)
def test_the_budget_ends_it(connect: Connect, proxy: Proxy, fault: Fault, options: Any) -> None:
    proxy.faults = [fault]
    client = connect(proxy.url, margin=0.1)
    started = time.monotonic()
    with pytest.raises(TimeUpError, match="no answer in the time that the call had"):
        client.rerank(QUERY, TEXTS, **options)
    assert time.monotonic() - started >= SOON
    assert len(proxy.seen) <= 1  # which is not asked again; on a machine that stalls it may not have come that far
    proxy.faults = []
    assert client.rerank(QUERY, TEXTS)[0].index == 1
