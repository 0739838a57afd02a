"""Quality by number of chunks: trained on the toy, stopped and gone on with; and the table, from records alone."""

import argparse
from pathlib import Path
from typing import Any

import pytest
import yaml

from benchmarks import chunk_ablation
from benchmarks.performance.report import END, put
from tests.training.conftest import own_cache, recipe_tree, tiny_backbone, toy_path  # noqa: F401
from training.collections.collection import Collection
from training.evaluation.records import Record, read_records
from training.recipe import load_recipe


def options_of(tmp_path: Path, *arguments: object) -> argparse.Namespace:
    places = {"records": tmp_path / "records", "runs": tmp_path / "runs"}
    return chunk_ablation.parser().parse_args([*(f"--{k}={v}" for k, v in places.items()), *map(str, arguments)])


@pytest.fixture
def recipe(recipe_tree: dict[str, Any], tmp_path: Path) -> Path:  # noqa: F811
    """The toy's recipe as PARADE-Attn over chunks of 24 tokens."""
    pipeline = recipe_tree["pipeline"] | {
        "segmenter": {"name": "window", "block_tokens": 24, "stride": 24},
        "selector": {"name": "first"},
        "aggregator": {"name": "states", "passages": 1},
    }
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(recipe_tree | {"pipeline": pipeline, "states": {"name": "attention"}}))
    return tmp_path / "tiny.yaml"


def test_each_number_of_chunks_is_trained_and_measured_once(
    recipe: Path,
    toy_path: Path,  # noqa: F811
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    tiny = ("--collection", toy_path, "--recipe", recipe, "--steps", 2, "--queries", 4, "--depth", 3, "--set", "queries_per_step=1")
    chunk_ablation.main(options_of(tmp_path, *tiny, "--chunks", 1))
    first = (tmp_path / "runs" / "chunks-1-seed-0" / "log.jsonl").read_bytes()
    both = options_of(tmp_path, *tiny, "--chunks", 1, 2)
    chunk_ablation.main(both)
    assert (tmp_path / "runs" / "chunks-1-seed-0" / "log.jsonl").read_bytes() == first  # not trained again
    trained = {n: load_recipe(tmp_path / "runs" / f"chunks-{n}-seed-0" / "recipe.yaml") for n in (1, 2)}
    assert {n: of_run.pipeline.aggregator["passages"] for n, of_run in trained.items()} == {1: 1, 2: 2}
    assert {of_run.queries_per_step for of_run in trained.values()} == {1}
    records = read_records(both.records)
    assert [(r.system, r.steps, len(r.queries)) for r in records] == [("chunks-1-seed-0", 2, 4), ("chunks-2-seed-0", 2, 4)]
    assert capsys.readouterr().out.splitlines()[-2].startswith("| toy | 1 | 1 | ")
    assert chunk_ablation.missing(1, 0, [Collection(toy_path)], both) == []
    for changed in ({"depth": 4}, {"steps": 3}, {"queries": 5}):
        other = argparse.Namespace(**vars(both) | changed)
        assert len(chunk_ablation.missing(1, 0, [Collection(toy_path)], other)) == 1


def test_a_training_that_cannot_be_ends_it(recipe: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = options_of(tmp_path, "--collection", tmp_path, "--recipe", recipe, "--chunks", 1)
    with pytest.raises(SystemExit, match="ended with 2; mend it and start again"):
        chunk_ablation.main(options)
    assert "has no corpus.jsonl" in capsys.readouterr().err


def record(chunks: int, seed: int, qualities: list[float]) -> Record:
    return Record(
        system=chunk_ablation.run_name(chunks, seed),
        collection="qmsum",
        split="dev",
        training_seconds=60.0 * chunks,
        details={"chunks": chunks, "depth": 10, "asked": 3},
        queries=["a", "b", "c"],
        values=dict.fromkeys(chunk_ablation.MEASURES, qualities),
    )


def test_the_table_by_hand(tmp_path: Path) -> None:
    """The seeds' mean is 0.5 with a chunk and 0.6 with two: a fifth more."""
    records = [record(2, 0, [0.6, 0.5, 0.7]), record(1, 0, [0.5, 0.25, 0.75]), record(1, 1, [0.5, 0.75, 0.25])]
    head, _, one, two = [[c.strip() for c in line.strip("|").split("|")] for line in chunk_ablation.table(records).splitlines()]
    assert head[:6] == ["collection", "chunks", "seeds", "RR@10", "gain", "p"]
    assert one == ["qmsum", "1", "2", *["0.500", "", ""] * 2, "1"]
    assert two[:5] == ["qmsum", "2", "1", "0.600", "+20.0%"]
    assert 0 < float(two[5]) < 1
    assert two[-1] == "2"
    page = tmp_path / "page.md"
    page.write_text(f"before\n{chunk_ablation.MARK}\nold\n{END}\nafter\n")
    put(page, chunk_ablation.table(records), chunk_ablation.MARK)
    assert "| qmsum | 2 | 1 | 0.600 | +20.0% |" in page.read_text()


def test_the_recipe_reads_whole_documents_of_three_chunks() -> None:
    recipe = load_recipe(chunk_ablation.RECIPE)
    assert (recipe.pipeline.aggregator["passages"], recipe.longest) == (3, 512)
    assert load_recipe(chunk_ablation.RECIPE, ["pipeline.aggregator.passages=6"]).pipeline.aggregator["passages"] == 6
