"""What documents mean: a sentence encoder reads them before any query comes, which takes too long for texts that come with one.

Stored documents are read in the background. An understood document has longer vectors: behind the vector that the pipeline's
encoder makes of each block stands that of the sentence encoder. The query's vector is then as long, so that one product gives
``cosine + weight * cosine of the meaning``, and every selector that compares vectors chooses by both.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, lru_cache, partial
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from keyblock.encoders import ENCODERS, Encoder, Texts, vector_of
from keyblock.prepared import QUANTUM, PreparedDocument, PreparedQuery

QUERIES = 64  # whose vectors are kept: a request asks for its own once for each slice of its documents


class Meaning(BaseModel):
    """How documents are understood."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    encoder: Annotated[dict[str, Any], AfterValidator(ENCODERS.described)] = Field(
        {"name": "sentence"}, description="the sentence encoder", validate_default=True
    )
    weight: float = Field(1.0, gt=0, le=1000, description="weight of its cosine beside the cosine of the pipeline's encoder")


class Understanding:
    """Understands documents, and queries that meet them. Safe to use from several threads.

    Args:
        weight: see Meaning.
        dimensions: length of the vectors of the pipeline's encoder.
        open_encoder: opens the sentence encoder, at its first use: a service without stored documents never needs it.
    """

    def __init__(self, weight: float, dimensions: int, open_encoder: Callable[[], Encoder]) -> None:
        self._weight, self._dimensions, self._opened = weight, dimensions, cache(open_encoder)
        self._of_query = lru_cache(QUERIES)(partial(_vector, self._opened))  # a method would be a cycle

    @property
    def encoder(self) -> Encoder:
        """The sentence encoder. Raises ValueError, in one line, if its file holds none."""
        return self._opened()

    def has_read(self, document: PreparedDocument) -> bool:
        """Whether the document is understood."""
        return document.vectors is not None and document.vectors.shape[1] > self._dimensions

    def read(self, document: PreparedDocument, pause: Callable[[int], object] = int) -> PreparedDocument:
        """The document, understood; see `Encoder.encode` for `pause`. Raises ValueError if it was prepared without vectors."""
        if document.vectors is None:
            raise ValueError("a document is understood that has no vectors: the pipeline that prepares it needs an encoder")
        (found,) = self.encoder.quantized([Texts(document.token_ids, document.bounds)], pause)
        return document.with_vectors(np.concatenate([document.vectors[:, : self._dimensions], found], axis=1))

    def beside(self, query: PreparedQuery) -> PreparedQuery:
        """The query as it meets documents that are understood. Raises ValueError if it was prepared without a vector."""
        if query.vector is None:
            raise ValueError("a query meets understood documents without a vector: the pipeline that prepares it needs an encoder")
        meant = self._of_query(query.token_ids.tobytes())
        return replace(query, vector=np.concatenate([query.vector, self._weight * meant]))

    def nearest(self, query: PreparedQuery, documents: Sequence[PreparedDocument]) -> list[float]:
        """For each understood document the cosine of the query's meaning and its nearest block's; -1 for one without blocks."""
        meant = self._of_query(query.token_ids.tobytes())
        return [self._nearest(meant, document.vectors) for document in documents]

    def _nearest(self, meant: NDArray[np.float32], vectors: NDArray[np.int8] | None) -> float:
        if vectors is None or not len(vectors):
            return -1.0
        return float((vectors[:, self._dimensions :].astype(np.float32) @ meant).max()) / QUANTUM


def _vector(opened: Callable[[], Encoder], token_ids: bytes) -> NDArray[np.float32]:
    return vector_of(np.frombuffer(token_ids, np.int32), opened())
