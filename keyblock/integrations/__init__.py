"""KeyBlock's own classes for LangChain, LlamaIndex and Haystack: reranking with spans, thresholds and pruning.

Only the module of its name, `langchain`, `llama_index` or `haystack`, imports each framework.
"""
