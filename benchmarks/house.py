"""Counts the house against its budgets: lines of code, words of prose, imports in circles.

    python -m benchmarks.house [--root CHECKOUT] [--draw]

Counts tracked files, so it needs git. `--root` counts another checkout, for example an older commit's worktree. `--draw` draws the
packages from their imports, with the layers that import-linter checks, for docs/develop/architecture.md.
"""

import argparse
import os
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path

import grimp

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("keyblock", "service", "training", "export", "bulk")
DRAWN = ("lab", "service", "bulk", "export", "training", "keyblock")
LINES = {
    "keyblock": (("keyblock/",), 8_500),
    "service": (("service/",), 10_000),
    "training and export": (("training/", "export/"), 10_000),
    "lab, without its tests": (("lab/",), 5_000),
    "bulk": (("bulk/",), 1_500),
    "native": (("native/",), 4_500),
    "benchmarks": (("benchmarks/",), 5_000),
    "tests, lab's included": (("tests/", "lab/tests/"), 36_000),
}
"""Folders of code, and the most lines that they may have. Only the last counts tests."""
WORDS = {"docs": (("docs/",), 45_000), "lab/notes": (("lab/notes/",), 30_000), "README": (("README.md",), 700)}
CODE = (".py", ".cpp", ".hpp", ".html", ".js", ".css")


def tracked(root: Path) -> list[str]:
    """The names of all files that git tracks."""
    listed = subprocess.run(["git", "-C", str(root), "ls-files", "-z"], capture_output=True, check=True, text=True).stdout
    return [name for name in listed.split("\0") if name and (root / name).is_file()]


def lines(root: Path, names: Iterable[str]) -> int:
    """Lines of the files that are code."""
    return sum(len((root / name).read_bytes().splitlines()) for name in names if name.endswith(CODE))


def words(root: Path, names: Iterable[str]) -> int:
    """Words of the pages, tables and commands included."""
    return sum(len((root / name).read_text(encoding="utf-8").split()) for name in names if name.endswith(".md"))


def circles(root: Path) -> list[str]:
    """Modules that import themselves through other modules. Imports inside functions count."""
    sys.path.insert(0, str(root))
    os.chdir(root)
    graph = grimp.build_graph(*PACKAGES, cache_dir=None)
    above = {module: graph.find_upstream_modules(module) for module in graph.modules}
    return sorted(m for m in graph.modules if any(m in above[other] for other in graph.find_modules_directly_imported_by(m)))


def drawing(root: Path) -> str:
    """Each package with the packages that it imports; below it its layers, each of which imports those below it."""
    sys.path.insert(0, str(root))
    graph = grimp.build_graph(*DRAWN, cache_dir=None)
    contracts = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]["contracts"]
    layers = {one["containers"][0]: one["layers"] for one in contracts if one["type"] == "layers"}
    lines = []
    for package in DRAWN:
        own = {module for module in graph.modules if f"{module}.".startswith(f"{package}.")}
        imported = {name.split(".")[0] for module in own for name in graph.find_modules_directly_imported_by(module)}
        others = ", ".join(other for other in DRAWN if other in imported - {package})
        lines.append(f"{package}{f' ──> {others}' if others else ''}")
        lines += [f"  │ {'   '.join(layer.replace('|', ' ').replace(':', ' ').split())}" for layer in layers.get(package, ())]
    return "\n".join(lines)


def table(root: Path) -> str:
    """A row per budget."""
    names = tracked(root)
    rows = ["| | is | at most |", "| --- | --- | --- |"]
    for title, (folders, most) in LINES.items():
        tests = "tests/" in folders
        own = [name for name in names if name.startswith(folders) and (tests or not name.startswith("lab/tests/"))]
        rows.append(f"| lines of {title} | {lines(root, own):,} | {most:,} |")
    for title, (folders, most) in WORDS.items():
        rows.append(f"| words of {title} | {words(root, [name for name in names if name.startswith(folders)]):,} | {most:,} |")
    pages = [name for name in names if name.startswith("docs/") and name.endswith(".md")]
    rows += [f"| pages of docs | {len(pages)} | 35 |", f"| modules in circles of imports | {len(circles(root))} | 0 |"]
    return "\n".join(rows)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, default=ROOT, help="the checkout that is counted")
    parser.add_argument("--draw", action="store_true", help="draw the packages")
    given = parser.parse_args()
    print((drawing if given.draw else table)(given.root.resolve()))
