"""What a class says of its attributes: each exists, and is named once."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("keyblock", "service", "training", "export", "bulk", "lab", "benchmarks")
SECTION = re.compile(r"^( *)Attributes:\n((?:\1 +.*\n|\n)+)", re.MULTILINE)


def documented(of: ast.ClassDef) -> list[str]:
    """The names under Attributes; a line may name several, with commas."""
    found = SECTION.search((ast.get_docstring(of) or "") + "\n")
    if found is None:
        return []
    lines = found.group(2).split("\n")
    indent = min(len(line) - len(line.lstrip()) for line in lines if line.strip())
    named = [re.match(r" +([\w, ]+):", line) for line in lines if len(line) - len(line.lstrip()) == indent]
    return [name for match in named if match for name in match.group(1).split(", ")]


def own(of: ast.ClassDef) -> Iterator[str]:
    """The names that the class defines: in its body, and by assignments to self."""
    for node in of.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name
    for node in ast.walk(of):
        if (isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)) or isinstance(node, ast.AnnAssign):
            yield node.id if isinstance(node, ast.Name) else ast.unparse(node.target).removeprefix("self.")
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and ast.unparse(node.value) == "self":
            yield node.attr


def test_documented_attributes_exist_and_are_named_once() -> None:
    classes, places = defaultdict[str, list[ast.ClassDef]](list), dict[ast.ClassDef, Path]()
    for path in (path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                classes[node.name].append(node)
                places[node] = path

    def known(of: ast.ClassDef) -> set[str]:
        bases = [name for base in of.bases for name in re.findall(r"\w+", ast.unparse(base)) if name != of.name]
        return {*own(of), *(name for base in bases for one in classes[base] for name in known(one))}

    wrong = []
    for node, path in places.items():
        names = documented(node)
        missing = [name for name in names if name not in known(node)]
        twice = {name for name in names if names.count(name) > 1}
        wrong += [f"{path.relative_to(ROOT)}: {node.name}.{name}" for name in (*missing, *twice)]
    assert wrong == []
