import re

import pytest

from benchmarks.reload import main, parser


def test_the_table_has_both_lines_and_no_answer_is_lost(capsys: pytest.CaptureFixture[str]) -> None:
    main(parser().parse_args(["--reloads", "2", "--requests", "5"]))
    told = capsys.readouterr().out
    alone, reloading = (line for line in told.splitlines() if line.startswith(("| alone", "| reloading")))
    assert alone.startswith("| alone | 5 |")
    assert int(reloading.split("|")[2]) > 0
    assert re.search(r"a reload takes \d+\.\d\d s; MiB held after each: \d+, \d+", told)
