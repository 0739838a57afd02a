"""Labels of tokens, against the words of the sequence."""

import numpy as np
import pytest

from keyblock.pipeline import Pipeline
from training.data.examples import LEFT_OUT, token_labels
from training.data.types import Span

TEXT = "The mill stood by the river. It ground corn for the town. In 1850 the river burst its banks. The mill was lost."
GOLD = "In 1850 the river burst its banks."


def labelled(pipeline: Pipeline, gold: str, budget: int, blocks: list[int] | None = None) -> list[tuple[str, int]]:
    """Each token of the sequence with its label."""
    query, document = pipeline.prepare_query("river banks"), pipeline.prepare_document(TEXT, "mills")
    packed = pipeline.select(query, document, budget).packed
    spans = [Span("mill", TEXT.index(gold), TEXT.index(gold) + len(gold))] if gold else []
    labels = token_labels(pipeline, document, TEXT, spans, packed)
    words = [pipeline.tokenizer.backend.id_to_token(int(one)) for one in packed.ids]
    return list(zip(words, labels.tolist(), strict=True))


@pytest.fixture(scope="module")
def pipeline(toy_pipeline: Pipeline) -> Pipeline:
    return toy_pipeline


def test_the_tokens_of_the_gold_passage_are_marked_and_those_of_query_and_title_left_out(pipeline: Pipeline) -> None:
    found = labelled(pipeline, GOLD, 96)
    read = pipeline.tokenizer.backend.encode(GOLD, add_special_tokens=False).tokens
    assert [word for word, label in found if label == 1] == read
    n_query = len(pipeline.prepare_query("river banks").token_ids)
    assert [label for _, label in found[: n_query + 3]] == [LEFT_OUT] * (n_query + 3)  # [CLS] query [SEP] and the title
    assert found[-1][1] == LEFT_OUT  # [SEP]


def test_without_a_gold_passage_no_token_answers(pipeline: Pipeline) -> None:
    assert {label for _, label in labelled(pipeline, "", 96)} == {0, LEFT_OUT}


@pytest.mark.parametrize("budget", range(60, 80))
def test_of_a_block_that_is_cut_the_tokens_that_are_left_keep_their_labels(pipeline: Pipeline, budget: int) -> None:
    """The slow version: a token is marked where the text says so at the same place of the document."""
    query, document = pipeline.prepare_query("river banks"), pipeline.prepare_document(TEXT * 3)
    text = TEXT * 3
    span = Span("mill", text.index(GOLD), text.index(GOLD) + len(GOLD))
    packed = pipeline.select(query, document, budget).packed
    labels = token_labels(pipeline, document, text, [span], packed)
    starts, ends = pipeline.reader.read([text])[0].places()
    expected, at = [], packed.split
    for block in np.sort(packed.taken).tolist():
        tokens = range(*document.bounds[block].tolist())
        room = len(packed.ids) - 1 - packed.split
        kept = list(tokens) if block != packed.taken[-1] else None
        others = sum(len(range(*document.bounds[b].tolist())) for b in packed.taken[:-1].tolist())
        kept = kept if kept is not None else list(tokens)[: room - others]
        assert document.token_ids[kept].tolist() == packed.ids[at : at + len(kept)].tolist()
        expected += [int(starts[t] < span.end and ends[t] > span.start) for t in kept]
        at += len(kept)
    assert labels[packed.split : at].tolist() == expected
