"""Our own first stage: BM25 over the documents of a split."""

import json
import math
from pathlib import Path

import pytest

from training.data.collection import Collection
from training.data.files import open_text
from training.data.first_stage import bm25_run, candidate_pool, complete_run, first_stage_run
from training.data.types import CollectionError


def hand(tmp_path: Path, texts: dict[str, str], queries: dict[str, str]) -> Collection:
    path = tmp_path / "hand"
    path.mkdir()
    for name, rows in (("corpus", texts), ("queries", queries)):
        with open_text(path / f"{name}.jsonl", "w") as out:
            out.writelines(json.dumps({"_id": key, "text": text}) + "\n" for key, text in rows.items())
    return Collection(path)


def test_scores_by_hand(tmp_path: Path) -> None:
    """Lucene's BM25: ln(1 + (N - df + 0.5) / (df + 0.5)) * tf / (tf + k1 * (1 - b + b * len / mean))."""
    texts = {"a": "rivers river stone", "b": "stone", "c": "bridge bridges"}
    run = bm25_run(hand(tmp_path, texts, {"q": "the river, stones!"}), ["q"], ["a", "b", "c"], depth=2)
    mean = (3 + 1 + 2) / 3
    river, stone = math.log(1 + 2.5 / 1.5), math.log(1 + 1.5 / 2.5)
    of_a = 0.9 * (0.6 + 0.4 * 3 / mean)
    of_b = 0.9 * (0.6 + 0.4 * 1 / mean)
    assert list(run["q"]) == ["a", "b"]
    assert run["q"]["a"] == pytest.approx(river * 2 / (2 + of_a) + stone * 1 / (1 + of_a), rel=1e-5)
    assert run["q"]["b"] == pytest.approx(stone / (1 + of_b), rel=1e-5)


def test_empty_documents_and_queries_are_no_obstacle(tmp_path: Path) -> None:
    collection = hand(tmp_path, {"a": "river", "b": "", "c": "..."}, {"q": "river", "none": "", "stop": "the", "new": "zebra"})
    run = bm25_run(collection, ["q", "none", "stop", "new"], ["a", "b", "c"])
    assert next(iter(run["q"])) == "a"
    assert [sorted(scores) for scores in run.values()] == [["a", "b", "c"]] * 4
    assert all(type(score) is float for scores in run.values() for score in scores.values())


def test_documents_without_a_word_are_an_error(tmp_path: Path) -> None:
    collection = hand(tmp_path, {"a": "", "b": "the ..."}, {"q": "river"})
    with pytest.raises(CollectionError, match="none of the 2 documents to retrieve from has a word"):
        bm25_run(collection, ["q"], ["a", "b"])


def test_the_pool_is_what_the_splits_own_run_names(toy: Collection) -> None:
    assert candidate_pool(toy, "dev") == sorted(f"{t}-{n}" for t in ("teacher", "letter", "forest", "window") for n in range(4))


def test_only_what_the_run_leaves_out_is_retrieved(toy: Collection) -> None:
    given, complete = toy.run("train"), complete_run(toy, "train", depth=3)
    assert list(complete) == [*given, *(q for q in toy.split("train") if q.endswith("!"))]
    assert all(complete[q] == given[q] for q in given)
    assert all(len(scores) == 3 for q, scores in complete.items() if q.endswith("!"))
    assert all(d.startswith(q[:-1]) for q, scores in complete.items() if q.endswith("!") for d in scores)
    assert set().union(*complete.values()) <= set(candidate_pool(toy, "train"))


def test_what_the_collection_lacks_is_named(toy_copy: Path) -> None:
    with (toy_copy / "splits" / "train.txt").open("a", encoding="utf-8") as split:
        split.write("sea?\n")
    with pytest.raises(CollectionError, match="query 'sea\\?'"):
        complete_run(Collection(toy_copy), "train")
    with pytest.raises(CollectionError, match="document 'sea-0'"):
        bm25_run(Collection(toy_copy), ["river?"], ["river-0", "sea-0"])


def test_without_a_run_all_documents_are_retrieved_from(toy_copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """On the toy a query names its topic: three of the topic's four documents say it all the time, and come first."""
    for run in toy_copy.glob("run.*"):
        run.unlink()
    collection = Collection(toy_copy)
    assert not collection.has_run("train")
    assert candidate_pool(collection, "train") == sorted(collection.documents)
    run = first_stage_run(collection, "train", depth=5)
    assert list(run) == collection.split("train")
    for query, scores in run.items():
        assert len(scores) == 5
        assert set(list(scores)[:3]) == {f"{query[:-1]}-{number}" for number in range(3)}
    assert complete_run(collection, "train", depth=5) == run
    assert "has no first-stage run of split train; BM25 retrieves 5 of all 48 documents for each of 16" in capsys.readouterr().err
