"""A Ray cluster of three nodes on this machine, one of which is killed in the middle of a job."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from bulk import job
from bulk.options import Options
from tests.bulk.jobs import InThisProcess, contents, made, river_lists, shards, stopped, stopping
from tests.conftest import ROOT
from tests.support.rays import imported

N_LISTS = 30  # a shard each
OBJECT_STORE = 80 << 20  # bytes; the least that Ray takes


@pytest.fixture
def cluster() -> Iterator[Any]:
    """A head that computes nothing, and two nodes of a CPU each."""
    cluster = imported("ray.cluster_utils").Cluster()
    try:
        cluster.add_node(num_cpus=0, include_dashboard=False, object_store_memory=OBJECT_STORE)
        for _ in range(2):
            cluster.add_node(num_cpus=1, object_store_memory=OBJECT_STORE, wait=False)
        cluster.wait_for_nodes()
        yield cluster
    finally:
        cluster.shutdown()


@pytest.mark.timeout(400)
def test_a_killed_node_costs_no_ranking(cluster: Any, tmp_path: Path, bundle_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = made(tmp_path, bundle_path, river_lists(N_LISTS), shard_pairs=4, workers=2)
    given = options.model_dump(include={"bundle", "out", "provider", "precision", "workers", "shard_pairs"})
    flags = [part for name, value in given.items() for part in (f"--{name.replace('_', '-')}", str(value))]
    command = [sys.executable, *stopping("ray"), "--lists", str(options.lists[0]), "--engine", "ray", "--address", cluster.address]
    with subprocess.Popen([*command, *flags], cwd=ROOT, stderr=subprocess.PIPE, text=True) as process:
        try:
            stopped(process)
            kill(cluster)
            assert len(shards(options.out)) < N_LISTS
        finally:
            process.send_signal(signal.SIGCONT)
        _, said = process.communicate()
    assert process.returncode == 0, said
    assert f"{N_LISTS} shards, {N_LISTS} of them new" in said.splitlines()[-1]
    monkeypatch.setattr(job, "_engine", lambda _: nullcontext(InThisProcess()))
    job.rank_all(Options(**options.model_dump() | {"out": tmp_path / "here"}))
    assert contents(options.out) == contents(tmp_path / "here")


def kill(cluster: Any) -> None:
    """A node's raylet, whose workers end with it."""
    (raylet,) = next(iter(cluster.worker_nodes)).all_processes["raylet"]
    os.kill(raylet.process.pid, signal.SIGKILL)
