"""Warnings name what was asked for and what is done instead."""

import numpy as np

from keyblock.description import PipelineConfig
from keyblock.fusion import NOT_SENT, FirstStage
from keyblock.packing import PackingConfig
from keyblock.pipeline import Pipeline
from keyblock.prepared import PreparedQuery
from keyblock.ranking.warnings import (
    about_budget,
    about_empty,
    about_first_stage,
    about_languages,
    about_position,
    about_query,
    about_scripts,
)
from keyblock.selectors import SelectedBy
from keyblock.text.alphabets import TrainedOn


def test_a_budget_outside_the_range_is_named_with_the_bound() -> None:
    packing = PackingConfig(budget=128, budget_range=(64, 256))
    assert about_budget(1000, packing) == ["max_tokens_per_doc: lowered to 256, the most this model was measured at"]
    assert about_budget(63.5, packing) == ["max_tokens_per_doc: raised to 64, the least this model was measured at"]
    assert [about_budget(asked, packing) for asked in (None, 64, 256)] == [[], [], []]
    assert [packing.kept_inside(asked) for asked in (None, 63.5, 100.9, 1000)] == [128, 64, 100, 256]


def test_a_query_that_is_cut_and_one_without_a_token(pipeline: Pipeline) -> None:
    assert about_query(pipeline.prepare_query("which river")) == []
    (cut,) = about_query(pipeline.prepare_query("river " * 100))
    assert f"its first {pipeline.config.packing.query_tokens} tokens" in cut
    nothing = PreparedQuery(np.zeros(0, np.int32), np.zeros(0, np.int64))
    assert about_query(nothing) == ["query: holds nothing that the model reads; the order means little"]


def test_documents_without_text_are_named_up_to_ten() -> None:
    assert about_empty([]) == []
    assert about_empty([1, 4]) == ["documents without text to score, ranked last: 1, 4"]
    assert about_empty(range(12)) == ["documents without text to score, ranked last: 0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 2 more"]


def test_scripts_that_the_model_has_not_learned() -> None:
    config = PipelineConfig(trained_on=TrainedOn(languages=("en",), scripts=("latin",)))
    assert about_scripts(0, 5, config, without_model=False) == []
    assert about_scripts(3, 5, PipelineConfig(), without_model=True) == [], "nothing is claimed"
    (most,) = about_scripts(3, 5, config, without_model=True)
    assert most.startswith("model: it has learned texts in latin script, and 3 of 5 documents, or the query, are in another: ")
    assert most.endswith("the order is made of the order given and the words that the blocks share with the query")
    (few,) = about_scripts(1, 5, config, without_model=False)
    assert few.endswith("are in another: their scores mean little")


def test_languages_that_the_model_has_not_learned() -> None:
    config = PipelineConfig(trained_on=TrainedOn(languages=("en",), scripts=("latin",)))
    assert about_languages(2, 4, config) == [], "not most of them"
    assert about_languages(3, 4, PipelineConfig()) == [], "nothing is claimed"
    (most,) = about_languages(3, 4, config)
    assert most.startswith("model: it has learned en, and most words of 3 of 4 documents are of no language that it knows: ")


def test_nothing_stands_out_only_where_no_document_has_evidence_and_nothing_answers() -> None:
    blind = [SelectedBy.POSITION, None, SelectedBy.POSITION]
    (warning,) = about_position(blind, 0.02, PipelineConfig())
    assert warning.startswith("query: nothing in the documents stands out for it")
    assert warning.endswith("ask in words that the documents use")
    assert about_position([*blind, SelectedBy.EVIDENCE], 0.02, PipelineConfig()) == [], "most candidates are about something else"
    assert about_position(blind, 0.5, PipelineConfig()) == [], "an answer was found"
    assert about_position(blind, 0.02, PipelineConfig(min_score=0.01)) == [], "by the bundle's own threshold"
    assert about_position(blind, 0.02, PipelineConfig(selector={"name": "first"})) == [], "it could not have known"
    assert about_position([None, None], 0.02, PipelineConfig()) == [], "all were read whole"


def test_a_first_stage_that_changed_nothing() -> None:
    sent, asked = FirstStage.read([1, 2], None, 2), FirstStage.read([1, 2], "linear", 2)
    (unnamed,) = about_first_stage(sent, PipelineConfig(), fused=False)
    assert "names no fusion" in unnamed
    (unscored,) = about_first_stage(asked, PipelineConfig(), fused=False)
    assert "has scored no document" in unscored
    own = PipelineConfig(first_stage={"name": "linear"})
    assert about_first_stage(sent, own, fused=True) == about_first_stage(asked, own, fused=True) == []
    assert about_first_stage(NOT_SENT, own, fused=False) == []
