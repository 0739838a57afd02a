"""The kernel-pooling student: by hand, beside a slow version, and that padding and special tokens say nothing."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from keyblock.packing import Packed
from lab.models.ck import CENTRES, LEAST, WIDTH, Ck, pooled
from training.model.families import new_ranker
from training.model.ranker_module import pad

CLS, SEP, WORDS = 0, 1, 12


def ck(window: int = 3, trainable: bool = False) -> Ck:
    torch.manual_seed(0)
    model = Ck(torch.randn(WORDS, 5), window, 4, trainable)
    nn.init.normal_(model.scale, mean=1, std=0.1)
    nn.init.normal_(model.head.weight)
    return model.eval()


def sequence(query: list[int], passage: list[int]) -> Packed:
    ids = np.asarray([CLS, *query, SEP, *passage, SEP], np.int32)
    return Packed(ids, len(query) + 2, np.zeros(1, np.intp))


def slow_state(model: Ck, query: list[int], passage: list[int]) -> list[float]:
    """Token by token, kernel by kernel, over the texts alone."""
    asked, told = ([mixed(model, ids, place) for place in range(len(ids))] for ids in (query, passage))
    state = []
    for kernel, centre in enumerate(CENTRES):
        total = 0.0
        for one in asked:
            near = [math.exp(-((float(one @ other) - centre) ** 2) / (2 * WIDTH**2)) for other in told]
            total += math.log(max(sum(near) * float(model.scale[kernel]), LEAST))
        state.append(total)
    return state


def mixed(model: Ck, ids: list[int], place: int) -> Tensor:
    """One token's unit vector: the convolution over it and those behind it, as many as there are."""
    weight, found = model.convolution.weight, model.convolution.bias.clone()
    for behind, word in enumerate(ids[place : place + weight.shape[2]]):
        found += weight[:, :, behind] @ model.table.weight[word]
    found = found.relu()
    return found / max(float(found.norm()), 1e-12)


def test_pooled_by_hand() -> None:
    """A query of two words. The first finds itself (cosine 1) and a near one (0.9), the second only what is unlike it (-0.9).

    The kernel at 1 counts the first word's 1 + exp(-0.5) = 1.6065, the logarithm is 0.4741; the second's count is next to 0, taken
    as 0.0001, whose logarithm is -9.2103. The kernel at -0.9 counts the second word's 2: 0.6931 - 9.2103.
    """
    cosines = torch.tensor([[[1.0, 0.9, 0.3], [-0.9, -0.9, 0.3], [1.0, 1.0, 1.0]]])
    query, passage = torch.tensor([[True, True, False]]), torch.tensor([[True, True, False]])
    found = pooled(cosines, query, passage, torch.ones(11))[0].tolist()
    assert found[0] == pytest.approx(0.4741 - 9.2103, abs=1e-3)
    assert found[CENTRES.index(-0.9)] == pytest.approx(0.6931 - 9.2103, abs=1e-3)
    assert found[CENTRES.index(0.3)] == pytest.approx(-2 * 9.2103, abs=1e-3), "the third token of the passage is padding"


texts = st.lists(st.integers(2, WORDS - 1), max_size=9)


@settings(max_examples=50)
@given(pairs=st.lists(st.tuples(texts, texts), min_size=1, max_size=4), window=st.integers(1, 4))
@torch.inference_mode()
def test_a_padded_batch_is_what_each_pair_gives_by_a_slow_loop(pairs: list[tuple[list[int], list[int]]], window: int) -> None:
    model = ck(window)
    found = model.states(*model.inputs([sequence(*pair) for pair in pairs], pad_id=7))  # id 7 is a word, too: padding is masked
    expected = torch.tensor([slow_state(model, *pair) for pair in pairs])
    torch.testing.assert_close(found, expected, atol=1e-3, rtol=1e-3)


def test_word_vectors_are_the_backbones_and_frozen_unless_declared(tiny_backbone: Path) -> None:
    words = new_ranker({"name": "cross_encoder"}, str(tiny_backbone)).get_parameter("encoder.embeddings.word_embeddings.weight")
    for trainable in (False, True):
        model = new_ranker({"name": "ck", "trainable": trainable}, str(tiny_backbone))
        assert torch.equal(model.get_parameter("table.weight"), words)
        assert [weight.requires_grad for weight in model.pretrained()] == [trainable]
        model(*model.inputs([sequence([2], [3])], 0)).sum().backward()
        learned = {name for name, weight in model.named_parameters() if weight.grad is not None}
        assert learned == {"convolution.weight", "convolution.bias", "scale", "head.weight", "head.bias"} | (
            {"table.weight"} if trainable else set()
        )


@torch.inference_mode()
def test_bf16_changes_little() -> None:
    model, inputs = ck(), pad([sequence([2, 3], [4, 2, 3, 5]), sequence([4], [5, 6])], 0)
    exact = model(*inputs)
    with torch.autocast("cpu", torch.bfloat16):
        found = model(*inputs)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, exact, atol=0.3, rtol=0.1)


def test_a_tokenizer_without_types_is_refused() -> None:
    with pytest.raises(ValueError, match="take a backbone whose tokenizer has BERT's"):
        ck().inputs([sequence([2], [3])], 0, document_type=0)
