import pytest
from starlette.testclient import TestClient

from service import admin
from service.errors import RequestError


def test_a_reload_answers_what_is_served(client: TestClient) -> None:
    answer = client.post("/admin/reload").json()
    assert {**answer, "seconds": 0} == {"models": ["tiny"], "loaded": [], "removed": [], "seconds": 0}


def test_it_is_asked_for_not_looked_at(client: TestClient) -> None:
    assert client.get("/admin/reload").status_code == 405


def test_who_may_not_changes_nothing(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody(_: object) -> None:
        raise RequestError(422, "you may not")

    monkeypatch.setattr(admin, "check_operator", nobody)
    before = client.get("/metrics").text.count('keyblock_reloads_total{outcome="unchanged"}')
    assert client.post("/admin/reload").json()["message"] == "you may not"
    assert client.get("/metrics").text.count('keyblock_reloads_total{outcome="unchanged"}') == before
