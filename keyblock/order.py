"""From logits and lexical evidence to an order: fusion, the relevance score, and documents that the model cannot score."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from keyblock.cascade import PROMISING, RESULTS, in_turns
from keyblock.description import PipelineConfig
from keyblock.escalation import Escalated
from keyblock.evidence import FEATURES, LEXICAL, Activation, Fusion, speaks
from keyblock.first_stage import FirstStage
from keyblock.packing import Packed
from keyblock.pooled import Shared, beside_the_order, pooled_evidence, rare_here
from keyblock.prepared import PreparedDocument
from keyblock.selection import Selection
from keyblock.selectors import SelectedBy

UNSCORED_LOGIT = -5.0  # a document that the model has not scored stays below it: nothing is known of its relevance
LOWEST = -100.0  # the logit of a document without a block, whose score as a probability is 0


SIGMOID = Activation()


class Block(NamedTuple):
    """A selected block: offsets into the document's text in code points; scored by the model as a passage, else by the selector."""

    start: int
    end: int
    score: float


class Candidate(NamedTuple):
    """What is kept of a document once it has met the query.

    Attributes:
        sequences: the model's inputs; none for a document without a block. Where there are several, each is of one block, in
            document order.
        evidence: shape (4,), see `keyblock.evidence.evidence_of`.
        blocks: the blocks in `sequences`, best first.
        selection_tokens: that a learned selector was fed beside.
        read: False where there was no time for it.
        considered: blocks that the document has.
        selected_by: what chose the blocks; None where all are read, or there is none.
        shared: the query's terms in its blocks, and whether the model has learned such texts; see `Selection.shared`.
        lengths: tokens of each of `blocks`.
        title: tokens that its title has.
        tokens: that its text has.
        spared: whether it has blocks that the model does not read, since they promise too little: `sequences` is empty then.
    """

    sequences: list[Packed]
    evidence: NDArray[np.float64]
    blocks: list[Block]
    selection_tokens: int = 0
    read: bool = True
    considered: int = 0
    selected_by: SelectedBy | None = None
    shared: Shared | None = None
    lengths: Sequence[int] = ()
    title: int = 0
    tokens: int = 0
    spared: bool = False

    @property
    def has_blocks(self) -> bool:
        """Whether there is something to order it by; without a block there is not."""
        return bool(self.sequences) or self.spared


UNREAD = Candidate([], np.zeros(len(FEATURES) - 1), [], read=False)


def candidate(document: PreparedDocument, selection: Selection) -> Candidate:
    """Keep what scoring and answering need; the prepared document itself is large."""
    if not document.n_blocks:
        return Candidate([], selection.evidence, [])
    first, last = selection.reach[:, 0], selection.reach[:, 1] - 1
    places = (document.starts[first].tolist(), document.ends[last].tolist(), block_scores(selection).tolist())
    blocks = [Block(*place) for place in zip(*places, strict=True)]
    return Candidate(
        selection.sequences,
        selection.evidence,
        blocks,
        selection.asked_tokens,
        considered=document.n_blocks,
        selected_by=selection.by,
        shared=selection.shared,
        lengths=(document.bounds[last, 1] - document.bounds[first, 0]).tolist(),
        title=len(document.title_ids),
        tokens=len(document.token_ids),
    )


def block_scores(selection: Selection) -> NDArray[np.float64]:
    """The selector's scores of the chosen blocks, best first, all finite.

    Blocks that a learned selector was not asked about come last and have LOWEST, or its lowest score where that is lower still.
    """
    scores = selection.scores[selection.taken]
    if len(scores) and scores[-1] == -np.inf:
        asked = scores > -np.inf
        scores[~asked] = scores[asked].min(initial=LOWEST)
    return scores


class ScoredBy(StrEnum):
    """What a document's place comes from; the members rank in this order."""

    MODEL = "model"
    SELECTOR = "selector"
    ORDER = "order"


GROUPS = tuple(ScoredBy)


@dataclass(frozen=True, slots=True, eq=False)
class Ranking:
    """The answer to a call, whatever its dialect.

    Attributes:
        order: document numbers, best first.
        scores: shape (n_documents,), on the scale that was asked for.
        scored_by: of each document.
        blocks: for each document its selected blocks, best first: by the model where it scored each for itself, else by the
            selector.
        budget: tokens a sequence could have.
        n_tokens: that the model reads, or has read before, to select and to score, padding not counted.
        selected_by: what chose the blocks of each document; None where all are read, or there is none.
        degraded: whether time was too short for the usual ranking.
        escalated: what asking the model about doubtful documents came to; None where the bundle does not escalate.
        foreign: documents that are in a script which the model has not learned, or whose query is.
        without_model: whether these are most, so that the model has no say in the order: that given has, and the blocks.
        unknown: documents in a learned script whose words are mostly none of its language.
        logits: shape (n_documents,), the fused logit of those that the model has scored.
        fused: of documents by their numbers, what a fusion with the first stage orders them by; none where none was asked for.
        spared: documents that promise too little for the model to read them.
    """

    order: list[int]
    scores: NDArray[np.float64]
    scored_by: list[ScoredBy]
    blocks: list[list[Block]]
    budget: int
    n_tokens: int
    selected_by: list[SelectedBy | None]
    degraded: bool = False
    escalated: Escalated | None = None
    foreign: int = 0
    without_model: bool = False
    unknown: int = 0
    logits: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    fused: dict[int, float] = field(default_factory=dict)
    spared: int = 0


def preranking(candidates: Sequence[Candidate], fusion: Fusion) -> NDArray[np.float64]:
    """How documents compare by their blocks alone, shape (n_documents,)."""
    return fusion.promise(_evidence(candidates))


def first_to_read(candidates: Sequence[Candidate], config: PipelineConfig) -> list[int]:
    """Document numbers, the first to be read first where there may not be time for all.

    Where the cascade has learned a promise, in turns by that and by the fusion's, unless most documents are in a script or a
    language that the model has not learned: see `spared_documents`.

    Args:
        candidates: of one request, in the order given.
        config: of their pipeline.
    """
    promises, shared = [preranking(candidates, config.fusion)], [c.shared for c in candidates]
    if config.cascade is not None and config.cascade.promise is not None and not _mostly_unlearned(shared):
        promises.insert(0, config.cascade.promise.of(promising(_evidence(candidates), shared)))
    return [int(number) for number in in_turns(*promises)]


def without_spared(candidates: Sequence[Candidate], config: PipelineConfig, results: int | None = RESULTS) -> list[Candidate]:
    """The candidates; those that promise too little for the model are without the sequences that it would have read.

    All go to it where nothing is spared: see `spared_documents`.

    Args:
        candidates: of one request, in the order given.
        config: of their pipeline.
        results: that the request is about; None where the model has to say something of every document.
    """
    if results is None:
        return list(candidates)
    spared = spared_documents(_evidence(candidates), [c.shared for c in candidates], config, results)
    return [
        c._replace(sequences=[], spared=True) if out and c.sequences else c
        for c, out in zip(candidates, spared.tolist(), strict=True)
    ]


def spared_documents(
    evidence: NDArray[np.float64], shared: Sequence[Shared | None], config: PipelineConfig, results: int = RESULTS
) -> NDArray[np.bool_]:
    """Which documents the cascade spares the model, shape (n_documents,): none where the pipeline describes no cascade.

    Where it has learned a promise, a document is spared that promises too little by it and by the fusion without the logit: what
    one overlooks, the other may see. None is where most are in a script or a language that the model has not learned: of these the
    evidence says too little.

    Args:
        evidence: shape (n_documents, 5), see `keyblock.evidence.evidence_of`.
        shared: of each document, what it shares with the query, where that is known.
        config: of the pipeline.
        results: that the request is about.
    """
    cascade = config.cascade
    if cascade is None or cascade.reads(len(evidence), results) == len(evidence) or _mostly_unlearned(shared):
        return np.zeros(len(evidence), np.bool_)
    below = cascade.below_the_bar(config.fusion.promise(evidence), results)
    if cascade.promise is not None:
        below &= cascade.below_the_bar(cascade.promise.of(promising(evidence, shared)), results)
    return below


def _mostly_unlearned(shared: Sequence[Shared | None]) -> bool:
    """Whether most documents, of which that is known, are in a script or a language that the model has not learned."""
    known = [one for one in shared if one is not None]
    return 2 * sum(one.foreign or one.unknown for one in known) > len(known)


def promising(evidence: NDArray[np.float64], shared: Sequence[Shared | None]) -> NDArray[np.float64]:
    """The features of a request's documents that PROMISING names, shape (n_documents, 5).

    Args:
        evidence: shape (n_documents, 5), see `keyblock.evidence.evidence_of`.
        shared: of each document the query's terms in its blocks, where they were kept.
    """
    return np.column_stack([evidence[:, : len(PROMISING) - 1], rare_here(shared)])


def _evidence(candidates: Sequence[Candidate], *, rarity_from_request: bool = False) -> NDArray[np.float64]:
    """Shape (n_documents, 5): rare is what the table of frequencies says, or what few of the request's own blocks have."""
    evidence = np.asarray([c.evidence for c in candidates]).reshape(len(candidates), len(FEATURES) - 1)
    shared = {number: c.shared for number, c in enumerate(candidates) if c.shared is not None and rarity_from_request}
    if shared:
        evidence[list(shared), LEXICAL] = pooled_evidence(list(shared.values()))[:, LEXICAL]
    return evidence


def rank(
    candidates: Sequence[Candidate],
    logits: NDArray[np.float32],
    fusion: Fusion,
    budget: int,
    *,
    raw: bool,
    passages: NDArray[np.float32] | None = None,
    activation: Activation = SIGMOID,
) -> Ranking:
    """Order the candidates: those that the model has scored, then those ordered by their blocks, then the rest.

    A document that the model has not scored and whose blocks say nothing of the query is of the rest: nothing speaks for moving it.
    Where most are in a script that the model has not learned, its logits are noise: see `_without_model`.

    Args:
        candidates: in the order given.
        logits: shape (n_documents,), -inf for those that the model has not scored.
        fusion: from logit and evidence to the fused logit.
        budget: tokens a sequence could have.
        raw: whether scores stay logits.
        passages: shape (n_sequences,), what the model says of each block; none where it reads a document's blocks as one sequence.
        activation: from the fused logit to the score, unless `raw`.
    """
    has_blocks = np.asarray([c.has_blocks for c in candidates], dtype=np.bool_)
    scored = has_blocks & (logits > -np.inf)
    foreign = sum(c.shared is not None and c.shared.foreign for c in candidates)
    unknown = sum(c.shared is not None and c.shared.unknown for c in candidates)
    without_model = 2 * foreign > has_blocks.sum()
    if without_model:
        group, worth = _without_model(candidates, has_blocks, fusion)
    else:
        evidence = _evidence(candidates, rarity_from_request=2 * unknown > has_blocks.sum())
        group = np.where(scored, 0, np.where(has_blocks & speaks(evidence), 1, 2))
        worth = fusion.promise(evidence)  # and among those of the model, the fused logit
        worth[scored] = fusion.fuse(logits[scored], evidence[scored])
        worth[group == 2] = 0.0
    order = np.lexsort((-worth, ~has_blocks & without_model, group))  # stable: equals keep the order given
    scores = _scores(worth, group, order, None if raw else activation)
    return Ranking(
        order.tolist(),
        scores,
        [GROUPS[number] for number in group],
        [c.blocks for c in candidates] if passages is None or without_model else _decided(candidates, passages),
        budget,
        _fed(candidates, scored),
        [c.selected_by for c in candidates],
        foreign=foreign,
        without_model=bool(without_model),
        unknown=unknown,
        logits=worth,
        spared=sum(c.spared for c in candidates),
    )


def beside_first_stage(ranking: Ranking, first_stage: FirstStage, own: Mapping[str, Any] | None) -> Ranking:
    """Order the documents that the model has scored by what it and the first stage say together; the others stay behind them.

    Scores stay what they are: a relevance score is the model's. Equals keep the model's order.

    Args:
        ranking: of all documents.
        first_stage: what the call says of it.
        own: the fusion that the bundle describes.
    """
    fusion = first_stage.fusion(own)
    if fusion is None:
        return ranking
    scored = [number for number in ranking.order if ranking.scored_by[number] is ScoredBy.MODEL]
    fused = fusion.fuse(ranking.logits[scored], first_stage.evidence(fusion, len(ranking.scores))[scored])
    order = [scored[place] for place in np.argsort(-fused, kind="stable")]
    return replace(ranking, order=order + ranking.order[len(scored) :], fused=dict(zip(scored, fused.tolist(), strict=True)))


def _without_model(
    candidates: Sequence[Candidate], has_blocks: NDArray[np.bool_], fusion: Fusion
) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
    """The group and the worth of each document, shape (n_documents,) each: from its place in the order given and its blocks.

    They stay in the order given where no block shares a term with the query, and where it is not known of all.
    """
    group, worth = np.full(len(candidates), 2), np.zeros(len(candidates))
    shared = [c.shared for c in candidates if c.has_blocks and c.shared is not None]
    if len(shared) == has_blocks.sum() and (by_blocks := fusion.promise(pooled_evidence(shared))).any():
        group[has_blocks], worth[has_blocks] = 1, beside_the_order(by_blocks)
    return group, worth


def _fed(candidates: Sequence[Candidate], scored: NDArray[np.bool_]) -> int:
    """Tokens that the model was fed, to select and to score."""
    fed = (packed for c, was in zip(candidates, scored, strict=True) if was for packed in c.sequences)
    return sum(len(packed.ids) for packed in fed) + sum(c.selection_tokens for c in candidates)


def _decided(candidates: Sequence[Candidate], passages: NDArray[np.float32]) -> list[list[Block]]:
    """Each document's blocks by what the model says of them; as the selector has them where it has not scored the document."""
    of_documents = np.split(passages, np.cumsum([len(c.sequences) for c in candidates]))[:-1]
    return [
        by_scores(c.blocks, scores) if c.sequences and (scores > -np.inf).all() else c.blocks
        for c, scores in zip(candidates, of_documents, strict=True)
    ]


def by_scores(blocks: Sequence[Block], scores: NDArray[np.float32]) -> list[Block]:
    """The blocks with these scores of theirs, shape (n_blocks,) in document order, best first; equals in document order."""
    in_document = zip(sorted(blocks), scores.tolist(), strict=True)
    return sorted((Block(block.start, block.end, score) for block, score in in_document), key=lambda block: -block.score)


def _scores(
    worth: NDArray[np.float64], group: NDArray[np.intp], order: NDArray[np.intp], activation: Activation | None
) -> NDArray[np.float64]:
    """Scores that never grow along the order: the model's, then steps below its lowest, then the lowest of all.

    Equal worth gives equal scores.
    """
    bounded = activation is not None and activation.name == "sigmoid"
    scores = worth.copy() if activation is None else activation.scores(worth)
    unscored = np.asarray(UNSCORED_LOGIT)
    steps = order[group[order] == 1]
    lowest = scores[group == 0].min(initial=float(unscored if activation is None else activation.scores(unscored)))
    place = np.searchsorted(-worth[steps], -worth[steps]) + 1  # of the first of its equals
    share = place / (len(steps) + 1)
    scores[steps] = lowest * (1 - share) if bounded else lowest - share
    scores[group == 2] = 0.0 if bounded else min(LOWEST, scores[group < 2].min(initial=0.0))
    return scores
