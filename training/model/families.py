"""Makes and reads rankers of the family that a recipe's `model` or a checkpoint names."""

from collections.abc import Mapping
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, Protocol

from training.declarations import FAMILIES, EncoderShape, Family, read_family
from training.model.ranker_module import FAMILY_FILE, RankerModule


class RankerFamily(Protocol):
    """The interface of a family's module class."""

    def from_backbone(self, *arguments: Any, **parameters: Any) -> RankerModule:
        """A model with fresh weights on a pretrained encoder. Raises ValueError if there is none, or a part does not fit it.

        Args:
            arguments: the encoder's hub name or local path; its dropout; its attention implementation; the description of a
                learned aggregator, or None.
            parameters: the family's own parameters; for a family that `reshapes` also `shape`, an EncoderShape.
        """

    def load(self, *arguments: Any, **named: Any) -> RankerModule:
        """Read the directory that `save` wrote, with this `attention`; in eval mode. Raises ValueError for a damaged one."""


def module_of(settings: Family) -> RankerFamily:
    """The module class of a family; its module is imported now."""
    found: RankerFamily = resolve_name(settings.module)
    return found


def new_ranker(
    family: Mapping[str, Any],
    backbone: str,
    dropout: float = 0.0,
    attention: str = "sdpa",
    aggregator: Mapping[str, Any] | None = None,
    shape: EncoderShape | None = None,
) -> RankerModule:
    """A model of this family with fresh weights on a backbone; see `RankerFamily.from_backbone`.

    Only a family that `reshapes` may get a shape; recipes check this.
    """
    settings = FAMILIES.create(family)
    parameters = settings.model_dump() | ({"shape": shape} if shape else {})
    model = module_of(settings).from_backbone(backbone, dropout, attention, aggregator, **parameters)
    model.family = settings.describe()
    return model


def load_ranker(directory: Path, attention: str = "sdpa") -> RankerModule:
    """The model of a checkpoint of any family, in eval mode. Raises ValueError for a damaged checkpoint or an unknown family."""
    settings = read_family(directory / FAMILY_FILE)
    return module_of(settings).load(directory, attention)
