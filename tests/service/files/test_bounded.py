"""Files read in a process of their own: what it reads, what ends it, and that others are read afterwards."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from service.files import bounded
from service.files.bounded import MEMORY, TOO_MUCH, BoundedReader, environment, question
from service.files.extraction import extract
from service.files.kinds import NotTextError
from tests.service.files.made import SAMPLES, epub, paragraph, pdf, word

TEXT = "Der Fluß steigt.".encode("cp1252")
HEADING = word(paragraph("The river rises.", "Heading1"))


@pytest.fixture
def reader() -> Iterator[BoundedReader]:
    with BoundedReader() as reader:
        yield reader


def test_it_reads_what_is_read_in_place_with_one_process_for_all(reader: BoundedReader) -> None:
    assert reader.read(TEXT) == extract(TEXT)
    assert reader._process is None
    processes = []
    for content in (HEADING, *SAMPLES.values(), pdf([["The river"], ["rises."]])):
        assert reader.read(content, "a.file") == extract(content, "a.file")
        processes.append(reader._process)
    assert len(set(processes)) == 1
    with pytest.raises(NotTextError, match="is a PDF, skipped: it holds no text: run OCR first"):
        reader.read(pdf([[]]))
    assert reader._process is processes[0]


def test_a_file_that_takes_too_much_memory_is_refused_and_the_next_one_is_read(reader: BoundedReader) -> None:
    attack = epub({"a.xhtml": "<p>a" * (5 * 2**20)})
    assert len(attack) < 100_000
    with pytest.raises(NotTextError) as refused:
        reader.read(attack)
    assert str(refused.value) == TOO_MUCH == "takes more than 30 s or 512 MiB to read: give its text"
    assert reader.read(HEADING).text == "# The river rises."


def test_a_file_that_takes_too_long_is_refused(reader: BoundedReader, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded, "SECONDS", 1)
    with pytest.raises(NotTextError, match="takes more than 30 s or 512 MiB to read: give its text"):
        reader.read(word(paragraph("a") * 20_000))
    monkeypatch.undo()
    assert reader.read(SAMPLES["a PDF"]).text == "The river rises."


def test_a_large_file_leaves_all_memory_to_the_next(reader: BoundedReader) -> None:
    page = b"<!doctype html>" + b"<p>The river rises." * (2 * 2**20 // 19)
    for _ in range(3):
        assert reader.read(page).text.count("river") == page.count(b"river")
    assert reader.read(SAMPLES["an HTML page"]).title == "Rivers"


def test_the_process_is_bounded_writes_no_file_and_gives_way() -> None:
    limits = "*(resource.getrlimit(getattr(resource, 'RLIMIT_' + name))[0] for name in ('AS', 'FSIZE', 'CORE'))"
    code = f"import os, resource, service.files.__main__ as process; process.bound(); print({limits}, os.nice(0))"
    before = int(subprocess.run([sys.executable, "-c", "import os; print(os.nice(0))"], capture_output=True, check=True).stdout)
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout
    assert list(map(int, output.split())) == [MEMORY, 0, 0, min(before + 10, 19)]


def test_without_the_extra_the_process_says_what_to_install() -> None:
    code = "import sys; sys.modules['charset_normalizer'] = None; from service.files.__main__ import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code], input=question(SAMPLES["an HTML page"], ""), capture_output=True, check=True
    )
    assert b"to read it, install the extra files: pip install 'keyblock[files]'" in done.stdout


def test_the_process_knows_no_secret_and_runs_no_module_of_the_directory(
    reader: BoundedReader, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("KEYBLOCK_STORE_KEY", "secret")
    monkeypatch.setenv("LANG", "C")
    assert "secret" not in environment().values()
    assert environment()["LANG"] == "C"
    for name in ("mammoth", "service", "json"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit(1)")
    monkeypatch.chdir(tmp_path)
    assert reader.read(HEADING).text == "# The river rises."
