"""Requests of several sizes: documents x words x token budget, beside the peers in their default set-up."""

from typing import Any

from benchmarks.performance import BUDGETS
from benchmarks.performance.bench import Bench
from benchmarks.performance.peers import PEERS
from benchmarks.performance.systems import compare, keyblock, peer_system


def measure(bench: Bench) -> dict[str, Any]:
    """A row for each system and size. The peers run only with the fewest documents, since their pace is the same with more."""
    sizes = bench.sizes
    default = bench.peers(tuple(peer.key for peer in PEERS if peer.default))
    rows = []
    for words in sizes.grid_words:
        for documents in sizes.grid_documents:
            ours = [keyblock(bench, tokens) for tokens in BUDGETS]
            theirs = [peer_system(*item) for item in default.items()] if documents == sizes.grid_documents[0] else []
            rows += [{**row, "words": words} for row in compare(bench, [*ours, *theirs], documents, words, sizes.grid_turns)]
    return {"rows": rows, "absent": dict(bench.absent)}
