"""Prompts that reranking decoders were trained with, by name, and those that a file describes."""

from pathlib import Path
from typing import NamedTuple

from pydantic import ValidationError
from pydantic_core import from_json

from export import ExportError
from keyblock.text.prompt import Prompt


class Question(NamedTuple):
    """A decoder's prompt and answers.

    Attributes:
        prompt: the prompt around query and document.
        yes, no: the words that the decoder answers with.
    """

    prompt: Prompt
    yes: str
    no: str


QUESTIONS = {
    "qwen3-reranker": Question(
        Prompt(
            pieces=(
                "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct "
                'provided. Note that the answer can only be "yes" or "no".<|im_end|>\n<|im_start|>user\n',
                "<Instruct>: {instruction}\n<Query>: {query}\n<Document>: {document}",
                "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n",
            ),
            instruction="Given a web search query, retrieve relevant passages that answer the query",
        ),
        "yes",
        "no",
    ),
    "mxbai-rerank-v2": Question(
        Prompt(
            pieces=(
                "<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant.<|im_end|>\n"
                "<|im_start|>user\n",
                "query: {query}",
                "\n",
                "document: {document}",
                "\n",
                "You are a search relevance expert who evaluates how well documents match search queries. For each "
                "query-document pair, carefully analyze the semantic relationship between them, then provide your binary "
                "relevance judgment (0 for not relevant, 1 for relevant).\nRelevance:",
                "<|im_end|>\n<|im_start|>assistant\n",
            )
        ),
        "1",
        "0",
    ),
}
BY_ARCHITECTURE = {"qwen3": "qwen3-reranker", "qwen2": "mxbai-rerank-v2"}


def question_of(template: str | None, model_type: str, yes: str | None = None, no: str | None = None) -> Question:
    """The question of a checkpoint.

    Args:
        template: a name of QUESTIONS, or a JSON file with `pieces` and perhaps `instruction`; none: by the architecture.
        model_type: transformers' name of the architecture.
        yes, no: the answers, if they differ from the template's.

    Raises:
        ExportError: there is no such template, or the file holds none.
    """
    name = template or BY_ARCHITECTURE.get(model_type)
    if name is None:
        raise ExportError(f"no prompt is known for decoders of the architecture {model_type}; give --template, --yes and --no")
    question = QUESTIONS[name] if name in QUESTIONS else Question(_read(Path(name)), "yes", "no")
    return Question(question.prompt, yes or question.yes, no or question.no)


def _read(path: Path) -> Prompt:
    if not path.is_file():
        raise ExportError(f"--template {path}: no such file; the templates that have names are {', '.join(QUESTIONS)}")
    try:
        return Prompt.model_validate(from_json(path.read_bytes()))
    except ValidationError as error:
        raise ExportError(f"--template {path}: {error.errors()[0]['msg']}") from None
    except ValueError as error:
        raise ExportError(f"--template {path}: not JSON ({error})") from None
