"""kill -9 of the driver in the middle of a job: nothing that was finished is lost or done again. Of a worker: test_local.py."""

import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest

from bulk import job
from bulk.options import Options
from tests.bulk.jobs import InThisProcess, contents, made, river_lists, shards, stopped, stopping
from tests.conftest import ROOT
from tests.support.processes import children_of, command_of

N_LISTS = 12  # a shard each


@contextmanager
def started(options: Options, program: Sequence[str] = ("-m", "bulk.cli")) -> Iterator["subprocess.Popen[str]"]:
    """The command over the same options."""
    given = options.model_dump(include={"bundle", "out", "provider", "precision", "workers", "shard_pairs", "top_n"})
    flags = [part for name, value in given.items() for part in (f"--{name.replace('_', '-')}", str(value))]
    command = [sys.executable, *program, "--lists", str(options.lists[0]), *flags]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()  # a stopped one would not end


def stamps(out: Path) -> dict[str, tuple[int, int]]:
    """Of each shard that is there the inode and the time of writing."""
    return {path.name: (path.stat().st_ino, path.stat().st_mtime_ns) for path in shards(out)}


def workers_of(driver: int) -> list[int]:
    return [child for child in children_of(driver) if "spawn_main" in command_of(child)]


def test_a_killed_driver_takes_its_workers_along_and_the_same_command_goes_on(
    tmp_path: Path, bundle_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = made(tmp_path, bundle_path, river_lists(N_LISTS), shard_pairs=4, workers=2, top_n=1)
    with started(options, stopping("local")) as process:
        stopped(process)
        workers = workers_of(process.pid)
        process.kill()
    while any(map(command_of, workers)):
        time.sleep(0.001)
    before = stamps(options.out)
    assert 3 <= len(before) < N_LISTS
    with started(options) as process:
        _, said = process.communicate()
    assert process.returncode == 0, said
    assert f"{N_LISTS - len(before)} of them new" in said
    assert before.items() <= stamps(options.out).items()
    monkeypatch.setattr(job, "_engine", lambda _: nullcontext(InThisProcess()))
    job.rank_all(Options(**options.model_dump() | {"out": tmp_path / "uninterrupted"}))
    assert contents(options.out) == contents(tmp_path / "uninterrupted")
