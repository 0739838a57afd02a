"""Mutation testing: changes one place of the code at a time and runs the tests of that module.

    python -m benchmarks.mutants [--each 50] [--seed 0] [--record build/mutants.jsonl] [keyblock export ...]

A mutant is a copy of a module with one change: another comparison, operator, number or truth value, or one statement removed. It is
killed if a test of tests/PACKAGE/test_MODULE.py fails or times out, and survives if all of them pass. Tests of other modules are
not run. Prints the survivors, then a table of killed mutants by package.
"""

import argparse
import ast
import copy
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
GROUPS = ("keyblock", "export", "service/queue", "training/learning/loop.py")
PRELOADED = (
    "numpy",
    "pytest",
    "hypothesis",
    "pydantic",
    "tokenizers",
    "onnxruntime",
    "torch",
    "transformers",
)  # imported once for all forks
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

    @property
    def name(self) -> str:
        """The mutant's name in the record."""
        return f"{self.module}:{self.line}: {self.change}"


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


def mirror(module: str) -> str:
    """The path of a module's tests.

    >>> mirror("keyblock/text/words.py")
    'tests/keyblock/text/test_words.py'
    """
    path = Path(module)
    return str(Path("tests", path.parent, f"test_{path.name}"))


def modules_of(group: str) -> list[str]:
    """The modules of a folder or file that have their own tests."""
    found = [ROOT / group] if group.endswith(".py") else sorted((ROOT / group).rglob("*.py"))
    names = [str(path.relative_to(ROOT)) for path in found]
    return [name for name in names if (ROOT / mirror(name)).exists()]


def sample(group: str, count: int, seed: int) -> list[Mutant]:
    """A sample of `count` mutants of a group, sorted by module; the same for the same seed."""
    all_mutants = [
        mutant for module in modules_of(group) for mutant in mutants(module, (ROOT / module).read_text(encoding="utf-8"))
    ]
    return sorted(random.Random(seed).sample(all_mutants, min(count, len(all_mutants))))


class Copy:
    """A copy of the repository to run tests in. The time limit of a run follows from a run without a change."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.seconds: dict[str, float] = {}
        listed = subprocess.run(["git", "-C", str(ROOT), "ls-files", "-z"], capture_output=True, check=True, text=True).stdout
        for name in filter(None, listed.split("\0")):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)

    def survives(self, mutant: Mutant) -> bool:
        """Whether all tests of the mutant's module pass. Raises SystemExit if they fail without the change."""
        tests, file = mirror(mutant.module), self.folder / mutant.module
        if tests not in self.seconds:
            began = time.perf_counter()
            if not self._passes(tests, 1200):
                sys.exit(f"{tests} does not pass as it is: nothing can be learned from it")
            self.seconds[tests] = time.perf_counter() - began
        before = file.read_text(encoding="utf-8")
        file.write_text(mutant.source, encoding="utf-8")
        try:
            return self._passes(tests, 30 + 4 * self.seconds[tests])
        finally:
            file.write_text(before, encoding="utf-8")

    def _passes(self, tests: str, limit: float) -> bool:
        child = os.fork()
        if not child:
            self._run(tests)
        ends = time.monotonic() + limit
        while time.monotonic() < ends:
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                return os.waitstatus_to_exitcode(status) == 0
            time.sleep(0.05)
        os.killpg(child, signal.SIGKILL)
        os.waitpid(child, 0)
        return False

    def _run(self, tests: str) -> None:
        """Run pytest without output. Called in the child process."""
        os.setsid()
        os.chdir(self.folder)
        nowhere = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(nowhere, stream)
        sys.path.insert(0, str(self.folder))
        os._exit(
            import_module("pytest").main(
                ["-x", "-q", "-p", "no:cacheprovider", "-W", "ignore::pytest.PytestAssertRewriteWarning", tests]
            )
        )


def main() -> None:
    """Run the sample and print the survivors."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "groups", nargs="*", default=GROUPS, metavar="GROUP", help=f"folders or modules; default: {' '.join(GROUPS)}"
    )
    parser.add_argument("--each", type=int, default=50, help="mutants per group (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the sample (default: %(default)s)")
    parser.add_argument(
        "--record", type=Path, default=ROOT / "build/mutants.jsonl", help="file of results; a mutant in it is not run again"
    )
    options = parser.parse_args()
    options.record.parent.mkdir(parents=True, exist_ok=True)
    options.record.touch()
    known = {row["name"]: row["survived"] for row in map(json.loads, options.record.read_text(encoding="utf-8").splitlines())}
    counts: dict[str, Counter[bool]] = {}
    for group in options.groups:
        chosen = sample(group, options.each, options.seed)
        known |= measure([mutant for mutant in chosen if mutant.name not in known], options.record)
        counts[group] = Counter(known[mutant.name] for mutant in chosen)
        print(*(mutant.name for mutant in chosen if known[mutant.name]), sep="\n")
    print("| package | mutants | killed | survived |\n|---|---|---|---|")
    for group, count in counts.items():
        print(f"| {group} | {count.total()} | {count[False]} | {count[True]} |")


def measure(chosen: list[Mutant], record: Path) -> dict[str, bool]:
    """Whether each mutant survives. Each result is written to the record at once."""
    found = {}
    os.environ["CI"] = "1"  # hypothesis draws the same examples each time
    for name in PRELOADED:
        import_module(name)
    with tempfile.TemporaryDirectory(prefix="keyblock-mutants-") as folder:
        os.environ["PYTHONPATH"] = folder
        tree = Copy(Path(folder))
        for mutant in chosen:
            found[mutant.name] = tree.survives(mutant)
            with record.open("a", encoding="utf-8") as out:
                out.write(json.dumps({"name": mutant.name, "survived": found[mutant.name]}) + "\n")
    return found


if __name__ == "__main__":
    main()
