"""rerankers: its API rankers for Cohere, Jina and text-embeddings-inference."""

import pytest
from keyed import KEY
from page import run
from question import DOCUMENTS, QUERY, check
from rerankers import Reranker
from running import Service

PROVIDERS = ["cohere", "jina", "text-embeddings-inference"]


def make(provider: str, base: str, key: str = "any") -> Reranker:
    return Reranker("any", model_type=provider, api_key=key, url=f"{base}/rerank", verbose=0)


def test_the_snippet(service: Service) -> None:
    check(run("rerankers", service.url), top_n=2)


@pytest.mark.parametrize("provider", PROVIDERS)
def test_long_documents(base: str, provider: str) -> None:
    answer = make(provider, base).rank(QUERY, DOCUMENTS, doc_ids=list(range(len(DOCUMENTS))))
    check([(result.doc_id, result.score) for result in answer.results])


@pytest.mark.parametrize("provider", PROVIDERS)
def test_its_key_is_sent(guarded: Service, provider: str) -> None:
    answer = make(provider, guarded.url, KEY).rank(QUERY, DOCUMENTS, doc_ids=list(range(len(DOCUMENTS))))
    check([(result.doc_id, result.score) for result in answer.results])


@pytest.mark.parametrize(("provider", "error"), list(zip(PROVIDERS, (KeyError, KeyError, TypeError), strict=True)))
def test_of_an_error_it_says_nothing(service: Service, provider: str, error: type[Exception]) -> None:
    """It never looks at the status: it seeks results in whatever comes."""
    with pytest.raises(error):
        make(provider, service.url).rank("", DOCUMENTS)
    with service.full(), pytest.raises(error):
        make(provider, service.url).rank(QUERY, DOCUMENTS)
