import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from keyblock.text.prompt import Prompt
from tests.support.checkpoints import QWEN, qwen_like

PROMPT = Prompt(
    pieces=("<|im_start|>Judge.\n", "<Instruct>: {instruction}\n<Query>: {query}\n<Document>: {document}", "<|im_end|>\nyes?"),
    instruction="Find it",
)


@pytest.fixture(scope="module")
def qwen() -> Tokenizer:
    return qwen_like(QWEN)


def whole(qwen: Tokenizer, query: str, document: str) -> list[int]:
    """As transformers reads it: piece by piece, special tokens found."""
    ids: list[int] = []
    for piece in PROMPT.text(query, document):
        ids += qwen.encode(piece, add_special_tokens=False).ids
    return ids


WORDS = st.text(st.characters(codec="ascii", exclude_characters="<|>"), min_size=1, max_size=60).filter(str.strip)


@given(WORDS, WORDS)
def test_head_document_and_tail_are_the_whole(qwen: Tokenizer, query: str, document: str) -> None:
    led = qwen.encode(f"{PROMPT.lead}{document}", add_special_tokens=False).ids
    found = [*PROMPT.head(qwen, query).tolist(), *led, *PROMPT.tail(qwen)]
    assert found == whole(qwen, query, document)


def test_what_a_request_says_is_text() -> None:
    assert PROMPT.text("{document}", "{query}", "{instruction}")[1] == (
        "<Instruct>: {instruction}\n<Query>: {document}\n<Document>: {query}"
    )


def test_the_instruction_of_a_request_stands_in_the_prompts_place(qwen: Tokenizer) -> None:
    own, other, none = (PROMPT.head(qwen, "q", told).tolist() for told in (None, "Seek", ""))
    assert own == PROMPT.head(qwen, "q", "Find it").tolist()
    assert own != other != none
    assert PROMPT.instructed
    assert not Prompt(pieces=("{query}{document}",)).instructed


def test_the_space_in_front_of_a_document_is_the_documents() -> None:
    assert PROMPT.lead == " "
    assert Prompt(pieces=("{query}", "{document}")).lead == ""


@pytest.mark.parametrize(
    "pieces", [(), ("{query}",), ("{document}",), ("{query}{query}{document}",), ("{document}{query}",), ("{query}{document}!",)]
)
def test_what_is_no_prompt(pieces: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match=r"pieces|a prompt has|comes last"):
        Prompt(pieces=pieces)
