"""Texts that repeat a question and do not answer it: a ranker that counts shared words puts them first."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from training.derive.queries import keywords

UNANSWERED = (
    "{q} See the next page.",
    "Frequently asked: {q} The answer is in the appendix.",
    "{q} Read more",
    "{q} Click here to find out.",
    "Did you ever ask yourself: {q} Many people do, and this article is for them.",
    "{q} We are still collecting information about this and will publish it here soon.",
    "{q} Please contact our team for details.",
    "Up next: {q} Stay with us.",
    "{q} This question was closed as a duplicate.",
    "A reader writes: {q} We passed the question on to our experts.",
    "{q} It depends. Nobody can say in general.",
    "{q}\n\nThis entry is empty. You can help by writing it.",
    "{q} That is the question that this talk asks. The slides will be online after the conference.",
    "In episode {n} we ask: {q} Listen wherever you get your podcasts.",
    "{q} (0 answers, {n} views, asked {n} months ago)",
    "Poll: {q} Vote now! {n} people have voted so far.",
    "{q} Log in to see the answer.",
    "Thank you for your message. You asked: {q} A colleague will reply within {n} working days.",
    "This book is for everybody who has ever wondered: {q} {n} pages, paperback.",
    "{q} Discuss in pairs, then compare with the group next to you.",
    "Homework for Monday: {q} Write {n} sentences.",
    "People also ask: {q}",
    "{q} The answer may surprise you!",
    "{q} was the title of the seminar. It took place in room {n} and was well attended.",
)
ABOUT = (
    "This section is about {k}. More on {k} follows below.",
    "{k}: an overview. The chapter introduces {k} and explains why {k} matters to so many people.",
    "Topics of this page: {k}. Last changed on Monday.",
    "Nothing is said here about {k}; see the separate document on {k}.",
    "Tags: {k}",
    "There is a lot of confusion around {k}. The next edition will deal with {k} in detail.",
    "{k}, see page {n}; see also the index",
    "Chapter {n}: {k}\n\nAfter this chapter you will know all about {k}.",
    "Workshop on {k}. Bring your own laptop. Registration closes on the {n}th.",
    "{k}\n\n(text missing)",
    "We study {k}. We review earlier work on {k}, and we discuss what remains open.",
    "Folder: {k}. Files: {n}. Last opened by the administrator.",
    "The rules on {k} were revised. The new text on {k} replaces the old one.",
    "#{k} is trending today. Everybody has an opinion on {k}.",
    "Figure {n}: {k}",
    "For {k}, ask the desk on floor {n}.",
)
FORUM = (
    "Hi all, {q} I looked everywhere and found nothing. Thanks in advance!",
    "Hello, I am new here. {q} Any help is welcome.",
    "Sorry if this was asked before: {q}",
)
REPLIES = (
    "Same question here.",
    "Did you ever find out?",
    "I would like to know that, too.",
    "Have you tried the search function?",
    "Bump.",
    "Following this thread.",
    "No idea, sorry. Maybe somebody else can help.",
)
MINUTES = (
    "The group talked about the question \u201c{q}\u201d and put it off until the next meeting.",
    "Open points: {q} (nobody took it on yet)",
    "Subject: {q}\n\nDear colleagues, I forward this question and will come back to you as soon as I know more.",
    "Search results for \u201c{q}\u201d: no matches were found. Check the spelling or use other words.",
    "He asked again: \u201c{q}\u201d She looked out of the window and said nothing.",
    "Questionnaire, item {n}: {q}\n[ ] very satisfied [ ] satisfied [ ] not satisfied",
    "As a user I want to find out: {q} Priority: medium. Status: open. Estimate: {n} points.",
    "Agent: Good morning.\nCaller: {q}\nAgent: One moment, I will put you through.",
    "Agenda\n{n}. {q}\nDecision: none. Next meeting: in two weeks.",
    "The reporter wanted to know: {q} The spokesman declined to comment.",
    "With reference to your letter of the {n}th, in which you ask \u201c{q}\u201d, we confirm that we received it.",
    "To do: {q} Ask someone who knows.",
    "The exam asks, among other things: \u201c{q}\u201d Candidates have {n} minutes.",
)


class Surroundings(NamedTuple):
    """What stands beside a question in a list.

    Attributes:
        query: the question.
        others: other questions and headings.
    """

    query: str
    others: Sequence[str]


def _contents(one: Surroundings, rng: np.random.Generator) -> str:
    page, lines = 1, []
    for number, heading in enumerate(_among(one, rng), 1):
        lines.append(f"{number}. {heading.rstrip('?')} {'.' * int(rng.integers(3, 30))} {page}")
        page += int(rng.integers(1, 9))
    return "Contents\n\n" + "\n".join(lines)


def _questions(one: Surroundings, rng: np.random.Generator) -> str:
    opening = _one_of(("Frequently asked questions", "Questions and answers", "In this chapter", "What you will learn", "FAQ"), rng)
    return opening + "\n\n" + "\n".join(f"- {question}" for question in _among(one, rng))


def _links(one: Surroundings, rng: np.random.Generator) -> str:
    return "See also\n" + "\n".join(f"* [{text}](https://example.org/{rng.integers(999)})" for text in _among(one, rng))


def _quiz(one: Surroundings, rng: np.random.Generator) -> str:
    return f"Question {rng.integers(1, 40)}. {one.query}\n[ ] A\n[ ] B\n[ ] C\n[ ] I do not know"


def _forum(one: Surroundings, rng: np.random.Generator) -> str:
    replies = [_one_of(REPLIES, rng) for _ in range(int(rng.integers(0, 4)))]
    return "\n\n".join([_one_of(FORUM, rng).format(q=one.query), *replies])


def _shuffled(one: Surroundings, rng: np.random.Generator) -> str:
    words = one.query.rstrip("?. ").split()
    return " ".join(words[place] for place in rng.permutation(len(words)))


def _about(one: Surroundings, rng: np.random.Generator) -> str:
    return _filled(_one_of(ABOUT, rng), one, rng)


def _unanswered(one: Surroundings, rng: np.random.Generator) -> str:
    return _filled(_one_of(UNANSWERED, rng), one, rng)


def _reported(one: Surroundings, rng: np.random.Generator) -> str:
    return _filled(_one_of(MINUTES, rng), one, rng)


def _repeated(one: Surroundings, rng: np.random.Generator) -> str:
    return " ".join([one.query] * int(rng.integers(1, 4)))


ECHOES: dict[str, Callable[[Surroundings, np.random.Generator], str]] = {
    "question": _repeated,
    "contents": _contents,
    "questions": _questions,
    "links": _links,
    "quiz": _quiz,
    "forum": _forum,
    "other order": _shuffled,
    "topic": _about,
    "put off": _unanswered,
    "reported": _reported,
}
"""The kinds of echoes."""


def echo(query: str, others: Sequence[str], rng: np.random.Generator) -> str:
    """A text of a random kind that repeats the query and does not answer it.

    Args:
        query: the question.
        others: other questions and headings, which stand beside it in lists.
        rng: decides the kind and the words around the query.
    """
    kind = list(ECHOES)[int(rng.integers(len(ECHOES)))]
    return ECHOES[kind](Surroundings(query, others), rng)


def _among(one: Surroundings, rng: np.random.Generator) -> list[str]:
    """The question among some others, at any place."""
    count = min(int(rng.integers(2, 9)), len(one.others))
    lines = [one.others[place] for place in rng.choice(len(one.others), count, replace=False)] if count else []
    lines.insert(int(rng.integers(len(lines) + 1)), one.query)
    return lines


def _filled(template: str, one: Surroundings, rng: np.random.Generator) -> str:
    return template.format(q=one.query, k=keywords(one.query), n=int(rng.integers(2, 60)))


def _one_of(texts: Sequence[str], rng: np.random.Generator) -> str:
    return texts[int(rng.integers(len(texts)))]
