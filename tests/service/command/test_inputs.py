"""Files as documents: what is read, what is left out, and what is said of it."""

import json
import os
from pathlib import Path

import pytest

from service.command.inputs import Files, Input
from service.command.report import Report
from tests.service.files.made import pdf


def read(tmp_path: Path, *names: str, form: str = "auto", recursive: bool = False, globs: tuple[str, ...] = ()) -> list[Input]:
    report = Report()
    return list(Files([str(tmp_path / name) for name in names], report, form=form, recursive=recursive, globs=globs).read())


def test_a_text_is_a_document(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_bytes("# Donau\r\n\r\nWien 😀".encode())
    (tmp_path / "empty").touch()
    first, second = read(tmp_path, "a.md", "empty")
    assert first == Input(str(tmp_path / "a.md"), "# Donau\r\n\r\nWien 😀")
    assert second.text == ""


def test_json_lines_are_a_document_each(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [
        b'\xef\xbb\xbf{"id": 7, "title": "Donau", "text": "Wien"}',
        b"",
        b"{bad",
        b'{"id": 3}',
        b'{"text": 5}',
        b'["text"]',
        b'{"text": "\xff"}',
        b'{"text": "last", "other": 1}',
    ]
    (tmp_path / "some.jsonl").write_bytes(b"\n".join(lines))
    found = read(tmp_path, "some.jsonl")
    assert [(one.name.rsplit("/")[-1], one.text, one.title, one.id) for one in found] == [
        ("some.jsonl:1", "Wien", "Donau", 7),
        ("some.jsonl:8", "last", None, None),
    ]
    said = capsys.readouterr().err.splitlines()
    assert [line.split("some.jsonl:")[1][:1] for line in said] == ["3", "4", "5", "6", "7"]
    assert said[1].endswith("some.jsonl:4: has no text; skipped")
    assert said[2].endswith("some.jsonl:5: text: Input should be a valid string; skipped")


def test_the_format_may_be_given(tmp_path: Path) -> None:
    line = json.dumps({"text": "Wien"})
    (tmp_path / "lines").write_text(line)
    (tmp_path / "text.jsonl").write_text(line)
    assert [one.text for one in read(tmp_path, "lines", form="jsonl")] == ["Wien"]
    assert [one.text for one in read(tmp_path, "text.jsonl", form="text")] == [line]


def test_a_file_that_is_no_text_fails_if_it_was_named_and_is_left_out_of_a_directory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "report.pdf").write_bytes(b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n1 0 obj")
    (tmp_path / "there.txt").write_text("Wien")
    for names, recursive in ((["report.pdf", "there.txt"], False), ([""], True)):
        report = Report()
        files = Files([str(tmp_path / name) for name in names], report, recursive=recursive)
        assert [one.text for one in files.read()] == ["Wien"]
        assert report.failed is not recursive
        assert "report.pdf: is a PDF, skipped: it is broken (" in capsys.readouterr().err


def test_files_that_hold_a_text_are_documents(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.pdf").write_bytes(pdf([["The river rises."], ["It falls."]]))
    (tmp_path / "b.html").write_bytes(b"<title>Rivers</title><h1>Danube</h1>It rises.")
    (tmp_path / "c.pdf").write_bytes(pdf([[]]))
    first, second = read(tmp_path, "a.pdf", "b.html", "c.pdf")
    assert first == Input(str(tmp_path / "a.pdf"), "The river rises.\fIt falls.", paged=True)
    assert second == Input(str(tmp_path / "b.html"), "# Danube\n\nIt rises.", "Rivers")
    assert capsys.readouterr().err.endswith("c.pdf: is a PDF, skipped: it holds no text: run OCR first (ocrmypdf)\n")


def test_directories(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("b/z.md", "b/c/y.txt", "a.txt", ".hidden/x.txt", "b/.hidden.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    (tmp_path / "b" / "round").symlink_to(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    assert [one.text for one in read(tmp_path, "", recursive=True)] == ["a.txt", "b/z.md", "b/c/y.txt"]
    assert [one.text for one in read(tmp_path, "", recursive=True, globs=("*.md", "y.*"))] == ["b/z.md", "b/c/y.txt"]
    assert capsys.readouterr().err == ""
    assert read(tmp_path, "b") == []
    assert "b: is a directory; rerank --recursive reads what is in it" in capsys.readouterr().err


def test_what_cannot_be_read_fails_and_stops_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "there").write_text("Wien")
    report = Report()
    files = Files([str(tmp_path / "nobody\x1b[2J"), str(tmp_path / "there")], report)
    assert [one.text for one in files.read()] == ["Wien"]
    assert (report.failed, files.total, Files(["a.txt", "b.JSONL"], report).total) == (True, 2, None)
    assert capsys.readouterr().err.endswith("nobody␛[2J: No such file or directory\n")
