"""KeyBlock's own postprocessor for LlamaIndex."""

import asyncio
import pickle
from copy import deepcopy
from typing import Any

import pytest
from asked import HANDBOOK, QUESTION, RIGHT, TEXTS, check_pruned, check_span
from contract import KEY, UNKNOWN
from llama_index.core.schema import MediaResource, MetadataMode, Node, NodeWithScore, TextNode
from page import run
from question import DOCUMENTS, QUERY, check
from running import Service

from keyblock.client import AccessError, InvalidRequestError
from keyblock.integrations.llama_index import KeyBlockRerank


def nodes(texts: list[str]) -> list[NodeWithScore]:
    return [NodeWithScore(node=TextNode(text=text, id_=str(number), metadata={"page": 7})) for number, text in enumerate(texts)]


def both(given: list[NodeWithScore], query: str, **settings: Any) -> list[NodeWithScore]:
    """What it gives, awaited or not."""
    reranker = KeyBlockRerank(**settings)
    ranked = reranker.postprocess_nodes(given, query_str=query)
    assert asyncio.run(reranker.apostprocess_nodes(given, query_str=query)) == ranked
    return ranked


def pairs(ranked: list[NodeWithScore]) -> list[tuple[int, float]]:
    assert all(node.score == node.metadata["relevance_score"] for node in ranked)
    return [(int(node.node_id), node.score or 0.0) for node in ranked]


def test_the_snippet(service: Service) -> None:
    check(run("LlamaIndex, KeyBlockRerank", service.url), top_n=2)


def test_long_documents_stay_as_they_are(base: str) -> None:
    ranked = both(nodes(DOCUMENTS), QUERY, url=base, top_n=2)
    check(pairs(ranked), top_n=2)
    assert [node.text for node in ranked] == [DOCUMENTS[int(node.node_id)] for node in ranked]


def test_pruned_to_the_sentence_that_answers(service: Service) -> None:
    given = nodes(TEXTS)
    (node,) = both(given, QUESTION, url=service.url, prune=True, relevant_spans=True, keep_original=True)
    assert node.node_id == str(RIGHT)
    check_pruned(node.text)
    best = node.metadata["relevant_spans"][0]
    check_span(best["start"], best["end"])
    assert node.metadata["original_text"] == HANDBOOK
    assert [(one.text, one.metadata, one.score) for one in given] == [(text, {"page": 7}, None) for text in TEXTS]


@pytest.mark.parametrize("mode", [MetadataMode.LLM, MetadataMode.EMBED])
def test_prompts_hold_the_pruned_text_and_nothing_of_what_was_added(service: Service, mode: MetadataMode) -> None:
    (node,) = both(nodes(TEXTS), QUESTION, url=service.url, prune=True, relevant_spans=True, keep_original=True)
    assert node.node.get_content(metadata_mode=mode) == f"page: 7\n\n{node.text}"


def test_nodes_of_several_media(service: Service) -> None:
    given = [NodeWithScore(node=Node(text_resource=MediaResource(text=text), id_=str(n))) for n, text in enumerate(TEXTS)]
    (node,) = both(given, QUESTION, url=service.url, prune=True)
    check_pruned(node.node.get_content())
    assert given[RIGHT].node.get_content() == HANDBOOK


def test_documents_below_the_threshold_are_left_out(service: Service) -> None:
    ranked = both(nodes(TEXTS), QUESTION, url=service.url, min_score=0.1)
    assert [number for number, _ in pairs(ranked)] == [RIGHT]


def test_nothing_is_asked_about_nothing() -> None:
    assert both([], QUESTION, url="http://127.0.0.1:9") == []


def test_an_error_says_what_is_wrong(service: Service) -> None:
    reranker = KeyBlockRerank(url=service.url)
    with pytest.raises(InvalidRequestError, match="query: is empty"):
        reranker.postprocess_nodes(nodes(TEXTS), query_str=" ")
    with pytest.raises(ValueError, match="there is no query"):
        reranker.postprocess_nodes(nodes(TEXTS))


def test_copies_ask_too(service: Service) -> None:
    """Those of one that was used already: from a dictionary, a pickle or a copy."""
    reranker = KeyBlockRerank(url=service.url, min_score=0.1)
    given = reranker.postprocess_nodes(nodes(TEXTS), query_str=QUESTION)
    for copy in (KeyBlockRerank.from_json(reranker.to_json()), pickle.loads(pickle.dumps(reranker)), deepcopy(reranker)):
        assert copy.postprocess_nodes(nodes(TEXTS), query_str=QUESTION) == given


def test_its_key_is_sent_and_not_shown(guarded: Service) -> None:
    check(pairs(both(nodes(DOCUMENTS), QUERY, url=guarded.url, api_key=KEY)))
    with pytest.raises(AccessError, match=UNKNOWN):
        KeyBlockRerank(url=guarded.url, api_key="kb_wrong").postprocess_nodes(nodes(DOCUMENTS), query_str=QUERY)
    assert not any(KEY in shown for shown in (repr(KeyBlockRerank(api_key=KEY)), KeyBlockRerank(api_key=KEY).to_json()))


def test_it_comes_back_when_there_is_room(service: Service) -> None:
    with service.full_once():
        ranked = KeyBlockRerank(url=service.url).postprocess_nodes(nodes(DOCUMENTS), query_str=QUERY)
    check(pairs(ranked))
