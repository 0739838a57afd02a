"""The command, from records that exist: nothing is measured here."""

from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

import benchmarks.performance.__main__ as command
from benchmarks.performance.__main__ import PARTS, main, measured, parser
from benchmarks.performance.record import read_record, write_record
from benchmarks.performance.report import BEGIN, END
from tests.support.serving import ServiceError

Record = dict[str, Any]


@pytest.fixture
def flags(tmp_path: Path, record: Record) -> list[str]:
    write_record(tmp_path / "latest.json", record)
    (tmp_path / "page.md").write_text(f"{BEGIN}\n{END}\n", encoding="utf-8")
    places = {"latest": "latest.json", "recorded": "recorded.json", "page": "page.md"}
    return ["--publish", *(f"--{name}={tmp_path / file}" for name, file in places.items())]


def test_every_part_is_measured_by_a_module() -> None:
    assert all(callable(measured(name)) for name in PARTS)


def test_publishing_writes_page_picture_and_record(flags: list[str], tmp_path: Path, record: Record) -> None:
    assert main(flags) == 0
    assert "## Targets" in (tmp_path / "page.md").read_text(encoding="utf-8")
    assert (tmp_path / "images" / "performance.png").stat().st_size > 1000
    assert read_record(tmp_path / "recorded.json") == record


def test_worse_ratios_are_not_published_unless_accepted(
    flags: list[str], tmp_path: Path, record: Record, capsys: pytest.CaptureFixture[str]
) -> None:
    better = deepcopy(record)
    better["parts"]["length"]["seconds"]["20000"]["median"] = 2.0
    write_record(tmp_path / "recorded.json", better)
    assert main(flags) == 1
    assert "20,000 words a document, over 2,000: 1.250, recorded 1.000" in capsys.readouterr().out
    assert read_record(tmp_path / "recorded.json") == better
    assert main([*flags, "--accept"]) == 0
    assert read_record(tmp_path / "recorded.json") == record


def test_clear_errors(flags: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "page.md").write_text("", encoding="utf-8")
    assert main(flags) == 2
    assert "has no place for the tables" in capsys.readouterr().err
    (tmp_path / "latest.json").unlink()
    assert main(flags) == 2
    assert "nothing is measured yet" in capsys.readouterr().err


def test_all_parts_and_peers_by_default() -> None:
    options = parser().parse_args([])
    assert options.only is None
    assert "infinity" in options.peers
    assert not options.publish


def test_a_part_that_fails_is_reported_and_the_others_are_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def parts(name: str) -> Any:
        def part(_: object) -> dict[str, Any]:
            if name == "stages":
                raise ServiceError("keyblock-serve answered 503")
            return {"first": 2.0, "seconds": {"median": 2.0, "low": 2.0, "high": 2.0, "turns": 1}}

        return part

    monkeypatch.setattr(command, "measured", parts)
    latest, recorded = tmp_path / "latest.json", tmp_path / "recorded.json"
    flags = ["--quick", f"--latest={latest}", f"--recorded={recorded}", f"--home={tmp_path / 'home'}"]
    assert main([*flags, "--only", "stages", "start"]) == 2
    assert "stages could not be measured: keyblock-serve answered 503" in capsys.readouterr().err
    assert list(read_record(latest)["parts"]) == ["start"]
    assert main([*flags, "--only", "start"]) == 0
