"""Rankers on word vectors: where query and passage stand, whose vectors they have, and that a model comes back as it went."""

from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.models.words import WordRanker, clamped, texts
from lab.tests.test_token_ranker import packed
from training.model.cross_encoder import CrossEncoder
from training.model.families import load_ranker, new_ranker
from training.model.ranker_module import pad

FAMILIES: list[dict[str, Any]] = [{"name": "tkl", "query_tokens": 4}, {"name": "deeprank", "query_tokens": 4}]
TEXT = st.lists(st.integers(5, 99), min_size=1, max_size=8)


def a_model(family: dict[str, Any], tiny_backbone: Path) -> WordRanker:
    torch.manual_seed(1)
    model = new_ranker(family, str(tiny_backbone)).eval()
    assert isinstance(model, WordRanker)
    return model


@settings(deadline=None, max_examples=50)
@given(st.lists(st.tuples(TEXT, TEXT), min_size=1, max_size=4), st.integers(1, 10))
def test_texts_are_those_that_were_packed(pairs: list[tuple[list[int], list[int]]], query_tokens: int) -> None:
    found = texts(*pad([packed(*pair) for pair in pairs], 0), query_tokens)
    assert found.query.shape == found.query_mask.shape == (len(pairs), query_tokens)
    for row, (query, passage) in enumerate(pairs):
        assert found.query[row][found.query_mask[row]].tolist() == query[:query_tokens]
        assert found.passage[row][found.passage_mask[row]].tolist() == passage


@pytest.mark.parametrize("family", FAMILIES)
def test_the_vectors_are_the_backbones(family: dict[str, Any], tiny_backbone: Path) -> None:
    model = a_model(family, tiny_backbone)
    table = CrossEncoder.from_backbone(str(tiny_backbone)).encoder.get_input_embeddings().weight
    torch.testing.assert_close(model.table.weight, table)
    assert [parameter.shape for parameter in model.pretrained()] == [table.shape]
    assert model.vocabulary_size == len(table)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_model_comes_back_as_it_went(family: dict[str, Any], tiny_backbone: Path, tmp_path: Path) -> None:
    model = a_model(family, tiny_backbone)
    model.save(tmp_path)
    inputs = model.inputs([packed([5, 6], [7, 5, 9]), packed([5], [5])], 0)
    with torch.no_grad():
        loaded = load_ranker(tmp_path)
        torch.testing.assert_close(loaded(*inputs), model(*inputs))
        torch.manual_seed(2)
        other = new_ranker(family, str(tiny_backbone)).eval()
        other.start_from(tmp_path)
        torch.testing.assert_close(other(*inputs), model(*inputs))
    assert loaded.family == model.family
    assert loaded.outputs(*inputs).shape == (2, 1 + model.hidden_size)


@pytest.mark.parametrize("family", FAMILIES)
def test_padding_changes_no_score(family: dict[str, Any], tiny_backbone: Path) -> None:
    """Neither that of a sequence beside a longer one, nor a padding passage behind a document's own."""
    model, pair = a_model(family, tiny_backbone), packed([5, 6], [7, 5, 8])
    with torch.no_grad():
        alone = model.states(*model.inputs([pair], 0))
        both = model.states(*model.inputs([pair, packed([5, 6, 9, 6], [6, 8, 9, 10, 11, 12] * 9)], 0))
        torch.testing.assert_close(alone[0], both[0])
        two = model.combine(both[None], torch.tensor([[True, True]]))
        padded = torch.cat([both, torch.full_like(both[:1], 7.0)])[None]
        torch.testing.assert_close(model.combine(padded, torch.tensor([[True, True, False]])), two)


def test_a_learned_aggregator_is_refused(tiny_backbone: Path) -> None:
    with pytest.raises(ValueError, match="no use for a learned aggregator: leave the module of states 'max' out"):
        new_ranker(FAMILIES[0], str(tiny_backbone), aggregator={"name": "max"})


def test_another_familys_checkpoint_is_no_start(tiny_backbone: Path, tmp_path: Path) -> None:
    a_model(FAMILIES[0], tiny_backbone).save(tmp_path)
    with pytest.raises(ValueError, match="cannot be read"):
        a_model(FAMILIES[1], tiny_backbone).start_from(tmp_path)


@given(st.lists(st.integers(-9, 9), min_size=1), st.integers(1, 5))
def test_places_are_clamped(places: list[int], length: int) -> None:
    assert clamped(torch.tensor(places), length).tolist() == [min(max(place, 0), length - 1) for place in places]
