"""Tenths of overlap, and what is counted as read: cases whose right answer a person can see."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import paraphrases
from benchmarks.buried import Buried, read_pairs
from benchmarks.paraphrases import (
    Figures,
    Question,
    System,
    by_tenth,
    holds,
    measure,
    overlap,
    overlap_table,
    parser,
    questions,
    reciprocal_rank,
    sample,
    tenths,
)
from keyblock.cascade import Cascade
from keyblock.pipeline import Pipeline
from training.collections.collection import Collection

ROOT = Path(__file__).resolve().parent.parent.parent


def made_questions(count: int) -> list[Question]:
    return [Question(f"q{number}", "?", [], number / count) for number in range(count)]


def test_the_overlap_is_the_share_of_idf_mass(pipeline: Pipeline) -> None:
    """Of "flooded river", the table knows flood (df 5) and river (df 20) of 1,000 documents."""
    flood, river = np.log(1001 / 5.5), np.log(1001 / 20.5)
    assert overlap(pipeline, "flooded river", ["the river", "a city"]) == pytest.approx(river / (river + flood))
    assert overlap(pipeline, "flooded river", ["Floods!", "rivers"]) == pytest.approx(1)
    assert overlap(pipeline, "flooded river", ["stones"]) == 0
    assert overlap(pipeline, "what is it", ["it is"]) == 0


@given(st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=10, max_size=60))
def test_tenths_are_even_and_ordered(overlaps: list[float]) -> None:
    given_questions = [Question(f"q{number}", "?", [], value) for number, value in enumerate(overlaps)]
    places = tenths(given_questions)
    sizes = np.bincount(places, minlength=10)
    assert sizes.max() - sizes.min() <= 1
    assert all(overlaps[a] <= overlaps[b] for a in range(len(overlaps)) for b in range(len(overlaps)) if places[a] < places[b])


def test_a_sample_has_equally_many_of_each_tenth() -> None:
    everything = made_questions(100)
    places = tenths(everything)
    chosen = sample(everything, places, 3)
    assert [int(one.id[1:]) // 10 for one in chosen] == [tenth for tenth in range(10) for _ in range(3)]
    assert sample(everything, places, 3) == chosen
    assert sample(everything, places, 0) == []


def test_reciprocal_ranks() -> None:
    relevant = np.asarray([False, False, True])
    assert reciprocal_rank(np.asarray([3.0, 2.0, 1.0]), relevant) == pytest.approx(1 / 3)
    assert reciprocal_rank(np.asarray([1.0, 1.0, 1.0]), relevant) == pytest.approx(1 / 3)  # a tie stays in the order given
    assert reciprocal_rank(np.asarray([0.0, 1.0, 2.0]), relevant) == 1
    assert reciprocal_rank(np.arange(11.0), np.arange(11) == 0) == 0  # rank 11


def test_an_answer_is_read_where_the_chosen_blocks_hold_it_whole(pipeline: Pipeline) -> None:
    text = f"{'stone ' * 60}. The river was flooded in May. {'bridge ' * 60}. The year was dry."
    document = pipeline.prepare_document(text)
    start = text.index("The river")
    answer = Buried(text, start, start + len("The river was flooded in May."))
    inside = np.flatnonzero((document.starts < answer.end) & (document.ends > answer.start))
    outside = np.setdiff1d(np.arange(document.n_blocks), inside)
    assert holds(document, inside, answer)
    assert holds(document, inside[::-1], answer)
    assert not holds(document, outside, answer)
    assert not holds(document, inside[:0], answer)


def test_the_table_compares_with_the_first_by_tenth() -> None:
    everything = made_questions(40)
    names = [one.id for one in everything]
    before = Figures(dict.fromkeys(names, 0.0), dict.fromkeys(names, 1.0), {})
    after = Figures({name: float(number < 20) for number, name in enumerate(names)}, dict.fromkeys(names, 1.0), {})
    table = overlap_table(everything, tenths(everything), ["a", "b"], [before, after])
    lines = [line.strip("| ").split(" | ") for line in table.splitlines()]
    assert lines[0] == ["tenth", "overlap", "questions", "three best, a", "three best, b", "p", "returned, a", "returned, b", "p"]
    assert lines[2] == ["1", "0.04", "4", "0.0%", "100.0%", "< 1e-300", "100.0%", "100.0%", "1"]
    assert lines[11][4] == "0.0%"
    assert lines[12][:6] == ["all", "0.49", "40", "0.0%", "50.0%", lines[12][5]]
    assert float(lines[12][5]) < 1e-5


def test_by_tenth_ends_with_all() -> None:
    assert by_tenth({"a": 1.0, "b": 2.0}, [["a", "x"], ["b"]]) == [{"a": 1.0}, {"b": 2.0}, {"a": 1.0, "b": 2.0}]


def test_a_collection_is_measured(tmp_path: Path) -> None:
    """Two documents of many blocks; one question names its passage, the other shares no word with it."""
    text_of = {"d1": "When was the river flooded?", "d2": "Can visitors give bread?"}
    passages = {"d1": "The river was flooded in May.", "d2": "Nobody may feed the lions."}
    before = " ".join(f"Sentence {n} says nothing of it at all, and it goes on for a while." for n in range(40)) + " "
    span = {"start": len(before)}
    files: dict[str, list[object]] = {
        "corpus.jsonl": [{"_id": d, "title": "", "text": before + passage} for d, passage in passages.items()],
        "queries.jsonl": [{"_id": f"q-{d}", "text": question} for d, question in text_of.items()],
        "spans.jsonl": [span | {"qid": f"q-{d}", "docid": d, "end": len(before + passage)} for d, passage in passages.items()],
    }
    for name, rows in files.items():
        (tmp_path / name).write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    (tmp_path / "qrels.tsv").write_text("q-d1\t0\td1\t1\nq-d2\t0\td2\t1\n", encoding="utf-8")
    (tmp_path / "splits").mkdir()
    (tmp_path / "splits" / "dev.txt").write_text("q-d1\nq-d2\n", encoding="utf-8")
    system, collection = System(ROOT / "models" / "default", "cpu"), Collection(tmp_path)
    both = questions(collection, "dev", system.pipeline)
    assert [round(one.overlap, 3) for one in both] == [1, 0]
    found = measure(system, collection, both, both[:1], {"q-d1": {"d2": 2.0, "d1": 1.0}})
    assert found.three["q-d1"] == found.returned["q-d1"] == 1
    assert found.rr == {"q-d1": 1.0}


def test_the_cascade_is_measured_on_the_pairs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three pairs: a row for the rule, and for others."""
    monkeypatch.setattr(paraphrases, "read_pairs", lambda: read_pairs()[:3])
    options = parser().parse_args(["spared", "--bundles", str(ROOT / "models" / "default")])
    (table,) = paraphrases.measure_spared(options)
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines()]
    assert rows[0][-1] == "right ones of 3"
    cascades = {"as it is": "25%", "the share alone": "25%", "the share alone, by the fusion": "25%", "twice the share": "50%"}
    assert [row[1:] for row in rows[2:]] == [[share, name, "100%", "3"] for name, share in cascades.items()], "three are not cut"
    assert paraphrases.cascades(Cascade(share=0.6))["twice the share"].share == 1.0


def test_the_command_line_measures_dev_by_default() -> None:
    options = parser().parse_args(["overlap"])
    assert (options.split, options.queries, options.bundles) == ("dev", 0, [Path("models/default")])
