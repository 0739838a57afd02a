"""keyblock-farrelevant, from passages to a collection that is read, ranked and cut as any other."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from keyblock.text.tokenizer import Tokenizer
from lab.commands.farrelevant import main as farrelevant_main
from tests.training.collections.passages import write_passages
from tests.training.commands.running import cells, strings
from training.data.collection import Collection

SMALL = ("--start", 60, "--longest", 150, "--depth", 5)


@pytest.fixture(scope="module")
def passages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_passages(tmp_path_factory.mktemp("passages") / "words")


def contents(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in sorted(directory.rglob("*")) if path.is_file()}


def test_a_collection_of_passages(passages: Path, tmp_path: Path, tokenizer: Tokenizer, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = strings("--collection", passages, "--split", "train", "--split", "dev=6", *SMALL)
    assert farrelevant_main([*arguments, "--out", str(tmp_path / "far")]) == 0
    table = cells(capsys.readouterr().out)
    original, made = Collection(passages), Collection(tmp_path / "far")
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
    assert figures["from"] == "words"
    assert figures["splits"]["dev"]["gold starts at token, first"] >= 60
    assert figures["settings"]["behind"] == 0


def test_the_same_seed_gives_the_same_bytes(passages: Path, tmp_path: Path) -> None:
    for name, seed in (("one", 1), ("again", 1), ("other", 2)):
        arguments = strings("--collection", passages, "--split", "dev", *SMALL, "--seed", seed, "--out", tmp_path / name)
        assert farrelevant_main(arguments) == 0
    one, again, other = (contents(tmp_path / name) for name in ("one", "again", "other"))
    assert one == again
    assert set(one) == set(other)
    assert one["corpus.jsonl.gz"] != other["corpus.jsonl.gz"]


def test_documents_with_spans_of_a_whole_collection(toy_path: Path, tmp_path: Path) -> None:
    """The toy's documents are one paragraph each: the gold passage is all of it."""
    arguments = strings("--collection", toy_path, "--split", "dev=2", "--start", 100, "--longest", 500, "--depth", 2)
    assert farrelevant_main([*arguments, "--out", str(tmp_path / "far")]) == 0
    made, toy = Collection(tmp_path / "far"), Collection(toy_path)
    for query, ((doc_id, start, end),) in made.spans.items():
        assert made.document(doc_id).text[start:end] == toy.document(toy.spans[query][0].doc_id).text


def test_what_cannot_be_made_is_one_line(
    passages: Path, tmp_path: Path, refused: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    given = ("--collection", passages, "--split", "dev", "--out", tmp_path / "far")
    assert "longest 512 leaves no room" in refused(farrelevant_main, *given, "--longest", 512)
    assert "ask for fewer queries (dev=NUMBER)" in refused(farrelevant_main, *given, "--start", 90000, "--longest", 90999)
    assert "not a tokenizer file" in refused(farrelevant_main, *given, "--backbone", tmp_path)
    assert "has no splits/test.txt" in refused(farrelevant_main, *given, "--split", "test")
    assert not (tmp_path / "far").exists()
    (tmp_path / "far").mkdir()
    assert "is there already" in refused(farrelevant_main, *given)
    with pytest.raises(SystemExit):
        farrelevant_main(strings(*given, "--split", "dev=many"))
    assert "'dev=many' is no split: write NAME, or NAME=NUMBER" in capsys.readouterr().err


def test_fillers_behind_move_the_passage_to_the_middle(passages: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    figures = []
    for behind in (0, 60):
        arguments = strings("--collection", passages, "--split", "dev", *SMALL, "--behind", behind, "--json")
        assert farrelevant_main([*arguments, "--out", str(tmp_path / str(behind))]) == 0
        figures.append(json.loads(capsys.readouterr().out)["splits"]["dev"])
    place = "gold starts at share of the document, median"
    assert figures[0]["tokens behind gold, fewest"] < 60 < figures[1]["tokens behind gold, fewest"]
    assert figures[0][place] > figures[1][place]
