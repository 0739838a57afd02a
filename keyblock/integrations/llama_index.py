"""LlamaIndex: a node postprocessor, to use in a query engine or alone."""

from collections.abc import Sequence

from keyblock.integrations.extras import extra

with extra("llama-index"):
    from llama_index.core.postprocessor.types import BaseNodePostprocessor
    from llama_index.core.schema import MetadataMode, NodeWithScore, QueryBundle

    from keyblock.integrations.asking import Asking, Found


class KeyBlockRerank(Asking, BaseNodePostprocessor):
    """Ranks nodes with a KeyBlock service, and prunes them with `prune`; `Asking` describes its fields.

    Prompts and embeddings leave out the metadata that it adds.

    >>> reranker = KeyBlockRerank(url="http://127.0.0.1:8000", top_n=5, prune=True)                # doctest: +SKIP
    >>> reranker.postprocess_nodes(nodes, query_str="When may the tenant leave?")                  # doctest: +SKIP
    """

    @classmethod
    def class_name(cls) -> str:
        """The class's name in LlamaIndex's serialized form."""
        return "KeyBlockRerank"

    def _postprocess_nodes(self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None) -> list[NodeWithScore]:
        return _answered(nodes, self.ask(_query(query_bundle), _texts(nodes)))

    async def _apostprocess_nodes(self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None) -> list[NodeWithScore]:
        return _answered(nodes, await self.ask_async(_query(query_bundle), _texts(nodes)))


def _query(bundle: QueryBundle | None) -> str:
    if bundle is None:
        raise ValueError("there is no query: give query_str or query_bundle")
    return str(bundle.query_str)


def _texts(nodes: Sequence[NodeWithScore]) -> list[str]:
    """The nodes' texts without metadata, since spans are offsets into them."""
    return [node.node.get_content(metadata_mode=MetadataMode.NONE) for node in nodes]


def _answered(nodes: Sequence[NodeWithScore], found: Sequence[Found]) -> list[NodeWithScore]:
    return [_node(nodes[one.number], one) for one in found]


def _node(given: NodeWithScore, found: Found) -> NodeWithScore:
    """A copy of a node with its new text and metadata: the original belongs to the index."""
    node, added = given.node, found.metadata.keys()
    copy = node.model_copy(
        update={
            "metadata": {**node.metadata, **found.metadata},
            "excluded_llm_metadata_keys": [*node.excluded_llm_metadata_keys, *added],
            "excluded_embed_metadata_keys": [*node.excluded_embed_metadata_keys, *added],
        }
    )
    if found.text is not None:
        copy.set_content(found.text)
    return NodeWithScore(node=copy, score=found.score)
