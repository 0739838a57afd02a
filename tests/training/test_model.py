"""The cross-encoder on encoders of several families, each tiny and random."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import AutoConfig, AutoModel

from training.model import HEAD_FILE, RELATIVE, CrossEncoder

SIZES = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "vocab_size": 200,
    "max_position_embeddings": 40,
    "pad_token_id": 1,
}
SMALL_IDS = {"bos_token_id": 2, "eos_token_id": 3, "cls_token_id": 2, "sep_token_id": 3}
FAMILIES: dict[str, dict[str, Any]] = {
    "bert": {},
    "electra": {"embedding_size": 16},
    "roberta": {"type_vocab_size": 1},
    "mpnet": {},
    "distilbert": {"dim": 32, "n_layers": 2, "n_heads": 2, "hidden_dim": 64},
    "modernbert": SMALL_IDS,
    "deberta-v2": {
        "position_biased_input": False,
        "relative_attention": True,
        "max_relative_positions": 16,
        "pos_att_type": ["c2p"],
    },
}
POSITIONS = {"roberta": 38, "mpnet": 38}  # theirs begin behind the padding id, 1


@pytest.fixture(scope="module")
def backbones(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A saved random encoder of each family."""
    paths = {}
    for family, extra in FAMILIES.items():
        paths[family] = tmp_path_factory.mktemp(family)
        torch.manual_seed(0)
        AutoModel.from_config(AutoConfig.for_model(family, **SIZES | extra)).save_pretrained(paths[family])
    return paths


def batch(length: int) -> tuple[Tensor, Tensor, Tensor]:
    """Two rows, the second half as long as the first."""
    ids = torch.randint(5, 200, (2, length), generator=torch.Generator().manual_seed(0))
    mask = torch.ones_like(ids)
    mask[1, length // 2 :] = 0
    types = torch.zeros_like(ids)
    types[:, length // 4 :] = 1
    return ids.where(mask == 1, 1), types * mask, mask


@pytest.mark.parametrize("family", FAMILIES)
def test_any_encoder_is_saved_and_loaded(backbones: dict[str, Path], tmp_path: Path, family: str) -> None:
    model = CrossEncoder.from_backbone(str(backbones[family])).eval()
    model.save(tmp_path)
    loaded = CrossEncoder.load(tmp_path)
    with torch.inference_mode():
        logits = model(*batch(20))
        assert logits.shape == (2,)
        torch.testing.assert_close(loaded(*batch(20)), logits)
    assert not loaded.training
    assert not any("pooler" in name for name, _ in loaded.named_parameters()) or family not in ("bert", "roberta")


@pytest.mark.parametrize("family", FAMILIES)
def test_padding_never_changes_a_logit(backbones: dict[str, Path], family: str) -> None:
    model = CrossEncoder.from_backbone(str(backbones[family])).eval()
    with torch.inference_mode():
        padded = model(*batch(20))[1]
        alone = model(*(tensor[1:, :10] for tensor in batch(20)))[0]
    assert padded.item() == pytest.approx(alone.item(), abs=1e-5)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_longest_sequence_is_what_the_positions_allow(backbones: dict[str, Path], family: str) -> None:
    model = CrossEncoder.from_backbone(str(backbones[family])).eval()
    assert model.max_length == POSITIONS.get(family, 40)
    with torch.inference_mode():
        assert model(*batch(model.max_length)).isfinite().all()
        if family in ("bert", "roberta", "mpnet", "electra"):
            with pytest.raises((IndexError, RuntimeError)):
                model(*batch(model.max_length + 1))


def test_an_encoder_of_relative_positions_only() -> None:
    xlnet = AutoConfig.for_model("xlnet", vocab_size=200, d_model=32, n_layer=1, n_head=2, d_inner=64)  # its config says -1
    assert CrossEncoder(AutoModel.from_config(xlnet)).max_length == RELATIVE


@pytest.mark.parametrize("family", FAMILIES)
def test_dropout_is_off_unless_asked_for(backbones: dict[str, Path], family: str) -> None:
    quiet = CrossEncoder.from_backbone(str(backbones[family])).train()
    torch.testing.assert_close(quiet(*batch(20)), quiet(*batch(20)), rtol=0, atol=0)
    noisy = CrossEncoder.from_backbone(str(backbones[family]), dropout=0.3).train()
    assert not torch.equal(noisy(*batch(20)), noisy(*batch(20)))


def test_segment_types_count_where_there_are_two(backbones: dict[str, Path]) -> None:
    ids, types, mask = batch(20)
    for family, matters in {"bert": True, "roberta": False, "distilbert": False}.items():
        model = CrossEncoder.from_backbone(str(backbones[family])).eval()
        assert torch.equal(model(ids, types, mask), model(ids, torch.zeros_like(types), mask)) != matters


def test_the_logit_is_a_linear_layer_on_cls(backbones: dict[str, Path]) -> None:
    model = CrossEncoder.from_backbone(str(backbones["bert"])).eval()
    ids, types, mask = batch(20)
    states = model.encoder(input_ids=ids, token_type_ids=types, attention_mask=mask).last_hidden_state
    torch.testing.assert_close(model(ids, types, mask), states[:, 0] @ model.head.weight[0] + model.head.bias)
    assert model.head.bias.item() == 0
    assert 0.01 < model.head.weight.std().item() < 0.03


@pytest.mark.parametrize("victim", ["model.safetensors", HEAD_FILE, "config.json"])
@pytest.mark.parametrize("how", ["missing", "cut short", "other"])
def test_a_damaged_checkpoint_is_one_clear_error(backbones: dict[str, Path], tmp_path: Path, victim: str, how: str) -> None:
    CrossEncoder.from_backbone(str(backbones["bert"])).save(tmp_path)
    content = (tmp_path / victim).read_bytes()
    (tmp_path / victim).unlink()
    if how != "missing":
        (tmp_path / victim).write_bytes(content[: len(content) // 2] if how == "cut short" else b"{}")
    with pytest.raises(ValueError, match="cannot be read as an encoder"):
        CrossEncoder.load(tmp_path)


def test_a_backbone_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="nowhere: cannot be read as an encoder"):
        CrossEncoder.from_backbone(str(tmp_path / "nowhere"))


@pytest.mark.parametrize(
    "config", ["", "[]", '{"model_type": "bert", "hidden_size": "wide"}', '{"model_type": "bert", "hidden_size": 0}']
)
def test_a_backbone_with_an_odd_configuration(tmp_path: Path, config: str) -> None:
    (tmp_path / "config.json").write_text(config, encoding="utf-8")
    with pytest.raises(ValueError, match="cannot be read as an encoder"):
        CrossEncoder.from_backbone(str(tmp_path))
