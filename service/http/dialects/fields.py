"""Cohere v1's `rank_fields`: which fields of a document that is an object are its text."""

from typing import Any


def with_text_of(candidates: object, fields: list[str]) -> Any:
    """The candidates, those that are objects with their text made of the fields named; what is no list is not looked at."""
    return [_with_text_of(candidate, fields) for candidate in candidates] if isinstance(candidates, list) else candidates


def _with_text_of(candidate: object, fields: list[str]) -> object:
    """The values that are strings, a line each; a title stays the title beside others. Where none is there, the object as it is."""
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
