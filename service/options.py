"""The command line of keyblock-serve: a flag for each of the `Settings`, with its environment variable."""

import argparse
import os
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from pydantic import SecretStr, ValidationError
from pydantic.fields import FieldInfo

from keyblock import __version__
from keyblock.flags import add_flag, flag
from service.settings import DEFAULT_BUNDLE, Limits, Settings

PROGRAM = "keyblock-serve"
PREFIX = "KEYBLOCK_"
# of the client, of training, and of the tests
FOREIGN_VARIABLES = ("KEYBLOCK_API_KEY", "KEYBLOCK_BACKBONE", "KEYBLOCK_CACHE", "KEYBLOCK_CI")
ABOUT = f"""Serve bundles over HTTP. Each option is also an environment variable, named in brackets: {PREFIX}PORT=9000 is
--port 9000. A flag wins over its variable."""
USAGE = f"{PROGRAM} [--bundle PATH] [--port NUMBER] [OPTION ...]; {PROGRAM} --help lists the options"


def parse(arguments: Sequence[str]) -> dict[str, Any]:
    """The settings in the flags, unchecked. Exits, as commands do, at --help, --version and an unknown flag."""
    return vars(parser().parse_args(arguments))


def parser() -> argparse.ArgumentParser:
    """The parser of the command line; a setting without its flag is left to the environment."""
    result = argparse.ArgumentParser(prog=PROGRAM, usage=USAGE, description=ABOUT, argument_default=argparse.SUPPRESS)
    result.add_argument("--version", action="version", version=f"{PROGRAM} {__version__}")
    limits = result.add_argument_group("limits", "What a request may hold, and all requests in flight together.")
    for name, field in Settings.model_fields.items():
        _add(limits if name in Limits.model_fields else result, name, field)
    return result


def variable(setting: str) -> str:
    """The environment variable of a setting."""
    return PREFIX + setting.upper()


def unknown_variables(environment: Iterable[str]) -> Mapping[str, str]:
    """Variables with our prefix that are no settings, each with the most similar setting, or an empty text."""
    known = {name.removeprefix(PREFIX): name for name in (*map(variable, Settings.model_fields), *FOREIGN_VARIABLES)}
    ours = {name: name.upper().removeprefix(PREFIX) for name in sorted(environment) if name.upper().startswith(PREFIX)}
    near = {name: get_close_matches(rest, known, 1) for name, rest in ours.items() if rest not in known}
    return {name: known[found[0]] if found else "" for name, found in near.items()}


def _add(group: argparse._ActionsContainer, name: str, field: FieldInfo) -> None:
    add_flag(group, name, field, f"{field.description} [{variable(name)}{_default(field.default)}]")


def _default(value: Any) -> str:
    if value == (DEFAULT_BUNDLE,):
        return "; default the embedded model"
    if isinstance(value, bool):
        return f"; {'on' if value else 'off'} by default"
    return f"; default {value}" if value not in (None, "") and not isinstance(value, SecretStr) else ""


def one_line(error: ValidationError, given: Mapping[str, Any]) -> str:
    """The problem of each setting, and its environment variable if it did not come from a flag."""
    problems = []
    for problem in error.errors():
        name = str(problem["loc"][0])
        source = f" ({variable(name)})" if name not in given and variable(name) in os.environ else ""
        secret = isinstance(Settings.model_fields[name].default, SecretStr)
        shown = "" if secret else f", and it is {problem['input']!r}"
        problems.append(f"{flag(name)}: {problem['msg'].removeprefix('Value error, ')}{shown}{source}")
    return "; ".join(problems)
