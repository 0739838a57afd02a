"""What a large job would take and cost on many cores or GPUs, from the rates of one machine: arithmetic, nothing is run.

A stage that is spread out takes its work divided by the number of cores. One that is not takes as long on any number of cores, and
becomes the bottleneck: from the number of cores at which it takes as long as all that is spread out.
"""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

MACHINES = (10, 100, 1000)
GIGA, HOUR = 1e9, 3600.0


class Large(NamedTuple):
    """A job, and what its machines cost.

    Attributes:
        pairs: of query and document.
        documents: distinct ones.
        shard_pairs: in a shard.
        core_hour, gpu_hour: prices, in whatever money.
        gpu_pairs: that one GPU scores a second; no GPU was measured with this command.
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
    """What was measured: see `benchmarks.bulk.stages.measure`; `load` is the seconds until a worker is ready.

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
        """Of the record of a run; on Ray, or in processes of one machine."""
        stages, beside, name = record["stages"], record["beside"], "Ray, 1 worker" if ray else "1 worker"
        alone, together = (beside["rates"][one]["cpu"] for one in ("1 worker", "2 workers"))
        return cls(
            take_in=stages["take_in_lists"],
            hand_out=stages["hand_out_ray" if ray else "hand_out_local"],
            load=beside["start_seconds"][name] / 2,  # of a job of one pair, whose two stages load one after the other
            neighbours=min(1.0, together / alone),
            **{key: stages[key] for key in ("prepare", "score", "choose", "prepared_bytes", "ranking_bytes")},
        )


class Plan(NamedTuple):
    """Seconds of each part of a job, and how many cores or GPUs are paid for meanwhile.

    Attributes:
        machines: cores; of a job on GPUs these, each with its cores.
        take_in: by one process.
        prepare: with loading.
        score: with loading, in as many turns as there are shards for a worker, or as fast as they are handed out.
        cost: of all machines from the beginning to the end.
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
    """The plan of the job on so many cores, a worker each."""
    prepare = large.documents / (rates.prepare * rates.neighbours) / cores + rates.load
    shard = large.shard_pairs / (rates.score * rates.neighbours)
    score = max(math.ceil(large.shards / cores) * shard, large.shards / rates.hand_out) + rates.load
    plan = Plan(cores, large.pairs / rates.take_in, prepare, score, 0.0)
    return plan._replace(cost=plan.seconds / HOUR * cores * large.core_hour)


def cores_of_a_gpu(large: Large, rates: Rates) -> int:
    """The number of cores that choose blocks as fast as a GPU scores them."""
    return math.ceil(large.gpu_pairs / (rates.choose * rates.neighbours))


def on_gpus(large: Large, rates: Rates, gpus: int) -> Plan:
    """The job on so many GPUs, each with the cores that feed it, which prepare, too."""
    cores = gpus * cores_of_a_gpu(large, rates)
    prepare = large.documents / (rates.prepare * rates.neighbours) / cores + rates.load
    score = max(math.ceil(large.shards / gpus) * large.shard_pairs / large.gpu_pairs, large.shards / rates.hand_out) + rates.load
    plan = Plan(gpus, large.pairs / rates.take_in, prepare, score, 0.0)
    return plan._replace(cost=plan.seconds / HOUR * (gpus * large.gpu_hour + cores * large.core_hour))


def bottlenecks(large: Large, rates: Rates) -> dict[str, float]:
    """From how many cores each part alone takes longer than the work that is spread over them; the fewest first."""
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
