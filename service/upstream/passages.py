"""The pipeline in front of an upstream: it chooses the passages of a document that the upstream scores.

The upstream's own tokenizer is not known here. Documents are cut, and passages measured, by the tokenizer and the document
frequencies of a bundle, the embedded one by default.
"""

import re
from dataclasses import replace
from typing import Any

from keyblock.bundle import Bundle
from keyblock.description import PipelineConfig
from keyblock.pipeline import Pipeline
from keyblock.ranking.pruning import CHARS_PER_TOKEN
from service.settings import Settings

UNNAMED = "upstream"  # the model's name if none is set
SENTENCES = 63  # tokens of the whole sentences in a block; a passage grows into its neighbours
QUERY_TOKENS = 48  # that count towards the size of a passage; the upstream gets the whole query
LEAST_TOKENS, MOST_TOKENS = 64, 512  # that a request may set
LONGEST_TITLE = 200  # characters of a title in front of a passage


def in_front_of_upstream(bundle: Bundle, settings: Settings) -> Bundle:
    """A bundle under the upstream's name: this one's tokenizer and frequencies, with the pipeline of passages."""
    config = pipeline_config(settings.upstream_passages, settings.upstream_passage_tokens)
    changes = {"name": settings.upstream_model or UNNAMED, "pipeline": config, "quality": {}, "variants": {}}
    changes |= {"provenance": {"tokenizer_and_frequencies_of": bundle.manifest.name}, "aggregator": None, "selector_graph": None}
    manifest = bundle.manifest.model_copy(update=changes)
    return replace(bundle, manifest=manifest, pipeline=Pipeline(config, bundle.tokenizer, bundle.frequencies))


def pipeline_config(passages: int, tokens: int) -> PipelineConfig:
    """The configuration, like that of an imported model: BM25's best blocks grow to passages, and the best passage's score wins."""
    high = max(tokens, MOST_TOKENS)
    packing: dict[str, Any] = {"query_tokens": QUERY_TOKENS, "budget": tokens, "budget_range": (LEAST_TOKENS, high), "grow": True}
    segmenter = {"name": "whole_sentences", "block_tokens": max(min(tokens - QUERY_TOKENS, SENTENCES), 16)}
    return PipelineConfig.model_validate(
        {"segmenter": segmenter, "packing": packing, "aggregator": {"name": "max", "passages": passages}}
    )


def passage_text(text: str, title: str, start: int, end: int, tokens: int = MOST_TOKENS) -> str:
    """The text for the upstream: the title, and the passage ``text[start:end]``, cut to what `tokens` can hold.

    Long stretches of spaces, which a readable text has in place of data, are left out.
    """
    passage = re.sub(r"\s{100,}", "\n\n", text[start:end])[: CHARS_PER_TOKEN * tokens]
    return f"{title[:LONGEST_TITLE]}\n{passage}" if title else passage
