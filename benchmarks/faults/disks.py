"""Faults of a disk without room: a small tmpfs in a mount namespace of its own."""

import os
import subprocess
from pathlib import Path

from benchmarks.faults.drill import SkipError, drill, must
from benchmarks.faults.stores import all_there, by_id, lines
from tests.support.ports import free_port
from tests.support.serving import COMMAND

MOUNT = 'mkdir -p "$0" && mount -t tmpfs -o size=512k tmpfs "$0" && exec "$@"'
FILL = 'dd if=/dev/zero of="$0/filled" bs=4096 2> /dev/null; exec "$@"'


def new_store_on_full_disk(folder: Path) -> str:
    """A service starts with a new store on a full disk."""
    environment = {**os.environ, "KEYBLOCK_STORE": str(folder / "disk" / "store"), "KEYBLOCK_PORT": str(free_port())}
    filled = ("sh", "-c", FILL, str(folder / "disk"), str(COMMAND))
    ended = subprocess.run(
        [*_small_disk(folder), *filled], env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    errors = ended.stderr.strip().splitlines()
    must(ended.returncode == 2 and len(errors) == 1, f"exit code {ended.returncode}: {errors[-1:]}")
    return f"the service does not start: exit code 2 and one line, `{errors[0].replace(str(folder), 'DISK')}`"


def disk_gets_full(folder: Path) -> str:
    """Documents fill the disk."""
    on_disk = (*_small_disk(folder), str(COMMAND))
    with drill(folder, on_disk, store=folder / "disk" / "store") as it, it.asking() as tally:
        stored: list[str] = []
        for number in range(1_000):
            status = it.client.put("/documents", content=lines([str(number)])).status_code
            if status != 200:
                break
            stored.append(str(number))
        must(status == 507, f"PUT was answered {status}")
        must(all_there(it, stored), "what was stored is not there")
        must(it.post(by_id(stored)).status_code == 200, "what was stored is not ranked")
    return f"507 after {len(stored)} documents, all of which are there and ranked; other clients: {tally.check()}"


def _small_disk(folder: Path) -> tuple[str, ...]:
    """The start of a command that sees 512 KiB of tmpfs at folder/disk. Raises SkipError."""
    command = ("unshare", "--map-root-user", "--mount", "sh", "-c", MOUNT, str(folder / "disk"))
    try:
        subprocess.run([*command, "true"], capture_output=True, text=True, check=True)
    except FileNotFoundError as error:
        raise SkipError(f"a small disk needs unshare ({error})") from None
    except subprocess.CalledProcessError as error:
        raise SkipError(f"no tmpfs can be mounted ({error.stderr.strip()})") from None
    return command
