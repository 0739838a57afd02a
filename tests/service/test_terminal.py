"""A terminal that is closed is tested with a real one, in test_cli."""

import subprocess
import sys

ASKED = "from service.terminal import Terminal; print(Terminal().closed)"


def test_a_missing_terminal_is_not_closed() -> None:
    printed = subprocess.run([sys.executable, "-c", ASKED], capture_output=True, text=True, start_new_session=True, check=True)
    assert printed.stdout == "False\n"
