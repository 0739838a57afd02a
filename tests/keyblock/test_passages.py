"""The passages that an answer names are those that decided: a person can see which one answers."""

from pathlib import Path
from typing import Any

import pytest

from keyblock.bundle import Bundle, load_bundle
from keyblock.description import PipelineConfig
from keyblock.pipeline import Pipeline
from keyblock.runtime.model import GraphModel
from keyblock.runtime.providers import Provider
from keyblock.scoring import Model, score_documents

ROOT = Path(__file__).resolve().parents[2]
QUERY = "How long before moving out does the tenant have to tell the landlord?"
ANSWER = "Notice of leaving is two months: the tenant has to tell the landlord in writing."
FILLER = (
    "The kitchen was painted in spring and the windows face the garden.",
    "Bicycles are kept in the cellar beside the boiler.",
    "A tenant planted the old tree, and the landlord waters it.",
    "Rubbish is collected on Tuesdays by the city.",
)
TEXT = " ".join([*(FILLER[i % 4] for i in range(8)), ANSWER, *(FILLER[i % 4] for i in range(4))])
PASSAGES: dict[str, Any] = {
    "segmenter": {"name": "sentences", "block_tokens": 20},
    "fusion": {},
    "second_look": None,
    "meaning": None,
}
BLOCKS = 12  # at least: the answer stands in the ninth
SCORED = [(by, name) for by in ("first", "last", "bm25") for name in ("max", "mean", "sum")]


@pytest.fixture(scope="module")
def bundle() -> Bundle:
    return load_bundle(ROOT / "models" / "default")


@pytest.fixture(scope="module")
def graphs(bundle: Bundle) -> GraphModel:
    return GraphModel.open(bundle, Provider.CPU, 2)


def returned(bundle: Bundle, model: Model, text: str = TEXT, **parts: Any) -> list[tuple[str, float]]:
    """Each returned block of a text with its score, in the order returned."""
    config = PipelineConfig.model_validate(bundle.manifest.pipeline.model_dump() | PASSAGES | parts)
    pipeline = Pipeline(config, bundle.tokenizer, bundle.frequencies, bundle.pipeline.encoder)
    document = pipeline.prepare_document(text)
    (selection,) = score_documents(pipeline, pipeline.prepare_query(QUERY), [document], model).selections
    return [(text[document.starts[block] : document.ends[block]], float(selection.scores[block])) for block in selection.taken]


@pytest.mark.parametrize(("by", "name"), SCORED)
def test_the_passage_that_answers_comes_first(bundle: Bundle, graphs: GraphModel, by: str, name: str) -> None:
    found = returned(bundle, graphs, selector={"name": by}, aggregator={"name": name})
    scores = [score for _, score in found]
    assert found[0][0].strip() == ANSWER
    assert len(found) >= BLOCKS
    assert scores == sorted(scores, reverse=True)
    assert scores[0] - scores[1] > 1, "logits of the passages, and not places in the document"


def test_blocks_of_one_sequence_keep_the_selectors_order(bundle: Bundle, graphs: GraphModel) -> None:
    found = returned(bundle, graphs, selector={"name": "first"}, aggregator={"name": "joint"})
    assert [score for _, score in found] == [-float(place) for place in range(len(found))]
    assert TEXT.startswith(found[0][0].strip())
