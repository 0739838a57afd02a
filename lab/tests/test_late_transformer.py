"""Late interaction: what is taken apart, who may look at whom, and that a model comes back as it went."""

from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.models.late_transformer import LateTransformer, split_pairs
from lab.tests.test_token_ranker import packed
from training.model.cross_encoder import CrossEncoder
from training.model.families import load_ranker, new_ranker
from training.model.ranker_module import pad

TRANSFORMER = {"name": "transformer", "layers": 1, "heads": 2}
TEXT = st.lists(st.integers(5, 99), min_size=1, max_size=6)


def a_model(tiny_backbone: Path, **settings: Any) -> LateTransformer:
    torch.manual_seed(1)
    family = {"name": "late_transformer", "layers": 1, "heads": 2, **settings}
    model = new_ranker(family, str(tiny_backbone), aggregator=TRANSFORMER).eval()
    assert isinstance(model, LateTransformer)
    return model


def test_a_sequence_is_taken_apart() -> None:
    """[CLS] 5 6 [SEP] 7 8 9 [SEP] gives [CLS] 5 6 [SEP] and [CLS] 7 8 9 [SEP]."""
    query, passage = split_pairs(*pad([packed([5, 6], [7, 8, 9])], 0))
    assert query.input_ids.tolist() == [[2, 5, 6, 3]]
    assert passage.input_ids.tolist() == [[2, 7, 8, 9, 3]]
    assert (query.token_type_ids.tolist(), passage.token_type_ids.tolist()) == ([[0] * 4], [[0, 1, 1, 1, 1]])
    assert query.attention_mask.all()
    assert passage.attention_mask.all()


@settings(deadline=None, max_examples=50)
@given(st.lists(st.tuples(TEXT, TEXT), min_size=1, max_size=4))
def test_taking_apart_is_packing_the_texts_by_themselves(pairs: list[tuple[list[int], list[int]]]) -> None:
    for texts, part in zip(split_pairs(*pad([packed(*pair) for pair in pairs], 0)), (0, 1), strict=True):
        for row, pair in enumerate(pairs):
            real = texts.attention_mask[row] > 0
            assert texts.input_ids[row][real].tolist() == [2, *pair[part], 3]


def test_a_state_is_the_interaction_of_two_texts_encoded_apart(tiny_backbone: Path) -> None:
    """Sequence by sequence, without any padding."""
    model, pairs = a_model(tiny_backbone), [([5, 6], [7, 8, 9]), ([5], [7]), ([9, 8, 7], [6, 5, 4, 11, 12])]
    with torch.no_grad():
        found = model.states(*model.inputs([packed(*pair) for pair in pairs], 0))
        for row, (query, passage) in enumerate(pairs):
            asked = model.encoder(torch.tensor([[2, *query, 3]])).last_hidden_state
            types = torch.tensor([[0] + [1] * (1 + len(passage))])
            shown = model.encoder(torch.tensor([[2, *passage, 3]]), token_type_ids=types).last_hidden_state
            tokens = torch.cat([asked, shown], dim=1)
            torch.testing.assert_close(model.interaction(tokens, torch.ones(tokens.shape[:2]) > 0)[0], found[row])


def test_the_encoder_never_sees_both_texts(tiny_backbone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, seen = a_model(tiny_backbone), []
    forward = model.encoder.forward
    monkeypatch.setattr(model.encoder, "forward", lambda **named: seen.append(named["input_ids"]) or forward(**named))
    model.states(*model.inputs([packed([5, 6], [7, 8, 9])], 0))
    assert [ids.tolist() for ids in seen] == [[[2, 5, 6, 3]], [[2, 7, 8, 9, 3]]]


def test_a_padding_passage_changes_no_score(tiny_backbone: Path) -> None:
    model = a_model(tiny_backbone)
    with torch.no_grad():
        states = model.states(*model.inputs([packed([5, 6], [7, 8]), packed([5, 6], [9])], 0))
        two = model.combine(states[None], torch.tensor([[True, True]]))
        padded = torch.cat([states, torch.full_like(states[:1], 7.0)])[None]
        torch.testing.assert_close(model.combine(padded, torch.tensor([[True, True, False]])), two)


def test_a_model_comes_back_as_it_went(tiny_backbone: Path, tmp_path: Path) -> None:
    """Of a pretrained interaction, too, whose encoder is no longer asked for."""
    model = a_model(tiny_backbone, pretrained=str(tiny_backbone))
    model.save(tmp_path)
    inputs = model.inputs([packed([5, 6], [7, 8, 9])], 0)
    learned = {id(parameter) for parameter in model.pretrained()}
    assert {id(parameter) for parameter in model.interaction.get_submodule("layers").parameters()} <= learned
    with torch.no_grad():
        loaded = load_ranker(tmp_path)
        torch.testing.assert_close(loaded.outputs(*inputs), model.outputs(*inputs))
        other = a_model(tiny_backbone, pretrained=str(tiny_backbone))
        other.start_from(tmp_path)
        torch.testing.assert_close(other.outputs(*inputs), model.outputs(*inputs))
    assert loaded.family == model.family


def test_it_starts_from_a_vanilla_ranker(tiny_backbone: Path, tmp_path: Path) -> None:
    """The encoder and the head come from there; the interaction stays fresh."""
    CrossEncoder.from_backbone(str(tiny_backbone)).save(tmp_path)
    model, before = a_model(tiny_backbone), a_model(tiny_backbone).interaction.state_dict()
    model.start_from(tmp_path)
    torch.testing.assert_close(model.head.weight, CrossEncoder.load(tmp_path).head.weight)
    torch.testing.assert_close(model.interaction.state_dict(), before)


def test_the_interaction_learns_which_passage_repeats_the_query(tiny_backbone: Path) -> None:
    """Two queries, two passages, each right for one query: neither text alone can say, so they must meet."""
    model = a_model(tiny_backbone, layers=2)
    optimizer = torch.optim.Adam(model.parameters(), 2e-3)
    inputs = model.inputs([packed([query], [word, 50]) for query in (100, 200) for word in (100, 200)], 0)
    right = torch.tensor([0, 1])
    for _ in range(40):
        optimizer.zero_grad()
        logits = model(*inputs).view(2, 2)
        torch.nn.functional.cross_entropy(logits, right).backward()
        optimizer.step()
    assert logits.argmax(1).tolist() == [0, 1]
    assert (logits.diagonal() > logits.flip(1).diagonal() + 1).all()
