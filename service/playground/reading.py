"""POST /playground/text: the text of a file that the page cannot read itself. Only the page uses it; the API takes texts."""

import asyncio
import json
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Callable
from functools import partial

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from service.errors import RequestError
from service.files.bounded import COMMAND, TOO_MUCH, WAIT, environment, question
from service.http.auth import ranker_of, requires
from service.http.bodies.parsing import check_head, declared_bytes, discard, encoding_of, read_body
from service.http.dialects.common import PiecesResponse
from service.http.endpoint import ending, unless_gone
from service.keys.keys import Scope
from service.settings import Settings
from service.telemetry.account import account_of

PATH = "/playground/text"


class FileReader:
    """Reads one file at a time, in a process that ends with the request.

    Args:
        settings: limits of a body and of a document.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._is_reading = False

    async def respond(self, request: Request) -> Response:
        """The text in JSON, or the error."""
        response, _ = await ending(self._answer(request))
        return response

    async def _answer(self, request: Request) -> Response:
        await check_head(request, self._settings)
        try:
            place = account_of(request).held.enter_context(ranker_of(request).admission.enter(declared_bytes(request)))
            if encoding_of(request) != "identity":
                raise RequestError(415, "a file is taken as it is: send it without a content-encoding")
        except RequestError:
            await discard(request, self._settings)
            raise
        content = bytes(await read_body(request, self._settings, place.set_bytes))
        place.begin()
        count = partial(ranker_of(request).metrics.add, "files")
        text = await unless_gone(request, self._read(content, request.query_params.get("name", ""), count))
        place.set_answer(len(text))
        return PiecesResponse([text])

    async def _read(self, content: bytes, name: str, count: Callable[..., None]) -> bytes:
        """The process's answer, in JSON. Raises RequestError: 429 while another file is read, 422 if there is no text."""
        if self._is_reading:
            count(outcome="busy")
            raise RequestError(429, "another file is being read, and one is the limit: try again", retry_after=1)
        self._is_reading = True
        try:
            answer = await _answer_of(question(content, name, self._settings.max_document_chars))
        finally:
            self._is_reading = False
        if not answer:
            count(outcome="too_much")
            raise RequestError(422, TOO_MUCH)
        if answer.startswith(b'"'):
            count(outcome="refused")
            raise RequestError(422, json.loads(answer))
        count(outcome="ok")
        return answer


async def _answer_of(asked: bytes) -> bytes:
    """What a new process answers; empty if it takes too much. If this is cancelled, the process ends."""
    process = await asyncio.create_subprocess_exec(*COMMAND, stdin=PIPE, stdout=PIPE, stderr=DEVNULL, env=environment())
    try:
        async with asyncio.timeout(WAIT):
            output, _ = await process.communicate(asked)
    except TimeoutError:
        return b""
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return output if process.returncode == 0 else b""


def add_reading(app: FastAPI) -> None:
    """Add the route, for keys that may rank."""
    reader = FileReader(app.state.settings)
    app.add_api_route(PATH, reader.respond, methods=["POST"], dependencies=[requires(Scope.RANK)], include_in_schema=False)
