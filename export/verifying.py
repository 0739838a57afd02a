"""The certificate through HTTP: compares a running service's answers with transformers' scores of the same texts."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from export import ExportError
from export.certificate import Pair, allowed, differences, in_words, versions
from export.checkpoint import Checkpoint, read_checkpoint
from export.importing import sample_pairs, silent
from export.options import ImportOptions
from keyblock.bundle import Bundle, load_bundle
from keyblock.fusion import Fusion

FULL = "fp32"  # the precision of a certificate
TEXTS = 8  # the most texts of a request, so that a large model answers in time
Ask = Callable[[str, Sequence[str], int], Sequence[float]]
"""The service's raw scores of texts for a query, in the order given; the last argument is the most tokens of a sequence."""


def verify(
    bundle_path: Path,
    source: str,
    ask: Ask,
    options: ImportOptions,
    precision: Callable[[], str] = lambda: FULL,
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
            if computes == FULL
            else f"it computes in {computes}; to compare the model alone, start it with --provider cpu --precision {FULL}"
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
