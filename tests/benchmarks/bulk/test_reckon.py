"""A large job, reckoned from rates that are easy to divide by."""

import pytest

from benchmarks.bulk.reckon import Large, Rates, bottlenecks, cores_of_a_gpu, on_cores, on_gpus

LARGE = Large(pairs=1_000_000, documents=100_000, shard_pairs=1000, core_hour=0.1, gpu_hour=3.0, gpu_pairs=4000.0, file_system=1e8)
RATES = Rates(
    take_in=10_000.0,
    prepare=2000.0,
    score=200.0,
    choose=2000.0,
    hand_out=50.0,
    prepared_bytes=10_000.0,
    ranking_bytes=20.0,
    load=2.0,
    neighbours=0.5,
)


def test_ten_cores() -> None:
    """1,000 shards of 10 s are 100 turns of ten workers; 100,000 documents are 10 s of ten cores that do 1,000 each."""
    plan = on_cores(LARGE, RATES, 10)
    assert plan.take_in == 100
    assert plan.prepare == 10 + 2
    assert plan.score == 100 * 10 + 2
    assert plan.seconds == 1114
    assert plan.cost == pytest.approx(1114 / 3600 * 10 * 0.1)


def test_more_workers_than_can_be_fed_wait_for_shards() -> None:
    """1,000 workers have a shard each, which takes 10 s; but 1,000 shards are handed out in 20."""
    assert on_cores(LARGE, RATES, 1000).score == 20 + 2


def test_more_workers_than_shards_have_nothing_to_do() -> None:
    fast = RATES._replace(hand_out=1e9)
    assert on_cores(LARGE, fast, 5000).score == on_cores(LARGE, fast, 1000).score == pytest.approx(10 + 2)


def test_a_gpu_is_paid_with_the_cores_that_feed_it() -> None:
    """Four cores choose the blocks of 1,000 pairs a second each; ten GPUs have 100 shards each, of 0.25 s."""
    assert cores_of_a_gpu(LARGE, RATES) == 4
    plan = on_gpus(LARGE, RATES, 10)
    assert (plan.prepare, plan.score) == (2.5 + 2, 25 + 2)
    assert plan.cost == pytest.approx((100 + 4.5 + 27) / 3600 * (10 * 3.0 + 40 * 0.1))


def test_the_first_bottleneck_stands_first() -> None:
    """All that is spread takes 100 + 10,000 s of one core, and taking in 100 s."""
    assert list(bottlenecks(LARGE, RATES).items()) == [
        ("reading what is prepared", 100.0),
        ("taking in, by one process", 101.0),
        ("handing out shards", 500.0),
        ("shards, one a worker", 1000.0),
        ("writing rankings", 50_000.0),
    ]


def test_rates_of_a_record() -> None:
    """Two workers do 90 pairs a CPU second where one alone does 100; a job of one pair loads twice."""
    stages = dict.fromkeys(("take_in_lists", "prepare", "score", "choose", "prepared_bytes", "ranking_bytes"), 1.0)
    record = {
        "stages": stages | {"hand_out_ray": 7.0, "hand_out_local": 70.0},
        "beside": {
            "rates": {"1 worker": {"cpu": 100.0}, "2 workers": {"cpu": 90.0}},
            "start_seconds": {"1 worker": 4.0, "Ray, 1 worker": 12.0},
        },
    }
    local, ray = Rates.of(record, ray=False), Rates.of(record, ray=True)
    assert (local.hand_out, local.load, local.neighbours) == (70.0, 2.0, 0.9)
    assert (ray.hand_out, ray.load, ray.neighbours) == (7.0, 6.0, 0.9)
