"""keyblock-evaluate on the toy: runs, bundles, services, folds and seeds, and what it refuses."""

import json
import shutil
from pathlib import Path

import pytest
import yaml

from keyblock.bundle import Bundle
from keyblock.fusion import Fusion
from keyblock.runtime.model import GraphModel
from keyblock.runtime.providers import Provider
from tests.training.commands.conftest import Printed, cells, strings
from tests.training.conftest import bundle_with
from training.commands.evaluate import main as evaluate_main
from training.data.collection import Collection
from training.data.files import read_run, write_run
from training.data.types import Run
from training.evaluate.evaluate import read_values
from training.evaluate.ranking import bundle_ranker


def reversed_run(run: Run) -> Run:
    """On the toy that puts the answer, which BM25 ranks last, first."""
    return {query: {d: float(-rank) for rank, d in enumerate(reversed(scores))} for query, scores in run.items()}


def test_evaluate_against_other_systems(printed: Printed, toy_run: Path, toy_path: Path, tmp_path: Path) -> None:
    """The run with less to read, against itself as it is: by its values and by its TREC run, two files of one name."""
    whole, first = tmp_path / "toy-run", tmp_path / "first"
    common = ("--run", toy_run, "--collection", toy_path)
    printed(evaluate_main, *common, "--out", whole, "--measures", "P@1", "RR@10")
    against = ("--against", whole / "per_query.tsv", "--against", whole / "run.trec.gz")
    short = ("--budget", 40, "--name", "short", "--out", first, "--measures", "P@1", "--queries", 5)
    said = printed(evaluate_main, *common, *short, *against)
    rows = cells(said)
    systems = ["short", "first stage", "shuffled", "toy-run", str(whole / "run.trec.gz")]
    assert list(rows) == ["system", "---", *systems]
    assert rows["toy-run"] == rows[str(whole / "run.trec.gz")]
    assert rows["toy-run"][0] == "1.0000"
    assert rows["short"][1] == ""
    assert json.loads((first / "summary.json").read_text(encoding="utf-8"))["gold_in_best_blocks"] <= 1
    assert "\ngold in best blocks: " in said
    assert len(read_values(first / "per_query.tsv")["P@1"]) == 5


def test_two_bundles_are_measured_beside_each_other(printed: Printed, toy_bundle: Bundle, toy_copy: Path, tmp_path: Path) -> None:
    """The toy's, and one whose fusion turns its order: the answer comes last of four. Without gold passages none are counted."""
    (toy_copy / "spans.jsonl.gz").unlink()
    bundle_with(toy_bundle, tmp_path / "turned", {"fusion": Fusion(bias=0.0, logit=-1.0)}, name="turned")
    both = ("--bundle", toy_bundle.path, "--bundle", tmp_path / "turned", "--provider", "cpu", "--queries", 3)
    out = tmp_path / "out"
    said = printed(evaluate_main, *both, "--collection", toy_copy, "--out", out)
    rows = cells(said)
    assert list(rows) == ["system", "---", "toy-bundle", "turned", "first stage", "shuffled"]
    assert (rows["toy-bundle"][0], rows["turned"][0]) == ("1.0000", "0.2500")
    assert "\n\nturned:\n" in said
    assert said.count("\nms per document: ") == 2
    assert "gold" not in said
    assert json.loads((out / "bundle-2" / "summary.json").read_text(encoding="utf-8"))["measures"]["RR@10"] == 0.25
    assert list(read_run(out / "run.trec.gz")) == list(read_run(out / "bundle-2" / "run.trec.gz"))


def test_two_bundles_of_one_name(printed: Printed, toy_bundle: Bundle, toy_path: Path, tmp_path: Path) -> None:
    again = shutil.copytree(toy_bundle.path, tmp_path / "again")
    both = ("--bundle", toy_bundle.path, "--bundle", again, "--provider", "cpu", "--queries", 1, "--json")
    figures = json.loads(printed(evaluate_main, *both, "--collection", toy_path))
    assert (figures["system"], [one["system"] for one in figures["beside"]]) == (str(toy_bundle.path), [str(again)])


def test_the_logit_alone_is_evaluated(toy_bundle: Bundle, toy: Collection, tmp_path: Path) -> None:
    """The bundle's fusion adds the selector's evidence; without it the scores are the model's logits."""
    common = strings("--bundle", toy_bundle.path, "--collection", toy.path, "--provider", "cpu", "--queries", 2, "--out")
    assert evaluate_main([*common, str(tmp_path / "fused")]) == 0
    assert evaluate_main([*common, str(tmp_path / "alone"), "--unfused"]) == 0
    fused, alone = (read_run(tmp_path / name / "run.trec.gz") for name in ("fused", "alone"))
    ranker = bundle_ranker(toy_bundle, GraphModel.open(toy_bundle, Provider.CPU), toy)
    for query, scores in alone.items():
        logits = ranker.score(query, list(scores)).logits.tolist()
        assert list(scores.values()) == pytest.approx(logits, abs=1e-4)
        assert scores != fused[query]


def test_a_bundle_is_evaluated_with_another_pipeline(
    printed: Printed, refused: Printed, toy_bundle: Bundle, toy: Collection, tmp_path: Path
) -> None:
    common = ("--bundle", toy_bundle.path, "--collection", toy.path, "--provider", "cpu", "--queries", 2)
    changes = "{segmenter: {name: whole_sentences, block_tokens: 9}, packing: {title_tokens: 0}}"
    printed(evaluate_main, *common, "--pipeline", changes, "--out", tmp_path / "other")
    printed(evaluate_main, *common, "--out", tmp_path / "own")
    other, own = (read_run(tmp_path / name / "run.trec.gz") for name in ("other", "own"))
    assert other != own
    ranker = bundle_ranker(toy_bundle, GraphModel.open(toy_bundle, Provider.CPU), toy, None, yaml.safe_load(changes))
    config = ranker.preparation.pipeline.config
    assert config.segmenter == {"name": "whole_sentences", "block_tokens": 9}
    assert config.packing == toy_bundle.pipeline.config.packing.model_copy(update={"title_tokens": 0})
    assert "unknown segmenter 'lines'" in refused(evaluate_main, *common, "--pipeline", "{segmenter: lines}")
    of_a_run = ("--run", tmp_path, "--collection", toy.path, "--pipeline", "{segmenter: window}")
    assert "--pipeline changes a --bundle's" in refused(evaluate_main, *of_a_run)


def test_candidates_of_our_own_are_evaluated(
    printed: Printed, toy_run: Path, toy_path: Path, toy: Collection, tmp_path: Path
) -> None:
    write_run(toy.run("dev"), tmp_path / "dev.trec", "x")
    given = ("--candidates", tmp_path / "dev.trec", "--depth", 2, "--queries", 1)
    rows = cells(printed(evaluate_main, "--run", toy_run, "--collection", toy_path, *given))
    assert rows["first stage"][0] == "0.0000"  # the answers stand fourth
    assert "shuffled" in rows  # a single query has a table too


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--split", "nowhere"], "has no splits/nowhere.txt"),
        (["--measures", "best"], "measure 'best' cannot be computed"),
        (["--budget", "129"], "a budget of 129 tokens exceeds the 128 that its model reads"),
        (["--candidates", "DIR/bad.tsv"], "bad.tsv: line 1 has 2 fields"),
        (["--against", "DIR/bad.tsv"], "bad.tsv: line 1 must be query<TAB>measure<TAB>value"),
        (["--against", "DIR/few.tsv"], "few.tsv: has no RR@10 of query letter?: it was measured otherwise"),
    ],
)
def test_evaluations_that_cannot_be_made(
    refused: Printed, toy_run: Path, toy_path: Path, tmp_path: Path, arguments: list[str], said: str
) -> None:
    for name in ("bad.tsv", "bad.trec"):
        (tmp_path / name).write_text("two fields\n", encoding="utf-8")
    (tmp_path / "few.tsv").write_text("teacher?\tRR@10\t1\nteacher!\tRR@10\t1\n", encoding="utf-8")
    given = [argument.replace("DIR", str(tmp_path)) for argument in arguments]
    assert said in refused(evaluate_main, "--run", toy_run, "--collection", toy_path, *given)


def test_systems_that_are_not_there(refused: Printed, toy_path: Path, toy_bundle: Bundle, tmp_path: Path) -> None:
    on_toy = ("--collection", toy_path)
    assert "pipeline.json" in refused(evaluate_main, "--run", tmp_path, *on_toy)
    assert "does not exist; give the path of a bundle" in refused(evaluate_main, "--bundle", tmp_path / "nowhere", *on_toy)
    assert "Invalid" in refused(evaluate_main, "--url", "http://[::1", *on_toy)
    assert "--unfused is of a --run or --bundle" in refused(evaluate_main, "--url", "http://127.0.0.1:1", "--unfused", *on_toy)
    assert "provider tensorrt was asked for" in refused(
        evaluate_main, "--bundle", toy_bundle.path, *on_toy, "--provider", "tensorrt"
    )
    assert "no such collection" in refused(evaluate_main, "--bundle", toy_bundle.path, "--collection", tmp_path / "nowhere")


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "nowhere"])
def test_services_that_are_not_there(toy_path: Path, capsys: pytest.CaptureFixture[str], url: str) -> None:
    assert evaluate_main(strings("--url", url, "--collection", toy_path)) == 2
    *_, last = capsys.readouterr().err.splitlines()
    assert last.startswith(f"keyblock-evaluate: {url}")
    assert "no answer from there" in last


def test_the_correction_is_chosen(printed: Printed, toy: Collection, tmp_path: Path) -> None:
    """First stage and shuffled: a family of two."""
    write_run(reversed_run(toy.run("dev")), tmp_path / "turned.trec", "x")
    p_values = {}
    for correction in ("none", "holm", "bonferroni"):
        arguments = ("--ranked", tmp_path / "turned.trec", "--collection", toy.path, "--correction", correction)
        p_values[correction] = float(cells(printed(evaluate_main, *arguments))["shuffled"][1])
    assert p_values["none"] > 0
    assert p_values["holm"] == pytest.approx(p_values["none"], rel=0.1)  # the larger of the two
    assert p_values["bonferroni"] == pytest.approx(2 * p_values["none"], rel=0.1)


def test_seeds_are_measured_together(printed: Printed, toy_run: Path, toy_path: Path, tmp_path: Path) -> None:
    """Two runs, here of one and the same seed; the place held the worse ones of an earlier evaluation of three."""
    seeds, out, common = tmp_path / "keyb", tmp_path / "out", ("--collection", toy_path, "--queries", 3)
    for place in (out, out / "seed-3", out / "bundle-2"):
        place.mkdir()
        shutil.copy(toy_path / "run.dev.bm25.trec.gz", place / "run.trec.gz")
    for seed in (1, 2):
        shutil.copytree(toy_run, seeds / f"seed-{seed}")
    rows = cells(printed(evaluate_main, "--run", seeds, *common, "--out", out))
    assert rows["keyb, 2 seeds"][0] == "1.0000"
    summary = json.loads((out / "summary.json").read_text(encoding="utf-8"))
    assert (summary["seeds"], summary["queries"]) == (2, 3)
    assert summary["ms_per_document"] > 0
    for seed in ("seed-1", "seed-2"):
        assert len(read_run(out / seed / "run.trec.gz")) == 3
    assert read_values(out / "per_query.tsv") == read_values(out / "seed-1" / "per_query.tsv")
    one = printed(evaluate_main, "--run", seeds / "seed-1", *common, "--against", out)
    assert cells(one)["out"] == ["1.0000", "1", "1.0000", "1"]
