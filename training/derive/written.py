"""Lessons that people wrote: a question in three forms, its answer in other words, and texts that only look as if they answered.

A file has one JSON object a line: see `Written`.
"""

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from training.data.files import json_lines
from training.data.types import FileError
from training.derive.answers import shared_count
from training.derive.collection import write_lessons
from training.derive.drawing import one_of, some_of
from training.derive.echoes import echo
from training.derive.lessons import Lesson, Text
from training.derive.queries import typed
from training.recipe import problems

FORMS = ("query", "keywords", "request")
DEV = 10  # one of so many written lessons is of split dev, by a hash of its query: so it stays there when others come


class Written(BaseModel):
    """A lesson as it was written."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    title: str = Field(description="title of the document")
    query: str = Field(min_length=1, description="the question")
    keywords: str = Field(description="the same need in a few words")
    request: str = Field(description="the same need told at length")
    answer: str = Field(min_length=1, description="what answers, as it would stand in the document")
    answer2: str = Field("", description="what answers the second of two questions")
    plain: str = Field(min_length=1, description="the shortest answer, of two questions perhaps to the first alone")
    echoes: tuple[str, ...] = Field(min_length=1, description="texts with the question's words that do not answer")
    near: tuple[str, ...] = Field(min_length=1, description="texts on the topic that look like an answer and are none")
    context: tuple[str, ...] = Field(min_length=1, description="what stands around the answer")

    @property
    def answers(self) -> tuple[str, ...]:
        """What answers: two texts for two questions."""
        return (self.answer, self.answer2) if self.answer2 else (self.answer,)


def derive_written(paths: Sequence[Path], out: Path, seed: int = 0) -> dict[str, int]:
    """Write the lessons of files as a collection with the splits train and dev. Returns how many lessons each split got.

    Raises FileError for a line that is no lesson, ValueError for too few, FileExistsError for a directory that exists.
    """
    if out.exists():
        raise FileExistsError(f"{out}: exists already; give another --out")
    written = read_written(paths)
    splits: dict[str, list[Written]] = {"train": [], "dev": []}
    for one in written:
        drawn = hashlib.sha256(" ".join(one.query.lower().split()).encode()).digest()[0]
        splits["dev" if drawn % DEV == 0 else "train"].append(one)
    if not all(splits.values()):
        raise ValueError(f"{len(written)} written lessons are too few: one of about {DEV} is for dev, and train has the others")
    made = {split: list(written_lessons(own, (seed, number))) for number, (split, own) in enumerate(splits.items())}
    return write_lessons(made, out)


def read_written(paths: Sequence[Path]) -> list[Written]:
    """The lessons of files. Raises FileError for a line that is none."""
    found = []
    for path in paths:
        for number, _, row in json_lines(path):
            try:
                found.append(Written.model_validate(row))
            except ValidationError as error:
                raise FileError(f"{path}: line {number}: {problems(error)}") from None
    return found


def written_lessons(written: Sequence[Written], seed: Sequence[int]) -> Iterator[Lesson]:
    """Three lessons of each written one, by the form of its query; every draw is seeded by (seed, its place, the form)."""
    for place, one in enumerate(written):
        for number, form in enumerate(FORMS):
            rng = np.random.default_rng((*seed, place, number))
            query = typed(one.query, rng) if form == "query" else getattr(one, form)
            yield Lesson(query, _answers(one, written, rng), _others(one, written, rng))


def _answers(one: Written, written: Sequence[Written], rng: np.random.Generator) -> list[Text]:
    """The answer alone, in short, in its document, beside an echo there, among other documents, and among scraps of them."""
    near = some_of(one.near, int(rng.integers(0, 3)), rng)
    short = [] if one.answer2 else [[], _scraps(one, written, rng)]
    return [
        _document(one, [], one.answers, rng),
        _document(one, _scraps(one, written, rng), one.answers, rng),
        *(_document(one, beside, [one.plain], rng) for beside in short),
        _document(one, [*_context(one, rng), *near], one.answers, rng),
        _document(one, [*_context(one, rng), one_of(one.echoes, rng)], one.answers, rng),
        _document(one, [*one.near, one_of(one.echoes, rng), *_filler(one, written, rng)], one.answers, rng),
    ]


def _others(one: Written, written: Sequence[Written], rng: np.random.Generator) -> list[Text]:
    """Echoes and what looks like an answer, alone and among others, answers to other questions, and texts about something else."""
    echoes, near = some_of(one.echoes, 2, rng), some_of(one.near, 2, rng)
    questions = [other.query for other in written]
    made = echo(one.query, questions, rng)
    shared = shared_count(one.query)
    elsewhere = _elsewhere(one, written, 60, rng)
    alike = sorted(elsewhere, key=lambda other: -shared(other.answer))[:2]
    parts = [  # mostly of what looks like an answer: echoes share more words, and so are drawn as hard negatives
        [one_of((echoes[0], made), rng)],
        [echoes[-1], *_context(one, rng)],
        [near[0]],
        [near[-1]],
        list(one.near),
        [*near, *_context(one, rng)],
        [near[-1], *_context(one, rng)],
        [*one.near, one_of(one.echoes, rng), *one.context],
        [*near, made, *_filler(one, written, rng)],
        _context(one, rng),
        [near[0], *_scraps(one, written, rng)],
    ]
    unrelated = [_scraps(one, written, rng), _scraps(one, written, rng)[:1], _filler(one, written, rng)[:1]]
    return [
        *(_document(one, texts, [], rng) for texts in parts),
        *(_document(one_of(elsewhere, rng), texts, [], rng) for texts in unrelated if texts),
        *(_document(other, some_of(other.context, 2, rng), other.answers, rng)._replace(gold=()) for other in alike),
    ]


def _context(one: Written, rng: np.random.Generator) -> list[str]:
    return some_of(one.context, int(rng.integers(1, len(one.context) + 1)), rng)


def _filler(one: Written, written: Sequence[Written], rng: np.random.Generator) -> list[str]:
    """Passages of other documents."""
    return [" ".join([*_context(other, rng), other.answer]) for other in _elsewhere(one, written, int(rng.integers(2, 6)), rng)]


def _scraps(one: Written, written: Sequence[Written], rng: np.random.Generator) -> list[str]:
    """Single sentences of other documents, which have nothing to do with the query: a block of a long text may be like that."""
    return [one_of((*other.context, other.answer), rng) for other in _elsewhere(one, written, int(rng.integers(3, 7)), rng)]


def _elsewhere(one: Written, written: Sequence[Written], count: int, rng: np.random.Generator) -> list[Written]:
    return [other for other in some_of(written, count, rng) if other is not one]


def _document(one: Written, beside: Sequence[str], answers: Sequence[str], rng: np.random.Generator) -> Text:
    """The texts in a random order, as one paragraph or as lines; every answer is marked."""
    parts = [*((text, False) for text in beside), *((text, True) for text in answers)]
    between = one_of((" ", " ", "\n", "\n\n"), rng)
    text, gold = "", []
    for place in rng.permutation(len(parts)):
        part, answers_it = parts[place]
        text += between if text else ""
        if answers_it:
            gold.append((len(text), len(text) + len(part)))
        text += part
    return Text(one.title if rng.random() < 0.5 else "", text, tuple(gold))
