"""What `python -m benchmarks.house` measures, on a tree whose answers a person can see."""

import subprocess
import sys
from pathlib import Path

from benchmarks.house import PACKAGES, ROOT


def test_a_tree_of_a_few_lines(tmp_path: Path) -> None:
    for package in PACKAGES:
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").write_text("")
    (tmp_path / "keyblock" / "a.py").write_text("from keyblock import b\n\nclass A:\n    x = 1\n    y = 2\n")
    (tmp_path / "keyblock" / "b.py").write_text("def f():\n    from keyblock import a\n    return a\n")
    (tmp_path / "service" / "c.py").write_text("from keyblock import a\n")
    command = [sys.executable, "-m", "benchmarks.house", "--root", str(tmp_path)]
    printed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert "| modules in the fullest folder | 3 (keyblock) |" in printed
    assert "| longest class, lines | 3 (keyblock/a.py: A) |" in printed
    assert "| functions: median and longest, lines | 3, 3 |" in printed
    assert "| modules in circles of imports | 2 |" in printed  # a and b, not c
    assert "| lines of keyblock | 8 |" in printed
