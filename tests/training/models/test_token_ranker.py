"""What the token families share: which token is whose, and that a model comes back as it went."""

from pathlib import Path

import numpy as np
import pytest
import torch

from keyblock.packing import Packed
from training.models.cedr import CedrKnrm
from training.models.cross_encoder import CrossEncoder
from training.models.families import load_ranker, new_ranker
from training.models.token_ranker import TokenRanker, Tokens, mean_cls, segments


def packed(query: list[int], passage: list[int]) -> Packed:
    """With 2 for [CLS] and 3 for [SEP]."""
    ids = np.asarray([2, *query, 3, *passage, 3], np.int32)
    return Packed(ids, len(query) + 2, np.zeros(1, np.intp))


def test_segments_leave_special_tokens_out() -> None:
    """[CLS] q q [SEP] p p p [SEP], and a shorter one with two places of padding: [CLS] q [SEP] p p [SEP]."""
    types = torch.tensor([[0, 0, 0, 0, 1, 1, 1, 1], [0, 0, 0, 1, 1, 1, 0, 0]])
    mask = torch.tensor([[1] * 8, [1] * 6 + [0] * 2])
    query, passage = segments(types, mask, 3)
    assert query.tolist() == [[True, True, False], [True, False, False]]
    assert passage.nonzero().tolist() == [[0, 4], [0, 5], [0, 6], [1, 3], [1, 4]]


def test_a_query_longer_than_is_compared_is_cut() -> None:
    types, mask = torch.tensor([[0, 0, 0, 0, 0, 1, 1]]), torch.ones(1, 7, dtype=torch.long)
    assert segments(types, mask, 2)[0].tolist() == [[True, True]]


def test_cosines_are_those_of_pairs_of_tokens() -> None:
    layers = torch.randn(1, 2, 6, 5)
    tokens = Tokens(
        torch.zeros(1, 6), layers, torch.tensor([[True, False]]), torch.tensor([[False, False, False, True, True, False]])
    )
    found = tokens.cosines()
    assert found.shape == (1, 2, 2, 6)
    for channel in range(2):
        for place in range(6):
            expected = torch.cosine_similarity(layers[0, channel, 1], layers[0, channel, place], dim=0) if place in (3, 4) else 0
            assert found[0, channel, 0, place].item() == pytest.approx(float(expected), abs=1e-6)
    assert not found[0, :, 1].any()


def test_the_mean_cls_does_not_see_padding() -> None:
    cls = torch.tensor([[[2.0, 4.0], [4.0, 8.0], [0.0, 0.0]]])
    assert mean_cls(cls, torch.tensor([[True, True, False]])).tolist() == [[3.0, 6.0]]


def a_model(tiny_backbone: Path) -> TokenRanker:
    model = new_ranker({"name": "cedr_knrm", "query_tokens": 3}, str(tiny_backbone)).eval()
    assert isinstance(model, TokenRanker)
    return model


def test_a_model_comes_back_as_it_went(tiny_backbone: Path, tmp_path: Path) -> None:
    model = a_model(tiny_backbone)
    model.save(tmp_path)
    inputs = model.inputs([packed([5, 6], [7, 8, 9]), packed([5], [7])], 0)
    with torch.no_grad():
        torch.testing.assert_close(load_ranker(tmp_path)(*inputs), model(*inputs))
        other = a_model(tiny_backbone)
        other.start_from(tmp_path)
        torch.testing.assert_close(other(*inputs), model(*inputs))


def test_it_starts_from_a_vanilla_rankers_encoder(tiny_backbone: Path, tmp_path: Path) -> None:
    vanilla = CrossEncoder.from_backbone(str(tiny_backbone))
    with torch.no_grad():
        for parameter in vanilla.parameters():
            parameter.add_(0.01)
    vanilla.save(tmp_path)
    model = a_model(tiny_backbone)
    model.start_from(tmp_path)
    for ours, theirs in zip(model.encoder.parameters(), vanilla.encoder.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs)


def test_padding_changes_no_score(tiny_backbone: Path) -> None:
    model, pair = a_model(tiny_backbone), packed([5, 6], [7, 8])
    with torch.no_grad():
        alone = model(*model.inputs([pair], 0))
        beside = model(*model.inputs([pair, packed([5, 6], [7, 8, 9, 10, 11, 12])], 0))
    torch.testing.assert_close(alone[0], beside[0])


def test_a_documents_only_passage_is_its_logit(tiny_backbone: Path) -> None:
    model = a_model(tiny_backbone)
    with torch.no_grad():
        states = model.states(*model.inputs([packed([5], [7, 8]), packed([5], [9])], 0))
        documents = model.documents(states, torch.tensor([1, 1]), "states")
        torch.testing.assert_close(documents, model.scores(states))
        outputs = model.outputs(*model.inputs([packed([5], [7, 8])], 0))
    assert outputs.shape == (1, 1 + model.hidden_size)


def test_a_module_of_states_is_refused(tiny_backbone: Path) -> None:
    with pytest.raises(ValueError, match="combines passages itself: leave the module of states 'max' out"):
        CedrKnrm.from_backbone(str(tiny_backbone), aggregator={"name": "max"}, query_tokens=3)


def test_a_sequence_may_be_shorter_than_a_query_can_be(tiny_backbone: Path) -> None:
    model = new_ranker({"name": "cedr_knrm"}, str(tiny_backbone)).eval()
    with torch.no_grad():
        assert model(*model.inputs([packed([5], [7])], 0)).isfinite().all()
