"""Mutation testing: changes one place of the committed code at a time, in a worktree, and runs its tests.

    python -m benchmarks.mutants [--each 15] [--seed 0] [keyblock/ranking ...]

A mutant is a copy of a module with one change: another comparison, operator, number or truth value, or one statement removed. It is
killed if a test of its module fails or times out (test_MODULE.py, or all tests of its folder where there is none), and
survives if all pass. Prints the survivors, then a table.
"""

import argparse
import ast
import copy
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.against import worktree
from benchmarks.harness import ROOT
from benchmarks.house import tracked
from training.evaluate.tables import markdown

GROUPS = ("keyblock/ranking", "service/queue", "keyblock/text", "training/learn/loop.py")
TESTS = {"training/learn": "training/learning"}  # where tests stand elsewhere than the code
MOST_SECONDS = 1200  # of the tests without a change
REPLACEMENTS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Is: ast.IsNot,
    ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.And: ast.Or, ast.Or: ast.And, ast.Add: ast.Sub, ast.Sub: ast.Add,
    ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult, ast.Mod: ast.Mult, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
}  # fmt: skip
REMOVED = (ast.AugAssign, ast.Raise, ast.Break, ast.Continue)


class Mutant(NamedTuple):
    """A module with one change.

    Attributes:
        module: the module's path in the repository.
        line: line of the change.
        change: the code before and after.
        source: the changed module.
    """

    module: str
    line: int
    change: str
    source: str


def mutants(module: str, source: str) -> Iterator[Mutant]:
    r"""Every mutant of a module, in the order of its lines.

    >>> [mutant.change for mutant in mutants("m.py", "def f(x: int | None) -> bool:\n    return x < 1")]
    ['x < 1 -> x <= 1', '1 -> 2']
    """
    data, tree = source.encode(), ast.parse(source)
    starts = [0]
    for line in data.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    for node in _code(tree):
        for changed in _changes(node):
            begin, end = starts[node.lineno - 1] + node.col_offset, starts[node.end_lineno - 1] + node.end_col_offset
            text = ast.unparse(changed)
            new = text if isinstance(changed, ast.stmt) else f"({text})"
            change = f"{_short(data[begin:end].decode())} -> {_short(text)}"
            yield Mutant(module, node.lineno, change, (data[:begin] + new.encode() + data[end:]).decode())


def _short(text: str) -> str:
    return " ".join(text.split())[:80]


def _code(node: ast.AST) -> Iterator[Any]:
    """The nodes of code that runs: no annotations and no decorators."""
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "format_spec"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                if hasattr(child, "lineno") and not isinstance(node, ast.JoinedStr):
                    yield child
                yield from _code(child)


def _changes(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.Compare):
        for place, operator in enumerate(node.ops):
            changed = copy.deepcopy(node)
            changed.ops[place] = REPLACEMENTS[type(operator)]()
            yield changed
    elif isinstance(node, ast.BoolOp | ast.BinOp) and type(node.op) in REPLACEMENTS:
        changed = copy.deepcopy(node)
        changed.op = REPLACEMENTS[type(node.op)]()
        yield changed
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.USub):
        yield node.operand
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool | int | float):
        yield ast.Constant(not node.value if isinstance(node.value, bool) else node.value + 1)
    elif isinstance(node, REMOVED) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)):
        yield ast.Pass()


def sample(tree: Path, group: str, count: int, seed: int) -> list[Mutant]:
    """A sample of `count` mutants of a group, sorted by module; the same for the same seed."""
    code = [name for name in tracked(tree) if name.startswith(group) and name.endswith(".py")]
    found = [mutant for module in code for mutant in mutants(module, (tree / module).read_text(encoding="utf-8"))]
    return sorted(random.Random(seed).sample(found, min(count, len(found))))


def tests_of(module: str) -> str:
    """The tests of a module: its own, or all of its folder."""
    folder = str(Path(module).parent)
    tests = f"tests/{TESTS.get(folder, folder)}"
    own = f"{tests}/test_{Path(module).name}"
    return own if (ROOT / own).exists() else tests


def passes(tree: Path, tests: str, seconds: float) -> bool:
    """Whether the tests pass in a tree in this time."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", tests]
    environment = os.environ | {"PYTHONPATH": str(tree), "CI": "1"}  # hypothesis draws the same examples each time
    try:
        return not subprocess.run(command, cwd=tree, env=environment, capture_output=True, timeout=seconds, check=False).returncode
    except subprocess.TimeoutExpired:
        return False


@cache
def seconds_of(tree: Path, tests: str) -> float:
    """Seconds of the tests without a change. Raises SystemExit if they fail."""
    began = time.perf_counter()
    if not passes(tree, tests, MOST_SECONDS):
        sys.exit(f"{tests} does not pass as it is: nothing can be learned from it")
    return time.perf_counter() - began


def survives(tree: Path, mutant: Mutant, tests: str) -> bool:
    """Whether all tests of the mutant's module pass."""
    file, most = tree / mutant.module, 30 + 4 * seconds_of(tree, tests)
    before = file.read_text(encoding="utf-8")
    file.write_text(mutant.source, encoding="utf-8")
    try:
        return passes(tree, tests, most)
    finally:
        file.write_text(before, encoding="utf-8")


def main() -> None:
    """Run the sample and print the survivors."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "groups", nargs="*", default=GROUPS, metavar="GROUP", help=f"folders or modules; by default {' '.join(GROUPS)}"
    )
    parser.add_argument("--each", type=int, default=15, help="mutants per group (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the sample (default: %(default)s)")
    options = parser.parse_args()
    rows = [["code", "mutants", "killed", "survived"]]
    with worktree("HEAD") as tree:
        for group in options.groups:
            survived = Counter[bool]()
            for mutant in sample(tree, group, options.each, options.seed):
                alive = survives(tree, mutant, tests_of(mutant.module))
                survived[alive] += 1
                if alive:
                    print(f"{mutant.module}:{mutant.line}: {mutant.change}", flush=True)
            rows.append([group, *map(str, (survived.total(), survived[False], survived[True]))])
    print(markdown(rows))


if __name__ == "__main__":
    main()
