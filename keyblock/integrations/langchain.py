"""LangChain: a document compressor, to use in a ContextualCompressionRetriever or alone."""

from collections.abc import Sequence

from keyblock.integrations.extras import extra

with extra("langchain"):
    from langchain_core.callbacks import Callbacks
    from langchain_core.documents import BaseDocumentCompressor, Document

    from keyblock.integrations.asking import Asking, Found


class KeyBlockRerank(Asking, BaseDocumentCompressor):
    """Ranks documents with a KeyBlock service, and prunes them with `prune`; `Asking` describes its fields.

    >>> reranker = KeyBlockRerank(url="http://127.0.0.1:8000", top_n=5, prune=True)                # doctest: +SKIP
    >>> reranker.compress_documents(documents, "When may the tenant leave?")                       # doctest: +SKIP
    """

    def compress_documents(self, documents: Sequence[Document], query: str, callbacks: Callbacks | None = None) -> list[Document]:
        """The documents that are kept, best first, as copies. Raises KeyBlockError."""
        return _answered(documents, self.ask(query, _texts(documents)))

    async def acompress_documents(
        self, documents: Sequence[Document], query: str, callbacks: Callbacks | None = None
    ) -> list[Document]:
        """`compress_documents` as a coroutine."""
        return _answered(documents, await self.ask_async(query, _texts(documents)))


def _texts(documents: Sequence[Document]) -> list[str]:
    return [document.page_content for document in documents]


def _answered(documents: Sequence[Document], found: Sequence[Found]) -> list[Document]:
    return [_document(documents[one.number], one) for one in found]


def _document(document: Document, found: Found) -> Document:
    text = document.page_content if found.text is None else found.text
    return document.model_copy(update={"page_content": text, "metadata": {**document.metadata, **found.metadata}})
