"""KeyBlock's own classes for LangChain, LlamaIndex and Haystack: reranking with spans, thresholds and pruning.

Each framework is imported in the module of its name, `langchain`, `llama_index` or `haystack`, and nowhere else.
"""
