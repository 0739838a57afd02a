"""The measured figures of README.md and docs/ are those of the records, and of what the embedded model answers today."""

import json
import re
import statistics

import pytest

from benchmarks import figures


def test_no_figure_is_stale(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["figures", "--check"])
    assert figures.main() == 0, capsys.readouterr().out + "run: python -m benchmarks.figures"


def test_each_figure_that_is_typed_by_hand_names_its_source() -> None:
    pages = [figures.ROOT / "README.md", *sorted((figures.ROOT / "docs").rglob("*.md"))]
    typed = [found for page in pages for found in figures.by_hand(page)]
    assert typed
    assert [found for found in typed if found[2] is None] == []


@pytest.mark.parametrize(
    ("shown", "today", "same"),
    [
        ("0.4783", "0.4787", True),
        ("0.44", "0.48", False),
        ('"start": 1343, "score": 3.79', '"start": 1343, "score": 3.80', True),
        ('"start": 1343, "score": 3.79', '"start": 1344, "score": 3.79', False),
        ("5.84 times", "5.84", False),
        ("0.1 and 0.2", "0.1", False),
    ],
)
def test_only_the_last_digits_may_differ(shown: str, today: str, same: bool) -> None:
    assert figures.agree(shown, today) is same


def test_a_figure_that_nobody_knows_is_an_error(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path_factory.mktemp("root")
    (root / "README.md").write_text("<!--unheard-of-->1.5<!--/-->", encoding="utf-8")
    (root / "docs").mkdir()
    monkeypatch.setattr(figures, "ROOT", root)
    monkeypatch.setattr(figures, "figures", lambda: {"known": figures.Figure("1.5", "a record")})
    monkeypatch.setattr("sys.argv", ["figures"])
    with pytest.raises(SystemExit, match=r"README.md: no figure is called 'unheard-of'; there are known"):
        figures.main()


ROW = re.compile(r"^\| \*\*([a-z-]+)\*\*, KeyBlock \| \*\*([\d.]+)\*\* \| \| \*\*([\d.]+)\*\*", re.MULTILINE)


def test_the_table_of_quality_is_that_of_the_records() -> None:
    rows = ROW.findall((figures.ROOT / "docs/results/quality.md").read_text(encoding="utf-8"))
    assert rows
    for collection, reciprocal_rank, gain in rows:
        records = [
            json.loads(path.read_text(encoding="utf-8"))["values"]
            for path in (figures.RECORDS / "embedded" / collection).glob("*.json")
        ]
        means = [tuple(f"{statistics.fmean(values[name]):.4f}" for name in ("RR@10", "nDCG@10")) for values in records]
        assert (reciprocal_rank, gain) in means
