"""Errors are a line."""

from bulk.errors import one_line


def test_an_error_is_one_line_that_says_something() -> None:
    assert one_line(ValueError("a\n  b")) == "a b"
    assert one_line(KeyError()) == "KeyError"
    assert len(one_line(ValueError("a" * 10_000))) == 600
