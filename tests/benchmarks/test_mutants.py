"""Which mistakes are tried on the tests, and that each is one."""

import ast

import pytest

from benchmarks.mutants import GROUPS, ROOT, mirror, modules_of, mutants, sample

SOURCE = '''
LIMIT: int | None = 3

@dataclass(frozen=True)
class Bag:
    """Holds 2 things."""

    def add(self, thing: str | None = None, é: bool = False) -> "int | None":
        if thing not in self and not é:
            self.things.append(thing)
        return -len(self.things) % 7
'''


def test_each_mutant_changes_one_place_of_what_runs() -> None:
    """Annotations, decorators and docstrings stay as they are."""
    found = list(mutants("m.py", SOURCE))
    assert [(mutant.line, mutant.change) for mutant in found] == [
        (2, "3 -> 4"),
        (8, "False -> True"),
        (9, "thing not in self and not é -> thing not in self or not é"),
        (9, "thing not in self -> thing in self"),
        (9, "not é -> é"),
        (10, "self.things.append(thing) -> pass"),
        (11, "-len(self.things) % 7 -> -len(self.things) * 7"),
        (11, "-len(self.things) -> len(self.things)"),
        (11, "7 -> 8"),
    ]
    for mutant in found:
        lines = zip(SOURCE.splitlines(), mutant.source.splitlines(), strict=True)
        assert [number for number, (before, after) in enumerate(lines, 1) if before != after] == [mutant.line]
        ast.parse(mutant.source)


@pytest.mark.parametrize("group", GROUPS)
def test_the_same_seed_draws_the_same_mutants(group: str) -> None:
    few = sample(group, 5, seed=3)
    assert few == sample(group, 5, seed=3) != sample(group, 5, seed=4)
    assert all((ROOT / mirror(mutant.module)).is_file() for mutant in few)
    assert {mutant.module for mutant in few} <= set(modules_of(group))
