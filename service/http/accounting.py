"""Around everything else: a request's id goes back on every answer, and a line for each request to the log, where one is kept."""

import logging

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.telemetry.account import CURRENT_ID, REQUEST_ID, Account, open_account

log = logging.getLogger("service.access")


class Accounting:
    """ASGI middleware; the outermost, so that no answer goes out without the id.

    Args:
        app: what answers.
        access_log: whether to log a line for each request.
    """

    def __init__(self, app: ASGIApp, *, access_log: bool) -> None:
        self._app = app
        self._access_log = access_log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        account = open_account(scope)
        header = (REQUEST_ID.encode(), account.request_id.encode())

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                account.status = message["status"]
                message["headers"] = [*message.get("headers", ()), header]
            await send(message)

        before = CURRENT_ID.set(account.request_id)
        try:
            await self._app(scope, receive, answer)
        finally:
            account.held.close()
            if self._access_log:
                _tell(account, scope)
            CURRENT_ID.reset(before)


def _tell(account: Account, scope: Scope) -> None:
    fields = account.fields(scope)
    log.info("%s %s %d", fields["method"], fields["path"], fields["status"], extra=fields)
