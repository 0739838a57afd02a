from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from export import ExportError
from export.certificate import ALLOWED, certify, differences, mixed_pairs, served_logits
from keyblock.description import PipelineConfig
from keyblock.packing import Packed
from keyblock.pipeline import Pipeline
from keyblock.runtime.session import ScoreError
from keyblock.text.analyzer import DocumentFrequencies
from keyblock.text.tokenizer import Tokenizer

QUERIES, TEXTS = ["a river", "why do bridges fall"], ["The river flooded the bridge. " * 30, "Stones, and a city by the sea."]


class Counting:
    """A model whose logit is a sequence's length, and something more."""

    def __init__(self, more: float = 0.0) -> None:
        self.more = more

    def outputs(self, sequences: Sequence[Packed]) -> NDArray[np.float32]:
        return np.asarray([len(packed.ids) + self.more for packed in sequences], dtype=np.float32)

    choose = outputs

    def combine(self, states: NDArray[np.float32], mask: NDArray[np.bool_]) -> NDArray[np.float32]:
        return states[:, 0, 0]


@pytest.fixture(scope="module")
def grown(tokenizer: Tokenizer, frequencies: DocumentFrequencies) -> Pipeline:
    packing = {"query_tokens": 16, "budget": 64, "budget_range": (48, 128), "grow": True}
    parts = {
        "segmenter": {"name": "sentences", "block_tokens": 16},
        "packing": packing,
        "aggregator": {"name": "max", "passages": 3},
    }
    return Pipeline(PipelineConfig.model_validate(parts), tokenizer, frequencies)


def test_pairs_are_of_all_lengths_and_fit_one_sequence(grown: Pipeline) -> None:
    pairs = mixed_pairs(grown, QUERIES, TEXTS, 200)
    assert pairs == mixed_pairs(grown, QUERIES, TEXTS, 200), "the same ones each time"
    lengths = served_logits(grown, Counting(), pairs)
    assert lengths.max() <= 128
    assert np.quantile(lengths, [0.05, 0.5, 0.95]) == pytest.approx([9, 25, 126], abs=12)
    assert {query for query, _ in pairs} == set(QUERIES)


class Damaged(Counting):
    """A graph's own words where its weights are NaN."""

    def outputs(self, sequences: Sequence[Packed]) -> NDArray[np.float32]:
        raise ScoreError("the graph gave outputs that are not finite")


def test_a_certificate_by_hand(grown: Pipeline) -> None:
    pairs = mixed_pairs(grown, QUERIES, TEXTS, 20)
    expected = served_logits(grown, Counting(), pairs)
    certificate = certify(expected + np.float32(0.0005), grown, Counting(), pairs)
    assert certificate["logits"]["max"] == pytest.approx(0.0005, abs=1e-5)
    assert certificate["logits"]["pairs"] == 20
    assert certificate["allowed"] == ALLOWED, "logits are lengths, which span more than a unit"
    assert certificate["tokens_of_passages"]["most"] > certificate["tokens_of_passages"]["least"] >= 1
    with pytest.raises(ExportError, match=r"differ from transformers' by up to 0\.01"):
        certify(expected, grown, Counting(0.01), pairs)
    with pytest.raises(ExportError, match="logits that are not finite"):
        certify(np.where(np.arange(20) == 3, np.nan, expected), grown, Counting(), pairs)
    with pytest.raises(ExportError, match="the model gives logits that are not finite: its weights are damaged"):
        certify(np.full(20, np.nan, np.float32), grown, Damaged(), pairs)


def test_a_model_that_tells_nothing_apart_proves_nothing() -> None:
    with pytest.raises(ExportError, match=r"gives every pair the logit 1\.5"):
        differences(np.full(5, 1.5, np.float32), np.full(5, 1.5, np.float32))


def test_a_text_of_several_passages_is_no_pair(grown: Pipeline) -> None:
    with pytest.raises(ExportError, match="became 3 passages where one was due"):
        served_logits(grown, Counting(), [("river", "The river flooded the bridge. " * 200)])
