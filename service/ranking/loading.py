"""From paths to bundles whose graphs are open: what a start and a reload have in common."""

import logging
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from keyblock.bundle import MANIFEST_FILE, Bundle, BundleError, load_bundle
from keyblock.runtime.batching import LENGTHS
from keyblock.runtime.model import GraphModel
from keyblock.runtime.providers import GPU, Choice
from service.engine.instance import Graphs
from service.memory import give_back
from service.ranking.scorers import Scorer
from service.settings import Settings
from service.telemetry.metrics import Metrics
from service.upstream.passages import UNNAMED, in_front_of_upstream

log = logging.getLogger(__name__)
DEFAULT = "default"  # the directory whose bundle is the first of a directory of bundles


class Opened(NamedTuple):
    """A bundle that is ready to be run.

    Attributes:
        bundle: checked and built.
        graphs: open; None for a bundle that scores by vectors alone, and for one whose graphs run elsewhere.
        choice: where and in which arithmetic they compute, and why; None where there are none.
        seconds: that it took to open them.
        elsewhere: makes what asks the process that runs them, where it is not this one.
    """

    bundle: Bundle
    graphs: Graphs | None
    choice: Choice | None
    seconds: float = 0.0
    elsewhere: Callable[[Metrics], Scorer] | None = None


Open = Callable[[Bundle, Settings], Opened]
"""Opens a bundle's graphs. Raises ProviderError and SessionError."""


def find_bundles(paths: Sequence[Path]) -> list[Path]:
    """The directories of the bundles. Each path is a bundle or a directory of bundles; there, `default` comes first.

    A path that is neither is left as it is: to load it tells what is wrong with it.
    """
    return [bundle for path in paths for bundle in _bundles_in(path)]


def _bundles_in(path: Path) -> list[Path]:
    if (path / MANIFEST_FILE).exists() or not path.is_dir():
        return [path]
    folders = sorted(one for one in path.iterdir() if one.is_dir() and not one.name.startswith("."))  # no half-written bundle
    found = sorted((one for one in folders if (one / MANIFEST_FILE).exists()), key=lambda one: one.name != DEFAULT)
    for folder in folders if found else ():
        if folder not in found:
            log.warning("%s: holds no %s, so it is not served", folder, MANIFEST_FILE)
    return found or [path]


def served_bundles(settings: Settings) -> list[Bundle]:
    """Those that are served, see `Settings.serves_bundles`; raises as `read_bundles` does, and for the upstream's name."""
    bundles = read_bundles(settings) if settings.serves_bundles else []
    if settings.upstream and (name := settings.upstream_model or UNNAMED) in [one.manifest.name for one in bundles]:
        raise BundleError(f"the upstream's model and a bundle's are both called {name!r}; change upstream_model or 'name'")
    return bundles


def upstream_bundle(settings: Settings) -> Bundle | None:
    """What prepares documents for the upstream; None where there is none. Raises BundleError."""
    return in_front_of_upstream(load_bundle(find_bundles(settings.bundle)[0]), settings) if settings.upstream else None


def read_bundles(settings: Settings) -> list[Bundle]:
    """Every bundle that the settings name, checked. Raises BundleError: one cannot be read, or two have one name."""
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


def open_bundle(bundle: Bundle, settings: Settings) -> Opened:
    """Open its graphs, where it has some. Raises ProviderError and SessionError."""
    if bundle.manifest.graph is None:
        return Opened(bundle, None, None)
    started = time.perf_counter()
    model = GraphModel.open(bundle, settings.provider, settings.n_threads, settings.precision)
    combine = None if model.aggregator is None else model.combine
    graphs = Graphs(model.session, model.selector, combine, ahead=int(model.session.choice.provider in GPU))
    give_back()  # a runtime frees several copies of the weights on its way: a hundred megabytes of a small model
    return Opened(bundle, graphs, model.session.choice, time.perf_counter() - started)
