"""What families share: which token is whose, and that a model comes back, that padding says nothing, and what learns."""

from pathlib import Path
from typing import Any, Self

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from transformers import BertConfig, BertModel

from keyblock.packing import Packed
from lab.families import TokenFamily
from lab.models.tokens import Combining, Tokens, segments
from lab.models.words import clamped, texts
from training.declarations import FAMILIES
from training.model.cross_encoder import CrossEncoder
from training.model.families import load_ranker, new_ranker
from training.model.ranker_module import RankerModule, pad

NAMES = [name for name in FAMILIES.names() if isinstance(FAMILIES.create(name), TokenFamily)]
COMBINING = [*NAMES, "tkl", "deeprank"]
KINDS: dict[str, dict[str, Any]] = {
    **{name: {"query_tokens": 4} for name in COMBINING},
    "late_transformer": {"layers": 1, "heads": 2},
    "ck": {"window": 2, "filters": 6, "trainable": True},
}


def packed(query: list[int], passage: list[int]) -> Packed:
    """With 2 for [CLS] and 3 for [SEP]."""
    ids = np.asarray([2, *query, 3, *passage, 3], np.int32)
    return Packed(ids, len(query) + 2, np.zeros(1, np.intp))


def a_model(tiny_backbone: Path, name: str, seed: int = 1) -> RankerModule:
    torch.manual_seed(seed)
    settings, aggregator = KINDS[name], None
    if name == "late_transformer":
        settings = settings | {"pretrained": str(tiny_backbone)}
        aggregator = {"name": "transformer", "layers": 1, "heads": 2}
    return new_ranker({"name": name, **settings}, str(tiny_backbone), aggregator=aggregator).eval()


@pytest.mark.parametrize("name", KINDS)
@torch.no_grad()
def test_a_model_comes_back_as_it_went(tiny_backbone: Path, tmp_path: Path, name: str) -> None:
    model, other = a_model(tiny_backbone, name), a_model(tiny_backbone, name, seed=2)
    model.save(tmp_path)
    inputs = model.inputs([packed([5, 6], [7, 5, 9]), packed([5], [5])], 0)
    loaded = load_ranker(tmp_path)
    torch.testing.assert_close(loaded.outputs(*inputs), model.outputs(*inputs))
    assert (loaded.family, loaded.training) == (model.family, False)
    assert not torch.equal(other.outputs(*inputs), model.outputs(*inputs))
    other.start_from(tmp_path)
    torch.testing.assert_close(other.outputs(*inputs), model.outputs(*inputs))


def test_it_starts_from_a_vanilla_rankers_encoder(tiny_backbone: Path, tmp_path: Path) -> None:
    vanilla = CrossEncoder.from_backbone(str(tiny_backbone))
    with torch.no_grad():
        for parameter in vanilla.parameters():
            parameter.add_(0.01)
    vanilla.save(tmp_path)
    model = a_model(tiny_backbone, "cedr_knrm")
    model.start_from(tmp_path)
    torch.testing.assert_close(model.get_submodule("encoder").state_dict(), vanilla.encoder.state_dict())


@pytest.mark.parametrize("name", KINDS)
@torch.no_grad()
def test_padding_changes_no_score(tiny_backbone: Path, name: str) -> None:
    """Neither that of a sequence beside a longer one, nor a padding passage behind a document's own."""
    model, pair = a_model(tiny_backbone, name), packed([5, 6], [7, 5, 8])
    alone = model.states(*model.inputs([pair], 0))
    both = model.states(*model.inputs([pair, packed([5, 6, 9, 6], [6, 8, 9, 10, 11, 12] * 9)], 0))
    torch.testing.assert_close(alone[0], both[0], atol=1e-4, rtol=1e-4)
    if name != "ck":  # its passages' scores are not combined
        padded = torch.cat([both, torch.full_like(both[:1], 7.0)])[None]
        two = model.combine(both[None], torch.tensor([[True, True]]))
        torch.testing.assert_close(model.combine(padded, torch.tensor([[True, True, False]])), two)


@pytest.mark.parametrize("name", COMBINING)
@torch.no_grad()
def test_a_documents_only_passage_is_its_logit(tiny_backbone: Path, name: str) -> None:
    model = a_model(tiny_backbone, name)
    inputs = model.inputs([packed([5], [7, 8]), packed([5], [9])], 0)
    states = model.states(*inputs)
    torch.testing.assert_close(model.documents(states, torch.tensor([1, 1]), "states"), model.scores(states))
    assert model.outputs(*inputs).shape == (2, 1 + model.hidden_size)


@pytest.mark.parametrize("name", KINDS)
def test_every_weight_of_its_own_learns(tiny_backbone: Path, name: str) -> None:
    """From a document of two passages that hold the query's words."""
    model = a_model(tiny_backbone, name).train()
    states = model.states(*model.inputs([packed([5, 6], [7, 5, 6, 9]), packed([5, 6], [5, 10, 6, 6])], 0))
    model.documents(states, torch.tensor([2]), "max" if name == "ck" else "states").sum().backward()
    own = {label: weight for label, weight in model.named_parameters() if not label.startswith("encoder.")}
    assert [label for label, weight in own.items() if weight.grad is None or not weight.grad.any()] == []


@pytest.mark.parametrize("name", [*COMBINING, "ck"])
def test_a_learned_aggregator_is_refused(tiny_backbone: Path, name: str) -> None:
    with pytest.raises(ValueError, match="leave the module of states 'max' out"):
        new_ranker({"name": name}, str(tiny_backbone), aggregator={"name": "max"})


@pytest.mark.parametrize("name", COMBINING)
@torch.no_grad()
def test_a_sequence_may_be_shorter_than_a_query_can_be(tiny_backbone: Path, name: str) -> None:
    model = new_ranker({"name": name}, str(tiny_backbone)).eval()
    assert model(*model.inputs([packed([5], [7])], 0)).isfinite().all()


def test_segments_leave_special_tokens_out() -> None:
    """[CLS] q q [SEP] p p p [SEP], and a shorter one with two places of padding: [CLS] q [SEP] p p [SEP]."""
    types = torch.tensor([[0, 0, 0, 0, 1, 1, 1, 1], [0, 0, 0, 1, 1, 1, 0, 0]])
    mask = torch.tensor([[1] * 8, [1] * 6 + [0] * 2])
    query, passage = segments(types, mask, 3)
    assert query.tolist() == [[True, True, False], [True, False, False]]
    assert passage.nonzero().tolist() == [[0, 4], [0, 5], [0, 6], [1, 3], [1, 4]]
    assert segments(types, mask, 1)[0].tolist() == [[True], [True]], "a longer query is cut"


def test_cosines_are_those_of_pairs_of_tokens() -> None:
    layers = torch.randn(1, 2, 6, 5)
    query, passage = torch.tensor([[True, False]]), torch.tensor([[False, False, False, True, True, False]])
    found = Tokens(torch.zeros(1, 6), layers, query, passage).cosines()
    expected = torch.cosine_similarity(layers[0, :, 1:2], layers[0], dim=-1) * passage
    torch.testing.assert_close(found[0, :, 0], expected)
    assert not found[0, :, 1].any()


class Sum(Combining, CrossEncoder):
    """A state's two features are added up over passages and weighed by the head."""

    @classmethod
    def small(cls) -> Self:
        """Of random weights."""
        sizes = {"hidden_size": 2, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 2, "vocab_size": 9}
        return cls(BertModel(BertConfig(**sizes), add_pooling_layer=False))

    def documents_of(self, states: Tensor, mask: Tensor) -> Tensor:
        """See Combining."""
        return self.head(states.sum(1)).squeeze(-1)


@torch.no_grad()
def test_a_document_is_what_its_passages_say_together() -> None:
    """(1 + 3) + 10 (2 + 4) = 64; what padding holds is not read. A score is that of an only passage."""
    model = Sum.small()
    model.head.weight[:], model.head.bias[:] = torch.tensor([[1.0, 10.0]]), 0
    states = torch.tensor([[[1.0, 2.0], [3.0, 4.0], [7.0, float("inf")]]])
    assert model.combine(states, torch.tensor([[True, True, False]])).tolist() == [64.0]
    assert model.scores(states[:, :2]).tolist() == [[21.0, 43.0]]


def test_types_are_distinguished_with_any_backbone() -> None:
    _, types, _ = Sum.small().inputs([packed([5], [6, 7])], 0, document_type=0)
    assert types.tolist() == [[0, 0, 0, 1, 1, 1]]


TEXT = st.lists(st.integers(5, 99), min_size=1, max_size=8)


@settings(deadline=None, max_examples=50)
@given(st.lists(st.tuples(TEXT, TEXT), min_size=1, max_size=4), st.integers(1, 10))
def test_texts_are_those_that_were_packed(pairs: list[tuple[list[int], list[int]]], query_tokens: int) -> None:
    found = texts(*pad([packed(*pair) for pair in pairs], 0), query_tokens)
    assert found.query.shape == found.query_mask.shape == (len(pairs), query_tokens)
    for row, (query, passage) in enumerate(pairs):
        assert found.query[row][found.query_mask[row]].tolist() == query[:query_tokens]
        assert found.passage[row][found.passage_mask[row]].tolist() == passage


@pytest.mark.parametrize("name", ["tkl", "deeprank"])
def test_the_vectors_are_the_backbones(name: str, tiny_backbone: Path) -> None:
    model = a_model(tiny_backbone, name)
    table = CrossEncoder.from_backbone(str(tiny_backbone)).encoder.get_input_embeddings().weight
    torch.testing.assert_close(model.table.weight, table)
    assert [parameter.shape for parameter in model.pretrained()] == [table.shape]
    assert model.vocabulary_size == len(table)


def test_another_familys_checkpoint_is_no_start(tiny_backbone: Path, tmp_path: Path) -> None:
    a_model(tiny_backbone, "tkl").save(tmp_path)
    with pytest.raises(ValueError, match="cannot be read"):
        a_model(tiny_backbone, "deeprank").start_from(tmp_path)


@given(st.lists(st.integers(-9, 9), min_size=1), st.integers(1, 5))
def test_places_are_clamped(places: list[int], length: int) -> None:
    assert clamped(torch.tensor(places), length).tolist() == [min(max(place, 0), length - 1) for place in places]
