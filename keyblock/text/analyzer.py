"""From text to the terms that lexical selectors match, and how frequent each is.

Terms are words in one spelling, optionally stopped and stemmed. The KeyB authors' code intersects ``text.lower().split(" ")``, so
glued punctuation breaks matches; words of ``english`` are runs of letters, digits and underscores. The sentence-level paper gains
from Porter stemming and stop words: both are options. ``language`` has them for the languages of Snowball; ``universal`` has
neither, and works for any language or several.

Frequencies are those of the training collection: a request has no collection to count in, and its candidates all match the query.
They also tell which words of a query are likely typing errors.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, model_validator

from keyblock import native
from keyblock.text.languages import DOTLESS, LANGUAGES, Stemming, stop_words
from keyblock.text.universal import caseless, folded, pieces

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
_HEAD = 256  # the most characters of a word that are read before it gets one spelling
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


def term_key(term: str) -> int:
    """A stable signed 64-bit key of a term: the same in every process, so prepared documents can be stored."""
    return int.from_bytes(blake2b(term.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little", signed=True)


def _words(text: str) -> list[str]:
    """English words, lower-cased, without soft hyphens."""
    return _WORD.findall(text.lower().replace("\u00ad", ""))


def _rules(config: AnalyzerConfig) -> tuple[Callable[[str], Iterable[str]], Callable[[str], str]]:
    """The function that cuts a text into pieces, and the one that makes a term of a piece: empty for a stop word."""
    if config.name == "english":
        stop, stemming = STOP_WORDS if config.stop_words else frozenset(), Stemming("porter" if config.stem else None)
        return _words, lambda word: "" if word in stop else stemming.of(word[:_LONGEST_WORD])
    language = config.language or ""
    stop = stop_words(language) if config.stop_words else frozenset()
    stemming, spelling = Stemming(LANGUAGES[language] if config.stem else None), DOTLESS if language == "tr" else {}

    def term(piece: str) -> str:
        word = caseless(piece.translate(spelling)[:_HEAD])
        return "" if word in stop else folded(stemming.of(word))[:_LONGEST_WORD]

    return pieces, term


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


class DocumentFrequencies:
    """In how many documents of the training collection each term occurs: 0 for one that is not in the table. A bundle holds it.

    File format: UTF-8 lines, the first ``documents<TAB>N``, then ``term<TAB>df``, most frequent first.
    """

    def __init__(self, n_documents: int, frequencies: dict[str, int]) -> None:
        self.n_documents = n_documents
        self.frequencies = frequencies
        keys = map(term_key, frequencies) if native.core is None else native.core.term_keys(list(frequencies)).tolist()
        self._by_key = dict(zip(keys, frequencies.values(), strict=True))

    @classmethod
    def count(cls, texts: Iterable[str], analyzer: Analyzer, at_least: int = 2) -> "DocumentFrequencies":
        """Count over documents; terms in fewer than `at_least` documents are left out (they cost space and say little)."""
        counts: Counter[str] = Counter()
        n_documents = 0
        for text in texts:
            counts.update(list(dict.fromkeys(analyzer.terms(text))))  # a set has another order in each process
            n_documents += 1
        return cls(n_documents, {term: df for term, df in counts.most_common() if df >= at_least})

    def __len__(self) -> int:
        return len(self.frequencies)

    @property
    def known(self) -> NDArray[np.int64]:
        """Keys of the terms that occur, shape (n,)."""
        return np.asarray([key for key, df in self._by_key.items() if df], dtype=np.int64)

    def of(self, keys: NDArray[np.int64]) -> NDArray[np.float64]:
        """The document frequency of each term key, shape (n_terms,)."""
        return np.fromiter((self._by_key.get(key, 0) for key in keys.tolist()), dtype=np.float64, count=len(keys))

    def write(self, path: Path) -> None:
        """Write the table to `path`."""
        lines = [f"documents\t{self.n_documents}", *(f"{term}\t{df}" for term, df in self.frequencies.items())]
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> "DocumentFrequencies":
        """Read a table. Raises ValueError, which names the line, if the file is not a table."""
        try:
            head, *lines = path.read_text(encoding="utf-8").rstrip("\n").split("\n")
        except UnicodeDecodeError as error:
            raise ValueError(f"{path}: not UTF-8 text ({error.reason} at byte {error.start})") from None
        label, _, total = head.partition("\t")
        if label != "documents" or not total.isdecimal():
            raise ValueError(f"{path}: line 1 must be 'documents<TAB>N', not {head[:40]!r}")
        rows = [line.rpartition("\t") for line in lines]
        frequencies = {term: int(df) for term, _, df in rows if term and df.isdecimal()}
        if len(frequencies) < len(rows):  # else every line is a row
            for number, (term, _, df) in enumerate(rows, 2):
                if not term or not df.isdecimal():
                    raise ValueError(f"{path}: line {number} must be 'term<TAB>df', not {lines[number - 2][:40]!r}")
        return cls(int(total), frequencies)


LETTERS = "abcdefghijklmnopqrstuvwxyz"
SHORTEST, LONGEST = 5, 20  # letters of a word that is mended
LEAST = 5  # documents that have the word that was meant
MOST_MENDED = 8  # words of a query
_WORD_OF_LETTERS = re.compile(r"[^\W\d_]+")


class Spelling:
    """Mends typing errors in English queries.

    A word that neither the model nor the table knows becomes the most frequent known word that is one error away: one letter too
    many, too few, wrong, or two that changed places. Four of five errors are of these (Damerau 1964); the first letter stays.

    Args:
        frequencies: the table.
        analyzer: makes the table's terms.
        is_token: whether a word is a token of the model.
    """

    def __init__(self, frequencies: DocumentFrequencies, analyzer: Analyzer, is_token: Callable[[str], bool]) -> None:
        self._counts, self._terms, self._is_token = frequencies.frequencies, analyzer.terms, is_token

    def mended(self, text: str) -> dict[str, str]:
        """The words of `text` that are mended, in lower case, with the words that were likely meant.

        Nothing is mended where most words are unknown: such a text is in another language, or in none. A word inside the text
        with a capital is a name, unless all words have capitals.
        """
        first, *others = _WORD_OF_LETTERS.findall(text) or [""]
        words = list(dict.fromkeys(word.lower() for word in (first, *others)))
        names = {word.lower() for word in others if word[0].isupper()} if any(map(str.islower, others)) else set()
        unknown = [word for word in words if not self._knows(word)]
        if 2 * len(unknown) > len(words):
            return {}
        wrong = [word for word in unknown if word not in names and word.isascii() and SHORTEST <= len(word) <= LONGEST]
        meant = ((word, self._meant(word)) for word in wrong[:MOST_MENDED])
        return {word: other for word, other in meant if other}

    @staticmethod
    def replaced(text: str, mended: dict[str, str]) -> str:
        """The text with its mended words."""
        return _WORD_OF_LETTERS.sub(lambda found: mended.get(found[0].lower(), found[0]), text)

    def _knows(self, word: str) -> bool:
        return all(term in self._counts for term in self._terms(word)) or self._is_token(word)

    def _meant(self, word: str) -> str:
        near = (other for other in _one_error_away(word) if self._is_token(other))
        counted = ((max((self._counts.get(term, 0) for term in self._terms(other)), default=0), other) for other in near)
        count, best = max(counted, default=(0, ""))
        return best if count >= LEAST else ""


def _one_error_away(word: str) -> Iterator[str]:
    for place in range(1, len(word) + 1):
        before, after = word[:place], word[place:]
        yield from (before + letter + after for letter in LETTERS)
        if after:
            yield before + after[1:]
            yield from (before + letter + after[1:] for letter in LETTERS)
        if len(after) > 1:
            yield before + after[1] + after[0] + after[2:]
