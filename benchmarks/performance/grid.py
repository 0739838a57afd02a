"""Requests of several sizes: documents x words x token budget, beside what the peers' users get without asking for more."""

from typing import Any

from benchmarks.performance import BUDGETS
from benchmarks.performance.bench import Bench
from benchmarks.performance.peers import PEERS
from benchmarks.performance.systems import compare, keyblock, peer_system


def measure(bench: Bench) -> dict[str, Any]:
    """A row for each system and size; the peers take their turns with the fewest documents only, since their pace is the same."""
    sizes = bench.sizes
    default = bench.peers(tuple(peer.key for peer in PEERS if peer.default))
    rows = []
    for words in sizes.grid_words:
        for documents in sizes.grid_documents:
            ours = [keyblock(bench, tokens) for tokens in BUDGETS]
            theirs = [peer_system(*item) for item in default.items()] if documents == sizes.grid_documents[0] else []
            rows += [{**row, "words": words} for row in compare(bench, [*ours, *theirs], documents, words, sizes.grid_turns)]
    return {"rows": rows, "absent": dict(bench.absent)}
