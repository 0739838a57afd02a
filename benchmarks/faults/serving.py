"""keyblock-serve with built-in faults that no client can cause in a real one; words in a document and a signal trigger them.

python -m benchmarks.faults.serving     configured like keyblock-serve
"""

import os
import signal
import sys
import time
from types import FrameType

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from keyblock.runtime.session import OutOfMemoryError, ScoreError, Session
from service.cli import main
from service.settings import Settings

FAILS, KILLS, HANGS, STARVES = "poison", "murder", "coma", "famine"  # words, a token each
CLOCK_JUMP = signal.SIGUSR1
DAY = 86400.0
MEMORY_TOKENS = 512  # of the device, while there is famine
HANG_SECONDS = 3600
Ints = NDArray[np.int64]


class ModelKilled(BaseException):
    """An exception that no engine catches, so that the thread ends."""


def wire_session() -> None:
    """Let the trigger words cause their faults in every session."""
    tokenizer = Tokenizer.from_file(str(Settings().bundle[0] / "tokenizer.json"))
    fails, kills, hangs, starves = (token_id(tokenizer, word) for word in (FAILS, KILLS, HANGS, STARVES))
    score = Session.score

    def faulty(session: Session, ids: Ints, types: Ints, mask: Ints) -> NDArray[np.float32]:
        if fails in ids:
            raise ScoreError(f"a document says {FAILS}")
        if kills in ids:
            raise ModelKilled
        if hangs in ids:
            time.sleep(HANG_SECONDS)
        if starves in ids and ids.size > MEMORY_TOKENS:
            raise OutOfMemoryError(f"no memory for {ids.size} tokens")
        return score(session, ids, types, mask)

    Session.score = faulty  # type: ignore[method-assign]


def token_id(tokenizer: Tokenizer, word: str) -> int:
    """The id of a word that is one token. Raises ValueError where it is not."""
    found = tokenizer.token_to_id(word)
    if found is None:
        raise ValueError(f"{word} is no token of this bundle's tokenizer; the fault needs a word that is")
    return int(found)


def wire_clock() -> None:
    """Let the wall clock jump a day ahead at each SIGUSR1; the monotonic clock goes on, as the kernel's does."""
    real, jumps = time.time, [0.0]

    def jump(_number: int, _frame: FrameType | None) -> None:
        jumps[0] += DAY

    signal.signal(CLOCK_JUMP, jump)
    time.time = lambda: real() + jumps[0]


if __name__ == "__main__":
    os.environ.setdefault("KEYBLOCK_LOG_LEVEL", "critical")
    wire_session()
    wire_clock()
    sys.exit(main())
