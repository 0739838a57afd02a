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
from service.start import NOT_STARTED, share

log = logging.getLogger(__name__)
LOOK_SECONDS = 1.0  # between two looks whether the model's thread gets on
MOST_OTHERS = 64  # bundles that fronts which reload ask about, until all have: see Holder
ON_CPU = ("cpu", "openvino")


async def model(order: Order, control: Control, opener: Open = open_bundle) -> int:
    """Answer fronts until the supervisor says so, all others are gone, or the model's thread is dead or hangs; the exit code."""
    share(order.settings)
    holder = Holder(order.settings, opener, MOST_OTHERS, control.loading)
    try:
        return await served(holder, order, control)
    finally:
        holder.close()


async def served(holder: Holder, order: Order, control: Control) -> int:
    """See `model`."""
    if any(scorer.labels()["provider"] in ON_CPU for scorer in holder.own.values()):
        log.warning("the model computes on the CPU, where it takes all cores: --processes gains nothing, and is for GPUs")
    fronts: set[Peer] = set()
    control.lost = lambda: None  # fronts that finish what is in flight still ask
    listening = inherited(order.listening)[0]
    server = await asyncio.get_running_loop().create_unix_server(lambda: peer_of(holder, fronts), sock=listening)

    async def names() -> frozenset[Named]:
        return frozenset(holder.own)

    await control.started({"families": lambda: families(holder), "names": names, "serve": holder.serve})
    warming = asyncio.create_task(warmed(holder, control))
    code = await watched(holder, lambda: not (control.connected or fronts))
    warming.cancel()
    server.close()
    return code


async def warmed(holder: Holder, control: Control) -> None:
    """Tell the supervisor until its own bundles are warm: it knows for how long that may go on."""
    async with control.loading():
        await asyncio.gather(*(asyncio.wrap_future(scorer.warmed) for scorer in holder.own.values()), return_exceptions=True)


def peer_of(holder: Holder, fronts: set[Peer]) -> Peer:
    """What answers another front, which is one of them until it goes."""

    async def report() -> Report:
        return holder.report()

    peer = Peer({"report": report, "describe": holder.describe, "score": holder.score}, lambda: fronts.discard(peer))
    fronts.add(peer)
    return peer


async def families(holder: Holder) -> list[Metric]:
    """The metrics of the model's thread and of its process."""
    holder.measure()
    return list(holder.metrics.registry.collect())


async def watched(holder: Holder, deserted: Callable[[], bool]) -> int:
    """Wait until the supervisor says so, or nobody else is there, or the model's thread does not get on; the exit code."""
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, lambda: None)  # sent to all processes at once: fronts finish what is in flight first
    loop.add_signal_handler(END_MODEL, ended.set)
    while holder.engine.alive:
        if ended.is_set() or deserted():
            return 0
        with suppress(TimeoutError):
            async with asyncio.timeout(LOOK_SECONDS):
                await ended.wait()
    log.critical("the model's thread %s: its process ends", "hangs" if holder.engine.hung else "is dead")
    return NOT_STARTED
