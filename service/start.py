"""From settings to a service that runs: logs, signals, keys, models, ports."""

import gc
import logging
import os
import signal
import socket
import sys
from types import FrameType

from keyblock import native
from keyblock.bundle import BundleError
from keyblock.runtime.providers import ProviderError
from keyblock.runtime.session import SessionError
from service.app import create_admin_app, create_app
from service.http.listeners import ListenError, bind, overlap, serve
from service.keys.keys import KeysError, load_keys
from service.options import PROGRAM, unknown_variables
from service.ranking.ranker import Ranker
from service.settings import Settings
from service.store.base import StoreError
from service.telemetry.logs import configure_logs
from service.terminal import Terminal, outlived

BAD_START, NOT_STARTED = 2, 3  # exit codes; the second where the lifespan failed, say: the log says why
BAD = (KeysError, BundleError, ProviderError, SessionError, StoreError, ListenError)
SWITCH_SECONDS = 0.001  # how long a thread that prepares documents may keep the event loop waiting for the interpreter lock
log = logging.getLogger(__name__)


def start(settings: Settings) -> int:
    """Serve until SIGTERM or SIGINT; returns the exit code, 2 with one line on stderr when it cannot start."""
    try:
        configure(settings)
        load_keys(settings)  # a wrong key is reported before a model is loaded
        clients, operators = ports(settings)  # a taken one too
        ranker = load_once(settings)
        app = create_app(settings, ranker)
        started = serve(settings, ranker.metrics, (app, clients), (create_admin_app(app), operators) if operators else None)
    except BAD as error:
        print(f"{PROGRAM}: {' '.join(str(error).split())}", file=sys.stderr)
        return BAD_START
    return 0 if started else NOT_STARTED


def load_once(settings: Settings) -> Ranker:
    """The ranker. What is loaded stays, or goes without the garbage collector: to look at it would take a tenth of a second."""
    gc.disable()
    try:
        return Ranker.load(settings)
    finally:
        gc.freeze()
        gc.enable()


def ports(settings: Settings) -> tuple[list[socket.socket], list[socket.socket]]:
    """Sockets for clients, and for operators where they have a port of their own. Raises ListenError."""
    clients = bind(settings.host, settings.port)
    if settings.admin_port is None:
        return clients, []
    operators = bind(settings.admin_host or settings.host, settings.admin_port, "--admin-host or --admin-port")
    if overlap(clients, operators):
        raise ListenError(f"--admin-port is {settings.admin_port}, which is --port too: give operators a port of their own")
    return clients, operators


def configure(settings: Settings) -> None:
    """What holds for the whole process: logging, signals, and how its threads share the processors and the interpreter."""
    greet(settings)
    signal.signal(signal.SIGTERM, stop)
    if not outlived():  # else it is ignored while loading, and later asks for a reload: see Reloader.listen
        terminal = Terminal()
        signal.signal(signal.SIGHUP, lambda number, frame: stop(number, frame) if terminal.closed else None)
    share(settings)


def greet(settings: Settings) -> None:
    """Logging, and what is logged of how this was started."""
    configure_logs(settings.log_level, settings.log_format)
    for name, nearest in unknown_variables(os.environ).items():
        log.warning("%s is no setting, and is ignored%s", name, f": did you mean {nearest}?" if nearest else "")
    if why := native.why_not_compiled():
        log.info(why)


def share(settings: Settings) -> None:
    """How the threads of this process share the processors and the interpreter."""
    sys.setswitchinterval(SWITCH_SECONDS)
    os.environ.setdefault("RAYON_NUM_THREADS", str(settings.n_threads))  # the tokenizer's threads


def stop(_number: int, _frame: FrameType | None) -> None:
    """SIGTERM while loading ends the process; while serving, uvicorn finishes what is in flight first and then calls this."""
    sys.exit(0)
