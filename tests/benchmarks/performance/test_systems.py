"""Systems in turns, with systems of our own."""

from pathlib import Path
from typing import Any

import pytest

from benchmarks.performance.bench import QUICK, Bench
from benchmarks.performance.limit import Encoder
from benchmarks.performance.peers import PEERS, PeerError
from benchmarks.performance.systems import System, compare
from tests.support.serving import Answer
from tests.support.texts import Request


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    made = Bench(QUICK, 1, tmp_path)
    made.__dict__["encoder"] = Encoder(1, 4, 8)  # in the place of the embedded ranker's
    made.__dict__["model"] = Path(__file__).parents[3] / "models" / "default"  # its tokenizer is all that is read
    return made


def test_rows_of_keyblock_and_of_the_other_systems(bench: Bench) -> None:
    given: dict[str, list[Request]] = {"long": [], "short": [], "peer": []}

    def ranks(name: str, **more: Any) -> Any:
        def rank(request: Request) -> Answer:
            given[name].append(request)
            return Answer(2.0, [0.0] * 3, **more)

        return rank

    ours = {"stages": {"model": 1.0}, "tokens": 300}
    systems = [System("long", 512, "bf16", ranks("long", **ours)), System("short", 128, "bf16", ranks("short", **ours))]
    systems.append(System("peer", 512, "fp32", ranks("peer"), PEERS[0]))
    rows = {row["name"]: row for row in compare(bench, systems, 3, 600, 2)}
    assert given["long"] == given["peer"]
    assert len({request.documents[0] for requests in given.values() for request in requests}) == 4
    assert rows["long"]["operations"] == 3 * Encoder(1, 4, 8).operations(100)
    assert rows["long"]["stages"] == {"model": 1.0}
    assert rows["peer"]["sequence_tokens"] == 512
    assert rows["peer"]["seconds"] == {"median": 2.0, "low": 2.0, "high": 2.0, "turns": 2}


def test_a_peer_that_fails_is_absent_and_the_rest_goes_on(bench: Bench) -> None:
    def fail(_: Request) -> Answer:
        raise PeerError("it ended: no memory")

    systems = [System("KeyBlock", 512, "bf16", lambda _: Answer(1.0, [0.0], {}, 9)), System("peer", 512, "x", fail, PEERS[1])]
    assert [row["name"] for row in compare(bench, systems, 1, 20, 3)] == ["KeyBlock"]
    assert bench.absent == {PEERS[1].name: "it ended: no memory"}
    assert bench.peers((PEERS[1].key,)) == {}
