import numpy as np
import pytest

from keyblock.aggregation import AGGREGATORS
from keyblock.packing import Packed
from keyblock.text.tokenizer import Tokenizer
from service.pace import Pace
from service.queue.batch import Encoder
from service.queue.job import Aggregation, Job
from tests.service.faults import Faulty

LENGTHS = [10, 30, 20]


@pytest.fixture
def packed() -> list[Packed]:
    return [Packed(np.arange(length, dtype=np.int32), 3, np.zeros(1, np.intp)) for length in LENGTHS]


@pytest.fixture
def encoder(faulty: Faulty, tokenizer: Tokenizer) -> Encoder:
    return Encoder(faulty, "tiny", tokenizer, Pace())


def test_what_is_known_of_a_job_that_is_not_done(packed: list[Packed], encoder: Encoder) -> None:
    assert Job(packed, encoder).known().logits.tolist() == [-np.inf] * 3
    job = Job(packed, encoder)
    job.begin()
    job.score(1, np.asarray([7, 70], np.float32))
    assert job.known().logits.tolist() == [-np.inf, 7, -np.inf]
    aggregation = Aggregation(AGGREGATORS.create({"name": "max"}), np.asarray([2, 0, 1]), None, 2)
    job = Job(packed, encoder, aggregation)
    for number, output in ((0, 1.0), (2, 3.0)):
        job.score(number, np.float32(output))  # type: ignore[arg-type]
    assert job.known().logits.tolist() == [-np.inf, -np.inf, 3]
    assert job.known().passages.tolist() == [-np.inf, -np.inf, 3], "of a document that is not whole nothing is said"
    assert not job.finished


def test_marks_are_kept_where_they_are_wanted_and_each_has_its_sequences_length(packed: list[Packed], encoder: Encoder) -> None:
    """The batch was padded to 32 tokens; time is up before the last sequence."""
    for wanted in (True, False):
        job = Job(packed, encoder, marks=wanted)
        job.begin()
        for number in (0, 1):
            job.score(number, np.float32(number), np.full(32, number + 1, np.float32))  # type: ignore[arg-type]
        known = job.known().marks
        assert (known is not None) == wanted
        if known is not None:
            assert [(len(of), set(of.tolist())) for of in known] == [(10, {1.0}), (30, {2.0}), (0, set())]
