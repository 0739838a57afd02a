"""Small collections of passages, written in place."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from training.data.directory import write_directory
from training.data.types import Document, Span


def write_collection(
    path: Path,
    texts: Mapping[str, str],
    relevant: Mapping[str, Sequence[str]],
    splits: Mapping[str, Sequence[str]],
    spans: Sequence[tuple[str, str, int, int]] = (),
) -> Path:
    """A collection directory; queries are `news of ID`, and `relevant` names the documents of each."""
    documents = [Document(name, "a title", text) for name, text in texts.items()]
    gold: dict[str, list[Span]] = {}
    for query, *place in spans:
        gold.setdefault(query, []).append(Span(*place))
    grades = {query: dict.fromkeys(names, 1) for query, names in relevant.items()}
    write_directory(path, documents, {query: f"news of {query}" for query in relevant}, gold, splits, grades)
    return path


def write_passages(path: Path) -> Path:
    """400 passages of 3 to 12 words, each with words of its own.

    The ten queries of train and the ten of dev have a relevant passage each; t0 has two, t1 shares one of these, and t2 has
    none; d0 shares a passage with train's t3.
    """
    texts = {f"p{n}": " ".join(f"w{n}x{m}" for m in range(3 + n % 10)) for n in range(400)}
    relevant = {f"t{n}": [f"p{n}"] for n in range(10)} | {f"d{n}": [f"p{20 + n}"] for n in range(10)}
    relevant |= {"t0": ["p0", "p50"], "t1": ["p50"], "t2": [], "d0": ["p3"]}
    return write_collection(path, texts, relevant, {"train": [f"t{n}" for n in range(10)], "dev": [f"d{n}" for n in range(10)]})
