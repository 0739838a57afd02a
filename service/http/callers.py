"""Clients whose code fails on a field of the answer that they themselves ask for: it is left out, with a warning."""

import dataclasses

from service.call import Call

LITELLM = "litellm/"  # how its User-Agent begins


def readable(call: Call, user_agent: str, path: str) -> Call:
    """The call without what its sender cannot read.

    litellm asks for documents unless it is told not to, and sends one and the same request for Infinity, where it reads `document`
    as a string, and for vLLM and Jina, where it reads an object. It does without on all of them. Under /v2 it is Cohere's alone.
    """
    if not call.return_documents or not user_agent.startswith(LITELLM) or "/v2/" in path:
        return call
    warning = "return_documents: litellm reads the documents of Infinity and of vLLM in contradicting shapes, so none are sent back"
    return dataclasses.replace(call, return_documents=False, warnings=[*call.warnings, warning])
