"""Records what an output directory is made from: fingerprints of the input, the bundle and the options that decide the answers.

A job with other fingerprints is refused.
"""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bulk.errors import BulkError
from bulk.options import Options
from bulk.rows import find, look_for
from bulk.work import PARTIAL, write_whole
from keyblock import __version__
from keyblock.bundle import Bundle, digest_of

FORMAT, NAME = 1, "manifest.json"


def describe(options: Options, bundle: Bundle) -> dict[str, Any]:
    """Everything that decides the answers. Paths, engine and number of workers do not. Raises BulkError for an unreadable file."""
    files = {name: entry.sha256 for name, entry in sorted(bundle.manifest.files.items())}
    pipeline = bundle.manifest.model_dump(mode="json", include={"name", "pipeline"})
    return {
        "format": FORMAT,
        "keyblock": __version__,
        "input": {name: _digest_of_file(path) for name, path in _inputs(options)},
        "bundle": {"name": bundle.manifest.name, "sha256": _digest({**pipeline, "files": files})},
        "asked": options.asking.model_dump(mode="json"),
    }


def fingerprint(about: dict[str, Any]) -> str:
    """32 hexadecimal digits that identify the description."""
    return _digest(about)[:32]


def agree(out: Path, about: dict[str, Any]) -> dict[str, int] | None:
    """Write what the output is made from, or check it. Returns the counts that `complete` wrote; None if that was not called.

    Raises BulkError if the directory holds something else.
    """
    path = out / NAME
    if not path.exists():
        if foreign := [one.name for one in sorted(out.iterdir()) if one.name != "work" and not one.match(f"{NAME}.*{PARTIAL}")]:
            raise BulkError(f"{out}: has no {NAME}, but {foreign[0]}: name a directory that is empty, or new")
        write_whole(path, json.dumps(about, indent=1))
        return None
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        whole: dict[str, int] | None = found.pop("whole", None)
    except (ValueError, AttributeError, TypeError):
        raise BulkError(f"{path}: is damaged: name another --out, or remove the directory to begin again") from None
    if differing := [name for name in about if found.get(name) != about[name]]:
        what = "; ".join(_difference(name, found.get(name), about[name]) for name in differing)
        raise BulkError(f"{out}: holds rankings of another job ({what}): name another --out, or remove it to begin again")
    return whole


def complete(out: Path, about: dict[str, Any], counts: dict[str, int]) -> None:
    """Mark the output as complete, with its counts."""
    write_whole(out / NAME, json.dumps({**about, "whole": counts}, indent=1))


def _difference(name: str, before: Any, now: Any) -> str:
    if isinstance(before, dict) and isinstance(now, dict):
        parts = [key for key in {**before, **now} if before.get(key) != now.get(key)]
        return ", ".join(f"{name}.{key} was {before.get(key)}, and is {now.get(key)}" for key in parts)
    return f"{name} was {before}, and is {now}"


def _inputs(options: Options) -> Iterator[tuple[str, Path]]:
    """The input files, each named by its role in the job, not by its path."""
    yield from ((f"lists {number}", path) for number, path in enumerate(options.lists, 1))
    if options.run is not None:
        yield "run", options.run
    if options.collection is not None:
        yield "corpus", find(options.collection, "corpus")
        if (queries := look_for(options.collection, "queries")) is not None:
            yield "queries", queries


def _digest_of_file(path: Path) -> str:
    try:
        with path.open("rb") as content:
            return digest_of(content)
    except OSError as error:
        raise BulkError(f"{path}: cannot be read: {error.strerror}") from None


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
