"""The token ids that reach the model through HTTP equal the trainer's, on real documents of every collection."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from numpy.typing import NDArray
from starlette.testclient import TestClient

from keyblock.bundle import load_bundle
from keyblock.runtime.session import Session
from service.queue.graphs import Graphs
from service.settings import Settings
from tests.service.faults import Ints
from tests.service.rankers import started

CANDIDATES = 6
BUDGETS = (64, 128, 256)  # a query each
if TYPE_CHECKING:
    from training.data.examples import Preparation

Row = tuple[bytes, bytes]


class Recorder:
    """The real session; keeps every row it is fed, padding taken off."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.rows: set[Row] = set()

    def score(self, ids: Ints, types: Ints, mask: Ints) -> NDArray[np.float32]:
        for row, n_tokens in enumerate(mask.sum(axis=1).tolist()):
            assert mask[row, :n_tokens].all()  # padding stands on the right
            self.rows.add((ids[row, :n_tokens].tobytes(), types[row, :n_tokens].tobytes()))
        return self.session.score(ids, types, mask)


@pytest.fixture(scope="module")
def recorder(session: Session) -> Recorder:
    return Recorder(session)


@pytest.fixture(scope="module")
def client(settings: Settings, recorder: Recorder) -> Iterator[TestClient]:
    with started(settings, Graphs(recorder)) as (client, _):
        yield client


@pytest.mark.parametrize("name", ["squad-far", "squad-articles", "qmsum"])
def test_token_ids_equal_the_trainers(
    client: TestClient, recorder: Recorder, bundle_path: Path, shared_data: Path, name: str
) -> None:
    from training.data.collection import Collection
    from training.data.examples import Preparation

    collection = Collection(shared_data / name)
    preparation = Preparation(collection, load_bundle(bundle_path).pipeline)
    run = collection.run("dev")
    for query_id, budget in zip(list(run), BUDGETS, strict=False):
        doc_ids = list(run[query_id])[:CANDIDATES]
        documents = [{"title": d.title, "text": d.text} for d in map(collection.document, doc_ids)]
        request = {"query": collection.query(query_id), "documents": documents, "max_tokens_per_doc": budget}
        recorder.rows.clear()
        assert client.post("/rerank", json=request).status_code == 200
        assert recorder.rows == trained_on(preparation, query_id, doc_ids, budget)
        assert len(recorder.rows) > CANDIDATES / 2  # some documents may be doubles


def trained_on(preparation: "Preparation", query_id: str, doc_ids: list[str], budget: int) -> set[Row]:
    """The trainer's rows, padding taken off."""
    from training.model.ranker_module import pad

    inputs = pad([preparation.pack(query_id, doc_id, budget) for doc_id in doc_ids], preparation.pipeline.tokenizer.pad_id)
    rows = zip(*(tensor.numpy() for tensor in inputs), strict=True)
    return {(ids[: mask.sum()].tobytes(), types[: mask.sum()].tobytes()) for ids, types, mask in rows}
