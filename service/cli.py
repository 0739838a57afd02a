"""keyblock-serve: serve bundles over HTTP."""

import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import SecretStr, ValidationError

try:
    from service.options import PROGRAM, flag, parse, variable
    from service.settings import Settings
except ImportError as error:
    sys.exit(f"keyblock-serve: install what serves: pip install 'keyblock[serve,cpu]', or gpu in place of cpu ({error})")

BAD_START = 2  # exit code


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until SIGTERM or SIGINT; returns the exit code, 2 with one line on stderr when it cannot start."""
    given = parse(sys.argv[1:] if arguments is None else arguments)
    try:
        settings = Settings(**given)
    except ValidationError as error:
        print(f"{PROGRAM}: {_one_line(error, given)}", file=sys.stderr)
        return BAD_START
    # before numpy comes: products of microseconds would wake a BLAS thread for each core, which then spin and take the cores
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from service.start import start  # the web framework and the runtime, which --help does without

    return start(settings)


def _one_line(error: ValidationError, given: Mapping[str, Any]) -> str:
    """What is wrong with each setting, and which variable it came from if it was not a flag."""
    problems = []
    for problem in error.errors():
        name = str(problem["loc"][0])
        source = f" ({variable(name)})" if name not in given and variable(name) in os.environ else ""
        secret = isinstance(Settings.model_fields[name].default, SecretStr)
        shown = "" if secret else f", and it is {problem['input']!r}"
        problems.append(f"{flag(name)}: {problem['msg'].removeprefix('Value error, ')}{shown}{source}")
    return "; ".join(problems)


if __name__ == "__main__":
    sys.exit(main())
