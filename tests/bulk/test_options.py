"""The command line is made of the options."""

from pathlib import Path

import pytest

from bulk.errors import BulkError
from bulk.options import Asking, Options, flag, parse, parser

LEAST = ["--lists", "a.jsonl", "--bundle", "B", "--out", "O"]


def test_each_option_has_a_flag_and_a_meaning(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parser().parse_args(["--help"])
    shown = capsys.readouterr().out
    assert [name for name in Options.model_fields if flag(name) not in shown] == []
    assert [name for name, field in Options.model_fields.items() if not field.description] == []


def test_flags_become_options() -> None:
    found = parse([*LEAST, "--lists", "b.parquet", "--workers", "3", "--spans", "--precision", "fp32"])
    assert found.lists == (Path("a.jsonl"), Path("b.parquet"))
    assert (found.workers, found.spans, found.asking) == (3, True, Asking(spans=True, precision="fp32"))


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--workers", "0"], "--workers: Input should be greater than or equal to 1, and it is '0'"),
        (["--engine", "spark"], "--engine: Input should be 'local' or 'ray', and it is 'spark'"),
        (["--run", "r.trec"], "name the candidate lists: --lists FILE, or --run FILE with --collection DIR; one of both"),
        (["--address", "auto"], "--address is of a Ray cluster: add --engine ray"),
    ],
)
def test_invalid_options_are_one_line(more: list[str], said: str) -> None:
    with pytest.raises(BulkError, match=said):
        parse([*LEAST, *more])


def test_a_run_needs_its_texts() -> None:
    with pytest.raises(BulkError, match="a TREC run has no texts"):
        parse(["--run", "r.trec", *LEAST[2:]])
