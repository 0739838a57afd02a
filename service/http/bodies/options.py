"""Bounds the options of a request before they are validated: a validator works, and complains, once for each value."""

from collections.abc import Collection, Mapping

from keyblock.ranking.warnings import LONGEST_SHOWN
from service.errors import RequestError

MOST_VALUES = 1 << 14  # of all options together, beside a score for each document
MOST_CHARACTERS = 1 << 20  # of their strings and names


def most_values(max_documents: int) -> int:
    """The number of values that all options may hold together."""
    return MOST_VALUES + max_documents


def check_options(members: Mapping[str, object], texts: Collection[str], max_documents: int) -> None:
    """Check how much an object holds beside its `texts`. The work is bounded, however much there is.

    Raises RequestError 422, which names the member at which it became too much.
    """
    most, values, characters = most_values(max_documents), 0, 0
    for name in members:
        waiting: list[object] = [] if name in texts else [name, members[name]]
        while waiting:
            value = waiting.pop()
            values += 1
            characters += len(value) if isinstance(value, str) else 0
            inside: Collection[object] = value if isinstance(value, list | dict) else ()
            if values + len(waiting) + len(inside) > most or characters > MOST_CHARACTERS:
                limit = f"{most} values, or {MOST_CHARACTERS} characters"
                raise RequestError(422, f"the options hold more than {limit}, up to here", (name[:LONGEST_SHOWN],))
            waiting.extend(inside)
            waiting.extend(value.values() if isinstance(value, dict) else ())
