from starlette.testclient import TestClient


def test_a_reload_answers_what_is_served(client: TestClient) -> None:
    answer = client.post("/admin/reload").json()
    assert {**answer, "seconds": 0} == {"models": ["tiny"], "loaded": [], "removed": [], "keys": [], "seconds": 0}


def test_it_is_asked_for_not_looked_at(client: TestClient) -> None:
    assert client.get("/admin/reload").status_code == 405
