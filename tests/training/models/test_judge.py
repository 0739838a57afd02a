from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from tests.support.checkpoints import save_checkpoint
from training.model.classifier import Judge


@pytest.mark.parametrize("name", ["qwen2", "qwen3"])
def test_the_log_odds_of_two_words_at_the_last_token(tmp_path: Path, name: str) -> None:
    module = AutoModelForCausalLM.from_pretrained(save_checkpoint(name, tmp_path), attn_implementation="eager").eval()
    ids = torch.arange(5, 45).reshape(2, 20)
    mask = torch.ones_like(ids)
    mask[1, 12:] = 0
    judge = Judge(module, yes=7, no=9)
    with torch.inference_mode():
        found = judge(ids, torch.zeros_like(ids), mask)
        shares = [
            torch.log_softmax(module(input_ids=row[: int(n)][None]).logits[0, -1], 0)
            for row, n in zip(ids, mask.sum(1), strict=True)
        ]
    expected = torch.stack([share[7] - share[9] for share in shares])
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)
    assert judge.graph_inputs == ("input_ids", "attention_mask")
    assert judge.max_length == 4096
