"""A bundle in this process: documents in, a ranking out, without a server.

>>> with Ranker.open("models/default") as ranker:                                                 # doctest: +SKIP
...     ranking = ranker.rank("Which river flows through Vienna?", texts, top_n=3)
...     print(ranking[0].relevance_score, ranking[0].blocks[0].text)

Needs the extra `cpu` or `gpu`.
"""

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from numbers import Integral, Real
from pathlib import Path
from reprlib import repr as shown
from types import TracebackType
from typing import Any, Literal, NamedTuple, Protocol, Self, TypedDict, Unpack, cast

from keyblock.bundle import Bundle, load_bundle
from keyblock.fusion import FirstStage
from keyblock.ranking.answer import AUTO, Answered
from keyblock.ranking.flow import Flow, Score, ranking
from keyblock.ranking.request import AnswerOptions, RankRequest, Texts
from keyblock.ranking.spans import THRESHOLD
from keyblock.results import Block, Ranking, Result, Span
from keyblock.scoring import Model, drive
from keyblock.text.tokenizer import without_surrogates


class Beside(TypedDict, total=False):
    """Options in addition to the order.

    Attributes:
        relevant_spans: whether results name the spans that answer.
        span_threshold: the probability that a sentence of a span must reach, 0 to 1; 0.1 by default.
        max_spans: the most spans of a document; all by default.
        min_score: the probability that a result must reach, 0 to 1, or "auto" for what the bundle recommends.
        diversity: how much a result is to differ from those before it, 0 to 1; see `keyblock.ranking.diversity`.
        prune: whether results have a context: the parts to pass on.
        max_context_tokens: the most tokens of all contexts together.
        first_stage_scores: for each document its score from the first stage, higher is better; `fusion` reads them.
        fusion: orders by the model and the first stage together: the name of a fusion, or a mapping of its name and parameters; by
            default the bundle's, if there are first_stage_scores.
        read_all: the model reads every document, also those that the pre-ranking would skip.
        second_look: False: the model does not read on in the best documents.
    """

    relevant_spans: bool
    span_threshold: float | None
    max_spans: int | None
    min_score: float | Literal["auto"] | None
    diversity: float | None
    prune: bool
    max_context_tokens: int | None
    first_stage_scores: Sequence[float] | None
    fusion: str | Mapping[str, Any] | None
    read_all: bool
    second_look: bool | None


class HasText(Protocol):
    """An object with a `text`, and optionally a `title` and an `id`."""

    text: str


Given = str | Mapping[str, Any] | HasText


class _Document(NamedTuple):
    """The fields of a document that the ranker reads."""

    text: str
    title: str | None = None
    id: str | int | None = None


class Ranker:
    """Ranks in this process as POST /rerank does in the service: same order, same blocks, same scores up to arithmetic.

    Threads may share it. Close it, or use it in a ``with`` block, to free the model's memory.

    Args:
        bundle: describes how to prepare documents and make scores.
        model: the bundle's opened model.

    Attributes:
        bundle: as given.
    """

    def __init__(self, bundle: Bundle, model: Model) -> None:
        self.bundle = bundle
        self._model: Model | None = model

    @classmethod
    def open(
        cls, bundle: str | Path | Bundle, *, provider: str = "auto", precision: str = "auto", threads: int | None = None
    ) -> Self:
        """Load a bundle and open its graphs.

        Args:
            bundle: its directory, or a loaded bundle.
            provider: where the model runs: auto, cpu, openvino, cuda or tensorrt.
            precision: the arithmetic: auto, fp32, bf16, fp16, int8 or int8-static.
            threads: number of computing threads; by default as many as the process may use.

        Raises BundleError, ProviderError or SessionError, each with one line, and ImportError without ONNX Runtime.
        """
        try:
            from keyblock.runtime.model import open_model
        except ImportError as error:
            raise ImportError(f"install what runs a bundle: pip install 'keyblock[cpu]', or gpu ({error})") from None
        loaded = bundle if isinstance(bundle, Bundle) else load_bundle(bundle)
        return cls(loaded, open_model(loaded, provider, threads, precision))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Release the model; rankings in other threads finish. A closed ranker cannot rank."""
        self._model = None

    def rank(
        self,
        query: str,
        documents: Iterable[Given | None] | Given,
        *,
        top_n: int | None = None,
        max_tokens_per_doc: float | None = None,
        return_blocks: bool = True,
        raw_scores: bool = False,
        instruction: str | None = None,
        **beside: Unpack[Beside],
    ) -> Ranking:
        """Rank documents for a query.

        Args:
            query: the query.
            documents: in first-stage order: texts, mappings with text, title and id, or objects with such attributes; None is an
                empty text, and an empty list gives an empty ranking.
            top_n: results to return, best first; 0 or None for all.
            max_tokens_per_doc: bound on the tokens of a sequence, clipped to the range that the model was measured at.
            return_blocks: whether results have blocks.
            raw_scores: scores on the logit scale instead of probabilities.
            instruction: the task for a model that answers in words, in place of its bundle's; other models do not read it.
            beside: options in addition to the order; see Beside.

        Raises TypeError for an argument of a wrong type, and ValueError for a blank query, a negative number, a closed ranker, and
        wrong fields about the first stage.
        """
        began = time.perf_counter()
        model = self._model
        if model is None:
            raise ValueError("the ranker is closed: open the bundle again")
        _check(query, instruction, top_n, max_tokens_per_doc)
        read = [_read(one, f"documents[{number}]") for number, one in enumerate(_as_documents(documents))]
        request = RankRequest(
            without_surrogates(query),
            Texts([one.text for one in read]),
            max_tokens_per_doc,
            raw_scores,
            None if instruction is None else without_surrogates(instruction),
            _answer_options(beside)._replace(top_n=top_n or 0),
            FirstStage.read(beside.get("first_stage_scores"), beside.get("fusion"), len(read)),
            beside.get("second_look") in (None, True),  # 0 and numpy's False are no True
        )
        texts, titles = [without_surrogates(one.text) for one in read], [without_surrogates(one.title or "") for one in read]
        pipeline = self.bundle.pipeline
        prepared, scoring = pipeline.prepare_documents(texts, titles), list[float]()
        whole = drive(_timed(ranking(request, pipeline), scoring), prepared, pipeline.aggregator, model)
        refused = whole.refused
        ended = time.perf_counter()
        seconds = {"prepare": scoring[0] - began, "model": ended - scoring[0], "total": ended - began}
        results = tuple(_result(read[number], whole, number, return_blocks=return_blocks) for number in whole.ranking.order)
        return Ranking(
            results,
            model=self.bundle.manifest.name,
            warnings=tuple(whole.warnings),
            total_tokens=whole.ranking.n_tokens,
            timings_ms={stage: 1000 * taken for stage, taken in seconds.items()},
            min_score=refused.least if refused else None,
            below_min_score=refused.left_out if refused else None,
            best_below_min_score=refused.best if refused else None,
            context=whole.saved,
        )


def _timed(flow: Flow[Answered], scoring: list[float]) -> Flow[Answered]:
    """The flow; `scoring` gets the time when the model begins to score, which may be to read on later."""
    outcome: Any = None
    while True:
        try:
            step = flow.send(outcome)
        except StopIteration as ended:
            return cast(Answered, ended.value)
        if isinstance(step, Score):
            scoring.append(time.perf_counter())
        outcome = yield step


def _as_documents(given: Iterable[Given | None] | Given) -> Iterable[object]:
    """The documents; a single one becomes a list of one. Raises TypeError if `given` is neither a document nor iterable."""
    if isinstance(given, str | Mapping) or hasattr(given, "text"):
        return [given]
    if not isinstance(given, Iterable):
        raise TypeError(f"documents must be a list of texts, mappings or objects with a text, not {shown(given)}")
    return given


def _read(given: object, name: str) -> _Document:
    """Read one document. Raises TypeError, whose message calls it `name`."""
    if isinstance(given, str) or given is None:
        return _Document(given or "")
    if isinstance(given, Mapping):
        text, title, identity = (given.get(field) for field in _Document._fields)
        text = "" if text is None and "text" in given else text
    elif hasattr(given, "text"):
        text, title, identity = (getattr(given, field, None) for field in _Document._fields)
        text = "" if text is None else text
    else:
        raise TypeError(f"{name} must be a string, a mapping or an object with a text, not {shown(given)}")
    if not isinstance(text, str):
        raise TypeError(f"{name} must have a text that is a string, not {shown(text)}")
    if title is not None and not isinstance(title, str):
        raise TypeError(f"{name} must have a title that is a string, or none, not {shown(title)}")
    if isinstance(identity, bool) or not isinstance(identity, str | int | None):
        raise TypeError(f"{name} must have an id that is a string or an integer, or none, not {shown(identity)}")
    return _Document(text, title, identity)


def _check(query: str, instruction: str | None, top_n: int | None, max_tokens: float | None) -> None:
    if not isinstance(instruction, str | None):
        raise TypeError(f"instruction must be a string, or none, not {shown(instruction)}")
    if not isinstance(query, str):
        raise TypeError(f"query must be a string, not {shown(query)}")
    if not query.strip():
        raise ValueError("query is empty: say what to rank the documents for")
    if isinstance(max_tokens, float) and math.isnan(max_tokens):
        raise ValueError("max_tokens_per_doc must be a number, or none, not nan")
    if isinstance(max_tokens, bool) or not isinstance(max_tokens, Real | None):
        raise TypeError(f"max_tokens_per_doc must be a number, or none, not {shown(max_tokens)}")
    if top_n is None:
        return
    if isinstance(top_n, bool) or not hasattr(top_n, "__index__"):  # numpy's integers are accepted too
        raise TypeError(f"top_n must be a whole number, or none, not {shown(top_n)}")
    if top_n < 0:
        raise ValueError(f"top_n must be at least 0, not {top_n}")


def _answer_options(beside: Beside) -> AnswerOptions:
    """The answer's options. Raises ValueError for a wrong bound, TypeError for an unknown option or a switch that is no bool."""
    if unknown := beside.keys() - Beside.__annotations__.keys():
        raise TypeError(f"rank() has no option {min(unknown)!r}; it knows {', '.join(Beside.__annotations__)}")
    given = dict[str, Any](beside)
    for name in ("relevant_spans", "prune", "read_all", "second_look"):
        if (switch := given.get(name)) not in (None, False, True):  # a mapping, as the service accepts, may say "disabled"
            raise TypeError(f"{name} must be True or False, not {shown(switch)}; options of spans stand beside")
    for name, least in (("span_threshold", None), ("min_score", AUTO), ("diversity", None)):
        score = given.get(name)
        if score not in (None, least) and (isinstance(score, bool) or not isinstance(score, Real) or not 0 <= float(score) <= 1):
            raise ValueError(f"{name} must be from 0 to 1{', or auto' if least else ''}, not {score!r}")
    for name in ("max_spans", "max_context_tokens"):
        count = given.get(name)
        if count is not None and (isinstance(count, bool) or not isinstance(count, Integral) or count < 1):
            raise ValueError(f"{name} must be a whole number from 1, or none, not {count!r}")
    threshold = THRESHOLD if given.get("span_threshold") is None else given["span_threshold"]
    spans = bool(given.get("relevant_spans")), threshold, given.get("max_spans")
    options = AnswerOptions(*spans, given.get("min_score"), bool(given.get("prune")), given.get("max_context_tokens"))
    return options._replace(diversity=given.get("diversity") or 0.0, read_all=bool(given.get("read_all")))


def _result(document: _Document, whole: Answered, number: int, *, return_blocks: bool) -> Result:
    text, order = document.text, whole.ranking
    blocks = [Block(b.start, b.end, b.score, text[b.start : b.end]) for b in order.blocks[number]] if return_blocks else ()
    score, by, chosen = float(order.scores[number]), order.scored_by[number].value, order.selected_by[number]
    about = document.id, document.title, text, tuple(blocks), by, None if chosen is None else chosen.value
    spans = tuple(Span(s.start, s.end, s.score, text[s.start : s.end]) for s in whole.spans.get(number, ()))
    return Result(number, score, *about, spans, whole.contexts.get(number), order.fused.get(number))
