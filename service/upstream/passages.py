"""The pipeline in front of an upstream: which passages of a document it is asked about.

An upstream has a tokenizer of its own, which is not known here. Documents are cut, and passages measured, by the tokenizer and the
document frequencies of a bundle, the embedded one by default.
"""

from dataclasses import replace
from typing import Any

from keyblock.bundle import Bundle
from keyblock.description import PipelineConfig
from keyblock.pipeline import Pipeline
from service.settings import Settings

UNNAMED = "upstream"  # the model's name where none is given
SENTENCES = 63  # tokens of the whole sentences that a block is made of; a passage grows to its neighbours
QUERY_TOKENS = 48  # counted to the size of a passage; the upstream is sent the whole query
LEAST_TOKENS, MOST_TOKENS = 64, 512  # that a request may ask for
LONGEST_TITLE = 200  # characters of a title in front of a passage
CHARS_PER_TOKEN = 16  # of a passage at most: a word of a million letters is one token here, and a million elsewhere


def in_front_of_upstream(bundle: Bundle, settings: Settings) -> Bundle:
    """The bundle's tokenizer and frequencies with the pipeline of passages, under the upstream's name."""
    config = pipeline_config(settings.upstream_passages, settings.upstream_passage_tokens)
    changes = {"name": settings.upstream_model or UNNAMED, "pipeline": config, "quality": {}, "variants": {}}
    changes |= {"provenance": {"tokenizer_and_frequencies_of": bundle.manifest.name}, "aggregator": None, "selector_graph": None}
    manifest = bundle.manifest.model_copy(update=changes)
    return replace(bundle, manifest=manifest, pipeline=Pipeline(config, bundle.tokenizer, bundle.frequencies))


def pipeline_config(passages: int, tokens: int) -> PipelineConfig:
    """The description, as of an import: BM25's best blocks grow to passages, each is asked about, and the best score wins."""
    high = max(tokens, MOST_TOKENS)
    packing: dict[str, Any] = {"query_tokens": QUERY_TOKENS, "budget": tokens, "budget_range": (LEAST_TOKENS, high), "grow": True}
    segmenter = {"name": "whole_sentences", "block_tokens": max(min(tokens - QUERY_TOKENS, SENTENCES), 16)}
    return PipelineConfig.model_validate(
        {"segmenter": segmenter, "packing": packing, "aggregator": {"name": "max", "passages": passages}}
    )


def passage_text(text: str, title: str, start: int, end: int, tokens: int = MOST_TOKENS) -> str:
    """What the upstream reads: the title, and the passage ``text[start:end]`` as far as `tokens` may reach."""
    passage = text[start : min(end, start + CHARS_PER_TOKEN * tokens)]
    return f"{title[:LONGEST_TITLE]}\n{passage}" if title else passage
