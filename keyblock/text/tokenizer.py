"""The model's own tokenizer: token ids with character offsets, and the special tokens around a query and a document."""

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tokenizers import Encoding
from tokenizers import Tokenizer as _Tokenizer

_WORD_START_MARKS = ("", "Ġ", "▁")  # WordPiece, byte-level BPE, SentencePiece


@dataclass(frozen=True, slots=True)
class PairTemplate:
    """Special tokens of a pair, ``before + query + between + document + after``, and the type id of the second segment."""

    before: tuple[int, ...]
    between: tuple[int, ...]
    after: tuple[int, ...]
    document_type: int

    @property
    def overhead(self) -> int:
        """How many special tokens a pair costs (3 for BERT: the 3 of the KeyB paper's budget equation)."""
        return len(self.before) + len(self.between) + len(self.after)


class Tokenizer:
    """A Hugging Face `tokenizers` tokenizer without truncation or padding. Safe to use from several threads.

    Raises ValueError when the file is not a tokenizer that marks pairs.
    """

    def __init__(self, path: str | Path) -> None:
        try:
            self._tokenizer = _Tokenizer.from_file(str(path))
        except Exception as error:  # tokenizers raises bare Exception
            raise ValueError(f"{path}: not a tokenizer file ({error})") from None
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self._tokenizer.encode_special_tokens = True  # "[SEP]" in a text is three words, not its end
        self.template = self._pair_template()

    def _pair_template(self) -> PairTemplate:
        pair = self._tokenizer.encode("a", "a")
        words = [i for i, special in enumerate(pair.special_tokens_mask) if not special]
        if len(words) != 2 or words[0] + 1 == words[1]:
            raise ValueError(f"the tokenizer does not mark a pair of texts: it makes {pair.tokens} of 'a' and 'a'")
        first, second = words
        ids = pair.ids
        return PairTemplate(tuple(ids[:first]), tuple(ids[first + 1 : second]), tuple(ids[second + 1 :]), pair.type_ids[second])

    @property
    def backend(self) -> _Tokenizer:
        """The tokenizer itself; not to be changed."""
        return self._tokenizer

    @functools.cached_property
    def vocabulary_size(self) -> int:
        """One more than the largest id, added tokens included (a vocabulary may have gaps)."""
        return max(self._tokenizer.get_vocab().values()) + 1

    @property
    def pad_id(self) -> int:
        """The id that fills a batch; masked, so any id would do where the vocabulary names none."""
        for token in ("[PAD]", "<pad>"):
            if (found := self._tokenizer.token_to_id(token)) is not None:
                return found
        return 0

    def token_ids(self, surface: str) -> list[int]:
        """Every id whose token reads `surface`, with or without a mark for a word's start."""
        found = (self._tokenizer.token_to_id(mark + surface) for mark in _WORD_START_MARKS)
        return [token for token in found if token is not None]

    def ids(self, text: str) -> NDArray[np.int32]:
        """Token ids of `text`, shape (n_tokens,), without special tokens."""
        return np.asarray(self.encode([text])[0].ids, dtype=np.int32)

    def encode(self, texts: Sequence[str]) -> list[Encoding]:
        """Encodings without special tokens; offsets count Unicode code points of the text as given.

        Lone surrogates, which no tokenizer takes, are read as U+FFFD: one code point each, so offsets still hold.
        """
        return self._tokenizer.encode_batch([_without_surrogates(text) for text in texts], add_special_tokens=False)


def _without_surrogates(text: str) -> str:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return "".join("\ufffd" if "\ud800" <= c <= "\udfff" else c for c in text)
    return text
