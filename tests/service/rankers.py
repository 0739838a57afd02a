"""A ranker of one bundle whose graphs are in the tests' hands, and other bundles made of one."""

import functools
import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

from pydantic_core import to_jsonable_python
from starlette.testclient import TestClient

from keyblock.bundle import MANIFEST_FILE, Bundle, load_bundle
from keyblock.pipeline import Pipeline
from keyblock.runtime.providers import Precision, Provider, resolve
from service.app import create_app
from service.queue.graphs import Graphs, GraphScorer
from service.queue.worker import Worker
from service.ranking.loading import LoadedBundle
from service.ranking.ranker import Ranker
from service.settings import Settings
from service.store.base import DocumentStore
from service.store.opening import open_store
from service.telemetry.metrics import TABLE
from tests.service.faults import wait_for


def scorer_of(worker: Worker, name: str, graphs: Graphs, pipeline: Pipeline) -> GraphScorer:
    """These graphs with this pipeline, without a bundle."""
    bundle: Any = SimpleNamespace(manifest=SimpleNamespace(name=name), pipeline=pipeline, graph=SimpleNamespace(marks=False))
    return GraphScorer(worker, bundle, graphs, resolve(Provider.CPU, precision=Precision.FP32))


def serving(settings: Settings, graphs: Graphs, store: DocumentStore | None = None) -> Ranker:
    """A ranker that serves these graphs with everything else in the settings' one bundle."""
    (path,) = settings.bundle
    bundle, choice = _read(path, (path / MANIFEST_FILE).stat().st_mtime_ns), resolve(Provider.CPU, precision=Precision.FP32)
    return Ranker(settings, [LoadedBundle(bundle, graphs, choice)], store)


class Served(NamedTuple):
    """An application, and the ranker that it serves."""

    client: TestClient
    ranker: Ranker

    def run(self, work: Callable[[], Any]) -> None:
        """Do it on the application's event loop."""
        assert self.client.portal is not None
        self.client.portal.call(work)

    def sample(self, name: str, **labels: str) -> float:
        """A metric by its name in TABLE."""
        return sample(self.ranker, name, **labels)


def sample(ranker: Ranker, name: str, **labels: str) -> float:
    """A metric by its name in TABLE; 0 where nothing was counted."""
    return ranker.metrics.registry.get_sample_value(TABLE[name].name, labels) or 0.0


@contextmanager
def started(settings: Settings, graphs: Graphs, **changes: Any) -> Iterator[Served]:
    """An application that serves these graphs with some settings changed, once it is ready."""
    changed = settings.model_copy(update=changes)
    ranker = serving(changed, graphs, open_store(changed))
    with TestClient(create_app(changed, ranker)) as client:
        wait_for(lambda: ranker.worker.ready)
        yield Served(client, ranker)


@functools.cache
def _read(path: Path, written: int) -> Bundle:
    """A hundred applications are started of a few bundles."""
    return load_bundle(path)


def another(path: Path, place: Path, name: str, **parts: Any) -> Path:
    """A bundle like the one at `path`, in place of what is at `place`, with another name and other parts of the pipeline."""
    manifest = json.loads((path / MANIFEST_FILE).read_text())
    manifest["name"] = name
    manifest["pipeline"] |= to_jsonable_python(parts)
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(path, place)
    (place / MANIFEST_FILE).write_text(json.dumps(manifest))
    return place
