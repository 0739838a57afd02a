"""Starts a training from another run's model, or from a bundle's, such as the one that comes with KeyBlock.

A bundle holds no PyTorch weights, but its graph holds the same numbers: a fused operator has those of the modules it replaces.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import tokenizers
import torch
from onnx import ModelProto, NodeProto, helper, numpy_helper
from torch import Tensor
from transformers import AutoConfig

from keyblock.bundle import MANIFEST_FILE, load_bundle
from training.declarations import EncoderShape
from training.model.aggregators import TransformerAggregation
from training.model.checkpoints import chosen
from training.model.classifier import Classifier
from training.model.cross_encoder import MARKER, CrossEncoder
from training.model.families import load_ranker, new_ranker
from training.model.ranker_module import RankerModule
from training.model.transformer_ranker import one_clear_error
from training.recipe import find_start, named_weights

Weight = Callable[[str], Tensor]
"""Gives an initializer by its name, in fp32; for one stored in fp16, by the name of the output of its cast."""

TOKENIZER_FILE = "tokenizer.json"
ID_PARTS = ("normalizer", "pre_tokenizer", "model", "post_processor")
"""Parts of a tokenizer that decide ids; truncation and padding do not."""
BUNDLED = {"name": "cross_encoder"}  # the family of a bundle's graph
PARAMETERS = "keyblock.parameters"  # key in a graph's metadata: the place of each weight of a checkpoint (export.families)
POOLING = "keyblock.pooling"  # key in a graph's metadata: how the graph pools states; without it [CLS]
NORM = ("LayerNorm.weight", "LayerNorm.bias")
CLS_ATTENTION, CLS_HEADS = "cls_attention", "heads"
"""Names in a graph whose last attention computes [CLS] alone: export.last_attention."""


def start_from(model: RankerModule, path: Path) -> None:
    """Take over the weights of a run's final model, or of a bundle's ranker.

    A learned aggregator stays fresh unless the run's is of the same kind. Raises ValueError for a path without a model, and for a
    model of another architecture.
    """
    path = find_start(path)
    if not (path / MANIFEST_FILE).exists():
        model.start_from(chosen(path))
        return
    graph = onnx.load(str(load_bundle(path).graph_path))
    table = _metadata(graph, PARAMETERS)
    if isinstance(model, Classifier) and table is not None:
        _take(model, path, graph, json.loads(table))
        return
    if table is not None:
        raise ValueError(
            f"{path}: is the bundle of a model that was imported, head and all; it is trained on with model.name=classifier"
        )
    if not isinstance(model, CrossEncoder):
        raise ValueError(
            f"{path}: is a bundle, whose graph is a cross-encoder's; a {model.family['name']} starts from a run of its own"
        )
    weights = graph_weights(graph)
    head, marker = (
        {name.removeprefix(part): weights.pop(name) for name in list(weights) if name.startswith(part)}
        for part in ("head.", "marker.")
    )
    try:
        model.take_encoder(weights)
        model.head.load_state_dict(head)
        if model.marker is not None and marker:
            model.marker.load_state_dict(marker)
    except RuntimeError as error:
        raise _another_architecture(path, " ".join(str(error).split())[:300]) from None  # it names every weight
    found, expected = _heads(graph), model.encoder.config.num_attention_heads
    if found != {expected}:  # the shapes of the weights do not show it
        raise _another_architecture(path, f"{', '.join(map(str, sorted(found)))} attention heads where the backbone has {expected}")


def _take(model: Classifier, path: Path, graph: ModelProto, table: dict[str, tuple[str, bool, int, int]]) -> None:
    """Take over a checkpoint's weights from its bundle's graph. Raises ValueError for weights of another checkpoint."""
    if missing := model.module.state_dict().keys() - table.keys():
        raise _another_architecture(path, f"its graph does not hold {min(missing)}, and {len(missing) - 1} others")
    try:
        model.take(dict(stored_parameters(graph, table)))
    except RuntimeError as error:
        raise _another_architecture(path, " ".join(str(error).split())[:300]) from None


def stored_parameters(graph: ModelProto, table: dict[str, tuple[str, bool, int, int]]) -> Iterator[tuple[str, Tensor]]:
    """The name and value of each weight of a checkpoint, in fp32; the table comes from `export.families.note_parameters`."""
    stored = {tensor.name: tensor for tensor in graph.graph.initializer}
    casts = {node.output[0]: node.input[0] for node in graph.graph.node if node.op_type == "Cast"}
    for name, (place, transposed, part, parts) in table.items():
        values = numpy_helper.to_array(stored[place] if place in stored else stored[casts[place]]).astype(np.float32)
        values = np.split(values, parts, axis=-1)[part] if parts > 1 else values
        yield name, torch.from_numpy(np.ascontiguousarray(values.T if transposed else values))


def backbone_tokenizer(backbone: str) -> tokenizers.Tokenizer:
    """The tokenizer of a local backbone, or of one on the hub, which transformers downloads and caches."""
    if (path := Path(backbone) / TOKENIZER_FILE).exists():
        return tokenizers.Tokenizer.from_file(str(path))
    from transformers import AutoTokenizer

    tokenizer: tokenizers.Tokenizer = AutoTokenizer.from_pretrained(backbone).backend_tokenizer
    return tokenizer


def start_at_cls(model: RankerModule, backbone: str) -> None:
    """Set the first state of the transformer over passages to the ranker's word embedding of [CLS], if its description says so.

    Raises ValueError for a backbone whose tokenizer puts no special token first, and for a family without word embeddings.
    """
    aggregator = model.aggregator
    if not isinstance(aggregator, TransformerAggregation) or aggregator.description["start"] != "cls":
        return
    if not isinstance(model, CrossEncoder):
        raise ValueError(f"aggregator: start cls takes a cross-encoder's word embedding, and a {model.family['name']} has none")
    ids = backbone_tokenizer(backbone).encode("").ids
    if not ids:
        raise ValueError(
            f"aggregator: start cls needs a special token in front of a sequence, and the tokenizer of {backbone} has none"
        )
    with torch.no_grad():
        aggregator.cls.copy_(model.encoder.get_input_embeddings()(torch.tensor(ids[0], device=aggregator.cls.device)))


def weights_digest(path: Path) -> str:
    """The sha256 of a start's weights, in hexadecimal: of a bundle's graph file, or of the files of a run's final model together.

    Raises ValueError for a path without a model.
    """
    path = find_start(path)
    if (manifest := path / MANIFEST_FILE).exists():
        try:
            held = json.loads(manifest.read_text(encoding="utf-8"))  # who starts from it reads and checks the files, too
            return str(held["files"][held["graph"]["file"]]["sha256"])
        except (ValueError, KeyError, TypeError):
            raise ValueError(f"{manifest}: names no graph and its sha256") from None
    digest = hashlib.sha256()
    for file in sorted(chosen(path).glob("*.safetensors")):
        digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()


def check_weights(key: str, start: str) -> None:
    """Raise ValueError unless a start holds the weights whose hash the recipe's `key` names behind an @, if it names one."""
    path, digits = named_weights(start)
    if digits and not (found := weights_digest(Path(path))).startswith(digits):
        raise ValueError(
            f"{key} {path}: holds other weights ({found[:12]}) than those that the recipe begins with ({digits}), so its results "
            f"would not compare with earlier ones; bring those back, or set {key}={path} to begin with these"
        )


def check_tokenizer(key: str, path: Path, backbone: str) -> None:
    """Raise ValueError unless a run or bundle has the backbone's tokenizer: else its model would read ids of other words.

    Args:
        key: the recipe's key that names `path`.
        path: the run or bundle.
        backbone: the backbone of the run to be trained.
    """
    file = find_start(path) / TOKENIZER_FILE
    if not file.exists():
        raise ValueError(f"{key} {path}: has no {TOKENIZER_FILE}, so it is neither a run of keyblock-train nor a bundle")
    try:
        theirs = tokenizers.Tokenizer.from_file(str(file))
    except Exception as error:  # the library raises nothing narrower
        raise ValueError(f"{file}: damaged, no tokenizer ({error})") from None
    if (difference := _difference(backbone_tokenizer(backbone), theirs)) is not None:
        raise ValueError(
            f"{key} {path}: its tokenizer is not that of the backbone {backbone} ({difference}), so its model would see "
            "ids of other words; name a run or bundle of this backbone, or take its backbone"
        )


def _difference(ours: tokenizers.Tokenizer, theirs: tokenizers.Tokenizer) -> str | None:
    """The parts in which two tokenizers differ, in words; None if they give the same ids."""
    parts = [json.loads(tokenizer.to_str()) for tokenizer in (ours, theirs)]
    for of_one in parts:  # the vocabulary is compared with its added tokens
        of_one["model"].pop("vocab", None)
    differing = ["vocabulary"] if ours.get_vocab() != theirs.get_vocab() else []
    differing += [part for part in ID_PARTS if parts[0].get(part) != parts[1].get(part)]
    return f"another {' and '.join(differing)}" if differing else None


def _another_architecture(path: Path, reason: str) -> ValueError:
    return ValueError(f"{path}: its ranker is not of the backbone's architecture, so nothing can start from it: {reason}")


def _heads(graph: ModelProto) -> set[int]:
    attentions = (node for node in graph.graph.node if node.op_type == "Attention")
    found = {attribute.i for node in attentions for attribute in node.attribute if attribute.name == "num_heads"}
    shapes = (tensor for tensor in graph.graph.initializer if tensor.name == f"{CLS_ATTENTION}/{CLS_HEADS}")
    return found | {int(numpy_helper.to_array(shape)[1]) for shape in shapes}


def bundle_backbone(path: Path) -> str | None:
    """The backbone in a bundle's provenance; None for a run, and for a bundle without one."""
    path = find_start(path)
    recipe = load_bundle(path).manifest.provenance.get("recipe") if (path / MANIFEST_FILE).exists() else None
    return recipe.get("backbone") if isinstance(recipe, dict) else None


def read_ranker(path: Path, backbone: str, attention: str = "sdpa") -> RankerModule:
    """A run's final model, or a bundle's ranker, built on `backbone`. Raises ValueError as `start_from` does."""
    path = find_start(path)
    if not (path / MANIFEST_FILE).exists():
        return load_ranker(chosen(path), attention)
    family, shape = _bundled(path, backbone)
    model = new_ranker(family, backbone, attention=attention, shape=shape)
    start_from(model, path)
    return model.eval()


def _bundled(path: Path, backbone: str) -> tuple[dict[str, Any], EncoderShape | None]:
    """The family with settings of a bundle's graph, and the shape that gives the backbone the graph's size."""
    graph = onnx.load(str(load_bundle(path).graph_path))
    if _metadata(graph, PARAMETERS) is not None:  # `start_from` raises for this graph
        return BUNDLED, None
    weights = graph_weights(graph)
    settings = {"pooling": _metadata(graph, POOLING) or "cls", "marks": len(weights.get("marker.inner.weight", ()))}
    layers = 1 + max(int(name.split(".")[2]) for name in weights if name.startswith("encoder.layer."))
    with one_clear_error(backbone):
        config = AutoConfig.from_pretrained(backbone)
    return BUNDLED | settings, EncoderShape(layers=layers) if layers < config.num_hidden_layers else None


def _metadata(graph: ModelProto, key: str) -> str | None:
    """The value of this key in a graph's metadata; None without one."""
    return next((entry.value for entry in graph.metadata_props if entry.key == key), None)


def graph_weights(graph: ModelProto) -> dict[str, Tensor]:
    """The weights of a fused BERT graph, by their names in PyTorch, with those of head and marker.

    Raises ValueError for a graph that keyblock-export did not write.
    """
    stored = {tensor.name: tensor for tensor in graph.graph.initializer}
    casts = {node.output[0]: node.input[0] for node in graph.graph.node if node.op_type == "Cast"}

    def weight(name: str) -> Tensor:
        return torch.from_numpy(numpy_helper.to_array(stored[casts.get(name, name)]).astype(np.float32))

    weights: dict[str, Tensor] = {}
    try:
        for name, value in _embeddings(graph, weight):
            weights[f"embeddings.{name}"] = value
        for layer, nodes in enumerate(_layers(graph)):
            weights |= {f"encoder.layer.{layer}.{name}": value for name, value in _layer(nodes, weight)}
        (head,) = (node for node in graph.graph.node if node.op_type == "Gemm")
    except (KeyError, ValueError) as error:
        raise ValueError(f"the graph is not laid out as keyblock-export writes a BERT ({type(error).__name__}: {error})") from None
    return weights | {"head.weight": weight(head.input[1]), "head.bias": weight(head.input[2])} | _marker(graph, weight)


def _marker(graph: ModelProto, weight: Weight) -> dict[str, Tensor]:
    """The weights of the head that marks tokens; empty for a graph without one."""
    nodes = [node for node in graph.graph.node if MARKER in node.name]
    products, sums = ([node for node in nodes if node.op_type == kind] for kind in ("MatMul", "Add"))
    found: dict[str, Tensor] = {}
    for layer, product, added in zip(("inner", "outer"), products, sums, strict=False):
        found[f"marker.{layer}.weight"] = weight(product.input[1]).T.contiguous()
        found[f"marker.{layer}.bias"] = weight(added.input[0] if product.output[0] == added.input[1] else added.input[1])
    return found


def _embeddings(graph: ModelProto, weight: Weight) -> Iterator[tuple[str, Tensor]]:
    (fused,) = (node for node in graph.graph.node if node.op_type == "EmbedLayerNormalization")
    tables = [f"{kind}_embeddings.weight" for kind in ("word", "position", "token_type")]
    for name, initializer in zip((*tables, *NORM), fused.input[2:7], strict=True):
        yield name, weight(initializer)


def _layers(graph: ModelProto) -> Iterator[list[NodeProto]]:
    """For each layer its seven nodes with weights, in the order that `_layer` expects."""
    kinds = {"Attention", "MatMul", "SkipLayerNormalization", "BiasGelu"}
    nodes = [node for node in _whole_attentions(graph.graph.node) if node.op_type in kinds and MARKER not in node.name]
    size = 7
    for first in range(0, len(nodes), size):
        yield nodes[first : first + size]


def _whole_attentions(nodes: Iterable[NodeProto]) -> Iterator[NodeProto]:
    """The nodes, but with one Attention node, of the same weight and bias, in place of the attention that computes [CLS] alone."""
    split: list[str] = []
    for node in nodes:
        if not node.name.startswith(CLS_ATTENTION):
            yield node
        elif node.op_type == "Split":
            split.append(node.input[0])
            if len(split) == 2:
                yield helper.make_node("Attention", ["", *split], [""])


def _layer(nodes: list[NodeProto], weight: Weight) -> Iterator[tuple[str, Tensor]]:
    attention, mixed, norm, widened, gelu, narrowed, last = nodes
    matrices, biases = weight(attention.input[1]).chunk(3, dim=1), weight(attention.input[2]).chunk(3)
    for part, matrix, bias in zip(("query", "key", "value"), matrices, biases, strict=True):
        yield f"attention.self.{part}.weight", matrix.T.contiguous()
        yield f"attention.self.{part}.bias", bias.contiguous()
    for name, matrix, after in (("attention.output", mixed, norm), ("output", narrowed, last)):
        yield f"{name}.dense.weight", weight(matrix.input[1]).T.contiguous()
        yield f"{name}.dense.bias", weight(after.input[4])
        for part, initializer in zip(NORM, after.input[2:4], strict=True):
            yield f"{name}.{part}", weight(initializer)
    yield "intermediate.dense.weight", weight(widened.input[1]).T.contiguous()
    yield "intermediate.dense.bias", weight(gelu.input[1])
