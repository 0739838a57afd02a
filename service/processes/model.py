"""The process that runs the models' graphs, for all fronts."""

import asyncio
import logging
import signal
from collections.abc import Callable
from contextlib import suppress

from prometheus_client import Metric

from service.processes.child import END_MODEL, Control, Order, inherited
from service.processes.peer import Peer
from service.ranking.loading import Open, open_bundle
from service.remote.holder import Holder
from service.remote.wire import Named, Report
from service.start import NOT_STARTED, configure_threads

log = logging.getLogger(__name__)
CHECK_SECONDS = 1.0  # between two checks whether the model's thread makes progress
MOST_OTHERS = 64  # bundles held for fronts in the middle of a reload, until all fronts have reloaded: see Holder
ON_CPU = ("cpu", "openvino")


async def model(order: Order, control: Control, opener: Open = open_bundle) -> int:
    """Answer fronts until the supervisor ends it, the others are gone, or the model's thread fails. Returns the exit code."""
    configure_threads(order.settings)
    holder = Holder(order.settings, opener, MOST_OTHERS, control.loading)
    try:
        return await serve_fronts(holder, order, control)
    finally:
        holder.close()


async def serve_fronts(holder: Holder, order: Order, control: Control) -> int:
    """See `model`."""
    if any(scorer.labels()["provider"] in ON_CPU for scorer in holder.own.values()):
        log.warning("the model computes on the CPU, where it takes all cores: --processes gains nothing, and is for GPUs")
    fronts: set[Peer] = set()
    control.on_lost = lambda: None  # goes on for fronts that finish their requests in flight
    listening = inherited(order.listening)[0]
    server = await asyncio.get_running_loop().create_unix_server(lambda: peer_of(holder, fronts), sock=listening)

    async def names() -> frozenset[Named]:
        return frozenset(holder.own)

    await control.started({"families": lambda: families(holder), "names": names, "serve": holder.serve})
    warming = asyncio.create_task(report_warm_up(holder, control))
    code = await wait_for_end(holder, lambda: not (control.connected or fronts))
    warming.cancel()
    server.close()
    return code


async def report_warm_up(holder: Holder, control: Control) -> None:
    """Report loading to the supervisor until the process's own bundles are warm, so that it knows for how long."""
    async with control.loading():
        await asyncio.gather(*(asyncio.wrap_future(scorer.warmed) for scorer in holder.own.values()), return_exceptions=True)


def peer_of(holder: Holder, fronts: set[Peer]) -> Peer:
    """The connection of another front; it stays in `fronts` until the front goes."""

    async def report() -> Report:
        return holder.report()

    peer = Peer({"report": report, "describe": holder.describe, "score": holder.score}, lambda: fronts.discard(peer))
    fronts.add(peer)
    return peer


async def families(holder: Holder) -> list[Metric]:
    """The metrics of the model's thread and of its process."""
    holder.measure()
    return list(holder.metrics.registry.collect())


async def wait_for_end(holder: Holder, is_alone: Callable[[], bool]) -> int:
    """Wait until the supervisor ends it, no other process is there, or the model's thread fails. Returns the exit code."""
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    # SIGTERM goes to all processes at once, but fronts must finish their requests first
    loop.add_signal_handler(signal.SIGTERM, lambda: None)
    loop.add_signal_handler(END_MODEL, ended.set)
    while holder.engine.alive:
        if ended.is_set() or is_alone():
            return 0
        with suppress(TimeoutError):
            async with asyncio.timeout(CHECK_SECONDS):
                await ended.wait()
    log.critical("the model's thread %s: its process ends", "hangs" if holder.engine.hung else "is dead")
    return NOT_STARTED
