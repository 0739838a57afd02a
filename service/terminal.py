"""Finds out why SIGHUP came: for a reload, or because the terminal was closed from which the service was started."""

import os
import signal

TERMINAL = "/dev/tty"


class Terminal:
    """The terminal whose end ends this process, if there is one; to be made before SIGHUP is handled."""

    def __init__(self) -> None:
        self._matters = _is_there() and not outlived()

    @property
    def closed(self) -> bool:
        """Whether the terminal has gone since; always False if there was none, or the service outlives it."""
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
