"""keyblock-serve: serve bundles over HTTP."""

import logging
import os
import signal
import sys
from collections.abc import Sequence
from types import FrameType

import uvicorn
from pydantic import ValidationError

from keyblock.bundle import BundleError
from keyblock.runtime.providers import ProviderError
from keyblock.runtime.session import SessionError
from service.app import create_app
from service.ranker import Ranker
from service.settings import Settings
from service.store.base import StoreError
from service.terminal import Terminal

PROGRAM = "keyblock-serve"
BAD_START = 2  # exit code
SWITCH_SECONDS = 0.001  # how long a thread that prepares documents may keep the event loop waiting for the interpreter lock


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until SIGTERM or SIGINT; returns the exit code, 2 with one line on stderr when it cannot start."""
    try:
        settings = read_settings(sys.argv[1:] if arguments is None else arguments)
        configure(settings)
        ranker = Ranker.load(settings)
    except (ValidationError, BundleError, ProviderError, SessionError, StoreError) as error:
        print(f"{PROGRAM}: {_one_line(error)}", file=sys.stderr)
        return BAD_START
    uvicorn.run(
        create_app(settings, ranker),
        host=settings.host,
        port=settings.port,
        log_config=None,
        access_log=settings.access_log,
        timeout_graceful_shutdown=settings.shutdown_seconds,
    )
    return 0


def read_settings(arguments: Sequence[str]) -> Settings:
    """Settings from flags and the environment. Raises ValidationError; exits like any command at --help or an unknown flag."""
    return Settings(_cli_parse_args=list(arguments), _cli_prog_name=PROGRAM)


def configure(settings: Settings) -> None:
    """What holds for the whole process: logging, and how its threads share the processors and the interpreter."""
    logging.basicConfig(level=settings.log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    signal.signal(signal.SIGTERM, _stop)
    terminal = Terminal()
    # while loading; later it asks for a reload: see Reloader.listen
    signal.signal(signal.SIGHUP, lambda number, frame: _stop(number, frame) if terminal.closed else None)
    sys.setswitchinterval(SWITCH_SECONDS)
    os.environ.setdefault("RAYON_NUM_THREADS", str(settings.n_threads))  # the tokenizer's threads


def _stop(_number: int, _frame: FrameType | None) -> None:
    """SIGTERM while loading ends the process; while serving, uvicorn finishes what is in flight first and then calls this."""
    sys.exit(0)


def _one_line(error: Exception) -> str:
    if isinstance(error, ValidationError):
        flags = ("--" + str(part).replace("_", "-") for part in (e["loc"][0] for e in error.errors()))
        told = (f"{flag}: {e['msg']}, and it is {e['input']!r}" for flag, e in zip(flags, error.errors(), strict=True))
        return "; ".join(told)
    return " ".join(str(error).split())


if __name__ == "__main__":
    sys.exit(main())
