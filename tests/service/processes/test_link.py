"""The way to the model's process, which may go and come back."""

import asyncio
from pathlib import Path

import numpy as np
import pytest

from service.processes.link import Health, Link
from service.processes.peer import Peer
from service.remote.replicas import Replicas
from service.remote.wire import Named, Report


async def report() -> Report:
    return Report("a", np.zeros(0, np.float32), {})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "model"


class Model:
    """A process that answers, as long as it is there."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._peers: list[Peer] = []

    async def __aenter__(self) -> None:
        self._server = await asyncio.get_running_loop().create_unix_server(self._peer, str(self._path))

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for peer in self._peers:
            peer.close()
        self._path.unlink()
        await asyncio.sleep(0)

    def _peer(self) -> Peer:
        self._peers.append(peer := Peer({"report": report}))
        return peer


def test_a_link_waits_for_the_first_process_and_finds_the_next(path: Path) -> None:
    async def run() -> list[bool]:
        link = Link(path)
        asking = asyncio.create_task(link.ask("report"))
        await asyncio.sleep(0)
        seen = [link.has_answered]
        async with Model(path):
            await asking
            seen.append(link.has_answered)
        while link.has_answered:
            await asyncio.sleep(0)
        async with Model(path):
            await asyncio.gather(*(link.ask("report") for _ in range(5)))
            seen.append(link.has_answered)
            link.close()
            await asyncio.sleep(0)
        return seen

    assert asyncio.run(run()) == [False, True, True]


def test_a_process_that_went_is_not_ready_at_once(path: Path) -> None:
    """Though it answered a moment ago: the next one has not."""

    async def run() -> list[tuple[bool, bool]]:
        link = Link(path)
        replicas = Replicas(link.ask, 60.0)
        health, seen = Health(link, replicas, frozenset), []
        async with Model(path):
            seen.append((health.alive, health.ready))
            replicas.record(await link.ask("report"))
            seen.append((health.alive, health.ready))
        while link.has_answered:
            await asyncio.sleep(0)
        return [*seen, (health.alive, health.ready)]

    assert asyncio.run(run()) == [(True, False), (True, True), (True, False)]


def test_a_process_that_has_read_other_bundles_is_not_ready(path: Path) -> None:
    """A bundle was replaced on disk, and then the process ended: the next one cannot be asked about what is served here."""
    old, new = Named("/bundle", "of the old"), Named("/bundle", "of the new")

    async def run() -> list[bool]:
        link, served = Link(path), {old}
        replicas = Replicas(link.ask, 60.0)
        health, seen = Health(link, replicas, lambda: served), []
        async with Model(path):
            await link.ask("report")
            for paces in ({old: 1.0}, {new: 1.0}, {old: 1.0, new: 1.0}):
                replicas.record(Report("a", np.zeros(0, np.float32), paces))
                seen.append(health.ready)
            link.close()
            await asyncio.sleep(0)
        return seen

    assert asyncio.run(run()) == [True, False, True]
