"""How tests look at processes that may end at any time."""

import os
import subprocess
import sys

from tests.processes import children_of, command_of


def test_a_process_has_a_command_until_it_ends() -> None:
    with subprocess.Popen([sys.executable, "-c", "print(); input()"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()  # it runs
        assert "input()" in command_of(process.pid)
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # it has ended, and nobody has waited for it
        assert command_of(process.pid) == ""
    assert command_of(process.pid) == ""


PARENT = """
import subprocess
child = subprocess.Popen(["true"])
print(child.pid, flush=True)
input()
child.wait()
print(flush=True)
input()
"""


def test_children_are_listed_until_they_are_waited_for() -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        child = int(process.stdout.readline())
        assert children_of(process.pid) == [child]
        print(file=process.stdin, flush=True)
        process.stdout.readline()
        assert children_of(process.pid) == []
        print(file=process.stdin, flush=True)
