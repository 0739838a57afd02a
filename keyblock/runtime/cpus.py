"""How much of the CPU this process may use, and which instructions the CPU has.

The container's quota counts, not the machine's cores: the kernel throttles a thread pool sized by the machine many times a second,
and every request pays for it.
"""

import os
from collections.abc import Iterator
from pathlib import Path

BF16_FLAGS = ("amx_bf16", "avx512_bf16")
VNNI_FLAGS = ("avx512_vnni", "avx_vnni")


def cpu_quota(root: Path = Path("/")) -> float:
    """CPUs that this process may use: the least of its cgroups' quotas (v2 and v1) and its affinity; a fraction is possible.

    Args:
        root: the folder of ``proc`` and ``sys``.
    """
    return min([float(_affinity()), *_quotas(root)])


def default_threads() -> int:
    """Threads for a pool that always computes: the quota, rounded, at least one."""
    return max(1, round(cpu_quota()))


def cpu_flags(root: Path = Path("/")) -> frozenset[str]:
    """The CPU's features by Linux's names; empty if they cannot be read."""
    for line in _lines(root / "proc/cpuinfo"):
        name, _, value = line.partition(":")
        if name.strip() in ("flags", "Features"):  # x86, ARM
            return frozenset(value.split())
    return frozenset()


def bf16_feature(flags: frozenset[str] | None = None) -> str | None:
    """Which feature multiplies bfloat16 matrices in hardware, the fastest first; None when the CPU has none."""
    flags = cpu_flags() if flags is None else flags
    return next((flag for flag in BF16_FLAGS if flag in flags), None)


def vnni_feature(flags: frozenset[str] | None = None) -> str | None:
    """Which feature adds products of 8 bits in 32 bits; None when the CPU has none."""
    flags = cpu_flags() if flags is None else flags
    return next((flag for flag in VNNI_FLAGS if flag in flags), None)


def _affinity() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    count = getattr(os, "process_cpu_count", os.cpu_count)()  # Python 3.13 has the first
    return int(count or 1)


def _quotas(root: Path) -> Iterator[float]:
    """The quota of this process's cgroup and of each of its ancestors: all of them apply."""
    mounts = root / "sys/fs/cgroup"
    for line in _lines(root / "proc/self/cgroup"):
        _, controllers, group = line.split(":", 2)
        if controllers == "":
            folders, read = [mounts, mounts / "unified"], _quota_v2
        elif "cpu" in controllers.split(","):
            folders, read = [mounts / "cpu", mounts / controllers], _quota_v1
        else:
            continue
        for folder in folders:
            for level in _levels(folder, group):
                if (quota := read(level)) is not None:
                    yield quota


def _levels(mount: Path, group: str) -> Iterator[Path]:
    """The group's directory and its ancestors' up to the mount; inside a container only the mount itself may exist."""
    path = mount / group.strip("/")
    while path != mount:
        yield path
        path = path.parent
    yield mount


def _quota_v2(group: Path) -> float | None:
    """``cpu.max`` reads "quota period" in microseconds, or "max period"."""
    quota, _, period = _text(group / "cpu.max").partition(" ")
    return int(quota) / int(period) if quota.isdigit() and period.isdigit() else None


def _quota_v1(group: Path) -> float | None:
    """``cpu.cfs_quota_us`` is -1 for no quota."""
    quota, period = _text(group / "cpu.cfs_quota_us"), _text(group / "cpu.cfs_period_us")
    return int(quota) / int(period) if quota.isdigit() and period.isdigit() else None


def _lines(path: Path) -> list[str]:
    return _text(path).splitlines()


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
