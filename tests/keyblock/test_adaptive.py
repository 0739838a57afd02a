"""How many blocks are enough: by hand, against a slow version, and as a pipeline obeys it."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from keyblock.adaptive import ADAPTIVE, Adaptive, Density, Ranked, Relative, Share
from keyblock.description import PackingConfig, PipelineConfig
from keyblock.packing import pack
from keyblock.pipeline import Pipeline
from keyblock.selectors import SelectedBy
from tests.keyblock.pipelines import PLAIN_PROSE, make

QUIET = "It was a quiet afternoon in the little town, as nearly all afternoons there had been for years. "
FLOOD, BRIDGE = "The river flooded the stone city. ", "The old bridge of the river stands. "


def ranked(lengths: list[int], counts: list[list[int]], idf: list[float], lexical: list[float]) -> Ranked:
    shaped = np.asarray(counts, dtype=np.float64).reshape(len(idf), len(lengths))
    return Ranked(np.asarray(lengths, np.int32), np.asarray(lexical, np.float64), shaped, np.asarray(idf, np.float64))


# three blocks of 20, 40 and 20 tokens; the query's terms weigh 3 and 1: the first block has both, the second the rare one again
THREE = ranked([20, 40, 20], [[1, 1, 0], [1, 0, 1]], [3.0, 1.0], [4.0, 2.0, 1.0])


def test_relative_by_hand() -> None:
    """The scores are 4, 2 and 1: a half of 4 keeps two blocks, a quarter all, more than a half one."""
    assert [Relative(ratio=ratio).count(THREE) for ratio in (0.25, 0.5, 0.51)] == [3, 2, 1]


def test_relative_stops_at_the_first_weak_block() -> None:
    assert Relative(ratio=0.5).count(THREE._replace(lexical=np.asarray([4.0, 1.0, 4.0]))) == 1


def test_share_by_hand() -> None:
    """Of a sum of 7, one block has 4/7 (.571), two have 6/7 (.857)."""
    assert [Share(share=share).count(THREE) for share in (0.5, 0.6, 0.86)] == [1, 2, 3]


def test_density_by_hand() -> None:
    """Without saturation the first block holds all 4 in 20 tokens, and nothing is new after that.

    With 1, tf 1 counts 1/2 and tf 2 counts 2/3: the first block holds 2, or .1 a token; the second adds 3 * (2/3 - 1/2) = .5, or
    .0125 a token, which is .125 of that; both hold 2.5 in 60 tokens, and the third adds 1/6 in 20: .2 of their density.
    """
    assert [Density(ratio=ratio, saturation=0).count(THREE) for ratio in (0.0, 0.01)] == [3, 1]
    assert [Density(ratio=ratio, saturation=1).count(THREE) for ratio in (0.12, 0.13)] == [3, 1]
    swapped = THREE._replace(counts=THREE.counts[:, [0, 2, 1]], lengths=THREE.lengths[[0, 2, 1]])
    # now 1/6 in 20 tokens comes second, .083 of the density of the first
    assert [Density(ratio=ratio, saturation=1).count(swapped) for ratio in (0.08, 0.09)] == [3, 1]


def test_a_document_without_promise_is_read_to_the_floor() -> None:
    """One block holds all of the query in THREE; without it the best holds 3 of 4."""
    assert [Relative(ratio=0, promise=promise).count(THREE) for promise in (0.0, 1.0)] == [3, 3]
    spread = THREE._replace(counts=np.asarray([[1.0, 1.0, 0.0], [0.0, 0.0, 1.0]]))
    assert [Relative(ratio=0, promise=promise).count(spread) for promise in (0.75, 0.76)] == [3, 1]
    assert Relative(ratio=0).count(THREE, evident=False) == 1


def test_the_floor_counts_blocks_and_tokens() -> None:
    """20 tokens are there with one block, 21 need a second, 61 a third; more than there are is all."""
    floors = [Relative(ratio=1, tokens=tokens).count(THREE) for tokens in (0, 20, 21, 60, 61, 500)]
    assert floors == [1, 1, 2, 2, 3, 3]
    assert [Relative(ratio=1, blocks=blocks).count(THREE) for blocks in (1, 2, 64)] == [1, 2, 3]


@pytest.mark.parametrize("rule", [member() for member in ADAPTIVE.members()], ids=lambda rule: rule.name)
def test_no_block_and_no_term(rule: Adaptive) -> None:
    assert rule.count(ranked([], [], [], [])) == 0
    assert rule.count(ranked([9], [], [], [0])) == 1
    assert 1 <= rule.count(ranked([9, 9, 9], [], [], [0, 0, 0])) <= 3


def slow(rule: Adaptive, blocks: Ranked, *, evident: bool) -> int:
    """A block at a time, everything reckoned anew."""
    n, idf = len(blocks.lengths), blocks.idf.tolist()
    promise = max((sum(w for w, c in zip(idf, column, strict=True) if c) for column in blocks.counts.T.tolist()), default=0.0)
    enough_said = not evident or (promise / sum(idf) if sum(idf) else 0.0) < rule.promise
    taken = 0
    while taken < n:
        floor = taken < rule.blocks or sum(blocks.lengths[:taken].tolist()) < rule.tokens
        if not floor and (enough_said or stops(rule, blocks, taken)):
            break
        taken += 1
    return taken


def stops(rule: Adaptive, blocks: Ranked, taken: int) -> bool:
    """Whether a rule stops somewhere before the block of this number, or at it."""
    return any(stops_at(rule, blocks, block) for block in range(1, taken + 1))


def stops_at(rule: Adaptive, blocks: Ranked, block: int) -> bool:
    scores = blocks.lexical.tolist()
    if isinstance(rule, Relative):
        return scores[block] < rule.ratio * max(scores) or scores[0] < rule.ratio * max(scores)
    if isinstance(rule, Share):
        return sum(scores[:block]) >= rule.share * sum(scores)
    assert isinstance(rule, Density)
    before, after = (held(rule, blocks, count) for count in (block, block + 1))
    density = before / sum(blocks.lengths[:block].tolist())
    return (after - before) / int(blocks.lengths[block]) < rule.ratio * density


def held(rule: Density, blocks: Ranked, count: int) -> float:
    sums = blocks.counts[:, :count].sum(axis=1).tolist()
    return sum(w * tf / (rule.saturation + tf) for w, tf in zip(blocks.idf.tolist(), sums, strict=True) if tf)


@st.composite
def documents(draw: st.DrawFn) -> Ranked:
    n, terms = draw(st.integers(0, 7)), draw(st.integers(0, 3))
    whole = st.integers(0, 4)  # small whole numbers: sums are exact, and ties are common
    counts = [draw(st.lists(whole, min_size=n, max_size=n)) for _ in range(terms)]
    lengths, scores = (draw(st.lists(numbers, min_size=n, max_size=n)) for numbers in (st.integers(1, 63), whole))
    return ranked(lengths, counts, draw(st.lists(whole.map(float), min_size=terms, max_size=terms)), [float(s) for s in scores])


DENSITY = {"name": "density", "saturation": 1.0}
PARTS = st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0])
FLOORS = st.fixed_dictionaries({"blocks": st.integers(1, 3), "tokens": st.integers(0, 90), "promise": PARTS})


@st.composite
def rules(draw: st.DrawFn) -> Adaptive:
    floor, part = draw(FLOORS), draw(PARTS)
    own = draw(st.sampled_from([{"name": "relative", "ratio": part}, {"name": "share", "share": part}, DENSITY | {"ratio": part}]))
    return ADAPTIVE.create(own | floor)


@given(rules(), documents(), st.booleans())
def test_the_same_as_a_block_at_a_time(rule: Adaptive, blocks: Ranked, evident: bool) -> None:
    assert rule.count(blocks, evident=evident) == slow(rule, blocks, evident=evident)


@given(rules(), documents())
def test_never_below_the_floor_and_never_more_than_there_is(rule: Adaptive, blocks: Ranked) -> None:
    count, n = rule.count(blocks), len(blocks.lengths)
    assert min(rule.blocks, n) <= count <= n
    assert blocks.lengths[:count].sum() >= min(rule.tokens, blocks.lengths.sum())
    assert rule.count(blocks, evident=False) <= count


@given(documents(), FLOORS, PARTS, PARTS)
def test_a_stricter_threshold_never_reads_more(blocks: Ranked, floor: dict[str, float], one: float, other: float) -> None:
    low, high = sorted((one, other))
    for name, key in (("relative", "ratio"), ("density", "ratio"), ("share", "share")):
        few, many = (ADAPTIVE.create({"name": name, key: part, **floor}).count(blocks) for part in (high, low))
        assert few <= many if key == "ratio" else many <= few
    strict, lax = (Relative(ratio=0.5, promise=promise).count(blocks) for promise in (high, low))
    assert strict <= lax


def adaptive(of: Pipeline, rule: dict[str, object] | None, **packing: object) -> Pipeline:
    return make(of.tokenizer, of.frequencies, packing={"adaptive": rule, **packing})


@given(PLAIN_PROSE, PLAIN_PROSE, st.integers(64, 192), PARTS, PARTS)
def test_a_pipeline_reads_a_front_of_its_blocks(
    pipeline: Pipeline, query: list[tuple[str, str]], text: list[tuple[str, str]], budget: int, ratio: float, promise: float
) -> None:
    """What is read is what packing so many of the best blocks gives, and all else about the selection stays."""
    rule = adaptive(pipeline, {"name": "relative", "ratio": ratio, "promise": promise}, budget_range=(64, 192))
    asked = pipeline.prepare_query(" ".join(map("".join, query)))
    document = pipeline.prepare_document(" ".join(map("".join, text)))
    full, few = pipeline.select(asked, document, budget), rule.select(asked, document, budget)
    np.testing.assert_array_equal(few.scores, full.scores)
    np.testing.assert_array_equal(few.evidence, full.evidence)
    count = len(few.taken)
    assert few.taken.tolist() == full.taken[:count].tolist()
    assert min(document.n_blocks, 1) <= count
    packed = pack(asked, document, full.taken[:count], pipeline.tokenizer.template, budget)
    assert few.packed.ids.tolist() == packed.ids.tolist()
    assert len(few.packed.ids) <= len(full.packed.ids) <= budget


def test_one_block_where_one_has_it_all_and_more_where_evidence_is_spread(pipeline: Pipeline) -> None:
    """The flood is told in one place of the first text; the second has the flood here and the bridge there, so both are read."""
    rule = adaptive(pipeline, {"name": "relative", "ratio": 0.5}, budget=192, budget_range=(64, 192))
    query = rule.prepare_query("Which bridge did the river flood?")
    one = QUIET * 6 + "The river flooded the old bridge of the city. " + QUIET * 6
    spread = QUIET * 6 + FLOOD + QUIET * 6 + BRIDGE + QUIET * 6
    read = [rule.select(query, rule.prepare_document(text)) for text in (one, spread)]
    assert [len(selection.taken) for selection in read] == [1, 2]
    words = [pipeline.tokenizer.ids(sentence.strip()).tolist() for sentence in (FLOOD, BRIDGE)]
    fed = " ".join(map(str, read[1].packed.ids.tolist()))
    assert all(" ".join(map(str, ids)) in fed for ids in words), "both sentences stand in the sequence"
    assert len(read[0].packed.ids) < 80


def test_without_evidence_only_the_floor_is_read(pipeline: Pipeline) -> None:
    rule = adaptive(pipeline, {"name": "relative", "ratio": 0, "blocks": 1})
    selection = rule.select(rule.prepare_query("zebra"), rule.prepare_document(QUIET * 40))
    assert selection.taken.tolist() == [0]
    assert selection.by == SelectedBy.POSITION


def test_passages_are_fewer_too(pipeline: Pipeline) -> None:
    """Where each block is a sequence of its own, the rule says how many there are."""
    parts = {"aggregator": {"name": "max", "passages": 3}}
    text = QUIET * 6 + "The river flooded the old bridge. " + QUIET * 12
    read = []
    for rule in (None, {"name": "relative", "ratio": 0.5}):
        own = make(pipeline.tokenizer, pipeline.frequencies, packing={"adaptive": rule}, **parts)
        read.append(len(own.select(own.prepare_query("Which bridge?"), own.prepare_document(text)).sequences))
    assert read == [3, 1]


def test_what_the_model_chose_in_doubt_fills_the_budget(pipeline: Pipeline) -> None:
    parts = {"packing": {"adaptive": {"name": "relative", "ratio": 1}}, "escalation": {"below": 1.0}}
    own = make(pipeline.tokenizer, pipeline.frequencies, **parts)
    query, document = own.prepare_query("Which river, and which zebra?"), own.prepare_document(QUIET * 6 + FLOOD + QUIET * 12)
    plain = own.select(query, document)
    assert plain.doubtful
    question = own.question(query, document, document.n_blocks)
    chosen = own.select(query, document, None, (question, np.arange(document.n_blocks, dtype=np.float32)))
    assert len(plain.packed.ids) < len(chosen.packed.ids) == 128


def test_a_description_is_checked() -> None:
    written = PackingConfig.model_validate({"adaptive": {"name": "relative"}}).adaptive
    assert written == {"name": "relative", "blocks": 1, "tokens": 0, "promise": 0.0, "ratio": 0.5}
    assert PackingConfig().adaptive is None
    for wrong, message in (
        ({"name": "depth"}, "unknown adaptive rule 'depth'; known: density, relative, share"),
        ({"name": "share", "share": 2}, "share: share: Input should be less than or equal to 1"),
    ):
        with pytest.raises(ValueError, match=re.escape(message)):
            PackingConfig.model_validate({"adaptive": wrong})
    with pytest.raises(ValueError, match="selector 'learned' fills the budget with what the model chose: leave out adaptive"):
        PipelineConfig.model_validate({"selector": {"name": "learned"}, "packing": {"adaptive": {"name": "relative"}}})
