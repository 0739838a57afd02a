"""64-bit hashes of stretches of a text, all at once.

A hash is the sum over the characters of a random number for the character times a power of an odd base, modulo 2^64. Prefix sums
of a whole text give the hash of any stretch of it. Numbers and base are drawn anew in each process, so that nobody can prepare
words that collide; by chance two of 100,000 do in one of 10^9.
"""

import secrets
from functools import cache

import numpy as np
from numpy.typing import NDArray

from keyblock.text.characters import CODES

LONGEST = 64  # characters that are hashed: the hashes of much longer stretches would be weaker
PERIOD = 1 << 16  # powers are repeated after so many characters, so that their table stays small
Hashes = NDArray[np.uint64]


class Hasher:
    """Hashes stretches of an array of characters."""

    def __init__(self) -> None:
        rng = np.random.default_rng(secrets.randbits(128))
        self._numbers = rng.integers(1, 1 << 63, CODES, dtype=np.uint64)
        base = int(rng.integers(1 << 60)) * 8 + 5  # odd, so that it has an inverse, and 1 less only once divisible by 4
        self._powers, self._inverses = _powers(base), _powers(pow(base, -1, 1 << 64))

    def hashes(self, codes: NDArray[np.uint32], starts: NDArray[np.int32], ends: NDArray[np.int32]) -> Hashes:
        """A hash of each stretch, shape (n,): 0 for one longer than LONGEST, and only for these.

        Args:
            codes: code points, shape (n_characters,).
            starts, ends: shape (n,), into `codes`.
        """
        long, ends = ends - starts > LONGEST, np.minimum(ends, starts + np.int32(LONGEST))
        sums = self._sums(codes)
        found: Hashes = (sums[ends] - sums[starts]) * self._inverses[starts % PERIOD]
        for i in np.flatnonzero(starts // PERIOD != (ends - 1) // PERIOD):  # begun before the powers begin again
            found[i] = (self._numbers[codes[starts[i] : ends[i]]] * self._powers[: ends[i] - starts[i]]).sum()
        found[found == 0] = 1
        found[long] = 0
        return found

    def _sums(self, codes: NDArray[np.uint32]) -> Hashes:
        """The sum of what stands before each place, shape (n_characters + 1,)."""
        sums = np.zeros(len(codes) + 1, dtype=np.uint64)
        for first in range(0, len(codes), PERIOD):
            piece = codes[first : first + PERIOD]
            part = sums[first + 1 : first + 1 + len(piece)]
            np.multiply(self._numbers[piece], self._powers[: len(piece)], out=part)
            np.cumsum(part, out=part)
            part += sums[first]
        return sums


@cache
def hasher() -> Hasher:
    """The one of this process: its table takes 9 MB."""
    return Hasher()


def _powers(base: int) -> Hashes:
    """Of 0 to PERIOD - 1, modulo 2^64."""
    powers = np.ones(PERIOD, dtype=np.uint64)
    powers[1:] = base
    return np.cumprod(powers, dtype=np.uint64)
