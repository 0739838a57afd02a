"""The dialects that clients speak: each reads a payload into a Call and writes a Ranking back. One module a dialect."""

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from service.answers import About
from service.call import Call
from service.dialects import native, tei
from service.errors import RequestError
from service.ranking import Ranking
from service.settings import Limits


class Dialect(Protocol):
    """What a dialect's module holds."""

    NAME: str

    def read(self, payload: dict[str, Any], limits: Limits) -> Call:
        """Read a request. Raises RequestError."""

    def body(self, call: Call, ranking: Ranking, about: About) -> Iterator[bytes]:
        """The answer, in pieces of JSON."""

    def headers(self, ranking: Ranking, about: About) -> dict[str, str]:
        """The answer's headers."""

    def error(self, problem: RequestError) -> Mapping[str, Any]:
        """The body of an error."""


NATIVE: Dialect = native
TEI: Dialect = tei
DIALECTS = (NATIVE, TEI)


def spoken(payload: Mapping[str, Any]) -> Dialect:
    """The dialect of a payload: `texts` instead of `documents` is TEI's."""
    return TEI if payload.get("texts") is not None and payload.get("documents") is None else NATIVE
