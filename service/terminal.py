"""Why SIGHUP came: somebody asks for a reload, or the terminal that the service was started from was closed."""

import os

TERMINAL = "/dev/tty"


class Terminal:
    """The terminal of this process, if it has one."""

    def __init__(self) -> None:
        self._was_there = _is_there()

    @property
    def closed(self) -> bool:
        """Whether it is gone since; never where there was none."""
        return self._was_there and not _is_there()


def _is_there() -> bool:
    try:
        os.close(os.open(TERMINAL, os.O_RDONLY | os.O_NOCTTY))
    except OSError:
        return False
    return True
