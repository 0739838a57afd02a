"""keyblock-serve: serve bundles over HTTP."""

import os
import signal
import sys
from collections.abc import Sequence
from types import FrameType

from pydantic import ValidationError

from keyblock.bundle import BundleError
from keyblock.runtime.providers import ProviderError
from keyblock.runtime.session import SessionError
from service.app import create_admin_app, create_app
from service.http.listeners import ListenError, bind, serve
from service.keys.keys import KeysError, load_keys
from service.ranking.ranker import Ranker
from service.settings import Settings
from service.store.base import StoreError
from service.telemetry.logs import configure_logs
from service.terminal import Terminal, outlived

PROGRAM = "keyblock-serve"
BAD_START = 2  # exit code
NOT_STARTED = 3  # the port is taken, say: the log says why
BAD = (ValidationError, KeysError, BundleError, ProviderError, SessionError, StoreError, ListenError)
SWITCH_SECONDS = 0.001  # how long a thread that prepares documents may keep the event loop waiting for the interpreter lock


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until SIGTERM or SIGINT; returns the exit code, 2 with one line on stderr when it cannot start."""
    try:
        settings = read_settings(sys.argv[1:] if arguments is None else arguments)
        configure(settings)
        load_keys(settings)  # what is wrong is told before a model is loaded
        operators = None if settings.admin_port is None else bind(settings.admin_host or settings.host, settings.admin_port)
        app = create_app(settings, Ranker.load(settings))
        started = serve(settings, app, None if operators is None else (create_admin_app(app), operators))
    except BAD as error:
        print(f"{PROGRAM}: {_one_line(error)}", file=sys.stderr)
        return BAD_START
    return 0 if started else NOT_STARTED


def read_settings(arguments: Sequence[str]) -> Settings:
    """Settings from flags and the environment. Raises ValidationError; exits like any command at --help or an unknown flag."""
    return Settings(_cli_parse_args=list(arguments), _cli_prog_name=PROGRAM)


def configure(settings: Settings) -> None:
    """What holds for the whole process: logging, and how its threads share the processors and the interpreter."""
    configure_logs(settings.log_level, settings.log_format)
    signal.signal(signal.SIGTERM, _stop)
    if not outlived():  # else it is ignored while loading, and later asks for a reload: see Reloader.listen
        terminal = Terminal()
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
