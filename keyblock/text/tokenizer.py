"""The model's own tokenizer: token ids with character offsets, and the special tokens around a query and a document."""

import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tokenizers import Encoding
from tokenizers import Tokenizer as _Tokenizer

from keyblock.text.prompt import Prompt
from keyblock.text.scripts import UNSPACED

# the rare characters come first, and what stands before them last, so that a search is quick
_APART = re.compile(rf"[\u200b\u2060\ufeff](?<![{UNSPACED}].)(?![{UNSPACED}])")
_WIDE = re.compile(
    r"[\uff01-\uff5a](?:(?<=[\uff10-\uff19\uff21-\uff3a\uff41-\uff5a])|(?<=[\uff21-\uff3a\uff41-\uff5a][\uff01-\uff20])(?=\s|\Z))"
)
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
        """The number of special tokens of a pair (3 for BERT: the 3 of the KeyB paper's budget equation)."""
        return len(self.before) + len(self.between) + len(self.after)


class Tokenizer:
    """A Hugging Face `tokenizers` tokenizer without truncation or padding. Safe to use from several threads.

    Args:
        path: the tokenizer's file.
        prompt: the text around a query and a document, if the model does not read them as a pair.

    Raises ValueError if the file is not a tokenizer, or if it does not mark pairs and there is no prompt.
    """

    def __init__(self, path: str | Path, prompt: Prompt | None = None) -> None:
        try:
            self._tokenizer = _Tokenizer.from_file(str(path))
        except Exception as error:  # tokenizers raises bare Exception
            raise ValueError(f"{path}: not a tokenizer file ({error})") from None
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self._tokenizer.encode_special_tokens = True  # "[SEP]" in a text is three words, not the special token
        self.prompt = prompt
        self.template = PairTemplate((), (), prompt.tail(self._tokenizer), 0) if prompt else self._pair_template()

    def _pair_template(self) -> PairTemplate:
        pair = self._tokenizer.encode("a", "a")
        ids, of_text = pair.ids, [i for i, sequence in enumerate(pair.sequence_ids) if sequence is not None]
        second = next((i for i in of_text if pair.sequence_ids[i] == 1), None)
        ends = [i for i in of_text if pair.sequence_ids[i] == 0]
        if second is None or not ends or ends[-1] + 1 == second:
            raise ValueError(f"the tokenizer does not mark a pair of texts: it makes {pair.tokens} of 'a' and 'a'")
        before, between, after = ids[: of_text[0]], ids[ends[-1] + 1 : second], ids[of_text[-1] + 1 :]
        return PairTemplate(tuple(before), tuple(between), tuple(after), pair.type_ids[second])

    @property
    def backend(self) -> _Tokenizer:
        """The `tokenizers` object; callers must not change it."""
        return self._tokenizer

    @functools.cached_property
    def vocabulary_size(self) -> int:
        """One more than the largest id, added tokens included (a vocabulary may have gaps)."""
        return max(self._tokenizer.get_vocab().values()) + 1

    @property
    def pad_id(self) -> int:
        """The id that pads a batch. Padding is masked, so if the vocabulary has no padding token any id will do."""
        for token in ("[PAD]", "<pad>"):
            if (found := self._tokenizer.token_to_id(token)) is not None:
                return found
        return 0

    def beginning(self, text: str, n_tokens: int) -> str:
        """The text of the first `n_tokens` tokens; all of the text if it has no more."""
        (encoding,) = self.encode([text])
        return text if len(encoding.ids) <= n_tokens else text[: encoding.offsets[n_tokens - 1][1]]

    def token_ids(self, surface: str) -> list[int]:
        """The ids of all tokens that spell `surface`, with or without a mark for the start of a word."""
        found = (self._tokenizer.token_to_id(mark + surface) for mark in _WORD_START_MARKS)
        return [token for token in found if token is not None]

    def ids(self, text: str) -> NDArray[np.int32]:
        """Token ids of `text`, shape (n_tokens,), without special tokens."""
        return np.asarray(self.encode([text])[0].ids, dtype=np.int32)

    def encode(self, texts: Sequence[str]) -> list[Encoding]:
        """Encodings without special tokens; offsets count Unicode code points of the text as given.

        No tokenizer accepts lone surrogates, so each is read as U+FFFD: also one code point, so offsets still hold.
        """
        return self._tokenizer.encode_batch([without_surrogates(text) for text in texts], add_special_tokens=False)


def without_surrogates(text: str) -> str:
    """The text with U+FFFD for each lone surrogate, which no encoding can represent; all of KeyBlock reads texts this way."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return "".join("\ufffd" if "\ud800" <= c <= "\udfff" else c for c in text)
    return text


def respelled(text: str) -> str:
    """The text with plain spaces, and ASCII's letters and digits; as long as it was.

    Zero-width spaces become spaces, except beside scripts that write none, where they part words as meant. Letters and digits of
    full width become ASCII's.
    """
    return _WIDE.sub(lambda found: chr(ord(found[0]) - 0xFEE0), _APART.sub(" ", text))
