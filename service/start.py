"""Starts a service from its settings: logs, signals, keys, models, ports."""

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
from service.http.sockets import ListenError, are_loopback, bind, serve
from service.keys.keys import KeysError, load_keys
from service.options import PROGRAM, unknown_variables
from service.ranking.ranker import Ranker
from service.settings import Settings
from service.store.base import StoreError
from service.telemetry.logs import configure_logs
from service.terminal import Terminal, outlived

BAD_START, NOT_STARTED = 2, 3  # exit codes: an error with a message on stderr; or one in the log, such as a failed lifespan
BAD = (KeysError, BundleError, ProviderError, SessionError, StoreError, ListenError)
SWITCH_SECONDS = 0.001  # for which a thread that prepares documents may keep the interpreter lock from the event loop
log = logging.getLogger(__name__)


def start(settings: Settings) -> int:
    """Serve until SIGTERM or SIGINT. Returns the exit code, 2 with one line on stderr if the service cannot start."""
    try:
        configure(settings)
        load_keys(settings)  # a wrong key is reported before a model is loaded
        clients, operators = ports(settings)  # so is a port that is taken
        ranker = load_once(settings)
        app = create_app(settings, ranker, loopback=are_loopback(clients))
        admin = (create_admin_app(app, loopback=are_loopback(operators)), operators) if operators else None
        started = serve(settings, ranker.metrics, (app, clients), admin)
    except BAD as error:
        print(f"{PROGRAM}: {' '.join(str(error).split())}", file=sys.stderr)
        return BAD_START
    return 0 if started else NOT_STARTED


def load_once(settings: Settings) -> Ranker:
    """The ranker. Its objects are kept from the garbage collector, which would spend a tenth of a second on them."""
    gc.disable()
    try:
        return Ranker.load(settings)
    finally:
        gc.freeze()
        gc.enable()


def ports(settings: Settings) -> tuple[list[socket.socket], list[socket.socket]]:
    """Sockets for clients, and for operators if they have their own port. Raises ListenError."""
    if settings.admin_port == settings.port != 0:
        raise ListenError(f"--admin-port is {settings.admin_port}, which is --port too: give operators a port of their own")
    clients = bind(settings.host, settings.port)
    if settings.admin_port is None:
        return clients, []
    return clients, bind(settings.admin_host or settings.host, settings.admin_port, "--admin-host or --admin-port")


def configure(settings: Settings) -> None:
    """Configure the process: logging, signals, and its threads' use of the processors and the interpreter."""
    configure_logs(settings.log_level, settings.log_format)
    for name, nearest in unknown_variables(os.environ).items():
        log.warning("%s is no setting, and is ignored%s", name, f": did you mean {nearest}?" if nearest else "")
    if why := native.why_not_compiled():
        log.info(why)
    signal.signal(signal.SIGTERM, stop)
    if not outlived():  # otherwise SIGHUP is ignored while loading, and reloads later: see Reloader.listen
        terminal = Terminal()
        signal.signal(signal.SIGHUP, lambda number, frame: stop(number, frame) if terminal.closed else None)
    configure_threads(settings)


def configure_threads(settings: Settings) -> None:
    """Set how the threads of this process share the processors and the interpreter."""
    sys.setswitchinterval(SWITCH_SECONDS)
    os.environ.setdefault("RAYON_NUM_THREADS", str(settings.n_threads))  # the tokenizer's threads


def stop(_number: int, _frame: FrameType | None) -> None:
    """End the process at SIGTERM while loading. While serving, uvicorn finishes the requests in flight before it calls this."""
    sys.exit(0)
