from pathlib import Path

import torch

from training.model.cross_encoder import Marker


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
