"""From text to the terms that lexical selectors match: words in one spelling, optionally stopped and stemmed.

The KeyB authors' code intersects ``text.lower().split(" ")``, so glued punctuation breaks matches; words of ``english`` are runs of
letters, digits and underscores. The sentence-level paper gains from Porter stemming and stop words: both are options. ``language``
has them for the languages of Snowball; ``universal`` has neither, and works for any language or several.
"""

import re
import threading
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from hashlib import blake2b
from typing import Any, Literal, Self

import Stemmer
from pydantic import BaseModel, ConfigDict, Field, model_validator

from keyblock.text.languages import LANGUAGES, Stems
from keyblock.text.universal import pieces, spelling

# The Snowball project's English stop words, without those that are meaningful terms.
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
_LONGEST_WORD = 64  # longer runs are data, not words: cut to this length, so that no memo entry grows with the input


class AnalyzerConfig(BaseModel):
    """How words become terms. ``{"language": "de"}`` is short for ``{"name": "language", "language": "de"}``."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    name: Literal["english", "language", "universal"] = Field(
        "english",
        description="english: as in the training of the embedded model; language: one of Snowball's languages; universal: any "
        "language, by words or, in scripts without spaces, by pairs of characters",
    )
    language: str | None = Field(None, description="ISO 639-1 code, for the name `language`")
    stem: bool = Field(True, description="reduce words by the language's stemmer (english: Porter's); never for universal")
    stop_words: bool = Field(True, description="drop the language's stop words; never for universal")

    @model_validator(mode="before")
    @classmethod
    def _filled_in(cls, given: Any) -> Any:
        if not isinstance(given, Mapping):
            return given
        name = given.get("name", "english" if given.get("language") is None else "language")
        usual = {"stem": False, "stop_words": False} if name == "universal" else {}
        return {**usual, **given, "name": name}

    @model_validator(mode="after")
    def _of_a_language(self) -> Self:
        if self.name == "language" and self.language not in LANGUAGES:
            raise ValueError(f"no stemmer for language {self.language!r}; known: {', '.join(LANGUAGES)}; or take name: universal")
        if self.name != "language" and self.language is not None:
            raise ValueError(f"language {self.language!r} needs the name 'language', not {self.name!r}")
        if self.name == "universal" and (self.stem or self.stop_words):
            raise ValueError("universal knows no stems and no stop words: leave out stem and stop_words, or name a language")
        return self


@cache
def _stop_terms(enabled: bool) -> frozenset[str]:
    return STOP_WORDS if enabled else frozenset()


def term_key(term: str) -> int:
    """A stable signed 64-bit key of a term: the same in every process, so prepared documents can be stored."""
    return int.from_bytes(blake2b(term.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little", signed=True)


class English:
    """Words lower-cased, without English stop words, by Porter's stems."""

    def __init__(self, config: AnalyzerConfig) -> None:
        self._stop, self._stems = _stop_terms(config.stop_words), config.stem
        self._local = threading.local()  # a Stemmer keeps state between calls: one for each thread

    @staticmethod
    def pieces(text: str) -> list[str]:
        """The words, lower-cased, without soft hyphens."""
        return _WORD.findall(text.lower().replace("\u00ad", ""))

    def term(self, word: str) -> str:
        """The term of a word; empty for a stop word."""
        if word in self._stop:
            return ""
        word = word[:_LONGEST_WORD]
        return self._stem(word) if self._stems else word

    def _stem(self, word: str) -> str:
        stemmer: Any = getattr(self._local, "stemmer", None)
        if stemmer is None:
            stemmer = self._local.stemmer = Stemmer.Stemmer("porter", 0)
        return str(stemmer.stemWord(word))


def _rules(config: AnalyzerConfig) -> tuple[Callable[[str], Iterable[str]], Callable[[str], str]]:
    """The function that cuts a text into pieces, and the one that makes a term of a piece."""
    if config.name == "english":
        english = English(config)
        return english.pieces, english.term
    if config.language is None:
        return pieces, lambda piece: spelling(piece)[:_LONGEST_WORD]
    stems = Stems(config.language, stem=config.stem, stop=config.stop_words)
    return pieces, lambda piece: stems(piece)[:_LONGEST_WORD]


class Analyzer:
    """Turns text into term keys. Safe to use from several threads.

    >>> Analyzer(AnalyzerConfig()).terms("The Rivers, running!")
    ['river', 'run']
    >>> Analyzer(AnalyzerConfig(language="de")).terms("Die Flüsse")
    ['fluss']
    >>> Analyzer(AnalyzerConfig(name="universal")).terms("東京都 in Ελλάδα")
    ['東京', '京都', 'in', 'ελλαδα']
    """

    def __init__(self, config: AnalyzerConfig) -> None:
        self.config = config
        self._pieces, self._term = _rules(config)
        self._memo: dict[str, int] = {}

    def terms(self, text: str) -> list[str]:
        """The terms of `text` in order, stop words dropped."""
        return [term for piece in self._pieces(text) if (term := self._term(piece))]

    def keys(self, text: str) -> list[int]:
        """The keys of `terms(text)`, in order; scoring of blocks compares these."""
        memo, found = self._memo, []
        for piece in self._pieces(text):
            key = memo.get(piece)
            if key is None:
                key = self._remember(piece)
            if key:
                found.append(key)
        return found

    def _remember(self, piece: str) -> int:
        term = self._term(piece)
        key = term_key(term) if term else 0
        if len(self._memo) >= _MEMO_WORDS:
            self._memo.clear()
        if len(piece) <= _LONGEST_WORD:
            self._memo[piece] = key
        return key


def unique_in_order(keys: Iterable[int]) -> list[int]:
    """The distinct keys in the order of their first appearance."""
    return list(dict.fromkeys(keys))
