"""Finds bundles, loads them, and opens what scores with them, at a start and at a reload."""

import logging
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from keyblock.bundle import MANIFEST_FILE, Bundle, BundleError, load_bundle
from keyblock.ranking.order import Candidate
from keyblock.runtime.batching import LENGTHS
from keyblock.runtime.model import GraphModel
from keyblock.runtime.providers import GPU, Choice
from keyblock.scoring import score_sequences
from keyblock.vector_scores import VectorModel
from service.call import Call
from service.memory import give_back
from service.queue.graphs import USUAL, Graphs, GraphScorer, Priority, Scorer
from service.queue.job import Scored
from service.queue.worker import Worker
from service.settings import Settings
from service.upstream.passages import UNNAMED, in_front_of_upstream

log = logging.getLogger(__name__)
DEFAULT = "default"  # in a directory of bundles, the bundle of this name comes first


class VectorScorer(Scorer):
    """Scores candidates by their blocks' vectors, with the values from block selection; it needs no graph and no other thread.

    It takes no turns and has no deadline of its own: everything that was prepared in time is scored.

    Args:
        bundle: whose pipeline has a `cosine_scale`.
    """

    def __init__(self, bundle: Bundle) -> None:
        super().__init__()  # the pace stays 0, since no tokens are fed
        self._pipeline, self._model = bundle.pipeline, VectorModel()

    async def score(self, call: Call, candidates: Sequence[Candidate], priority: Priority = USUAL) -> Scored:
        """See Scorer."""
        started = time.perf_counter()
        (logits, passages), _ = score_sequences(self._pipeline.aggregator, [one.sequences for one in candidates], self._model)
        return Scored(logits, 0.0, time.perf_counter() - started, passages)

    def labels(self) -> dict[str, str]:
        """See Scorer."""
        return {"precision": "int8", "provider": "vectors"}

    def describe(self, settings: Settings) -> dict[str, Any]:
        """See Scorer."""
        return {"vectors": {"cosine_scale": self._pipeline.config.cosine_scale}}


class LoadedBundle(NamedTuple):
    """A bundle that is ready to run.

    Attributes:
        bundle: the bundle, checked and built.
        graphs: its open graphs; None if it scores by vectors alone, or if another process runs its graphs.
        choice: where and in which arithmetic the graphs compute, and why; None without graphs.
        seconds: seconds that it took to open the graphs.
        elsewhere: if another process runs the graphs, the scorer that sends batches to that process.
    """

    bundle: Bundle
    graphs: Graphs | None = None
    choice: Choice | None = None
    seconds: float = 0.0
    elsewhere: Scorer | None = None

    def scorer(self, worker: Worker) -> Scorer:
        """The bundle's scorer; the worker begins to warm up its graphs, if there are any. Raises ModelDeadError."""
        if self.elsewhere is not None:
            return self.elsewhere
        if self.graphs is None or self.choice is None:
            return VectorScorer(self.bundle)
        return GraphScorer(worker, self.bundle, self.graphs, self.choice)


Open = Callable[[Bundle, Settings], LoadedBundle]
"""Opens a bundle's graphs. Raises ProviderError and SessionError."""


def find_bundles(paths: Sequence[Path]) -> list[Path]:
    """The directories of the bundles. Each path is a bundle or a directory of bundles, in which `default` comes first.

    A path that is neither is returned unchanged: the error that loading it raises says what is wrong.
    """
    return [bundle for path in paths for bundle in _bundles_in(path)]


def _bundles_in(path: Path) -> list[Path]:
    if (path / MANIFEST_FILE).exists() or not path.is_dir():
        return [path]
    folders = sorted(entry for entry in path.iterdir() if entry.is_dir() and not entry.name.startswith("."))  # no partial bundles
    bundles = sorted((entry for entry in folders if (entry / MANIFEST_FILE).exists()), key=lambda entry: entry.name != DEFAULT)
    for folder in folders if bundles else ():
        if folder not in bundles:
            log.warning("%s: holds no %s, so it is not served", folder, MANIFEST_FILE)
    return bundles or [path]


def served_bundles(settings: Settings) -> list[Bundle]:
    """The bundles to serve, see `Settings.serves_bundles`. Raises as `read_bundles` does, and if one has the upstream's name."""
    bundles = read_bundles(settings) if settings.serves_bundles else []
    if settings.upstream and (name := settings.upstream_model or UNNAMED) in [bundle.manifest.name for bundle in bundles]:
        raise BundleError(f"the upstream's model and a bundle's are both called {name!r}; change upstream_model or 'name'")
    return bundles


def upstream_bundle(settings: Settings) -> Bundle | None:
    """The bundle that prepares documents for the upstream; None without an upstream. Raises BundleError."""
    return in_front_of_upstream(load_bundle(find_bundles(settings.bundle)[0]), settings) if settings.upstream else None


def read_bundles(settings: Settings) -> list[Bundle]:
    """Every bundle that the settings name, checked. Raises BundleError if one cannot be read or two have the same name."""
    try:
        return _read_all(find_bundles(settings.bundle))
    except OSError as error:
        raise BundleError(f"{error.filename}: cannot be read ({error.strerror}); check the path and its permissions") from None


def _read_all(paths: Sequence[Path]) -> list[Bundle]:
    bundles: dict[str, Bundle] = {}
    for path in paths:
        bundle = load_bundle(path)
        longest = bundle.manifest.pipeline.packing.budget_range[1]
        if longest > LENGTHS[-1]:
            raise BundleError(f"{path}: budget_range ends at {longest} tokens; this version serves up to {LENGTHS[-1]}")
        name = bundle.manifest.name
        if name in bundles:
            other = bundles[name].path
            raise BundleError(f"{path}: its model is called {name!r}, as is that of {other}; change 'name' in a {MANIFEST_FILE}")
        bundles[name] = bundle
    return list(bundles.values())


def open_bundle(bundle: Bundle, settings: Settings) -> LoadedBundle:
    """Open a bundle's graphs, if it has any. Raises ProviderError and SessionError."""
    if bundle.manifest.graph is None:
        log.info("%s from %s: scores by the vectors of blocks, and runs no graph to score", bundle.manifest.name, bundle.path)
        return LoadedBundle(bundle)
    started = time.perf_counter()
    model = GraphModel.open(bundle, settings.provider, settings.n_threads, settings.precision)
    choice = model.session.choice
    where = choice.provider, choice.precision
    log.info("%s from %s, on %s in %s: %s", bundle.manifest.name, bundle.path, *where, choice.why)
    combine = None if model.aggregator is None else model.combine
    graphs = Graphs(model.session, model.selector, combine, ahead=int(choice.provider in GPU))
    give_back()  # while it opens a graph, the runtime frees several copies of the weights: a hundred megabytes for a small model
    return LoadedBundle(bundle, graphs, choice, time.perf_counter() - started)
