"""Log lines: text for people, JSON for programs. Further fields of a line follow its message as name=value."""

import logging
import re

import orjson
from pythonjsonlogger.core import RESERVED_ATTRS
from pythonjsonlogger.orjson import OrjsonFormatter

from service.settings import LogFormat
from service.telemetry.account import CURRENT_ID

UNUSED = (*RESERVED_ATTRS, "taskName", "color_message", "_ray_timestamp_ns")  # the last two are uvicorn's and Ray's
IN_MESSAGE = ("method", "path", "status")  # fields that the message of an access log line already has
_PLAIN = re.compile(r"[^\s\"'=\\]+")


class TextFormatter(logging.Formatter):
    """Text, followed by the further fields of the line."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        """The line, without a traceback."""
        fields = [f" {name}={_shown(value)}" for name, value in vars(record).items() if name not in (*UNUSED, *IN_MESSAGE)]
        return super().formatMessage(record) + "".join(fields)


def _shown(value: object) -> str:
    text = value if isinstance(value, str) else orjson.dumps(value, default=str).decode()
    return text if not isinstance(value, str) or _PLAIN.fullmatch(text) else orjson.dumps(text).decode()


def formatter(kind: LogFormat) -> logging.Formatter:
    """The formatter of lines of this kind."""
    if kind is LogFormat.TEXT:
        return TextFormatter()
    names = {"levelname": "level", "name": "logger"}
    return OrjsonFormatter(["levelname", "name", "message"], rename_fields=names, reserved_attrs=UNUSED, timestamp="time")


def with_request_id(record: logging.LogRecord) -> bool:
    """A filter that passes every line, and adds the id of the current request."""
    if identity := CURRENT_ID.get():
        record.request_id = identity
    return True


def configure_logs(level: str, kind: LogFormat) -> None:
    """Make all loggers log to standard error."""
    handler = logging.StreamHandler()
    handler.setFormatter(formatter(kind))
    handler.addFilter(with_request_id)
    logging.basicConfig(level=level.upper(), handlers=[handler])
