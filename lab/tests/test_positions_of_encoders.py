"""Encoders with more positions than their backbones: tables by hand, and checkpoints."""

from pathlib import Path

import pytest
import torch
from torch import Tensor
from transformers import PreTrainedModel

from lab.models.long_encoder import LongEncoder, extend_positions, extended
from tests.training.models.test_reshaping import KINDS, OLD, encoder, ids
from training.model.cross_encoder import CrossEncoder
from training.model.transformer_ranker import position_table

TABLE = torch.tensor([[0.0, 8.0], [1.0, 6.0], [2.0, 4.0], [3.0, 2.0]])  # four positions
NEW = 70


def weights(model: PreTrainedModel) -> Tensor:
    """The rows of its positions, without those in front of the first."""
    found = position_table(model)
    assert found is not None
    return found.table.weight.detach()[found.offset :]


def test_four_positions_tiled_to_ten() -> None:
    first = [0.0, 1.0, 2.0, 3.0, 0.0, 1.0, 2.0, 3.0, 0.0, 1.0]
    assert extended(TABLE, 0, 10, "tiled")[:, 0].tolist() == first


def test_four_positions_interpolated_to_seven() -> None:
    longer = extended(TABLE, 0, 7, "interpolated")
    torch.testing.assert_close(longer[:, 0], torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0]))
    torch.testing.assert_close(longer[:, 1], torch.tensor([8.0, 7.0, 6.0, 5.0, 4.0, 3.0, 2.0]))


def test_rows_in_front_of_the_first_position_stay() -> None:
    """RoBERTa's two: nobody ever reads them as positions."""
    assert extended(TABLE, 2, 7, "tiled")[:, 0].tolist() == [0.0, 1.0, 2.0, 3.0, 2.0, 3.0, 2.0]
    torch.testing.assert_close(extended(TABLE, 2, 5, "interpolated")[:, 0], torch.tensor([0.0, 1.0, 2.0, 2.5, 3.0]))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("extension", ["tiled", "interpolated"])
def test_an_encoder_reads_more_and_its_checkpoint_needs_no_recipe(kind: str, extension: str, tmp_path: Path) -> None:
    encoder(kind).save_pretrained(tmp_path / "backbone")
    model = LongEncoder.from_backbone(str(tmp_path / "backbone"), positions=NEW, extension=extension).eval()
    assert model.max_length == NEW
    assert torch.equal(weights(model.encoder)[:OLD], weights(encoder(kind))) == (extension == "tiled")
    model.save(tmp_path / "saved")
    again = LongEncoder.load(tmp_path / "saved")
    given = ids(NEW), torch.zeros(2, NEW, dtype=torch.long), torch.ones(2, NEW, dtype=torch.long)
    with torch.inference_mode():
        torch.testing.assert_close(again(*given), model(*given))
    assert again.max_length == NEW


@pytest.mark.parametrize("kind", KINDS)
def test_a_tiled_encoder_computes_the_same_of_what_it_could_read_before(kind: str) -> None:
    before, after = encoder(kind), encoder(kind)
    extend_positions(after, NEW, "tiled")
    with torch.inference_mode():
        torch.testing.assert_close(after(ids(OLD)).last_hidden_state, before(ids(OLD)).last_hidden_state)


@pytest.mark.parametrize("kind", ["bert", "roberta"])
def test_a_longer_model_starts_from_a_shorter_checkpoint(kind: str, tmp_path: Path) -> None:
    encoder(kind).save_pretrained(tmp_path / "backbone")
    torch.manual_seed(1)
    trained = CrossEncoder.from_backbone(str(tmp_path / "backbone"))
    with torch.no_grad():
        weights(trained.encoder).mul_(3)
    trained.save(tmp_path / "trained")
    longer = LongEncoder.from_backbone(str(tmp_path / "backbone"), positions=NEW, extension="interpolated")
    longer.start_from(tmp_path / "trained")
    torch.testing.assert_close(longer.head.state_dict(), trained.head.state_dict())
    torch.testing.assert_close(weights(longer.encoder), extended(weights(trained.encoder), 0, NEW, "interpolated"))
    longer.save(tmp_path / "longer")
    with pytest.raises(ValueError, match="cannot be read as an encoder"):
        trained.start_from(tmp_path / "longer")


@pytest.mark.parametrize(
    ("kind", "positions", "said"),
    [
        ("bert", 39, "model.positions 39 are fewer than the 40 that the backbone has; leave it out"),
        ("roberta", 39, "model.positions 39 are fewer than the 40 that the backbone has"),
        ("modernbert", 9000, "model.positions: a modernbert has no table of absolute positions to extend"),
    ],
)
def test_impossible_positions_are_errors(kind: str, positions: int, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        extend_positions(encoder(kind), positions, "tiled")
