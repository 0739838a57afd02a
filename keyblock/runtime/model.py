"""A bundle's graphs as the model of `keyblock.scoring`: it scores sequences, chooses blocks and combines states."""

import logging
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from keyblock.bundle import Bundle, GraphFiles
from keyblock.packing import Packed
from keyblock.runtime.aggregator import AggregatorSession
from keyblock.runtime.batching import TOKEN_CAP, mark_all, score_all
from keyblock.runtime.providers import Choice, Graph, Precision, Provider, ProviderError, resolve
from keyblock.runtime.session import LoadError, ScoreError, Session, SessionError
from keyblock.scoring import Marks, Model
from keyblock.text.tokenizer import Tokenizer
from keyblock.vector_scores import VectorModel

log = logging.getLogger(__name__)
T = TypeVar("T")


class GraphModel:
    """Implements `keyblock.scoring.Model` with ONNX Runtime sessions.

    Args:
        tokenizer: the bundle's tokenizer.
        session: runs the ranker's graph.
        aggregator: combines states, if the ranker's graph gives them.
        selector: runs the graph that chooses blocks; none: the ranker's session does.
        token_cap: the most tokens of a batch.

    Raises:
        SessionError: the ranker's states differ in size from the aggregator's, or only one of the two is given.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        session: Session,
        aggregator: AggregatorSession | None = None,
        selector: Session | None = None,
        token_cap: int = TOKEN_CAP,
    ) -> None:
        due = None if aggregator is None else 1 + aggregator.hidden
        if session.width != due:
            raise SessionError(
                f"the ranker's graph gives {session.width} columns where its aggregator needs {due}; export it again"
            )
        self.tokenizer, self.session, self.aggregator, self.selector = tokenizer, session, aggregator, selector
        self.token_cap = token_cap

    @classmethod
    def open(
        cls,
        bundle: Bundle,
        requested: Provider | str = Provider.AUTO,
        threads: int | None = None,
        precision: Precision | str = Precision.AUTO,
    ) -> "GraphModel":
        """Open a session for each graph of the bundle, using graphs made for the chosen precision if there are any.

        See `open_first` for `auto`. Raises ProviderError and SessionError.
        """

        def opened(choice: Choice) -> GraphModel:
            graph, selector = bundle.encoder_files(choice.precision)
            return cls.open_files(bundle.tokenizer, graph, bundle.aggregator_path, selector, requested=choice, threads=threads)

        failed = {
            (Provider(name), ""): f"ONNX Runtime {version} could not load the graph when the bundle was made"
            for name, version in bundle.manifest.fails_on.items()
            if version == onnxruntime.__version__ and requested == Provider.AUTO
        }
        return open_first(opened, requested, threads=threads, precision=precision, variants=bundle.manifest.variants, failed=failed)

    @classmethod
    def open_files(
        cls,
        tokenizer: Tokenizer,
        graph: GraphFiles,
        aggregator: Path | None,
        selector: GraphFiles | None,
        requested: Provider | Choice | str = Provider.AUTO,
        threads: int | None = None,
    ) -> "GraphModel":
        """Open a session for each graph. Raises ProviderError and SessionError."""
        session = Session(graph.graph, requested, threads, shared=graph.shared)
        return cls(
            tokenizer,
            session,
            None if aggregator is None else AggregatorSession(aggregator, session.choice.provider, threads),
            None if selector is None else Session(selector.graph, session.choice, threads, shared=selector.shared),
        )

    def outputs(self, sequences: Sequence[Packed]) -> NDArray[np.float32]:
        """See `keyblock.scoring.Model`. Raises ScoreError."""
        return self._run(self.session, sequences)

    def mark(self, sequences: Sequence[Packed]) -> Marks:
        """See `keyblock.scoring.Marking`. Raises ScoreError."""
        document_type = self.tokenizer.template.document_type
        return mark_all(self.session, sequences, self.tokenizer.pad_id, document_type, self.token_cap)

    def choose(self, sequences: Sequence[Packed]) -> NDArray[np.float32]:
        """See `keyblock.scoring.Model`. Raises ScoreError."""
        outputs = self._run(self.selector or self.session, sequences)
        return outputs if outputs.ndim == 1 else outputs[:, 0]

    def combine(self, states: NDArray[np.float32], mask: NDArray[np.bool_]) -> NDArray[np.float32]:
        """See `keyblock.scoring.Model`. Raises ScoreError, and ValueError for a ranker without an aggregator."""
        if self.aggregator is None:
            raise ValueError("this bundle has no aggregator: its ranker scores sequences, not their states")
        return self.aggregator.combine(states, mask)

    def _run(self, session: Session, sequences: Sequence[Packed]) -> NDArray[np.float32]:
        document_type = self.tokenizer.template.document_type
        return score_all(session, sequences, self.tokenizer.pad_id, document_type, self.token_cap)


def open_first(
    opened: Callable[[Choice], T],
    requested: Provider | str,
    *,
    threads: int | None = None,
    precision: Precision | str = Precision.AUTO,
    variants: Collection[str] = (),
    failed: dict[Graph, str],
) -> T:
    """What `opened` returns for the best provider with which it succeeds; one line of warning for each that fails before.

    Only `auto` has a next provider.

    Args:
        opened: opens a graph as chosen, and may try it.
        requested, threads, precision, variants: see `resolve`.
        failed: graphs that are known not to load, and why; gets those that fail here.

    Raises what `opened` raises for the last provider, and ProviderError as `resolve` does.
    """
    choice = resolve(requested, threads=threads, precision=precision, variants=variants, failed=failed)
    while True:
        try:
            return opened(choice)
        except (LoadError, ScoreError, ProviderError) as error:
            reason = f"it cannot load the graph ({error.reason})" if isinstance(error, LoadError) else str(error)
            failed[choice.provider, choice.variant] = reason
            if requested != Provider.AUTO:
                raise SessionError(f"{error}; ask for provider auto") if isinstance(error, LoadError) else error from None
            try:
                following = resolve(requested, threads=threads, precision=precision, variants=variants, failed=failed)
            except ProviderError:
                raise error from None
            log.warning("auto takes %s instead of %s: %s", following.provider, choice.provider, error)
            choice = following


def open_model(
    bundle: Bundle,
    requested: Provider | str = Provider.AUTO,
    threads: int | None = None,
    precision: Precision | str = Precision.AUTO,
) -> Model:
    """The model that scores for a bundle: its graphs (see `GraphModel.open`), or its stored vectors, which need no session."""
    return GraphModel.open(bundle, requested, threads, precision) if bundle.manifest.graph else VectorModel()
