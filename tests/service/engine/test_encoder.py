import numpy as np
import pytest

from keyblock.packing import Packed
from keyblock.runtime import batching
from keyblock.runtime.session import Session
from keyblock.text.tokenizer import Tokenizer
from service.engine.encoder import Caps, Encoder
from service.pace import Pace
from tests.service.faults import PATIENCE, Faulty

CAPS = Caps(512, PATIENCE)


@pytest.fixture
def encoder(faulty: Faulty, tokenizer: Tokenizer) -> Encoder:
    return Encoder(faulty, "tiny", tokenizer, Pace())


@pytest.fixture
def packed() -> list[Packed]:
    return [Packed(np.arange(1000, 1000 + n, dtype=np.int32), 3, np.zeros(1, np.intp)) for n in (30, 100, 31, 33)]


def plan(encoder: Encoder, packed: list[Packed]) -> list[batching.Batch]:
    """The batches that the schedule would cut."""
    return batching.plan([len(sequence.ids) for sequence in packed], encoder.most_rows)


def test_an_encoder_has_no_batches_before_its_first_runs(encoder: Encoder, packed: list[Packed]) -> None:
    assert (encoder.batch_tokens, encoder.pace.seconds) == (1, 0)
    with pytest.raises(KeyError):
        plan(encoder, packed)


def test_the_first_runs_measure_how_large_a_batch_may_be(encoder: Encoder, faulty: Faulty, packed: list[Packed]) -> None:
    assert len(list(encoder.first_runs(128, CAPS))) > len(set(faulty.shapes)), "it yields after each"
    assert encoder.most_rows == {32: 16, 64: 8, 96: 5, 128: 4}
    assert encoder.batch_tokens == 512
    assert encoder.pace.seconds > 0
    assert [(batch.positions, batch.length) for batch in plan(encoder, packed)] == [((0, 2), 32), ((3,), 64), ((1,), 128)]


def test_outputs_leave_out_the_padding_and_padding_is_counted(encoder: Encoder, session: Session, packed: list[Packed]) -> None:
    list(encoder.first_runs(128, CAPS))
    for batch in plan(encoder, packed[:3]):
        outputs, marks, fed, seconds = encoder.run(encoder.fill(batch, packed))
        assert seconds > 0
        assert marks is None
        assert fed == batch.rows * batch.length
        for position, output in zip(batch.positions, outputs, strict=True):
            ids = packed[position].ids[None].astype(np.int64)
            types = (np.arange(ids.shape[1]) >= 3).astype(np.int64)[None]
            assert output == pytest.approx(session.score(ids, types, np.ones_like(ids))[0], abs=1e-5)
