"""The client for code that waits: shared by threads, on connections of its own or the caller's."""

from concurrent.futures import ThreadPoolExecutor

import httpx

from keyblock.client import Client
from tests.keyblock.client.proxy import Proxy
from tests.support.serving import Service

QUERY, TEXTS = "Which river flows through Vienna?", ["The Thames flows through London.", "The Danube flows through Vienna."]


def test_threads_share_a_client(running: Service) -> None:
    with Client(running.url, max_connections=4) as client, ThreadPoolExecutor(16) as pool:
        rankings = list(pool.map(lambda _: client.rerank(QUERY, TEXTS), range(64)))
    assert {tuple(result.index for result in ranking) for ranking in rankings} == {(1, 0)}


def test_an_http_client_of_the_callers_own_stays_open(proxy: Proxy) -> None:
    with httpx.Client(headers={"x-own": "1"}, trust_env=False) as http:
        with Client(proxy.url, http=http) as client:
            assert client.live()
        assert http.get(f"{proxy.url}/health/live").status_code == 200
    assert proxy.seen[0].headers["x-own"] == "1"


def test_connections_are_used_again(running: Service) -> None:
    with httpx.Client() as http, Client(running.url, http=http) as client:
        for _ in range(5):
            assert len(client.rerank(QUERY, TEXTS)) == 2
        pool = http._transport._pool  # type: ignore[attr-defined]  # only httpx knows
        assert len(pool.connections) == 1
