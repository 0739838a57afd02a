"""The proof that a bundle's scores are the model's: the same pairs of text through transformers and through KeyBlock.

The proof compares the whole way from text to logit: KeyBlock's tokenizer, packing and graph, and transformers' tokenizer and model.
"""

import platform
import random
import shlex
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Any

import numpy as np
from numpy.typing import NDArray

from export import ExportError
from keyblock import __version__
from keyblock.pipeline import Pipeline
from keyblock.scoring import Model

ALLOWED = 1e-3  # largest difference of a logit in fp32; of logits that span less than a unit, this share of what they span
PAIRS = 384  # the least pairs of a certificate
FULL = 0.15  # the share of pairs that fill a sequence; the others have a log-uniform number of words, from one up
Pair = tuple[str, str]


def mixed_pairs(pipeline: Pipeline, queries: Sequence[str], texts: Sequence[str], n: int) -> list[Pair]:
    """Pairs of a query and a passage of real text, of all lengths that fit one sequence of the pipeline's largest budget.

    Args:
        pipeline: the pipeline whose sequences the pairs must fit.
        queries: the queries, used in turn; the pipeline must not truncate any.
        texts: their words in order, repeated from the start, are cut into passages.
        n: number of pairs.
    """
    rng, words = random.Random(0), " ".join(texts).split()
    longest = pipeline.config.packing.budget_range[1]
    made: list[Pair] = []
    for number in range(n):
        query = queries[number % len(queries)]
        room = longest - pipeline.tokenizer.template.overhead - len(pipeline.prepare_query(query).token_ids)
        n_words = room if rng.random() < FULL else round(room ** rng.random())
        start = rng.randrange(len(words))
        passage = " ".join(words[(start + i) % len(words)] for i in range(n_words))
        made.append((query, _cut(pipeline, passage, room)))
    return made


def _cut(pipeline: Pipeline, text: str, room: int) -> str:
    """The beginning of the text that has at most `room` tokens."""
    while (n := len(pipeline.prepare_document(text).token_ids)) > room:
        words = text.split(" ")
        text = " ".join(words[: max(1, min(len(words) - 1, len(words) * room // n))])
        if len(words) == 1:
            text = text[: len(text) // 2]
    return text


def served_logits(pipeline: Pipeline, model: Model, pairs: Sequence[Pair]) -> NDArray[np.float32]:
    """The logits of a bundle's graphs for pairs that fit one sequence, shape (pairs,). Raises ExportError for a longer pair."""
    longest = pipeline.config.packing.budget_range[1]
    sequences = []
    for query, text in pairs:
        selection = pipeline.select(pipeline.prepare_query(query), pipeline.prepare_document(text), longest)
        if len(selection.sequences) != 1:
            raise ExportError(f"a text of {len(text)} characters became {len(selection.sequences)} passages where one was due")
        sequences += selection.sequences
    return model.outputs(sequences)


def differences(expected: NDArray[np.float32], found: NDArray[np.float32]) -> dict[str, float]:
    """The largest and mean absolute difference, the number of pairs, and the least and largest expected logit.

    Raises ExportError as `check_varied` does.
    """
    check_varied(expected)
    moved = np.abs(expected.astype(np.float64) - found)
    return {
        "max": float(moved.max()),
        "mean": float(moved.mean()),
        "pairs": len(moved),
        "least_logit": float(expected.min()),
        "largest_logit": float(expected.max()),
    }


def beyond(value: float, limit: float) -> str:
    """A value in as many digits as tell it from the limit that it exceeds, and at least two.

    >>> beyond(0.0010432, 0.001), beyond(0.0312, 0.001)
    ('0.00104', '0.031')
    """
    texts = (f"{value:.{digits}g}" for digits in range(2, 18))
    return next((text for text in texts if float(text) > limit), str(value))


def allowed(found: Mapping[str, float]) -> float:
    """The largest difference that proves equality in fp32, from what `differences` found: a part of what the logits span."""
    return ALLOWED * min(1.0, found["largest_logit"] - found["least_logit"])


def in_words(found: Mapping[str, float]) -> str:
    """What `differences` found, with the limit, for a line."""
    span, limit = found["largest_logit"] - found["least_logit"], allowed(found)
    most = f"{found['max']:.2g}" if found["max"] <= limit else beyond(found["max"], limit)
    about = f"{limit:.2g} is allowed where logits span {span:.2g}"
    return f"differ from transformers' by up to {most} over {found['pairs']} pairs ({about})"


def check_varied(expected: NDArray[np.float32]) -> None:
    """Raise ExportError for logits that are all the same, which prove nothing, and for logits that are not finite."""
    if not np.isfinite(expected).all():
        raise ExportError("the model gives logits that are not finite: its weights are damaged, or no weights of its architecture")
    if not np.ptp(expected) > 0:
        raise ExportError(
            f"the model gives every pair the logit {expected[0]:.4g}: it tells nothing apart, so nothing can be checked"
        )


def certify(expected: NDArray[np.float32], pipeline: Pipeline, model: Model, pairs: Sequence[Pair]) -> dict[str, Any]:
    """The certificate for the bundle.

    Args:
        expected: shape (pairs,), the logits from transformers' tokenizer and model.
        pipeline: the bundle's pipeline.
        model: the bundle's graphs, in fp32.
        pairs: see `mixed_pairs`.

    Raises:
        ExportError: a logit differs by more than is allowed, or is not finite.
    """
    check_varied(expected)  # before the graph runs, whose error message would be about its outputs
    found = differences(expected, served_logits(pipeline, model, pairs))
    if not found["max"] <= allowed(found):
        raise ExportError(
            f"the graph's logits {in_words(found)}, so no bundle is written; use the locked versions of torch, transformers and "
            "onnxruntime"
        )
    lengths = [len(pipeline.tokenizer.ids(text)) for _, text in pairs]
    return {
        "logits": found,
        "allowed": allowed(found),
        "tokens_of_passages": {"least": min(lengths), "most": max(lengths)},
        "versions": versions(),
        "command": shlex.join([sys.argv[0].rpartition("/")[2], *sys.argv[1:]]),
    }


def versions() -> dict[str, str]:
    """The versions of all software that takes part in a score."""
    import onnxruntime  # from whichever wheel is installed

    names = ("torch", "transformers", "tokenizers", "onnx")
    return {
        "keyblock": __version__,
        "onnxruntime": onnxruntime.__version__,
        "python": platform.python_version(),
    } | {name: version(name) for name in names}
