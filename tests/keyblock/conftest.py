"""Pipelines that several test modules share."""

from typing import Any

import pytest

from keyblock.bundle import Bundle, load_bundle
from keyblock.description import PipelineConfig
from keyblock.pipeline import Pipeline
from keyblock.text.analyzer import DocumentFrequencies
from keyblock.text.tokenizer import Tokenizer
from tests.conftest import ROOT
from tests.keyblock.pipelines import make
from tests.support.vectors import concept_table


@pytest.fixture(scope="session")
def embedded() -> Bundle:
    """The bundle that comes with KeyBlock."""
    return load_bundle(ROOT / "models" / "default")


@pytest.fixture(scope="session")
def fine(tokenizer: Tokenizer, frequencies: DocumentFrequencies) -> Pipeline:
    """Blocks of at most 5 tokens, so that short texts have many."""
    return make(tokenizer, frequencies, segmenter={"name": "cogltx", "block_tokens": 5})


@pytest.fixture(scope="session")
def single(tokenizer: Tokenizer, frequencies: DocumentFrequencies) -> Pipeline:
    return make(tokenizer, frequencies, segmenter={"name": "cogltx", "block_tokens": 1})


@pytest.fixture(scope="session")
def small_block_pipelines(tokenizer: Tokenizer, frequencies: DocumentFrequencies) -> list[Pipeline]:
    """Pipelines with small blocks: overlapping or adjacent windows, sentences, sentences of drawn lengths, whole sentences."""
    segmenters: list[dict[str, Any]] = [
        {"name": "window", "block_tokens": 5, "stride": 2},
        {"name": "window", "block_tokens": 5, "stride": 5},
        {"name": "sentences", "block_tokens": 5},
        {"name": "sentences", "block_tokens": 5, "shortest": 1},
        {"name": "whole_sentences", "block_tokens": 5},
    ]
    return [make(tokenizer, frequencies, segmenter=segmenter) for segmenter in segmenters]


@pytest.fixture(scope="session")
def windows(small_block_pipelines: list[Pipeline]) -> Pipeline:
    return small_block_pipelines[0]


@pytest.fixture(scope="session")
def hybrid(tokenizer: Tokenizer, frequencies: DocumentFrequencies) -> Pipeline:
    """Terms and vectors; its table knows a few concepts."""
    config = PipelineConfig(selector={"name": "hybrid"}, encoder={"name": "static"})
    return Pipeline(config, tokenizer, frequencies, concept_table(tokenizer))
