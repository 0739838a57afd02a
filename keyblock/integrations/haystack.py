"""Haystack: a ranker, to use in a pipeline or alone."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Self

from keyblock.integrations.extras import extra

with extra("haystack"):
    from haystack import Document, component, default_from_dict, default_to_dict
    from haystack.utils import Secret, deserialize_secrets_inplace

    from keyblock.integrations.asking import Asking, Found


@component
class KeyBlockRanker:
    """Ranks documents with a KeyBlock service, and prunes them with `prune`.

    >>> ranker = KeyBlockRanker(url="http://127.0.0.1:8000", top_k=5, prune=True)                  # doctest: +SKIP
    >>> ranker.run(query="When may the tenant leave?", documents=documents)["documents"]           # doctest: +SKIP

    Args:
        api_key: the API key, if the service needs one.
        top_k: the most documents that are kept; None for all.
        settings: the other fields of `Asking`: url, min_score, relevant_spans, prune, max_context_tokens, keep_original, options
            and client. Raises ValueError for any other.
    """

    def __init__(self, *, api_key: Secret | None = None, top_k: int | None = None, **settings: Any) -> None:
        self._api_key = api_key
        self._asking = Asking(api_key=api_key and api_key.resolve_value(), top_n=top_k, **settings)

    def to_dict(self) -> dict[str, Any]:
        """The dictionary for `from_dict`, without the key itself, which must come from the environment."""
        key = self._api_key and self._api_key.to_dict()
        settings = self._asking.model_dump(exclude={"top_n"}, exclude_defaults=True)
        dictionary: dict[str, Any] = default_to_dict(self, api_key=key, top_k=self._asking.top_n, **settings)
        return dictionary

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """Rebuild a ranker from its `to_dict`."""
        deserialize_secrets_inplace(data["init_parameters"], keys=["api_key"])
        made: Self = default_from_dict(cls, data)
        return made

    @component.output_types(documents=list[Document])
    def run(self, query: str, documents: list[Document], top_k: int | None = None) -> dict[str, list[Document]]:
        """The documents that are kept, best first, as copies. Raises KeyBlockError.

        Args:
            query: the query.
            documents: in the order of the retriever.
            top_k: replaces the component's for this call.
        """
        return _answered(documents, self._asking.ask(query, _texts(documents), top_k))

    @component.output_types(documents=list[Document])
    async def run_async(self, query: str, documents: list[Document], top_k: int | None = None) -> dict[str, list[Document]]:
        """`run` as a coroutine."""
        return _answered(documents, await self._asking.ask_async(query, _texts(documents), top_k))


def _texts(documents: Sequence[Document]) -> list[str]:
    return [document.content or "" for document in documents]


def _answered(documents: Sequence[Document], found: Sequence[Found]) -> dict[str, list[Document]]:
    return {"documents": [_document(documents[one.number], one) for one in found]}


def _document(document: Document, found: Found) -> Document:
    text = document.content if found.text is None else found.text
    return replace(document, content=text, score=found.score, meta={**document.meta, **found.metadata})
