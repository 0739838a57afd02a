"""A second look: the model reads on in the documents with the best scores, and their scores change by what it finds.

The first look reads two or three blocks of each document, as one sequence. The second reads the next best blocks, each alone. They
tell more than the first blocks read again, alone (lab/notes/second-look.md).
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from keyblock.packing import Packed


class SecondLook(BaseModel):
    """How far it goes, and ``bias + first * fused + further * logit``, the fused logit of a document after it.

    `fused` is the fused logit before, and `logit` that of the best further block; of a document with none, that of the first look.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    documents: int = Field(5, ge=1, description="how many documents it reads, those with the best scores")
    blocks: int = Field(4, ge=1, description="how many further blocks of a document it reads")
    margin: float = Field(
        2.0,
        ge=0,
        description="documents whose fused logit is further below the best one's are not read: it hardly changes the order",
    )
    bias: float = Field(0.0, description="added once")
    first: float = Field(1.0, gt=0, description="weight of the fused logit before it")
    further: float = Field(0.4, ge=0, description="weight of the best further block's logit")

    def chosen(self, order: NDArray[np.intp], fused: NDArray[np.float64]) -> NDArray[np.intp]:
        """The numbers of the documents that it reads.

        Args:
            order: document numbers, best first.
            fused: shape (n_documents,), their fused logits.
        """
        best = order[: self.documents]
        return np.asarray(best[fused[best] >= fused[best].max(initial=-np.inf) - self.margin])

    def fuse(self, fused: NDArray[np.float64], logits: NDArray[np.float64]) -> NDArray[np.float64]:
        """The fused logits after it; all arrays have shape (n_documents,)."""
        return self.bias + self.first * fused + self.further * logits


class Further(NamedTuple):
    """The next best blocks of a document, in document order, kept for a second look.

    Attributes:
        ids: the tokens of each, shape (n_tokens,).
        places: shape (n_blocks, 2), where each starts and ends in the text, in code points.
    """

    ids: list[NDArray[np.int32]]
    places: NDArray[np.int32]

    def sequences(self, first: Packed, title: int, after: int, budget: int) -> list[Packed]:
        """A sequence of each block alone, behind the query and the title as the first look read them.

        Args:
            first: what the first look read.
            title: tokens of the title in it.
            after: number of special tokens at the end of a sequence.
            budget: tokens that a sequence may have.
        """
        head, end = first.ids[: first.split + title], first.ids[len(first.ids) - after :]
        room = budget - len(head) - after
        return [
            Packed(np.concatenate([head, ids[:room], end]), first.split, np.zeros(1, np.intp), cut=len(ids) > room)
            for ids in self.ids
        ]


class Looked(NamedTuple):
    """What a second look found.

    Attributes:
        documents: the numbers of the documents that it read.
        fused: the fused logit of each after it.
        logits: for each of them those of its further blocks, shape (n_blocks,), -inf where time was up; of a document with none,
            that of the first look.
        sequences: for each of them what the model read.
        marks: for each of them the token logits of each sequence; None if tokens are not marked.
    """

    documents: Sequence[int] = ()
    fused: Sequence[float] = ()
    logits: Sequence[NDArray[np.float32]] = ()
    sequences: Sequence[list[Packed]] = ()
    marks: Sequence[Sequence[NDArray[np.float32]]] | None = None

    @property
    def tokens(self) -> int:
        """Tokens that the model read."""
        read = zip(self.sequences, self.logits, strict=True)
        return sum(
            len(packed.ids) for sequences, logits in read for packed, one in zip(sequences, logits, strict=False) if one > -np.inf
        )


NOTHING_LOOKED = Looked()
