"""A run directory is one process's, until that process ends."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from training.learning.lock import LockError, alone_in

HOLD = """
import sys, time
from pathlib import Path
from training.learning.lock import alone_in
with alone_in(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(600)
"""


def test_a_directory_is_held_by_one(tmp_path: Path) -> None:
    run = tmp_path / "a" / "run"
    with alone_in(run):
        with pytest.raises(LockError, match=r"a/run: another process is training into it; wait for it"), alone_in(run):
            pass
        with alone_in(tmp_path / "a" / "other"), alone_in(run, wanted=False):
            pass
    with alone_in(run):
        assert not list(run.iterdir()), "nothing is left in it"


def test_a_killed_process_holds_nothing(tmp_path: Path) -> None:
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).resolve().parents[3])}
    holder = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], env=environment, stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(LockError), alone_in(tmp_path):
            pass
    finally:
        holder.send_signal(signal.SIGKILL)
        holder.communicate()
    with alone_in(tmp_path):
        pass


def test_what_goes_wrong_inside_passes_and_lets_go(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="full"), alone_in(tmp_path):
        raise OSError("full")
    with alone_in(tmp_path):
        pass
