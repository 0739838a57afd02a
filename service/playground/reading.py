"""POST /playground/text: the text of a file that the page cannot read itself. Only the page uses it; the API takes texts."""

import asyncio
import os
import sys
from asyncio.subprocess import DEVNULL, PIPE

from fastapi import FastAPI
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from service.errors import RequestError, ending, unexpected
from service.files.__main__ import MEMORY, REFUSED, SECONDS
from service.http.answers import PiecesResponse
from service.http.bodies.parsing import check_head, declared_bytes, discard, encoding_of, read_body
from service.http.endpoint import GONE, unless_gone
from service.http.guard import requires
from service.http.info import ranker_of
from service.http.responses import error_response
from service.keys.keys import Scope
from service.ranking.admission import Place
from service.settings import Settings
from service.telemetry.account import account_of

PATH = "/playground/text"
TOO_MUCH = f"takes more than {SECONDS} s or {MEMORY >> 30} GiB to read: give its text"
MOST_FILES = 2  # read at once, each by its own process
LONGEST_NAME = 200  # characters; only the end of a name counts


class FileReader:
    """Reads files in processes that end with the request.

    Args:
        settings: limits of a body and of a document.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._busy = 0

    async def respond(self, request: Request) -> Response:
        """The text in JSON, or the error."""
        try:
            return await self._answer(request)
        except ClientDisconnect:
            return Response(status_code=GONE)
        except asyncio.CancelledError:
            return error_response(ending())
        except RequestError as error:
            return error_response(error)
        except Exception as error:
            return error_response(unexpected(error))

    async def _answer(self, request: Request) -> Response:
        await check_head(request, self._settings)
        try:
            place = account_of(request).held.enter_context(ranker_of(request).admission.enter(declared_bytes(request)))
            if self._busy >= MOST_FILES:
                raise RequestError(429, f"{self._busy} files are being read, which is the limit: try again", retry_after=1)
            if encoding_of(request) != "identity":
                raise RequestError(415, "a file is taken as it is: send it without a content-encoding")
        except RequestError:
            await discard(request, self._settings)
            raise
        self._busy += 1
        try:
            content = await self._body(request, place)
            place.begin()
            text = await unless_gone(request, self._read(content, request.query_params.get("name", "")))
        finally:
            self._busy -= 1
        place.set_answer(len(text))
        return PiecesResponse([text])

    async def _body(self, request: Request, place: Place) -> bytes:
        """The file. Raises RequestError 408 where it comes too slowly."""
        seconds = self._settings.body_seconds
        try:
            async with asyncio.timeout(seconds):
                return bytes(await read_body(request, self._settings, place.set_bytes))
        except TimeoutError:
            raise RequestError(408, f"the file was not there after {seconds} s: send it faster, or a smaller one") from None

    async def _read(self, content: bytes, name: str) -> bytes:
        """The answer of the process, in JSON. Raises RequestError 422 with the process's message if there is no text."""
        command = (sys.executable, "-m", "service.files", name[-LONGEST_NAME:], str(self._settings.max_document_chars))
        process = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE, stderr=DEVNULL, env=_environment())
        try:
            async with asyncio.timeout(SECONDS):
                output, _ = await process.communicate(content)
        except TimeoutError:
            raise RequestError(422, TOO_MUCH) from None
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode == REFUSED:
            raise RequestError(422, output.decode())
        if process.returncode:
            raise RequestError(422, TOO_MUCH)
        return output


def add_reading(app: FastAPI) -> None:
    """Add the route, for keys that may rank."""
    reader = FileReader(app.state.settings)
    app.add_api_route(PATH, reader.respond, methods=["POST"], dependencies=[requires(Scope.RANK)], include_in_schema=False)


def _environment() -> dict[str, str]:
    """The environment without the service's settings, which hold secrets."""
    return {name: value for name, value in os.environ.items() if not name.upper().startswith("KEYBLOCK_")}
