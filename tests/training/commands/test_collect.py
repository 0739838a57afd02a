"""keyblock-collect: tables as people have them become collections."""

import gzip
import json
from pathlib import Path

import pytest

from tests.training.commands.conftest import Printed, strings
from training.commands.collect import main as collect_main
from training.data.collection import Collection
from training.data.types import Document, Span

LEASE = "The flat has two rooms.\n\nThe notice period\nis three months."
HOUSE = "Pets are allowed; dogs after a word with the owner."
ROWS = [
    {"question": "How long is the notice period?", "document": LEASE, "relevant": "2", "title": "Lease"},
    {"question": "How long is the notice period?", "document": HOUSE, "relevant": "0", "title": "House rules"},
    {"question": "May I keep a dog?", "document": HOUSE, "relevant": "yes", "title": "House rules"},
    {"question": "May I keep a dog?", "document": LEASE, "relevant": "no", "title": "Lease"},
]


def as_csv(rows: list[dict[str, str]], delimiter: str = ",") -> str:
    lines = [list(rows[0]), *(row.values() for row in rows)]
    return "\ufeff" + "".join(delimiter.join('"' + cell.replace('"', '""') + '"' for cell in line) + "\n" for line in lines)


def write_table(path: Path, rows: list[dict[str, str]]) -> Path:
    match "".join(path.suffixes):
        case ".csv":
            path.write_text(as_csv(rows, ";"), encoding="utf-8")
        case ".tsv":
            path.write_text(as_csv(rows, "\t"), encoding="utf-8")
        case ".jsonl.gz":
            path.write_bytes(gzip.compress("".join(json.dumps(row) + "\n" for row in rows).encode()))
        case ".parquet":
            arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
            parquet.write_table(arrow.Table.from_pylist(rows), path)
    return path


@pytest.mark.parametrize("name", ["mine.csv", "mine.tsv", "mine.jsonl.gz", "mine.parquet"])
def test_every_kind_of_table_becomes_the_same_collection(tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    table = write_table(tmp_path / name, ROWS)
    assert collect_main(strings(table, "--out", tmp_path / "mine", "--dev", 0.5)) == 0
    said = capsys.readouterr()
    assert said.out == f"{tmp_path / 'mine'}: 2 documents, 2 questions, 1 in dev, 1 in train, 4 judgements, 0 gold passages\n"
    assert said.err == ""
    made = Collection(tmp_path / "mine")
    assert dict(made.documents) == {"d1": Document("d1", "Lease", LEASE), "d2": Document("d2", "House rules", HOUSE)}
    assert dict(made.queries) == {"q1": "How long is the notice period?", "q2": "May I keep a dog?"}
    assert made.qrels == {"q1": {"d1": 2, "d2": 0}, "q2": {"d2": 1, "d1": 0}}
    assert not made.has_spans
    assert sorted(made.split("train") + made.split("dev")) == ["q1", "q2"]


def test_passages_and_paths(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The passage is found over a line break; one that stands nowhere is told; a path is read once."""
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "the lease.txt").write_text(LEASE, encoding="utf-8")
    (tmp_path / "texts" / "house.txt").write_text(HOUSE, encoding="utf-8")
    rows = [
        {"Frage": "How long?", "path": "the lease.txt", "passage": "The notice period is three months.", "split": "train"},
        {"Frage": "How many rooms?", "path": "the lease.txt", "passage": "two rooms", "split": "train"},
        {"Frage": "Dogs?", "path": "house.txt", "passage": "cats", "split": "dev"},
    ]
    table = write_table(tmp_path / "mine.csv", rows)
    arguments = strings(table, "--out", tmp_path / "mine", "--column", "question=Frage", "--documents", tmp_path / "texts")
    assert collect_main(arguments) == 0
    said = "1 passages do not stand in their documents: their documents count as relevant, without a gold passage\n"
    assert capsys.readouterr().err == said
    made = Collection(tmp_path / "mine")
    assert made.documents["the%20lease.txt"].text == LEASE
    assert made.qrels == {"q1": {"the%20lease.txt": 1}, "q2": {"the%20lease.txt": 1}, "q3": {"house.txt": 1}}
    (span,), (rooms,) = made.spans["q1"], made.spans["q2"]
    assert LEASE[span.start : span.end] == "The notice period\nis three months."
    assert rooms == Span("the%20lease.txt", 13, 22)
    assert (made.split("train"), made.split("dev")) == (["q1", "q2"], ["q3"])


def test_what_a_person_should_know_is_counted(tmp_path: Path, printed: Printed) -> None:
    """Thirty questions: a fifth are six, and dev gets ten, from which calibration can learn."""
    rows = [{"query": f"What is {number}?", "text": f"It is {number}."} for number in range(30)]
    rows += [{"query": "What is 1?", "text": "It is 1."}]
    table = tmp_path / "mine.jsonl"
    lines: list[dict[str, object]] = [*rows]
    lines += [{"query": "What is 1?", "text": "It is 1.", "grade": 3}, {"query": "Why?", "text": "It is 2.", "grade": 0}]
    table.write_text("".join(json.dumps(row | {"grade": row.get("grade")}) + "\n" for row in lines), encoding="utf-8")
    assert json.loads(printed(collect_main, table, "--out", tmp_path / "mine", "--json")) == {
        "documents": 30,
        "questions": 31,
        "in dev": 10,
        "in train": 20,
        "judgements": 31,
        "gold passages": 0,
        "notes": {
            "rows say neither how relevant the document is nor which passage answers: they count as relevant": 31,
            "rows judge a pair again, and otherwise: the higher grade counts": 1,
            "questions have no relevant document: they are in no split": 1,
        },
    }
    assert Collection(tmp_path / "mine").qrels["q2"] == {"d2": 3}


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("mine.xlsx", "x", "mine.xlsx: is of no kind that is read; give .csv, .tsv, .jsonl (each also .gz) or .parquet"),
        ("mine.csv", "a,b\n1,2\n", "mine.csv: has no column for the question; it has a, b: name it with --column MEANING=NAME"),
        ("mine.csv", "question,document,relevant\nwhy?,so,half\n", "row 2 has 'half' where the grade is: a whole number, true or"),
        ("mine.csv", "question,document\nwhy?,so,too\n", "line 2 has 3 cells, its header has 2"),
        ("mine.csv", "question,document\n", "mine.csv: has no row"),
        ("mine.csv", "question,document\nwhy?,so\n", "1 questions have a relevant document, and none is left for split dev"),
        ("mine.csv", "question,document\n,so\n", "row 2 has no question"),
        (
            "mine.csv",
            "question,path\nwhy?,gone.txt\n",
            "gone.txt, which cannot be read (No such file or directory); --documents",
        ),
        ("mine.jsonl", "[1]\n", "mine.jsonl: line 1 is no JSON object: [1]"),
        ("mine.parquet", "PAR1", "mine.parquet: cannot be read as Parquet"),
    ],
)
def test_tables_that_cannot_be_used(refused: Printed, tmp_path: Path, name: str, content: str, said: str) -> None:
    (tmp_path / name).write_text(content, encoding="utf-8")
    assert said in refused(collect_main, tmp_path / name, "--out", tmp_path / "made")
    assert not (tmp_path / "made").exists()


def test_parquet_without_pyarrow(refused: Printed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    said = refused(collect_main, tmp_path / "mine.parquet", "--out", tmp_path / "made")
    assert "reading Parquet needs pyarrow (pip install pyarrow); or save the table as .jsonl" in said
