"""The cross-encoder on encoders of several families, each tiny and random; its parts by hand."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from transformers import AutoConfig, AutoModel

from keyblock.packing import Packed
from tests.support.checkpoints import save_checkpoint
from training.model import devices as arithmetic
from training.model.cross_encoder import AGGREGATOR_FILE, AGGREGATOR_WEIGHTS, POOLINGS, CrossEncoder, Marker
from training.model.devices import in_bf16, in_words
from training.model.ranker_module import pad
from training.model.transformer_ranker import RELATIVE

FAMILIES = ("bert", "electra", "roberta", "mpnet", "distilbert", "modernbert-cls", "deberta")
POSITIONS = {"roberta": 38, "mpnet": 38}  # theirs begin behind the padding id, 1


@pytest.fixture(scope="module")
def backbones(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A saved random encoder of each family."""
    return {family: save_checkpoint(family, tmp_path_factory.mktemp(family), max_position_embeddings=40) for family in FAMILIES}


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


@pytest.mark.parametrize("family", ["bert", "distilbert"])
def test_dropout_is_off_unless_requested(backbones: dict[str, Path], family: str) -> None:
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


@pytest.mark.parametrize("config", ["", '{"model_type": "bert", "hidden_size": 0}'])
def test_a_backbone_with_an_odd_configuration(tmp_path: Path, config: str) -> None:
    (tmp_path / "config.json").write_text(config, encoding="utf-8")
    with pytest.raises(ValueError, match="cannot be read as an encoder"):
        CrossEncoder.from_backbone(str(tmp_path))


COUNTS = [3, 1, 5]  # sequences of each document


def sequences() -> tuple[Tensor, Tensor, Tensor]:
    """Of 20 tokens each."""
    ids = torch.randint(5, 200, (sum(COUNTS), 20), generator=torch.Generator().manual_seed(1))
    return ids, torch.zeros_like(ids), torch.ones_like(ids)


def passage_ranker(backbones: dict[str, Path], aggregator: dict[str, Any] | None, seed: int = 0) -> CrossEncoder:
    torch.manual_seed(seed)
    return CrossEncoder.from_backbone(str(backbones["bert"]), aggregator=aggregator)


def documents(model: CrossEncoder) -> Tensor:
    """The logits of documents that have COUNTS of the sequences."""
    return model.documents(model.states(*sequences()), torch.tensor(COUNTS), "joint")


@pytest.mark.parametrize("aggregator", [{"name": "cnn"}, {"name": "transformer", "heads": 2}], ids=str)
def test_a_learned_aggregator_is_saved_and_loaded(backbones: dict[str, Path], tmp_path: Path, aggregator: dict[str, Any]) -> None:
    model = passage_ranker(backbones, aggregator).eval()
    model.save(tmp_path)
    loaded, other = CrossEncoder.load(tmp_path), passage_ranker(backbones, aggregator, seed=1).eval()
    other.load_weights(tmp_path)
    with torch.inference_mode():
        logits = documents(model)
        for again in (loaded, other):
            torch.testing.assert_close(documents(again), logits)
            torch.testing.assert_close(again.outputs(*sequences()), model.outputs(*sequences()))
    assert not loaded.training
    assert loaded.aggregator is not None
    assert loaded.aggregator.description == model.aggregator.description  # type: ignore[union-attr]


@pytest.mark.parametrize("victim", [AGGREGATOR_FILE, AGGREGATOR_WEIGHTS])
def test_a_damaged_aggregator_is_one_clear_error(backbones: dict[str, Path], tmp_path: Path, victim: str) -> None:
    passage_ranker(backbones, {"name": "attention"}).save(tmp_path)
    (tmp_path / victim).write_bytes(b"{}")
    with pytest.raises(ValueError, match="cannot be read as an encoder"):
        CrossEncoder.load(tmp_path)


def test_states_of_a_model_without_an_aggregator(backbones: dict[str, Path]) -> None:
    with pytest.raises(ValueError, match="this model has no aggregator: it scores sequences, not their states"):
        passage_ranker(backbones, None).combine(torch.zeros(1, 2, 32), torch.ones(1, 2, dtype=torch.bool))


LONG = Packed(np.asarray([101, 7, 102, 8, 9, 102], np.int32), 3, np.asarray([0], np.intp))
SHORT = Packed(np.asarray([101, 7, 102, 102], np.int32), 3, np.asarray([], np.intp))


def test_rows_by_hand() -> None:
    ids, types, mask = pad([LONG, SHORT], pad_id=5)
    assert ids.tolist() == [[101, 7, 102, 8, 9, 102], [101, 7, 102, 102, 5, 5]]
    assert types.tolist() == [[0, 0, 0, 1, 1, 1], [0, 0, 0, 1, 0, 0]]
    assert mask.tolist() == [[1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 0, 0]]
    assert {tensor.dtype for tensor in (ids, types, mask)} == {torch.int64}
    assert pad([LONG], pad_id=1, document_type=0).token_type_ids.tolist() == [[0] * 6], "a tokenizer without segment types"


STATES = torch.tensor([[[1.0, 0.0], [2.0, 4.0], [6.0, 5.0]], [[3.0, 1.0], [5.0, 7.0], [9.0, 9.0]]])
MASK = torch.tensor([[1, 1, 1], [1, 1, 0]])  # the second sequence has two tokens


@pytest.mark.parametrize(
    ("pooling", "expected"),
    [
        ("cls", [[1.0, 0.0], [3.0, 1.0]]),
        ("mean", [[(1 + 2 + 6) / 3, (0 + 4 + 5) / 3], [(3 + 5) / 2, (1 + 7) / 2]]),
        ("last", [[6.0, 5.0], [5.0, 7.0]]),
    ],
)
def test_by_hand(pooling: str, expected: list[list[float]]) -> None:
    torch.testing.assert_close(POOLINGS[pooling](STATES, MASK), torch.tensor(expected))


def test_a_token_is_marked_by_its_own_state() -> None:
    marker = Marker(2, 2)
    with torch.no_grad():
        marker.inner.weight.copy_(torch.eye(2))
        marker.inner.bias.copy_(torch.tensor([0.0, -1.0]))
        marker.outer.weight.copy_(torch.tensor([[1.0, -2.0]]))
        marker.outer.bias.fill_(0.5)
    # by hand: relu(3, 1-1) -> 3 + .5; relu(-1, 3-1) -> -4 + .5
    assert marker(torch.tensor([[[3.0, 1.0], [-1.0, 3.0]]])).tolist() == [[3.5, -3.5]]


def test_what_is_saved_is_loaded_and_a_directory_without_one_has_none(tmp_path: Path) -> None:
    marker, states = Marker(8, 3), torch.randn(2, 5, 8)
    assert Marker.load(tmp_path) is None
    marker.save(tmp_path)
    again = Marker.load(tmp_path)
    assert again is not None
    torch.testing.assert_close(again(states), marker(states))


CPU, GPU = torch.device("cpu"), torch.device("cuda")


@pytest.mark.parametrize(
    ("precision", "feature", "bf16", "words"),
    [
        ("auto", None, False, "fp32 on the CPU, which has no bf16"),
        ("auto", "amx_bf16", True, "bf16 on the CPU, by its amx_bf16"),
        ("bf16", None, True, "bf16 on a CPU that only emulates it; fp32 is several times as fast"),
        ("bf16", "amx_bf16", True, "bf16 on the CPU, by its amx_bf16"),
        ("fp32", None, False, "fp32 on the CPU, which has no bf16"),
        ("fp32", "avx512_bf16", False, "fp32 on the CPU, though its avx512_bf16 computes bf16 faster"),
    ],
)
def test_on_cpus(monkeypatch: pytest.MonkeyPatch, precision: str, feature: str | None, bf16: bool, words: str) -> None:
    """With a CPU of either kind, whichever this one is."""
    monkeypatch.setattr(arithmetic, "bf16_feature", lambda: feature)
    assert in_bf16(precision, CPU) is bf16
    assert in_words(precision, CPU) == words
    assert in_bf16(precision, GPU) is (precision != "fp32")


def test_starting_from_another_run(backbones: dict[str, Path], tmp_path: Path) -> None:
    """Encoder and head are taken over; an aggregator where both have the same one, else it stays fresh."""
    source = passage_ranker(backbones, {"name": "attention"}, seed=1)
    with torch.no_grad():
        source.encoder.embeddings.word_embeddings.weight += 1
    source.save(tmp_path)
    plain, same, cnn = (passage_ranker(backbones, of) for of in (None, {"name": "attention"}, {"name": "cnn", "layers": 1}))
    fresh = {name: value.clone() for name, value in cnn.aggregator.state_dict().items()}  # type: ignore[union-attr]
    for model in (plain, same, cnn):
        assert not torch.equal(model.head.weight, source.head.weight)
        model.start_from(tmp_path)
        torch.testing.assert_close(model.state_dict()["head.weight"], source.head.weight)
        torch.testing.assert_close(model.encoder.state_dict(), source.encoder.state_dict())
    torch.testing.assert_close(same.state_dict(), source.state_dict())
    torch.testing.assert_close(cnn.aggregator.state_dict(), fresh)  # type: ignore[union-attr]
