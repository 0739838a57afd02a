"""What every client's test module shows of its client: `LIBRARIES` there says how each ranks, and what it makes of errors."""

import asyncio
import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from page import run
from question import QUERY, check, of_logits
from running import Service

KEY = "kb_" + "0123456789abcdef" * 3
ENTRY = json.dumps({"name": "clients", "sha256": hashlib.sha256(KEY.encode()).hexdigest(), "scopes": ["rank"]})  # of a service
EMPTY, UNKNOWN, BUSY = "is empty: say what to rank", "the API key is not known here", "busy: 1 requests are in flight"
Pairs = list[tuple[int, float]]  # the documents' numbers, best first, and their scores


@dataclass(frozen=True)
class Library:
    """A client, or one of its classes.

    Attributes:
        rank: ranks DOCUMENTS; takes a service's address, a query and a key.
        snippet: its heading in docs/use/clients.md.
        refused, denied: what it raises for a blank query, and for a wrong key.
        busy: what it raises if the service has no room; None: it asks again.
        awaited: makes a coroutine that does as `rank`.
        silent: whether its errors lack the service's words.
        logits: whether its scores are logits.
    """

    rank: Callable[[str, str, str], Pairs]
    snippet: str
    refused: type[Exception]
    denied: type[Exception]
    busy: type[Exception] | None = None
    awaited: Callable[[str, str, str], object] | None = None
    silent: bool = False
    logits: bool = False

    def check(self, url: str, key: str = "any") -> None:
        """It ranks as it should."""
        self.check_pairs(self.rank(url, QUERY, key))

    def check_pairs(self, found: Pairs, **top_n: int) -> None:
        check(of_logits(found) if self.logits else found, **top_n)

    def check_error(self, kind: type[Exception], words: str, url: str, query: str = QUERY, key: str = "any") -> None:
        """It raises an error that has these words."""
        with pytest.raises(kind, match=None if self.silent else words):
            self.rank(url, query, key)


class Contract:
    def test_the_snippet(self, service: Service, library: Library) -> None:
        library.check_pairs(run(library.snippet, service.url), top_n=2)

    def test_long_documents(self, base: str, library: Library) -> None:
        library.check(base)
        if library.awaited is not None:
            library.check_pairs(asyncio.run(library.awaited(base, QUERY, "any")))

    def test_an_error_says_what_is_wrong(self, service: Service, library: Library) -> None:
        library.check_error(library.refused, EMPTY, service.url, query=" ")

    def test_its_key_is_sent(self, guarded: Service, library: Library) -> None:
        library.check(guarded.url, KEY)
        library.check_error(library.denied, UNKNOWN, guarded.url, key="kb_wrong")

    def test_it_comes_back_when_there_is_room_or_says_that_there_is_none(self, service: Service, library: Library) -> None:
        if library.busy is None:
            with service.full_once():
                library.check(service.url)
        else:
            with service.full():
                library.check_error(library.busy, BUSY, service.url)
