"""Measures the layout of the code: modules per folder, longest class and function, import cycles, lines per package.

    python -m benchmarks.house [--root CHECKOUT]

Prints a table in Markdown. `--root` measures another checkout, for example an older commit's worktree.
"""

import argparse
import ast
import os
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import grimp

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("keyblock", "service", "training", "export")
COUNTED = (*PACKAGES, "tests", "benchmarks")


class Piece(NamedTuple):
    """A class or function. Sorting orders by length."""

    lines: int
    name: str


def modules(root: Path, package: str) -> list[Path]:
    """The package's Python files."""
    return sorted((root / package).rglob("*.py"))


def pieces(root: Path, kinds: tuple[type[ast.AST], ...]) -> Iterator[Piece]:
    """All definitions of these kinds in the packages."""
    for package in PACKAGES:
        for path in modules(root, package):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, kinds):
                    yield Piece(node.end_lineno - node.lineno + 1, f"{path.relative_to(root)}: {node.name}")  # type: ignore[attr-defined]


def circles(root: Path) -> list[str]:
    """Modules that import themselves through other modules. Imports inside functions count."""
    sys.path.insert(0, str(root))
    os.chdir(root)
    graph = grimp.build_graph(*PACKAGES, cache_dir=None)
    above = {module: graph.find_upstream_modules(module) for module in graph.modules}
    return sorted(m for m in graph.modules if any(m in above[other] for other in graph.find_modules_directly_imported_by(m)))


def lines(root: Path, package: str) -> int:
    """Lines of the package's Python files."""
    return sum(len(path.read_bytes().splitlines()) for path in modules(root, package))


def table(root: Path) -> str:
    """A table with one row per figure."""
    folders = Counter(str(path.parent.relative_to(root)) for package in PACKAGES for path in modules(root, package))
    longest_class = max(pieces(root, (ast.ClassDef,)))
    functions = sorted(pieces(root, (ast.FunctionDef, ast.AsyncFunctionDef)))
    rows = [
        ("modules in the fullest folder", "{1} ({0})".format(*folders.most_common(1)[0])),
        ("longest class, lines", f"{longest_class.lines} ({longest_class.name})"),
        ("functions: median and longest, lines", f"{functions[len(functions) // 2].lines}, {functions[-1].lines}"),
        ("modules in circles of imports", str(len(circles(root)))),
        *(
            (f"lines of {name}", f"{sum(len(path.read_bytes().splitlines()) for path in modules(root, name)):,}")
            for name in COUNTED
        ),
    ]
    return "\n".join(["| | |", "| --- | --- |", *(f"| {name} | {value} |" for name, value in rows)])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, default=ROOT, help="the checkout that is measured")
    print(table(parser.parse_args().root.resolve()))
