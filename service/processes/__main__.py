"""``python -m service.processes 11 module:function``: a process that the supervisor starts, connected by file descriptor 11."""

import socket
import sys
from importlib import import_module

from service.processes.child import run

number, work = sys.argv[1:]
module, _, function = work.partition(":")
sys.exit(run(getattr(import_module(module), function), socket.socket(fileno=int(number))))
