"""What a person can mend: one line that says what was wrong, with which value, and what to do."""


class BulkError(ValueError):
    """The job cannot begin, or cannot go on."""


def one_line(error: BaseException) -> str:
    """What an exception says, in one line of bounded length; its class, where it says nothing."""
    return " ".join(str(error).split())[:600] or type(error).__name__
