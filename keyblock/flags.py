"""Command-line flags from the fields of a model, so that an option is declared once."""

import argparse
from enum import Enum
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from pydantic import SecretStr
from pydantic.fields import FieldInfo

WORDS = {Path: "PATH", str: "TEXT", SecretStr: "TEXT"}


def flag(name: str) -> str:
    """The flag of a field."""
    return "--" + name.replace("_", "-")


def add_flag(group: argparse._ActionsContainer, name: str, field: FieldInfo, text: str) -> None:
    """Add the flag of a field, with this help: a switch for a boolean; paths in a tuple have a flag each."""
    text = text.replace("%", "%%")
    if field.annotation is bool:
        group.add_argument(flag(name), action=argparse.BooleanOptionalAction, help=text)
    elif get_origin(field.annotation) is tuple:
        group.add_argument(flag(name), action="append", metavar="PATH", help=text)
    else:
        group.add_argument(flag(name), metavar=_placeholder(field.annotation), help=text, required=field.is_required())


def _placeholder(kind: Any) -> str:
    """What stands for a flag's value in the help: the choices, or a plain word for the type."""
    choices = get_args(kind) if get_origin(kind) is Literal else ()
    if isinstance(kind, type) and issubclass(kind, Enum):
        choices = tuple(member.value for member in kind)
    if choices:
        return f"{{{','.join(choices)}}}"
    return next((word for one, word in WORDS.items() if one in (kind, *get_args(kind))), "NUMBER")
