"""The client for code that awaits: many calls at once, cancelled ones, documents from an async iterator."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from keyblock.client import AsyncClient, TimeUpError
from tests.keyblock.client.proxy import Proxy, silent
from tests.support.serving import Service

QUERY, TEXTS = "Which river flows through Vienna?", ["The Thames flows through London.", "The Danube flows through Vienna."]


def test_many_calls_at_once(running: Service) -> None:
    async def main() -> None:
        async with AsyncClient(running.url, max_connections=8) as client:
            rankings = await asyncio.gather(*(client.rerank(QUERY, TEXTS) for _ in range(64)))
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
            assert await client.delete_document("async-2")
            assert (await client.get_document("async-1")).text == TEXTS[1]

    asyncio.run(main())
