"""The one internal request that every dialect is read into."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from keyblock.answering import AnswerOptions
from keyblock.first_stage import NOT_SENT, FirstStage
from keyblock.prepared import PreparedDocument

NOTHING = AnswerOptions()
DEFAULT_NAMESPACE = "default"
ASSUMED_CHARS = 1000  # of a stored document before it is looked up: enough for any budget's tokens


@dataclass(slots=True)
class ById:
    """The documents of a call that were sent as an id alone, and what the store has under these ids.

    An id that is asked for several times is looked up, decoded and prepared once: all else is kept by id.

    Attributes:
        ids: of all of them, by their numbers.
        namespace: that the ids are of.
        chars: of each document that was looked up.
        found: documents as the store has them prepared.
        stale: ids of those that another pipeline has prepared; their texts are entered, and they are prepared again.
        renewed: these, prepared.
        unknown: numbers of the documents that the store does not have.
        away: numbers of those on a part of the store that does not answer.
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
        """Whether a document was sent as an id alone and the store has not given it: it is unknown or away, or time was up."""
        identity = self.ids.get(number)
        return identity is not None and identity not in self.found and identity not in self.stale

    def to_prepare(self, numbers: Sequence[int]) -> list[int]:
        """Those of the numbers whose texts are to be prepared: of each stale id one, and none once it is prepared."""
        first = {self.ids[number]: number for number in reversed(numbers) if number in self.ids}
        left = self.stale - self.renewed.keys()
        return [n for n in numbers if n not in self.ids or (self.ids[n] in left and first[self.ids[n]] == n)]

    def prepared(self, number: int) -> PreparedDocument | None:
        """A document as the store has it, or as it was prepared again; None where neither is so."""
        identity = self.ids.get(number, "")
        return self.renewed.get(identity) or self.found.get(identity)


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
        deadline: seconds from the call's last byte to its answer; None for as long as it takes.
        priority: calls of a smaller one go first.
        escalation_tokens: that the model may be asked for to choose blocks; None for as many as bundle and service have it.
        strict: whether an unknown id or model is an error.
        asked: what is asked for beside the order.
        first_stage: what is said of the search before, and how to heed it.
        instruction: what a model with a prompt is told to do; None for what its bundle says.
        warnings: what was asked for and is not done; grows on the way.
    """

    query: str
    documents: Documents
    model: str | None = None
    max_tokens: float | None = None
    return_documents: bool = False
    return_blocks: bool = False
    raw_scores: bool = False
    deadline: float | None = None
    priority: int = 0
    strict: bool = False
    escalation_tokens: int | None = None
    instruction: str | None = None
    asked: AnswerOptions = NOTHING
    first_stage: FirstStage = NOT_SENT
    warnings: list[str] = field(default_factory=list)
