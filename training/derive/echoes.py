"""Texts that repeat a question and do not answer it: a ranker that counts shared words puts them first."""

from collections.abc import Callable, Sequence

import numpy as np

from training.derive.drawing import TEXTS, one_of, some_of
from training.derive.queries import keywords

Echo = Callable[[str, Sequence[str], np.random.Generator], str]
"""Makes a text of a query, and of other questions and headings, which stand beside it in lists."""


def _contents(query: str, others: Sequence[str], rng: np.random.Generator) -> str:
    page, lines = 1, []
    for number, heading in enumerate(_among(query, others, rng), 1):
        lines.append(f"{number}. {heading.rstrip('?')} {'.' * int(rng.integers(3, 30))} {page}")
        page += int(rng.integers(1, 9))
    return "Contents\n\n" + "\n".join(lines)


def _questions(query: str, others: Sequence[str], rng: np.random.Generator) -> str:
    opening = one_of(("Frequently asked questions", "Questions and answers", "In this chapter", "What you will learn", "FAQ"), rng)
    return opening + "\n\n" + "\n".join(f"- {question}" for question in _among(query, others, rng))


def _links(query: str, others: Sequence[str], rng: np.random.Generator) -> str:
    texts = _among(query, others, rng)
    return "See also\n" + "\n".join(f"* [{text}](https://example.org/{rng.integers(999)})" for text in texts)


def _quiz(query: str, _: Sequence[str], rng: np.random.Generator) -> str:
    return f"Question {rng.integers(1, 40)}. {query}\n[ ] A\n[ ] B\n[ ] C\n[ ] I do not know"


def _forum(query: str, _: Sequence[str], rng: np.random.Generator) -> str:
    replies = [one_of(TEXTS["replies"], rng) for _ in range(int(rng.integers(0, 4)))]
    return "\n\n".join([one_of(TEXTS["forum"], rng).format(q=query), *replies])


def _shuffled(query: str, _: Sequence[str], rng: np.random.Generator) -> str:
    return " ".join(rng.permutation(query.rstrip("?. ").split()).tolist())


def _repeated(query: str, _: Sequence[str], rng: np.random.Generator) -> str:
    return " ".join([query] * int(rng.integers(1, 4)))


def _from_template(name: str) -> Echo:
    def fill(query: str, _: Sequence[str], rng: np.random.Generator) -> str:
        return one_of(TEXTS[name], rng).format(q=query, k=keywords(query), n=int(rng.integers(2, 60)))

    return fill


ECHOES: dict[str, Echo] = {
    "question": _repeated,
    "contents": _contents,
    "questions": _questions,
    "links": _links,
    "quiz": _quiz,
    "forum": _forum,
    "other order": _shuffled,
    "topic": _from_template("about"),
    "put off": _from_template("unanswered"),
    "reported": _from_template("reported"),
}
"""The kinds of echoes."""


def echo(query: str, others: Sequence[str], rng: np.random.Generator) -> str:
    """A text of a random kind of ECHOES; `rng` decides the kind and the words around the query."""
    return one_of(list(ECHOES.values()), rng)(query, others, rng)


def _among(query: str, others: Sequence[str], rng: np.random.Generator) -> list[str]:
    """The question among some others, at any place."""
    lines = some_of(others, int(rng.integers(2, 9)), rng)
    lines.insert(int(rng.integers(len(lines) + 1)), query)
    return lines
