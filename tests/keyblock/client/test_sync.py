"""Clients for code that waits and for code that awaits: shared, cancelled, on connections of their own or the caller's."""

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from keyblock.client import AsyncClient, Client, TimeUpError
from tests.keyblock.client.conftest import QUERY, TEXTS
from tests.keyblock.client.proxy import Proxy, silent
from tests.support.serving import Service


def test_threads_share_a_client(running: Service) -> None:
    with Client(running.url, max_connections=4) as client, ThreadPoolExecutor(16) as pool:
        rankings = list(pool.map(lambda _: client.rerank(QUERY, TEXTS), range(16)))
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


def test_many_calls_at_once(running: Service) -> None:
    async def main() -> None:
        async with AsyncClient(running.url, max_connections=8) as client:
            rankings = await asyncio.gather(*(client.rerank(QUERY, TEXTS) for _ in range(16)))
        assert {tuple(result.index for result in ranking) for ranking in rankings} == {(1, 0)}

    asyncio.run(main())


def test_a_cancelled_call_harms_no_other(proxy: Proxy) -> None:
    async def main() -> None:
        proxy.faults = [silent]
        async with AsyncClient(proxy.url, max_connections=1) as client:
            call = asyncio.create_task(client.rerank(QUERY, TEXTS))
            while not proxy.seen:
                await asyncio.sleep(0.01)
            with pytest.raises(TimeoutError) as caught:
                async with asyncio.timeout(0):
                    await call
            assert not isinstance(caught.value, TimeUpError)
            assert (await client.rerank(QUERY, TEXTS))[0].index == 1

    asyncio.run(main())


def test_documents_from_an_async_iterator(running: Service) -> None:
    async def documents() -> AsyncIterator[dict[str, Any]]:
        for number in range(3):
            await asyncio.sleep(0)
            yield {"id": f"async-{number}", "text": TEXTS[1]}

    async def main() -> None:
        async with AsyncClient(running.url) as client:
            await client.wait_ready()
            assert (await client.put_documents(documents())).stored == 3
            assert (await client.put_documents([{"id": "async-2", "text": TEXTS[0]}])).stored == 1
            assert await client.delete_document("async-2")
            assert (await client.get_document("async-1")).text == TEXTS[1]

    asyncio.run(main())
