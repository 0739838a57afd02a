"""Declares what a recipe may name besides the pipeline's parts: losses, ranker families, learned aggregators. Without PyTorch.

training.learn.objectives, training.model.families and training.model.aggregators compute them.
"""

import json
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from keyblock.registry import Component, Registry

DEFAULT_FAMILY = {"name": "cross_encoder"}  # what checkpoints without a family.json are
LOSSES = ("hinge", "listwise", "logistic", "pointwise")
DISTILLED = ("lambda", "margin", "softmax", "squared")
"""Losses that fit scores to a teacher's; training.learn.distillation computes them."""


class EncoderShape(BaseModel):
    """How many layers of the backbone are used; see training.model.transformer_ranker."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    layers: Annotated[int, Field(ge=1)] | tuple[Annotated[int, Field(ge=0)], ...] | None = Field(
        None, description="the first so many layers are kept, or those of a list, counted from 0; none: all"
    )

    @field_validator("layers")
    @classmethod
    def _in_order(cls, layers: int | tuple[int, ...] | None) -> int | tuple[int, ...] | None:
        if isinstance(layers, tuple) and (not layers or list(layers) != sorted(set(layers))):
            raise ValueError("name each layer once, from the first to the last, such as [0, 2, 4, 5]")
        return layers

    @property
    def kept(self) -> tuple[int, ...]:
        """Numbers of the layers that are kept, from 0; empty: all."""
        return self.layers if isinstance(self.layers, tuple) else tuple(range(self.layers or 0))


class Family(Component):
    """A ranker family's settings.

    Attributes:
        module: where its RankerModule is, as MODULE:CLASS; see training.model.families.
        combines: whether the family computes a document's logit from its passages' states itself, so that a pipeline with the
            aggregator ``states`` needs no learned module in the recipe.
        reshapes: whether its `from_backbone` takes a `shape` (EncoderShape).
    """

    module: ClassVar[str]
    combines: ClassVar[bool] = False
    reshapes: ClassVar[bool] = False


FAMILIES: Registry[Family] = Registry("ranker family", "keyblock.training.families")


@FAMILIES.register("cross_encoder")
class CrossEncoderFamily(Family):
    """An encoder reads query and blocks together; one linear layer scores [CLS] (KeyB section 4.1, step 4)."""

    module: ClassVar[str] = "training.model.cross_encoder:CrossEncoder"
    reshapes: ClassVar[bool] = True
    pooling: Literal["cls", "mean", "last"] = Field(
        "cls", description="which state the linear layer reads: that of [CLS], the mean of all tokens, or the last one (decoders)"
    )
    marks: int = Field(0, ge=0, le=4096, description="hidden units of the head that marks the tokens that answer; 0: no such head")


@FAMILIES.register("classifier")
class ClassifierFamily(Family):
    """A checkpoint for sequence classification with its authors' head, as keyblock-import reads it."""

    module: ClassVar[str] = "training.model.classifier:Classifier"


@FAMILIES.register("bi_encoder")
class BiEncoderFamily(Family):
    """Query and sentence are encoded separately, each as the mean of its token states; the logit is their cosine, scaled.

    See Santos, equations 2 to 4. With a sentence encoder as backbone it is usable without training. The loss `hinge` is the triplet
    loss on cosines, with a margin of 1 / scale.
    """

    module: ClassVar[str] = "training.model.bi_encoder:BiEncoder"
    reshapes: ClassVar[bool] = True
    scale: float = Field(20.0, gt=0, le=100, description="of the logit: what the cosine is multiplied by")


def read_family(path: Path) -> Family:
    """The family that a checkpoint's family.json names. Raises ValueError for a damaged file or an unknown family."""
    try:
        family = json.loads(path.read_text(encoding="utf-8")) if path.exists() else DEFAULT_FAMILY
        return FAMILIES.create(family)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{path}: {error}") from None


class StateAggregator(Component):
    """A recipe's settings of the module by which the aggregator ``states`` combines [CLS] states.

    Attributes:
        module: what makes it from its settings and the size of a state, as MODULE:NAME; see training.model.aggregators.
    """

    module: ClassVar[str]


STATE_AGGREGATORS: Registry[StateAggregator] = Registry("learned aggregator", "keyblock.training.aggregators")


@STATE_AGGREGATORS.register("max")
class Max(StateAggregator):
    """PARADE-Max (equation 2): the largest value of each feature."""

    module: ClassVar[str] = "training.model.aggregators:MaxAggregation"


@STATE_AGGREGATORS.register("mean")
class Mean(StateAggregator):
    """PARADE-Avg: the mean over the passages, padding left out."""

    module: ClassVar[str] = "training.model.aggregators:MeanAggregation"


@STATE_AGGREGATORS.register("attention")
class Attention(StateAggregator):
    """PARADE-Attn (equations 3 and 4): a mean weighted by the softmax of the passages' products with one learned vector."""

    module: ClassVar[str] = "training.model.aggregators:AttentionAggregation"


@STATE_AGGREGATORS.register("cnn")
class Cnn(StateAggregator):
    """PARADE-CNN: layers over pairs of neighbours, each halving their number.

    Every representation of every layer goes through a hidden layer, and the results are summed. Scored by the ranker's linear
    layer, this is the paper's sum of the scores of a feed-forward network with one hidden layer (section 3.4).
    """

    module: ClassVar[str] = "training.model.aggregators:CnnAggregation"
    layers: int = Field(4, ge=1, le=10, description="each halves the number of passages; 4 reach from 16 passages to one")


@STATE_AGGREGATORS.register("transformer")
class Transformer(StateAggregator):
    """PARADE-Transformer (equations 5 and 6): BERT layers over a learned [CLS] and the passages; the [CLS] is the document's state.

    Implementations differ in the layers' input. By default the [CLS] in front starts at random, like the learnable vector of the
    evaluation paper (Boytsov et al. 2022, appendix A.2), and no positions are added, as in the code of PARADE's authors by default.
    Their [CLS] starts from a word embedding: their flag takes that of [CLS], their function's default that of id 102, [SEP].
    capreolus starts from the word embedding of [CLS] and adds a learned position to each passage: `start: cls` and `positions`.

    A pretrained transformer (Transf-PRETR of the evaluation paper) takes over the first layers of an encoder, without its
    embeddings. If its states have another size than the ranker's, linear projections stand in front of it and behind it. The one
    behind it forms one linear layer with the ranker's own.
    """

    module: ClassVar[str] = "training.model.aggregators:make_transformer"
    layers: int = Field(2, ge=1, le=48, description="how many; of a pretrained encoder the first ones")
    heads: int = Field(12, ge=1, description="attention heads of a layer; a pretrained encoder has its own")
    ffn: int | None = Field(
        None, ge=1, description="inner size of a layer; none: 4 x the size of a state; a pretrained encoder has its own"
    )
    width: int | None = Field(
        None, ge=1, description="size of a state inside the layers; none: the ranker's; a pretrained encoder has its own"
    )
    start: Literal["random", "cls"] = Field(
        "random", description="where the [CLS] in front starts: at random, or at the ranker's word embedding of [CLS] (capreolus)"
    )
    positions: int = Field(
        0,
        ge=0,
        le=1024,
        description="passages that have a learned position each (capreolus); 0: no positions, for any number of them",
    )
    pretrained: str | None = Field(
        None, description="whose first layers to take: hub name or local path of an encoder; none: random"
    )
