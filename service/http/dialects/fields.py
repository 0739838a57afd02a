"""Cohere v1's `rank_fields`: the fields of an object that make up a document's text."""

from typing import Any


def with_text_of(candidates: object, fields: list[str]) -> Any:
    """The candidates; those that are objects get a text made of the named fields. Anything but a list is returned as it is."""
    return [_with_text_of(candidate, fields) for candidate in candidates] if isinstance(candidates, list) else candidates


def _with_text_of(candidate: object, fields: list[str]) -> object:
    """Join the string values, one per line; a title stays the title beside other fields. Without values the object is unchanged."""
    if not isinstance(candidate, dict):
        return candidate
    values = {name: candidate[name] for name in fields if isinstance(candidate.get(name), str)}
    if not values:
        return candidate
    read = {*values, "title", "text"}
    title = values.pop("title", None) if len(values) > 1 else None
    return {name: value for name, value in candidate.items() if name not in read} | {
        "text": "\n".join(values.values()),
        "title": title,
    }
