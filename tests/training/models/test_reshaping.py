"""Encoders with fewer layers: hidden states against the whole model, and checkpoints."""

from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor
from transformers import AutoConfig, AutoModel, PreTrainedModel

from training.declarations import EncoderShape
from training.model.cross_encoder import CrossEncoder
from training.model.transformer_ranker import keep_layers, layer_stack

OLD = 40
KINDS: dict[str, dict[str, Any]] = {
    "bert": {},
    "electra": {"embedding_size": 16},
    "roberta": {"type_vocab_size": 1},
    "mpnet": {},
    "distilbert": {"dim": 32, "n_layers": 3, "n_heads": 2, "hidden_dim": 64},
    "longformer": {"attention_window": [4, 8, 4]},
    "big_bird": {"attention_type": "original_full"},
}
BEHIND_PADDING = ("roberta", "mpnet", "longformer")  # their positions begin behind the padding id, 1


def encoder(kind: str = "bert", **changes: Any) -> PreTrainedModel:
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 64, "vocab_size": 200}
    sizes |= {"pad_token_id": 1, "max_position_embeddings": OLD + 2 * (kind in BEHIND_PADDING)}
    ids = {"bos_token_id": 2, "eos_token_id": 3, "cls_token_id": 2, "sep_token_id": 3}
    model: PreTrainedModel = AutoModel.from_config(AutoConfig.for_model(kind, **sizes | ids | KINDS.get(kind, {}) | changes))
    return model.eval()


def ids(length: int) -> Tensor:
    return torch.randint(5, 200, (2, length), generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("layers", "kept", "same"), [(2, (0, 1), 3), ((0, 2), (0, 2), 2)], ids=["first", "named"])
def test_layers_that_are_kept_compute_what_they_did(
    kind: str, layers: int | tuple[int, ...], kept: tuple[int, ...], same: int
) -> None:
    """As many hidden states, that of the embeddings among them, are the same as stand before a layer that is left out."""
    whole, cut = encoder(kind), encoder(kind)
    keep_layers(cut, EncoderShape(layers=layers).kept)
    (_, before), (_, after) = layer_stack(whole), layer_stack(cut)
    assert cut.config.num_hidden_layers == 2
    for layer, number in zip(after, kept, strict=True):
        torch.testing.assert_close(layer.state_dict(), before[number].state_dict())
    with torch.inference_mode():
        states, due = (model(ids(24), output_hidden_states=True).hidden_states[:same] for model in (cut, whole))
    torch.testing.assert_close(states, due)
    if kind == "longformer":
        assert cut.config.attention_window == [[4, 8, 4][number] for number in kept]


@pytest.mark.parametrize("layers", [(), (1, 0), (1, 1)])
def test_layers_are_named_once_and_in_order(layers: tuple[int, ...]) -> None:
    with pytest.raises(ValidationError, match=r"name each layer once, from the first to the last, such as \[0, 2, 4, 5\]"):
        EncoderShape(layers=layers)


@pytest.mark.parametrize(("layers", "kept"), [(2, (0, 1)), ((0, 2), (0, 2))])
def test_a_smaller_model_starts_from_the_layers_that_it_keeps(
    layers: int | tuple[int, ...], kept: tuple[int, ...], tmp_path: Path
) -> None:
    encoder().save_pretrained(tmp_path / "backbone")
    torch.manual_seed(1)
    trained = CrossEncoder.from_backbone(str(tmp_path / "backbone"))
    with torch.no_grad():
        for parameter in trained.encoder.parameters():
            parameter.mul_(2)
    trained.save(tmp_path / "trained")
    smaller = CrossEncoder.from_backbone(str(tmp_path / "backbone"), shape=EncoderShape(layers=layers))
    smaller.start_from(tmp_path / "trained")
    torch.testing.assert_close(smaller.head.state_dict(), trained.head.state_dict())
    (_, theirs), (_, own) = layer_stack(trained.encoder), layer_stack(smaller.encoder)
    for layer, number in zip(own, kept, strict=True):
        torch.testing.assert_close(layer.state_dict(), theirs[number].state_dict())
    again = CrossEncoder.from_backbone(str(tmp_path / "backbone"), shape=EncoderShape(layers=layers))
    smaller.save(tmp_path / "smaller")
    again.start_from(tmp_path / "smaller")  # one that was cut already is taken as it is
    torch.testing.assert_close(again.state_dict(), smaller.state_dict())


@pytest.mark.parametrize("kind", ["bert", "longformer", "modernbert"])
def test_a_cut_encoder_is_saved_and_loaded(kind: str, tmp_path: Path) -> None:
    encoder(kind).save_pretrained(tmp_path / "backbone")
    model = CrossEncoder.from_backbone(str(tmp_path / "backbone"), shape=EncoderShape(layers=2)).eval()
    model.save(tmp_path / "saved")
    given = ids(24), torch.zeros(2, 24, dtype=torch.long), torch.ones(2, 24, dtype=torch.long)
    with torch.inference_mode():
        torch.testing.assert_close(CrossEncoder.load(tmp_path / "saved")(*given), model(*given))


@pytest.mark.parametrize(
    ("kind", "shape", "said"),
    [
        ("bert", {"layers": 4}, "reshape.layers 4 are more than the 3 that the backbone has; ask for 3 at most"),
        (
            "bert",
            {"layers": (0, 3)},
            "reshape.layers name layer 3 of the 3 that the backbone has; ask for 3 at most, counted from 0",
        ),
        ("albert", {"layers": 2}, "a albert keeps no list of its 3 layers"),
    ],
)
def test_impossible_shapes_are_errors(kind: str, shape: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        keep_layers(encoder(kind), EncoderShape(**shape).kept)
