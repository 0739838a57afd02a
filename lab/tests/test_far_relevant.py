"""Far-relevant documents, where a token is a word so that a reader can count; keyblock-farrelevant makes collections of them."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keyblock.text.tokenizer import Tokenizer
from lab.commands.farrelevant import main as farrelevant_main
from lab.far_relevant import FarDocument, Settings, make_splits
from lab.passages import Passages, open_passages
from tests.training.collections.passages import write_collection, write_passages
from tests.training.commands.conftest import cells, strings
from training.data.collection import Collection
from training.data.types import CollectionError


def words(text: str) -> int:
    return len(text.split())


@pytest.fixture(scope="module")
def passages(tmp_path_factory: pytest.TempPathFactory) -> Passages:
    return open_passages(Collection(write_passages(tmp_path_factory.mktemp("far") / "passages")))


ALL: Mapping[str, int | None] = {"train": None, "dev": None}
small = st.builds(
    Settings,
    start=st.integers(0, 60),
    longest=st.integers(73, 150),
    behind=st.sampled_from([0, 0, 1, 40]),
    longest_passage=st.sampled_from([7, 512]),
    seed=st.integers(0, 1000),
)


@pytest.mark.parametrize("behind", [0, 4])
def test_the_relevant_passage_in_front(even: Passages, behind: int) -> None:
    """The same passages as without it, in the same order, but for that one: a collection with the bias of position."""
    far, near = (only(even, Settings(start=18, longest=20, behind=behind, front=front)) for front in (0, 1))
    assert (near.gold, near.passages[0], near.fillers) == (0, "the answer", far.fillers)
    assert near.span.start == 0


@pytest.fixture(scope="module")
def even(tmp_path_factory: pytest.TempPathFactory) -> Passages:
    """A query; its passage has 2 words, and every other one 4."""
    texts = {"gold": "the answer"} | {f"p{n}": f"a{n} b{n} c{n} d{n}" for n in range(20)}
    path = tmp_path_factory.mktemp("even") / "passages"
    return open_passages(Collection(write_collection(path, texts, {"q": ["gold"]}, {"dev": ["q"]})))


def only(passages: Passages, settings: Settings) -> FarDocument:
    (split,) = make_splits(passages, {"dev": None}, words, settings)
    (made,) = split.documents
    return made


def test_the_head_by_hand(even: Passages) -> None:
    """The length is 20, so that fillers may have 18 words. Five have more than `start` alone: none is mixed in.

    Behind the relevant passage, two have more than 4 words.
    """
    assert only(even, Settings(start=18, longest=20)).gold == 5
    assert len(only(even, Settings(start=18, longest=20)).passages) == 5 + 1
    behind = only(even, Settings(start=18, longest=20, behind=4))
    assert (behind.gold, len(behind.passages), behind.passages[5]) == (5, 5 + 1 + 2, "the answer")


def test_the_mix_by_hand(even: Passages) -> None:
    """The length is 12 to 30 words, so that fillers have 10 to 28: the head's three, and up to four that stand on either side."""
    made = [only(even, Settings(start=10, longest=30, seed=seed)) for seed in range(300)]
    assert {(len(d.fillers), d.gold) for d in made} == {(n, gold) for n in range(3, 8) for gold in range(3, n + 1)}


@given(small)
def test_what_always_holds(passages: Passages, settings: Settings) -> None:
    splits = make_splits(passages, ALL, words, settings)
    relevant = {query: {p for gold in passages.relevant(query) for p in gold.covers} for s in splits for query in s.queries}
    used: dict[str, set[str]] = {}
    for split in splits:
        assert sorted(split.queries) == sorted(d.query_id for d in split.documents)
        of_split = set().union(*(relevant[query] for query in split.queries))
        for made in split.documents:
            (gold,) = [g for g in passages.relevant(made.query_id) if g.text == made.passages[made.gold]]
            text, span = made.document.text, made.span
            assert text[span.start : span.end] == gold.text
            assert words(text[: span.start]) > settings.start
            assert not settings.behind or words(text[span.end :]) > settings.behind
            longest_filler = min(12, settings.longest_passage)
            assert words(text) <= max(settings.longest, settings.start + longest_filler + words(gold.text)) + (
                settings.behind and settings.behind + longest_filler
            )
            assert len(set(made.fillers)) == len(made.fillers) == len(made.passages) - 1
            assert not set(made.fillers) & of_split  # none is relevant for any query that is asked: hence not for this one
            assert all(words(passages.text(filler)) <= settings.longest_passage for filler in made.fillers)
            used.setdefault(split.name, set()).update(made.fillers, gold.covers)
    assert not used["train"] & used["dev"]


def test_queries_that_are_left_out_and_why(passages: Passages) -> None:
    """t0 and t1 have a relevant passage in common, t2 has none, and d0's belongs to train, which is named first."""
    train, dev = make_splits(passages, ALL, words, Settings(start=20, longest=60))
    assert train.left_out == {"its passage is another query's": 1, "no relevant passage is known": 1}
    assert dev.left_out == {"its document belongs to another split": 1}
    assert (len(train.documents), len(dev.documents)) == (8, 9)
    assert dev.queries == [f"d{n}" for n in range(1, 10)]
    (other, first) = make_splits(passages, {"dev": None, "train": None}, words, Settings(start=20, longest=60))
    assert (other.name, len(other.documents), len(first.documents)) == ("dev", 10, 7)
    (few,) = make_splits(passages, {"dev": 4, "train": 0}, words, Settings(start=20, longest=60))
    assert (len(few.queries), few.left_out) == (4, {"more than were asked for": 6})
    (short,) = make_splits(passages, {"dev": None}, words, Settings(start=20, longest=26))
    assert short.left_out == {"its passage is too long": 6}  # those of 7 words and more: d4 to d9


def test_fillers_of_another_document_of_the_query_are_none(tmp_path: Path) -> None:
    """Of a long document that is relevant, paragraphs around the span may be so, too: they never surround it here."""
    article = "\n\n".join(f"x{n} y{n} z{n}" for n in range(30))
    texts = {"a": article, "b": article.replace("x", "u"), "c": article.replace("x", "v")}
    spans = [("q", "a", 0, 3), ("r", "b", 0, 3)]
    path = write_collection(tmp_path / "long", texts, {"q": ["a"], "r": ["b"]}, {"dev": ["q", "r"]}, spans)
    (split,) = make_splits(open_passages(Collection(path)), {"dev": None}, words, Settings(start=20, longest=60))
    sources = {made.query_id: {filler.partition(":")[0] for filler in made.fillers} for made in split.documents}
    assert {"q": "a" in sources["q"], "r": "b" in sources["r"]} == {"q": False, "r": False}
    assert sources["q"] | sources["r"] == {"a", "b", "c"}


def test_tokens_that_joints_cost_are_made_up_for(passages: Passages) -> None:
    """A tokenizer that reads a joint away: joined, two passages have a token less than apart."""

    def sparing(text: str) -> int:
        return words(text) - text.count("\n\n")

    splits = make_splits(passages, ALL, sparing, Settings(start=40, longest=90))
    heads = [sparing(d.document.text[: d.span.start]) for s in splits for d in s.documents]
    assert min(heads) >= 40


@pytest.mark.parametrize(
    ("splits", "settings", "problem"),
    [
        ({"dev": None}, {"start": 5000, "longest": 5100}, "split dev has 390 passages relevant for none of its queries, too few"),
        ({"dev": None}, {"start": 20, "longest": 90, "shortest_passage": 13}, r"ask for fewer queries \(dev=NUMBER\)"),
        ({"dev": None}, {"start": 20, "longest": 22}, "no query of split dev can be used: .*'its passage is too long': 10"),
        ({"dev": 0}, {}, "every split has the number 0"),
        ({"dev": 1, "dev.small": 1}, {}, "two of the splits dev, dev.small would be one"),
        ({"test": None}, {}, "has no splits/test.txt"),
    ],
)
def test_what_cannot_be_made(passages: Passages, splits: dict[str, int | None], settings: dict[str, Any], problem: str) -> None:
    (passages.collection.path / "splits" / "dev.small.txt").write_text("d1\n")
    with pytest.raises(CollectionError, match=problem):
        make_splits(passages, splits, words, Settings(**settings))


SMALL = ("--start", 60, "--longest", 150, "--depth", 5)


def contents(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in sorted(directory.rglob("*")) if path.is_file()}


def test_a_collection_of_passages(
    passages: Passages, tmp_path: Path, tokenizer: Tokenizer, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = strings("--collection", passages.collection.path, "--split", "train", "--split", "dev=6", *SMALL)
    assert farrelevant_main([*arguments, "--out", str(tmp_path / "far")]) == 0
    table = cells(capsys.readouterr().out)
    original, made = passages.collection, Collection(tmp_path / "far")
    assert table[""] == ["train", "dev"]
    assert table["documents and queries"] == ["8", "6"]
    assert "1 no relevant passage is known" in table["queries left out"][0]
    assert len(made.documents) == 14
    for query, ((doc_id, start, end),) in made.spans.items():
        text = made.document(doc_id).text
        assert text[start:end] in {original.document(passage).text for passage in original.qrels[query]}
        assert len(tokenizer.ids(text[:start])) >= 60
        assert made.query(query) == original.query(query)
        assert made.qrels[query] == {doc_id: 1}
    for split, number in (("train", 8), ("dev", 6)):
        own = {doc_id for query in made.split(split) for doc_id in made.qrels[query]}
        assert {doc_id for scores in made.run(split).values() for doc_id in scores} <= own
        assert (len(made.run(split)), len(own), {len(scores) for scores in made.run(split).values()}) == (number, number, {5})
    figures = json.loads((tmp_path / "far" / "stats.json").read_text())
    assert figures["from"] == "passages"
    assert figures["splits"]["dev"]["gold starts at token, first"] >= 60
    assert figures["settings"]["behind"] == 0


def test_fillers_behind_move_the_passage_to_the_middle(
    passages: Passages, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    figures, given = [], ("--collection", passages.collection.path, "--split", "dev", *SMALL, "--json")
    for behind in (0, 60):
        assert farrelevant_main(strings(*given, "--behind", behind, "--out", tmp_path / str(behind))) == 0
        figures.append(json.loads(capsys.readouterr().out)["splits"]["dev"])
    place = "gold starts at share of the document, median"
    assert figures[0]["tokens behind gold, fewest"] < 60 < figures[1]["tokens behind gold, fewest"]
    assert figures[0][place] > figures[1][place]


def test_the_same_seed_gives_the_same_bytes(passages: Passages, tmp_path: Path) -> None:
    for name, seed in (("one", 1), ("again", 1), ("other", 2)):
        arguments = strings(
            "--collection", passages.collection.path, "--split", "dev", *SMALL, "--seed", seed, "--out", tmp_path / name
        )
        assert farrelevant_main(arguments) == 0
    one, again, other = (contents(tmp_path / name) for name in ("one", "again", "other"))
    assert one == again
    assert set(one) == set(other)
    assert one["corpus.jsonl.gz"] != other["corpus.jsonl.gz"]


def test_what_cannot_be_made_is_one_line(
    passages: Passages, tmp_path: Path, refused: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    given = ("--collection", passages.collection.path, "--split", "dev", "--out", tmp_path / "far")
    assert "longest 512 leaves no room for a passage behind the first 512" in refused(farrelevant_main, *given, "--longest", 512)
    none = refused(farrelevant_main, *given, "--shortest-passage", 9, "--longest-passage", 8)
    assert "no passage has at least 9 and at most 8 tokens" in none
    assert "ask for fewer queries (dev=NUMBER)" in refused(farrelevant_main, *given, "--start", 90000, "--longest", 90999)
    assert "not a tokenizer file" in refused(farrelevant_main, *given, "--backbone", tmp_path)
    assert "has no splits/test.txt" in refused(farrelevant_main, *given, "--split", "test")
    assert not (tmp_path / "far").exists()
    (tmp_path / "far").mkdir()
    assert "is there already" in refused(farrelevant_main, *given)
    with pytest.raises(SystemExit):
        farrelevant_main(strings(*given, "--split", "dev=many"))
    assert "'dev=many' is no split: write NAME, or NAME=NUMBER" in capsys.readouterr().err
