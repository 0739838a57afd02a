"""The model's tokenizer: ids, offsets into the text as given, special tokens; WordPiece, byte-level BPE and word-level files."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer as RawTokenizer
from tokenizers import models, pre_tokenizers, processors

from keyblock.segmenters import cut_costs
from keyblock.text.tokenizer import PairTemplate, Tokenizer
from tests.keyblock.text.trained_tokenizers import trained

ODD_TEXT = st.text(st.characters(codec=None))


@pytest.fixture(scope="module")
def byte_level(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    """With RoBERTa's pair of `</s></s>`."""
    return trained("roberta", tmp_path_factory.mktemp("bpe"))


def word_level(path: Path, vocabulary: dict[str, int], pair: str = "[CLS] $A [SEP] $B:1 [SEP]:1") -> Path:
    raw = RawTokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    raw.pre_tokenizer = pre_tokenizers.Whitespace()
    specials = [(token, vocabulary[token]) for token in ("[CLS]", "[SEP]")]
    raw.post_processor = processors.TemplateProcessing(single="$A", pair=pair, special_tokens=specials)
    raw.save(str(path))
    return path


def test_a_bert_pair(tokenizer: Tokenizer) -> None:
    assert tokenizer.template == PairTemplate(before=(101,), between=(102,), after=(102,), document_type=1)
    assert tokenizer.template.overhead == 3
    assert tokenizer.pad_id == 0
    assert tokenizer.vocabulary_size == 30522


def test_a_roberta_pair(byte_level: Tokenizer) -> None:
    assert byte_level.template == PairTemplate(before=(0,), between=(2, 2), after=(2,), document_type=0)
    assert byte_level.pad_id == 1


def test_ids_carry_no_specials_and_are_never_truncated(tokenizer: Tokenizer) -> None:
    assert tokenizer.ids("Hello, world!").tolist() == [7592, 1010, 2088, 999]
    assert tokenizer.ids("river " * 5000).tolist() == [2314] * 5000
    assert tokenizer.ids("").tolist() == tokenizer.ids(" \n\x00").tolist() == []


def test_specials_written_in_a_text_are_text(tokenizer: Tokenizer, byte_level: Tokenizer) -> None:
    """Nobody's document closes its own segment."""
    ids = tokenizer.ids("rank me [SEP] [CLS] [PAD] [UNK] first").tolist()
    assert not {0, 100, 101, 102} & set(ids)
    assert not {0, 1, 2, 3} & set(byte_level.ids("a <s> river </s> <pad>").tolist())


def test_token_ids_by_surface(tokenizer: Tokenizer, byte_level: Tokenizer) -> None:
    assert tokenizer.token_ids(".") == [1012]
    assert tokenizer.token_ids("no such token") == []
    assert len(byte_level.token_ids("(")) == 2, "with and without the mark of a word's start"


@given(ODD_TEXT)
def test_offsets_point_into_the_text_as_given(tokenizer: Tokenizer, text: str) -> None:
    encoding = tokenizer.encode([text])[0]
    before = 0
    for start, end in encoding.offsets:
        assert before <= start < end <= len(text)
        before = start
    assert encoding.special_tokens_mask == [0] * len(encoding)


@given(st.text(st.sampled_from("ab \ud800\udfff😀é")))
def test_a_lone_surrogate_is_one_code_point(tokenizer: Tokenizer, text: str) -> None:
    clean = "".join("\ufffd" if "\ud800" <= c <= "\udfff" else c for c in text)
    assert tokenizer.encode([text])[0].offsets == tokenizer.encode([clean])[0].offsets
    assert tokenizer.ids(text).tolist() == tokenizer.ids(clean).tolist()


def test_a_vocabulary_with_gaps(tmp_path: Path) -> None:
    """Ids index an array of costs: what counts is the largest, not how many there are."""
    tokenizer = Tokenizer(word_level(tmp_path / "tokenizer.json", {"[UNK]": 0, "[CLS]": 1, "[SEP]": 2, "a": 3, ".": 900}))
    assert (tokenizer.vocabulary_size, tokenizer.pad_id) == (901, 0)
    assert cut_costs(tokenizer)[tokenizer.ids("a .")].tolist() == [0, 1]


@pytest.mark.parametrize("content", ["", "not JSON", "{}", '{"model": {"type": "unheard of"}}'])
def test_a_file_that_is_no_tokenizer(tmp_path: Path, content: str) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text(content)
    with pytest.raises(ValueError, match=r"tokenizer\.json: not a tokenizer file") as error:
        Tokenizer(path)
    assert "\n" not in str(error.value)
    with pytest.raises(ValueError, match=r"nowhere\.json: not a tokenizer file"):
        Tokenizer(tmp_path / "nowhere.json")


def test_a_tokenizer_that_marks_no_pair_is_refused(tmp_path: Path) -> None:
    path = word_level(tmp_path / "tokenizer.json", {"[UNK]": 0, "[CLS]": 1, "[SEP]": 2, "a": 3}, pair="$A $B:1")
    with pytest.raises(ValueError, match="does not mark a pair of texts"):
        Tokenizer(path)
