"""Reads documents in the fastest way that their tokenizer allows."""

from collections.abc import Sequence

from keyblock.text.analyzer import Analyzer
from keyblock.text.characters import character_kinds
from keyblock.text.reading import EncodedText, Reading
from keyblock.text.tokenizer import Tokenizer
from keyblock.text.words import WordReader


class Reader:
    """Reads texts: any Unicode. Safe to use from several threads."""

    def __init__(self, tokenizer: Tokenizer, analyzer: Analyzer) -> None:
        self._tokenizer, self._analyzer = tokenizer, analyzer
        kinds = character_kinds(tokenizer.backend)
        self._words = None if kinds is None else WordReader(tokenizer, analyzer, kinds)

    def read(self, texts: Sequence[str]) -> list[Reading]:
        """A reading of each text."""
        known: dict[int, Reading] = {}
        if self._words is not None:
            known = {i: reading for i, reading in enumerate(self._words.read(texts)) if reading is not None}
        rest = [i for i in range(len(texts)) if i not in known]
        known |= zip(rest, self._encoded([texts[i] for i in rest]), strict=True)
        return [known[i] for i in range(len(texts))]

    def _encoded(self, texts: Sequence[str]) -> list[Reading]:
        encodings = self._tokenizer.encode(texts)
        return [EncodedText(text, encoding, self._analyzer) for text, encoding in zip(texts, encodings, strict=True)]
