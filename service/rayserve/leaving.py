"""Handles clients that leave: Ray Serve's proxy cancels their call, while the service expects `http.disconnect`."""

import asyncio

from starlette.types import ASGIApp, Message, Receive, Scope, Send

GONE: Message = {"type": "http.disconnect"}


class Leaving:
    """A middleware that turns a cancelled call into a client that has gone: its work ends, and is counted as such.

    Args:
        app: answers the requests.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See ASGI. Raises CancelledError after the application has ended a cancelled call."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        gone = asyncio.Event()

        async def receive_unless_gone() -> Message:
            return await _receive_unless(gone, receive)

        async def send_unless_gone(message: Message) -> None:
            if not gone.is_set():
                await send(message)

        work = asyncio.ensure_future(self._app(scope, receive_unless_gone, send_unless_gone))
        try:
            await asyncio.shield(work)
        except asyncio.CancelledError:
            gone.set()
            await work
            raise


async def _receive_unless(gone: asyncio.Event, receive: Receive) -> Message:
    """The next message; GONE if the client goes first."""
    tasks = asyncio.ensure_future(receive()), asyncio.create_task(gone.wait())
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        return await tasks[0] if tasks[0].done() else GONE
    finally:
        for task in tasks:
            task.cancel()
