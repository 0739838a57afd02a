import asyncio
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.types import Message

from service.http import answers
from service.http.answers import PiecesResponse, json_list


@given(st.lists(st.dictionaries(st.text(max_size=3), st.integers(-9, 9), max_size=2), max_size=20), st.integers(1, 40))
def test_list_in_pieces_is_the_list(items: list[dict[str, Any]], piece: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(answers, "PIECE", piece)
        pieces = list(json_list(items))
    assert orjson.loads(b"".join(pieces)) == items
    assert len(pieces) >= sum(len(orjson.dumps(item)) > piece for item in items)


def test_pieces_are_sent_one_by_one_with_their_length_declared() -> None:
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    response = PiecesResponse([b"[1", b",2]"], headers={"x-cost": "5"})
    asyncio.run(response({"type": "http"}, receive, send))
    assert dict(sent[0]["headers"]) == {b"content-length": b"5", b"content-type": b"application/json", b"x-cost": b"5"}
    assert [message["body"] for message in sent[1:]] == [b"[1", b",2]", b""]
    assert [message["more_body"] for message in sent[1:]] == [True, True, False]
