"""Simulated bundles. A document is a number, and the pipeline and the model compute with numbers.

The logit of a sequence is a hash of the model, the query, the document and the sequence. So a mix-up changes the logit.
"""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.simulation.machine import SimulatedMachine
from keyblock.aggregation import AGGREGATORS
from keyblock.bundle import BundleError
from keyblock.description import PipelineConfig
from keyblock.fusion import FEATURES
from keyblock.packing import Packed
from keyblock.prepared import PreparedDocument

ASKING, UPSTREAM = "asking", "upstream"
MODELS = {"joint": "joint", "passages": "max", "learned": "states", ASKING: "joint"}
"""Names of the bundles' models, with their aggregators."""
UPSTREAM_SALT = 1
GENERATION = 10  # difference between the salts of two generations of bundles
NONE = np.zeros(0, np.int32)
DIGITS = 8  # of a document's number, which begins its text
BOUNDS, STARTS, ENDS = np.array([[0, 1]], np.int32), np.zeros(1, np.int32), np.full(1, DIGITS, np.int32)
TERM_BOUNDS = np.zeros(2, np.int32)
TERMS, REACH, TAKEN = np.zeros(0, np.int64), np.array([[0, 1]]), np.zeros(1, np.intp)
SCORES, EVIDENCE = np.ones(1), np.ones(len(FEATURES) - 1)
LEAST_TOKENS, SPREAD = 24, 233  # tokens of a sequence: the first number, plus fewer than the second, by its document
MOST_SEQUENCES = 3  # of a document, with one block each
SELECTION_PARTS = 100  # parts from this number on are for selection by the model, not for scores


class Text(str):
    """A document's number as a text of a number of characters."""

    __slots__ = ("chars",)

    def __new__(cls, key: int, chars: int) -> "Text":
        """See Text."""
        made = super().__new__(cls, digits(key))
        made.chars = chars
        return made

    def __len__(self) -> int:
        return self.chars


def sequence(number: int, *key: int) -> Packed:
    """A sequence of a number of tokens. The first three are the query, the document and the part."""
    ids = np.zeros(number, np.int32)
    ids[:3] = key
    return Packed(ids, 1, TAKEN)


def digits(key: int) -> str:
    """A document's text."""
    return f"{key:0{DIGITS}d}"


class Query(NamedTuple):
    """A query, which is a number."""

    number: int
    token_ids: tuple[int, ...] = (1,)
    truncated: bool = False
    mended: None = None


class Seen(NamedTuple):
    """A document seen through a query: see `keyblock.pipeline.Selection`."""

    sequences: list[Packed]
    reach: NDArray[np.intp] = REACH
    taken: NDArray[np.intp] = TAKEN
    scores: NDArray[np.float64] = SCORES
    evidence: NDArray[np.float64] = EVIDENCE
    by: None = None
    selection_tokens: int = 0
    shared: None = None
    meaning: None = None


def document(key: int) -> PreparedDocument:
    """A prepared document."""
    return PreparedDocument(np.array([key], np.int32), BOUNDS, STARTS, ENDS, TERMS, TERM_BOUNDS, NONE)


def logit(salt: int, query: Any, key: Any, part: Any) -> Any:
    """The model's logit of a sequence, or of many. Each is exact in float32."""
    return (salt * 7919 + query * 104729 + key * 1299709 + part * 15485863) % 65521


ScoredShortlist = tuple[Seen, NDArray[np.float32]]
"""See `keyblock.pipeline.ScoredShortlist`."""


class SimulatedPipeline:
    """See `keyblock.pipeline.Pipeline`, as far as the service calls it."""

    encoder = understanding = None
    reader = SimpleNamespace(readable=list)

    def __init__(self, machine: SimulatedMachine, config: PipelineConfig, char_seconds: float, salt: int, name: str) -> None:
        self.config, self.salt, self.asks_model = config, salt, name == ASKING
        self.aggregator = AGGREGATORS.create(config.aggregator)
        self._one = self.aggregator.joint or name == UPSTREAM
        self.tokenizer = SimpleNamespace(pad_id=0, template=SimpleNamespace(document_type=1), prompt=None)
        self._machine, self._char_seconds = machine, char_seconds

    def prepare_query(self, text: str, _instruction: str | None) -> Query:
        """See Pipeline."""
        self._machine.spend(1e-5)
        return Query(int(text))

    def prepare_document(self, text: str) -> PreparedDocument:
        """See Pipeline. A document without text has no block."""
        return PreparedDocument(NONE, NONE.reshape(0, 2), NONE, NONE, TERMS, NONE, NONE)

    def prepare_documents(self, texts: list[str], _titles: list[str], watch: Any) -> list[PreparedDocument]:
        """See Pipeline."""
        made = []
        for text in texts:
            self._machine.spend(len(text) * self._char_seconds)
            watch(len(text))
            made.append(document(int(text)))
        return made

    def shortlist(self, query: Query, one: PreparedDocument, budget: int) -> Seen:
        """See Pipeline. Sequences for selection differ in the part from those for scores."""
        keys = one.token_ids.tolist()
        return Seen([sequence(LEAST_TOKENS, query.number, key, SELECTION_PARTS + part) for key in keys for part in range(2)])

    def select(self, query: Query, one: PreparedDocument, budget: int, shortlisted: ScoredShortlist | None = None) -> Seen:
        """See Pipeline: all of its sequences, of a length that its number and the budget say.

        Raises ValueError for an answer of the model that is another sequence's.
        """
        if not one.n_blocks:
            return Seen([])
        for packed, value in zip(shortlisted[0].sequences, shortlisted[1].tolist(), strict=True) if shortlisted else ():
            if value > -np.inf and value != logit(self.salt, *packed.ids[:3].tolist()):
                raise ValueError(f"the block {packed.ids[:3]} has the logit of another")
        key = int(one.token_ids[0])
        number = min(LEAST_TOKENS + key % SPREAD, budget)
        return Seen([sequence(number, query.number, key, part) for part in self._parts(key)])

    def says(self, query: int, key: int) -> float:
        """The logit of a document: its best sequence's."""
        return max(float(logit(self.salt, query, key, part)) for part in self._parts(key))

    def _parts(self, key: int) -> range:
        return range(1 if self._one else 1 + key % MOST_SEQUENCES)

    def select_each(self, query: Query, documents: Sequence[PreparedDocument], budget: int) -> list[Seen]:
        """See Pipeline."""
        return [self.select(query, one, budget) for one in documents]

    def check(self, _one: PreparedDocument) -> None:
        """See Pipeline. Every document is fine."""


def combine(states: NDArray[np.float32], mask: NDArray[np.bool_]) -> NDArray[np.float32]:
    """A learned aggregator that takes the best sequence."""
    best: NDArray[np.float32] = np.where(mask, states[..., 0], -np.inf).max(1)
    return best


def salt_of(name: str, generation: int) -> int:
    """The salt of a bundle's model. No two are equal. Bundles of one generation prepare documents in the same way."""
    return GENERATION * generation + list(MODELS).index(name)


def bundle(machine: SimulatedMachine, name: str, salt: int, char_seconds: float, *, broken: bool = False) -> Any:
    """A bundle as far as the service reads it, of one of the MODELS or in front of an UPSTREAM.

    Broken: its files are not those that were checked.
    """
    # a different number of title tokens means a different preparation; few lengths warm up quickly
    packing = {"title_tokens": salt // GENERATION % 100, "budget_range": (64, 128)}
    config = PipelineConfig(aggregator={"name": MODELS.get(name, "max")}, packing=packing)
    pipeline = SimulatedPipeline(machine, config, char_seconds, salt, name)
    manifest = SimpleNamespace(name=name, pipeline=config)
    return SimpleNamespace(
        manifest=manifest, pipeline=pipeline, path=_ANYWHERE, salt=salt, check_files=partial(_check, broken), graph=_UNMARKED
    )


_UNMARKED = SimpleNamespace(marks=False)


def _check(broken: bool) -> None:
    if broken:
        raise BundleError("its files have changed")


class _Anywhere:
    """A folder in which every file name leads to this file, whose content does not matter."""

    def __truediv__(self, _name: str) -> Path:
        return Path(__file__)


_ANYWHERE = _Anywhere()
