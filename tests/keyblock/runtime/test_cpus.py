import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from keyblock.runtime.cpus import bf16_feature, cpu_flags, cpu_quota, default_threads, vnni_feature

CORES = float(len(os.sched_getaffinity(0))) if hasattr(os, "sched_getaffinity") else 0.0
pytestmark = pytest.mark.skipif(not CORES, reason="CPU affinity and cgroups are Linux's")


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


@pytest.fixture
def one_core() -> Iterator[None]:
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    yield
    os.sched_setaffinity(0, before)


def test_without_cgroups_the_affinity_counts(tmp_path: Path) -> None:
    assert cpu_quota(tmp_path) == CORES


def test_affinity_binds(tmp_path: Path, one_core: None) -> None:
    assert cpu_quota(tmp_path) == 1
    assert default_threads() == 1


QUOTAS: list[tuple[str, dict[str, str], float]] = [
    ("0::/", {"cpu.max": "50000 100000\n"}, 0.5),
    ("0::/", {"cpu.max": "max 100000\n"}, CORES),
    ("0::/", {"cpu.max": "damaged"}, CORES),
    ("0::/", {"cpu.max": "99900000 100000\n"}, CORES),
    # an ancestor binds more than the group itself
    ("0::/kube/pod/it", {"kube/cpu.max": "25000 100000", "kube/pod/it/cpu.max": "75000 100000"}, 0.25),
    # a path of the host, of which the container sees the mount only
    ("0::/kube/pod/it", {"cpu.max": "50000 100000"}, 0.5),
    ("5:cpu,cpuacct:/pod\n3:cpuset:/", {"cpu/pod/cpu.cfs_quota_us": "30000\n", "cpu/pod/cpu.cfs_period_us": "100000\n"}, 0.3),
    ("1:cpu:/", {"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, CORES),
    # hybrid: version 1 controllers, version 2 mounted beside them
    ("2:cpuset:/\n0::/", {"unified/cpu.max": "40000 100000"}, 0.4),
]


@pytest.mark.parametrize(("groups", "files", "quota"), QUOTAS)
def test_the_least_quota_counts(tmp_path: Path, groups: str, files: dict[str, str], quota: float) -> None:
    mounted = {f"sys/fs/cgroup/{name}": content for name, content in files.items()}
    assert cpu_quota(write(tmp_path, {"proc/self/cgroup": f"{groups}\n", **mounted})) == pytest.approx(quota)


def test_flags(tmp_path: Path) -> None:
    root = write(tmp_path, {"proc/cpuinfo": "processor\t: 0\nflags\t\t: fpu avx512_bf16 amx_tile\n\nflags\t\t: fpu\n"})
    assert cpu_flags(root) == {"fpu", "avx512_bf16", "amx_tile"}
    assert cpu_flags(tmp_path / "none") == frozenset()
    write(root, {"proc/cpuinfo": "processor\t: 0\nFeatures\t: fp asimd asimddp\n"})
    assert cpu_flags(root) == {"fp", "asimd", "asimddp"}, "so ARM names them"


def test_the_fastest_feature_is_named() -> None:
    assert bf16_feature(frozenset({"avx512_bf16", "amx_bf16"})) == "amx_bf16"
    assert bf16_feature(frozenset({"avx512_bf16"})) == "avx512_bf16"
    assert bf16_feature(frozenset({"avx512f", "amx_int8"})) is None
    assert vnni_feature(frozenset({"avx512_vnni", "avx_vnni", "amx_bf16"})) == "avx512_vnni"
    assert vnni_feature(frozenset({"avx2", "avx_vnni"})) == "avx_vnni"
    assert vnni_feature(frozenset({"avx2", "avx512f"})) is None
