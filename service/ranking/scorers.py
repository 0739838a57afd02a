"""Scorers of a model's candidates: a bundle's graphs behind the queue, a bundle's vectors, or a reranker that runs elsewhere."""

import time
from collections.abc import Sequence
from concurrent.futures import Future
from itertools import chain
from typing import Any, Protocol

import numpy as np

from keyblock.bundle import Bundle
from keyblock.packing import Packed
from keyblock.pipeline import Pipeline
from keyblock.ranking.order import Candidate
from keyblock.scoring import score_sequences
from keyblock.vector_scores import VectorModel
from service.call import Call
from service.pace import Pace, SecondsAhead
from service.queue.graphs import USUAL, Priority
from service.queue.job import Aggregation, Scored
from service.settings import Settings
from service.telemetry.metrics import Metrics


class Scorer(Protocol):
    """Turns a model's candidates into logits.

    Attributes:
        stage: name of the scoring time in metrics, traces and answers.
        reads_texts: whether it needs the documents' texts, and not only their tokens.
        marks: whether it can mark the tokens that answer.
    """

    stage: str
    reads_texts: bool
    marks: bool

    @property
    def pace(self) -> Pace:
        """Seconds per token."""

    @property
    def warmed(self) -> "Future[None]":
        """Done once the scorer accepts requests; cancelling it gives the model up."""

    @property
    def fell_back(self) -> bool:
        """Whether no GPU was found although this build could use one."""

    def backlog(self) -> SecondsAhead:
        """The work that waits for the scorer at this moment."""

    async def score(self, call: Call, candidates: Sequence[Candidate], priority: Priority) -> Scored:
        """The candidates' logits. Raises ModelError or ModelDeadError."""

    async def choose(self, packed: Sequence[Packed], priority: Priority) -> Scored:
        """Logits of single blocks, for a learned selector. Raises ModelError or ModelDeadError."""

    def labels(self) -> dict[str, str]:
        """The precision and the provider, for metrics."""

    def describe(self, settings: Settings) -> dict[str, Any]:
        """The precision, the provider and more, for /info."""

    async def close(self) -> None:
        """Release everything that the scorer holds beside the queue."""


class VectorScorer:
    """Scores candidates by their blocks' vectors, with the values from block selection; it needs no graph and no other thread.

    It takes no turns and has no deadline of its own: everything that was prepared in time is scored.

    Args:
        bundle: whose pipeline has a `cosine_scale`.
    """

    stage, reads_texts, marks, fell_back = "model", False, False, False

    def __init__(self, bundle: Bundle) -> None:
        self.pace = Pace()  # stays 0, since no tokens are fed
        self.warmed: Future[None] = Future()
        self.warmed.set_result(None)
        self._pipeline, self._model = bundle.pipeline, VectorModel()

    def backlog(self) -> SecondsAhead:
        """See Scorer: nothing waits."""
        return lambda _: 0.0

    async def score(self, call: Call, candidates: Sequence[Candidate], priority: Priority = USUAL) -> Scored:
        """See Scorer."""
        started = time.perf_counter()
        (logits, passages), _ = score_sequences(self._pipeline.aggregator, [one.sequences for one in candidates], self._model)
        return Scored(logits, 0.0, time.perf_counter() - started, passages)

    async def choose(self, packed: Sequence[Packed], priority: Priority = USUAL) -> Scored:
        """See Scorer. Raises ValueError, since no pipeline of vectors uses a learned selector."""
        return Scored(self._model.choose(packed), 0.0, 0.0)

    def labels(self) -> dict[str, str]:
        """See Scorer."""
        return {"precision": "int8", "provider": "vectors"}

    def describe(self, settings: Settings) -> dict[str, Any]:
        """See Scorer."""
        return {"vectors": {"cosine_scale": self._pipeline.config.cosine_scale}}

    async def close(self) -> None:
        """See Scorer: nothing is held."""


class UpstreamScorer:
    """A reranker that runs elsewhere and scores each candidate's passages.

    Args:
        bundle: the pipeline in front of the upstream, see `service.upstream.passages`.
        settings: the upstream's address, and how to use it.
        metrics: the service's metrics, labelled with this model.
    """

    stage, reads_texts, marks, fell_back = "upstream", True, False, False

    def __init__(self, bundle: Bundle, settings: Settings, metrics: Metrics) -> None:
        from service.upstream.asking import Asker  # imports an HTTP client, which only an upstream needs
        from service.upstream.client import Upstream

        self._upstream = Upstream(settings, metrics)
        self._asker = Asker(self._upstream, settings.upstream_batch, settings.upstream_concurrency)
        self._pipeline = bundle.pipeline
        self._settings = settings
        self.pace = self._asker.pace
        self.warmed: Future[None] = Future()
        self.warmed.set_result(None)

    def backlog(self) -> SecondsAhead:
        """See Scorer."""
        return self._asker.backlog()

    async def score(self, call: Call, candidates: Sequence[Candidate], priority: Priority = USUAL) -> Scored:
        """See Scorer; if the upstream fails, `Scored.problem` says why, and the documents have no logit."""
        from service.upstream.asking import Pairs

        counts = np.fromiter((len(one.sequences) for one in candidates), np.intp, len(candidates))
        if not counts.sum():
            return Scored(np.full(len(candidates), -np.inf, np.float32), 0.0, 0.0)
        packed = chain.from_iterable(one.sequences for one in candidates)
        tokens = np.fromiter((len(one.ids) for one in packed), np.intp, int(counts.sum()))
        ends = np.cumsum(counts)
        documents = range(len(candidates)) if priority.order is None else priority.order
        order = [number for document in documents for number in range(ends[document] - counts[document], ends[document])]
        timeout_at = time.perf_counter() + self._settings.upstream_timeout_ms / 1000
        until = timeout_at if priority.until is None else min(priority.until, timeout_at)
        passages = _passages(call, candidates, self._pipeline)
        answer = await self._asker.ask(Pairs(call.query, passages, tokens, order, call.instruction or ""), until)
        scored = answer.logits > -np.inf
        logits, of_passages = Aggregation(self._pipeline.aggregator, counts, None, len(tokens)).aggregate_known(
            answer.logits, scored
        )
        problem = answer.problem
        if not problem and priority.until is None and not scored.all():
            problem = f"has not answered in {self._settings.upstream_timeout_ms} ms"
        return Scored(logits, answer.queue_seconds, answer.seconds, of_passages, problem)

    async def choose(self, packed: Sequence[Packed], priority: Priority = USUAL) -> Scored:
        """See Scorer. Raises TypeError, since no pipeline in front of an upstream uses a learned selector."""
        raise TypeError("an upstream chooses no blocks")

    def labels(self) -> dict[str, str]:
        """See Scorer."""
        return {"precision": "", "provider": self.stage}

    def describe(self, settings: Settings) -> dict[str, Any]:
        """See Scorer."""
        names = ("passages", "passage_tokens", "batch", "concurrency", "timeout_ms", "retries")
        about = {name: getattr(settings, f"upstream_{name}") for name in names}
        return {"upstream": {"url": settings.upstream_place, "kind": self._upstream.kind.value, **about}}

    async def close(self) -> None:
        """See Scorer."""
        await self._upstream.close()


def _passages(call: Call, candidates: Sequence[Candidate], pipeline: Pipeline) -> list[str]:
    """The texts of all sequences, cut to the tokens asked for, in their order; a candidate's are in document order."""
    from service.upstream.passages import passage_text

    most = pipeline.config.packing.kept_inside(call.max_tokens)
    texts, titles = pipeline.reader.readable(call.documents.texts), call.documents.titles
    return [
        passage_text(texts[number], titles[number], block.start, block.end, most)
        for number, one in enumerate(candidates)
        for block in sorted(one.blocks)
    ]
