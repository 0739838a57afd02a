"""Rankers of the command: the protocol, and a running service. A bundle in this process is `service.command.local`."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, Protocol

import numpy as np

from keyblock.client import AccessError, Client, InvalidRequestError, Ranking, RerankOptions, Result
from keyblock.fusion import Activation
from keyblock.results import ORDER
from keyblock.text.analyzer import Analyzer, AnalyzerConfig
from service.command.inputs import Input
from service.command.report import Report


class Asked(NamedTuple):
    """The query and the options of a ranking.

    Attributes:
        query: not blank.
        budget: tokens that the model reads of a document; None for the bundle's default.
        model: a model's name; None for the default model.
        top: documents that will be shown, which are those that the model has to read; 0 for all.
    """

    query: str
    budget: int | None = None
    model: str | None = None
    top: int = 0

    def results(self, documents: int) -> int:
        """How many of these documents can be among those that will be shown."""
        return min(self.top or documents, documents)


class CommandError(Exception):
    """The command cannot do its work; the message is one line."""


class Ranker(Protocol):
    """Ranks documents for one query.

    Attributes:
        analyzer: reduces words to the terms that the selector compares.
        activation: turns raw scores into those that are shown.
        documents: most documents to rank at once.
        chars: most characters to rank at once.
    """

    analyzer: Analyzer
    activation: Activation
    documents: int
    chars: int

    def rank(self, inputs: Sequence[Input]) -> list[Result]:
        """The results of those that can be shown, with raw scores, best first; a refused document is reported, and has none."""


class RemoteRanker:
    """Ranks with a running service.

    Raises KeyBlockError, here and in `rank`.
    """

    documents, chars = 256, 4_000_000

    def __init__(self, client: Client, asked: Asked, report: Report) -> None:
        self._client, self._asked, self._report = client, asked, report
        try:
            info = client.info()
        except AccessError:  # the key may only rank
            info = {}
        pipeline = _pipeline(info, asked.model)
        self.analyzer = Analyzer(AnalyzerConfig.model_validate(pipeline.get("analyzer", {})))
        self.activation = Activation.model_validate(pipeline.get("activation", {}))

    def rank(self, inputs: Sequence[Input]) -> list[Result]:
        """See Ranker."""
        remaining = list(range(len(inputs)))
        while remaining:
            try:
                ranking = self._ask([inputs[number] for number in remaining])
            except InvalidRequestError as error:
                at_fault = _document_at_fault(error)
                if at_fault is None:
                    raise
                name, problem = inputs[remaining.pop(at_fault)].name, error.details[0].get("msg")
                self._report.fail(f"{name}: refused by the service: {problem}")
            else:
                note_warnings(ranking, self._report)
                return [replace(result, index=remaining[result.index]) for result in ranking]
        return []

    def _ask(self, inputs: Sequence[Input]) -> Ranking:
        query, budget, model, _ = self._asked
        top_n, documents = self._asked.results(len(inputs)), as_documents(inputs)
        options: RerankOptions = {"max_tokens_per_doc": budget, "model": model, "top_n": top_n, "raw_scores": True, "strict": True}
        return self._client.rerank(query, documents, **options)


def as_documents(inputs: Sequence[Input]) -> list[dict[str, str]]:
    """The inputs in the form of a request."""
    return [{"text": one.text, **({"title": one.title} if one.title else {})} for one in inputs]


def note_warnings(ranking: Ranking, report: Report) -> None:
    """Report the warnings of a ranking."""
    for warning in ranking.warnings:
        if not warning.startswith("documents without text"):  # the numbers in this warning mean nothing here
            report.note(warning)


def shown_score(result: Result, activation: Activation) -> float:
    """The relevance score of a raw one, from 0 to 1 for a sigmoid; a document in the order given has the lowest one."""
    if result.scored_by == ORDER:
        return 0.0 if activation.name == "sigmoid" else result.relevance_score
    return float(activation.scores(np.asarray(result.relevance_score)))


def _document_at_fault(error: InvalidRequestError) -> int | None:
    """The number of the document for which a request was refused."""
    for detail in error.details[:1]:
        match detail.get("loc"):
            case [_, "documents", int(number), *_]:
                return number
    return None


def _pipeline(info: Mapping[str, Any], model: str | None) -> Mapping[str, Any]:
    """The model's pipeline; empty if the service, an older one perhaps, does not give it."""
    named = (one for one in info.get("models", ()) if one.get("model") == model)
    found: Mapping[str, Any] = next(named, info).get("pipeline", {})
    return found
