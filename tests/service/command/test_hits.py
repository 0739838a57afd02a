"""The best documents so far: the same as ranking all of them at once."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from keyblock.ranking.order import Block, ScoredBy
from keyblock.text.analyzer import Analyzer, AnalyzerConfig
from service.command.hits import Best, batches
from service.command.inputs import Input
from service.command.rankers import Found
from service.command.text import Highlighter

ANALYZER = Analyzer(AnalyzerConfig())


class Known:
    """A ranker that knows what there is to find."""

    analyzer, documents, chars = ANALYZER, 3, 100

    def __init__(self, found: Sequence[Found | None]) -> None:
        self._found = iter(found)

    def rank(self, inputs: Sequence[Input]) -> list[Found | None]:
        return [next(self._found) for _ in inputs]


FOUND = st.none() | st.builds(Found, st.integers(0, 2), st.integers(-3, 3).map(float), st.just([]))


@given(st.lists(FOUND, max_size=30), st.integers(0, 8))
def test_the_best_are_those_of_all(found: list[Found | None], top: int) -> None:
    inputs = [Input(str(number), "x" * number) for number in range(len(found))]
    best, ranker = Best(top, 1, Highlighter(ANALYZER, "q")), Known(found)
    for batch in batches(inputs, ranker.documents, ranker.chars):
        best.add(ranker, batch)
    known = [(one.group, one.negative_logit, number) for number, one in enumerate(found) if one is not None]
    assert [hit.input for hit in best] == [str(number) for *_, number in sorted(known)][: top or None]
    assert len(best) == len(list(best))


@given(st.lists(st.integers(0, 200), max_size=30))
def test_batches_are_of_all_inputs_in_order(sizes: list[int]) -> None:
    inputs = [Input(str(number), "x" * size) for number, size in enumerate(sizes)]
    made = list(batches(inputs, 3, 100))
    assert [one for batch in made for one in batch] == inputs
    assert all(1 <= len(batch) <= 3 for batch in made)
    assert all(len(batch) == 1 or sum(len(one.text) for one in batch) <= 100 for batch in made)


def test_passages() -> None:
    text = "one\ntwo rivers\nthree"
    found = Found(0, 0.0, [Block(4, 14, 2.5), Block(0, 3, 1.0)])
    best = Best(0, 1, Highlighter(ANALYZER, "river"))
    best.add(Known([found, found]), [Input("a.txt", text), Input("b.jsonl:7", text, "Title", 7, whole_file=False)])
    first, second = best
    assert first.passages == [(4, 14, 2.5, 2, "two rivers", [(4, 10)], None)]
    assert (first.place, second.place, second.title, second.id) == ("a.txt:2", "b.jsonl:7", "Title", 7)
    assert (first.score, first.scored_by) == (0.5, ScoredBy.MODEL)


def test_a_passage_of_a_file_with_pages_has_its_page() -> None:
    best = Best(0, 1, Highlighter(ANALYZER, "river"))
    best.add(Known([Found(0, 0.0, [Block(8, 18, 2.5)])]), [Input("a.pdf", "one\fof\n\ftwo rivers", paged=True)])
    (hit,) = best
    assert (hit.passages[0].text, hit.passages[0].page, hit.place) == ("two rivers", 3, "a.pdf, page 3")
