"""rerankers: its API rankers for Cohere, Jina and text-embeddings-inference.

Of an error they say nothing: they never look at the status, and seek results in whatever comes.
"""

from contract import Contract, Library
from question import DOCUMENTS
from rerankers import Reranker


def library(provider: str, error: type[Exception]) -> Library:
    def rank(url: str, query: str, key: str) -> list[tuple[int, float]]:
        ranker = Reranker("any", model_type=provider, api_key=key, url=f"{url}/rerank", verbose=0)
        answer = ranker.rank(query, DOCUMENTS, doc_ids=list(range(len(DOCUMENTS))))
        return [(result.doc_id, result.score) for result in answer.results]

    return Library(rank, "rerankers", error, error, error, silent=True)


LIBRARIES = {
    "cohere": library("cohere", KeyError),
    "jina": library("jina", KeyError),
    "text-embeddings-inference": library("text-embeddings-inference", TypeError),
}


class TestRerankers(Contract):
    pass
