"""Lessons: a query with documents that answer it and documents that only look as if.

Each lesson is about one thing that a ranker must tell apart. Every draw comes from a generator seeded by (seed, query).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import filterfalse
from typing import NamedTuple

import numpy as np

from training.data.types import Span
from training.derive.answers import (
    Near,
    Replacement,
    answering_sentence,
    exchanged,
    in_other_words,
    negated,
    shared_count,
    split,
)
from training.derive.drawing import by_share, one_of, some_of
from training.derive.echoes import echo
from training.derive.queries import typed
from training.derive.wordnet import WordNet

WINDOW = 8_000  # characters around the gold passage that stand for the whole of a long document
NEGATIVES = 12  # documents of a lesson that do not answer
ASKS_FOR_THE_TRUE = ("who", "which", "what", "where", "when")  # a text that denies what such a question asks for does not answer it
_AND = ("and", "and also", "? And", "? Besides,")  # between two questions
PIECE = (80, 900)  # characters of a paragraph that serves as filler or as a passage


class Text(NamedTuple):
    """A derived document.

    Attributes:
        title: its title.
        text: its text.
        gold: what of its text answers, as (start, end); empty for a document that does not answer.
    """

    title: str
    text: str
    gold: tuple[tuple[int, int], ...] = ()


class Source(NamedTuple):
    """A query with its gold passage.

    Attributes:
        query: the query.
        title: the document's title.
        document: the document's text.
        gold: the passage's place in it.
        beside: another query with a gold passage elsewhere in the document, if there is one: its text and its passage.
        others: the query's other gold passages, in any document.
    """

    query: str
    title: str
    document: str
    gold: Span
    beside: tuple[str, str] | None = None
    others: tuple[str, ...] = ()

    @property
    def passage(self) -> str:
        """The gold passage."""
        return self.document[self.gold.start : self.gold.end].strip()

    def answered_by(self) -> Callable[[str], bool]:
        """Tells whether a text holds a sentence of a gold passage."""
        answering = [part for passage in (self.passage, *self.others) for part in split(passage)]
        return lambda text: any(part in text for part in answering)


class Lesson(NamedTuple):
    """A derived query with its documents."""

    query: str
    answers: list[Text]
    others: list[Text]


@dataclass(frozen=True)
class Teacher:
    """Makes lessons of a collection's queries.

    Attributes:
        passages: paragraphs of the collection's documents, for filler and for passages that answer other questions.
        questions: queries and headings of the collection.
        replacements: words for exchanged answers.
        near: finds the sentence of a passage that answers.
        wordnet: gives synonyms; None: shared words are left out.
    """

    passages: Sequence[str]
    questions: Sequence[str]
    replacements: Replacement
    near: Near
    wordnet: WordNet | None = None

    def lesson(self, source: Source, rng: np.random.Generator) -> Lesson | None:
        """A lesson of a random kind; None if this query's passage has nothing of it."""
        made = by_share(LESSONS, rng)(self, source, rng)
        if made is None:
            return None
        others = [*made.others, *self._plain(source, NEGATIVES - len(made.others), rng)]
        return Lesson(typed(made.query, rng), made.answers, [text for text in others if text.text.strip()])

    def answer(self, source: Source) -> str:
        """The sentence of the gold passage that answers, or the passage."""
        return answering_sentence(source.query, source.passage, self.near)

    def echo(self, source: Source, rng: np.random.Generator) -> str:
        """A text that repeats the query and does not answer it."""
        return echo(source.query, self.questions, rng)

    def _filler(self, source: Source, most: int, rng: np.random.Generator) -> list[str]:
        drawn = [self.passages[place] for place in rng.integers(len(self.passages), size=int(rng.integers(0, most + 1)))]
        return list(filterfalse(source.answered_by(), drawn))

    def buried(
        self, source: Source, answer: str, beside: Sequence[str], rng: np.random.Generator, most: int = 8, marked: str = ""
    ) -> Text:
        """The answer at any place among filler and the texts beside it; `marked` is the part of it that answers: all by default."""
        parts = [*self._filler(source, most, rng), *beside]
        parts = [parts[place] for place in rng.permutation(len(parts))]
        place = int(rng.integers(len(parts) + 1))
        before = "".join(f"{part}\n\n" for part in parts[:place])
        after = "".join(f"\n\n{part}" for part in parts[place:])
        return Text(_title(source, rng), before + answer + after, (_place(answer, marked, len(before)),))

    def hidden(self, source: Source, texts: Sequence[str], rng: np.random.Generator, most: int = 8) -> Text:
        """Texts that do not answer, among filler."""
        parts = [*self._filler(source, most, rng), *texts]
        return Text(_title(source, rng), "\n\n".join(parts[place] for place in rng.permutation(len(parts))))

    def around(self, source: Source, inserted: str, keep: bool, rng: np.random.Generator) -> Text:
        """The document around its gold passage, with a text inserted at any place; the passage is kept, or taken out."""
        start, end = source.gold.start, source.gold.end
        room = max(0, WINDOW - (end - start))
        first = max(0, start - int(rng.integers(room + 1)))
        before, after = source.document[first:start], source.document[end : first + WINDOW]
        passage = source.document[start:end] if keep else ""
        for other in source.others if not keep else ():
            before, after = before.replace(other, ""), after.replace(other, "")
        if rng.random() < 0.5:
            before = _insert(before, inserted, rng)
        else:
            after = _insert(after, inserted, rng)
        gold = (_place(passage, self.answer(source), len(before)),) if keep else ()
        return Text(source.title, before + passage + after, gold)

    def _plain(self, source: Source, count: int, rng: np.random.Generator) -> list[Text]:
        """Passages that do not answer: of the same document, and of others, by shared words and by chance."""
        shared, answered = shared_count(source.query), source.answered_by()
        rest = source.document[: source.gold.start] + "\n\n" + source.document[source.gold.end :]
        same = sorted(filterfalse(answered, pieces(rest)), key=lambda piece: -shared(piece))[:12]
        sample = [self.passages[place] for place in rng.integers(len(self.passages), size=60)]
        elsewhere = (piece for piece in filterfalse(answered, sample) if piece not in source.document)
        other = sorted(elsewhere, key=lambda piece: -shared(piece))
        wanted = [*some_of(same, count // 2, rng), *other[: count // 4]]
        wanted += some_of(other[count // 4 :], count - len(wanted), rng)
        short = [some_of(split(piece), 1, rng)[0] if rng.random() < 0.3 else piece for piece in wanted if piece.strip()]
        return [Text(_title(source, rng), piece) for piece in short]


def _against_echoes(teacher: Teacher, source: Source, rng: np.random.Generator) -> Lesson | None:
    """Echoes alone, among filler and in the document whose answer was taken out; answers alone, and beside echoes."""
    answer = teacher.answer(source)
    echoes = [teacher.echo(source, rng) for _ in range(6)]
    answers = [
        _alone(answer),
        teacher.buried(source, source.passage, echoes[:1], rng, marked=answer),
        teacher.around(source, echoes[1], True, rng),
    ]
    others = [
        Text("", echoes[0]),
        Text(source.query if rng.random() < 0.5 else "", echoes[2]),
        teacher.hidden(source, [echoes[3]], rng),
        teacher.hidden(source, echoes[4:], rng),
        teacher.around(source, echoes[1], False, rng),
    ]
    return Lesson(source.query, answers, others)


def _reworded(teacher: Teacher, source: Source, rng: np.random.Generator) -> Lesson | None:
    """The answer in other words, alone and among filler."""
    answer = teacher.answer(source)
    other, whole = (in_other_words(source.query, text, teacher.wordnet, rng) for text in (answer, source.passage))
    if not other or not whole:
        return None
    answers = [_alone(other), teacher.buried(source, whole, [], rng)]
    others = [Text("", teacher.echo(source, rng)), teacher.hidden(source, [teacher.echo(source, rng)], rng)]
    return Lesson(source.query, answers, others)


def _short(teacher: Teacher, source: Source, rng: np.random.Generator) -> Lesson | None:
    """A document of one sentence."""
    answer = teacher.answer(source)
    sentences = [part for part in split(source.passage) if part not in answer]
    others = [Text("", part) for part in some_of(sentences, 2, rng)]
    return Lesson(source.query, [_alone(answer)], [*others, Text("", teacher.echo(source, rng))])


def _told_apart(teacher: Teacher, source: Source, rng: np.random.Generator) -> Lesson | None:
    """The answer beside, and against, the same sentence about something else, or denied."""
    answer = teacher.answer(source)
    wrong = [text for _ in range(4) if (text := exchanged(source.query, answer, teacher.replacements, rng))]
    if source.query.lower().startswith(ASKS_FOR_THE_TRUE):
        wrong = [denied for text in (answer, *wrong[:1]) if (denied := negated(text))] + wrong
    distinct = list(dict.fromkeys(text for text in wrong if text != answer))
    if len(answer) > PIECE[1] or not distinct:
        return None
    beside = teacher.buried(source, answer, distinct[:2], rng, most=2)
    others = [Text("", text) for text in distinct[:3]]
    others += [teacher.hidden(source, distinct, rng, most=2), Text("", teacher.echo(source, rng))]
    return Lesson(source.query, [_in_one_paragraph(answer, distinct, rng), beside], others)


def _two_questions(teacher: Teacher, source: Source, rng: np.random.Generator) -> Lesson | None:
    """Two questions at once, over texts that answer both."""
    if source.beside is None:
        return None
    second, passage = source.beside
    answers = []
    for most in (0, 6):
        text = teacher.buried(source, source.passage, [passage], rng, most)
        at = text.text.index(passage)
        answers.append(text._replace(gold=(*text.gold, (at, at + len(passage)))))
    both = f"{source.query} {second}"
    others = [Text("", echo(both, teacher.questions, rng)), teacher.hidden(source, [teacher.echo(source, rng)], rng)]
    query = f"{source.query.rstrip('?. ')} {one_of(_AND, rng)} {second[:1].lower()}{second[1:]}"
    return Lesson(query, answers, others)


LESSONS: dict[str, tuple[float, Callable[[Teacher, Source, np.random.Generator], Lesson | None]]] = {
    "echoes": (0.35, _against_echoes),
    "other words": (0.25, _reworded),
    "short": (0.15, _short),
    "told apart": (0.25, _told_apart),
    "two questions": (0.1, _two_questions),
}
"""The kinds of lessons, each with its share."""


def pieces(text: str) -> list[str]:
    """Paragraphs of a text; lines, where it has no blank ones. Very short and very long ones are left out."""
    parts = [part.strip() for part in text.split("\n\n")]
    if len(parts) < 3:
        parts = [part.strip() for part in text.split("\n")]
    return [part[: PIECE[1]] for part in parts if len(part) >= PIECE[0]]


def _alone(answer: str) -> Text:
    return Text("", answer, ((0, len(answer)),))


def _in_one_paragraph(answer: str, wrong: Sequence[str], rng: np.random.Generator) -> Text:
    parts = list(wrong[:3])
    place = int(rng.integers(len(parts) + 1))
    before = "".join(f"{part} " for part in parts[:place])
    text = before + answer + "".join(f" {part}" for part in parts[place:])
    return Text("", text, ((len(before), len(before) + len(answer)),))


def _place(passage: str, answer: str, start: int) -> tuple[int, int]:
    """Where the part of a passage that answers stands in a text that holds the passage from `start`; without one, the passage."""
    at = passage.find(answer)
    found = answer if at >= 0 and answer else passage
    return start + max(at, 0), start + max(at, 0) + len(found)


def _title(source: Source, rng: np.random.Generator) -> str:
    return source.title if rng.random() < 0.4 else ""


def _insert(text: str, inserted: str, rng: np.random.Generator) -> str:
    """The text with another between two of its lines."""
    lines = text.split("\n")
    place = int(rng.integers(len(lines)))
    lines[place] = f"{lines[place]}\n\n{inserted}\n\n" if place < len(lines) - 1 else f"{inserted}\n\n{lines[place]}"
    return "\n".join(lines)
