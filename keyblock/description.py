"""The description of a pipeline: its components, how many tokens of each kind a sequence holds, and how a score is made."""

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Annotated, Any, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, field_validator, model_validator

import keyblock.sentence_vectors  # noqa: F401, registers its component
from keyblock.aggregation import AGGREGATORS
from keyblock.encoders import ENCODERS
from keyblock.fusion import FIRST_STAGE_FUSIONS, Activation, Fusion, SecondLook, SpanScores
from keyblock.meaning import Meaning
from keyblock.packing import PackingConfig
from keyblock.pre_ranking import PreRanking
from keyblock.segmenters import SEGMENTERS
from keyblock.selectors import SELECTORS, Need
from keyblock.text.alphabets import TrainedOn
from keyblock.text.analyzer import AnalyzerConfig
from keyblock.text.prompt import Prompt


class PipelineConfig(BaseModel):
    """The whole description; `bundle.json` and a training run carry it as JSON."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)  # defaults are written out with their parameters
    analyzer: AnalyzerConfig = AnalyzerConfig()
    segmenter: Annotated[dict[str, Any], AfterValidator(SEGMENTERS.described)] = {"name": "cogltx"}
    selector: Annotated[dict[str, Any], AfterValidator(SELECTORS.described)] = {"name": "bm25"}
    encoder: Annotated[dict[str, Any], AfterValidator(ENCODERS.described)] | None = Field(
        None, description="makes the vectors that a selector compares; none: no vectors"
    )
    cosine_scale: float | None = Field(
        None,
        gt=0,
        description="a block's logit is the cosine of its vector and the query's, times this: the ranker is a bi-encoder with "
        "stored vectors, and no graph reads tokens to score; none: a graph scores",
    )
    packing: PackingConfig = PackingConfig()
    aggregator: Annotated[dict[str, Any], AfterValidator(AGGREGATORS.described)] = {"name": "joint"}
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
        for misfit, why in self._misfits():
            if misfit:
                raise ValueError(why)
        return self

    def _misfits(self) -> Iterator[tuple[bool, str]]:
        """Whether parts do not go together, and why."""
        named, selector, aggregator = self.selector["name"], SELECTORS.create(self.selector), AGGREGATORS.create(self.aggregator)
        by_vectors = self.cosine_scale is not None
        if self.meaning is not None:
            yield not selector.compares_vectors, f"selector {named!r} compares no vectors: leave out meaning"
            yield by_vectors, "cosine_scale scores by the encoder's vectors: leave out meaning"
            yield self.prompt is not None, "a prompt stands around the query: leave out meaning"
        if self.pre_ranking is not None:
            yield by_vectors, "cosine_scale scores without a model: leave out pre_ranking"
            yield self.asks_model, f"selector {named!r} asks the model about every document: leave out pre_ranking"
        if self.second_look is not None:
            why = "second_look reads on after one sequence of blocks: aggregator must be joint, and prompt left out"
            yield not aggregator.joint or self.prompt is not None, why
        if self.encoder is None:
            why = f"selector {named!r} compares vectors: name an encoder that makes them (one of: {', '.join(ENCODERS.names())})"
            yield selector.compares_vectors, why
        else:
            of_tokens = ENCODERS.create(self.encoder).of_tokens
            why = f"selector {named!r} compares tokens, and encoder {self.encoder['name']!r} has none"
            yield selector.compares_tokens and not of_tokens, why
        if by_vectors:
            scale = f"cosine_scale {self.cosine_scale:g} scores blocks by their vectors alone"
            yield self.encoder is None, f"{scale}: name the encoder that makes the vectors"
            why = f"{scale}: aggregator {aggregator.name!r} needs a graph: take one of max, mean, sum, term_weighted"
            yield aggregator.joint or aggregator.learned, why
            yield self.asks_model, f"{scale}: selector {named!r} asks a model"
            yield self.packing.grow, f"{scale}: packing.grow must be false: a vector is of one block"
            yield self.packing.title_tokens > 0, f"{scale}: packing.title_tokens must be 0: a block's vector has no title"

    @property
    def asks_model(self) -> bool:
        """Whether the model scores single blocks before the selection."""
        return Need.LOGITS in SELECTORS.create(self.selector).needs

    @cached_property
    def near_tokens(self) -> float:
        """How near a block's tokens must be to the query's to be evidence: see `Selector.near_tokens`."""
        return SELECTORS.create(self.selector).near_tokens
