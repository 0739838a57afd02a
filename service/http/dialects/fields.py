"""Cohere v1's `rank_fields`: the fields of an object that make up a document's text."""

from collections.abc import Sequence
from typing import Any


def with_text_of(candidate: dict[str, Any], fields: Sequence[str]) -> dict[str, Any]:
    """The candidate with a text made of the named fields: their string values, one per line.

    A title stays the title beside other fields. Without such values the candidate is unchanged.
    """
    values = {name: candidate[name] for name in fields if isinstance(candidate.get(name), str)}
    if not values:
        return candidate
    read = {*values, "title", "text"}
    title = values.pop("title", None) if len(values) > 1 else None
    return {name: value for name, value in candidate.items() if name not in read} | {
        "text": "\n".join(values.values()),
        "title": title,
    }
