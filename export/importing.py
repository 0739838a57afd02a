"""Imports a cross-encoder that somebody else trained as a bundle, step by step."""

import platform
import re
import tempfile
import timeit
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from export import ExportError
from export.certificate import certify, differences, sample_pairs, served_logits
from export.checkpoint import Checkpoint, read_checkpoint
from export.graphs import Graphs, entries_of, export_graphs, fails_on, files_of, variant_of
from export.import_defaults import import_analyzer, import_frequencies, import_pipeline, import_tokenizer
from export.options import ImportOptions, VariantKind, WeightPrecision, silent
from keyblock.bundle import FREQUENCIES_FILE, TOKENIZER_FILE, Bundle, Manifest, check_target, write_bundle
from keyblock.packing import Packed
from keyblock.pipeline import Pipeline
from keyblock.runtime.batching import TOKEN_CAP, bucket
from keyblock.runtime.model import GraphModel, open_first
from keyblock.runtime.providers import Choice, Graph, Provider, ProviderError, resolve
from keyblock.runtime.session import ScoreError, SessionError
from training.data.files import read_json

RUNS = 3  # the best run counts: a busy machine is sometimes slower
MOST_ROWS = 8  # on a CPU, more rows are no faster for each token


def measured_pace(model: GraphModel, length: int) -> dict[str, Any]:
    """How many sequences of `length` tokens the graphs score in a second, in batches of the largest shape up to MOST_ROWS rows."""
    rows = max(1, min(MOST_ROWS, TOKEN_CAP // bucket(length)))
    ids = np.arange(length, dtype=np.int32) % model.tokenizer.vocabulary_size
    sequences = [Packed(ids, 1, np.zeros(1, np.intp))] * rows
    model.outputs(sequences)
    best = min(timeit.repeat(lambda: model.outputs(sequences), number=1, repeat=RUNS))
    choice = model.session.choice
    return {
        "sequences_per_second": round(rows / best, 2),
        "tokens": length,
        "provider": choice.provider.value,
        "precision": choice.precision.value,
        "threads": model.session.threads,
        "machine": platform.processor() or platform.machine(),
    }


def import_model(source: str, out: Path, options: ImportOptions, say: Callable[[str], None] = silent) -> Bundle:
    """Write a bundle of a checkpoint, and prove that its scores are the checkpoint's.

    Args:
        source: a directory, or a name on the hub.
        out: where the bundle goes; nothing is left there after an error.
        options: how to import.
        say: gets a line at each step.

    Raises:
        ExportError: the source is no cross-encoder, or its graph's logits are not the model's.
        BundleError: the bundle cannot be written.
        ProviderError: the provider to serve on is not available.
    """
    check_target(out, options.overwrite)
    resolve(options.provider)
    if VariantKind.INT8_STATIC in options.variants:
        raise ExportError("int8-static is for models of keyblock-train, whose graphs it was measured on; leave that --variant out")
    say(f"reading {source}")
    checkpoint = read_checkpoint(source, options)
    say("writing its graph")
    with tempfile.TemporaryDirectory(prefix="keyblock-import-") as folder:
        files = {name: Path(folder) / name for name in (TOKENIZER_FILE, FREQUENCIES_FILE)}
        tokenizer = import_tokenizer(checkpoint, files[TOKENIZER_FILE])
        analyzer = import_analyzer(options.analyzer, tokenizer)
        frequencies = import_frequencies(options.frequencies, analyzer)
        default_table = "general" if len(frequencies) else "none"
        frequencies.write(files[FREQUENCIES_FILE])
        pipeline = import_pipeline(checkpoint, tokenizer, frequencies, options, analyzer)
        plain = export_graphs(Path(folder) / "fp32", checkpoint.model)
        served = plain.served(Path(folder) / "served", options.precision)
        variants = {kind: plain.variant(kind, Path(folder) / kind) for kind in options.variants}
        full = options.precision is WeightPrecision.FP32
        exact = served if full else plain.served(Path(folder) / "exact", WeightPrecision.FP32)
        checks = ImportChecks(checkpoint, pipeline, exact, options, say)
        quality = checks.served(served)
        manifest = Manifest(
            name=options.name or own_name(source),
            pipeline=pipeline.config,
            **entries_of(options.precision.value, served, checkpoint.model),
            variants={
                kind.value: variant_of(kind, checks.variant(kind, graphs), graphs, checkpoint.model)
                for kind, graphs in variants.items()
            },
            provenance={"import": checkpoint.about | {"frequencies": str(options.frequencies or default_table)}},
            quality=quality,
            fails_on=fails_on(checks.failed),
        )
        return write_bundle(out, manifest, files | files_of(served, variants), overwrite=options.overwrite)


class ImportChecks:
    """The comparison with transformers, and the measurements.

    Args:
        checkpoint: the imported model.
        pipeline: the bundle's pipeline.
        exact: the served graph, in fp32.
        options: how many pairs, and the provider that will serve.
        say: gets a line at each step.

    Attributes:
        failed: graphs that could not be run, see `open_first`.
    """

    def __init__(
        self, checkpoint: Checkpoint, pipeline: Pipeline, exact: Graphs, options: ImportOptions, say: Callable[[str], None]
    ) -> None:
        self._pipeline, self._options, self._say = pipeline, options, say
        self.failed: dict[Graph, str] = {}
        self._pairs = sample_pairs(pipeline, options.pairs)
        say(f"scoring {options.pairs} pairs of a query and a text with transformers")
        self._expected = checkpoint.logits(self._pairs)
        say("scoring them with the graph")
        model = exact.open(pipeline.tokenizer, Provider.CPU, "fp32")
        self._certificate = certify(self._expected, pipeline, model, self._pairs)

    def served(self, graphs: Graphs) -> dict[str, Any]:
        """The certificate, and the measurements on the provider that will serve."""
        return {"certificate": self._certificate, "import": self._measured(graphs, self._options.provider)}

    def variant(self, kind: VariantKind, graphs: Graphs) -> dict[str, Any]:
        """The measurements of a variant on its provider, or why that is not available."""
        try:
            return self._measured(graphs, kind.provider, kind.value)
        except ProviderError as error:
            return {"unmeasured": str(error)}

    def _measured(self, graphs: Graphs, provider: Provider, precision: str = "auto") -> dict[str, Any]:
        self._say(f"measuring scores and pace on provider {provider}")

        def opened(choice: Choice) -> tuple[GraphModel, NDArray[np.float32]]:
            model = graphs.open(self._pipeline.tokenizer, choice)
            return model, served_logits(self._pipeline, model, self._pairs)

        try:
            model, found = open_first(opened, provider, precision=precision, variants=[precision], failed=self.failed)
        except (SessionError, ScoreError) as error:
            return {"provider": provider.value, "cannot": str(error)}
        choice = model.session.choice
        return {
            "provider": choice.provider.value,
            "precision": choice.precision.value,
            "why": choice.why,
            "logits": differences(self._expected, found),
            "pace": measured_pace(model, self._pipeline.config.packing.budget),
        }


def own_name(source: str) -> str:
    """A model's name: on the hub, as its configuration or the hub's cache gives it, else its directory's."""
    path = Path(source)
    if not path.is_dir():
        named = source
    elif path.resolve().parent.name == "snapshots":  # of the hub's cache: models--OWNER--NAME/snapshots/COMMIT
        named = path.resolve().parents[1].name.replace("--", "/")
    else:
        noted = str(read_json(path / "config.json").get("_name_or_path") or "")
        named = noted if noted.count("/") == 1 and not noted.startswith((".", "/")) else path.resolve().name
    last = named.rpartition("/")[2]
    return re.sub(r"[^A-Za-z0-9._-]+", "-", last)[:100] or "imported"
