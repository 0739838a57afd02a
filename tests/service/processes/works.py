"""What a process may be told to do, in tests."""

import asyncio
import logging
import signal
from contextlib import suppress

from service.processes.child import Control, Order


async def interrupted(order: Order, control: Control) -> int:
    """Be interrupted while something is in hand that logs how it ended."""
    await control.started({})
    in_hand = asyncio.create_task(_logs(order))
    await asyncio.sleep(0)
    signal.raise_signal(signal.SIGINT)
    await asyncio.Event().wait()
    return in_hand.done()


async def _logs(order: Order) -> None:
    with suppress(asyncio.CancelledError):
        await asyncio.Event().wait()
    logging.error("%s: cancelled", order.model)


async def never_starts(_: Order, control: Control) -> int:
    """Answer, and get no further."""
    await asyncio.Event().wait()
    return 0


async def never_loads(_: Order, control: Control) -> int:
    """Start, read new bundles in a thread that gets no further, and answer all the while."""
    await control.started({})
    async with control.loading():
        await asyncio.Event().wait()
    return 0


async def loads(_: Order, control: Control) -> int:
    """Read something, and something else."""
    for _ in range(2):
        async with control.loading():
            await asyncio.sleep(0)
    return 0


async def hears_nothing(_: Order, control: Control) -> int:
    """Get a SIGHUP, and go on."""
    signal.raise_signal(signal.SIGHUP)
    await control.started({})
    logging.info("still here")
    return 0
