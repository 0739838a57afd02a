"""The texts whose length is measured."""

import json
import re

import pytest

from benchmarks.lengths import KINDS, pipelines, seconds, text


@pytest.mark.parametrize("kind", KINDS)
def test_texts_have_the_requested_length_and_no_space(kind: str) -> None:
    made = text(kind, 20_000)
    assert 20_000 <= len(made.encode()) <= 20_200
    assert not re.search(r"\s", made)
    assert text(kind, 20_000) == made


def test_json_is_json_but_for_its_last_comma() -> None:
    made = text("json", 5000)
    assert {type(one["price"]) for one in json.loads(made[:-2] + "]")} == {float}


def test_tokenizers_that_read_a_word_in_pieces_make_many_tokens_of_it() -> None:
    tokens = {name: seconds(pipeline, text("thai", 20_000))[1] for name, pipeline in pipelines().items()}
    assert tokens.pop("embedded") == tokens.pop("universal, structure, wordpiece") == 1  # a word of more than 100 characters
    assert len(tokens) == 2
    assert min(tokens.values()) > 1000
