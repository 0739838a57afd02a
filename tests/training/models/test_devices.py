"""Memory of training."""

import subprocess
import sys

import pytest

FAULTS = """
import resource, torch
from training.model.devices import keep_memory

{first}
states = torch.ones(6144, 1536)  # 38 MB
for again in range(3):
    torch.nn.functional.gelu(states)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for again in range(10):
    torch.nn.functional.gelu(states)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the setting is glibc's")
def test_memory_that_is_kept_is_not_faulted_in_again() -> None:
    """Ten tensors of 38 MB are 92,160 pages; with the setting most of them are there already."""
    faults = {
        first: int(subprocess.run([sys.executable, "-c", FAULTS.format(first=first)], capture_output=True, check=True).stdout)
        for first in ("", "keep_memory()")
    }
    assert faults["keep_memory()"] < 0.3 * faults[""]
