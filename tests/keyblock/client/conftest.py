"""A proxy in front of the running service that fails as told, and clients of both kinds."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal

from keyblock.client import AsyncClient, Client
from tests.keyblock.client.proxy import Proxy
from tests.support.serving import Service

Connect = Callable[..., Client]
QUERY, TEXTS = "Which river flows through Vienna?", ["The Thames flows through London.", "The Danube flows through Vienna."]
SOON = 0.4  # seconds: a budget that tests can wait for


@pytest.fixture
def proxy(running: Service) -> Iterator[Proxy]:
    with Proxy(running.port) as proxy:
        yield proxy


class Awaited:
    """An AsyncClient, asked as a Client is."""

    def __init__(self, portal: BlockingPortal, *arguments: Any, **options: Any) -> None:
        self._portal = portal
        self._client = portal.call(partial(AsyncClient, *arguments, **options))

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._client, name)
        return lambda *arguments, **options: self._portal.call(partial(method, *arguments, **options))


@pytest.fixture(scope="session")
def portal() -> Iterator[BlockingPortal]:
    with start_blocking_portal() as portal:
        yield portal


@pytest.fixture(params=["sync", "async"])
def connect(request: pytest.FixtureRequest, portal: BlockingPortal) -> Iterator[Connect]:
    """Makes clients of either kind, with the same methods; closed in the end."""
    made: list[Any] = []

    def make(*arguments: Any, **options: Any) -> Any:
        made.append(Client(*arguments, **options) if request.param == "sync" else Awaited(portal, *arguments, **options))
        return made[-1]

    yield make
    for client in made:
        client.close()


@pytest.fixture(scope="session")
def client(running: Service) -> Iterator[Client]:
    """Of the running service."""
    with Client(running.url) as client:
        yield client


@pytest.fixture
def proxied(proxy: Proxy) -> Iterator[Client]:
    """Of the proxy."""
    with Client(proxy.url) as client:
        yield client
