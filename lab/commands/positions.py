"""keyblock-positions."""

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean, median
from typing import TYPE_CHECKING, Any

from training.commands.command import add_backbone, count, make_parser, read_tokenizer, run

if TYPE_CHECKING:
    from lab.positions import GoldPlace
    from training.data.collection import Collection

RECORD = ".json"
Groups = list[list[float]]
"""Values of the queries whose gold passage starts in each chunk: a list for each chunk."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Say where gold passages stand, and how well systems rank by it."""
    parser = make_parser(
        "keyblock-positions", "In which chunk of their documents gold passages stand, and the quality of runs by that chunk."
    )
    parser.add_argument(
        "--collection", type=Path, action="append", required=True, help="a collection with spans; several with --split alone"
    )
    parser.add_argument("--split", help="the queries; every query with a span when left out (a directory's)")
    parser.add_argument("--queries", type=count, help="a fixed sample of so many, the same as that of keyblock-evaluate")
    parser.add_argument(
        "--run",
        type=Path,
        action="append",
        default=[],
        help="a system: a TREC run, a per_query.tsv, an --out directory of keyblock-evaluate, or a record of it (.json); repeated",
    )
    parser.add_argument("--measure", default="RR@10", help="of the runs, as ir_measures names it")
    parser.add_argument("--chunk", type=count, default=477, help="tokens of a chunk (the paper's by default)")
    parser.add_argument("--chunks", type=count, default=6, help="chunks that are told apart")
    add_backbone(parser)
    parser.add_argument("--out", type=Path, help="a picture of where gold passages start; .png, .svg or .pdf")
    parser.add_argument("--json", action="store_true", help="print JSON in place of tables")
    return run(_positions, parser, arguments)


def _positions(options: argparse.Namespace) -> None:
    from lab.pictures import draw_gold_places
    from lab.positions import gold_places
    from training.data.collection import Collection, distinct_names
    from training.evaluate.evaluate import sample

    if options.run and len(options.collection) > 1:
        raise ValueError("a --run is of one collection: name that one alone")
    tokenizer, collections = read_tokenizer(options.backbone), [Collection(path) for path in options.collection]
    samples = [sample(c.split(options.split) if options.split else c.spans, options.queries) for c in collections]
    places = {
        name: gold_places(collection, queries, tokenizer)
        for name, collection, queries in zip(distinct_names(collections), collections, samples, strict=True)
    }
    if empty := [name for name, found in places.items() if not found]:
        raise ValueError(f"{empty[0]}: no query has a gold passage, so there are no positions to count")
    qualities = _qualities(options, collections[0], samples[0], places[collections[0].name])
    figures = {
        "positions": {name: _shares(found, options) for name, found in places.items()},
        "quality": {system: _means(groups) for system, groups in qualities.items()},
    }
    print(json.dumps(figures) if options.json else _tables(figures, options))
    if options.out:
        draw_gold_places(places, options.chunk, options.chunks).savefig(options.out, dpi=120)


def _qualities(
    options: argparse.Namespace, collection: "Collection", queries: Sequence[str], places: "Sequence[GoldPlace]"
) -> dict[str, Groups]:
    """For each system, by name, the values by chunk of the queries that every system was measured on."""
    from lab.positions import by_chunk
    from lab.records import read_record
    from training.evaluate.evaluate import read_system, system_name
    from training.evaluate.measures import parse_measures

    measure, *others = parse_measures([options.measure])
    if others:
        raise ValueError(f"--measure {options.measure} is a set of measures: name one, such as {measure}")
    values: dict[str, Mapping[str, float]] = {}
    for path in options.run:
        if path.suffix == RECORD:
            record = read_record(path)
            name, found = record.system, record.by_query.get(str(measure), {})
        else:
            name, found = system_name(path), read_system(path, collection, queries, [measure])[str(measure)]
        values[str(path) if name in values else name] = found
    common = {query for query in queries if all(query in measured for measured in values.values())}
    if not common:
        raise ValueError(f"no query of {collection.name} has a {measure} of every --run: measure them on the same split")
    places = [place for place in places if place.query in common]
    return {name: by_chunk(measured, places, options.chunk, options.chunks) for name, measured in values.items()}


def _shares(places: "Sequence[GoldPlace]", options: argparse.Namespace) -> dict[str, Any]:
    """The number of passages, their median start as a share of the document, and the shares that start and end in each chunk."""
    from lab.positions import chunk_shares

    tokens = {"start": [place.start for place in places], "end": [place.last for place in places]}
    shares = {edge: chunk_shares(at, options.chunk, options.chunks).tolist() for edge, at in tokens.items()}
    middle = median(place.start / max(1, place.length) for place in places)
    return {"passages": len(places), "median start": round(middle, 3), **shares}


def _means(groups: Groups) -> dict[str, Any]:
    """For each chunk, the number of queries whose passage starts in it, and the mean of their values."""
    return {"queries": [len(group) for group in groups], "mean": [fmean(group) if group else None for group in groups]}


def _tables(figures: dict[str, Any], options: argparse.Namespace) -> str:
    """Table 1 of the paper, and below it the runs' quality by chunk."""
    from training.evaluate.tables import markdown

    names = ["", *map(str, range(1, options.chunks + 1)), f"{options.chunks}+"]
    places = [["chunk", *(f"{name}: {edge}" for name in figures["positions"] for edge in ("start", "end"))]]
    columns = [shares[edge] for shares in figures["positions"].values() for edge in ("start", "end")]
    places += [[name, *(f"{share:.1%}" for share in row)] for name, row in zip(names[1:], zip(*columns, strict=True), strict=True)]
    counts = ", ".join(
        f"{shares['passages']:,} of {name} (median start at {shares['median start']:.0%} of the document)"
        for name, shares in figures["positions"].items()
    )
    lines = [markdown(places), "", f"Chunks of {options.chunk} tokens; gold passages: {counts}."]
    if not figures["quality"]:
        return "\n".join(lines)
    systems = figures["quality"]
    means = [[*(_mean(mean) for mean in system["mean"])] for system in systems.values()]
    queries = next(iter(systems.values()))["queries"]
    rows = zip(names[1:], map(str, queries), *means, strict=True)
    head = ["gold starts in chunk", "queries", *(f"{name}, {options.measure}" for name in systems)]
    return "\n".join([*lines, "", markdown([head, *rows])])


def _mean(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"
