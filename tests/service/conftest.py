"""The application that serves a small bundle, and what tests of the service share."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from keyblock.bundle import FREQUENCIES_FILE, GRAPH_FILE, Manifest, load_bundle, write_bundle
from keyblock.runtime.providers import Precision, Provider
from keyblock.runtime.session import Session
from keyblock.text.analyzer import DocumentFrequencies
from service.app import create_app
from service.queue.graphs import Graphs
from service.ranking.ranker import Ranker
from service.settings import Settings
from tests.service.clock import Leaping
from tests.service.faults import Faulty
from tests.support.vectors import concept_table

ROOT = Path(__file__).parents[2]


@contextmanager
def warm(settings: Settings) -> Iterator[TestClient]:
    """An application that is ready."""
    with TestClient(create_app(settings, Ranker.load(settings))) as client:
        while client.get("/health/ready").status_code != 200:
            assert client.get("/health/live").status_code == 200
        yield client


def rerank(client: TestClient, **body: Any) -> dict[str, Any]:
    """The answer to a request, which must be answered."""
    response = client.post("/rerank", json=body)
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer


@pytest.fixture(scope="session")
def settings(bundle_path: Path) -> Settings:
    """Small limits, exact arithmetic."""
    return Settings(
        bundle=(bundle_path,),
        provider=Provider.CPU,
        precision=Precision.FP32,
        threads=2,
        token_cap=1024,
        score_cache_bytes=0,  # tests that ask the same again mean the model
        max_documents=64,
        max_document_chars=3_000_000,
        max_body_bytes=8_000_000,
        hung_seconds=600,  # clocks of tests may leap
    )


@pytest.fixture(scope="session")
def client(settings: Settings) -> Iterator[TestClient]:
    """The application, started and warm."""
    with warm(settings) as client:
        yield client


@pytest.fixture(scope="session")
def embedded(settings: Settings) -> Iterator[TestClient]:
    """The embedded bundle, served with the cache of scores."""
    with warm(settings.model_copy(update={"bundle": (ROOT / "models" / "default",), "score_cache_bytes": 1 << 20})) as client:
        yield client


@pytest.fixture(scope="session")
def ranker(client: TestClient) -> Ranker:
    """The ranker that the client's application serves."""
    app: Any = client.app
    served: Ranker = app.state.ranker
    return served


@pytest.fixture(scope="session")
def session(bundle_path: Path) -> Session:
    """The bundle's graph on the CPU, for comparisons and fault injection."""
    return Session(load_bundle(bundle_path).graph_path, Provider.CPU, 1)


@pytest.fixture
def faulty(session: Session) -> Faulty:
    return Faulty(session)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Leaping:
    """A clock that a test lets leap."""
    return Leaping(monkeypatch)


@pytest.fixture
def graphs(faulty: Faulty) -> Graphs:
    return Graphs(faulty)


@pytest.fixture(scope="session")
def bundle_of(tmp_path_factory: pytest.TempPathFactory, backbone: Path, frequencies: DocumentFrequencies) -> Callable[[str], Path]:
    """The bundle of a kind, see `tests.service.kinds`; each is written once."""
    from tests.service.bundles import GraphFiles

    work = tmp_path_factory.mktemp("kinds")
    frequencies.write(work / FREQUENCIES_FILE)
    files = GraphFiles(work)

    def write(kind: str) -> Path:
        path = work / kind
        return path if path.exists() else files.write(path, kind, backbone, work / FREQUENCIES_FILE)

    return write


@pytest.fixture(scope="session")
def by_vectors(bundle_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny bundle without its graph, with a table that knows a few concepts."""
    plain, work = load_bundle(bundle_path), tmp_path_factory.mktemp("vectors")
    concept_table(plain.tokenizer).write(work / "token_vectors.npz")
    parts: dict[str, Any] = {"segmenter": {"name": "single_sentences"}, "selector": {"name": "vectors"}}
    parts |= {"encoder": {"name": "static"}, "aggregator": {"name": "max", "passages": 3}, "cosine_scale": 20, "fusion": {}}
    parts |= {"packing": plain.manifest.pipeline.packing.model_dump() | {"title_tokens": 0}}
    changed = {"name": "vectors", "graph": None, "pipeline": plain.manifest.pipeline.model_dump() | parts}
    kept = {name: bundle_path / name for name in plain.manifest.files if name != GRAPH_FILE}
    files = kept | {"token_vectors.npz": work / "token_vectors.npz"}
    return write_bundle(work / "bundle", Manifest.model_validate(plain.manifest.model_dump() | changed), files).path
