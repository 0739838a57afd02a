"""What fronts hold, in memory that they share; limits that hold for all together are in tests/service/ranking/test_admission.py."""

import signal
import subprocess
import sys

from service.processes.loads import loads_file, loads_of, mapped

HOLDS = """
import sys
from service.processes.loads import loads_of, mapped
ours, others = loads_of(1, mapped(int(sys.argv[1]), 3))
others[0].requests += 0
ours.requests, ours.documents, ours.bytes = 2, 7, 2**40
print(others[0].requests, others[1].bytes, flush=True)
sys.stdin.read()
"""


def test_what_one_process_holds_the_others_read_also_once_it_is_killed() -> None:
    with loads_file(3) as file:
        loads = mapped(file.fileno(), 3)
        loads[0].requests, loads[2].bytes = 5, 9
        command = [sys.executable, "-c", HOLDS, str(file.fileno())]
        pipe = subprocess.PIPE
        with subprocess.Popen(command, pass_fds=[file.fileno()], stdin=pipe, stdout=pipe, text=True) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "5 9\n"
            process.kill()
        assert process.returncode == -signal.SIGKILL
        assert [str(load) for load in loads] == [
            "5 requests, 0 documents, 0 bytes",
            "2 requests, 7 documents, 1099511627776 bytes",
            "0 requests, 0 documents, 9 bytes",
        ]


def test_a_process_sees_its_own_load_and_all_others() -> None:
    with loads_file(3) as file:
        loads = mapped(file.fileno(), 3)
        own, others = loads_of(1, loads)
        own.requests, loads[2].requests = 4, 1
        assert (loads[1].requests, [load.requests for load in others]) == (4, [0, 1])
