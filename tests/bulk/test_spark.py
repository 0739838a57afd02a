"""What a Spark task does with its batches; in a real Spark it is run by tests/spark (make test-spark)."""

from pathlib import Path

import pyarrow as pa

from bulk.options import Asking
from bulk.scorer import BundleScorer
from bulk.spark import _rank, _scorer
from bulk.tables import LISTS, rankings_schema
from keyblock.bundle import load_bundle
from keyblock.runtime.model import open_model
from tests.bulk.jobs import river_lists


def test_a_task_loads_the_bundle_once_and_answers_batch_by_batch(bundle_path: Path) -> None:
    asked = Asking(provider="cpu", precision="fp32", blocks=True)
    batches = [pa.RecordBatch.from_pylist([one], schema=LISTS) for one in river_lists(2)]
    _scorer.cache_clear()
    found = list(_rank(iter(batches), str(bundle_path), asked)) + list(_rank(iter(batches), str(bundle_path), asked))
    assert (_scorer.cache_info().misses, _scorer.cache_info().hits) == (1, 1)
    bundle = load_bundle(bundle_path)
    scorer = BundleScorer(bundle, open_model(bundle, "cpu", 1, "fp32"), asked)
    assert [batch.to_pylist() for batch in found] == [scorer(batch).to_pylist() for batch in batches] * 2
    assert found[0].schema == rankings_schema(blocks=True, spans=False)
