"""keyblock-serve with built-in faults that no client can cause in a real one; words in a document trigger them.

python -m benchmarks.faults.serving     configured like keyblock-serve
"""

import os
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from keyblock.runtime.session import OutOfMemoryError, ScoreError, Session
from service.cli import main
from service.settings import Settings

FAILS, KILLS, HANGS, STARVES = "poison", "murder", "coma", "famine"  # words, a token each
MEMORY_TOKENS = 512  # of the device, while there is famine
HANG_SECONDS = 3600
Ints = NDArray[np.int64]
Run = Callable[[Session, Ints, Ints, Ints], Any]


class ModelKilled(BaseException):
    """An exception that no engine catches, so that the thread ends."""


def wire_session() -> None:
    """Let the trigger words cause their faults in every session."""
    tokenizer = Tokenizer.from_file(str(Settings().bundle[0] / "tokenizer.json"))
    fails, kills, hangs, starves = map(tokenizer.token_to_id, (FAILS, KILLS, HANGS, STARVES))

    def broken(run: Run) -> Run:
        def faulty(session: Session, ids: Ints, types: Ints, mask: Ints) -> Any:
            if fails in ids:
                raise ScoreError(f"a document says {FAILS}")
            if kills in ids:
                raise ModelKilled
            if hangs in ids:
                time.sleep(HANG_SECONDS)
            if starves in ids and ids.size > MEMORY_TOKENS:
                raise OutOfMemoryError(f"no memory for {ids.size} tokens")
            return run(session, ids, types, mask)

        return faulty

    Session.score, Session.mark = broken(Session.score), broken(Session.mark)  # type: ignore[method-assign]


if __name__ == "__main__":
    os.environ.setdefault("KEYBLOCK_LOG_LEVEL", "critical")
    wire_session()
    sys.exit(main())
