"""Measures how a request's time grows with the length of its documents: ten times as many words, at the same budget."""

from typing import Any

from benchmarks.performance import LONGEST
from benchmarks.performance.bench import Bench
from benchmarks.performance.rounds import in_turns, spread
from benchmarks.performance.systems import keyblock


def measure(bench: Bench) -> dict[str, Any]:
    """Seconds of a cold request at the longest budget, by the words of its documents."""
    sizes = bench.sizes
    system = keyblock(bench, LONGEST)

    def ask(words: int) -> float:
        return system.rank(bench.source.request(sizes.documents, words)).seconds

    taken = in_turns({str(words): lambda _, w=words: ask(w) for words in (sizes.words, sizes.long_words)}, sizes.turns)
    return {"documents": sizes.documents, "seconds": {words: spread(seconds) for words, seconds in taken.items()}}
