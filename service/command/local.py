"""A bundle that ranks the documents of a command in its process, as the service does."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from keyblock.bundle import Bundle, BundleError
from keyblock.order import GROUPS, candidate, rank
from keyblock.runtime.model import GraphModel
from keyblock.runtime.providers import ProviderError
from keyblock.runtime.session import SessionError
from keyblock.scoring import score_documents
from service.command.inputs import Input
from service.command.rankers import Asked, CommandError, Found
from service.command.report import Report
from service.ranking.loading import read_bundles
from service.settings import Settings


class LocalRanker:
    """A bundle in this process: prepared, selected, scored and fused by the same functions as in the service.

    Args:
        settings: the bundles, the provider, the threads.
        asked: the query and the options.
        report: receives a note where an option cannot be followed.

    Raises CommandError where there is no such bundle, or it cannot be run.
    """

    documents, chars = 64, 1_000_000

    def __init__(self, settings: Settings, asked: Asked, report: Report) -> None:
        try:
            bundle = _chosen(read_bundles(settings), asked.model)
            self._model = GraphModel.open(bundle, settings.provider, settings.n_threads, settings.precision)
        except (BundleError, ProviderError, SessionError) as error:
            raise CommandError(str(error)) from None
        self._pipeline = bundle.pipeline
        self._query = self._pipeline.prepare_query(asked.query)
        packing = self._pipeline.config.packing
        low, high = packing.budget_range
        self._budget = packing.budget if asked.budget is None else min(max(asked.budget, low), high)
        if asked.budget not in (None, self._budget):
            report.note(f"--budget: {self._budget}; this model was measured at {low} to {high} tokens")
        if self._query.truncated:
            report.note(f"query: the model reads {self._query.reads}")
        self.analyzer = self._pipeline.analyzer

    def rank(self, inputs: Sequence[Input]) -> list[Found | None]:
        """See Ranker."""
        documents = self._pipeline.prepare_documents([one.text for one in inputs], [one.title or "" for one in inputs])
        logits, selections = score_documents(self._pipeline, self._query, documents, self._model, self._budget)
        candidates = [candidate(*pair) for pair in zip(documents, selections, strict=True)]
        ranking = rank(candidates, logits, self._pipeline.config.fusion, self._budget, top_n=0, raw=True)
        groups = [GROUPS.index(by) for by in ranking.scored_by]
        return [Found(*one) for one in zip(groups, (-ranking.scores).tolist(), ranking.blocks, strict=True)]


def open_local(bundle: Path | None, asked: Asked, report: Report) -> LocalRanker:
    """As the environment's settings have it, with another bundle where one is named. Raises CommandError and ValidationError."""
    given: dict[str, Any] = {} if bundle is None else {"bundle": bundle}
    return LocalRanker(Settings(**given), asked, report)


def _chosen(bundles: Sequence[Bundle], model: str | None) -> Bundle:
    """The bundle of that name; the first where none is named."""
    if model is None:
        return bundles[0]
    names = {bundle.manifest.name: bundle for bundle in bundles}
    if model not in names:
        raise CommandError(f"--model: there is no {model!r}; there is {', '.join(names)}")
    return names[model]
