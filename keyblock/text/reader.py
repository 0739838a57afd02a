"""Reads documents: by the compiled reader if there is one for their tokenizer, else in Python, with the same result."""

from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, groupby

import numpy as np

from keyblock import native
from keyblock.text.analyzer import Analyzer
from keyblock.text.compiled import CompiledReader, compiled_reader
from keyblock.text.readable import Oddity, oddities, without_data
from keyblock.text.reading import CutText, Reading, Rule, encoded, joined
from keyblock.text.tokenizer import Tokenizer, respelled
from keyblock.text.units import last_cut

PART = 1 << 16  # the most characters that the tokenizer reads in one step: its output takes 300 bytes for each
Pause = Callable[[int], object]
"""Is called after each step of reading with the number of characters read in it; may raise to end the reading."""

SAMPLE = "\n".join(
    (
        ' Bridges, naïve  ones: "don\'t" cost 1,250.50€ (in 2024)…\n\n# Heading\t a_b-c@d.org\r\n- Straße: Ωραία ΠΟΛΗ; Она идёт!',
        "    if x[i] != y: # no\n العربية «نص» 123,4 हिन्दी के शब्द। भाषा ภาษาไทย คำ 東京都は 日本。 中文 句子 한국어 문장 tiếng",
        "Việt\u00a0e\u0301té ",
    )
)


class Reader:
    """Reads texts: any Unicode. Safe to use from several threads.

    Without a compiled reader a long text is read in parts, which may change the tokens where two parts meet: see `parts_of`.

    Args:
        tokenizer: the model's tokenizer.
        analyzer: finds terms.
        compiled: whether to read by `keyblock_native` if that is installed; the result is the same.
    """

    def __init__(self, tokenizer: Tokenizer, analyzer: Analyzer, *, compiled: bool = True) -> None:
        self._tokenizer = tokenizer
        self._compiled = _compiled(tokenizer, analyzer) if compiled else None
        self._oddities = native.core.oddities if compiled and native.core is not None else oddities

    def readable(self, texts: Sequence[str], pause: Pause = int) -> Sequence[str]:
        """The texts as a person reads them, each as long as it was: see `keyblock.text.readable`."""
        if not (odd := [Oddity(*one) for one in self._oddities(texts)]):
            return texts
        found = list(texts)
        for number, rows, spelled in odd:
            text, pieces = respelled(texts[number]) if spelled else texts[number], list[str]()
            for piece in without_data(text, rows):
                pieces.append(piece)
                pause(0)
            found[number] = "".join(pieces)
        return found

    def read(self, texts: Sequence[str], pause: Pause = int) -> list[Reading]:
        """A reading of each text."""
        found: list[Reading | None] = [None] * len(texts)
        if self._compiled is not None:
            found = [reading for batch in batches(texts, pause) for reading in self._compiled.read(batch)]
        plain = iter(self._plain([text for text, reading in zip(texts, found, strict=True) if reading is None], pause))
        return [reading or next(plain) for reading in found]

    def count(self, text: str) -> int:
        """The tokens of a text as a person reads it."""
        return len(self.read(self.readable([text]))[0].ids)

    def cut(self, texts: Sequence[str], rule: Rule | None, pause: Pause = int) -> list[CutText | None]:
        """Texts in blocks, read and cut in one step; None for a text that has to be read first, and then cut.

        Args:
            texts: any Unicode.
            rule: how to cut them; none: in a way that no compiled reader supports.
            pause: see `Pause`.
        """
        if self._compiled is None or rule is None:
            return [None] * len(texts)
        return [found for batch in batches(texts, pause) for found in self._compiled.cut(batch, rule, pause)]

    def _plain(self, texts: Sequence[str], pause: Pause) -> list[Reading]:
        """Readings by the tokenizer."""
        parts = [list(parts_of(text)) for text in texts]
        every = [part for of_text in parts for part in of_text]
        read = [encoded(*one) for batch in batches(every, pause) for one in zip(batch, self._tokenizer.encode(batch), strict=True)]
        in_order = iter(read)
        return [joined([next(in_order) for _ in of_text]) for of_text in parts]


def batches(texts: Sequence[str], pause: Pause) -> Iterator[list[str]]:
    """The texts in batches of about PART characters, or of one text; after the work on each batch comes a pause."""
    for _, group in groupby(zip(accumulate(map(len, texts)), texts, strict=True), lambda one: one[0] // PART):
        batch = [text for _, text in group]
        yield batch
        pause(sum(map(len, batch)))


def parts_of(text: str) -> Iterator[str]:
    """The text in parts of at most PART characters.

    A part ends before a space between two words, where known tokenizers may start anew (`keyblock.text.units`), or anywhere if
    there is no such space.
    """
    start = 0
    while len(text) - start > PART:
        end = last_cut(text, start + 1, start + PART) or start + PART
        yield text[start:end]
        start = end
    yield text[start:]


def _compiled(tokenizer: Tokenizer, analyzer: Analyzer) -> CompiledReader | None:
    """The compiled reader, if there is one that reads SAMPLE as the tokenizer does: a final check for an unknown tokenizer."""
    if (reader := compiled_reader(tokenizer, analyzer)) is None or (found := reader.read([SAMPLE])[0]) is None:
        return None
    expected = encoded(SAMPLE, *tokenizer.encode([SAMPLE]))
    return reader if all(map(np.array_equal, found[1:], expected[1:])) else None
