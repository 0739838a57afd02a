"""/documents: stores documents from a stream of JSON lines, and reads or deletes one document by its id."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import Any

import orjson
from starlette.convertors import StringConvertor, register_url_convertor
from starlette.requests import Request
from starlette.responses import Response

from keyblock.prepared import PreparedDocument
from keyblock.ranking.warnings import LONGEST_SHOWN, first_few
from keyblock.wire import NOTHING_STORED, Deletion, StoredAnswer, StoredText, WrongLine
from service.errors import RequestError, problem_of
from service.http.auth import ranker_of
from service.http.bodies.lines import LineReader, NewDocument, Report
from service.http.bodies.parsing import check_encoding, discard, receive
from service.http.dialects import JSON
from service.http.dialects.common import PiecesResponse
from service.http.endpoint import ending, unless_gone
from service.ranking.admission import Place
from service.ranking.ranker import Ranker
from service.store.base import Item
from service.store.codec import Found, StoredDocument, encode, pack_text
from service.store.library import OFF, Library
from service.telemetry.account import account_of, tracing_of

PIECE = 1 << 16  # bytes of the body that are received before a thread parses them


async def put_documents(request: Request) -> Response:
    """Store any number of documents from JSON lines. Every document that the answer counts is stored."""
    upload = Upload(ranker_of(request), request)
    response = await _respond(request, upload.respond())
    if not upload.read:
        await discard(request, ranker_of(request).settings)
        response.headers["connection"] = "close"
    return response


class AnyText(StringConvertor):
    """An id in a path, which may have slashes and line breaks. Starlette's "path" would drop a line break at the end."""

    regex = "(?s:.*)"


register_url_convertor("any", AnyText())


async def get_document(request: Request) -> Response:
    """A stored document; 404 for an unknown id."""

    async def find() -> Response:
        identity = request.path_params["id"]
        ranker = ranker_of(request)
        place = account_of(request).held.enter_context(ranker.store_admission.enter(0, account_of(request).key))
        place.begin()
        found = await _library(ranker).find(account_of(request).namespace, identity, place.grow)
        if found is None:
            raise RequestError(404, f"no document is stored under the id {identity[:LONGEST_SHOWN]!r}")
        response = await ranker.off_loop(partial(_stored_answer, found), large=True)
        place.set_answer(response.n_bytes)
        return response

    return await _respond(request, find())


async def delete_document(request: Request) -> Response:
    """Delete a document; deleting an unknown one is no error."""

    async def delete() -> Response:
        identity = request.path_params["id"]
        deleted = await _library(ranker_of(request)).delete(account_of(request).namespace, identity)
        answer: Deletion = {"id": identity, "deleted": deleted}
        return Response(orjson.dumps(answer), media_type=JSON)

    return await _respond(request, delete())


def _stored_answer(found: Found) -> PiecesResponse:
    stored, prepared = found.stored, found.stored.prepared
    answer: StoredText = {
        "id": stored.id,
        "text": found.text or "",
        "blocks": prepared.n_blocks,
        "tokens": len(prepared.token_ids),
    }
    if stored.title:
        answer["title"] = stored.title
    if stored.expires:
        answer["expires"] = stored.expires / 1000
    return PiecesResponse([orjson.dumps(answer)])


def _library(ranker: Ranker) -> Library:
    """The store of documents. Raises RequestError 422 if there is none."""
    if ranker.library is None:
        raise RequestError(422, OFF)
    return ranker.library


async def _respond(request: Request, work: Awaitable[Response]) -> Response:
    """The answer or the error, whatever happens; also counts it."""
    trace = tracing_of(request).begin(request)
    response, outcome = await ending(work)
    ranker_of(request).metrics.add("store_requests", method=request.method, outcome=outcome)
    trace.end(response.status_code, outcome=outcome)
    return response


class NothingStoredError(RequestError):
    """No line of the body could be stored. The detail gives the reason for each of the first wrong lines, like `errors`."""

    def __init__(self, report: Report) -> None:
        wrong = [f"line {one.line}: {one.message}" for one in report.wrong]
        super().__init__(422, f"nothing could be stored: {first_few(wrong, 3)}", kind=NOTHING_STORED)
        self._report = report

    def detail(self) -> list[dict[str, Any]]:
        """An object for each wrong line."""
        return [{"type": self.kind, "loc": ["body", one.line], "msg": one.message} for one in self._report.wrong]


class Upload:
    """One request PUT /documents.

    Attributes:
        read: whether the body was read to the end.
    """

    def __init__(self, ranker: Ranker, request: Request) -> None:
        self.read = False
        self._ranker = ranker
        self._request = request
        self._namespace = account_of(request).namespace
        self._report = Report()
        self._stored = 0
        self._last_line = 0

    async def respond(self) -> Response:
        """Store all valid documents. Raises ClientDisconnect, and RequestError, which also tells how many documents are stored."""
        library = _library(self._ranker)
        encoding = check_encoding(self._request, "JSON lines")
        reader = LineReader(encoding, self._ranker.settings, self._report)
        with self._ranker.store_admission.enter(0, account_of(self._request).key) as place:
            try:
                await self._store(library, reader, place)
            except (RequestError, asyncio.CancelledError) as error:
                raise self._with_stored_count(problem_of(error)) from None
        return self._answer()

    async def _store(self, library: Library, reader: LineReader, place: Place) -> None:
        while not self.read:
            part = await self._next_part(lambda gathered: place.set_bytes(reader.held + gathered))
            place.begin()
            work = self._read_part(library, reader, place, part)
            await (unless_gone(self._request, work) if self.read else work)

    async def _read_part(self, library: Library, reader: LineReader, place: Place, part: bytes) -> None:
        """Read and store a part of the body, in steps of bounded length; the bytes in hand are counted after each step."""
        for start in range(0, len(part), PIECE):
            batches = reader.feed(part[start : start + PIECE])
            while (batch := await self._ranker.off_loop(partial(next, batches, None), large=True)) is not None:
                place.set_bytes(reader.held + sum(len(one.text) + len(one.title) for one in batch))
                if batch:
                    await self._store_batch(library, batch)
        place.set_bytes(reader.held)
        if self.read and (batch := await self._ranker.off_loop(reader.end, large=True)):
            await self._store_batch(library, batch)

    async def _next_part(self, on_growth: Callable[[int], object]) -> bytes:
        """At least PIECE bytes of the body, or its end.

        Args:
            on_growth: called with the number of bytes so far; it may raise RequestError.

        Raises ClientDisconnect, and RequestError 408 when they are late.
        """
        seconds = self._ranker.settings.body_seconds
        gathered = bytearray()
        try:
            async with asyncio.timeout(seconds):
                while not self.read and len(gathered) < PIECE:
                    piece, more = await receive(self._request)
                    gathered += piece
                    on_growth(len(gathered))
                    self.read = not more
        except TimeoutError:
            problem = f"less than {PIECE} more bytes of the body arrived in {seconds} s: send it faster, or in parts"
            raise RequestError(408, problem) from None
        return bytes(gathered)

    async def _store_batch(self, library: Library, batch: list[NewDocument]) -> None:
        """Prepare a batch, and store it in one transaction."""
        model = self._ranker.models.default  # for each batch, since a reload may replace it in between

        def item(number: int, prepared: PreparedDocument) -> Item:
            given = batch[number]
            expires = library.expiry(given.expires_in)
            stored = StoredDocument(given.id, given.title, pack_text(given.text), prepared, model.fingerprint, expires)
            return Item(given.id, encode(stored), expires)

        async with library.preparing:
            texts, titles = [given.text for given in batch], [given.title for given in batch]
            items = await model.preparer.stored(texts, titles, item, self._ranker.uploads)
        fitting = []
        for given, made in zip(batch, items, strict=True):
            if len(made.content) <= library.largest:
                fitting.append(made)
            else:
                problem = f"takes {len(made.content)} bytes prepared, and the store keeps none over {library.largest}"
                self._report.add(given.line, given.id, problem)
        if fitting:
            await library.put(self._namespace, fitting)
        self._stored += len(fitting)
        account_of(self._request).documents = self._stored
        self._last_line = batch[-1].line

    def _with_stored_count(self, error: RequestError) -> RequestError:
        stored = f"{self._stored} documents of this request, of its lines up to {self._last_line}, are stored"
        return replace(error, problem=f"{error.problem}; {stored}") if self._stored else error

    def _answer(self) -> Response:
        report = self._report
        if not self._stored:
            if not report.failed:
                raise RequestError(422, "the body holds no documents: send a JSON object with 'id' and 'text' on each line")
            raise NothingStoredError(report)
        warnings = [f"fields not used: {first_few(list(report.unread))}"] if report.unread else []
        answer: StoredAnswer = {"stored": self._stored, "failed": report.failed, "errors": [], "warnings": warnings}
        for line, identity, message in report.wrong:
            wrong: WrongLine = {"line": line, "message": message}
            if identity is not None:
                wrong["id"] = identity
            answer["errors"].append(wrong)
        return Response(orjson.dumps(answer), media_type=JSON)
