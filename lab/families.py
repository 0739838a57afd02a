"""The ranker families and the learned aggregator of the papers that KeyB and BeST are compared with. Without PyTorch.

training.declarations says what a declaration is; recipes and checkpoints name these by the entry points in pyproject.toml.
"""

from typing import ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field

from training.declarations import FAMILIES, STATE_AGGREGATORS, CrossEncoderFamily, Family, StateAggregator


class QueryDirected(BaseModel):
    """Query-directed attention (QDS-Transformer, Jiang et al. 2020, section 3): see lab.models.long_encoder."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    window: int = Field(64, ge=1, description="tokens of a document that each of its tokens sees before and behind itself")
    sentence_ends: tuple[int, ...] = Field(
        (), description="ids of the tokens behind which a sentence begins, whose first token all see; none: no such tokens"
    )


@FAMILIES.register("long_encoder")
class LongEncoderFamily(CrossEncoderFamily):
    """A cross-encoder over one long sequence (LongP, Boytsov et al. 2022): other positions or attention than its backbone has."""

    module: ClassVar[str] = "lab.models.long_encoder:LongEncoder"
    positions: int | None = Field(
        None,
        ge=1,
        le=1 << 20,
        description="tokens of a sequence that the backbone's table of absolute positions grows to; none: as it is",
    )
    extension: Literal["tiled", "interpolated"] = Field(
        "tiled", description="the table again and again (Longformer, section 5), or stretched linearly over the new positions"
    )
    global_query: bool = Field(
        False, description="of a Longformer: the query's tokens see all tokens and are seen by all, as [CLS] always is"
    )
    query_directed: QueryDirected | None = Field(
        None, description="which tokens of an encoder with full attention see which; none: all see all"
    )


class TokenFamily(Family):
    """A family that compares the tokens of the query with those of each passage: see lab.models.tokens."""

    combines: ClassVar[bool] = True
    reshapes: ClassVar[bool] = True
    query_tokens: int = Field(32, ge=1, le=512, description="tokens of a query that are compared; of a longer one the first")


@FAMILIES.register("cedr_knrm")
class CedrKnrmFamily(TokenFamily):
    """CEDR-KNRM (MacAvaney et al. 2019): kernels over the cosines of token states, layer by layer, beside the mean [CLS]."""

    module: ClassVar[str] = "lab.models.cedr:CedrKnrm"


@FAMILIES.register("cedr_drmm")
class CedrDrmmFamily(TokenFamily):
    """CEDR-DRMM (MacAvaney et al. 2019): log-count histograms of the cosines of token states, beside the mean [CLS]."""

    module: ClassVar[str] = "lab.models.cedr:CedrDrmm"


@FAMILIES.register("cedr_pacrr")
class CedrPacrrFamily(TokenFamily):
    """CEDR-PACRR (MacAvaney et al. 2019): the strongest matches of up to three tokens in a row, beside the mean [CLS]."""

    module: ClassVar[str] = "lab.models.cedr:CedrPacrr"


@FAMILIES.register("neural_model1")
class NeuralModel1Family(TokenFamily):
    """Neural Model 1 (Boytsov and Kolter 2021): the probability of translating the document's tokens into the query's."""

    module: ClassVar[str] = "lab.models.model1:NeuralModel1"
    width: int = Field(32, ge=1, description="of the network that gives a pair of tokens its probability")


@FAMILIES.register("late_transformer")
class LateTransformerFamily(Family):
    """PARADE with late interaction: query and passage are encoded separately; a transformer over both computes the passage's state.

    The recipe's `states` aggregates them, as for a cross-encoder. See lab.models.late_transformer.
    """

    module: ClassVar[str] = "lab.models.late_transformer:LateTransformer"
    reshapes: ClassVar[bool] = True
    layers: int = Field(2, ge=1, le=48, description="of the interaction; of a pretrained encoder the first ones")
    heads: int = Field(12, ge=1, description="attention heads of a layer; a pretrained encoder has its own")
    ffn: int | None = Field(None, ge=1, description="inner size of a layer; none: 4 x a state's; a pretrained encoder has its own")
    pretrained: str | None = Field(None, description="encoder whose first layers to take, by hub name or path; none: random")


@FAMILIES.register("tkl")
class TklFamily(Family):
    """TKL (Hofstätter et al. 2020): word vectors in local windows, kernels, and the best regions of the document."""

    module: ClassVar[str] = "lab.models.tkl:Tkl"
    combines: ClassVar[bool] = True
    query_tokens: int = Field(32, ge=1, le=512, description="tokens of a query that are read; of a longer one the first")
    layers: int = Field(2, ge=1, le=12, description="of the local transformer")
    heads: int = Field(8, ge=1, description="attention heads of a layer; they divide the size of a word vector")
    ffn: int = Field(100, ge=1, description="inner size of a layer")
    region: int = Field(30, ge=1, le=512, description="tokens of a region")
    regions: int = Field(3, ge=1, le=64, description="best regions of a document that count")


@FAMILIES.register("deeprank")
class DeepRankFamily(Family):
    """DeepRank (Pang et al. 2017): a convolution measures the contexts of the query's tokens in a passage, a GRU reads them."""

    module: ClassVar[str] = "lab.models.deeprank:DeepRank"
    combines: ClassVar[bool] = True
    query_tokens: int = Field(32, ge=1, le=512, description="tokens of a query that are read; of a longer one the first")
    contexts: int = Field(8, ge=1, le=64, description="of a query token in a passage; of more the first")
    beside: int = Field(5, ge=0, le=64, description="tokens of a context on each side of the one that matches")
    filters: int = Field(4, ge=1, le=256, description="of the convolution")
    memory: int = Field(3, ge=1, le=256, description="size of the recurrent network's state")


@FAMILIES.register("ck")
class CkFamily(Family):
    """Word vectors, one convolution and kernel pooling: a student that is fast enough to read every passage (IDCM's ESM)."""

    module: ClassVar[str] = "lab.models.ck:Ck"
    window: int = Field(3, ge=1, le=16, description="tokens that the convolution sees at once: each one and those behind it")
    filters: int = Field(128, ge=1, le=4096, description="of the convolution: the size of the vectors that are compared")
    trainable: bool = Field(False, description="whether the backbone's word vectors are trained, too")


@STATE_AGGREGATORS.register("top")
class Top(StateAggregator):
    """IDCM (Hofstätter et al. 2021): the best passages' scores, sorted, times learned weights; a place without a passage adds 0."""

    module: ClassVar[str] = "lab.models.top:TopAggregation"
    best: int = Field(3, ge=1, le=256, description="passages that count; the paper's 3")
