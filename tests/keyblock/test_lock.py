"""A directory is one process's, until that process ends."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from keyblock.lock import locked

HELD = ValueError("somebody has it")
HOLD = """
import sys, time
from pathlib import Path
from keyblock.lock import locked
with locked(Path(sys.argv[1]), ValueError()):
    print("held", flush=True)
    time.sleep(600)
"""


def test_a_directory_is_locked_by_one_holder_at_a_time(tmp_path: Path) -> None:
    run = tmp_path / "a" / "run"
    with locked(run, HELD):
        with pytest.raises(ValueError, match="somebody has it"), locked(run, HELD):
            pass
        with locked(tmp_path / "a" / "other", HELD):
            pass
    with pytest.raises(OSError, match="full"), locked(run, HELD):
        raise OSError("full")
    with locked(run, HELD):
        assert not list(run.iterdir()), "nothing is left in it"


def test_a_killed_process_holds_nothing(tmp_path: Path) -> None:
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).resolve().parents[2])}
    holder = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], env=environment, stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(ValueError, match="somebody has it"), locked(tmp_path, HELD):
            pass
    finally:
        holder.send_signal(signal.SIGKILL)
        holder.communicate()
    with locked(tmp_path, HELD):
        pass
