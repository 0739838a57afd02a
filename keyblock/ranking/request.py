"""A request for a ranking, as the flow reads it, whoever makes it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from keyblock.description import PipelineConfig
from keyblock.fusion import NOT_SENT, FirstStage
from keyblock.pre_ranking import RESULTS
from keyblock.prepared import PreparedQuery
from keyblock.ranking.spans import THRESHOLD


class AnswerOptions(NamedTuple):
    """What a request asks for in addition to the order.

    Attributes:
        spans: whether results name the spans that answer.
        threshold: the probability that a span must reach.
        most: the most spans of one document that are shown, contexts have all; none: no limit.
        min_score: the probability that a result must reach; "auto" for what the bundle recommends, none for no bound.
        prune: whether results have a context.
        tokens: the most tokens of all contexts together; none: no limit.
        top_n: the most results, after `min_score` is applied; 0 for all.
        diversity: how much results are to differ from those before them, 0 to 1; see `keyblock.ranking.diversity`.
        read_all: whether the model reads every document, whatever the pre-ranking says.
    """

    spans: bool = False
    threshold: float = THRESHOLD
    most: int | None = None
    min_score: float | str | None = None
    prune: bool = False
    tokens: int | None = None
    top_n: int = 0
    diversity: float = 0.0
    read_all: bool = False

    @property
    def reads_texts(self) -> bool:
        """Whether the documents' texts are needed to answer."""
        return self.spans or self.prune

    @property
    def in_turns(self) -> bool:
        """Whether the answer may take long: it is then made in turns with others."""
        return self.reads_texts or self.diversity > 0

    def results(self, first_stage: FirstStage, config: PipelineConfig) -> int | None:
        """How many results the request is about, RESULTS if it does not say; None if the model has to judge each document.

        The model has to if answers depend on its score alone, or if a fusion with the first stage may lift documents that promise
        little.
        """
        if self.read_all or first_stage.fusion(config.first_stage) is not None:
            return None
        judged = self.reads_texts or self.min_score is not None
        return self.top_n or (None if judged else RESULTS)


ORDER_ALONE = AnswerOptions()


class Documents(Protocol):
    """A request's documents, in the order given."""

    @property
    def texts(self) -> Sequence[str]:
        """The text of each document; "" if it is not at hand."""

    @property
    def stored_ids(self) -> Mapping[int, str]:
        """The ids of the documents that are sent as an id alone, by number."""


@dataclass(frozen=True, slots=True)
class Texts:
    """Documents of which the flow needs the texts alone; each may be "" if the request asks for no spans or contexts."""

    texts: Sequence[str]
    stored_ids: Mapping[int, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RankRequest:
    """A query and its documents.

    Attributes:
        query: not blank, or prepared already.
        documents: in first-stage order; whoever drives the flow prepares them.
        max_tokens: tokens a sequence may have; None for the pipeline's own budget.
        raw_scores: whether scores stay logits.
        instruction: the task for a model with a prompt; None for the bundle's own.
        asked: the requested parts of the answer beside the order.
        first_stage: the first stage's scores, and how to fuse them.
        second_look: whether the model may read on in the best documents, if the pipeline says how.
        numbers: of the documents in answer and warnings, if they are not their places.
    """

    query: str | PreparedQuery
    documents: Documents
    max_tokens: float | None = None
    raw_scores: bool = False
    instruction: str | None = None
    asked: AnswerOptions = ORDER_ALONE
    first_stage: FirstStage = NOT_SENT
    second_look: bool = True
    numbers: Sequence[int] | None = None

    def number(self, place: int) -> int:
        """The number of the document at this place."""
        return place if self.numbers is None else self.numbers[place]
