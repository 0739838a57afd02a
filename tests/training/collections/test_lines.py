"""Lines of text files: plain, gzipped, damaged."""

import gzip
from pathlib import Path

import pytest

from training.data.files import numbered_lines, open_text
from training.data.types import FileError


@pytest.mark.parametrize("name", ["lines.txt", "lines.txt.gz"])
def test_blank_lines_are_left_out_and_counted(tmp_path: Path, name: str) -> None:
    with open_text(tmp_path / name, "w") as out:
        out.write("one\n\n  \nfour é\n")
    assert list(numbered_lines(tmp_path / name)) == [(1, "one\n"), (4, "four é\n")]
    assert (tmp_path / name).read_bytes().startswith(b"\x1f\x8b") == name.endswith(".gz")


def damaged(kind: str) -> bytes:
    whole = gzip.compress(b"".join(b"line %d of a file\n" % i for i in range(2000)))
    return {
        "cut short": whole[: len(whole) // 2],
        "not gzip": b"line 1\nline 2\n",
        "altered": whole[:500] + b"\xff" * 40 + whole[540:],
        "not UTF-8": gzip.compress(b"caf\xe9\n"),
    }[kind]


@pytest.mark.parametrize("kind", ["cut short", "not gzip", "altered", "not UTF-8"])
def test_damage_names_the_file(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "lines.gz"
    path.write_bytes(damaged(kind))
    with pytest.raises(FileError, match=r"lines\.gz: damaged, copy it again"):
        list(numbered_lines(path))


def test_a_missing_file_is_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="nowhere"):
        list(numbered_lines(tmp_path / "nowhere.txt"))


def test_the_same_text_gives_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Gzip would write the time."""
    written = []
    for seconds in (1e9, 2e9):
        monkeypatch.setattr("time.time", lambda seconds=seconds: seconds)
        with open_text(tmp_path / "lines.gz", "w") as out:
            out.write("one\n")
        written.append((tmp_path / "lines.gz").read_bytes())
    assert written[0] == written[1]
