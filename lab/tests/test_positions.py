"""Positions of blocks by hand; keyblock-positions."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from keyblock.text.tokenizer import Tokenizer
from lab.commands.positions import main as positions_main
from lab.positions import (
    GoldPlace,
    best_positions,
    by_chunk,
    by_position,
    chunk,
    chunk_shares,
    gold_places,
    position,
)
from lab.records import record_evaluation, write_record
from tests.training.collections.passages import write_collection
from tests.training.commands.conftest import cells, strings
from training.data.collection import Collection
from training.data.files import write_run
from training.data.types import CollectionError
from training.evaluate.evaluate import evaluate_run


def test_the_paper_s_example() -> None:
    """KeyB, section 3.2: "the fifth block in a document containing 100 blocks is in the first position"."""
    assert position(5, 100) == 1


@given(st.integers(15, 500))
def test_first_and_last_block_stand_at_the_ends_of_any_document_of_fifteen(blocks: int) -> None:
    """No position is missing, which is the paper's reason to leave shorter documents out."""
    positions = [position(number, blocks) for number in range(1, blocks + 1)]
    assert (positions[0], positions[-1]) == (1, 10)
    assert set(positions) == set(range(1, 11))
    assert positions == sorted(positions)


def test_scores_by_position_by_hand() -> None:
    """Of twelve blocks two stand at position 5, and two at 10: ceil(10 i / 12) is 1, 2, 3, 4, 5, 5, 6, 7, 8, 9, 10, 10."""
    assert by_position(np.arange(12.0)).tolist() == [0, 1, 2, 3, 4.5, 6, 7, 8, 9, 10.5]


def test_the_positions_of_the_best_blocks_by_hand() -> None:
    """Of twenty blocks the last two score; the first six, at positions 1 to 3, are the best of the others."""
    assert best_positions(np.asarray([0.0] * 18 + [2.0, 1.0])).tolist() == [2, 2, 2, 0, 0, 0, 0, 0, 0, 2]


TEXT = "The river, swollen: unbelievably swollen.\n\nNobody crossed the bridge"


def test_gold_places_by_hand(tmp_path: Path, tokenizer: Tokenizer) -> None:
    """The river , swollen : un ##bel ##ie ##va ##bly swollen . nobody crossed the bridge: 16 tokens."""
    ids = [TEXT.index("Nobody"), len(TEXT), TEXT.index("unbel"), TEXT.index("unbel") + 12]
    spans = [("q", "d", ids[0], ids[1]), ("q", "d", ids[2], ids[3]), ("r", "d", 3, 4), ("s", "d", len(TEXT), len(TEXT) + 9)]
    path = write_collection(tmp_path / "c", {"d": TEXT}, {q: ["d"] for q in "qrs"}, {"dev": list("qrs")}, spans)
    places = gold_places(Collection(path), ["s", "q", "none", "r"], tokenizer)
    assert places == [
        GoldPlace("s", "d", 16, 16, 16),  # behind the end
        GoldPlace("q", "d", 12, 16, 16),
        GoldPlace("q", "d", 5, 10, 16),
        GoldPlace("r", "d", 1, 1, 16),  # white space: between two tokens
    ]
    assert [place.last for place in places] == [16, 15, 9, 1]


def test_a_span_of_a_missing_document_is_named(tmp_path: Path, tokenizer: Tokenizer) -> None:
    path = write_collection(tmp_path / "c", {"d": TEXT}, {"q": ["d"]}, {"dev": ["q"]}, [("q", "gone", 0, 3)])
    with pytest.raises(CollectionError, match="'gone'"):
        gold_places(Collection(path), ["q"], tokenizer)


@given(st.text(alphabet="ab un.\n", max_size=60), st.integers(0, 60), st.integers(1, 20))
def test_gold_places_as_a_loop_counts_them(
    tmp_path_factory: pytest.TempPathFactory, tokenizer: Tokenizer, text: str, start: int, length: int
) -> None:
    path = tmp_path_factory.mktemp("places") / "c"
    collection = Collection(write_collection(path, {"d": text}, {"q": ["d"]}, {"dev": ["q"]}, [("q", "d", start, start + length)]))
    (place,) = gold_places(collection, ["q"], tokenizer)
    (encoding,) = tokenizer.encode([text])
    assert place.start == sum(end <= start for _, end in encoding.offsets)
    assert place.end == sum(first < start + length for first, _ in encoding.offsets)


def test_chunks_by_hand() -> None:
    assert [chunk(token) for token in (0, 476, 477, 953, 954)] == [1, 1, 2, 2, 3]
    assert chunk_shares([0, 9, 10, 29, 30, 99], size=10, chunks=3) == pytest.approx(np.array([2, 1, 1, 2]) / 6)
    assert chunk_shares([], chunks=2).tolist() == [0, 0, 0]


def test_values_by_chunk_by_hand() -> None:
    """A query counts where its first passage begins; one without a passage or a value does not count."""
    starts = {"q": [25, 9], "r": [10], "s": [500], "unmeasured": [0]}
    places = [GoldPlace(query, "d", start, start + 1, 600) for query, of_query in starts.items() for start in of_query]
    values = {"q": 1.0, "r": 0.5, "s": 0.25, "without": 0.0}
    assert by_chunk(values, places, size=10, chunks=3) == [[1.0], [0.5], [], [0.25]]


STARTS = {"a": 0, "b": 9, "c": 15, "d": 35}  # words in front of the gold passage, which has three
CHUNKS = ("--chunk", 10, "--chunks", 2)


@pytest.fixture(scope="module")
def collection(tmp_path_factory: pytest.TempPathFactory) -> Path:
    texts = {name: "the " * front + "gold gold gold" + " the" * 9 for name, front in STARTS.items()}
    spans = [(f"q{name}", name, 4 * front, 4 * front + 14) for name, front in STARTS.items()]
    names = [f"q{name}" for name in STARTS]
    return write_collection(tmp_path_factory.mktemp("positions") / "four", texts, {q: [q[1]] for q in names}, {"dev": names}, spans)


@pytest.fixture
def ranked(collection: Path, tmp_path: Path) -> Path:
    """Qa and qb rank their document first, qc second; qd is left out."""
    run = {"qa": {"a": 2.0, "b": 1.0}, "qb": {"b": 1.0}, "qc": {"a": 2.0, "c": 1.0}}
    write_run(run, tmp_path / "mine.trec", "mine")
    return tmp_path / "mine.trec"


def test_the_tables_by_hand(collection: Path, ranked: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """B starts in the first chunk and ends in the second: tokens 9 to 11. The run lacks qd: zero."""
    assert positions_main(strings("--collection", collection, *CHUNKS, "--run", ranked, "--out", tmp_path / "p.png")) == 0
    printed = capsys.readouterr().out
    shares, _, quality = printed.partition("gold passages: 4 of four")
    assert cells(shares) == {
        "chunk": ["four: start", "four: end"],
        "---": ["---", "---"],
        "1": ["50.0%", "25.0%"],
        "2": ["25.0%", "50.0%"],
        "2+": ["25.0%", "25.0%"],
    }
    assert cells(quality) == {
        "gold starts in chunk": ["queries", "mine, RR@10"],
        "---": ["---", "---"],
        "1": ["2", "1.0000"],
        "2": ["1", "0.5000"],
        "2+": ["1", "0.0000"],
    }
    assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")


def test_a_record_and_a_run_are_compared_on_the_record_s_queries(
    collection: Path, ranked: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    evaluation = evaluate_run("the record", {"qc": {"c": 1.0}}, Collection(collection), ["qa", "qc"])
    record = write_record(record_evaluation(evaluation, "four", "dev"), tmp_path / "records")
    arguments = strings("--collection", collection, "--split", "dev", *CHUNKS, "--run", ranked, "--run", record, "--json")
    assert positions_main(arguments) == 0
    figures = json.loads(capsys.readouterr().out)
    assert figures["positions"] == {
        "four": {"passages": 4, "median start": 0.492, "start": [0.5, 0.25, 0.25], "end": [0.25, 0.5, 0.25]}
    }
    assert figures["quality"] == {
        "mine": {"queries": [1, 1, 0], "mean": [1.0, 0.5, None]},
        "the record": {"queries": [1, 1, 0], "mean": [0.0, 1.0, None]},
    }


def test_what_cannot_be_counted_is_one_line(
    collection: Path, ranked: Path, toy_path: Path, tmp_path: Path, refused: Callable[..., str]
) -> None:
    given = ("--collection", collection)
    assert "name that one alone" in refused(positions_main, *given, "--collection", toy_path, "--run", ranked)
    assert "--measure reported is a set of measures" in refused(positions_main, *given, "--run", ranked, "--measure", "reported")
    assert "no such collection directory" in refused(positions_main, "--collection", tmp_path / "nowhere")
    assert "has no splits/test.txt" in refused(positions_main, *given, "--split", "test")
    evaluation = evaluate_run("other", {}, Collection(collection), ["elsewhere"])
    record = write_record(record_evaluation(evaluation, "four", "dev"), tmp_path)
    assert "no query of four has a RR@10 of every --run" in refused(positions_main, *given, "--run", record)
    spanless = write_collection(tmp_path / "spanless", {"a": "one"}, {"q": ["a"]}, {"dev": ["q"]})
    assert "spanless: no query has a gold passage" in refused(positions_main, "--collection", spanless)


def test_several_collections_stand_side_by_side(collection: Path, toy_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert positions_main(strings("--collection", collection, "--collection", toy_path, "--split", "dev", *CHUNKS)) == 0
    printed = capsys.readouterr().out
    assert cells(printed)["chunk"] == ["four: start", "four: end", "toy: start", "toy: end"]
    assert "gold passages: 4 of four (median start at 49% of the document), 4 of toy (median" in printed
