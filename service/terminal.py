"""Why SIGHUP came: somebody asks for a reload, or the terminal that the service was started from was closed."""

import os
import signal

TERMINAL = "/dev/tty"


class Terminal:
    """The terminal that this process ends with, if there is one; to be made before SIGHUP is handled."""

    def __init__(self) -> None:
        self._matters = _is_there() and not outlived()

    @property
    def closed(self) -> bool:
        """Whether it is gone since; never where there was none, or the service outlives it."""
        return self._matters and not _is_there()


def outlived() -> bool:
    """Whether the process was started to outlive its terminal, as nohup does."""
    return signal.getsignal(signal.SIGHUP) is signal.SIG_IGN


def _is_there() -> bool:
    try:
        os.close(os.open(TERMINAL, os.O_RDONLY | os.O_NOCTTY))
    except OSError:
        return False
    return True
