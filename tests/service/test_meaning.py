"""The embedded bundle understands what is stored: a question finds the answer that shares no word with it."""

from pathlib import Path

import orjson
import pytest
from starlette.testclient import TestClient

from service.settings import Settings
from tests.service.conftest import ROOT, warm
from tests.service.faults import wait_for

QUESTION = "How often must I water a cactus?"
ANSWER = "Succulents prefer a thorough soaking every fortnight in summer and almost nothing between November and February."
FILLER = (ROOT / "tests" / "data" / "filler.txt").read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize("understands", [True, False])
def test_a_stored_answer_in_other_words_is_read(settings: Settings, tmp_path: Path, understands: bool) -> None:
    """Without the sentence encoder, the words and the token vectors choose other blocks of the same document."""
    text = "\n\n".join([*FILLER[:6], ANSWER, *FILLER[6:12]])
    changes = {"bundle": (ROOT / "models" / "default",), "store": str(tmp_path / "store"), "store_meaning": understands}
    body = {"query": QUESTION, "documents": [{"id": "plants"}], "return_blocks": True, "second_look": False}
    with warm(settings.model_copy(update=changes)) as client:
        assert client.put("/documents", content=orjson.dumps({"id": "plants", "text": text})).json()["stored"] == 1
        wait_for(lambda: not understands or _understood(client))
        (result,) = client.post("/rerank", json=body).json()["results"]
    found = [text[block["start"] : block["end"]] for block in result["blocks"]]
    assert any("every fortnight in summer" in block for block in found) == understands


def _understood(client: TestClient) -> bool:
    return "keyblock_understood_documents_total 1.0" in client.get("/metrics").text
