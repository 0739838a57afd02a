"""Reads documents in the fastest way that their tokenizer allows."""

from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial

from keyblock.text.analyzer import Analyzer
from keyblock.text.characters import character_kinds, ends_word
from keyblock.text.parts import PART, Part, parts
from keyblock.text.reading import EncodedText, Reading
from keyblock.text.tokenizer import Tokenizer
from keyblock.text.words import ReadWords, WordReader, encoded, joined

Pause = Callable[[int], object]
"""Is called after each step of reading with the characters that were read in it; may raise, so that reading ends."""


class Reader:
    """Reads texts: any Unicode. Safe to use from several threads."""

    def __init__(self, tokenizer: Tokenizer, analyzer: Analyzer) -> None:
        self._tokenizer, self._analyzer = tokenizer, analyzer
        kinds = character_kinds(tokenizer.backend)
        self._ends_word = cache(partial(ends_word, tokenizer.backend))
        self._words = None if kinds is None else WordReader(tokenizer, analyzer, kinds)

    def read(self, texts: Sequence[str], pause: Pause = int) -> list[Reading]:
        """A reading of each text.

        Long texts are read in steps of bounded length where the tokenizer reads word by word; others in one step each.
        """
        short = [i for i, text in enumerate(texts) if self._words is None or len(text) <= PART]
        known = dict(zip(short, self._short([texts[i] for i in short]), strict=True))
        pause(sum(len(texts[i]) for i in short))
        return [known[i] if i in known else joined(text, list(self._long(text, pause))) for i, text in enumerate(texts)]

    def _short(self, texts: Sequence[str]) -> list[Reading]:
        known: dict[int, Reading] = {}
        if self._words is not None:
            known = {i: reading for i, reading in enumerate(self._words.read(texts)) if reading is not None}
        rest = [i for i in range(len(texts)) if i not in known]
        known |= zip(rest, self._encoded([texts[i] for i in rest]), strict=True)
        return [known[i] for i in range(len(texts))]

    def _encoded(self, texts: Sequence[str]) -> list[Reading]:
        encodings = self._tokenizer.encode(texts)
        return [EncodedText(text, encoding, self._analyzer) for text, encoding in zip(texts, encodings, strict=True)]

    def _long(self, text: str, pause: Pause) -> Iterator[ReadWords]:
        """The parts of a text, each read by itself."""
        for part in parts(text, self._ends_word):
            yield self._part(text, part)
            pause(part.end - part.start)

    def _part(self, text: str, part: Part) -> ReadWords:
        piece = text[part.start : part.end]
        if part.whole and self._words is not None:
            (reading,) = self._words.read([piece])
            if reading is not None:
                return reading
        (encoding,) = self._tokenizer.encode([piece])
        return encoded(piece, encoding, self._analyzer)
