"""keyblock-farrelevant."""

import argparse
import json
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from training.commands.command import add_backbone, count, make_parser, read_tokenizer, run

if TYPE_CHECKING:
    from keyblock.text.tokenizer import Tokenizer
    from lab.far_relevant import FarSplit
    from training.data.collection import Collection

END = 256  # tokens that a ranker of the last tokens reads, such as small/lastp.yaml


def main(arguments: Sequence[str] | None = None) -> int:
    """Write a far-relevant collection."""
    parser = make_parser(
        "keyblock-farrelevant",
        "Make a collection whose documents hold one relevant passage each, never at the beginning, among random passages.",
    )
    parser.add_argument(
        "--collection", type=Path, required=True, help="passages with judgements, or documents with spans.jsonl; named as elsewhere"
    )
    parser.add_argument(
        "--split",
        type=_split,
        action="append",
        required=True,
        metavar="NAME[=NUMBER]",
        help="a split, and how many of its queries (as many as possible when left out); repeated: no two share a document; "
        "with 0 it is not written, and keeps its documents from the others",
    )
    for name, default, about in _parameters():
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=default, help=f"{about} (default {default})")
    parser.add_argument("--depth", type=count, default=100, help="documents a query in the BM25 runs")
    add_backbone(parser)
    parser.add_argument("--out", type=Path, required=True, help="the new collection directory")
    parser.add_argument("--json", action="store_true", help="print the statistics, which are in stats.json too, as JSON")
    return run(_make, parser, arguments)


def _split(text: str) -> tuple[str, int | None]:
    name, equals, number = text.partition("=")
    if not name or (equals and not number.isdecimal()):
        raise argparse.ArgumentTypeError(f"{text!r} is no split: write NAME, or NAME=NUMBER")
    return name, int(number) if equals else None


def _parameters() -> list[tuple[str, int, str | None]]:
    from lab.far_relevant import Settings

    return [(name, field.default, field.description) for name, field in Settings.model_fields.items()]


def _make(options: argparse.Namespace) -> None:
    from pydantic import ValidationError

    from lab.far_relevant import Settings, make_splits
    from lab.passages import open_passages
    from training.data.collection import Collection
    from training.data.files import write_json
    from training.recipe import problems

    try:
        settings = Settings.model_validate({name: getattr(options, name) for name in Settings.model_fields})
    except ValidationError as error:
        raise ValueError(problems(error)) from None
    if options.out.exists():
        raise FileExistsError(f"{options.out}: is there already; name another --out, or remove it")
    tokenizer, original = read_tokenizer(options.backbone), Collection(options.collection)
    splits = make_splits(open_passages(original), dict(options.split), lambda text: len(tokenizer.ids(text)), settings)
    written = write_far_collection(options.out, original, splits, options.depth)
    figures = {split.name: statistics_of(split, written, tokenizer) for split in splits}
    made = {"from": original.name, "settings": settings.model_dump(), "splits": figures}
    write_json(options.out / "stats.json", made)
    print(json.dumps(made) if options.json else _table(figures))


def write_far_collection(out: Path, original: "Collection", splits: "Sequence[FarSplit]", depth: int) -> "Collection":
    """Write the documents as a collection directory; each split has a BM25 run over its own documents.

    Queries keep their ids. Raises FileExistsError for a directory that exists.
    """
    from training.data.collection import Collection
    from training.data.directory import write_directory
    from training.data.files import write_run
    from training.data.first_stage import bm25_run

    documents = [document for split in splits for document in split.documents]
    queries = {query: original.query(query) for split in splits for query in split.queries}
    spans = {document.query_id: [document.span] for document in documents}
    write_directory(
        out, (d.document for d in documents), queries, {q: spans[q] for q in queries}, {s.name: s.queries for s in splits}
    )
    written = Collection(out)
    for split in splits:
        run = bm25_run(written, split.queries, [document.doc_id for document in split.documents], depth)
        write_run(run, out / f"run.{split.name}.bm25.trec.gz", "bm25")
    return written


def statistics_of(split: "FarSplit", collection: "Collection", tokenizer: "Tokenizer") -> dict[str, Any]:
    """The figures of a split, counted over the collection as it was written. Places are in tokens of the document."""
    import numpy as np

    from lab.positions import gold_places

    places = gold_places(collection, split.queries, tokenizer)
    words = [len(document.document.text.split()) for document in split.documents]
    used = Counter(filler for document in split.documents for filler in document.fillers)
    starts, behind = [place.start for place in places], [place.length - place.end for place in places]
    return {
        "documents and queries": len(split.documents),
        "queries left out": split.left_out,
        "words, median": float(np.median(words)),
        "words, 90%": float(np.percentile(words, 90)),
        "tokens, mean": round(statistics.fmean(place.length for place in places), 1),
        "tokens, longest": max(place.length for place in places),
        "gold starts at token, first": min(starts),
        "gold starts at token, median": statistics.median(starts),
        "gold starts at token, 90%": float(np.percentile(starts, 90)),
        "gold starts at share of the document, median": round(statistics.median(p.start / p.length for p in places), 3),
        "tokens behind gold, fewest": min(behind),
        "tokens behind gold, median": statistics.median(behind),
        f"gold stands in the last {END} tokens, share": round(
            statistics.fmean(place.length - place.start <= END for place in places), 3
        ),
        "passages to fill with": split.pool,
        "documents that a filler stands in, mean": round(statistics.fmean(used.values()), 2),
    }


def _table(figures: Mapping[str, Mapping[str, Any]]) -> str:
    from training.evaluate.tables import markdown

    names = next(iter(figures.values()))
    rows = [[name, *(_cell(split[name]) for split in figures.values())] for name in names]
    return markdown([["", *figures], *rows])


def _cell(value: Any) -> str:
    if isinstance(value, Mapping):
        return "; ".join(f"{number:,} {reason}" for reason, number in value.items()) or "0"
    return f"{value:,g}" if isinstance(value, float) else f"{value:,}"
