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


async def hears_nothing(_: Order, control: Control) -> int:
    """Get a SIGHUP, and go on."""
    signal.raise_signal(signal.SIGHUP)
    await control.started({})
    logging.info("still here")
    return 0
