"""Ranks the documents of a command with a bundle in its own process, as the service does."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from keyblock import Ranker
from keyblock.bundle import Bundle, BundleError
from keyblock.results import Result
from keyblock.runtime.providers import ProviderError
from keyblock.runtime.session import SessionError
from service.command.inputs import Input
from service.command.rankers import Asked, CommandError, as_documents, note_warnings
from service.command.report import Report
from service.ranking.loading import read_bundles
from service.settings import Settings


class LocalRanker:
    """A bundle in this process: see `keyblock.Ranker`.

    Args:
        settings: the bundles, the provider, the threads.
        asked: the query and the options.
        report: gets a note if an option cannot be followed.

    Raises CommandError if there is no such bundle, or it cannot run.
    """

    documents, chars = 64, 1_000_000

    def __init__(self, settings: Settings, asked: Asked, report: Report) -> None:
        try:
            bundle = _chosen(read_bundles(settings), asked.model)
            self._ranker = Ranker.open(bundle, provider=settings.provider, precision=settings.precision, threads=settings.n_threads)
        except (BundleError, ProviderError, SessionError) as error:
            raise CommandError(str(error)) from None
        self._asked, self._report = asked, report
        self.analyzer, self.activation = bundle.pipeline.analyzer, bundle.pipeline.config.activation

    def rank(self, inputs: Sequence[Input]) -> list[Result]:
        """See Ranker."""
        query, budget, *_ = self._asked
        top_n, documents = self._asked.results(len(inputs)), as_documents(inputs)
        ranking = self._ranker.rank(query, documents, top_n=top_n, max_tokens_per_doc=budget, raw_scores=True)
        note_warnings(ranking, self._report)
        return list(ranking)


def open_local(bundle: Path | None, asked: Asked, report: Report) -> LocalRanker:
    """A ranker with the environment's settings, or with another bundle if one is named. Raises CommandError and ValidationError."""
    given: dict[str, Any] = {} if bundle is None else {"bundle": bundle}
    return LocalRanker(Settings(**given), asked, report)


def _chosen(bundles: Sequence[Bundle], model: str | None) -> Bundle:
    """The bundle of this name; the first if None."""
    if model is None:
        return bundles[0]
    names = {bundle.manifest.name: bundle for bundle in bundles}
    if model not in names:
        raise CommandError(f"--model: there is no {model!r}; there is {', '.join(names)}")
    return names[model]
