"""What ranks the documents of a command: a bundle in this process, or a running service."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np

from keyblock.bundle import load_bundle
from keyblock.client import Client, InvalidRequestError, Ranking
from keyblock.fusion import sigmoid
from keyblock.runtime.model import GraphModel
from keyblock.scoring import score_documents
from keyblock.text import Analyzer, AnalyzerConfig
from service.command.inputs import Input
from service.command.report import Report
from service.ranking import GROUPS, Block, ScoredBy, candidate, rank
from service.settings import Settings


class Found(NamedTuple):
    """What is found of a document; of two the one that is less ranks before the other.

    Attributes:
        group: of GROUPS: what its place comes from.
        worth: the negative of its logit.
        blocks: best first.
    """

    group: int
    worth: float
    blocks: list[Block]

    @property
    def score(self) -> float:
        """From 0 to 1."""
        return 0.0 if GROUPS[self.group] is ScoredBy.ORDER else float(sigmoid(np.asarray(-self.worth)))

    @property
    def scored_by(self) -> ScoredBy:
        """What its place comes from."""
        return GROUPS[self.group]


class Ranker(Protocol):
    """Ranks documents for one query.

    Attributes:
        analyzer: says what words the selector takes for the same.
        documents: how many it is given at once, at most.
        chars: how many characters.
    """

    analyzer: Analyzer
    documents: int
    chars: int

    def rank(self, inputs: Sequence[Input]) -> list[Found | None]:
        """What is found of each; None for one that is refused, which is reported."""


class LocalRanker:
    """A bundle in this process: prepared, selected, scored and fused by the same functions as in the service.

    Args:
        settings: name the bundle, and what runs it.
        query: the query.
        budget: tokens a document may have; none for the bundle's own.

    Raises BundleError, ProviderError or SessionError, each one clear line.
    """

    documents, chars = 64, 1_000_000

    def __init__(self, settings: Settings, query: str, budget: int | None, report: Report) -> None:
        bundle = load_bundle(settings.bundle)
        self._pipeline = bundle.pipeline
        self._model = GraphModel.open(bundle, settings.provider, settings.n_threads, settings.precision)
        self._query = self._pipeline.prepare_query(query)
        packing = self._pipeline.config.packing
        low, high = packing.budget_range
        self._budget = packing.budget if budget is None else min(max(budget, low), high)
        if budget not in (None, self._budget):
            report.note(f"--budget: {self._budget}; this model was measured at {low} to {high} tokens")
        if self._query.truncated:
            report.note(f"the model reads the query's first {packing.query_tokens} tokens")
        self.analyzer = self._pipeline.analyzer

    def rank(self, inputs: Sequence[Input]) -> list[Found | None]:
        """See Ranker."""
        documents = self._pipeline.prepare_documents([one.text for one in inputs], [one.title or "" for one in inputs])
        logits, selections = score_documents(self._pipeline, self._query, documents, self._model, self._budget)
        candidates = [candidate(*pair) for pair in zip(documents, selections, strict=True)]
        ranking = rank(candidates, logits, self._pipeline.config.fusion, self._budget, top_n=0, raw=True)
        groups = [GROUPS.index(by) for by in ranking.scored_by]
        return [Found(*one) for one in zip(groups, (-ranking.scores).tolist(), ranking.blocks, strict=True)]


class RemoteRanker:
    """A running service.

    Raises KeyBlockError, here and when it ranks.
    """

    documents, chars = 256, 4_000_000

    def __init__(self, client: Client, query: str, budget: int | None, report: Report) -> None:
        self._client, self._query, self._budget, self._report = client, query, budget, report
        told = client.info().get("pipeline", {})
        self.analyzer = Analyzer(AnalyzerConfig.model_validate(told.get("analyzer", {})))

    def rank(self, inputs: Sequence[Input]) -> list[Found | None]:
        """See Ranker."""
        found: list[Found | None] = [None] * len(inputs)
        left = list(range(len(inputs)))
        while left:
            try:
                ranking = self._ask([inputs[number] for number in left])
            except InvalidRequestError as error:
                at_fault = _document_at_fault(error)
                if at_fault is None:
                    raise
                name, problem = inputs[left.pop(at_fault)].name, error.told.details[0].get("msg")
                self._report.fail(f"{name}: refused by the service: {problem}")
                continue
            for result in ranking:
                blocks = [Block(block.start, block.end, block.score) for block in result.blocks]
                group = GROUPS.index(ScoredBy(result.scored_by))
                found[left[result.index]] = Found(group, -result.relevance_score, blocks)
            break
        return found

    def _ask(self, inputs: Sequence[Input]) -> Ranking:
        documents = [{"text": one.text, **({"title": one.title} if one.title else {})} for one in inputs]
        ranking = self._client.rerank(self._query, documents, raw_scores=True, max_tokens_per_doc=self._budget)
        for warning in ranking.warnings:
            if not warning.startswith("documents without text"):  # their numbers say nothing here, and their score is 0
                self._report.note(warning)
        return ranking


def _document_at_fault(error: InvalidRequestError) -> int | None:
    """The number of the document that a request was refused for."""
    for detail in error.told.details[:1]:
        match detail.get("loc"):
            case [_, "documents", int(number), *_]:
                return number
    return None
