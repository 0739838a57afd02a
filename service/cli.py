"""keyblock-serve: serves bundles over HTTP."""

import gc
import os
import sys
from collections.abc import Sequence

from pydantic import ValidationError

try:
    from service.options import PROGRAM, one_line, parse
    from service.settings import Settings
except ImportError as error:
    sys.exit(f"keyblock-serve: install what serves: pip install 'keyblock[serve,cpu]', or gpu in place of cpu ({error})")

BAD_START = 2  # exit code


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until SIGTERM or SIGINT. Returns the exit code, 2 with one line on stderr if the service cannot start."""
    given = parse(sys.argv[1:] if arguments is None else arguments)
    try:
        settings = Settings(**given)
    except ValidationError as error:
        print(f"{PROGRAM}: {one_line(error, given)}", file=sys.stderr)
        return BAD_START
    # before numpy is imported: tiny products would wake a BLAS thread for each core, and these would spin and occupy the cores
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    gc.disable()  # during the imports: the collector would traverse all modules again and again
    try:
        from service.start import start  # imports the web framework and the runtime, which --help does not need
    finally:
        gc.enable()
    return start(settings)


if __name__ == "__main__":
    sys.exit(main())
