"""One state of a sequence's, by hand and whatever the padding."""

import pytest
import torch
from torch import Tensor

from training.declarations import CrossEncoderFamily
from training.model.cross_encoder import POOLINGS

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


@pytest.mark.parametrize("pooling", POOLINGS)
def test_padding_is_never_read(pooling: str) -> None:
    def wider(tensor: Tensor, value: float) -> Tensor:
        return torch.cat([tensor, torch.full_like(tensor[:, :2], value)], dim=1)

    longer = POOLINGS[pooling](wider(STATES, 99.0), wider(MASK, 0))
    assert torch.equal(longer, POOLINGS[pooling](STATES, MASK))


def test_the_names_are_those_that_recipes_know() -> None:
    for name in POOLINGS:
        assert CrossEncoderFamily(pooling=name).pooling == name
    with pytest.raises(ValueError, match="'cls', 'mean' or 'last'"):
        CrossEncoderFamily.read({"pooling": "max"})
