import re
from pathlib import Path

import pytest

from benchmarks.reload import main, parser


def test_the_table_has_both_lines_and_no_answer_is_lost(bundle_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(parser().parse_args(["--bundle", str(bundle_path), "--provider", "cpu", "--reloads", "2", "--requests", "5"]))
    printed = capsys.readouterr().out
    alone, reloading = (line for line in printed.splitlines() if line.startswith(("| alone", "| reloading")))
    assert alone.startswith("| alone | 5 |")
    assert int(reloading.split("|")[2]) > 0
    assert re.search(r"a reload takes \d+\.\d\d s; MiB held after each: \d+, \d+", printed)
