import math
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import AutoModel

from keyblock.aggregation import AGGREGATORS
from tests.support.checkpoints import save_checkpoint
from training.model.aggregators import Aggregation, CnnAggregation, TransformerAggregation, build_aggregation

HIDDEN = 12
DESCRIPTIONS: list[dict[str, Any]] = [
    {"name": "max"},
    {"name": "mean"},
    {"name": "attention"},
    {"name": "cnn"},
    {"name": "cnn", "layers": 2},
    {"name": "transformer", "heads": 3},
    {"name": "transformer", "heads": 2, "layers": 1, "ffn": 20},
    {"name": "transformer", "heads": 2, "layers": 1, "width": 20},
    {"name": "transformer", "heads": 3, "layers": 1, "positions": 37},
]
each = pytest.mark.parametrize("description", DESCRIPTIONS, ids=str)


def built(description: dict[str, Any], spread: float = 0.3) -> Aggregation:
    """In eval mode, with weights that spread its results."""
    torch.manual_seed(0)
    module = build_aggregation(description, HIDDEN)
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=spread)
    return module.eval()


def documents(*counts: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """States and mask of documents of so many passages."""
    generator = torch.Generator().manual_seed(seed)
    mask = torch.arange(max(counts, default=0)) < torch.tensor(counts)[:, None]
    return torch.randn(*mask.shape, HIDDEN, generator=generator), mask


def slow(module: Aggregation, passages: Tensor) -> Tensor:
    """One document's vector from its real passages alone, (passages, hidden), as the papers write it."""
    match module.description["name"]:
        case "max":
            return torch.tensor([max(feature) for feature in zip(*passages.tolist(), strict=True)])
        case "mean":
            return torch.tensor([sum(feature) / len(passages) for feature in zip(*passages.tolist(), strict=True)])
        case "attention":
            products = [math.exp(float(passage @ module.weight)) for passage in passages]
            return sum(product / sum(products) * passage for product, passage in zip(products, passages, strict=True))
        case "cnn":
            return slow_cnn(module, passages)
    return slow_transformer(module, passages)


def slow_cnn(module: CnnAggregation, passages: Tensor) -> Tensor:
    level, total = list(passages), torch.zeros(HIDDEN)
    for layer in module.layers:
        if len(level) % 2:
            level.append(torch.zeros(HIDDEN))
        left, right = layer.weight.unbind(2)
        level = [(left @ a + right @ b + layer.bias).relu() for a, b in zip(level[::2], level[1::2], strict=True)]
        total = total + sum(module.dense(vector).relu() for vector in level)
    return total


def slow_transformer(module: TransformerAggregation, passages: Tensor) -> Tensor:
    inward, outward = (lambda vector: vector, lambda vector: vector) if module.width == HIDDEN else (module.inward, module.outward)
    states = [inward(passage) for passage in passages]
    if module.positions is not None:
        states = [state + position for state, position in zip(states, module.positions, strict=False)]
    states = torch.stack([module.cls, *states])
    for layer in module.layers:
        own, heads = layer.attention.self, module.description["heads"]
        query, key, value = (part(states).chunk(heads, dim=1) for part in (own.query, own.key, own.value))
        mixed = [(q @ k.T / math.sqrt(module.width // heads)).softmax(1) @ v for q, k, v in zip(query, key, value, strict=True)]
        attended = layer.attention.output
        states = attended.LayerNorm(attended.dense(torch.cat(mixed, dim=1)) + states)
        states = layer.output.LayerNorm(layer.output.dense(F.gelu(layer.intermediate.dense(states))) + states)
    return outward(states[0])


@each
@torch.inference_mode()
def test_a_batch_gives_what_each_document_gives_alone(description: dict[str, Any]) -> None:
    module = built(description)
    states, mask = documents(5, 1, 16, 2, 37)
    found = module(states, mask)
    expected = torch.stack([slow(module, passages[real]) for passages, real in zip(states, mask, strict=True)])
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)
    assert found.std() > 0.05


@pytest.mark.parametrize(("name", "document"), [("max", [3.0, 4.0]), ("mean", [2.0, 3.0]), ("attention", [1.5, 3.5])])
def test_simple_aggregators_by_hand(name: str, document: list[float]) -> None:
    """Passages (1, 4) and (3, 2). Under the vector (0, ln 3 / 2) their products are 2 ln 3 and ln 3: shares of 9 and 3."""
    module = build_aggregation({"name": name}, 2)
    if name == "attention":
        module.weight.data = torch.tensor([0.0, math.log(3) / 2])
    found = module(torch.tensor([[[1.0, 4.0], [3.0, 2.0]]]), torch.ones(1, 2, dtype=torch.bool))
    torch.testing.assert_close(found, torch.tensor([document]))


@torch.inference_mode()
def test_parade_avg_of_the_same_chunks_is_avgp() -> None:
    """The head is linear, so that the mean state has the mean score. Only overlapping windows make two systems of them."""
    (states, mask), head = documents(3, 1, 5), nn.Linear(HIDDEN, 1)
    of_scores = AGGREGATORS.create("mean").combine(head(states).squeeze(-1), mask, torch)
    torch.testing.assert_close(head(built({"name": "mean"})(states, mask)).squeeze(-1), of_scores)


def test_cnn_by_hand() -> None:
    """Three passages of ones: (1, 1) and (1, 0) under a kernel of 2 and 3 give 5 and 2, these give 16; the sum is 5 + 2 + 16."""
    module = build_aggregation({"name": "cnn", "layers": 2}, 1)
    for layer in module.layers:
        layer.weight.data, layer.bias.data = torch.tensor([[[2.0, 3.0]]]), torch.zeros(1)
    module.dense.weight.data, module.dense.bias.data = torch.ones(1, 1), torch.zeros(1)
    assert module(torch.ones(1, 3, 1), torch.ones(1, 3, dtype=torch.bool)).item() == 23


@each
@given(
    counts=st.lists(st.integers(0, 20), min_size=1, max_size=4),
    padding=st.integers(0, 20),
    garbage=st.sampled_from([0.0, 1.0, -1.0, 1e4, 3e38, -3e38, math.inf, math.nan]),
    seed=st.integers(0, 9),
)
@torch.inference_mode()
def test_adding_padding_never_changes_a_score(
    description: dict[str, Any], counts: list[int], padding: int, garbage: float, seed: int
) -> None:
    module, head = built(description), nn.Linear(HIDDEN, 1)
    states, mask = documents(*counts, seed=seed)
    noise = torch.randn(len(counts), states.shape[1] + padding, HIDDEN) * garbage
    wide = F.pad(mask, (0, padding))
    padded = torch.where(wide.unsqueeze(-1), F.pad(states, (0, 0, 0, padding)), noise)
    torch.testing.assert_close(head(module(padded, wide)), head(module(states, mask)), atol=1e-5, rtol=1e-5)


@each
def test_a_document_without_passages_is_zeros_and_leaves_gradients_alone(description: dict[str, Any]) -> None:
    module = built(description).train()
    states, mask = documents(0, 3)
    states.requires_grad_()
    found = module(states, mask)
    assert found[0].tolist() == [0.0] * HIDDEN
    assert module(states[:, :0], mask[:, :0]).tolist() == [[0.0] * HIDDEN] * 2
    found.square().sum().backward()
    assert states.grad is not None
    assert torch.isfinite(states.grad).all()
    assert all(torch.isfinite(parameter.grad).all() for parameter in module.parameters())


def saved(family: str, path: Path, **changes: Any) -> str:
    sizes = {"hidden_size": HIDDEN, "num_hidden_layers": 3, "num_attention_heads": 3, "intermediate_size": 24}
    return str(save_checkpoint(family, path, **sizes | changes))


@pytest.mark.parametrize("family", ["bert", "electra", "roberta"])
def test_a_pretrained_transformer_has_the_encoders_first_layers(family: str, tmp_path: Path) -> None:
    path = saved(family, tmp_path)
    module = build_aggregation({"name": "transformer", "pretrained": path, "layers": 2}, HIDDEN)
    assert module.description | {"width": None, "start": "random", "positions": 0} == module.description
    assert module.description | {"layers": 2, "heads": 3, "ffn": 24, "pretrained": None} == module.description
    encoder = AutoModel.from_pretrained(path).encoder
    given = torch.randn(2, 4, HIDDEN)
    expected = given
    for layer in encoder.layer[:2]:
        expected = layer(expected)
    for layer in module.layers:
        given = layer(given)
    torch.testing.assert_close(given, expected, atol=1e-4, rtol=1e-4)


def test_a_pretrained_transformer_of_another_width_stands_between_projections(tmp_path: Path) -> None:
    """Which are fresh: they do not learn as the layers do."""
    path = saved("bert", tmp_path, hidden_size=24)
    module = build_aggregation({"name": "transformer", "pretrained": path, "layers": 2}, HIDDEN)
    assert (module.description["width"], tuple(module.cls.shape)) == (24, (24,))
    pretrained = {id(parameter) for parameter in module.pretrained}
    assert pretrained == {id(parameter) for parameter in module.layers.parameters()}


@pytest.mark.parametrize(
    ("family", "changes", "message"),
    [
        ("bert", {"num_hidden_layers": 1}, "2 layers were asked for, but it has 1"),
        ("bert", {"hidden_act": "relu"}, "its activation is relu, and only gelu is known here"),
        ("distilbert", {"dim": 12, "n_layers": 2, "n_heads": 3, "hidden_dim": 24}, "distilbert layers are not built as BERT's"),
        ("mpnet", {}, "mpnet layers are not built as BERT's are; take another encoder"),
    ],
)
def test_an_encoder_that_does_not_fit(tmp_path: Path, family: str, changes: dict[str, Any], message: str) -> None:
    path = saved(family, tmp_path, **changes)
    with pytest.raises(ValueError, match=message):
        build_aggregation({"name": "transformer", "pretrained": path}, HIDDEN)


def test_the_rankers_cls_is_of_its_size() -> None:
    with pytest.raises(ValueError, match="start cls is of the ranker's size, 12, and the layers' is 24; use start random"):
        build_aggregation({"name": "transformer", "heads": 2, "width": 24, "start": "cls"}, HIDDEN)


def test_positions_tell_passages_apart_and_their_order() -> None:
    """Without positions the layers read a set; with them the same passages turned round are another document."""
    states, mask = documents(4)
    for positions in (0, 4):
        module = built({"name": "transformer", "heads": 3, "positions": positions})
        turned = torch.allclose(module(states, mask), module(states.flip(1), mask), atol=1e-5)
        assert turned == (positions == 0)
