"""Rankers that re-rank a query's candidates: a training run (PyTorch), a bundle (ONNX), or a service over HTTP."""

import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, Self

import httpx
from pydantic import ValidationError

from keyblock.bundle import Bundle
from keyblock.description import PipelineConfig
from keyblock.encoders import open_encoder
from keyblock.fusion import Fusion
from keyblock.pipeline import Pipeline
from keyblock.ranking.answer import Answered
from keyblock.ranking.flow import ranking
from keyblock.ranking.request import ORDER_ALONE, AnswerOptions, RankRequest, Texts
from keyblock.scoring import Model, Scored, drive, score_selections, select_documents
from keyblock.text.analyzer import DocumentFrequencies
from keyblock.text.tokenizer import Tokenizer
from keyblock.vector_scores import VectorModel
from training.data.collection import Collection
from training.data.examples import Preparation
from training.evaluate.scoring import TorchModel, empty_last
from training.model import devices
from training.model.checkpoints import chosen
from training.model.devices import fastest_device
from training.model.families import load_ranker
from training.model.ranker_module import RankerModule
from training.recipe import load_recipe, problems

CHOOSER = "chooser"  # a run's directory of the model that selects blocks for it
MERGED = ("packing", "fusion", "pre_ranking")  # parts of a pipeline in which a change may name single keys
TEACHER = "teacher"  # a run's directory of the model whose scores it learns


class Reranked(NamedTuple):
    """A query's candidates in a new order.

    Attributes:
        scores: by document id, best first.
        blocks: by document id, the offsets of its selected blocks, best first.
    """

    scores: dict[str, float]
    blocks: dict[str, list[tuple[int, int]]]


class Ranker(ABC):
    """Re-ranks candidates of one collection."""

    name: str

    @abstractmethod
    def rerank(self, query_id: str, candidates: Sequence[str]) -> Reranked:
        """Score every candidate. Ties keep the order of `candidates`."""


@dataclass
class LocalRanker(Ranker):
    """Scores in this process, through the pipeline.

    Attributes:
        name: the system's name.
        preparation: the pipeline and the collection.
        model: computes the logits.
        budget: tokens of a sequence; None for the pipeline's own.
    """

    name: str
    preparation: Preparation
    model: Model
    budget: int | None = None

    def unfused(self) -> Self:
        """The same without the selector's evidence beside the model's logit."""
        return self.with_pipeline(fusion=Fusion(), second_look=None)

    def with_pipeline(self, **parts: Any) -> Self:
        """The same with other parts of the pipeline, none of which changes how documents are prepared."""
        prepared, pipeline = self.preparation, self.preparation.pipeline
        config = pipeline.config.model_copy(update=parts)
        other = Pipeline(config, pipeline.tokenizer, pipeline.frequencies, pipeline.encoder)
        same = Preparation(prepared.collection, other, lambda document: prepared.document(document.doc_id))
        return replace(self, preparation=same)

    def score(self, query_id: str, candidates: Sequence[str], budget: int | None = None) -> Scored:
        """Selections and logits of all of a query's candidates; -inf for a document without a block."""
        documents = [self.preparation.document(d) for d in candidates]
        query, pipeline = self.preparation.query(query_id), self.preparation.pipeline
        selections = select_documents(pipeline, query, documents, self.model.choose, budget or self.budget)
        scored = score_selections(pipeline, selections, self.model)
        return scored._replace(logits=empty_last(scored.logits, scored.selections))

    def rerank(self, query_id: str, candidates: Sequence[str]) -> Reranked:
        """See Ranker; documents are ranked as in the service."""
        order = self.answered(query_id, candidates).ranking
        scores = order.scores.tolist()
        blocks = {name: [block[:2] for block in of] for name, of in zip(candidates, order.blocks, strict=True)}
        return Reranked({candidates[number]: scores[number] for number in order.order}, blocks)

    def answered(self, query_id: str, candidates: Sequence[str], asked: AnswerOptions = ORDER_ALONE) -> Answered:
        """The answer to a query about its candidates, with logits as scores."""
        pipeline, documents = self.preparation.pipeline, [self.preparation.document(d) for d in candidates]
        request = RankRequest(self.preparation.query(query_id), Texts([""] * len(documents)), raw_scores=True, asked=asked)
        return drive(ranking(request, pipeline, self.budget), documents, pipeline.aggregator, self.model)


@dataclass
class HttpRanker(Ranker):
    """Sends whole documents to a running service, as a search back end would.

    Attributes:
        name: the system's name.
        collection: gives the texts.
        client: sends the requests.
        options: fields of each request beside the query and the documents.
    """

    name: str
    collection: Collection
    client: httpx.Client
    options: Mapping[str, Any] = field(default_factory=dict)

    def rerank(self, query_id: str, candidates: Sequence[str]) -> Reranked:
        """See Ranker. Raises ValueError if the service does not answer, answers with an error, or with another body."""
        documents = [self.collection.document(d) for d in candidates]
        body: dict[str, Any] = {
            "query": self.collection.query(query_id),
            "documents": [{"id": d.doc_id, "title": d.title, "text": d.text} for d in documents],
            "return_blocks": True,
            "raw_scores": True,
            **self.options,
        }
        try:
            answer = self.client.post("/rerank", json=body)
        except httpx.HTTPError as error:
            raise ValueError(f"{self.client.base_url}: no answer from there ({error})") from None
        if answer.is_error:
            raise ValueError(f"{answer.url}: answers {answer.status_code} {answer.text[:300]}")
        try:
            results = answer.json()["results"]
            scores = {r["id"]: float(r["relevance_score"]) for r in results}
            return Reranked(scores, {r["id"]: [(b["start"], b["end"]) for b in r["blocks"]] for r in results})
        except (KeyError, TypeError, ValueError) as error:
            details = f"{type(error).__name__}: {error}; it begins {answer.text[:80]!r}"
            raise ValueError(f"{answer.url} does not answer as POST /rerank does ({details})") from None


def load_run_pipeline(run: Path) -> Pipeline:
    """The pipeline of a run directory. Raises ValueError or OSError for a directory that holds no run, or a damaged one."""
    path = run / "pipeline.json"
    try:
        config = PipelineConfig.model_validate_json(path.read_text(encoding="utf-8"))
    except ValidationError as error:
        raise ValueError(f"{path}: {problems(error)}") from None
    tokenizer, frequencies = Tokenizer(run / "tokenizer.json"), DocumentFrequencies.read(run / "frequencies.tsv")
    return Pipeline(config, tokenizer, frequencies, open_encoder(config.encoder, run, tokenizer))


def run_ranker(run: Path, collection: Collection, budget: int | None = None, bf16: bool | None = None) -> LocalRanker:
    """A training run's model, on a GPU if there is one.

    The precision is that of the run's recipe, unless `bf16` decides it; a line on stderr says which.
    Raises ValueError or OSError for a directory that holds no run or a damaged one, and for a budget above the model's positions.
    """
    pipeline = load_run_pipeline(run)
    model, chooser, device = load_ranker(chosen(run)), load_chooser(run), fastest_device()
    if budget and budget > model.max_length:
        raise ValueError(f"{run}: a budget of {budget} tokens exceeds the {model.max_length} that its model reads")
    if bf16 is None:  # a directory without a recipe, such as an iteration of BeST, has no precision of its own
        precision = load_recipe(run / "recipe.yaml").precision if (run / "recipe.yaml").exists() else "auto"
    else:
        precision = "bf16" if bf16 else "fp32"
    in_bf16 = devices.in_bf16(precision, device)
    scorer = TorchModel(model.to(device), pipeline.tokenizer, in_bf16, None if chooser is None else chooser.to(device))
    slow = "; PyTorch takes several times as long as the bundle that keyblock-export makes of it" if device.type == "cpu" else ""
    print(f"{run.name}: computes in {devices.in_words(precision, device)}{slow}", file=sys.stderr)
    return LocalRanker(run.name, Preparation(collection, pipeline), scorer, budget)


def load_chooser(run: Path) -> RankerModule | None:
    """The model that selects in place of the run's own (BinB2); None if the run keeps none."""
    return load_ranker(run / CHOOSER) if (run / CHOOSER).is_dir() else None


def bundle_ranker(
    bundle: Bundle, model: Model, collection: Collection, budget: int | None = None, changes: Mapping[str, Any] | None = None
) -> LocalRanker:
    """A bundle through ONNX Runtime, as the service runs it; `changes` replace parts of its pipeline.

    Raises ValueError for changes that do not make a valid pipeline.
    """
    pipeline = changed(bundle.pipeline, changes, bundle.path) if changes else bundle.pipeline
    model = model if pipeline.config.cosine_scale is None else VectorModel()
    name = bundle.manifest.name + (", changed" if changes else "")
    return LocalRanker(name, Preparation(collection, pipeline), model, budget)


def changed(pipeline: Pipeline, changes: Mapping[str, Any], folder: Path) -> Pipeline:
    """The pipeline with changed parts. Of the parts in MERGED single keys are changed; other parts are replaced.

    Args:
        pipeline: the pipeline to change; it stays as it is.
        changes: the new parts by name.
        folder: the directory of a changed encoder's file.

    Raises ValueError for changes that do not make a valid pipeline, or a missing encoder.
    """
    config = pipeline.config.model_dump() | {"meaning": None}  # its encoder reads stored documents: there are none here
    parts = {part: config[part] | value if part in MERGED and config[part] and value else value for part, value in changes.items()}
    named = {part: {"name": value} if isinstance(value, str) else value for part, value in parts.items()}
    try:
        other = PipelineConfig.model_validate(config | named)
    except ValidationError as error:
        raise ValueError(f"--pipeline: {problems(error)}") from None
    encoder = open_encoder(other.encoder, folder, pipeline.tokenizer) if "encoder" in changes else pipeline.encoder
    return Pipeline(other, pipeline.tokenizer, pipeline.frequencies, encoder)
