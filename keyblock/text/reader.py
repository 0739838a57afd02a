"""Reads documents in the fastest way that their tokenizer allows."""

from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial

import numpy as np

from keyblock.text.analyzer import Analyzer
from keyblock.text.characters import character_kinds, ends_word
from keyblock.text.compiled import CompiledReader, compiled_reader
from keyblock.text.page_reader import PageReader
from keyblock.text.parts import PART, LastCut, Part, behind_words, parts
from keyblock.text.read_words import ReadWords, encoded, joined
from keyblock.text.reading import CutText, EncodedText, Reading, WholeSentences
from keyblock.text.tokenizer import Tokenizer
from keyblock.text.unit_reader import UnitReader
from keyblock.text.units import borders_of
from keyblock.text.words import WordReader

Pause = Callable[[int], object]
"""Is called after each step of reading with the characters that were read in it; may raise, so that reading ends."""

SAMPLE = "\n".join(
    (
        ' Bridges, naïve  ones: "don\'t" cost 1,250.50€ (in 2024)…\n\n# Heading\t a_b-c@d.org\r\n- Straße: Ωραία ΠΟΛΗ; Она идёт!',
        "    if x[i] != y: # no\n العربية «نص» 123,4 हिन्दी के शब्द। भाषा ภาษาไทย คำ 東京都は 日本。 中文 句子 한국어 문장 tiếng",
        "Việt\u00a0e\u0301té ",
    )
)


class Reader:
    """Reads texts: any Unicode. Safe to use from several threads.

    Args:
        tokenizer: the model's.
        analyzer: finds terms.
        compiled: whether to read by `keyblock_native` where that is installed; it gives the same.
    """

    def __init__(self, tokenizer: Tokenizer, analyzer: Analyzer, *, compiled: bool = True) -> None:
        self._tokenizer, self._analyzer = tokenizer, analyzer
        self._words, self._last_cut = _fast_way(tokenizer, analyzer)
        self._compiled = _compiled_way(tokenizer, analyzer) if compiled else None

    def read(self, texts: Sequence[str], pause: Pause = int) -> list[Reading]:
        """A reading of each text.

        Long texts are read in steps of bounded length where the tokenizer reads word by word or unit by unit; others in one step.
        """
        short = [i for i, text in enumerate(texts) if self._words is None or len(text) <= PART]
        known = dict(zip(short, self._short([texts[i] for i in short]), strict=True))
        pause(sum(len(texts[i]) for i in short))
        return [known[i] if i in known else joined(text, list(self._long(text, pause))) for i, text in enumerate(texts)]

    def cut(self, texts: Sequence[str], rule: WholeSentences | None, pause: Pause = int) -> list[CutText | None]:
        """Texts in blocks, read and cut at once; None for one that has to be read, and then cut.

        Args:
            texts: any Unicode.
            rule: how they are cut; none: in a way that no compiled reader knows.
            pause: see `read`.
        """
        if self._compiled is None or rule is None:
            return [None] * len(texts)
        short = [i for i, text in enumerate(texts) if len(text) <= PART]
        known = dict(zip(short, self._compiled.cut([texts[i] for i in short], rule), strict=True))
        pause(sum(len(texts[i]) for i in short))
        return [known.get(i) for i in range(len(texts))]

    def _short(self, texts: Sequence[str]) -> list[Reading]:
        known: dict[int, Reading] = {}
        if self._words is not None:
            known = {i: reading for i, reading in enumerate((self._compiled or self._words).read(texts)) if reading is not None}
        rest = [i for i in range(len(texts)) if i not in known]
        known |= zip(rest, self._encoded([texts[i] for i in rest]), strict=True)
        return [known[i] for i in range(len(texts))]

    def _encoded(self, texts: Sequence[str]) -> list[Reading]:
        encodings = self._tokenizer.encode(texts)
        if self._words is not None:
            return list(self._words.encoded(texts, encodings)) if texts else []
        return [EncodedText(text, encoding, self._analyzer) for text, encoding in zip(texts, encodings, strict=True)]

    def _long(self, text: str, pause: Pause) -> Iterator[ReadWords]:
        """The parts of a text, each read by itself."""
        for part in parts(text, self._last_cut):
            yield self._part(text, part)
            pause(part.end - part.start)

    def _part(self, text: str, part: Part) -> ReadWords:
        piece = text[part.start : part.end]
        whole = self._words if part.whole else None
        reading = None if whole is None else (self._compiled or whole).read([piece])[0]
        if reading is not None:
            return reading
        encodings = self._tokenizer.encode([piece])
        if whole is not None:
            return whole.encoded([piece], encodings)[0]
        (encoding,) = encodings
        return encoded(piece, encoding, self._analyzer)


def _fast_way(tokenizer: Tokenizer, analyzer: Analyzer) -> tuple[PageReader | None, LastCut]:
    """What looks up the words of texts for this tokenizer, if anything does, and where long texts are cut for it."""
    kinds = character_kinds(tokenizer.backend)
    if kinds is not None:
        return WordReader(tokenizer, analyzer, kinds), behind_words(cache(partial(ends_word, tokenizer.backend)))
    borders = borders_of(tokenizer.backend)
    if borders is None:
        return None, lambda _text, _low, _high: None
    reader = UnitReader(tokenizer, analyzer, borders)
    return (reader if _agrees(reader, tokenizer) else None), borders.last_cut


def _compiled_way(tokenizer: Tokenizer, analyzer: Analyzer) -> CompiledReader | None:
    """The compiled reader, where there is one for this tokenizer and this analyzer."""
    reader = compiled_reader(tokenizer, analyzer)
    return reader if reader is not None and _agrees(reader, tokenizer) else None


def _agrees(reader: PageReader | CompiledReader, tokenizer: Tokenizer) -> bool:
    """Whether a text in many scripts is read as the tokenizer reads it: a last look at one that nobody here has met."""
    (found,), (expected,) = reader.read([SAMPLE]), tokenizer.encode([SAMPLE])
    places = np.asarray(expected.offsets, dtype=np.int32).reshape(-1, 2).T
    return found is not None and np.array_equal(found.ids, expected.ids) and np.array_equal(np.stack(found.places()), places)
