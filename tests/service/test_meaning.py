"""The embedded bundle understands what is stored: a question finds the answer that shares no word with it."""

from pathlib import Path

import orjson
from starlette.testclient import TestClient

from service.settings import Settings
from tests.service.conftest import ROOT, warm
from tests.service.faults import wait_for

QUESTION = "Does my girlfriend get anything if I pass away and we never wed?"
ANSWER = "Unmarried partners do not inherit under the law: without a will, the whole estate goes to the relatives of the dead."
FILLER = (
    "The office opens at eight, and the lift to the third floor is repaired in the second week of {0}. Bring form {1} and a pen. "
)
MONTHS = ("January", "March", "May", "July", "August", "October", "December")


def test_a_stored_document_is_found_by_what_it_means(settings: Settings, tmp_path: Path) -> None:
    texts = {f"other-{n}": "".join(FILLER.format(month, n) for month in MONTHS) for n in range(40)}
    before, after = ("".join(FILLER.format(month, n) for month in MONTHS) for n in (40, 41))
    texts["law"] = before + ANSWER + " " + after
    wanted = {"bundle": (ROOT / "models" / "default",), "store": str(tmp_path / "store")}
    body = {"query": QUESTION, "documents": [{"id": name} for name in texts], "top_n": 3, "return_blocks": True}
    with warm(settings.model_copy(update=wanted)) as client:
        _put(client, texts)
        wait_for(lambda: _unread(client) == 0)
        answer = client.post("/rerank", json=body)
        assert answer.status_code == 200, answer.text
        best = answer.json()["results"][0]
    assert best["id"] == "law"
    found = [texts["law"][block["start"] : block["end"]] for block in best["blocks"]]
    assert any("do not inherit" in text for text in found)


def _put(client: TestClient, texts: dict[str, str]) -> None:
    lines = [orjson.dumps({"id": name, "text": text}) for name, text in texts.items()]
    assert client.put("/documents", content=b"\n".join(lines)).json()["stored"] == len(texts)


def _unread(client: TestClient) -> int:
    unread: int = client.get("/info").json()["store"]["unread"]
    return unread
