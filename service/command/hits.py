"""The best documents so far, with the passages that will be shown: nothing else of a document is kept."""

from collections.abc import Iterable, Iterator, Sequence
from operator import itemgetter
from typing import NamedTuple

from keyblock.client import Result
from keyblock.ranking.order import GROUPS, ScoredBy
from service.command.inputs import Input
from service.command.rankers import Ranker, shown_score
from service.command.text import Highlighter, Span
from service.files.kinds import PAGE_BREAK


class Passage(NamedTuple):
    """A block, as it is shown.

    Attributes:
        start: its offset in the document, in code points; `end` too.
        score: of the selector.
        line: of the document, in which it begins, from 1.
        highlights: places of the query's words, as offsets in `text`.
        page: on which it begins, from 1; None for a file without pages.
    """

    start: int
    end: int
    score: float
    line: int
    text: str
    highlights: list[Span]
    page: int | None = None


class Hit(NamedTuple):
    """A ranked document.

    Attributes:
        place: name of the file, with the line or the page of the best passage if known.
    """

    input: str
    place: str
    score: float
    scored_by: str
    passages: list[Passage]
    title: str | None
    id: str | int | None


def batches(inputs: Iterable[Input], documents: int, chars: int) -> Iterator[list[Input]]:
    """The inputs in order, in batches of at most `documents` documents and `chars` characters; a longer input is a batch alone."""
    batch: list[Input] = []
    size = 0
    for one in inputs:
        if batch and (len(batch) == documents or size + len(one.text) > chars):
            yield batch
            batch, size = [], 0
        batch.append(one)
        size += len(one.text)
    if batch:
        yield batch


class Best:
    """The best of all ranked documents; equal ones in the order in which they came.

    Args:
        top: number of documents to keep; 0 for all.
        blocks: number of passages of each.
        highlighter: finds the query's words in them.
    """

    def __init__(self, top: int, blocks: int, highlighter: Highlighter) -> None:
        self._top, self._blocks, self._highlighter = top, blocks, highlighter
        self._kept: list[tuple[tuple[int, float, int], Hit]] = []
        self._count = 0

    def __iter__(self) -> Iterator[Hit]:
        return (hit for _, hit in self._kept)

    def __len__(self) -> int:
        return len(self._kept)

    def add(self, ranker: Ranker, batch: Sequence[Input]) -> None:
        """Rank a batch, and merge it with the earlier documents."""
        last = self._kept[-1][0] if 0 < self._top == len(self._kept) else None
        for result in ranker.rank(batch):
            order = (GROUPS.index(ScoredBy(result.scored_by)), -result.relevance_score, self._count + result.index)
            if last is None or order < last:
                score = shown_score(result, ranker.activation)
                self._kept.append((order, self._hit(batch[result.index], result, score)))
        self._count += len(batch)
        self._kept.sort(key=itemgetter(0))
        del self._kept[self._top or len(self._kept) :]

    def _hit(self, one: Input, result: Result, score: float) -> Hit:
        passages = [self._passage(one, block.start, block.end, block.score) for block in result.blocks[: self._blocks]]
        place = place_of(one.name, passages[0]) if passages and one.whole_file else one.name
        return Hit(one.name, place, score, result.scored_by, passages, one.title, one.id)

    def _passage(self, one: Input, start: int, end: int, score: float) -> Passage:
        passage, line = one.text[start:end], one.text.count("\n", 0, start) + 1
        page = one.text.count(PAGE_BREAK, 0, start) + 1 if one.paged else None
        return Passage(start, end, score, line, passage, self._highlighter.spans(passage), page)


def place_of(name: str, passage: Passage) -> str:
    """The place of a passage in a file: its page, or else its line."""
    return f"{name}:{passage.line}" if passage.page is None else f"{name}, page {passage.page}"
