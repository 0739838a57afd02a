"""Who goes away from Ray Serve: its proxy cancels their call, where other servers say `http.disconnect`, which is expected here."""

import asyncio

from starlette.types import ASGIApp, Message, Receive, Scope, Send

GONE: Message = {"type": "http.disconnect"}


class Leaving:
    """A middleware that makes a cancelled call one whose client has gone: what is under way for it ends, and is counted as that.

    Args:
        app: what answers requests.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See ASGI. Raises CancelledError once the application is done with a call that is cancelled."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        gone = asyncio.Event()

        async def received() -> Message:
            return await _unless(gone, receive)

        async def sent(message: Message) -> None:
            if not gone.is_set():
                await send(message)

        work = asyncio.ensure_future(self._app(scope, received, sent))
        try:
            await asyncio.shield(work)
        except asyncio.CancelledError:
            gone.set()
            await work
            raise


async def _unless(gone: asyncio.Event, receive: Receive) -> Message:
    """The next message, which is that the client has gone where that comes first."""
    tasks = asyncio.ensure_future(receive()), asyncio.create_task(gone.wait())
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        return await tasks[0] if tasks[0].done() else GONE
    finally:
        for task in tasks:
            task.cancel()
