"""Cohere v1's `rank_fields`: which fields of a document that is an object are its text."""

from typing import Any


def with_text_of(candidates: object, fields: list[str]) -> Any:
    """The candidates, those that are objects with their text made of the fields named; what is no list is not looked at."""
    return [_with_text_of(candidate, fields) for candidate in candidates] if isinstance(candidates, list) else candidates


def _with_text_of(candidate: object, fields: list[str]) -> object:
    """Values that are strings, a line each, in the order of `fields`; a title stays the title, unless nothing else is there."""
    if not isinstance(candidate, dict):
        return candidate
    values = {name: candidate[name] for name in fields if isinstance(candidate.get(name), str)}
    rest = {name: value for name, value in candidate.items() if name not in {*values, "title", "text"}}
    title = values.pop("title", None)
    if not values:
        return rest | {"text": title}
    return rest | {"text": "\n".join(values.values()), "title": title}
