"""The outermost layer: puts the request's id on every answer and, if there is an access log, logs a line for each request."""

import logging

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.telemetry.account import CURRENT_ID, REQUEST_ID, Account, open_account

log = logging.getLogger("service.access")


class Accounting:
    """ASGI middleware; the outermost, so that every answer has the id.

    Args:
        app: answers the requests.
        access_log: whether to log a line for each request.
    """

    def __init__(self, app: ASGIApp, *, access_log: bool) -> None:
        self._app = app
        self._access_log = access_log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
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

        token = CURRENT_ID.set(account.request_id)
        try:
            await self._app(scope, receive, answer)
        finally:
            account.held.close()
            if self._access_log:
                _log_access(account, scope)
            CURRENT_ID.reset(token)


def _log_access(account: Account, scope: Scope) -> None:
    fields = account.fields(scope)
    log.info("%s %s %d", fields["method"], fields["path"], fields["status"], extra=fields)
