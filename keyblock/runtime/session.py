"""One encoder graph on one provider: token ids in, logits out."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from keyblock.runtime.batching import BatchTooLargeError
from keyblock.runtime.cpus import default_threads
from keyblock.runtime.providers import ORT_NAMES, Choice, Precision, Provider, ProviderError, resolve

INPUTS = ("input_ids", "token_type_ids", "attention_mask")
MARKS = "marks"  # the second output of a graph that marks tokens
LEFT_OUT: tuple[list[str], ...] = ["ConstantFolding"], []
"""Passes that ONNX Runtime skips for OpenVINO, tried in turn: OpenVINO folds most graphs' constants itself, in less memory."""
_FATAL_ONLY = 4  # a severity of ONNX Runtime's: it raises its errors, and would print them in many lines as well


class SessionError(RuntimeError):
    """A graph cannot be loaded; the message is one line."""


class LoadError(SessionError):
    """ONNX Runtime cannot load a graph on this provider; another one may. The message is one line.

    Attributes:
        reason: ONNX Runtime's.
    """

    def __init__(self, graph_path: Path, provider: Provider, reason: str) -> None:
        super().__init__(f"{graph_path}: ONNX Runtime cannot load it on {provider}: {reason}")
        self._graph_path, self._provider, self.reason = graph_path, provider, reason

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._graph_path, self._provider, self.reason)  # else a pool breaks if its process raises it


class ScoreError(RuntimeError):
    """A batch could not be scored; the message is one line. The session stays usable."""


class OutOfMemoryError(ScoreError, BatchTooLargeError):
    """A batch was too large for the device's memory; the message is one line. The session stays usable."""


# the messages of the providers' allocators; ONNX Runtime has no error class for them
_MEMORY = re.compile(
    "failed to allocate|out of memory|out_of_memory|bad[_ ]alloc|alloc_failed|(could|can)not allocate|smaller than requested bytes",
    re.IGNORECASE,
)


class Marked(NamedTuple):
    """A graph's outputs for a padded batch.

    Attributes:
        outputs: shape (batch,) or (batch, width), see `Session.score`.
        marks: shape (batch, length), for each token the logit that it belongs to an answer; meaningless for padding. None if the
            graph does not mark tokens.
    """

    outputs: NDArray[np.float32]
    marks: NDArray[np.float32] | None


class Session:
    """A loaded graph. Safe to call from several threads; on a CPU one caller at a time is as fast.

    Attributes:
        width: columns of the output for a sequence; None if the output is a logit alone.
        marks: whether the graph also marks tokens.

    Args:
        graph_path: the ONNX file.
        requested: the provider, or a choice made before.
        threads: size of the compute pool; the container's CPU quota by default.
        precision: precision of the arithmetic, if `requested` is no choice; int8 and fp16 need a graph of that kind.
        shared: another ONNX file that holds weights of the graph.

    Raises:
        ProviderError: the provider is not available, or ONNX Runtime fell back to another after loading.
        SessionError: the file holds no KeyBlock graph.
    """

    def __init__(
        self,
        graph_path: str | Path,
        requested: Provider | Choice | str = Provider.AUTO,
        threads: int | None = None,
        precision: Precision | str = Precision.AUTO,
        shared: Path | None = None,
    ) -> None:
        self.threads = threads or default_threads()
        own_kind = () if precision == Precision.AUTO else (precision,)
        self.choice = (
            requested
            if isinstance(requested, Choice)
            else resolve(requested, threads=self.threads, precision=precision, variants=own_kind)
        )
        self._session = open_graph(Path(graph_path), self.choice, self.threads, shared)
        self._inputs = _check_inputs(Path(graph_path), self._session)
        self.width = _width(Path(graph_path), self._session)
        self.marks = len(self._session.get_outputs()) > 1

    def score(self, ids: NDArray[np.int64], types: NDArray[np.int64], mask: NDArray[np.int64]) -> NDArray[np.float32]:
        """Outputs of a padded batch.

        Args:
            ids: shape (batch, length), token ids.
            types: shape (batch, length), segment ids: 0 for the query, 1 for the document.
            mask: shape (batch, length), 1 for tokens, then 0 for padding: padding is on the right, and no row is all padding.

        Returns:
            Logits of shape (batch,); for a graph with a `width` shape (batch, width): the logit, then the [CLS] state.

        Raises:
            ScoreError: the shapes do not fit, the runtime failed, or an output is not a finite number.
            OutOfMemoryError: the batch does not fit into memory; a kind of ScoreError.
        """
        return self.mark(ids, types, mask).outputs

    def mark(self, ids: NDArray[np.int64], types: NDArray[np.int64], mask: NDArray[np.int64]) -> Marked:
        """Outputs of a padded batch, and the marks of its tokens if the graph gives them, in one run.

        Arguments and errors are those of `score`.
        """
        if ids.ndim != 2 or not ids.size or not ids.shape == types.shape == mask.shape:
            raise ScoreError(
                f"ids, types and mask must share one shape (batch, length), not {ids.shape}, {types.shape}, {mask.shape}"
            )
        given = dict(zip(INPUTS, (ids, types, mask), strict=True))
        try:
            outputs, *others = self._session.run(None, {name: np.ascontiguousarray(given[name], np.int64) for name in self._inputs})
        except Exception as error:  # ONNX Runtime raises a class of its own for each status code
            kind = OutOfMemoryError if isinstance(error, MemoryError) or _MEMORY.search(str(error)) else ScoreError
            raise kind(f"scoring a batch of shape {ids.shape} on {self.choice.provider} failed: {one_line(error)}") from None
        expected = (len(ids),) if self.width is None else (len(ids), self.width)
        if outputs.shape != expected or not np.isfinite(outputs).all():
            raise ScoreError(
                f"the graph gave outputs of shape {outputs.shape} where {expected} was due, or some that are not finite"
            )
        marks = others[0] if others else None
        if marks is not None and (marks.shape != ids.shape or not np.isfinite(marks).all()):
            raise ScoreError(f"the graph marked tokens of shape {marks.shape} where {ids.shape} was due, or some are not finite")
        return Marked(np.asarray(outputs, dtype=np.float32), marks)


def open_graph(graph_path: Path, choice: Choice, threads: int, shared: Path | None = None) -> Any:
    """An ONNX Runtime session. Raises ProviderError, LoadError and SessionError; see Session.

    ONNX Runtime gets the bytes of the shared file and copies what it needs. By default it would map the file, crash when somebody
    writes into it, and refuse a file that is a link.
    """
    if not graph_path.is_file():
        raise SessionError(f"{graph_path}: no such graph")
    if choice.provider in (Provider.CUDA, Provider.TENSORRT) and hasattr(onnxruntime, "preload_dlls"):
        onnxruntime.preload_dlls()  # the CUDA libraries of the nvidia wheels
    problem = ""
    for left_out in LEFT_OUT if choice.provider is Provider.OPENVINO else [[]]:
        try:
            session = _session(graph_path, choice, threads, shared, left_out)
        except Exception as error:  # see score
            problem = _reason(error)
        else:
            _check_provider(choice.provider, session.get_providers())
            return session
    raise LoadError(graph_path, choice.provider, problem)


def _session(graph_path: Path, choice: Choice, threads: int, shared: Path | None, left_out: list[str]) -> Any:
    """One attempt of `open_graph`, in which ONNX Runtime skips the passes in `left_out`. Raises its errors and the system's."""
    options = _options(choice, threads)
    if shared is not None:
        content = shared.read_bytes()  # must live until the session exists
        options.add_external_initializers_from_files_in_memory([shared.name], [content], [len(content)])
    names, given = zip(*choice.ort_providers, strict=True)
    return onnxruntime.InferenceSession(
        str(graph_path), options, providers=list(names), provider_options=list(given), disabled_optimizers=left_out
    )


def _options(choice: Choice, threads: int) -> Any:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = _FATAL_ONLY
    options.intra_op_num_threads = 1 if choice.provider is Provider.OPENVINO else threads  # OpenVINO has its own pool
    options.inter_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # idle threads must not eat the quota
    if choice.provider is Provider.OPENVINO:
        options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")  # all of the graph, or an error
    return options


def _check_provider(provider: Provider, real: Sequence[str]) -> None:
    """Raise ProviderError if ONNX Runtime uses another provider: without a provider's libraries it only warns, and uses the CPU."""
    if ORT_NAMES[provider] != real[0]:
        raise ProviderError(
            f"provider {provider} was chosen, but ONNX Runtime fell back to {real[0]}: its libraries do not load; "
            "install them as README says, or ask for cpu"
        )


def _check_inputs(graph_path: Path, session: Any) -> list[str]:
    """The graph's input names. Raises SessionError unless each is in INPUTS and int64, with batch and length free."""
    inputs, outputs = session.get_inputs(), session.get_outputs()
    names = [given.name for given in inputs]
    given_out = [output.name for output in outputs]
    if not set(names) <= set(INPUTS) or "input_ids" not in names or not given_out or given_out[1:] not in ([], [MARKS]):
        raise SessionError(
            f"{graph_path}: maps {names} to {given_out}; a ranker's graph has {list(INPUTS)} and one output, then {MARKS} maybe"
        )
    for given in inputs:
        if given.type != "tensor(int64)" or any(isinstance(size, int) for size in given.shape) or len(given.shape) != 2:
            raise SessionError(
                f"{graph_path}: input {given.name} is {given.type} {given.shape}, not int64 with batch and length free"
            )
    return names


def _width(graph_path: Path, session: Any) -> int | None:
    """Columns of the output; None for logits of shape (batch,)."""
    output = session.get_outputs()[0]
    width = output.shape[1] if len(output.shape) == 2 else None
    fits = len(output.shape) == 1 or (isinstance(width, int) and width > 1)
    if output.type != "tensor(float)" or not fits:
        raise SessionError(
            f"{graph_path}: output {output.name} is {output.type} {output.shape}; a ranker's is float: logits of shape (batch,), "
            "or (batch, 1 + hidden) with a fixed width"
        )
    return width


def one_line(error: Exception) -> str:
    """An exception's message in one line of bounded length."""
    return " ".join(str(error).split())[:600]


def _reason(error: Exception) -> str:
    """The last line of an exception's message, of bounded length: OpenVINO's begins with the names of functions and files."""
    lines = str(error).split("\n")
    return " ".join(next((line for line in reversed(lines) if line.strip()), "").split())[:600]
