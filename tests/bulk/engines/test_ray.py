"""A real Ray cluster on this machine: the bytes are those of processes of this machine, or of none."""

import os
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest

from bulk import job
from bulk.errors import BulkError
from bulk.options import Asking, Options
from bulk.stages import Job, Stage
from bulk.work import Intake, Layout
from tests.bulk.jobs import InThisProcess, contents, made, river_lists
from tests.conftest import ROOT


@pytest.mark.timeout(400)
def test_rays_rankings_are_the_same_bytes(tmp_path: Path, bundle_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = made(tmp_path, bundle_path, river_lists(6), shard_pairs=8)
    given = options.model_dump(include={"bundle", "out", "provider", "precision", "shard_pairs"})
    flags = [part for name, value in given.items() for part in (f"--{name.replace('_', '-')}", str(value))]
    command = [sys.executable, "-m", "bulk.cli", "--lists", str(options.lists[0]), "--engine", "ray", "--workers", "2", *flags]
    elsewhere = os.environ | {"RAY_ADDRESS": "127.0.0.1:1"}  # without --address no cluster that is there already is meant
    done = subprocess.run(command, cwd=ROOT, env=elsewhere, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "24 pairs of 6 queries and 4 documents in 3 shards, 3 of them new" in done.stderr.splitlines()[-1]
    monkeypatch.setattr(job, "_engine", lambda _: nullcontext(InThisProcess()))
    job.rank_all(Options(**options.model_dump() | {"out": tmp_path / "here"}))
    assert contents(options.out) == contents(tmp_path / "here")


class Deadly(Stage):
    """A stage of three shards; whoever does the second dies."""

    name, unit, runs_model = "deadly", "shards", False

    def __init__(self, job: Job) -> None:
        self._folder = job.bundle

    def __call__(self, shard: int) -> None:
        if shard == 1:
            os._exit(1)
        (self._folder / str(shard)).touch()

    @staticmethod
    def sizes(job: Job) -> list[int]:  # noqa: ARG004  # as every stage
        return [1, 1, 1]

    @staticmethod
    def whole(job: Job, shard: int) -> bool:
        return (job.bundle / str(shard)).exists()


class Unborn(Deadly):
    """A stage whose workers die while they load."""

    def __init__(self, job: Job) -> None:  # as every stage
        os._exit(1)


@pytest.mark.timeout(400)
def test_a_shard_that_kills_its_workers_ends_the_job_when_the_others_are_done(tmp_path: Path) -> None:
    command = [sys.executable, "-c", f"from {__name__} import run_deadly; run_deadly({str(tmp_path)!r})"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    *others, first, second, problem = (tmp_path / "said").read_text().splitlines()
    assert sorted(others) == ["0", "2"]
    assert first == second == "workers on Ray died; shards that are tried again: 1"
    assert problem == "shard 1 was tried 2 times, and its worker on Ray died each time: is memory short?"


@pytest.mark.timeout(400)
def test_workers_that_die_while_they_load_end_the_job(tmp_path: Path) -> None:
    """As where memory runs out before a shard is begun."""
    command = [sys.executable, "-c", f"from {__name__} import Unborn, run_deadly; run_deadly({str(tmp_path)!r}, Unborn, 1)"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    *_, problem = (tmp_path / "said").read_text().splitlines()
    assert problem.endswith("was tried 1 times, and its worker on Ray died each time: is memory short?")


def run_deadly(folder: str, stage: type[Stage] = Deadly, attempts: int = 2) -> None:
    """In a process of its own; what is done and noted becomes lines of a file, since Ray prints, too."""
    from bulk.engines.ray import RayEngine

    work, said = Job(Layout(Path(folder)), Path(folder), Asking(), Intake([], [], 0), ""), list[str]()
    with RayEngine(workers=1, attempts=attempts) as engine:
        try:
            for shard in engine.run(stage, work, [0, 1, 2], said.append):
                said.append(str(shard))
        except BulkError as error:
            said.append(str(error))
    Path(folder, "said").write_text("\n".join(said))


def test_a_cluster_that_is_not_there_is_one_line(tmp_path: Path, bundle_path: Path) -> None:
    options = made(tmp_path, bundle_path, river_lists(1))
    command = [sys.executable, "-m", "bulk.cli", "--lists", str(options.lists[0]), "--engine", "ray", "--address", "nowhere"]
    done = subprocess.run(
        [*command, "--bundle", bundle_path, "--out", options.out], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("keyblock-bulk: Ray: ")
