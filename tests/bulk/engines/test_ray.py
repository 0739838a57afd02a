"""A real Ray on this machine: its node is killed in the middle of a job, and a shard kills its workers."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from bulk import job
from bulk.errors import BulkError
from bulk.job import rounds
from bulk.options import Asking, Options
from bulk.stages import Job, Stage
from bulk.work import Intake, Layout
from tests.bulk.jobs import InThisProcess, command, contents, made, river_lists, shards, stopped, stopping
from tests.conftest import ROOT
from tests.support.rays import imported

N_LISTS = 12  # a shard each
OBJECT_STORE = 80 << 20  # bytes; the least that Ray takes
NOTICES_SOON = {"health_check_initial_delay_ms": 0, "health_check_period_ms": 500, "health_check_failure_threshold": 10}  # a death


@pytest.fixture
def cluster() -> Iterator[Any]:
    """A head that computes nothing, and a node of a CPU."""
    cluster = imported("ray.cluster_utils").Cluster()
    try:
        cluster.add_node(num_cpus=0, include_dashboard=False, object_store_memory=OBJECT_STORE, _system_config=NOTICES_SOON)
        cluster.add_node(num_cpus=1, object_store_memory=OBJECT_STORE)
        yield cluster
    finally:
        cluster.shutdown()


@pytest.mark.timeout(400)
def test_a_killed_node_costs_no_ranking(cluster: Any, tmp_path: Path, bundle_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = made(tmp_path, bundle_path, river_lists(N_LISTS), shard_pairs=4, workers=2)
    on_ray = [*command(options, *stopping("ray")), "--engine", "ray", "--address", cluster.address]
    with subprocess.Popen(on_ray, cwd=ROOT, stderr=subprocess.PIPE, text=True) as process:
        try:
            stopped(process)
            replace_node(cluster)
            assert len(shards(options.out)) < N_LISTS
        finally:
            process.send_signal(signal.SIGCONT)
        _, said = process.communicate()
    assert process.returncode == 0, said
    assert "workers died; shards that are tried again: 1" in said
    assert f"{N_LISTS} shards, {N_LISTS} of them new" in said.splitlines()[-1]
    monkeypatch.setattr(job, "_engine", lambda _: nullcontext(InThisProcess()))
    job.rank_all(Options(**options.model_dump() | {"out": tmp_path / "here"}))
    assert contents(options.out) == contents(tmp_path / "here")


def replace_node(cluster: Any) -> None:
    """Kill the raylet of the node that has done all, whose workers end with it, and start another."""
    (node,) = cluster.worker_nodes
    (raylet,) = node.all_processes["raylet"]
    os.kill(raylet.process.pid, signal.SIGKILL)
    cluster.add_node(num_cpus=1, object_store_memory=OBJECT_STORE, wait=False)


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
    def whole(job: Job, shard: int) -> bool:
        return (job.bundle / str(shard)).exists()


@pytest.mark.timeout(400)
def test_a_shard_that_kills_its_workers_ends_the_job_when_the_others_are_done(tmp_path: Path) -> None:
    program = [sys.executable, "-c", f"from {__name__} import run_deadly; run_deadly({str(tmp_path)!r})"]
    elsewhere = os.environ | {"RAY_ADDRESS": "127.0.0.1:1"}  # without an address no cluster that is there already is meant
    done = subprocess.run(program, cwd=ROOT, env=elsewhere, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    *others, note, problem = (tmp_path / "said").read_text().splitlines()
    assert sorted(others) == ["0", "0 CPUs", "2"]
    assert note == "workers died; shards that are tried again: 1"
    assert problem.startswith("shard 1 was tried 1 times, and a worker died each time: if memory is short")


def run_deadly(folder: str) -> None:
    """In a process of its own; what is done and noted becomes lines of a file, since Ray prints, too."""
    from bulk.engines.ray import RayEngine, _cpus

    work, said = Job(Layout(Path(folder)), Path(folder), Asking(), Intake([], [], 0), "", attempts=1), list[str]()
    with RayEngine(workers=1, attempts=1, threads=0) as engine:  # in a cluster without CPUs
        said.append(f"{_cpus()} CPUs")
        try:
            for shard in rounds(partial(engine.try_once, Deadly, work), [0, 1, 2], 1, said.append):
                said.append(str(shard))
        except BulkError as error:
            said.append(str(error))
    Path(folder, "said").write_text("\n".join(said))


def test_a_cluster_that_is_not_there_is_one_line(tmp_path: Path, bundle_path: Path) -> None:
    options = made(tmp_path, bundle_path, river_lists(1))
    nowhere = [*command(options, "-m", "bulk.cli"), "--engine", "ray", "--address", "nowhere"]
    done = subprocess.run(nowhere, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("keyblock-bulk: Ray: ")
