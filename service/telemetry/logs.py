"""Lines of the log: text for people, JSON for programs. What a line says beside its message stands behind it as name=value."""

import logging
import re

import orjson
from pythonjsonlogger.core import RESERVED_ATTRS
from pythonjsonlogger.orjson import OrjsonFormatter

from service.settings import LogFormat
from service.telemetry.account import CURRENT_ID

UNUSED = (*RESERVED_ATTRS, "taskName", "color_message", "_ray_timestamp_ns")  # the last are uvicorn's and Ray's
SAID = ("method", "path", "status")  # by the message of a line of the access log already
_PLAIN = re.compile(r"[^\s\"'=\\]+")


class TextFormatter(logging.Formatter):
    """Text, then what else the line says."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        """The line, without a traceback."""
        more = [f" {name}={_shown(value)}" for name, value in vars(record).items() if name not in (*UNUSED, *SAID)]
        return super().formatMessage(record) + "".join(more)


def _shown(value: object) -> str:
    text = value if isinstance(value, str) else orjson.dumps(value, default=str).decode()
    return text if not isinstance(value, str) or _PLAIN.fullmatch(text) else orjson.dumps(text).decode()


def formatter(kind: LogFormat) -> logging.Formatter:
    """What writes lines of a kind."""
    if kind is LogFormat.TEXT:
        return TextFormatter()
    names = {"levelname": "level", "name": "logger"}
    return OrjsonFormatter(["levelname", "name", "message"], rename_fields=names, reserved_attrs=UNUSED, timestamp="time")


def with_request_id(record: logging.LogRecord) -> bool:
    """A filter that lets everything pass, and names the request that it is about."""
    if identity := CURRENT_ID.get():
        record.request_id = identity
    return True


def configure_logs(level: str, kind: LogFormat) -> None:
    """Log to standard error, whatever logs."""
    handler = logging.StreamHandler()
    handler.setFormatter(formatter(kind))
    handler.addFilter(with_request_id)
    logging.basicConfig(level=level.upper(), handlers=[handler])
