"""The passages that an answer names are those that decided: a person can see which one answers."""

from pathlib import Path
from typing import Any

import pytest
import torch

from keyblock.bundle import Bundle, load_bundle
from keyblock.description import PipelineConfig
from keyblock.pipeline import Pipeline
from keyblock.runtime.model import GraphModel
from keyblock.runtime.providers import Provider
from keyblock.scoring import Model, score_documents
from training.declarations import STATE_AGGREGATORS
from training.evaluate.scoring import TorchModel
from training.model.aggregators import build_aggregation
from training.model.cross_encoder import CrossEncoder
from training.model.starting import read_ranker

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


@pytest.fixture(scope="module")
def parade(bundle: Bundle, backbone: Path) -> dict[str, TorchModel]:
    """The embedded ranker's encoder and head under each learned aggregator, untrained."""
    ranker, made = read_ranker(bundle.path, str(backbone)), {}
    for name in STATE_AGGREGATORS.names():
        torch.manual_seed(0)
        model = CrossEncoder(ranker.encoder, build_aggregation({"name": name}, ranker.head.in_features))
        model.head = ranker.head
        made[name] = TorchModel(model.eval(), bundle.tokenizer, bf16=False)
    return made


@pytest.mark.parametrize("name", ["max", "mean", "attention"])
def test_under_a_learned_aggregator_too(bundle: Bundle, parade: dict[str, TorchModel], name: str) -> None:
    """These leave a passage's state as it is, so that the embedded head knows what it says."""
    found = returned(bundle, parade[name], selector={"name": "first"}, aggregator={"name": "states"})
    assert found[0][0].strip() == ANSWER


@pytest.mark.parametrize("name", STATE_AGGREGATORS.names())
def test_a_passage_speaks_as_a_document_of_its_own(bundle: Bundle, parade: dict[str, TorchModel], name: str) -> None:
    parts = {"selector": {"name": "first"}, "aggregator": {"name": "states"}}
    text, score = returned(bundle, parade[name], **parts)[1]
    assert returned(bundle, parade[name], text, **parts) == [(text, pytest.approx(score, abs=1e-4))]
