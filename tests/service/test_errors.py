import pytest

from service.errors import RequestError, dotted


@pytest.mark.parametrize(
    ("path", "written"),
    [((), ""), (("query",), "query"), (("documents", 3, "text"), "documents[3].text"), (("documents", 0), "documents[0]")],
)
def test_dotted(path: tuple[str | int, ...], written: str) -> None:
    assert dotted(path) == written


def test_message_names_the_field() -> None:
    assert RequestError(422, "is missing", ("query",)).message == "query: is missing"
    assert RequestError(400, "not JSON").message == "not JSON"


def test_detail_of_422_is_a_list_of_objects_as_clients_expect() -> None:
    assert RequestError(422, "is missing", ("documents", 1)).detail() == [
        {"type": "invalid_request", "loc": ["body", "documents", 1], "msg": "is missing"}
    ]
    assert RequestError(413, "too large").detail() == "too large"
