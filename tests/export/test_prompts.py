import json
from pathlib import Path

import pytest

from export import ExportError
from export.checkpoint import BY_ARCHITECTURE, QUESTIONS, question_of


def test_an_architecture_has_its_prompt_and_words() -> None:
    assert question_of(None, "qwen3")[1:] == ("yes", "no")
    assert question_of(None, "qwen2")[1:] == ("1", "0")
    assert question_of("mxbai-rerank-v2", "qwen3", yes="y")[1:] == ("y", "0")
    assert set(BY_ARCHITECTURE.values()) == set(QUESTIONS)
    assert QUESTIONS["qwen3-reranker"].prompt.instructed
    assert not QUESTIONS["mxbai-rerank-v2"].prompt.instructed


def test_a_prompt_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "prompt.json"
    path.write_text(json.dumps({"pieces": ["Q: {query}\nD: {document}", "\nAnswer:"]}), encoding="utf-8")
    question = question_of(str(path), "llama")
    assert question.prompt.text("a", "b") == ["Q: a\nD: b", "\nAnswer:"]
    assert question[1:] == ("yes", "no")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "not JSON"),
        ('{"pieces": []}', "at least 1 item"),
        ('{"pieces": ["{query}"]}', "{query} once, {document} once"),
        ('{"pieces": ["{query} {document}."]}', "{document} comes last, and ends its piece"),
        ('{"pieces": ["{document}", "{query}"]}', "{document} comes last"),
    ],
)
def test_a_file_without_a_prompt(tmp_path: Path, content: str, said: str) -> None:
    path = tmp_path / "prompt.json"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(ExportError) as error:
        question_of(str(path), "qwen3")
    assert said in str(error.value)


def test_an_architecture_without_a_prompt() -> None:
    with pytest.raises(ExportError, match="no prompt is known for decoders of the architecture llama; give --template"):
        question_of(None, "llama")
