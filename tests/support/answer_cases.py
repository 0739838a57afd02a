"""The hand-written cases of tests/data/answers (its README says what is right), ranked by bundles or by a running service.

    python -m tests.support.answer_cases models/default [OTHER ...] [--list]
    python -m tests.support.answer_cases --url http://127.0.0.1:8000 [--list]

Prints for each file how many are right, and with --list those that are not, and why.
"""

import argparse
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import chain
from pathlib import Path
from typing import Any, Protocol

import yaml
from pydantic import BaseModel, ConfigDict

from keyblock import Ranker
from keyblock.client import Client
from keyblock.results import Ranking, Result

DATA = Path(__file__).resolve().parent.parent / "data"
FILES = ("echoes", "short", "unanswered", "cases", "buried")
MINUTES = ("The committee met again and talked about chairs.", "Two windows of the hall are to be painted in spring.")
RIVALS = 8  # answers to other questions, beside which an answer stands in `buried`
TOP = 10  # results of a ranking: with a hundred documents the pre-ranking takes part


class Case(BaseModel):
    """A query over documents, and what is right.

    Attributes:
        id: a name.
        kind: what the case is about.
        query: the query.
        documents: texts, in first-stage order.
        filler: how many paragraphs of filler.txt stand before them.
        quoted: whether a user reported it.
        best: the index of the document that must be first; the only or first one is meant where documents need not be compared.
        spans: texts that the best spans of the first result must overlap: the best one if there is one text, the two best if there
            are two; alternatives for a text form a list.
        wrong: texts that these spans must not overlap.
        context: the text that the contexts must hold.
        context_tokens: limits of the contexts, each tried alone.
        kept: whether `min_score: auto` must keep the document, or leave it out.
    """

    model_config = ConfigDict(extra="forbid", strict=True)

    id: str
    kind: str
    query: str
    documents: list[str]
    filler: int = 0
    quoted: bool = False
    best: int | None = None
    spans: list[str | list[str]] = []
    wrong: list[str] = []
    context: str | None = None
    context_tokens: list[int] = []
    kept: bool | None = None

    @property
    def alternatives(self) -> list[list[str]]:
        """For each text of `spans` what may stand for it."""
        return [[text] if isinstance(text, str) else text for text in self.spans]

    @property
    def texts(self) -> list[str]:
        """All documents, filler first, so that among equal scores the filler wins."""
        lines = (DATA / "filler.txt").read_text(encoding="utf-8").splitlines()
        return [*lines[:: len(lines) // self.filler][: self.filler], *self.documents] if self.filler else self.documents


class Ranks(Protocol):
    """Ranks texts; `options` are those of `Ranker.rank`. Its documents, query and answer are those of the public API."""

    def __call__(self, query: str, texts: Sequence[str], **options: Any) -> Ranking: ...


def read_cases(name: str) -> list[Case]:
    """The cases of a file of tests/data/answers; `buried` is made of `short`. Raises ValidationError for a wrong field."""
    if name == "buried":
        return list(_buried(read_cases("short")))
    items = yaml.safe_load((DATA / "answers" / f"{name}.yaml").read_text(encoding="utf-8"))
    if name == "echoes":
        items = [item | {"documents": [item.pop("echo"), item.pop("answer")], "best": 1} for item in items]
    elif name in ("short", "unanswered"):
        items = [item | {"documents": [item.pop("text")], "kind": name, "kept": name == "short"} for item in items]
    return [Case(**item) for item in items]


def _buried(short: Sequence[Case]) -> Iterator[Case]:
    """Each short answer between sentences of minutes, behind answers to other questions there, and minutes alone."""
    answers = [case.documents[0] for case in short]
    for place, case in enumerate(short):
        others = [answers[(place + step) % len(answers)] for step in range(1, RIVALS + 1)]
        texts = [" ".join([*MINUTES, *text, *MINUTES * 2]) for text in ([], *([one] for one in (*others, answers[place])))]
        yield Case(id=case.id, kind="buried", query=case.query, documents=texts, best=RIVALS + 1)


def faults(case: Case, rank: Ranks) -> list[str]:
    """What is wrong in the answers to a case; empty if all is right. Raises ValueError if no threshold is recommended."""
    return list(chain(_order_faults(case, rank), _threshold_faults(case, rank), _context_faults(case, rank)))


def _order_faults(case: Case, rank: Ranks) -> Iterator[str]:
    if case.best is None and not case.spans:
        return
    first = rank(case.query, case.texts, top_n=TOP, relevant_spans=True)
    if case.best is not None:
        due = case.filler + case.best
        scores = {one.index: one.relevance_score for one in first}
        if first[0].index != due or any(score >= scores[due] for index, score in scores.items() if index != due):
            yield f"document {first[0].index} is first, or level with document {due}"
            return
    if case.spans:
        yield from _span_faults(case, first[0])


def _span_faults(case: Case, result: Result) -> Iterator[str]:
    text = case.texts[result.index]
    found = [(span.start, span.end) for span in result.relevant_spans[: len(case.spans)]]
    for texts in case.alternatives:
        if not any(_overlap(text, span, due) for span in found for due in texts):
            shown = [text[start:end] for start, end in found]
            yield f"the best spans are {shown}, and none of them is {texts[0]!r}"
    for wrong in case.wrong:
        if any(_overlap(text, span, wrong) for span in found):
            yield f"a best span holds {wrong!r}"


def _overlap(text: str, span: tuple[int, int], due: str) -> bool:
    """Whether a span of a text and another text in it share half of the shorter one."""
    start = text.find(due)
    shared = min(span[1], start + len(due)) - max(span[0], start)
    return start >= 0 and 2 * shared >= min(span[1] - span[0], len(due))


def _threshold_faults(case: Case, rank: Ranks) -> Iterator[str]:
    if case.kept is None:
        return
    kept = rank(case.query, case.texts, min_score="auto")
    if kept.below_min_score is None:
        raise ValueError(f"{kept.model} recommends no threshold: calibrate it first, so that min_score: auto means something")
    if (case.filler + (case.best or 0) in {one.index for one in kept}) is not case.kept:
        yield "the document is below the threshold" if case.kept else f"a document of {kept[0].relevance_score:.3f} is kept"


def _context_faults(case: Case, rank: Ranks) -> Iterator[str]:
    for tokens in case.context_tokens:
        pruned = rank(case.query, case.texts, top_n=TOP, prune=True, max_context_tokens=tokens)
        contexts = [one.context.text for one in pruned if one.context is not None]
        if not any(case.context in context for context in contexts):
            yield f"{tokens} tokens of context are {contexts}, without {case.context!r}"


def over_http(client: Client) -> Ranks:
    """The same through a running service."""

    def rank(query: str, texts: Sequence[str], *, relevant_spans: bool = False, **options: Any) -> Ranking:
        spans = {"relevant_spans": {"mode": "enabled"}} if relevant_spans else {}
        return client.rerank(query, texts, **spans, **options)

    return rank


def report(name: str, rank: Ranks, *, listed: bool) -> None:
    """Print how many cases are right, by file, among those quoted, and which are not."""
    wrong = {(file, case.id): (case, faults(case, rank)) for file in FILES for case in read_cases(file)}
    print(name)
    for file in FILES:
        of_file = [found for (place, _), (_, found) in wrong.items() if place == file]
        print(f"  {file}: {sum(not found for found in of_file)} of {len(of_file)}")
    quoted = [found for case, found in wrong.values() if case.quoted]
    print(f"  quoted among them: {sum(not found for found in quoted)} of {len(quoted)}")
    if listed:
        for (file, identity), (case, found) in wrong.items():
            for fault in found:
                print(f"  {file}/{identity} ({case.kind}{', quoted' if case.quoted else ''}): {fault}")


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure bundles, or a service."""
    parser = argparse.ArgumentParser(description="How many of the cases of tests/data/answers are right?")
    parser.add_argument("bundles", nargs="*", type=Path, help="directories of bundles")
    parser.add_argument("--url", help="a running service to measure, instead of or beside bundles")
    parser.add_argument("--provider", default="auto", help="where bundles run, as in Ranker.open")
    parser.add_argument("--list", action="store_true", help="show the cases that are wrong, and why")
    options = parser.parse_args(arguments)
    if not options.bundles and not options.url:
        parser.error("name a bundle, or a service by --url")
    with ExitStack() as stack:
        for bundle in options.bundles:
            report(str(bundle), stack.enter_context(Ranker.open(bundle, provider=options.provider)).rank, listed=options.list)
        if options.url:
            report(options.url, over_http(stack.enter_context(Client(options.url))), listed=options.list)


if __name__ == "__main__":
    main()
