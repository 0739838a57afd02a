"""A bundle's learned aggregator: the [CLS] states of passages in, logits of documents out."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from keyblock.runtime.cpus import default_threads
from keyblock.runtime.providers import Provider, resolve
from keyblock.runtime.session import ScoreError, SessionError, one_line, open_graph

_RANKS = {"states": 3, "mask": 2}
INPUTS = tuple(_RANKS)


class AggregatorSession:
    """A loaded aggregator graph. Safe to call from several threads.

    It computes on the encoder's provider, but on the plain CPU if that provider is OpenVINO: the work is small, and OpenVINO would
    compile the graph again for every number of documents and passages.

    Args:
        graph_path: the ONNX file.
        requested: the provider of the encoder's session.
        threads: size of the compute pool; the container's CPU quota by default.

    Attributes:
        hidden: size of a state.

    Raises:
        ProviderError: the provider is not available or was not used.
        SessionError: the file holds no KeyBlock aggregator.
    """

    def __init__(self, graph_path: str | Path, requested: Provider | str = Provider.CPU, threads: int | None = None) -> None:
        on_gpu = resolve(requested).provider in (Provider.CUDA, Provider.TENSORRT)
        self.choice = resolve(Provider.CUDA if on_gpu else Provider.CPU)
        self._session = open_graph(Path(graph_path), self.choice, threads or default_threads())
        self.hidden = _check(Path(graph_path), self._session)

    def combine(self, states: NDArray[np.float32], mask: NDArray[np.bool_]) -> NDArray[np.float32]:
        """Logits of documents.

        Args:
            states: shape (documents, passages, hidden).
            mask: shape (documents, passages), True for real passages, which come first.

        Returns:
            Shape (documents,), on the logit scale.

        Raises:
            ScoreError: the shapes do not fit, the runtime failed, or a logit is not a finite number.
        """
        if not mask.size or states.shape != (*mask.shape, self.hidden):
            raise ScoreError(
                f"states and mask must have shapes (documents, passages, {self.hidden}) and (documents, passages), "
                f"not {states.shape} and {mask.shape}"
            )
        given = {"states": np.ascontiguousarray(states, np.float32), "mask": np.ascontiguousarray(mask, np.bool_)}
        try:
            (logits,) = self._session.run(None, given)
        except Exception as error:  # ONNX Runtime raises a class of its own for each status code
            raise ScoreError(f"combining states of shape {states.shape} failed: {one_line(error)}") from None
        if logits.shape != (len(mask),) or not np.isfinite(logits).all():
            raise ScoreError(f"the aggregator gave logits of shape {logits.shape} for {len(mask)} documents, or some not finite")
        return np.asarray(logits, dtype=np.float32)


def _check(graph_path: Path, session: Any) -> int:
    """The size of a state, from the graph's inputs. Raises SessionError unless they are states and mask with free sizes."""
    inputs, outputs = {given.name: given for given in session.get_inputs()}, session.get_outputs()
    ranks = {name: len(given.shape) for name, given in inputs.items()}
    if ranks != _RANKS or len(outputs) != 1 or not isinstance(inputs["states"].shape[2], int):
        raise SessionError(
            f"{graph_path}: has inputs {ranks} (ranks) and {len(outputs)} outputs; an aggregator has {_RANKS} and one"
        )
    free = [*inputs["states"].shape[:2], *inputs["mask"].shape]
    if any(isinstance(size, int) for size in free):
        raise SessionError(f"{graph_path}: its inputs have sizes {free}: documents and passages must be free")
    return int(inputs["states"].shape[2])
