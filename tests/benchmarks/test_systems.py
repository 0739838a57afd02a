"""The table of systems: from records to the page, without training anything."""

import argparse
import importlib.util
import json
import math
import runpy
import shutil
import sys
from pathlib import Path
from types import ModuleType

import pytest

from benchmarks.performance.report import END, PageError
from keyblock.bundle import load_bundle
from keyblock.description import PipelineConfig
from training.evaluation.records import Record, read_record, write_record
from training.models.starting import read_ranker

ROOT = Path(__file__).parents[2]
FILE, RECIPES = ROOT / "benchmarks" / "systems.py", ROOT / "training" / "recipes" / "small"


@pytest.fixture(scope="module")
def systems() -> ModuleType:
    spec = importlib.util.spec_from_file_location("systems", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["systems"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def options(systems: ModuleType, tmp_path: Path) -> argparse.Namespace:
    page = tmp_path / "results.md"
    page.write_text(f"# Results\n\n{systems.BEGIN}\nold\n{END}\nafter\n", encoding="utf-8")
    known = ["--data", str(tmp_path), "--records", str(tmp_path / "results"), "--page", str(page), "--costly-queries", "3"]
    made: argparse.Namespace = systems.parser().parse_args(known)
    made.records.mkdir()
    for name, qualities in {"BM25": [0, 0, 1, 0, 0], "keyb-bm25": [1, 1, 1, 0.5, 1], "keyb-random": [0.5, 0, 0.5, 0, 0]}.items():
        for collection in ("squad-far", "qmsum"):
            write(made, name, collection, qualities)
    write(made, "keyb-binb", "squad-far", [1, 1, 1, 1, 1])
    write(made, "keyb-binb", "qmsum", [1, 1, 0])
    return made


def write(
    options: argparse.Namespace,
    system: str,
    collection: str,
    qualities: list[float],
    gold: dict[str, int | None] | None = None,
    steps: int | None = None,
) -> None:
    queries = [f"q{number}" for number in range(len(qualities))]
    values = dict.fromkeys(("RR@10", "nDCG@10", "nDCG@20"), qualities)
    details = {} if gold is None else {"depth": 10, "gold_rank": gold}
    record = Record(
        system=system, collection=collection, split="test", queries=queries, values=values, details=details, steps=steps
    )
    write_record(record, options.records)


def rows(page: str, first: str) -> list[list[str]]:
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in page.splitlines() if line.startswith("|")]
    return [line for line in lines if line[0] == first]


def test_a_row_is_a_recipe(systems: ModuleType) -> None:
    named = [system.recipe for system in systems.SYSTEMS]
    assert len(set(named)) == len(named)
    others = {
        "system",
        "budgets",
        "default",
        "default-firstp",
        "finetune",
        "marked",
        "distilled",
        "longp",
        "qds",
        "chunks-attention",
    }
    others |= {"sentence-encoder", "sentence-tuned", "idcm", "idcm-passages", "idcm-student", "idcm-teacher"}
    assert {path.stem for path in RECIPES.glob("*.yaml")} == {*named} | others
    assert {name for claim in systems.CLAIMS for name in claim} <= set(named)


def test_the_page_gets_the_tables_and_keeps_the_rest(systems: ModuleType, options: argparse.Namespace) -> None:
    (options.records / systems.LATENCY).write_text(json.dumps({"squad-far": {"keyb-bm25": 2.5, "keyb-binb": 20}}))
    systems.publish(options)
    page = options.page.read_text()
    assert page.startswith(f"# Results\n\n{systems.BEGIN}\n\n| collection | system |")
    assert page.endswith(f"\n\n{END}\nafter\n")
    assert "old" not in page
    (reference,) = [row for row in rows(page, "squad-far") if row[1] == "**keyb-bm25**"]
    assert reference[2:4] == ["0.9000", ""]
    assert "2.50" in reference
    assert (options.page.parent / "images" / "quality-latency-squad-far.png").exists()
    systems.publish(options)
    assert options.page.read_text() == page


def test_costly_systems_stand_among_the_first_queries_only(systems: ModuleType, options: argparse.Namespace) -> None:
    systems.publish(options)
    page = options.page.read_text()
    assert [row[1] for row in rows(page, "qmsum")] == ["BM25", "**keyb-bm25**", "keyb-random"]
    few = {row[1]: row[2] for row in rows(page, "qmsum, 3 queries")}
    assert few == {
        "BM25": "0.3333",
        "**keyb-bm25**": "1.0000",
        "keyb-random": "0.3333",
        "keyb-binb": "0.6667",
    }


def test_a_claim_is_tested_once_a_collection_on_the_queries_of_both(systems: ModuleType, options: argparse.Namespace) -> None:
    systems.publish(options)
    tested = [row[:5] for first in ("keyb-bm25", "keyb-binb") for row in rows(options.page.read_text(), first)]
    assert tested == [
        ["keyb-bm25", "keyb-random", "squad-far", "RR@10", "5"],
        ["keyb-bm25", "keyb-random", "qmsum", "RR@10", "5"],
        ["keyb-binb", "keyb-bm25", "squad-far", "RR@10", "5"],
        ["keyb-binb", "keyb-bm25", "qmsum, 3 queries", "RR@10", "3"],
    ]


def test_a_page_without_a_place_is_left_alone(systems: ModuleType, options: argparse.Namespace) -> None:
    options.page.write_text("# Results\n")
    with pytest.raises(PageError, match=r"results\.md has no place for the tables"):
        systems.publish(options)
    assert options.page.read_text() == "# Results\n"


def test_the_page_tells_how_often_the_gold_passage_is_among_the_best_returned(
    systems: ModuleType, options: argparse.Namespace
) -> None:
    """Of five queries one has no gold passage in a document that was re-ranked; the first three are qmsum's few."""
    ranks = {"q0": 1, "q1": 3, "q2": None, "q4": 4}
    for collection in ("squad-far", "qmsum"):
        write(options, "keyb-bm25", collection, [1, 1, 1, 0.5, 1], ranks)
    write(options, "keyb-binb", "qmsum", [1, 1, 0], {"q0": 1, "q1": 1})
    systems.publish(options)
    page = options.page.read_text()
    table = page[page.index("| collection | system | RR@10 | queries | with a gold passage | gold in the best") :]
    assert rows(table, "squad-far") == [["squad-far", "keyb-bm25", "0.900", "5", "4", "0.250", "0.500"]]
    assert rows(table, "qmsum") == [["qmsum", "keyb-bm25", "0.900", "5", "4", "0.250", "0.500"]]
    assert rows(table, "qmsum, 3 queries") == [
        ["qmsum, 3 queries", "keyb-bm25", "1.000", "3", "3", "0.333", "0.667"],
        ["qmsum, 3 queries", "keyb-binb", "0.667", "3", "2", "1.000", "1.000"],
    ]


def test_gold_passages_of_other_records_have_a_place_of_their_own(
    systems: ModuleType, options: argparse.Namespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sentence says the steps, queries and depth of the records; the other tables stay as they are."""
    page = options.page.read_text()
    options.page.write_text(f"{page}{systems.GOLD_MARK}\nold shares\n{END}\nthe end\n", encoding="utf-8")
    ranks = {"q0": 1, "q1": 3, "q2": None, "q4": 4}
    shorter = argparse.Namespace(**vars(options) | {"records": tmp_path / "shorter"})
    for system, steps in {"keyb-bm25": 100, "firstp": 100, "parade5": 40, "parade16": 40, "best": 60}.items():
        write(shorter, system, "squad-far", [1, 1, 1, 0.5, 1], ranks, steps)
    write(shorter, "keyb-bm25", "qmsum", [1, 1, 0], {"q0": 1}, 100)
    write(shorter, "chance", "squad-far", [0, 0, 0, 0, 0])
    monkeypatch.setattr("sys.argv", ["systems.py", "--publish-gold", str(shorter.records), "--page", str(options.page)])
    runpy.run_path(str(FILE), run_name="__main__")
    new = options.page.read_text()
    assert new.startswith(
        f"{page}{systems.GOLD_MARK}\n\nOn squad-far, the first 10 candidates of 5 test queries were ranked again, "
    )
    assert (
        "after 100 (40: parade16, parade5; 60: best) steps of training. On qmsum, the first 10 candidates of 3 test queries" in new
    )
    assert [row[1:] for row in rows(new, "squad-far")] == [
        [system, "0.900", "5", "4", "0.250", "0.500"] for system in ("keyb-bm25", "firstp", "best", "parade16", "parade5")
    ]
    assert rows(new, "qmsum") == [["qmsum", "keyb-bm25", "0.667", "3", "1", "1.000", "1.000"]]
    assert "old shares" not in new
    assert new.endswith(f"\n\n{END}\nthe end\n")


@pytest.mark.parametrize(
    ("arguments", "problem"), [(["--publish-gold", "{}"], "no record has gold_rank"), ([], "--data is needed")]
)
def test_errors_that_a_person_can_mend_are_one_line(
    arguments: list[str], problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["systems.py", *(argument.format(tmp_path) for argument in arguments)])
    with pytest.raises(SystemExit) as error:
        runpy.run_path(str(FILE), run_name="__main__")
    assert problem in f"{error.value.code}{capsys.readouterr().err}"


def test_without_passages_their_table_is_left_out_and_a_system_is_measured_again(
    systems: ModuleType, options: argparse.Namespace
) -> None:
    systems.publish(options)
    assert "three best returned passages" not in options.page.read_text()
    path = options.records / "squad-far" / "keyb-random.json"
    assert not systems.is_measured(path)
    assert not systems.is_measured(path.with_name("maxp.json"))
    write(options, "keyb-random", "squad-far", [1.0], {})
    assert systems.is_measured(path)


QUESTION = "How long before moving out does the tenant have to tell the landlord?"
NOTICE = "Notice of leaving is two months: the tenant has to tell the landlord in writing."
OTHERS = [
    "The kitchen was painted in spring and the windows face the garden.",
    "Bicycles are kept in the cellar beside the boiler.",
    "A tenant planted the old tree, and the landlord waters it.",
]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, backbone: Path) -> Path:
    """A collection of two leases, and runs of two systems with the embedded model's weights: DATA and RUNS in one directory."""
    place = tmp_path_factory.mktemp("systems")
    leases = {"lease": [*OTHERS * 3, NOTICE, *OTHERS], "other": OTHERS * 4}
    start = len(" ".join(OTHERS * 3)) + 1
    for name in ("squad-far", "qmsum"):
        data = place / name
        (data / "splits").mkdir(parents=True)
        corpus = [json.dumps({"_id": doc_id, "title": "", "text": " ".join(text)}) for doc_id, text in leases.items()]
        (data / "corpus.jsonl").write_text("\n".join(corpus) + "\n")
        (data / "queries.jsonl").write_text(json.dumps({"_id": "q", "text": QUESTION}) + "\n")
        (data / "qrels.tsv").write_text("q\t0\tlease\t1\n")
        span = {"qid": "q", "docid": "lease", "start": start, "end": start + len(NOTICE)}
        (data / "spans.jsonl").write_text(json.dumps(span) + "\n")
        (data / "splits" / "test.txt").write_text("q\n")
        (data / "run.test.bm25.trec").write_text("q Q0 other 1 2.0 bm25\nq Q0 lease 2 1.0 bm25\n")
    model, bundle = read_ranker(ROOT / "models" / "default", str(backbone)), load_bundle(ROOT / "models" / "default")
    for name, parts in {
        "firstp": {"selector": {"name": "first"}, "packing": {"budget": 64, "budget_range": [64, 64]}},
        "maxp": {
            "selector": {"name": "first"},
            "segmenter": {"name": "sentences", "block_tokens": 20},
            "aggregator": {"name": "max"},
        },
    }.items():
        (place / name / "checkpoint").mkdir(parents=True)
        model.save(place / name / "checkpoint")
        shutil.copy(bundle.path / "tokenizer.json", place / name)
        bundle.frequencies.write(place / name / "frequencies.tsv")
        config = PipelineConfig.model_validate(bundle.manifest.pipeline.model_dump() | {"fusion": {}, "encoder": None} | parts)
        (place / name / "pipeline.json").write_text(config.model_dump_json())
    return place


@pytest.mark.parametrize("collection", ["squad-far", "qmsum"])
@pytest.mark.parametrize(("system", "rank"), [("maxp", 1), ("firstp", None)])
def test_a_record_tells_the_rank_of_the_passage_that_answers(
    systems: ModuleType, trained: Path, tmp_path: Path, collection: str, system: str, rank: int | None
) -> None:
    """MaxP finds the tenth sentence of the lease, and FirstP never reads it."""
    given = ["--data", str(trained), "--runs", str(trained), "--records", str(tmp_path)]
    systems.measured(system, collection, systems.parser().parse_args(given))
    record = read_record(tmp_path / collection / f"{system}.json")
    assert record.details == {"depth": 10, "gold_rank": {"q": rank}}


def test_chance_is_what_to_expect_of_a_random_order(systems: ModuleType) -> None:
    """Three candidates are shuffled, the fourth stays: a relevant one among the three is at rank 1, 2 or 3 equally often."""
    qrels = {"river?": {"river-3": 1}, "stone?": {"stone-3": 1}, "sea?": {"sea-1": 1}}
    run = {
        "river?": {"river-0": 9.0, "river-3": 8.0, "river-1": 7.0, "river-2": 6.0},
        "stone?": {"stone-0": 9.0, "stone-1": 8.0, "stone-2": 7.0, "stone-3": 6.0},
    }
    values = systems.chance(run, qrels, ["river?", "stone?", "sea?"], 3)
    assert values["RR@10"] == {"river?": pytest.approx((1 + 1 / 2 + 1 / 3) / 3), "stone?": pytest.approx(1 / 4), "sea?": 0}
    ndcg = (1 + 1 / math.log2(3) + 1 / math.log2(4)) / 3
    assert values["nDCG@10"] == {"river?": pytest.approx(ndcg), "stone?": pytest.approx(1 / math.log2(5)), "sea?": 0}


class Counting:
    """A ranker that keeps when it prepared what and ranked what."""

    def __init__(self, name: str, calls: list[tuple[str, ...]]) -> None:
        self.name, self.calls, self.preparation = name, calls, self

    def document(self, document: str) -> None:
        self.calls.append((self.name, "prepares", document))

    def rerank(self, query: str, documents: list[str]) -> None:
        self.calls.append((self.name, "ranks", query, *documents))


def test_rankers_are_timed_in_turns_and_documents_prepared_before(systems: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[str, ...]] = []
    clock = iter([0, 2, 0, 4, 0, 6, 0, 8])  # a of q1, b of q1, a of q2, b of q2
    monkeypatch.setattr(systems.time, "perf_counter", lambda: next(clock))
    run = {"q1": {"d1": 3.0, "d2": 2.0, "d3": 1.0}, "empty": {}, "q2": {"d3": 1.0}}
    rankers = [Counting("a", calls), Counting("b", calls)]
    assert systems.milliseconds(rankers, run, ["q1", "empty", "lacking", "q2"], 2) == [3500, 5000]
    assert calls[:3] == [("a", "prepares", "d1"), ("a", "prepares", "d2"), ("a", "ranks", "q1", "d1", "d2")]
    assert [what for what in calls if what[1] == "ranks"][1:] == [
        ("b", "ranks", "q1", "d1", "d2"),
        ("a", "ranks", "q2", "d3"),
        ("b", "ranks", "q2", "d3"),
    ]


def test_without_milliseconds_there_is_no_picture(systems: ModuleType, options: argparse.Namespace) -> None:
    systems.publish(options)
    assert not (options.page.parent / "images").exists() or not list((options.page.parent / "images").iterdir())


def test_segments_are_kept_after_a_stop_between_record_and_segments(systems: ModuleType, tmp_path: Path) -> None:
    options = argparse.Namespace(records=tmp_path)
    assert [systems.segments_missing(recipe, options) for recipe in ("keyb-bm25", "maxp", "best")] == [False, True, True]
    (tmp_path / systems.SEGMENTS).write_text(json.dumps([{"iteration": "MaxP", "P@1": {}}]), encoding="utf-8")
    assert [systems.segments_missing(recipe, options) for recipe in ("maxp", "best")] == [False, True]
