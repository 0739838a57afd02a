"""Draws traffic from a seed: requests of all sizes, in bursts, with short deadlines, from clients that leave."""

from dataclasses import dataclass
from random import Random

from benchmarks.simulation.ranker import LEAST_TOKENS, MODELS, SPREAD, UPSTREAM

QUERIES = 20
AGAIN, MOST_BEFORE = 0.1, 10  # share of the requests by text that repeat one of the last ones, and the number of those
FIRST_KEY = 10  # first number of a document; warm-ups have smaller numbers


@dataclass(slots=True)
class Climate:
    """The conditions of an episode.

    Attributes:
        load: offered work as a share of the device's capacity.
        token_seconds: seconds of the device per token.
        char_seconds: seconds of a thread to prepare a character.
        cap: most tokens of a batch.
        ahead: batches that the device may have when the next one is chosen.
        bursts: probability that a request begins a burst.
        hurried: probability that a request has a deadline.
        leaving: probability that a client does not wait for its answer.
        by_id: probability that a request asks for stored documents.
        ids: number of ids of stored documents.
        writes: writes of stored documents per request.
        models: models that requests ask for; empty: all.
        threads: preparation threads.
        interleaves: whether the steps of two pieces of work interleave.
        upstream: the API of an upstream reranker, as in `upstream_kind`; empty for none.
        limits: limits on requests in flight, and on the wait of a new one.
    """

    load: float
    token_seconds: float
    char_seconds: float
    cap: int
    ahead: int
    bursts: float
    hurried: float
    leaving: float
    by_id: float
    ids: int
    writes: float
    models: tuple[str, ...]
    threads: int
    interleaves: bool
    upstream: str
    limits: dict[str, int]


@dataclass(slots=True)
class Ask:
    """A request.

    Attributes:
        number: number of the request.
        query: number of the query; earlier requests may have the same.
        keys: numbers of its documents; empty if it asks for them by id.
        chars: characters of each document.
        ids: ids of stored documents.
        bytes: bytes of the body.
        pieces: number of pieces in which the body arrives.
        deadline: seconds; None without a deadline.
        leaves: seconds after which the client leaves; None if it waits.
        model: name of the model.
        answer_bytes: bytes of the answer.
    """

    number: int
    query: int
    keys: list[int]
    chars: list[int]
    ids: list[str]
    bytes: int
    pieces: int
    deadline: float | None
    leaves: float | None
    model: str
    priority: int
    answer_bytes: int


def climate(random: Random) -> Climate:
    """Draw the conditions of an episode."""
    limits = {
        "max_requests_in_flight": random.choice((8, 64, 1024)),
        "max_documents_in_flight": random.choice((100, 2_000, 100_000)),
        "max_bytes_in_flight": random.choice((200_000, 2_000_000, 1 << 30)),
        "max_wait_ms": random.choice((200, 2_000, 10_000)),
        "max_backlog_ms": random.choice((2_000, 60_000)),
        "hung_seconds": random.choice((2, 60)),
        "shutdown_seconds": random.choice((0, 1, 30)),
        "cache_bytes": random.choice((0, 1 << 16)),
        "upstream_batch": random.choice((2, 16)),
        "upstream_concurrency": random.choice((1, 8)),
        "upstream_timeout_ms": random.choice((300, 3_000)),
        "upstream_retries": random.choice((0, 2)),
    }
    upstream = random.choice(("", "", "auto", "jina", "tei"))
    return Climate(
        load=random.choice((0.2, 0.5, 0.8, 1.5)),
        token_seconds=random.choice((2e-6, 2e-5, 1e-4)),
        char_seconds=random.choice((1e-8, 1e-7, 1e-6)),
        cap=random.choice((512, 4096)),
        bursts=random.choice((0.0, 0.05, 0.3)),
        hurried=random.choice((0.0, 0.2, 0.6)),
        leaving=random.choice((0.0, 0.05, 0.3)),
        by_id=random.choice((0.0, 0.1, 0.3)),
        ids=random.choice((3, 40)),
        writes=random.choice((0.1, 0.1, 0.8)),
        models=random.choice(((), (), ("joint",), (UPSTREAM,) if upstream else ())),
        threads=random.choice((2, 4)),
        interleaves=random.random() < 0.3,
        upstream=upstream,
        limits=limits,
        ahead=random.choice((0, 1)),
    )


class Traffic:
    """Draws requests one after the other.

    Args:
        random: source of random numbers.
        climate: conditions of the traffic.

    Attributes:
        mean_gap: mean seconds between two requests, about.
    """

    def __init__(self, random: Random, climate: Climate) -> None:
        self._random, self._climate = random, climate
        self._number, self._key = 0, FIRST_KEY
        self._before: list[tuple[int, list[int]]] = []
        self._names = climate.models or ((*MODELS, UPSTREAM, UPSTREAM) if climate.upstream else tuple(MODELS))
        mean = (LEAST_TOKENS + SPREAD / 2) * 1.5 * 3.3  # tokens of a request, about
        self.mean_gap = mean * climate.token_seconds / climate.load

    def gap(self) -> float:
        """Seconds until the next request; 0 in a burst."""
        random = self._random
        return 0.0 if random.random() < self._climate.bursts else random.expovariate(1 - self._climate.bursts) * self.mean_gap

    def new_key(self) -> int:
        """The number of a new document."""
        self._key += 1
        return self._key

    def identity(self) -> str:
        """An id under which a document may be stored."""
        return f"d{self._random.randrange(self._climate.ids)}"

    def ask(self) -> Ask:
        """The next request."""
        random, climate = self._random, self._climate
        self._number += 1
        one = random.random()
        number = 1 + int(3 * random.random()) if one < 0.95 else 8 + int(24 * random.random())
        if one > 0.998:
            number = 64 + int(192 * random.random())
        by_id = random.random() < climate.by_id
        keys = [] if by_id else [self.new_key() for _ in range(number)]
        query = self._number % QUERIES
        if keys and self._before and random.random() < AGAIN:
            query, keys = random.choice(self._before)
            number = len(keys)
        self._before = [*self._before[1 - MOST_BEFORE :], (query, keys)] if keys else self._before
        ids = [self.identity() for _ in range(number)] if by_id else []
        chars = [int(random.paretovariate(1.2) * 500) for _ in keys]
        typical = number * 200 * climate.token_seconds
        hurried = random.random() < climate.hurried
        return Ask(
            self._number,
            query,
            keys,
            chars,
            ids,
            bytes=sum(chars) + 40 * number,
            pieces=1 if random.random() < 0.8 else 3,
            deadline=random.uniform(0.2, 4.0) * typical + 0.01 if hurried else None,
            leaves=random.expovariate(1.0) * 4 * typical if random.random() < climate.leaving else None,
            model=random.choice(self._names),
            priority=random.choice((0, 0, 0, 5)),
            answer_bytes=100 * number,
        )
