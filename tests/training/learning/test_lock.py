"""A run directory is one training's; see tests/keyblock/test_lock.py for how."""

from pathlib import Path

import pytest

from training.learn.run_directory import LockError, locked


def test_a_run_directory_is_held_by_the_main_process_alone(tmp_path: Path) -> None:
    run = tmp_path / "a" / "run"
    with locked(run):
        with pytest.raises(LockError, match=r"a/run: another process is training into it; wait for it"), locked(run):
            pass
        with locked(run, wanted=False):
            pass
