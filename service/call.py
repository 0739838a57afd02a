"""The one internal request that every dialect is read into."""

from dataclasses import dataclass, field

from keyblock.prepared import PreparedDocument
from service.store.base import DEFAULT_NAMESPACE
from service.store.codec import StoredDocument

ASSUMED_CHARS = 1000  # of a stored document before it is looked up: enough for any budget's tokens


@dataclass(slots=True)
class ById:
    """The documents of a call that were sent as an id alone, by their numbers; filled by the store on the way.

    Attributes:
        ids: of all of them.
        namespace: that the ids are of.
        chars: of those that were looked up.
        known: those that the store has.
        found: prepared, until they meet the query.
        stale: those that another pipeline has prepared; their texts are entered, and they are prepared again.
        renewed: these, prepared.
        unknown: those that the store does not have.
    """

    ids: dict[int, str] = field(default_factory=dict)
    namespace: str = DEFAULT_NAMESPACE
    chars: dict[int, int] = field(default_factory=dict)
    known: set[int] = field(default_factory=set)
    found: dict[int, PreparedDocument] = field(default_factory=dict)
    stale: dict[int, StoredDocument] = field(default_factory=dict)
    renewed: dict[int, PreparedDocument] = field(default_factory=dict)
    unknown: set[int] = field(default_factory=set)

    def absent(self, number: int) -> bool:
        """Whether a document was sent as an id alone and the store has not given it: it is unknown, or time was up."""
        return number in self.ids and number not in self.known

    def without_text(self, number: int) -> bool:
        """Whether a document has no text to prepare: it is prepared already, or the store does not have it."""
        return number in self.ids and number not in self.stale


@dataclass(frozen=True, slots=True)
class Documents:
    """The candidates, in the order given.

    Attributes:
        texts: as sent.
        titles: as many; "" for none.
        ids: as many; None for none.
        by_id: those that were sent as an id alone; their texts and titles are "" until they are looked up.
    """

    texts: list[str]
    titles: list[str]
    ids: list[str | int | None]
    by_id: ById = field(default_factory=ById)

    def __len__(self) -> int:
        return len(self.texts)


@dataclass(frozen=True, slots=True)
class Call:
    """What a client asks for.

    Attributes:
        query: not blank.
        documents: at least one.
        model: the name that is asked for, whatever it is; None for none.
        max_tokens: tokens a sequence may have; None for the pipeline's own budget.
        top_n: results to return; 0 for all.
        deadline: seconds from the call's last byte to its answer; None for as long as it takes.
        priority: calls of a smaller one go first.
        strict: whether an unknown id or model is an error.
        warnings: what was asked for and is not done; grows on the way.
    """

    query: str
    documents: Documents
    model: str | None = None
    max_tokens: float | None = None
    top_n: int = 0
    return_documents: bool = False
    return_blocks: bool = False
    raw_scores: bool = False
    deadline: float | None = None
    priority: int = 0
    strict: bool = False
    warnings: list[str] = field(default_factory=list)
