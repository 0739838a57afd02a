"""Errors: read whatever was answered, and raised with the service's words."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keyblock.client.errors import (
    AccessError,
    InvalidRequestError,
    NotFoundError,
    StatusError,
    TimeUpError,
    UnavailableError,
    read_error,
)

NAMES = st.sampled_from(["message", "error", "detail", "type", "error_type"]) | st.text()
LEAVES = st.none() | st.booleans() | st.integers() | st.text()
JSON = st.recursive(LEAVES, lambda inner: st.lists(inner) | st.dictionaries(NAMES, inner))


@given(st.integers(400, 599), st.binary() | JSON.map(lambda value: json.dumps(value).encode()))
def test_any_body_is_read(status: int, content: bytes) -> None:
    error = read_error(status, content, "r1", None)
    assert (error.status, error.request_id) == (status, "r1")
    assert str(error).endswith(f"(status {status}, request r1)")
    assert all(isinstance(one, dict) for one in error.details)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        *((status, InvalidRequestError) for status in (400, 408, 413, 415, 422)),
        *((status, AccessError) for status in (401, 403)),
        (404, NotFoundError),
        *((status, UnavailableError) for status in (429, 500, 502, 503, 504, 507)),
    ],
)
def test_kinds(status: int, kind: type[StatusError]) -> None:
    assert type(read_error(status, b"", "", None)) is kind


def test_time_that_is_up_is_a_timeout_of_pythons_own() -> None:
    error = TimeUpError("late", "r1")
    assert isinstance(error, TimeoutError)
    assert (str(error), error.request_id) == ("late", "r1")
