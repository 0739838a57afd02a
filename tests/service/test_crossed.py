"""How many of our modules a request crosses: whoever follows one has to open them."""

import json
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from starlette.testclient import TestClient

from service.settings import Settings
from tests.service.conftest import warm

MOST_OF_TEXTS = 35
MOST_BY_ID = 38
EXAMPLE = json.loads((Path(__file__).parents[2] / "examples" / "request.json").read_text(encoding="utf-8"))


class Crossed:
    """Collects the modules of the functions that are called in any thread, while it is on."""

    def __init__(self) -> None:
        self.modules: set[str] = set()
        self.on = False

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        name = frame.f_globals.get("__name__", "")
        if self.on and event == "call" and name.split(".")[0] in ("keyblock", "service"):
            self.modules.add(name)


@pytest.fixture(scope="module")
def crossed() -> Iterator[Crossed]:
    """Threads that start from now on are watched."""
    watching = Crossed()
    threading.setprofile(watching)
    yield watching
    threading.setprofile(None)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def watched(crossed: Crossed, settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    store = str(tmp_path_factory.mktemp("store"))
    with warm(settings.model_copy(update={"store": store})) as client:
        lines = [json.dumps({"id": document["id"], "text": document["text"]}) for document in EXAMPLE["documents"]]
        assert client.put("/documents", content="\n".join(lines)).json()["stored"] == len(lines)
        yield client


@pytest.mark.parametrize(
    ("documents", "most"),
    [
        ([document["text"] for document in EXAMPLE["documents"]], MOST_OF_TEXTS),
        ([{"id": document["id"]} for document in EXAMPLE["documents"]], MOST_BY_ID),
    ],
    ids=["texts", "ids"],
)
def test_modules_that_a_rerank_crosses(watched: TestClient, crossed: Crossed, documents: list[Any], most: int) -> None:
    body = {"query": EXAMPLE["query"], "documents": documents}
    watched.post("/rerank", json=body | {"query": "what the first request alone has to set up"})
    crossed.modules.clear()
    crossed.on = True
    before = sys.getprofile()
    sys.setprofile(crossed)
    try:
        answer = watched.post("/rerank", json=body)
    finally:
        sys.setprofile(before)
        crossed.on = False
    assert len(answer.json()["results"]) == len(documents)
    assert "keyblock.ranking.flow" in crossed.modules
    assert len(crossed.modules) <= most, sorted(crossed.modules)
