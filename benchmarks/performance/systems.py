"""The compared systems: KeyBlock at several budgets, and the peers."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.performance import BUDGETS, LONGEST
from benchmarks.performance.bench import Bench, Rank
from benchmarks.performance.peers import Peer, PeerError, Running
from benchmarks.performance.rounds import in_turns, spread
from tests.support.serving import Answer
from tests.support.texts import Request


@dataclass(frozen=True)
class System:
    """A row of the tables.

    Attributes:
        name: name in the tables.
        tokens: most tokens of a sequence; None: the bundle's own budget.
        precision: precision of the arithmetic.
        rank: sends a request to the system.
        peer: the peer; None for KeyBlock.
    """

    name: str
    tokens: int | None
    precision: str
    rank: Rank
    peer: Peer | None = None


def keyblock(bench: Bench, tokens: int | None) -> System:
    """KeyBlock with a budget of `tokens` tokens a document; with None, the embedded bundle as it is."""
    service = bench.service(wide=tokens is not None)
    budget = service.budgets[1] if tokens is None else tokens
    name = f"KeyBlock, as it comes ({budget} tokens)" if tokens is None else f"KeyBlock, {tokens} tokens"
    return System(name, tokens, service.precision, lambda request: service.rank(request, tokens))


def peer_system(peer: Peer, running: Running) -> System:
    """The system of a running peer."""
    return System(peer.name, LONGEST, peer.precision, running.rank, peer)


def all_systems(bench: Bench, budgets: Sequence[int | None] = (*BUDGETS, None)) -> list[System]:
    """KeyBlock at these budgets, then the peers that start."""
    return [*(keyblock(bench, tokens) for tokens in budgets), *(peer_system(*item) for item in bench.peers().items())]


def compare(bench: Bench, systems: Sequence[System], documents: int, words: int, turns: int) -> list[dict[str, Any]]:
    """Let systems rank in turns. Returns a row for each.

    In a turn the peers and KeyBlock at the peers' length get the same documents. At other budgets KeyBlock gets others,
    since it caches prepared documents. All documents are new.
    """
    shared = [bench.source.request(documents, words) for _ in range(turns)]
    requests: dict[str, list[Request]] = {}

    def ask(system: System, turn: int) -> Answer | None:
        same = system.peer is not None or system.tokens == LONGEST
        request = shared[turn] if same else bench.source.request(documents, words)
        requests.setdefault(system.name, []).append(request)
        return attempt(bench, system, request)

    answers = in_turns({s.name: lambda turn, s=s: ask(s, turn) for s in systems}, turns)
    found = {name: [answer for answer in given if answer is not None] for name, given in answers.items()}
    return [row(bench, system, found[system.name], requests[system.name][0]) for system in systems if found[system.name]]


def attempt(bench: Bench, system: System, request: Request) -> Answer | None:
    """The answer; None if a peer fails, which removes it from the benchmark."""
    if system.peer is not None and system.peer.name in bench.absent:
        return None
    try:
        return system.rank(request)
    except PeerError as error:
        if system.peer is not None:
            bench.drop(system.peer, error)
        return None


def row(bench: Bench, system: System, answers: Sequence[Answer], request: Request) -> dict[str, Any]:
    """The table row of a system's turns."""
    lengths = bench.cut_lengths(request) if system.peer is not None else bench.mean_lengths(answers[0])
    return {
        "name": system.name,
        "ours": system.peer is None,
        "default": system.peer is None or system.peer.default,
        "tokens": system.tokens,
        "precision": system.precision,
        "documents": len(request.documents),
        "seconds": spread([answer.seconds for answer in answers]),
        "sequence_tokens": statistics.mean(lengths),
        "operations": sum(map(bench.encoder.operations, lengths)),
        "stages": median_stages([answer.stages for answer in answers]),
    }


def median_stages(stages: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The median of each stage, in seconds."""
    return {name: statistics.median(answer_stages[name] for answer_stages in stages) for name in stages[0]}
