"""From text to the terms that lexical selectors match: lower-cased words, optionally stopped and stemmed.

The KeyB authors' code intersects ``text.lower().split(" ")``, so glued punctuation breaks matches; words here are runs of
letters, digits and underscores. The sentence-level paper gains from Porter stemming and stop words: both are options.
"""

import re
import threading
from collections.abc import Iterable
from functools import cache
from hashlib import blake2b
from typing import Any

import Stemmer
from pydantic import BaseModel, ConfigDict, Field

# The Snowball project's English stop words, without those that mean something as a term of their own.
STOP_WORDS = frozenset(
    """i me my myself we our ours ourselves you your yours yourself yourselves he him his himself she her hers herself it its
    itself they them their theirs themselves what which who whom this that these those am is are was were be been being have
    has had having do does did doing would should could ought a an the and but if or because as until while of at by for with
    about against between into through during before after above below to from up down in out on off over under again further
    then once here there when where why how all any both each few more most other some such no nor not only own same so than
    too very s t can will just don now""".split()
)
_WORD = re.compile(r"\w+")
_MEMO_WORDS = 1_000_000  # a word's memo entry is about 150 bytes; natural text has far fewer distinct words
_LONGEST_WORD = 64  # longer runs are data, not words: matched by their head, so that no memo entry grows with the input


class AnalyzerConfig(BaseModel):
    """How words become terms."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    stem: bool = Field(True, description="reduce words by the English Porter stemmer")
    stop_words: bool = Field(True, description="drop English stop words")


@cache
def _stop_terms(enabled: bool) -> frozenset[str]:
    return STOP_WORDS if enabled else frozenset()


def term_key(term: str) -> int:
    """A stable signed 64-bit key of a term: the same in every process, so prepared documents can be stored."""
    return int.from_bytes(blake2b(term.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little", signed=True)


class Analyzer:
    """Turns text into term keys. Safe to use from several threads.

    >>> Analyzer(AnalyzerConfig()).terms("The Rivers, running!")
    ['river', 'run']
    """

    def __init__(self, config: AnalyzerConfig) -> None:
        self.config = config
        self._stop = _stop_terms(config.stop_words)
        self._memo: dict[str, int] = {}
        self._local = threading.local()  # a Stemmer keeps state between calls: one a thread

    def _stem(self, word: str) -> str:
        stemmer: Any = getattr(self._local, "stemmer", None)
        if stemmer is None:
            stemmer = self._local.stemmer = Stemmer.Stemmer("porter", 0)
        return str(stemmer.stemWord(word))

    def _term(self, word: str) -> str:
        if word in self._stop:
            return ""
        word = word[:_LONGEST_WORD]
        return self._stem(word) if self.config.stem else word

    def terms(self, text: str) -> list[str]:
        """The terms of `text` in order, stop words dropped."""
        return [term for word in _WORD.findall(text.lower()) if (term := self._term(word))]

    def keys(self, text: str) -> list[int]:
        """The keys of `terms(text)`, in order; what is compared when blocks are scored."""
        memo, found = self._memo, []
        for word in _WORD.findall(text.lower()):
            key = memo.get(word)
            if key is None:
                key = self._remember(word)
            if key:
                found.append(key)
        return found

    def _remember(self, word: str) -> int:
        term = self._term(word)
        key = term_key(term) if term else 0
        if len(self._memo) >= _MEMO_WORDS:
            self._memo.clear()
        if len(word) <= _LONGEST_WORD:
            self._memo[word] = key
        return key


def unique_in_order(keys: Iterable[int]) -> list[int]:
    """The distinct keys in the order of their first appearance."""
    return list(dict.fromkeys(keys))
