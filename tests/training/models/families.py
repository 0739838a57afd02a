"""A second ranker family, as small as one can be: what another one needs beside the cross-encoder."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import pytest
import torch
from pydantic import Field
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import AutoConfig

from training.declarations import FAMILIES, Family
from training.model.ranker_module import RankerModule

NAME = "bag"
WEIGHTS = "bag.safetensors"


class BagSettings(Family):
    """The mean vectors of query and document, feature by feature: no word knows its neighbours."""

    module = "tests.training.models.families:Bag"
    width: int = Field(8, ge=1, description="of a vector")


class Bag(RankerModule):
    """One table of vectors; of the backbone it takes the vocabulary only."""

    def __init__(self, vocabulary: int, width: int) -> None:
        super().__init__()
        self.family = {"name": NAME, "width": width}
        self.aggregator = None
        self.vectors, self.head = nn.Embedding(vocabulary, width), nn.Linear(width, 1)

    @classmethod
    def from_backbone(cls, name_or_path: str, *_: Any, width: int) -> Self:
        return cls(AutoConfig.from_pretrained(name_or_path).vocab_size, width)

    @classmethod
    def load(cls, directory: str | Path, *_: Any, **__: Any) -> Self:
        weights = load_file(Path(directory) / WEIGHTS)
        model = cls(*weights["vectors.weight"].shape)
        model.load_state_dict(weights)
        return model.eval()

    def save_weights(self, directory: str | Path) -> None:
        save_file(self.state_dict(), Path(directory) / WEIGHTS)

    def load_weights(self, directory: str | Path) -> None:
        self.load_state_dict(load_file(Path(directory) / WEIGHTS))

    start_from = load_weights

    def pretrained(self) -> Iterator[nn.Parameter]:
        return iter(())

    def checkpoint_activations(self) -> None:
        pass

    @property
    def max_length(self) -> int:
        return 1 << 20

    @property
    def hidden_size(self) -> int:
        return self.head.in_features

    @property
    def vocabulary_size(self) -> int:
        return self.vectors.num_embeddings

    def states(self, *inputs: Tensor) -> Tensor:
        ids, types, mask = inputs
        vectors = self.vectors(ids).float()
        query, document = (vectors.mul((mask * part)[..., None]).sum(1) for part in (1 - types, types))
        return query * document

    def scores(self, states: Tensor) -> Tensor:
        with torch.autocast(states.device.type, enabled=False):
            return self.head(states.float()).squeeze(-1)


@pytest.fixture
def bag(monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of the second family, which is registered while a test runs."""
    BagSettings.name = NAME
    monkeypatch.setitem(FAMILIES._members, NAME, BagSettings)
    return NAME
