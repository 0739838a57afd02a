"""Re-ranking beside the first stage: in another script without a model, and figures that a person can check."""

import json
from pathlib import Path

import pytest

from benchmarks.guarded import Blocks, Embedded, measured, row
from keyblock.bundle import load_bundle
from keyblock.pipeline import Pipeline, PipelineConfig
from tests.conftest import ROOT
from training.collections.collection import Collection

TEXTS = {
    "a": "Everybody drank tea, and nobody left.",
    "b": "多瑙河流经维也纳和布达佩斯。",
    "c": "The meeting lasted for a long time.",
}


@pytest.fixture
def collection(tmp_path: Path) -> Collection:
    """A question in Chinese, and one in English that a model would have to answer."""
    queries = {"zh": "哪条河流经维也纳?", "en": "How long was the meeting?"}
    rows = {"corpus.jsonl": [{"_id": name, "title": "", "text": text} for name, text in TEXTS.items()]}
    rows["queries.jsonl"] = [{"_id": name, "text": text} for name, text in queries.items()]
    for name, of_file in rows.items():
        (tmp_path / name).write_text("".join(json.dumps(one) + "\n" for one in of_file), encoding="utf-8")
    (tmp_path / "qrels.tsv").write_text("zh\t0\tb\t1\nen\t0\tc\t1\n", encoding="utf-8")
    run = [f"{query} Q0 {name} {rank} {-rank} bm25" for query in queries for rank, name in enumerate(TEXTS, 1)]
    (tmp_path / "run.dev.bm25.trec").write_text("\n".join(run) + "\n", encoding="utf-8")
    return Collection(tmp_path)


def test_chinese_needs_no_model_and_english_does(collection: Collection) -> None:
    bundle = load_bundle(ROOT / "models" / "default")
    universal = PipelineConfig.model_validate({"analyzer": {"name": "universal"}})
    blocks = Blocks(collection, Pipeline(universal, bundle.tokenizer, bundle.frequencies))
    systems = [blocks, Embedded(collection, bundle.pipeline, None)]
    values = measured(collection, "dev", ["zh"], systems)
    # as given, the document that answers is the second; with the block's place, 1/4 + 1/3 against 1/3 and 1/5
    assert {name: of["zh"] for name, of in values.items()} == {
        "first stage": 0.5, "blocks alone": 1.0, "beside the order": 1.0, "embedded": 1.0
    }  # fmt: skip
    assert "embedded" not in measured(collection, "dev", ["zh", "en"], systems)


def test_a_row_has_means_and_p_values() -> None:
    first = {"q1": 1.0, "q2": 0.5, "q3": 0.0}
    cells = row({"first stage": first, "blocks alone": first, "embedded": {"q1": 1.0, "q2": 1.0, "q3": 0.5}})
    # differences 0, .5 and .5: t = (1/3) / (.2887 / sqrt 3) = 2, of two degrees of freedom
    assert cells == ["0.500", "0.500 (1)", "", "0.833 (0.18)"]
