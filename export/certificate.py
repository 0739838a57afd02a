"""The proof that a bundle's scores are the model's: the same pairs of text through transformers and through KeyBlock.

The proof compares the whole way from text to logit: KeyBlock's tokenizer, packing and graph, and transformers' tokenizer and model.
`certify` asks a bundle's graphs, and `verify` a running service.
"""

import json
import platform
import random
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from export import ExportError
from export.checkpoint import Checkpoint, Pair, read_checkpoint
from export.options import ImportOptions, silent
from keyblock import __version__
from keyblock.bundle import Bundle, load_bundle
from keyblock.fusion import Fusion
from keyblock.pipeline import Pipeline
from keyblock.scoring import Model

ALLOWED = 1e-3  # largest difference of a logit in fp32; of logits that span less than a unit, this share of what they span
FULL = 0.15  # the share of pairs that fill a sequence; the others have a log-uniform number of words, from one up
SAMPLE = Path(__file__).parent / "sample"
TEXTS = 8  # the most texts of a request to a service, so that a large model answers in time
Ask = Callable[[str, Sequence[str], int], Sequence[float]]
"""The service's raw scores of texts for a query, in the order given; the last argument is the most tokens of a sequence."""


def sample_pairs(pipeline: Pipeline, n: int) -> list[Pair]:
    """Pairs from the queries and texts of this package's sample; see `mixed_pairs`."""
    queries, texts = (_texts(SAMPLE / f"{name}.jsonl") for name in ("queries", "corpus"))
    return mixed_pairs(pipeline, queries, texts, n)


def _texts(path: Path) -> list[str]:
    return [json.loads(line)["text"] for line in path.read_text(encoding="utf-8").splitlines()]


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


def verify(
    bundle_path: Path,
    source: str,
    ask: Ask,
    options: ImportOptions,
    precision: Callable[[], str] = lambda: "fp32",
    say: Callable[[str], None] = silent,
) -> dict[str, Any]:
    """Compare a service with a checkpoint.

    Args:
        bundle_path: the bundle that the service serves.
        source: the checkpoint that the bundle was made of.
        ask: sends requests to the service.
        options: how many pairs, and a decoder's prompt if the bundle has none.
        precision: says in which precision the service computes.
        say: gets a line at each step.

    Returns:
        Largest and mean difference of a logit, how many pairs, and versions.

    Raises:
        ExportError: a logit differs by more than is allowed, or the bundle's scores are not the model's alone.
        BundleError: the path is no bundle.
    """
    bundle = load_bundle(bundle_path)
    if bundle.pipeline.config.fusion != Fusion():
        raise ExportError(
            f"{bundle_path}: was calibrated, so its raw scores are not the model's alone; verify it as it was imported"
        )
    pairs = sample_pairs(bundle.pipeline, options.pairs)
    longest = bundle.pipeline.config.packing.budget_range[1]
    _answers(pairs[:1], ask, longest)  # fails early if the service is not available, before the checkpoint is read
    say(f"reading {source}")
    checkpoint = _with_bundle_prompt(read_checkpoint(source, options), bundle)
    say(f"scoring {len(pairs)} pairs of a query and a text with transformers")
    try:
        expected = checkpoint.logits(pairs)
    except (IndexError, RuntimeError) as error:  # PyTorch's errors for more tokens than the model's window
        raise ExportError(
            f"{source}: cannot read what the bundle reads ({' '.join(str(error).split())[:120]}): the bundle was made of another "
            "checkpoint"
        ) from None
    say("asking the service")
    found = differences(expected, _answers(pairs, ask, longest))
    if not found["max"] <= allowed(found):
        computes = precision()
        why = (
            "it computes in fp32, so it serves another model"
            if computes == "fp32"
            else f"it computes in {computes}; to compare the model alone, start it with --provider cpu --precision fp32"
        )
        raise ExportError(f"the service's raw scores {in_words(found)}: {why}")
    return found | {"versions": versions()}


def _with_bundle_prompt(checkpoint: Checkpoint, bundle: Bundle) -> Checkpoint:
    """A decoder's checkpoint with the bundle's prompt."""
    prompt = bundle.pipeline.config.prompt
    if checkpoint.question is None or prompt is None:
        return checkpoint
    return replace(checkpoint, question=checkpoint.question._replace(prompt=prompt))


def _answers(pairs: Sequence[Pair], ask: Ask, longest: int) -> NDArray[np.float32]:
    """The service's logits, shape (pairs,); a request has at most TEXTS pairs of one query."""
    found = np.zeros(len(pairs), dtype=np.float32)
    for query in tqdm(dict.fromkeys(query for query, _ in pairs), "service", disable=None if len(pairs) > 1 else True):
        numbers = [number for number, pair in enumerate(pairs) if pair[0] == query]
        for first in range(0, len(numbers), TEXTS):
            batch = numbers[first : first + TEXTS]
            found[batch] = ask(query, [pairs[number][1] for number in batch], longest)
    return found
