"""The description of a pipeline: its components, how many tokens of each kind a sequence holds, and how a score is made."""

from collections.abc import Iterator, Mapping
from functools import cached_property
from itertools import chain
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator, model_validator

import keyblock.sentence_vectors  # noqa: F401, registers its component
from keyblock.aggregation import AGGREGATORS
from keyblock.encoders import ENCODERS
from keyblock.fusion import FIRST_STAGE_FUSIONS, Activation, Fusion, SecondLook, SpanScores
from keyblock.meaning import Meaning
from keyblock.packing import PackingConfig
from keyblock.pre_ranking import PreRanking
from keyblock.registry import Registry
from keyblock.segmenters import SEGMENTERS
from keyblock.selectors import SELECTORS, Need
from keyblock.text.alphabets import TrainedOn
from keyblock.text.analyzer import AnalyzerConfig
from keyblock.text.prompt import Prompt

REGISTRIES: dict[str, Registry[Any]] = {
    "segmenter": SEGMENTERS,
    "selector": SELECTORS,
    "encoder": ENCODERS,
    "aggregator": AGGREGATORS,
}


class PipelineConfig(BaseModel):
    """The whole description; `bundle.json` and a training run carry it as JSON."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)  # defaults are written out with their parameters
    analyzer: AnalyzerConfig = AnalyzerConfig()
    segmenter: dict[str, Any] = {"name": "cogltx"}
    selector: dict[str, Any] = {"name": "bm25"}
    encoder: dict[str, Any] | None = Field(None, description="makes the vectors that a selector compares; none: no vectors")
    cosine_scale: float | None = Field(
        None,
        gt=0,
        description="a block's logit is the cosine of its vector and the query's, times this: the ranker is a bi-encoder with "
        "stored vectors, and no graph reads tokens to score; none: a graph scores",
    )
    packing: PackingConfig = PackingConfig()
    aggregator: dict[str, Any] = {"name": "joint"}
    evidence: dict[str, Any] = Field(
        {"name": "bm25"},
        description="the lexical selector whose scores fusion adds and deadlines order by. If left out, it is the selector itself "
        "if that is lexical (for a learned selector the cheap one before it, for a hybrid its lexical one), else BM25",
    )
    fusion: Fusion = Fusion()
    activation: Activation = Activation()
    prompt: Prompt | None = Field(None, description="around query and document, for a model that answers in words; none: a pair")
    min_score: float | None = Field(
        None,
        ge=0,
        le=1,
        description="the relevance score below which nothing answers, used for a request's min_score `auto`; none: not measured",
    )
    spans: SpanScores | None = Field(None, description="how likely a sentence answers; none: not fitted")
    first_stage: dict[str, Any] | None = Field(
        None,
        description="the fusion with the first stage that orders documents if a request sends first_stage_scores; none: the model "
        "alone orders them",
    )
    trained_on: TrainedOn | None = Field(
        None,
        description="what the model has learned to read: it does not order texts that are clearly in another script; none: unknown",
    )
    pre_ranking: PreRanking | None = Field(
        None, description="which documents of a request are skipped: the model does not read them; none: the model reads all"
    )
    second_look: SecondLook | None = Field(None, description="how far the model reads on in the best documents; none: it does not")
    meaning: Meaning | None = Field(
        None, description="a sentence encoder that reads stored documents in the background; none: they are chosen from as others"
    )

    @model_validator(mode="before")
    @classmethod
    def _evidence_left_out(cls, description: Any) -> Any:
        """Without a declared evidence, the terms of the selector are the evidence: see `evidence`."""
        if not isinstance(description, Mapping) or "evidence" in description:
            return description
        try:
            terms = SELECTORS.create(description.get("selector", {"name": "bm25"})).cheap.terms_by
        except ValueError:
            return description  # the selector's own validator says why
        return description if terms is None else {**description, "evidence": terms.describe()}

    @field_validator("segmenter", "selector", "encoder", "aggregator")
    @classmethod
    def _component(cls, description: dict[str, Any] | None, info: ValidationInfo) -> dict[str, Any] | None:
        return None if description is None else REGISTRIES[info.field_name or ""].create(description).describe()

    @field_validator("evidence")
    @classmethod
    def _evidence(cls, description: dict[str, Any]) -> dict[str, Any]:
        selector = SELECTORS.create(description)
        if not selector.lexical:
            lexical = ", ".join(name for name in SELECTORS.names() if SELECTORS.create(name).lexical)
            raise ValueError(f"selector {selector.name!r} is no evidence, since it does not go by terms; take one of: {lexical}")
        return selector.describe()

    @field_validator("first_stage")
    @classmethod
    def _first_stage(cls, description: dict[str, Any] | None) -> dict[str, Any] | None:
        if description is None:
            return None
        fusion = FIRST_STAGE_FUSIONS.create(description)
        if fusion.first_stage != "scores":
            raise ValueError("first_stage must read scores: without scores and fusion in a request, the model alone decides")
        return fusion.describe()

    @model_validator(mode="after")
    def _parts_fit_together(self) -> Self:
        for why in chain(self._misfits(), self._misfits_of_vectors()):
            raise ValueError(why)
        return self

    def _misfits(self) -> Iterator[str]:
        """Why parts do not go together."""
        named, selector, aggregator = self.selector["name"], SELECTORS.create(self.selector), AGGREGATORS.create(self.aggregator)
        if self.meaning is not None:
            if not selector.compares_vectors:
                yield f"selector {named!r} compares no vectors: leave out meaning"
            if self.cosine_scale is not None:
                yield "cosine_scale scores by the encoder's vectors: leave out meaning"
            if self.prompt is not None:
                yield "a prompt stands around the query: leave out meaning"
        if self.pre_ranking is not None:
            if self.cosine_scale is not None:
                yield "cosine_scale scores without a model: leave out pre_ranking"
            if self.asks_model:
                yield f"selector {named!r} asks the model about every document: leave out pre_ranking"
        if self.second_look is not None and (not aggregator.joint or self.prompt is not None):
            yield "second_look reads on after one sequence of blocks: aggregator must be joint, and prompt left out"
        if self.encoder is None and selector.compares_vectors:
            known = ", ".join(ENCODERS.names())
            yield f"selector {named!r} compares vectors: name an encoder that makes them (one of: {known})"
        if self.encoder and selector.compares_tokens and not ENCODERS.create(self.encoder).of_tokens:
            yield f"selector {named!r} compares tokens, and encoder {self.encoder['name']!r} has none"

    def _misfits_of_vectors(self) -> Iterator[str]:
        """The same of a model that scores by vectors alone."""
        if self.cosine_scale is not None:
            named, aggregator = self.selector["name"], AGGREGATORS.create(self.aggregator)
            scale = f"cosine_scale {self.cosine_scale:g} scores blocks by their vectors alone"
            if self.encoder is None:
                yield f"{scale}: name the encoder that makes the vectors"
            if aggregator.joint or aggregator.learned:
                yield f"{scale}: aggregator {aggregator.name!r} needs a graph: take one of max, mean, sum, term_weighted"
            if self.asks_model:
                yield f"{scale}: selector {named!r} asks a model"
            if self.packing.grow:
                yield f"{scale}: packing.grow must be false: a vector is of one block"
            if self.packing.title_tokens > 0:
                yield f"{scale}: packing.title_tokens must be 0: a block's vector has no title"

    @property
    def asks_model(self) -> bool:
        """Whether the model scores single blocks before the selection."""
        return Need.LOGITS in SELECTORS.create(self.selector).needs

    @cached_property
    def near_tokens(self) -> float:
        """How near a block's tokens must be to the query's to be evidence: see `Selector.near_tokens`."""
        return SELECTORS.create(self.selector).near_tokens
