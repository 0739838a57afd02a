import pytest

from service.call import Call, Documents
from service.http.callers import without_unreadable

CALL = Call("river", Documents(["a river"], [""], [None]), return_documents=True, warnings=["one"])


@pytest.mark.parametrize("path", ["/rerank", "/v1/rerank"])
def test_litellm_gets_no_documents(path: str) -> None:
    call = without_unreadable(CALL, "litellm/1.105.3", path)
    assert call.return_documents is False
    assert [call.warnings[0], "litellm" in call.warnings[1]] == ["one", True]
    assert CALL.warnings == ["one"]


@pytest.mark.parametrize(
    ("user_agent", "path"), [("litellm/1.105.3", "/v2/rerank"), ("", "/rerank"), ("python-httpx/0.28.1", "/rerank")]
)
def test_others_and_cohere_v2_get_them(user_agent: str, path: str) -> None:
    assert without_unreadable(CALL, user_agent, path) is CALL


def test_a_call_that_requests_no_documents_is_unchanged() -> None:
    call = Call("river", CALL.documents)
    assert without_unreadable(call, "litellm/1.105.3", "/rerank") is call
