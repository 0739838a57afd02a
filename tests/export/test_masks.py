"""Masks that are spelled out, against what transformers makes of the mask of real tokens."""

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification

from export.graph import LOWEST, causal, padding, spelled_masks
from tests.support.checkpoints import DECODERS, FAMILIES, spread


def test_padding_by_hand() -> None:
    mask = padding(torch.tensor([[1, 1, 0], [1, 1, 1]]))
    assert mask.shape == (2, 1, 3, 3)
    assert mask[0, 0].tolist() == [[0.0, 0.0, LOWEST]] * 3
    assert not mask[1].any()


def test_no_token_sees_later_ones_by_hand() -> None:
    (mask,) = causal(torch.tensor([[1, 1, 1, 0]]))["full_attention"]
    hidden = (mask[0] == LOWEST).tolist()
    assert hidden == [
        [False, True, True, True],
        [False, False, True, True],
        [False, False, False, True],
        [False, False, False, True],
    ]


@pytest.mark.parametrize("name", ["bert", "modernbert-cls", "qwen3"])
def test_a_model_says_the_same_with_both(name: str) -> None:
    family = {**FAMILIES, **DECODERS}[name]
    head = {} if name in DECODERS else {"num_labels": 1}
    config = family.config(vocab_size=50, **head, **family.sizes)
    kind = AutoModelForCausalLM if name in DECODERS else AutoModelForSequenceClassification
    model = kind.from_config(config, attn_implementation="eager").eval()
    spread(model)
    ids = torch.arange(5, 45).repeat(2, 1)
    mask = torch.ones_like(ids)
    mask[1, 30:] = 0
    with torch.inference_mode():
        expected = model.base_model(input_ids=ids, attention_mask=mask).last_hidden_state
        found = model.base_model(input_ids=ids, attention_mask=spelled_masks(config)(mask)).last_hidden_state
    torch.testing.assert_close(found[mask.bool()], expected[mask.bool()], atol=1e-4, rtol=1e-4)
