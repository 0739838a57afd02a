"""Late interaction: what is taken apart, who may look at whom, and that a model comes back as it went."""

from pathlib import Path
from typing import Any

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.models.late_transformer import LateTransformer, split_pairs
from lab.tests.test_families import packed
from training.model.cross_encoder import CrossEncoder
from training.model.families import new_ranker
from training.model.ranker_module import pad

TRANSFORMER = {"name": "transformer", "layers": 1, "heads": 2}
TEXT = st.lists(st.integers(5, 99), min_size=1, max_size=6)


def a_model(tiny_backbone: Path, **settings: Any) -> LateTransformer:
    torch.manual_seed(1)
    family = {"name": "late_transformer", "layers": 1, "heads": 2, **settings}
    model = new_ranker(family, str(tiny_backbone), aggregator=TRANSFORMER).eval()
    assert isinstance(model, LateTransformer)
    return model


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


def test_it_starts_from_a_vanilla_ranker(tiny_backbone: Path, tmp_path: Path) -> None:
    """The encoder and the head come from there; the interaction stays fresh."""
    CrossEncoder.from_backbone(str(tiny_backbone)).save(tmp_path)
    model, before = a_model(tiny_backbone), a_model(tiny_backbone).interaction.state_dict()
    model.start_from(tmp_path)
    torch.testing.assert_close(model.head.weight, CrossEncoder.load(tmp_path).head.weight)
    torch.testing.assert_close(model.interaction.state_dict(), before)


def test_a_pretrained_interaction_counts_as_pretrained(tiny_backbone: Path) -> None:
    model = a_model(tiny_backbone, pretrained=str(tiny_backbone))
    learned = {id(parameter) for parameter in model.pretrained()}
    assert {id(parameter) for parameter in model.interaction.get_submodule("layers").parameters()} <= learned
