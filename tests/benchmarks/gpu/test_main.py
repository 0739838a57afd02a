"""The script as it is started: processes that end well, fail and hang; what is done stays done."""

import json
import subprocess
import sys
from argparse import Namespace
from pathlib import Path

import pytest

from benchmarks.gpu import __main__ as script
from benchmarks.gpu.__main__ import Processes, main, parser, publish
from benchmarks.gpu.plan import PARTS, Part, measure_all
from benchmarks.gpu.record import PartRecord, Setup, State, new_record, read, write

SETUP: Setup = {"device": "NVIDIA X", "provider": "cuda", "sizes": "small"}
PART = PARTS[0]
CHILD = """
import json, pathlib, sys, time
options = dict(given[2:].split("=", 1) for given in sys.argv if "=" in given)
records = pathlib.Path(options["records"]); records.mkdir(exist_ok=True)
def say(state, rows):
    why = "" if state == "measured" else "?"
    (records / "device.json").write_text(json.dumps(record | {"state": state, "rows": rows, "why": why}))
"""


@pytest.fixture
def options(tmp_path: Path) -> Namespace:
    given = ["--sizes", "small", "--prepared", str(tmp_path), "--home", str(tmp_path), "--records", str(tmp_path / "records")]
    return parser().parse_args(given)


def run(options: Namespace, monkeypatch: pytest.MonkeyPatch, child: str, minutes: float = 5) -> PartRecord:
    """Measure one part by a process that does what the child's code says; its record."""
    record = json.dumps(new_record(PART.name, SETUP, State.CUT_OFF, "?"))
    code = f"{CHILD}\nrecord = json.loads({record!r})\n{child}"
    real = subprocess.Popen

    def popen(command: list[str], **more: object) -> "subprocess.Popen[bytes]":
        return real([sys.executable, "-S", "-c", code, *command[3:]], **more)  # type: ignore[call-overload, no-any-return]

    with monkeypatch.context() as patched:
        patched.setattr(script.subprocess, "Popen", popen)
        measure_all([Part(PART.name, "", minutes, ())], 2 * minutes, Processes(options, SETUP))
    found = read(options.records, PART.name)
    assert found is not None
    return found


def test_a_part_that_is_measured_is_not_measured_again(options: Namespace, monkeypatch: pytest.MonkeyPatch) -> None:
    found = run(options, monkeypatch, 'say("measured", [{"table": "device"}])')
    assert found["state"] == State.MEASURED
    assert run(options, monkeypatch, "sys.exit(9)") == found
    assert not Processes(options, {**SETUP, "device": "NVIDIA Y"}).done(PART), "on another GPU it would be"


@pytest.mark.parametrize(
    ("child", "why"),
    [
        ('say("cut off", [{"table": "device"}]); sys.exit("Segmentation fault")', "its process ended with 1: Segmentation fault"),
        ('import os; say("cut off", [{"table": "device"}]); os.kill(os.getpid(), 9)', "its process ended with -9: it said nothing"),
    ],
    ids=["exit", "killed"],
)
def test_a_process_that_dies_leaves_its_rows_and_the_reason(
    options: Namespace, monkeypatch: pytest.MonkeyPatch, child: str, why: str
) -> None:
    found = run(options, monkeypatch, child)
    assert (found["state"], found["why"], len(found["rows"])) == (State.CUT_OFF, why, 1)
    again = run(options, monkeypatch, 'say("measured", [{"table": "device"}])')
    assert again["state"] == State.MEASURED


def test_a_process_that_leaves_no_record_has_failed(options: Namespace, monkeypatch: pytest.MonkeyPatch) -> None:
    found = run(options, monkeypatch, 'sys.exit("No module named torch")')
    assert (found["state"], found["why"]) == (State.FAILED, "its process ended with 1: No module named torch")


def test_a_process_that_hangs_is_ended(options: Namespace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(script, "MARGIN", 0.5)
    found = run(options, monkeypatch, 'print("building", flush=True); time.sleep(3600)', minutes=0.02)
    assert (found["state"], found["why"].split(":")[0]) == (State.FAILED, "its process ended with its time")


def test_a_part_with_missing_modules_is_left_out_with_a_line(options: Namespace) -> None:
    lab = Processes(options, SETUP)
    assert lab.missing(Part("x", "X", 1, ("json", "no_such_module"))) == ["no_such_module"]
    lab.leave_out(PART, "it needs no_such_module, not installed there")
    found = read(options.records, PART.name)
    assert found is not None
    assert (found["state"], found["why"]) == (State.LEFT_OUT, "it needs no_such_module, not installed there")
    write(options.records, new_record(PART.name, SETUP, State.FAILED, "an error"))
    lab.leave_out(PART, "no time")
    assert read(options.records, PART.name)["why"] == "an error"  # type: ignore[index]  # what an earlier try told is kept


def test_without_a_gpu_or_what_travels_it_ends_in_a_line(options: Namespace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(script, "Driver", lambda: Namespace(name=None))
    with pytest.raises(SystemExit, match="gpu: NVIDIA's driver shows no GPU"):
        main(options)
    options.provider, options.prepared = "cpu", options.home / "nowhere"
    with pytest.raises(SystemExit, match="nowhere is not there: write it with --prepare"):
        main(options)
    with pytest.raises(SystemExit, match="gpu: no part is measured"):
        publish(options)
