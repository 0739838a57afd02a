"""Reads documents: by the compiled reader if there is one for their tokenizer, else in Python, with the same result."""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import accumulate, groupby, repeat

import numpy as np

from keyblock import native
from keyblock.text.analyzer import Analyzer
from keyblock.text.characters import character_kinds, ends_word, is_dropped, reads_words, remembered
from keyblock.text.compiled import CompiledReader, compiled_reader, joined
from keyblock.text.parts import LastCut, behind_words, nowhere, parts
from keyblock.text.readable import Oddity, oddities, without_data
from keyblock.text.reading import CutText, Reading, Rule, encoded
from keyblock.text.tokenizer import Tokenizer, respelled, without_surrogates
from keyblock.text.unbroken import long_word
from keyblock.text.units import borders_of

PART = 1 << 16  # the most characters that are read in one step
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

    Args:
        tokenizer: the model's tokenizer.
        analyzer: finds terms.
        compiled: whether to read by `keyblock_native` if that is installed; the result is the same.
    """

    def __init__(self, tokenizer: Tokenizer, analyzer: Analyzer, *, compiled: bool = True) -> None:
        self._tokenizer, self._analyzer = tokenizer, analyzer
        self._last_cut = _last_cut(tokenizer, analyzer)
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
        """A reading of each text.

        Long texts are read in steps of bounded length if it is known where their tokenizer may restart; else in one step.
        """
        short = iter(self._short([text for text in texts if len(text) <= PART], pause))
        return [next(short) if len(text) <= PART else self._long(text, pause) for text in texts]

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
        short = [i for i, text in enumerate(texts) if len(text) <= PART]
        known = dict(zip(short, self._compiled.cut([texts[i] for i in short], rule), strict=True))
        pause(sum(len(texts[i]) for i in short))
        return [known.get(i) for i in range(len(texts))]

    def _short(self, texts: Sequence[str], pause: Pause) -> list[Reading]:
        """Readings of short texts or of parts of a text, each read in one step."""
        found = [None] * len(texts) if self._compiled is None else self._compiled.read(texts)
        rest = [text for text, reading in zip(texts, found, strict=True) if reading is None]
        pause(sum(map(len, texts)) - sum(map(len, rest)))
        plain = iter(self._plain(rest, pause))
        return [next(plain) if reading is None else reading for reading in found]

    def _plain(self, texts: Sequence[str], pause: Pause) -> list[Reading]:
        """Readings by the tokenizer, about PART characters at a time, since its output takes many times the text's memory."""
        found = list[Reading]()
        for _, group in groupby(zip(accumulate(map(len, texts)), texts, strict=True), lambda one: one[0] // PART):
            batch = [text for _, text in group]
            found += map(encoded, batch, self._tokenizer.encode(batch), repeat(self._analyzer))
            pause(sum(map(len, batch)))
        return found

    def _long(self, text: str, pause: Pause) -> Reading:
        """The reading of a long text from separately read parts."""
        places = list(parts(text, self._last_cut, PART))
        readings = [self._part(text[part.start : part.end], pause) for part in places]
        return joined(text, readings, apart=all(part.at_space for part in places))

    def _part(self, text: str, pause: Pause) -> Reading:
        """The reading of a part of a long text, which is long itself if there is no place to cut it."""
        words = None
        if len(text) > PART and reads_words(self._tokenizer.backend):
            words = long_word(self._tokenizer.backend, without_surrogates(text), lambda: pause(0))
        if words is None:
            return self._short([text], pause)[0]
        pause(len(text))
        model = self._tokenizer.backend.model
        places = np.asarray(words, np.int32).reshape(-1, 2)
        ids = np.full(len(words), model.token_to_id(model.unk_token), np.int32)
        return Reading(text, self._analyzer, ids, places[:, 0].copy(), places[:, 1].copy())


def _last_cut(tokenizer: Tokenizer, analyzer: Analyzer) -> LastCut:
    """The function that finds where long texts may be cut for this tokenizer."""
    if character_kinds(tokenizer.backend) is not None:
        asked = (remembered(partial(ask, tokenizer.backend)) for ask in (ends_word, is_dropped))
        last_cut = behind_words(*asked)
    elif (borders := borders_of(tokenizer.backend)) is not None:
        last_cut = borders.last_cut
    else:
        return nowhere
    pieces = [SAMPLE[part.start : part.end] for part in parts(SAMPLE, last_cut, most=2)]
    readings = list(map(encoded, pieces, tokenizer.encode(pieces), repeat(analyzer)))
    return last_cut if _agrees(joined(SAMPLE, readings, apart=False), tokenizer) else nowhere


def _compiled(tokenizer: Tokenizer, analyzer: Analyzer) -> CompiledReader | None:
    """The compiled reader for this tokenizer and this analyzer, if there is one; else None."""
    reader = compiled_reader(tokenizer, analyzer)
    return reader if reader is not None and _agrees(reader.read([SAMPLE])[0], tokenizer) else None


def _agrees(found: Reading | None, tokenizer: Tokenizer) -> bool:
    """Whether SAMPLE is read as the tokenizer reads it: a final check for an unknown tokenizer."""
    (expected,) = tokenizer.encode([SAMPLE])
    places = np.asarray(expected.offsets, dtype=np.int32).reshape(-1, 2).T
    return found is not None and np.array_equal(found.ids, expected.ids) and np.array_equal(np.stack(found.places()), places)
