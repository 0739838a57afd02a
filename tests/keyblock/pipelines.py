"""Texts of every kind, and pipelines that several test modules try them on."""

import json
from typing import Any

from hypothesis import strategies as st

from keyblock.description import PipelineConfig
from keyblock.pipeline import Pipeline
from keyblock.prepared import PreparedDocument
from keyblock.text.analyzer import DocumentFrequencies
from keyblock.text.tokenizer import Tokenizer

LONE = chr(0xD800)  # half of a surrogate pair, as JSON escapes can carry it
ODD = [
    "\x00",
    LONE,
    "😀👨‍👩‍👧",
    "مرحبا",
    "東京都。",
    "감사합니다",
    "e\u0301",
    "ﬃ",
    "İ",
    "\u202e",
    "\ufffd",
    ".",
    ",",
    "\n",
    "[SEP]",
]
PIECES = st.lists(st.sampled_from([*ODD, "river ", "bridge "]), max_size=80)
TEXT = st.text(st.characters(codec=None), max_size=80) | PIECES.map("".join)
WORDS = ["the", "river", "flooded", "bridge", "city", "stone", "unbelievably", "antidisestablishmentarianism", "xqzt"]
MARKS = st.sampled_from(["", "", "", ",", ".", "?", "!"])
PROSE = st.lists(st.tuples(st.sampled_from(WORDS), MARKS), max_size=250)
PLAIN_PROSE = st.lists(st.tuples(st.sampled_from(["the", "river", "flooded", "bridge", "running", "stone"]), MARKS), max_size=250)
MADE: dict[str, Pipeline] = {}


def make(tokenizer: Tokenizer, frequencies: DocumentFrequencies, **parts: Any) -> Pipeline:
    """A pipeline of these parts; made once, for it looks through the whole vocabulary."""
    key = json.dumps(parts)
    if key not in MADE:
        MADE[key] = Pipeline(PipelineConfig.model_validate(parts), tokenizer, frequencies)
    return MADE[key]


def slices_of(text: str, document: PreparedDocument) -> list[str]:
    """The text of each block."""
    return [text[start:end] for start, end in zip(document.starts.tolist(), document.ends.tolist(), strict=True)]
