"""LongP's rankers: encoders of long texts and decoders, tiny and random, with each pooling, as they are trained and scored."""

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoConfig, AutoModel

from keyblock.packing import Packed
from lab.models.long_encoder import LongEncoder
from training.evaluate.scoring import score
from training.model.attention import NAME
from training.model.families import load_ranker, new_ranker

SIZES = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "vocab_size": 200,
    "max_position_embeddings": 130,
    "pad_token_id": 1,
    "bos_token_id": 2,
    "eos_token_id": 3,
    "cls_token_id": 2,
    "sep_token_id": 3,
}
KINDS: dict[str, dict[str, Any]] = {
    "longformer": {"attention_window": 8, "type_vocab_size": 1},
    "big_bird": {"attention_type": "block_sparse", "block_size": 4, "num_random_blocks": 1},
    "modernbert": {"local_attention": 8, "global_attn_every_n_layers": 2},
    "llama": {"num_key_value_heads": 2},
    "qwen2": {"num_key_value_heads": 2},
}
DECODERS = ("llama", "qwen2")
RANKERS = [(kind, "last") for kind in DECODERS] + [
    (kind, pooling) for kind in KINDS for pooling in ("cls", "mean") if kind not in DECODERS
]


@pytest.fixture(scope="module")
def backbones(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A saved random model of each kind."""
    paths = {}
    for kind, extra in KINDS.items():
        paths[kind] = str(tmp_path_factory.mktemp(kind))
        torch.manual_seed(0)
        AutoModel.from_config(AutoConfig.for_model(kind, **SIZES | extra)).save_pretrained(paths[kind])
    return paths


def make(backbone: str, attention: str = "sdpa", **settings: Any) -> LongEncoder:
    torch.manual_seed(1)
    model = new_ranker({"name": "long_encoder", **settings}, backbone, attention=attention)
    assert isinstance(model, LongEncoder)
    torch.nn.init.normal_(model.head.weight)
    return model.eval()


def packed(*lengths: int) -> list[Packed]:
    """Sequences of so many tokens, five of them the query's."""
    rng = np.random.default_rng(0)
    return [Packed(rng.integers(5, 200, length).astype(np.int32), 5, np.arange(1)) for length in lengths]


@pytest.mark.parametrize("attention", ["sdpa", NAME])
@pytest.mark.parametrize(("kind", "pooling"), RANKERS)
def test_a_batch_of_different_lengths_is_one_by_one(
    kind: str, pooling: str, attention: str, backbones: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    """Long beside short, short alone, and long again: BigBird once read everything in full after its first short text."""
    model, sequences = make(backbones[kind], attention, pooling=pooling), packed(128, 7, 60, 33, 128)
    with caplog.at_level(logging.WARNING, "transformers.models.big_bird"):
        one_by_one = [float(score(model, [sequence], 1, bf16=False)[0]) for sequence in sequences]
        together = score(model, sequences, 1, bf16=False)
    np.testing.assert_allclose(together, one_by_one, atol=1e-4)
    assert np.ptp(one_by_one) > 1e-2
    assert not [record for record in caplog.records if "big_bird" in record.name]


@pytest.mark.parametrize(("kind", "pooling"), RANKERS)
def test_a_step_changes_the_scores_and_they_are_read_back(
    kind: str, pooling: str, backbones: dict[str, str], tmp_path: Path
) -> None:
    model, sequences = make(backbones[kind], NAME, pooling=pooling).train(), packed(40, 17)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    inputs = model.inputs(sequences, 1)
    before = model(*inputs)
    torch.nn.functional.softplus(before[1] - before[0]).backward()
    assert all(weight.grad is not None and weight.grad.isfinite().all() for weight in model.head.parameters())
    assert sum(bool(weight.grad is not None and weight.grad.any()) for weight in model.encoder.parameters()) > 5
    optimizer.step()
    after = model.eval()(*inputs)
    assert (after - before).diff().abs().item() > 1e-5, "the better one is no better"
    assert after[0] - after[1] > before[0] - before[1]
    model.save(tmp_path)
    loaded = load_ranker(tmp_path)
    assert loaded.family == model.family
    torch.testing.assert_close(loaded(*inputs), after, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", DECODERS)
def test_a_decoders_last_token_has_seen_all_and_its_first_none(kind: str, backbones: dict[str, str]) -> None:
    (one,) = packed(30)
    other = Packed(np.concatenate([one.ids[:10], [9], one.ids[11:]]).astype(np.int32), one.split, one.taken)
    for pooling, changes in (("last", True), ("cls", False)):
        scores = score(make(backbones[kind], pooling=pooling), [one, other], 1, bf16=False)
        assert (abs(scores[0] - scores[1]) > 1e-4) == changes


def test_longformers_global_tokens_are_cls_and_those_of_the_query(backbones: dict[str, str]) -> None:
    for global_query, tokens in ((False, [0]), (True, [0, 1, 2, 3, 4])):
        model = make(backbones["longformer"], global_query=global_query)
        inputs = model.inputs(packed(12, 9), 1, document_type=0)  # as RoBERTa's tokenizer says
        mask = model.named(*inputs)["global_attention_mask"]
        assert [row.nonzero().flatten().tolist() for row in mask] == [tokens, tokens]
        assert "token_type_ids" not in model.named(*inputs)


def test_a_global_query_word_reaches_beyond_the_window(backbones: dict[str, str]) -> None:
    """Behind the first layer, which sees four tokens each way: token 60 knows the query's word 3 only where that is global."""
    for global_query in (False, True):
        model = make(backbones["longformer"], global_query=global_query)
        ids, types, mask = model.inputs(packed(64), 1)
        other = ids.clone()
        other[0, 3] = 9 if ids[0, 3] != 9 else 10
        outputs = [model.encoder(**model.named(of, types, mask), output_hidden_states=True) for of in (ids, other)]
        states = [output.hidden_states[1][0, 60] for output in outputs]
        assert torch.allclose(*states) != global_query


def test_a_global_query_of_an_encoder_without_global_attention(backbones: dict[str, str]) -> None:
    with pytest.raises(
        ValueError, match=r"model\.global_query: a modernbert has no global attention, Longformer has; leave it out"
    ):
        make(backbones["modernbert"], global_query=True)
