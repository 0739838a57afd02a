"""Adapts calls of clients whose code fails on a field that they request: the field is left out, with a warning."""

import dataclasses

from service.call import Call

LITELLM = "litellm/"  # the start of its User-Agent


def without_unreadable(call: Call, user_agent: str, path: str) -> Call:
    """The call without the fields that its sender cannot read.

    litellm requests documents unless its user says otherwise. It sends the same request for Infinity, where it reads `document` as
    a string, as for vLLM and Jina, where it reads an object; it works without documents for all of them. Only Cohere uses /v2.
    """
    if not call.return_documents or not user_agent.startswith(LITELLM) or "/v2/" in path:
        return call
    warning = "return_documents: litellm reads the documents of Infinity and of vLLM in contradicting shapes, so none are sent back"
    return dataclasses.replace(call, return_documents=False, warnings=[*call.warnings, warning])
