"""Descriptions: what is written out, what is left out, what is refused."""

import json
from typing import Any

import pytest
from pydantic import ValidationError

from keyblock.description import PipelineConfig
from keyblock.encoders import Static


def test_a_description_survives_json() -> None:
    config = PipelineConfig.model_validate(
        {
            "selector": {"name": "bm25", "k1": 1.2},
            "evidence": {"name": "tfidf"},
            "packing": {"budget": 96},
            "fusion": {"logit": 0.7},
        }
    )
    assert config.selector == {"name": "bm25", "k1": 1.2, "b": 0.4, "idf": "documents"}, "defaults are written out"
    assert config.segmenter == {"name": "cogltx", "block_tokens": 63}
    assert (config.evidence, config.fusion.logit) == ({"name": "tfidf"}, 0.7)
    assert PipelineConfig.model_validate(json.loads(config.model_dump_json())) == config


HYBRID: dict[str, Any] = {"selector": {"name": "hybrid"}, "encoder": {"name": "static"}}
BY_VECTORS: dict[str, Any] = {
    "selector": {"name": "vectors"},
    "encoder": {"name": "static"},
    "aggregator": {"name": "max"},
    "packing": {"title_tokens": 0},
    "cosine_scale": 20,
}


@pytest.mark.parametrize(
    ("description", "said"),
    [
        ({"selector": {"name": "splade"}}, "unknown selector 'splade'; known: bm25, first, "),
        ({"selector": {"name": "bm25", "k2": 1}}, r"bm25: k2: .*its parameters are: k1, b"),
        (
            {"segmenter": {"name": "lines"}},
            "unknown segmenter 'lines'; known: cogltx, sentences, single_sentences, structure, whole_sentences",
        ),
        ({"aggregator": {"name": "median"}}, "unknown aggregator 'median'; known: joint, max, mean, states, sum, term_weighted"),
        ({"aggregator": {"name": "joint", "passages": 4}}, "joint: passages: .*its parameters are: none"),
        ({"packing": {"budget": 300}}, "budget 300 lies outside budget_range 64 to 256"),
        ({"packing": {"query_tokens": 60}}, "budget_range starts at 64: no room for a block beside 60 query tokens"),
        ({"analyzer": {"lemmatize": True}}, "lemmatize"),
        ({"scorer": "vbert"}, "scorer"),
        ({"selector": {"name": "hybrid"}}, "selector 'hybrid' compares vectors: name an encoder"),
        ({"selector": {"name": "learned", "by": {"name": "vectors"}}}, "selector 'learned' compares vectors: name an encoder"),
        *(
            ({"evidence": {"name": name}}, f"selector '{name}' is no evidence, .* take one of: bm25, termf, tfidf")
            for name in ("first", "last", "spread", "learned")
        ),
        ({"first_stage": {"name": "mapfuse", "first_stage": "order"}}, "first_stage must read scores"),
        ({"first_stage": {"name": "sum"}}, "unknown fusion with the first stage 'sum'"),
        (
            {"selector": {"name": "learned"}, "pre_ranking": {}},
            "selector 'learned' asks the model about every document: leave out pre_ranking",
        ),
        ({"pre_ranking": {"share": 0}}, "pre_ranking.share"),
        ({"pre_ranking": {"depth": 3}}, "pre_ranking.depth"),
        ({"pre_ranking": {"prior": {"rank": 1.0}}}, "pre_ranking.prior.rank"),
        ({"pre_ranking": {"prior": {"similarity": float("nan")}}}, "pre_ranking.prior.similarity"),
        (HYBRID | {"selector": {"name": "bm25"}, "meaning": {}}, "compares no vectors: leave out meaning"),
        (HYBRID | {"meaning": {"weight": 0}}, "greater than 0"),
        (HYBRID | {"meaning": {"encoder": {"name": "word2vec"}}}, "word2vec"),
        (BY_VECTORS | {"encoder": None, "selector": {"name": "bm25"}}, "name the encoder"),
        (BY_VECTORS | {"aggregator": {"name": "joint"}}, "aggregator 'joint' needs a graph"),
        (BY_VECTORS | {"aggregator": {"name": "states"}}, "aggregator 'states' needs a graph"),
        (BY_VECTORS | {"selector": {"name": "learned"}}, "selector 'learned' asks a model"),
        (BY_VECTORS | {"packing": {"title_tokens": 0, "grow": True}}, "grow must be false"),
        (BY_VECTORS | {"packing": {"title_tokens": 4}}, "title_tokens must be 0"),
        (BY_VECTORS | {"cosine_scale": 0}, "greater than 0"),
    ],
)
def test_a_wrong_description_is_named(description: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        PipelineConfig.model_validate(description)


@pytest.mark.parametrize(
    ("selector", "evidence"),
    [
        ({"name": "bm25", "k1": 2.0}, {"name": "bm25", "k1": 2.0, "b": 0.4, "idf": "documents"}),
        ({"name": "tfidf"}, {"name": "tfidf"}),
        ({"name": "learned", "by": {"name": "tfidf"}}, {"name": "tfidf"}),
        ({"name": "hybrid", "by": {"name": "tfidf"}}, {"name": "tfidf"}),
        ({"name": "learned", "by": {"name": "first"}}, {"name": "bm25", "k1": 0.9, "b": 0.4, "idf": "documents"}),
        ({"name": "last"}, {"name": "bm25", "k1": 0.9, "b": 0.4, "idf": "documents"}),
    ],
    ids=str,
)
def test_a_lexical_selector_is_its_own_evidence(selector: dict[str, Any], evidence: dict[str, Any]) -> None:
    config = PipelineConfig.model_validate({"selector": selector, "encoder": {"name": "static"}})
    assert config.evidence == evidence
    assert PipelineConfig.model_validate(config.model_dump()) == config


def test_tokens_are_compared_where_they_have_vectors(monkeypatch: pytest.MonkeyPatch) -> None:
    parts: dict[str, Any] = {"selector": {"name": "hybrid", "soft": 1}, "encoder": {"name": "static"}}
    assert PipelineConfig(**parts).selector["soft"] == 1
    monkeypatch.setattr(Static, "of_tokens", False)
    with pytest.raises(ValidationError, match="selector 'hybrid' compares tokens, and encoder 'static' has none"):
        PipelineConfig(**parts)
    assert PipelineConfig(**HYBRID).encoder == {"name": "static", "file": "token_vectors.npz"}


def test_the_fusion_with_the_first_stage_is_written_out() -> None:
    config = PipelineConfig(first_stage={"name": "mapfuse", "model_map": 0.6})
    assert config.first_stage == {"name": "mapfuse", "first_stage": "scores", "first_stage_map": 1.0, "model_map": 0.6}
