"""The head that marks tokens: a logit for each token, whether it belongs to the passage that answers the query.

It reads the states before the encoder's last layer. A served graph computes the last layer for [CLS] alone, so these are the last
states that all tokens have. So the head needs no further layer, and only 0.3% of the products of a MiniLM-L6. Provence reads the
last layer (Chirkova et al. 2025, "Provence: efficient and robust context pruning for retrieval-augmented generation", section 3).
"""

from pathlib import Path
from typing import Self

from safetensors.torch import load_file, save_file
from torch import Tensor, nn

MARKER = "/marker/"  # in the names of its nodes in a graph
MARKER_FILE = "marker.safetensors"


class Marker(nn.Module):
    """One hidden layer over a token's state.

    Args:
        hidden: size of a state.
        width: size of the hidden layer.
    """

    def __init__(self, hidden: int, width: int) -> None:
        super().__init__()
        self.inner = nn.Linear(hidden, width)
        self.outer = nn.Linear(width, 1)

    def forward(self, states: Tensor) -> Tensor:
        """Logits of shape (batch, length) from states (batch, length, hidden)."""
        logits: Tensor = self.outer(self.inner(states).relu()).squeeze(-1)
        return logits

    def save(self, directory: Path) -> None:
        """Write the weights."""
        save_file(self.state_dict(), directory / MARKER_FILE)

    @classmethod
    def load(cls, directory: Path) -> Self | None:
        """Read what `save` wrote; None if there is no marker."""
        path = directory / MARKER_FILE
        if not path.exists():
            return None
        weights = load_file(path)
        width, hidden = weights["inner.weight"].shape
        marker = cls(hidden, width)
        marker.load_state_dict(weights)
        return marker
