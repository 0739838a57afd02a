"""Reading texts by `keyblock_native`: the same as `keyblock.text.words`, without the interpreter's lock.

The compiled part knows no Unicode. What is said of each code point is asked of Python and of the tokenizer here, once; and what
stands with an odd character between two spaces (`keyblock.text.characters`) is read by the tokenizer and the analyzer themselves.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from keyblock import native
from keyblock.text import sentences
from keyblock.text.analyzer import STOP_WORDS, Analyzer
from keyblock.text.characters import CODES, Kind, character_kinds, word_characters
from keyblock.text.hashing import LONGEST
from keyblock.text.lexicon import in_batches, keys_of, tokens_of
from keyblock.text.page_reader import LONG_SHARE
from keyblock.text.read_words import ReadWords, Runs
from keyblock.text.reading import CutText, Terms, WholeSentences, terms_between
from keyblock.text.rows import Ints
from keyblock.text.scripts import ASSIGNED
from keyblock.text.tokenizer import Tokenizer


def compiled_reader(tokenizer: Tokenizer, analyzer: Analyzer) -> "CompiledReader | None":
    """The compiled reader; None where it is not installed, or knows nothing of such a tokenizer or analyzer."""
    if native.core is None or analyzer.config.name != "english":
        return None
    kinds = character_kinds(tokenizer.backend)
    return None if kinds is None else CompiledReader(tokenizer, analyzer, kinds)


class CompiledReader:
    """Reads texts as `keyblock.text.words.WordReader` does. Safe to use from several threads, which do not wait for each other.

    Args:
        tokenizer: reads word by word, and has these `kinds`.
        analyzer: the English one.
        kinds: what each code point is to the tokenizer, shape (CODES,).
    """

    def __init__(self, tokenizer: Tokenizer, analyzer: Analyzer, kinds: NDArray[np.uint8]) -> None:
        self._tokenizer, self._analyzer = tokenizer, analyzer
        characters, model, config = _characters(tokenizer, kinds), tokenizer.backend.model, analyzer.config
        self._reader = native.core.WordReader(
            characters,
            vocabulary=tokenizer.backend.get_vocab(with_added_tokens=False),
            prefix=model.continuing_subword_prefix,
            unknown=tokenizer.backend.token_to_id(model.unk_token),
            most=model.max_input_chars_per_word,
            stop_words=set(STOP_WORDS if config.stop_words else ()),
            stem=config.stem,
        )
        rules = (sentences.TITLES, sentences.NAMES_GO_ON, sentences.BEFORE_NUMBERS, sentences.BEGINNERS)
        self._sentences = native.core.Sentences(characters, *map(set, rules))

    def read(self, texts: Sequence[str]) -> list[ReadWords | None]:
        """See PageReader."""
        found = self._all(texts, self._reader.read)
        return [None if one is None else _reading(text, self._analyzer, *one) for text, one in zip(texts, found, strict=True)]

    def sentence_ends(self, text: str) -> Ints:
        """See `keyblock.text.sentences`."""
        found: Ints = self._sentences.ends(text)
        return found

    def cut(self, texts: Sequence[str], rule: WholeSentences) -> list[CutText | None]:
        """Each text in blocks; None for one that is left to the tokenizer."""
        segmenter = native.core.WholeSentences(self._sentences, rule.clauses.view(np.uint8), rule.block_tokens)
        found = self._all(texts, lambda some, odds: self._reader.cut(some, segmenter, odds))
        return [None if one is None else self._cut_text(text, *one) for text, one in zip(texts, found, strict=True)]

    def _all(self, texts: Sequence[str], work: Callable[[list[str], Any], list[Any]]) -> list[tuple[Any, ...] | None]:
        """What the compiled `work` makes of texts, once it is told what it does not know; None for texts that are mostly that."""
        found, asked = work(list(texts), native.core.Odds()), set[str]()
        while missing := {i: _spelled(texts[i], some) for i, some in enumerate(found) if isinstance(some, np.ndarray)}:
            again = [i for i, words in missing.items() if not _mostly_long(texts[i], words)]
            asked.update(word for i in again for word in missing[i])
            known = dict(zip(again, work([texts[i] for i in again], self._odds(asked)), strict=True))
            found = [known.get(i) if i in missing else one for i, one in enumerate(found)]
        return found

    def _odds(self, words: Iterable[str]) -> Any:
        """What the tokenizer and the analyzer make of such words."""
        if not (spelled := list(words)):
            return native.core.Odds()
        tokens, keys = in_batches(partial(tokens_of, self._tokenizer), spelled), keys_of(self._analyzer, spelled)
        return native.core.Odds(spelled, tokens.counts, *tokens.columns, keys.counts, *keys.columns)

    def _cut_text(
        self, text: str, ids: Ints, bounds: Ints, starts: Ints, ends: Ints, keys: NDArray[np.int64], key_bounds: Ints, asked: Ints
    ) -> CutText:
        """With the terms of blocks that only the analyzer can tell."""
        terms = Terms(keys, key_bounds)
        if len(asked):
            blocks = np.split(keys, key_bounds[1:-1])
            for i in asked.tolist():
                blocks[i] = terms_between(text, starts[i : i + 1], ends[i : i + 1], self._analyzer).keys
            terms = Terms(np.concatenate(blocks), np.cumsum([0, *map(len, blocks)], dtype=np.int32))
        return CutText(ids, bounds, starts, ends, terms)


def _reading(text: str, analyzer: Analyzer, ids: Ints, heads: Ints, tails: Ints, *runs: Any) -> ReadWords:
    return ReadWords(text, analyzer, ids, heads, tails, Runs(*runs))


def _spelled(text: str, places: Ints) -> list[str]:
    return [text[start:end] for start, end in places.tolist()]


def _mostly_long(text: str, words: Sequence[str]) -> bool:
    """Whether a text is left to the tokenizer, as `keyblock.text.page_reader` has it."""
    return sum(len(word) for word in words if len(word) > LONGEST) > LONG_SHARE * len(text)


def _characters(tokenizer: Tokenizer, kinds: NDArray[np.uint8]) -> Any:
    """What is said of each code point, as `keyblock_native` takes it."""
    kinds, normal, folded = kinds.copy(), np.arange(CODES, dtype=np.uint32), np.arange(CODES, dtype=np.uint32)
    lower, flags = _letters()
    read = np.flatnonzero((kinds == Kind.BREAK) | (kinds == Kind.LETTER)).tolist()
    for code in read:
        spelling = tokenizer.backend.normalizer.normalize_str(chr(code))
        if len(spelling) == 1:
            normal[code] = ord(spelling)
        else:
            kinds[code] = Kind.ODD
    codes = np.asarray(read, np.intp)
    small = lower[codes].astype(np.intp)  # no character that is read has several
    alike = (kinds[small] == kinds[codes]) & (normal[small] == normal[codes]) & (lower[small] == small)
    alike &= ((flags[small] ^ flags[codes]) & native.core.FLAGS["WORD"]) == 0
    folded[codes[alike]] = small[alike]
    return native.core.Characters(normal, folded, lower, flags | kinds)


@cache
def _letters() -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
    """The lower case of each code point, and its flags but for its Kind, shape (CODES,) each."""
    core = native.core
    flag = core.FLAGS
    lower, flags = np.arange(CODES, dtype=np.uint32), sentences.KINDS.astype(np.uint32) << native.core.SIGN_SHIFT
    flags |= np.where(word_characters(), flag["WORD"] | flag["NAME"], 0).astype(np.uint32)
    every = "".join(map(chr, ASSIGNED))
    small = [character.lower() for character in every]
    lower[: len(every)] = [ord(one) if len(one) == 1 else native.core.NONE for one in small]
    for name, of in (
        *(("WHITE", str.isspace), ("LOWER", str.islower), ("DIGIT", str.isdigit), ("DECIMAL", str.isdecimal)),
        *(("CAPITAL", str.isupper), ("CAPITAL", str.istitle)),
    ):
        flags[: len(every)] |= np.where(np.fromiter(map(of, every), np.bool_, len(every)), flag[name], 0).astype(np.uint32)
    for name, some in (
        *(("MARK", sentences.MARKS), ("FULL_STOP", sentences.FULL_STOPS), ("CLOSING", sentences.CLOSING.replace("\\", ""))),
        *(("OPENING", sentences.OPENING), ("LINE_BREAK", sentences.BREAKS)),
        *(("BULLET", sentences.BULLETS), ("NAME", sentences.IN_NAMES)),
    ):
        flags[list(map(ord, some))] |= flag[name]
    return lower, flags
