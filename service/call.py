"""The internal form of a request, into which every dialect is read."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from sys import getsizeof

from keyblock.prepared import PreparedDocument
from keyblock.ranking.request import RankRequest
from service.errors import RequestError

DEFAULT_NAMESPACE = "default"
ASSUMED_CHARS = 1000  # of a stored document until it is looked up: enough for any budget's tokens


@dataclass(slots=True)
class ById:
    """The documents of a call that were sent as an id alone, and the store's contents for these ids.

    A repeated id is looked up, decoded and prepared once, so everything except `ids` is kept by id.

    Attributes:
        ids: of these documents, by their numbers.
        namespace: of the ids.
        chars: of each document that was looked up.
        found: documents that the store has prepared.
        stale: ids of documents that another pipeline has prepared; their texts are entered, and they are prepared again.
        renewed: the stale documents after their preparation.
        unknown: numbers of the documents that the store does not have.
        away: numbers of the documents on a part of the store that does not answer.
    """

    ids: dict[int, str] = field(default_factory=dict)
    namespace: str = DEFAULT_NAMESPACE
    chars: dict[str, int] = field(default_factory=dict)
    found: dict[str, PreparedDocument] = field(default_factory=dict)
    stale: set[str] = field(default_factory=set)
    renewed: dict[str, PreparedDocument] = field(default_factory=dict)
    unknown: set[int] = field(default_factory=set)
    away: set[int] = field(default_factory=set)

    def absent(self, number: int) -> bool:
        """Whether a document was sent as an id alone and the store has not given it: it is unknown or away, or time ran out."""
        identity = self.ids.get(number)
        return identity is not None and identity not in self.found and identity not in self.stale

    def to_prepare(self, numbers: Sequence[int]) -> list[int]:
        """The numbers whose texts must be prepared: one for each stale id, until it is prepared."""
        first = {self.ids[number]: number for number in reversed(numbers) if number in self.ids}
        unprepared = self.stale - self.renewed.keys()
        return [n for n in numbers if n not in self.ids or (self.ids[n] in unprepared and first[self.ids[n]] == n)]

    def prepared(self, number: int) -> PreparedDocument | None:
        """A document as the store has it, or as it was prepared again; otherwise None."""
        identity = self.ids.get(number, "")
        return self.renewed.get(identity) or self.found.get(identity)


@dataclass(frozen=True, slots=True)
class Documents:
    """The candidates, in the order given.

    Attributes:
        texts: as sent.
        titles: one for each document; "" for none.
        ids: one for each document; None for none.
        by_id: those that were sent as an id alone; their texts and titles are "" until they are looked up.
        utf8: bytes of each text and title in UTF-8; empty until they are counted.
        prepared: each of them, if several queries share them, None for which time ran out; otherwise empty.
    """

    texts: list[str]
    titles: list[str]
    ids: list[str | int | None]
    by_id: ById = field(default_factory=ById)
    utf8: list[int] = field(default_factory=list)
    prepared: list[PreparedDocument | None] = field(default_factory=list)

    @property
    def n_bytes(self) -> int:
        """Bytes of memory that texts and titles take: up to four for each character, if one of them is an emoji."""
        return sum(map(getsizeof, self.texts)) + sum(map(getsizeof, self.titles))

    def __len__(self) -> int:
        return len(self.texts)

    def add(self, text: str, title: str, identity: str | int | None) -> None:
        """Add a document."""
        self.texts.append(text)
        self.titles.append(title)
        self.ids.append(identity)

    def take(self, documents: "Documents", number: int) -> None:
        """Add one of other documents, as it was sent."""
        if (identity := documents.by_id.ids.get(number)) is not None:
            self.by_id.ids[len(self)] = identity
        self.add(documents.texts[number], documents.titles[number], documents.ids[number])

    @property
    def stored_ids(self) -> Mapping[int, str]:
        """The ids of the documents that were sent as an id alone, by number."""
        return self.by_id.ids


@dataclass(frozen=True, slots=True)
class Call(RankRequest):
    """A request for a ranking, see RankRequest.

    Attributes:
        query: not blank.
        documents: may be none.
        model: the requested name, whatever it is; None for none.
        deadline: seconds from the call's last byte to its answer; None for no deadline.
        priority: calls of a smaller one go first.
        strict: whether an unknown id or model is an error.
        warnings: requested things that are not done; grows on the way.
    """

    query: str
    documents: Documents
    model: str | None = None
    return_documents: bool = False
    return_blocks: bool = False
    deadline: float | None = None
    priority: int = 0
    strict: bool = False
    warnings: list[str] = field(default_factory=list)


class Queries:
    """The queries of one request: a call for each, all of them with the same options.

    Args:
        calls: in the order given; an error for a query that cannot be asked.

    Attributes:
        calls: as given.
        asked: the calls without the errors.
        documents: the documents of all calls, each once.
    """

    def __init__(self, calls: Sequence[Call | RequestError]) -> None:
        self.calls = calls
        self.asked = [call for call in calls if isinstance(call, Call)]
        known: dict[object, int] = {}
        self.documents = Documents([], [], [])
        self._numbers: list[list[int]] = []  # of each call's documents, among all
        for call in self.asked:
            keys = _keys(call.documents)
            for place, key in enumerate(keys):
                if known.setdefault(key, len(known)) == len(self.documents):
                    self.documents.take(call.documents, place)
            self._numbers.append([known[key] for key in keys])

    @property
    def pairs(self) -> int:
        """How many documents all queries have together."""
        return sum(len(call.documents) for call in self.asked)

    @property
    def repeated(self) -> int:
        """The most characters of documents that the answers repeat: each answer may have the same texts."""
        most = 0
        for call in self.asked:
            if call.return_documents or call.asked.prune:
                most += sum(sorted(map(len, call.documents.texts), reverse=True)[: call.asked.top_n or None])
        return most

    def hand_out(self, prepared: Sequence[PreparedDocument | None]) -> None:
        """Give the calls their documents, as the store has them, and `prepared`."""
        whole = self.documents
        for call, numbers in zip(self.asked, self._numbers, strict=True):
            own, by_id = call.documents, call.documents.by_id
            own.prepared[:] = [prepared[number] for number in numbers]
            by_id.chars, by_id.found, by_id.stale = whole.by_id.chars, whole.by_id.found, whole.by_id.stale
            for place in by_id.ids:
                number = numbers[place]
                own.texts[place], own.titles[place] = whole.texts[number], whole.titles[number]
                by_id.unknown |= {place} if number in whole.by_id.unknown else set()
                by_id.away |= {place} if number in whole.by_id.away else set()


def _keys(documents: Documents) -> list[object]:
    """What tells documents apart, of each: the id of a stored one, else its title and text."""
    ids = documents.by_id.ids
    return [ids.get(number, pair) for number, pair in enumerate(zip(documents.titles, documents.texts, strict=True))]
