"""Sends a request: its headers and body, and another attempt if that can help."""

from collections.abc import Callable, Mapping
from uuid import uuid4

from keyblock import __version__
from keyblock.client.answers import REQUEST_ID, status_error
from keyblock.client.bodies import compressed
from keyblock.client.errors import KeyBlockError, TimeUpError, UnreachableError
from keyblock.client.options import Configuration
from keyblock.client.retries import AGAIN, Budget, pause
from keyblock.client.steps import Answer, Failure, Pause, Send, Steps, perform


class Sender:
    """Sends the requests of one client."""

    def __init__(self, options: Configuration) -> None:
        self._options = options

    def answered(
        self,
        method: str,
        path: str,
        budget: Budget,
        request_id: str,
        content: Callable[[], bytes] = bytes,
        size: int = 0,
    ) -> Steps[Answer]:
        """Send a request until it is answered or finally refused, or there is no time for another attempt."""
        options = self._options
        for attempt in range(options.retries + 1):
            packed = yield from perform(lambda: compressed(content(), options.compression, options.compress_from), size)
            outcome = yield self.send(method, path, budget, request_id, *packed)
            if isinstance(outcome, Answer) and 200 <= outcome.status < 300:
                return outcome
            again, error = _problem(outcome, budget, request_id, f"{options.where}: ")
            seconds = pause(attempt, getattr(error, "retry_after", None))
            if not again or attempt == options.retries or seconds >= budget.retry_left:
                raise error
            yield Pause(seconds)
        raise AssertionError("the last attempt returns or raises")

    def send(
        self,
        method: str,
        path: str,
        budget: Budget,
        request_id: str,
        content: bytes = b"",
        extra: Mapping[str, str] | None = None,
    ) -> Send:
        """One request, sent once."""
        headers = {"user-agent": f"keyblock/{__version__}", REQUEST_ID: request_id, **(extra or {})}
        if content:
            headers["content-type"] = "application/x-ndjson" if method == "PUT" else "application/json"
        if self._options.api_key:
            headers["authorization"] = f"Bearer {self._options.api_key}"
        given = {name.lower(): value for name, value in (self._options.headers or {}).items()}
        return Send(method, self._options.url.rstrip("/") + path, content, headers | given, budget)

    def request_id(self) -> str:
        """The request id in the client's headers, or a new one."""
        given = {name.lower(): value for name, value in (self._options.headers or {}).items()}
        return given.get(REQUEST_ID) or uuid4().hex


def _problem(outcome: Answer | Failure, budget: Budget, request_id: str, where: str) -> tuple[bool, KeyBlockError]:
    """Whether to retry, and the exception to raise if not."""
    if isinstance(outcome, Answer):
        return outcome.status in AGAIN, status_error(outcome, request_id)
    error: KeyBlockError = UnreachableError(f"{where}{outcome.problem}")
    if outcome.late or budget.left <= 0:
        error = TimeUpError(f"{where}no answer in the time that the call had ({outcome.problem})")
    error.request_id = request_id
    return outcome.again, error
