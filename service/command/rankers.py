"""Rankers of the command: the protocol, and a running service. A bundle in this process is `service.command.local`."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from keyblock.client import AccessError, Client, InvalidRequestError, Ranking
from keyblock.evidence import Activation
from keyblock.order import GROUPS, Block, ScoredBy
from keyblock.text.analyzer import Analyzer, AnalyzerConfig
from service.command.inputs import Input
from service.command.report import Report


class Found(NamedTuple):
    """What a ranker says of a document. Documents rank by (group, worth), ascending.

    Attributes:
        group: what its place comes from, as an index into GROUPS.
        worth: the negative of its logit.
        blocks: best first.
        activation: from the logit to the score, as the model's bundle has it.
    """

    group: int
    worth: float
    blocks: list[Block]
    activation: Activation = Activation()

    @property
    def score(self) -> float:
        """The relevance score: 0 to 1 of a sigmoid; by the order given, the lowest there is."""
        if GROUPS[self.group] is ScoredBy.ORDER:
            return 0.0 if self.activation.name == "sigmoid" else -self.worth
        return float(self.activation.scores(np.asarray(-self.worth)))

    @property
    def scored_by(self) -> ScoredBy:
        """What its place comes from."""
        return GROUPS[self.group]


class Asked(NamedTuple):
    """The query and the options of a ranking.

    Attributes:
        query: not blank.
        budget: tokens that the model reads of a document; None for the bundle's default.
        model: a model's name; None for the default model.
    """

    query: str
    budget: int | None = None
    model: str | None = None


class CommandError(Exception):
    """The command cannot do its work; the message is one line."""


class Ranker(Protocol):
    """Ranks documents for one query.

    Attributes:
        analyzer: reduces words to the terms that the selector compares.
        documents: most documents to give at once.
        chars: most characters to give at once.
    """

    analyzer: Analyzer
    documents: int
    chars: int

    def rank(self, inputs: Sequence[Input]) -> list[Found | None]:
        """The result of each document; None for one that is refused, which is reported."""


class RemoteRanker:
    """A running service.

    Raises KeyBlockError, here and when it ranks.
    """

    documents, chars = 256, 4_000_000

    def __init__(self, client: Client, asked: Asked, report: Report) -> None:
        self._client, self._asked, self._report = client, asked, report
        try:
            info = client.info()
        except AccessError:  # a key that may rank and no more
            info = {}
        pipeline = _pipeline(info, asked.model)
        self.analyzer = Analyzer(AnalyzerConfig.model_validate(pipeline.get("analyzer", {})))
        self._activation = Activation.model_validate(pipeline.get("activation", {}))

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
                name, problem = inputs[left.pop(at_fault)].name, error.answer.details[0].get("msg")
                self._report.fail(f"{name}: refused by the service: {problem}")
                continue
            for number, one in zip(left, found_in(ranking, self._activation, self._report), strict=True):
                found[number] = one
            break
        return found

    def _ask(self, inputs: Sequence[Input]) -> Ranking:
        query, budget, model = self._asked
        documents = as_documents(inputs)
        return self._client.rerank(query, documents, raw_scores=True, max_tokens_per_doc=budget, model=model, strict=True)


def as_documents(inputs: Sequence[Input]) -> list[dict[str, str]]:
    """The inputs as a request has them."""
    return [{"text": one.text, **({"title": one.title} if one.title else {})} for one in inputs]


def found_in(ranking: Ranking, activation: Activation, report: Report) -> list[Found | None]:
    """What a ranking with raw scores says of each document, in the order given; its warnings are reported.

    Args:
        ranking: has a result for each document.
        activation: from its raw scores to those that are shown.
        report: receives the warnings.
    """
    for warning in ranking.warnings:
        if not warning.startswith("documents without text"):  # their numbers say nothing here, and their score is 0
            report.note(warning)
    found: list[Found | None] = [None] * len(ranking)
    for result in ranking:
        blocks = [Block(block.start, block.end, block.score) for block in result.blocks]
        found[result.index] = Found(GROUPS.index(ScoredBy(result.scored_by)), -result.relevance_score, blocks, activation)
    return found


def _document_at_fault(error: InvalidRequestError) -> int | None:
    """The number of the document that a request was refused for."""
    for detail in error.answer.details[:1]:
        match detail.get("loc"):
            case [_, "documents", int(number), *_]:
                return number
    return None


def _pipeline(info: Mapping[str, Any], model: str | None) -> Mapping[str, Any]:
    """How the model reads and scores; of an older service, or one that does not say, nothing: it does it as usual."""
    named = (one for one in info.get("models", ()) if one.get("model") == model)
    found: Mapping[str, Any] = next(named, info).get("pipeline", {})
    return found
