"""The one internal request that every dialect is read into."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Documents:
    """The candidates, in the order given.

    Attributes:
        texts: as sent.
        titles: as many; "" for none.
        ids: as many; None for none.
    """

    texts: list[str]
    titles: list[str]
    ids: list[str | int | None]

    def __len__(self) -> int:
        return len(self.texts)


@dataclass(frozen=True, slots=True)
class Call:
    """What a client asks for.

    Attributes:
        query: not blank.
        documents: at least one.
        max_tokens: tokens a sequence may have; None for the pipeline's own budget.
        top_n: results to return; 0 for all.
        deadline: seconds from the call's last byte to its answer; None for as long as it takes.
        priority: calls of a smaller one go first.
        warnings: what was asked for and is not done; grows on the way.
    """

    query: str
    documents: Documents
    max_tokens: float | None = None
    top_n: int = 0
    return_documents: bool = False
    return_blocks: bool = False
    raw_scores: bool = False
    deadline: float | None = None
    priority: int = 0
    warnings: list[str] = field(default_factory=list)
