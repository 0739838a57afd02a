"""A real Ray cluster on this machine: the bytes are those of processes of this machine, or of none."""

import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest

from bulk import job
from bulk.options import Options
from tests.bulk.jobs import InThisProcess, contents, made, river_lists
from tests.conftest import ROOT


@pytest.mark.timeout(400)
def test_rays_rankings_are_the_same_bytes(tmp_path: Path, bundle_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = made(tmp_path, bundle_path, river_lists(6), shard_pairs=8)
    given = options.model_dump(include={"bundle", "out", "provider", "precision", "shard_pairs"})
    flags = [part for name, value in given.items() for part in (f"--{name.replace('_', '-')}", str(value))]
    command = [sys.executable, "-m", "bulk.cli", "--lists", str(options.lists[0]), "--engine", "ray", "--workers", "2", *flags]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "24 pairs of 6 queries and 4 documents in 3 shards, 3 of them new" in done.stderr.splitlines()[-1]
    monkeypatch.setattr(job, "_engine", lambda _: nullcontext(InThisProcess()))
    job.rank_all(Options(**options.model_dump() | {"out": tmp_path / "here"}))
    assert contents(options.out) == contents(tmp_path / "here")


def test_a_cluster_that_is_not_there_is_one_line(tmp_path: Path, bundle_path: Path) -> None:
    options = made(tmp_path, bundle_path, river_lists(1))
    command = [sys.executable, "-m", "bulk.cli", "--lists", str(options.lists[0]), "--engine", "ray", "--address", "nowhere"]
    done = subprocess.run(
        [*command, "--bundle", bundle_path, "--out", options.out], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("keyblock-bulk: Ray: ")
