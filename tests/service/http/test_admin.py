from unittest.mock import AsyncMock

import pytest
from starlette.testclient import TestClient

from service.ranking.reload import Reloader, ReloadError


def test_a_reload_answers_what_is_served(client: TestClient) -> None:
    answer = client.post("/admin/reload").json()
    assert {**answer, "seconds": 0} == {"models": ["tiny"], "loaded": [], "removed": [], "keys": [], "seconds": 0}


def test_a_reload_refuses_get(client: TestClient) -> None:
    assert client.get("/admin/reload").status_code == 405


def test_a_reload_that_failed_says_that_nothing_has_changed(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Reloader, "reload", AsyncMock(side_effect=ReloadError("why")))
    answer = client.post("/admin/reload")
    assert (answer.status_code, answer.json()["message"]) == (409, "not reloaded, nothing has changed: why")
