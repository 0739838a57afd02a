"""Computes the time and cost of a large job on many cores or GPUs from the rates of one machine. Nothing is run.

A stage that is spread out takes its work divided by the number of cores. One that is not takes as long on any number of cores, and
becomes the bottleneck: from the number of cores at which it takes as long as all that is spread out.
"""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

MACHINES = (10, 100, 1000)
GIGA, HOUR = 1e9, 3600.0


class Large(NamedTuple):
    """A job, and the prices of its machines.

    Attributes:
        pairs: pairs of query and document.
        documents: distinct documents.
        shard_pairs: pairs in a shard.
        core_hour, gpu_hour: prices, in any currency.
        gpu_pairs: pairs that one GPU scores a second; no GPU was measured with this command.
        file_system: bytes a second that the shared file system reads.
    """

    pairs: int = 10_000_000
    documents: int = 1_000_000
    shard_pairs: int = 2000
    core_hour: float = 0.05
    gpu_hour: float = 2.5
    gpu_pairs: float = 10_000.0
    file_system: float = GIGA

    @property
    def shards(self) -> int:
        """The number of shards of lists."""
        return math.ceil(self.pairs / self.shard_pairs)


class Rates(NamedTuple):
    """The measured rates: see `benchmarks.bulk.stages.measure`. `load` is the seconds until a worker is ready.

    `neighbours`: what a CPU second does while another worker computes beside, of what it does alone.
    """

    take_in: float
    prepare: float
    score: float
    choose: float
    hand_out: float
    prepared_bytes: float
    ranking_bytes: float
    load: float
    neighbours: float

    @classmethod
    def of(cls, record: Mapping[str, Any], *, ray: bool) -> "Rates":
        """The rates in a run's record, on Ray or in processes of one machine."""
        stages, beside, name = record["stages"], record["beside"], "Ray, 1 worker" if ray else "1 worker"
        alone, together = (beside["rates"][one]["cpu"] for one in ("1 worker", "2 workers"))
        return cls(
            take_in=stages["take_in_lists"],
            hand_out=stages["hand_out_ray" if ray else "hand_out_local"],
            load=beside["start_seconds"][name] / 2,  # half of a job of one pair, whose two stages load one after the other
            neighbours=min(1.0, together / alone),
            **{key: stages[key] for key in ("prepare", "score", "choose", "prepared_bytes", "ranking_bytes")},
        )


class Plan(NamedTuple):
    """Seconds of each part of a job, and the cores or GPUs that are paid for.

    Attributes:
        machines: number of cores; for a job on GPUs, number of GPUs, each with its cores.
        take_in: seconds of one process.
        prepare: seconds with loading.
        score: seconds with loading, in as many turns as each worker has shards, or as fast as the engine hands them out.
        cost: price of all machines from the beginning to the end.
    """

    machines: int
    take_in: float
    prepare: float
    score: float
    cost: float

    @property
    def seconds(self) -> float:
        """Seconds from the beginning to the end of the job."""
        return self.take_in + self.prepare + self.score


def on_cores(large: Large, rates: Rates, cores: int) -> Plan:
    """The plan of the job on a number of cores, with a worker each."""
    prepare = large.documents / (rates.prepare * rates.neighbours) / cores + rates.load
    shard = large.shard_pairs / (rates.score * rates.neighbours)
    score = max(math.ceil(large.shards / cores) * shard, large.shards / rates.hand_out) + rates.load
    plan = Plan(cores, large.pairs / rates.take_in, prepare, score, 0.0)
    return plan._replace(cost=plan.seconds / HOUR * cores * large.core_hour)


def cores_of_a_gpu(large: Large, rates: Rates) -> int:
    """The number of cores that choose blocks as fast as a GPU scores them."""
    return math.ceil(large.gpu_pairs / (rates.choose * rates.neighbours))


def on_gpus(large: Large, rates: Rates, gpus: int) -> Plan:
    """The plan of the job on a number of GPUs, each with the cores that feed it. The cores prepare, too."""
    cores = gpus * cores_of_a_gpu(large, rates)
    prepare = large.documents / (rates.prepare * rates.neighbours) / cores + rates.load
    score = max(math.ceil(large.shards / gpus) * large.shard_pairs / large.gpu_pairs, large.shards / rates.hand_out) + rates.load
    plan = Plan(gpus, large.pairs / rates.take_in, prepare, score, 0.0)
    return plan._replace(cost=plan.seconds / HOUR * (gpus * large.gpu_hour + cores * large.core_hour))


def bottlenecks(large: Large, rates: Rates) -> dict[str, float]:
    """For each part, the number of cores above which it takes longer than the work spread over the cores; the fewest first."""
    score = rates.score * rates.neighbours
    spread = large.documents / (rates.prepare * rates.neighbours) + large.pairs / score
    return dict(
        sorted(
            {
                "taking in, by one process": spread / (large.pairs / rates.take_in),
                "handing out shards": rates.hand_out * large.shard_pairs / score,
                "shards, one a worker": float(large.shards),
                "reading what is prepared": large.file_system / (rates.prepared_bytes * score),
                "writing rankings": large.file_system / (rates.ranking_bytes * score),
            }.items(),
            key=lambda part: part[1],
        )
    )
