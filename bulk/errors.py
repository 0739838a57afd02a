"""Errors that a person can fix: one line says what is wrong, with which value, and what to do."""


class BulkError(ValueError):
    """The job cannot start or continue."""


def one_line(error: BaseException) -> str:
    """An exception's message in one line of bounded length; the name of its class if the message is empty."""
    return " ".join(str(error).split())[:600] or type(error).__name__
