"""From logits and lexical evidence to an order: fusion, the relevance score, and documents that the model cannot score."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from keyblock.description import PipelineConfig
from keyblock.fusion import FEATURES, LEXICAL, Activation, FirstStage, Fusion, SecondLook, has_evidence
from keyblock.packing import Packed, title_in
from keyblock.pipeline import Selection
from keyblock.pooled import Shared, fused_with_order, pooled_evidence, rare_here
from keyblock.pre_ranking import PRIOR_FEATURES, RESULTS, in_turns
from keyblock.prepared import PreparedDocument
from keyblock.selectors import SelectedBy, rank_blocks

UNSCORED_LOGIT = -5.0  # documents that the model has not scored stay below it: nothing is known of their relevance
LOWEST = -100.0  # the logit of a document without a block; its score as a probability is 0


SIGMOID = Activation()


class Block(NamedTuple):
    """A selected block: offsets in the text, in code points; the model's score if it scored the passage, else the selector's."""

    start: int
    end: int
    score: float


class Further(NamedTuple):
    """The next best blocks of a document, in document order, kept for a second look.

    Attributes:
        ids: the tokens of each, shape (n_tokens,).
        places: shape (n_blocks, 2), where each starts and ends in the text, in code points.
    """

    ids: list[NDArray[np.int32]]
    places: NDArray[np.int32]


class Looked(NamedTuple):
    """What a second look found.

    Attributes:
        documents: the numbers of the documents that it read.
        fused: the fused logit of each after it.
        logits: for each of them those of its further blocks, shape (n_blocks,), -inf where time was up; of a document with none,
            that of the first look.
        sequences: for each of them what the model read.
        marks: for each of them the token logits of each sequence; None if tokens are not marked.
        judged: how all documents compared before it; None without one.
    """

    documents: Sequence[int] = ()
    fused: Sequence[float] = ()
    logits: Sequence[NDArray[np.float32]] = ()
    sequences: Sequence[list[Packed]] = ()
    marks: Sequence[Sequence[NDArray[np.float32]]] | None = None
    judged: "Judged | None" = None

    @property
    def tokens(self) -> int:
        """Tokens that the model read."""
        read = zip(self.sequences, self.logits, strict=True)
        return sum(
            len(packed.ids) for sequences, logits in read for packed, one in zip(sequences, logits, strict=False) if one > -np.inf
        )


NOTHING_LOOKED = Looked()


class Candidate(NamedTuple):
    """The data kept of a document after it has met the query.

    Attributes:
        sequences: the model's inputs; none for a document without a block. If there are several, each holds one block, in document
            order.
        evidence: shape (5,), see `keyblock.fusion.evidence_of`.
        blocks: the blocks in `sequences`, best first.
        selection_tokens: tokens that a learned selector read to choose them.
        read: False if there was no time to prepare the document.
        considered: number of blocks of the document.
        selected_by: what chose the blocks; None if all are read, or there is none.
        shared: the query's terms in its blocks, and whether the model has learned such texts; see `Selection.shared`.
        lengths: tokens of each of `blocks`.
        title: tokens of its title.
        tokens: tokens of its text.
        skipped: whether the pre-ranking skipped it, so that the model does not read its blocks; `sequences` is then empty.
        further: its next best blocks, for a second look; None without one.
        vectors: shape (n_blocks, dimensions), of each of `blocks`; None if nothing compares them, or the document has none.
        meaning: see `Selection.meaning`.
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
    skipped: bool = False
    further: Further | None = None
    vectors: NDArray[np.int8] | None = None
    meaning: float | None = None

    @property
    def has_blocks(self) -> bool:
        """Whether the document has blocks, by which it can be ordered."""
        return bool(self.sequences) or self.skipped

    def further_sequences(self, after: int, budget: int) -> list[Packed]:
        """A sequence of each further block alone, behind the query and the title as the first look read them.

        Args:
            after: number of special tokens at the end of a sequence.
            budget: tokens that a sequence may have.
        """
        if self.further is None or not self.sequences:
            return []
        first = self.sequences[0]
        head = first.ids[: first.split + title_in(first, sum(self.lengths), self.title, after)]
        end = first.ids[len(first.ids) - after :]
        room = budget - len(head) - after
        return [
            Packed(np.concatenate([head, ids[:room], end]), first.split, np.zeros(1, np.intp), cut=len(ids) > room)
            for ids in self.further.ids
        ]


UNREAD = Candidate([], np.zeros(len(FEATURES) - 1), [], read=False)


def candidate(document: PreparedDocument, selection: Selection, further: int = 0, *, dimensions: int = 0) -> Candidate:
    """Keep only what scoring and answering need; the prepared document itself is large.

    Args:
        document: the document.
        selection: its blocks.
        further: how many of the next best blocks are kept for a second look.
        dimensions: how many of the dimensions of the blocks' vectors are kept: the encoder's, which all documents have; 0: none.
    """
    if not document.n_blocks:
        return Candidate([], selection.evidence, [])
    first, last = selection.reach[:, 0], selection.reach[:, 1] - 1
    places = (document.starts[first].tolist(), document.ends[last].tolist(), block_scores(selection).tolist())
    blocks = [Block(*place) for place in zip(*places, strict=True)]
    return Candidate(
        selection.sequences,
        selection.evidence,
        blocks,
        selection.selection_tokens,
        considered=document.n_blocks,
        selected_by=selection.by,
        shared=selection.shared,
        lengths=(document.bounds[last, 1] - document.bounds[first, 0]).tolist(),
        title=len(document.title_ids),
        tokens=len(document.token_ids),
        further=_further(document, selection, further) if further else None,
        vectors=document.vectors[selection.taken, :dimensions] if dimensions and document.vectors is not None else None,
        meaning=selection.meaning,
    )


def _further(document: PreparedDocument, selection: Selection, most: int) -> Further:
    order = rank_blocks(selection.scores)
    taken = np.zeros(len(order), bool)
    taken[selection.taken] = True
    rest = np.sort(order[~taken[order]][:most])
    ids = [document.token_ids[start:end].copy() for start, end in document.bounds[rest].tolist()]  # a view would keep all of it
    return Further(ids, np.stack([document.starts[rest], document.ends[rest]], axis=1))


def block_scores(selection: Selection) -> NDArray[np.float64]:
    """The selector's scores of the chosen blocks, best first, all finite.

    Blocks that a learned selector did not score come last and have LOWEST, or its lowest score if that is lower still.
    """
    scores = selection.scores[selection.taken]
    if len(scores) and scores[-1] == -np.inf:
        scored = scores > -np.inf
        scores[~scored] = scores[scored].min(initial=LOWEST)
    return scores


class ScoredBy(StrEnum):
    """What decides a document's place; the members rank in this order."""

    MODEL = "model"
    SELECTOR = "selector"
    ORDER = "order"


GROUPS = tuple(ScoredBy)


@dataclass(frozen=True, slots=True, eq=False)
class Ranking:
    """The answer to a call, whatever its dialect.

    Attributes:
        order: document numbers, best first.
        scores: shape (n_documents,), on the requested scale.
        scored_by: what decided the place of each document.
        blocks: for each document its selected blocks, best first: by the model if it scored each separately, else by the selector.
        budget: tokens a sequence could have.
        n_tokens: tokens that the model read to select and to score, now or before, without padding.
        selected_by: what chose the blocks of each document; None if all are read, or there is none.
        degraded: whether time was too short for the full ranking.
        foreign: number of documents where they or the query are in a script that the model has not learned.
        without_model: whether most documents are foreign: the given order and the blocks then decide, not the model.
        unknown: number of documents in a learned script whose words are mostly from an unlearned language.
        logits: shape (n_documents,), the fused logit of each document that the model has scored.
        fused: the values by which a fusion with the first stage orders documents, by document number; empty without a fusion.
        skipped: number of documents that the pre-ranking skipped.
        looked: number of documents that a second look read.
        looked_tokens: how many of `n_tokens` it read.
    """

    order: list[int]
    scores: NDArray[np.float64]
    scored_by: list[ScoredBy]
    blocks: list[list[Block]]
    budget: int
    n_tokens: int
    selected_by: list[SelectedBy | None]
    degraded: bool = False
    foreign: int = 0
    without_model: bool = False
    unknown: int = 0
    logits: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    fused: dict[int, float] = field(default_factory=dict)
    skipped: int = 0
    looked: int = 0
    looked_tokens: int = 0


def prior_scores(candidates: Sequence[Candidate], fusion: Fusion) -> NDArray[np.float64]:
    """How documents compare by their blocks alone, shape (n_documents,)."""
    return fusion.prior(_evidence(candidates))


def first_to_read(candidates: Sequence[Candidate], config: PipelineConfig) -> list[int]:
    """Document numbers in the order in which the model reads them, since there may not be time for all.

    If the pre-ranking has learned a prior score, that and the fusion's take turns, unless most documents are in a script or a
    language that the model has not learned: see `skipped_documents`.

    Args:
        candidates: the documents of one request, in the order given.
        config: the pipeline's description.
    """
    priors, shared = [prior_scores(candidates, config.fusion)], [c.shared for c in candidates]
    if config.pre_ranking is not None and config.pre_ranking.prior is not None and not _mostly_unlearned(shared):
        priors.insert(0, config.pre_ranking.prior.of(prior_features(_evidence(candidates), shared)))
    return [int(number) for number in in_turns(*priors)]


def without_skipped(candidates: Sequence[Candidate], config: PipelineConfig, results: int | None = RESULTS) -> list[Candidate]:
    """The candidates, without sequences for those that the pre-ranking skips: see `skipped_documents`.

    Args:
        candidates: the documents of one request, in the order given.
        config: the pipeline's description.
        results: how many results the request is about; None if the model has to judge every document.
    """
    if results is None:
        return list(candidates)
    skipped = skipped_documents(_evidence(candidates), [c.shared for c in candidates], config, results)
    skipped[_nearest_in_meaning(candidates, results)] = False
    return [
        c._replace(sequences=[], skipped=True) if out and c.sequences else c
        for c, out in zip(candidates, skipped.tolist(), strict=True)
    ]


def _nearest_in_meaning(candidates: Sequence[Candidate], results: int) -> list[int]:
    """Numbers of the understood documents that are nearest to the query, one for each result: they may share no word with it."""
    known = [(-c.meaning, number) for number, c in enumerate(candidates) if c.meaning is not None]
    return [number for _, number in sorted(known)[:results]]


def skipped_documents(
    evidence: NDArray[np.float64], shared: Sequence[Shared | None], config: PipelineConfig, results: int = RESULTS
) -> NDArray[np.bool_]:
    """Which documents the pre-ranking skips, shape (n_documents,): none without a pre-ranking.

    If the pre-ranking has learned a prior score, it skips a document that is too low both by that and by `Fusion.prior`:
    one may find what the other overlooks. It skips none if most documents are in a script or a language that
    the model has not learned, since their evidence says too little.

    Args:
        evidence: shape (n_documents, 5), see `keyblock.fusion.evidence_of`.
        shared: the query's terms in each document's blocks, if known.
        config: the pipeline's description.
        results: how many results the request is about.
    """
    pre_ranking = config.pre_ranking
    if pre_ranking is None or pre_ranking.reads(len(evidence), results) == len(evidence) or _mostly_unlearned(shared):
        return np.zeros(len(evidence), np.bool_)
    below = pre_ranking.below_the_bar(config.fusion.prior(evidence), results)
    if pre_ranking.prior is not None:
        below &= pre_ranking.below_the_bar(pre_ranking.prior.of(prior_features(evidence, shared)), results)
    return below


def _mostly_unlearned(shared: Sequence[Shared | None]) -> bool:
    """Whether most of the documents with known terms are in a script or a language that the model has not learned."""
    known = [one for one in shared if one is not None]
    return 2 * sum(one.foreign or one.unknown for one in known) > len(known)


def prior_features(evidence: NDArray[np.float64], shared: Sequence[Shared | None]) -> NDArray[np.float64]:
    """The features of a request's documents that PRIOR_FEATURES names, shape (n_documents, 5).

    Args:
        evidence: shape (n_documents, 5), see `keyblock.fusion.evidence_of`.
        shared: the query's terms in each document's blocks, if they were kept.
    """
    return np.column_stack([evidence[:, : len(PRIOR_FEATURES) - 1], rare_here(shared)])


def _evidence(candidates: Sequence[Candidate], *, rarity_from_request: bool = False) -> NDArray[np.float64]:
    """Shape (n_documents, 5); the frequencies decide which terms are rare, or the request's own blocks (`rarity_from_request`)."""
    evidence = np.asarray([c.evidence for c in candidates]).reshape(len(candidates), len(FEATURES) - 1)
    shared = {number: c.shared for number, c in enumerate(candidates) if c.shared is not None and rarity_from_request}
    if shared:
        evidence[list(shared), LEXICAL] = pooled_evidence(list(shared.values()))[:, LEXICAL]
    return evidence


class Judged(NamedTuple):
    """How documents compare.

    Attributes:
        group: shape (n_documents,), which of GROUPS decides the document's place.
        worth: shape (n_documents,), orders the documents of a group; the fused logit of those that the model has scored.
        given: shape (n_documents,), whether a document without a block stays behind all others of its group.
        foreign, unknown, without_model: see Ranking.
    """

    group: NDArray[np.intp]
    worth: NDArray[np.float64]
    given: NDArray[np.bool_]
    foreign: int
    unknown: int
    without_model: bool

    @property
    def order(self) -> NDArray[np.intp]:
        """Document numbers, best first; ties keep the order given."""
        return np.lexsort((-self.worth, self.given, self.group))


def judge(candidates: Sequence[Candidate], logits: NDArray[np.float32], fusion: Fusion, near: float = math.inf) -> Judged:
    """How the candidates compare; the arguments are those of `rank`."""
    has_blocks = np.asarray([c.has_blocks for c in candidates], dtype=np.bool_)
    scored = has_blocks & (logits > -np.inf)
    foreign = sum(c.shared is not None and c.shared.foreign for c in candidates)
    unknown = sum(c.shared is not None and c.shared.unknown for c in candidates)
    without_model = bool(2 * foreign > has_blocks.sum())
    if without_model:
        group, worth = _without_model(candidates, has_blocks, fusion)
    else:
        evidence = _evidence(candidates, rarity_from_request=2 * unknown > has_blocks.sum())
        group = np.where(scored, 0, np.where(has_blocks & has_evidence(evidence, near), 1, 2))
        worth = fusion.prior(evidence)  # documents that the model has scored get the fused logit next
        worth[scored] = fusion.fuse(logits[scored], evidence[scored])
        worth[group == 2] = 0.0
    return Judged(group, worth, ~has_blocks & without_model, foreign, unknown, without_model)


def rank(
    candidates: Sequence[Candidate],
    logits: NDArray[np.float32],
    fusion: Fusion,
    budget: int,
    *,
    near: float = math.inf,
    passages: NDArray[np.float32] | None = None,
    activation: Activation | None = SIGMOID,
    looked: Looked = NOTHING_LOOKED,
) -> Ranking:
    """Order the candidates: first those that the model has scored, then those ordered by their blocks, then the rest.

    A document belongs to the rest if the model has not scored it and its blocks are no evidence: there is no reason to move it. If
    most documents are in a script that the model has not learned, its logits are noise: see `_without_model`.

    Args:
        candidates: in the order given.
        logits: shape (n_documents,), -inf for documents that the model has not scored.
        fusion: maps logit and evidence to the fused logit.
        budget: tokens a sequence could have.
        near: how near tokens must be to be evidence, see `PipelineConfig.near_tokens`.
        passages: shape (n_sequences,), the model's score of each block; none if it reads a document's blocks as one sequence.
        activation: maps the fused logit to the score; None: scores stay logits.
        looked: what a second look found.
    """
    judged = looked.judged or judge(candidates, logits, fusion, near)
    group, without_model = judged.group, judged.without_model
    by_model = group == GROUPS.index(ScoredBy.MODEL)
    joined = SecondLook.joined(np.where(by_model, judged.worth, -np.inf), list(looked.documents), looked.fused)
    worth = np.where(by_model, joined, judged.worth)
    order = judged._replace(worth=worth).order
    scores = _scores(worth, group, order, activation)
    return Ranking(
        order.tolist(),
        scores,
        [GROUPS[number] for number in group],
        _blocks(candidates, looked) if passages is None or without_model else _decided(candidates, passages),
        budget,
        _fed(candidates, logits) + looked.tokens,
        [c.selected_by for c in candidates],
        foreign=judged.foreign,
        without_model=without_model,
        unknown=judged.unknown,
        logits=worth,
        skipped=sum(c.skipped for c in candidates),
        looked=sum(map(bool, looked.sequences)),
        looked_tokens=looked.tokens,
    )


def with_first_stage(ranking: Ranking, first_stage: FirstStage, description: Mapping[str, Any] | None) -> Ranking:
    """Order the documents that the model has scored by a fusion of its scores and the first stage; the others stay behind them.

    The scores do not change: a relevance score is the model's. Ties keep the model's order.

    Args:
        ranking: the ranking of all documents.
        first_stage: the call's first-stage scores, and the fusion it requests.
        description: the bundle's description of a fusion.
    """
    fusion = first_stage.fusion(description)
    if fusion is None:
        return ranking
    scored = [number for number in ranking.order if ranking.scored_by[number] is ScoredBy.MODEL]
    fused = fusion.fuse(ranking.logits[scored], first_stage.evidence(fusion, len(ranking.scores))[scored])
    order = [scored[place] for place in np.argsort(-fused, kind="stable")]
    return replace(ranking, order=order + ranking.order[len(scored) :], fused=dict(zip(scored, fused.tolist(), strict=True)))


def _without_model(
    candidates: Sequence[Candidate], has_blocks: NDArray[np.bool_], fusion: Fusion
) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
    """The group and the worth of each document, each of shape (n_documents,), from its place in the order given and its blocks.

    The documents stay in the order given if no block shares a term with the query, or if some document's terms are not known.
    """
    group, worth = np.full(len(candidates), 2), np.zeros(len(candidates))
    shared = [c.shared for c in candidates if c.has_blocks and c.shared is not None]
    if len(shared) == has_blocks.sum() and (by_blocks := fusion.prior(pooled_evidence(shared))).any():
        group[has_blocks], worth[has_blocks] = 1, fused_with_order(by_blocks)
    return group, worth


def _fed(candidates: Sequence[Candidate], logits: NDArray[np.float32]) -> int:
    """Tokens that the model read to select and to score."""
    scored = zip(candidates, (logits > -np.inf).tolist(), strict=True)
    fed = (packed for c, is_scored in scored if is_scored for packed in c.sequences)
    return sum(len(packed.ids) for packed in fed) + sum(c.selection_tokens for c in candidates)


def _blocks(candidates: Sequence[Candidate], looked: Looked) -> list[list[Block]]:
    """Each document's blocks, those of a second look behind the others: the best first."""
    blocks = [c.blocks for c in candidates]
    for number, logits in zip(looked.documents, looked.logits, strict=True):
        further = candidates[number].further
        if further is not None and len(further.ids):
            found = zip(further.places.tolist(), logits.tolist(), strict=True)
            read = [Block(start, end, logit) for (start, end), logit in found if logit > -math.inf]
            blocks[number] = blocks[number] + sorted(read, key=lambda block: -block.score)
    return blocks


def _decided(candidates: Sequence[Candidate], passages: NDArray[np.float32]) -> list[list[Block]]:
    """Each document's blocks by the model's scores of them, or by the selector's if the model has not scored the document."""
    of_documents = np.split(passages, np.cumsum([len(c.sequences) for c in candidates]))[:-1]
    return [
        by_scores(c.blocks, scores) if c.sequences and (scores > -np.inf).all() else c.blocks
        for c, scores in zip(candidates, of_documents, strict=True)
    ]


def by_scores(blocks: Sequence[Block], scores: NDArray[np.float32]) -> list[Block]:
    """The blocks with new scores, best first; ties in document order. `scores` has shape (n_blocks,), in document order."""
    in_document = zip(sorted(blocks), scores.tolist(), strict=True)
    return sorted((Block(block.start, block.end, score) for block, score in in_document), key=lambda block: -block.score)


def _scores(
    worth: NDArray[np.float64], group: NDArray[np.intp], order: NDArray[np.intp], activation: Activation | None
) -> NDArray[np.float64]:
    """Scores that never grow along the order: the model's, then steps below the model's lowest, then the lowest of all.

    Equal worth gives equal scores.
    """
    bounded = activation is not None and activation.name == "sigmoid"
    scores = worth.copy() if activation is None else activation.scores(worth)
    unscored = np.asarray(UNSCORED_LOGIT)
    steps = order[group[order] == 1]
    lowest = scores[group == 0].min(initial=float(unscored if activation is None else activation.scores(unscored)))
    place = np.searchsorted(-worth[steps], -worth[steps]) + 1  # the place of the first with equal worth
    share = place / (len(steps) + 1)
    scores[steps] = lowest * (1 - share) if bounded else lowest - share
    scores[group == 2] = 0.0 if bounded else min(LOWEST, scores[group < 2].min(initial=0.0))
    return scores
