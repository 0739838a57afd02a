"""Splits the time of a request by stage, with new and with known documents, and times the peers' tokenizers."""

import statistics
from typing import Any

from benchmarks.performance import LONGEST
from benchmarks.performance.bench import Bench
from benchmarks.performance.peers import PeerError
from benchmarks.performance.rounds import in_turns, spread
from benchmarks.performance.systems import keyblock, median_stages
from tests.support.serving import Answer

MODEL = "model"
BEFORE = ("parse", "prepare", "select", "queue")
"""Stages of the service before the model. Reading the request comes before them: its time is the client's less all stages."""


def split(answer: Answer) -> dict[str, float]:
    """Seconds of each stage as a client sees them: `transfer` is HTTP, `after` ranks and writes the answer."""
    stages = {stage: answer.stages[stage] for stage in (*BEFORE, MODEL) if stage in answer.stages}
    after = answer.stages["total"] - sum(stages.values())
    return {"transfer": answer.seconds - answer.stages["total"], **stages, "after": after, "whole": answer.seconds}


def share_before(stages: dict[str, float]) -> float:
    """The share of the request's time before the model, which includes all of HTTP."""
    return 1 - (stages[MODEL] + stages["after"]) / stages["whole"]


def measure(bench: Bench) -> dict[str, Any]:
    """Rows of KeyBlock, cold and warm, at the longest budget and the bundle's own, and the seconds of the peers' tokenizers."""
    sizes = bench.sizes
    bench.measure_peaks()
    rows = []
    for tokens in (LONGEST, None):
        system = keyblock(bench, tokens)
        requests = [bench.source.request(sizes.documents, sizes.words) for _ in range(sizes.turns)]

        def ask(turn: int, system: Any = system, requests: Any = requests) -> Answer:
            return system.rank(requests[turn])  # type: ignore[no-any-return]

        answers = [(ask(turn), ask(turn)) for turn in range(sizes.turns)]
        for seen, given in zip(("cold", "warm"), zip(*answers, strict=True), strict=True):
            rows.append(row(bench, system.name, tokens, seen, list(given)))
    return {"documents": sizes.documents, "words": sizes.words, "rows": rows, "tokenizers": tokenizers(bench)}


def row(bench: Bench, name: str, tokens: int | None, seen: str, answers: list[Answer]) -> dict[str, Any]:
    """The table row of several turns."""
    parts = [split(answer) for answer in answers]
    return {
        "name": name,
        "tokens": tokens,
        "seen": seen,
        "stages": median_stages(parts),
        "share_before": statistics.median(map(share_before, parts)),
        "operations": sum(map(bench.encoder.operations, bench.mean_lengths(answers[0]))),
    }


def tokenizers(bench: Bench) -> dict[str, Any]:
    """Seconds that each peer's tokenizer alone takes for one such request."""
    request = bench.source.request(bench.sizes.documents, bench.sizes.words)
    ways = {peer.name: lambda _, r=running: r.tokenize(request) for peer, running in bench.peers().items()}
    try:
        taken = in_turns(ways, bench.sizes.turns)
    except PeerError as error:
        return {"failed": str(error)}
    known = {name: [s for s in seconds if s is not None] for name, seconds in taken.items()}
    return {name: spread(seconds) for name, seconds in known.items() if seconds}
