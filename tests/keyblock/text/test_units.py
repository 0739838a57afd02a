"""Where texts may be cut, by eye, and which tokenizers have units."""

import pytest
from tokenizers import AddedToken, Regex, models, normalizers, pre_tokenizers, processors

from keyblock.text.units import LETTER, MARK, OTHER, SOLID, SPACE, borders_of, character_sorts, ends_solid, last_cut
from tests.keyblock.text.trained_tokenizers import KINDS, backend

FIRST_ALONE = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(prepend_scheme="first")])
NUMBERS = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(r"\p{N}"), "isolated"), pre_tokenizers.ByteLevel(use_regex=False)])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("naïve words here", 11),
        ("naïve words  here", 5),  # two spaces are not cut apart, nor in front of
        ("naïve words\u200b here", 5),
        ("a की \u0301b", 1),  # the mark melts with the space
        ("naïve\nwords ", None),  # a line break is no place, nor is a space at the end
        ("", None),
    ],
)
def test_the_last_cut_by_eye(text: str, expected: int | None) -> None:
    assert last_cut(text, 1, len(text)) == expected


def test_sorts_of_characters() -> None:
    sorts = character_sorts()
    assert [sorts[ord(c)] for c in " \t\n\r"] == [SPACE] * 4
    assert all(sorts[ord(c)] == SOLID | LETTER for c in "aéßЖ中かกعא")
    assert all(sorts[ord(c)] == SOLID | OTHER for c in ".,!€。«")
    assert all(sorts[ord(c)] == MARK for c in "\u0301\u093e\u0e31")
    assert not any(sorts[ord(c)] for c in "\u00a0\u200b\u2581\u0e33\ufffd\ud800\x00\U0001f600")
    assert not any(sorts[ord(c)] for c in "\u00a8\u2017\ufdfa")  # a space is a part of what they become
    assert sorts[0xFB2A] == SOLID  # it becomes a letter and a mark


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        *(("a", True), ("a.", True), ("की", True), ("\u0301", False), (" \u0301", False), ("a\u200b", False)),
        *(("a" + "\u0301" * 7, True), ("a" + "\u0301" * 8, False)),  # a word with many marks is not taken for solid
    ],
)
def test_ends_solid(text: str, expected: bool) -> None:
    assert ends_solid(text, len(text)) is expected


@pytest.mark.parametrize("name", KINDS)
def test_tokenizers_with_units(name: str) -> None:
    found = borders_of(backend(name))
    assert found is not None
    assert found.breaks_join == (name in ("qwen2", "qwen3", "qwen3.5", "llama3"))
    assert found.words_end == (KINDS[name][0] == "bytes" and name != "qwen3")  # <think> would be cut
    assert found.spaces == (" " if name == "first" else " \t\n\r")


@pytest.mark.parametrize(
    ("name", "part", "value"),
    [
        ("bge-m3", "pre_tokenizer", pre_tokenizers.Metaspace(split=False)),  # tokens reach over spaces
        ("bge-m3", "pre_tokenizer", pre_tokenizers.Metaspace(replacement="_")),
        ("bge-m3", "pre_tokenizer", pre_tokenizers.Whitespace()),
        ("bge-m3", "pre_tokenizer", None),
        ("bge-m3", "normalizer", normalizers.Strip()),
        ("bge-m3", "normalizer", normalizers.Prepend("x")),
        ("bge-m3", "normalizer", normalizers.Replace(" a", "b")),
        ("xlm-roberta", "pre_tokenizer", FIRST_ALONE),
        ("roberta", "normalizer", normalizers.NFKC()),
        ("roberta", "pre_tokenizer", pre_tokenizers.ByteLevel(use_regex=False)),
        ("qwen2", "pre_tokenizer", NUMBERS),
        ("roberta", "model", models.BPE(dropout=0.1)),
        ("xlm-roberta", "model", models.WordLevel({"a": 0})),
        ("xlm-roberta", "model", models.Unigram([("a", -1.0)])),  # without a token for unknown characters: it refuses texts
        ("prefixed", "post_processor", processors.ByteLevel(trim_offsets=True)),  # of the first word it trims no space
        ("roberta", "pre_tokenizer", pre_tokenizers.ByteLevel(add_prefix_space=True)),
    ],
)  # fmt: skip
def test_other_tokenizers_have_none(name: str, part: str, value: object) -> None:
    changed = backend(name)
    setattr(changed, part, value)
    assert borders_of(changed) is None


@pytest.mark.parametrize(("token", "expected"), [("e.", False), ("e\u0301.", False), ("ab", True), (".", True), ("  ", True)])
def test_words_do_not_end_where_an_added_token_goes_on(token: str, expected: bool) -> None:
    changed = backend("modernbert")
    changed.add_tokens([AddedToken(token)])
    found = borders_of(changed)
    assert found is not None
    assert found.words_end is expected


@pytest.mark.parametrize(
    ("name", "token"),
    [
        ("xlm-roberta", AddedToken("<x>")),
        ("roberta", AddedToken("a b")),
        ("roberta", AddedToken("x", rstrip=True)),
        ("roberta", AddedToken("x", single_word=True)),
        ("prefixed", AddedToken("x")),  # a space is put in front of what follows it
    ],
)
def test_added_tokens_that_reach_into_the_next_unit(name: str, token: AddedToken) -> None:
    changed = backend(name)
    changed.add_tokens([token])
    assert borders_of(changed) is None
