"""The ranker families: the module for each name in a recipe's `model` or a checkpoint. A new family needs one line below."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from training.declarations import FAMILIES, EncoderShape, read_family
from training.models.bi_encoder import BiEncoder
from training.models.cedr import CedrDrmm, CedrKnrm
from training.models.ck import Ck
from training.models.classifier import Classifier
from training.models.cross_encoder import CrossEncoder
from training.models.deeprank import DeepRank
from training.models.late_transformer import LateTransformer
from training.models.model1 import NeuralModel1
from training.models.pacrr import CedrPacrr
from training.models.ranker_module import FAMILY_FILE, RankerModule
from training.models.tkl import Tkl


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


MODULES: dict[str, RankerFamily] = {
    "cross_encoder": CrossEncoder,
    "classifier": Classifier,
    "bi_encoder": BiEncoder,
    "ck": Ck,
    "cedr_knrm": CedrKnrm,
    "late_transformer": LateTransformer,
    "tkl": Tkl,
    "deeprank": DeepRank,
    "cedr_drmm": CedrDrmm,
    "cedr_pacrr": CedrPacrr,
    "neural_model1": NeuralModel1,
}
"""The module classes, by the family's name in training.declarations."""


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
    model = MODULES[settings.name].from_backbone(backbone, dropout, attention, aggregator, **parameters)
    model.family = settings.describe()
    return model


def load_ranker(directory: Path, attention: str = "sdpa") -> RankerModule:
    """The model of a checkpoint of any family, in eval mode. Raises ValueError for a damaged checkpoint or an unknown family."""
    settings = read_family(directory / FAMILY_FILE)
    return MODULES[settings.name].load(directory, attention)
