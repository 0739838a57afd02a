"""The bundle: one directory with everything that serving a ranker needs. It does not load if any of its files is wrong.

Every bundle has ``bundle.json`` (the manifest), ``tokenizer.json`` and ``frequencies.tsv``. The other files depend on the ranker:

- ``model.onnx``, unless the ranker scores by vectors alone;
- ``aggregator.onnx``, if the ranker combines states;
- ``selector.onnx``, if another model chooses its blocks;
- ``token_vectors.npz``, the encoder of a ranker that compares vectors;
- ``sentence_encoder.onnx``, if stored documents are understood; it may read the token embeddings in ``model.onnx``;
- files like ``model.int8.onnx`` for a variant: the same graphs for another arithmetic. A variant's graph may read weights that it
  does not change from the bundle's own graph; its entry names that file.

The manifest names every other file with its size and SHA-256. Files that it does not name (a README, a licence) are never read.
"""

import hashlib
import json
import os
import re
import shutil
import uuid
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Literal, NamedTuple, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator
from pydantic_core import from_json

from keyblock.aggregation import AGGREGATORS
from keyblock.description import PipelineConfig
from keyblock.encoders import Encoder, open_described, open_encoder
from keyblock.pipeline import Pipeline
from keyblock.text.analyzer import DocumentFrequencies
from keyblock.text.tokenizer import Tokenizer

FORMAT_VERSION = 11  # the only one that this version reads
MANIFEST_FILE, TOKENIZER_FILE, GRAPH_FILE, FREQUENCIES_FILE = "bundle.json", "tokenizer.json", "model.onnx", "frequencies.tsv"
AGGREGATOR_FILE, SELECTOR_FILE = "aggregator.onnx", "selector.onnx"
_PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")  # no folder, no "..", nothing hidden
_LONGEST_MANIFEST = 16 << 20
_CHUNK = 4 << 20  # bytes
_REMEDY = "copy the bundle again, or make it again with keyblock-export"


class BundleError(ValueError):
    """A bundle is damaged, incomplete or of another format than this version's. Its one line names the file and says what to do."""


class FileEntry(BaseModel):
    """The size and digest that a file of the bundle must have."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    sha256: str = Field(pattern="^[0-9a-f]{64}$", description="of the file's bytes, lower-case hexadecimal")
    bytes: int = Field(ge=0, description="the file's size")


class SharedFile(BaseModel):
    """The file of one graph that also holds weights of another graph; only the exact file that the export wrote will do."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    file: str = Field(description="its name in the bundle")
    sha256: str = Field(pattern="^[0-9a-f]{64}$", description="of its bytes: in another file the weights would be elsewhere")


class GraphEntry(BaseModel):
    """An ONNX graph of an encoder: integer inputs of shape (batch, length), both free, and float outputs.

    The output is logits of shape (batch,). If the ranker's aggregator combines states, it has shape (batch, 1 + hidden): the logit
    of each sequence by itself, then its [CLS] state.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    file: str = Field(GRAPH_FILE, description="its name in the bundle")
    precision: str = Field("fp32", description="of the stored weights: fp32, or fp16-weights (computed in fp32 or bf16)")
    opset: int = Field(17, ge=1, description="version of the standard ONNX operators")
    inputs: dict[str, str] = Field(description="element type by input name, in the graph's order")
    output: str = Field("logits", description="name of the output")
    marks: bool = Field(
        False, description="whether a second output, `marks` (batch, length), has each token's logit of answering the query"
    )
    max_length: int = Field(512, ge=1, description="tokens of the longest sequence that the position embeddings allow")
    vocabulary_size: int = Field(ge=1, description="rows of the embedding table: token ids must stay below it")
    fused: dict[str, int] = Field({}, description="fused nodes by operator, as counted at export")
    shares: SharedFile | None = Field(None, description="the file with the weights that this file leaves out")


class AggregatorEntry(BaseModel):
    """The ONNX graph of a learned aggregator and its head.

    Inputs: states (documents, passages, hidden) as float32 and mask (documents, passages) as bool, True for real passages, which
    come first; documents and passages are free. Output: logits of shape (documents,).
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    file: str = Field(AGGREGATOR_FILE, description="its name in the bundle")
    precision: str = Field("fp32", description="of the stored weights: fp32, or fp16-weights")
    opset: int = Field(17, ge=1, description="version of the standard ONNX operators")
    hidden: int = Field(ge=1, description="size of a state")
    kind: dict[str, Any] = Field({}, description="the module, as the training recipe describes it")


class Variant(BaseModel):
    """The same encoders for another arithmetic than that of `Manifest.graph`."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    graph: GraphEntry
    selector_graph: GraphEntry | None = Field(None, description="the selector's graph, if the manifest has one")
    quality: dict[str, Any] = Field({}, description="how this arithmetic changes the results, measured at export")


class Manifest(BaseModel):
    """``bundle.json``.

    `provenance` and `quality` have no fixed form: they are for people and reports, nothing computes with them. `keyblock-export`
    fills them. Provenance holds what the run wrote (recipe, collections, versions) and, under ``export``, the exporter's versions.
    Quality holds the run's dev measurements (by collection, budget and measure), its calibration and, under ``export``, the fp32
    parity with PyTorch and how far the served precision moves a logit and nDCG@10.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="constants")  # NaN is refused, not written as null
    format_version: int = FORMAT_VERSION
    name: str = Field(min_length=1, max_length=100, description="what the model is called in answers and metrics")
    pipeline: PipelineConfig
    graph: GraphEntry | None = Field(None, description="the ranker; none if pipeline.cosine_scale scores by vectors alone")
    aggregator: AggregatorEntry | None = Field(None, description="combines states, if pipeline.aggregator does")
    selector_graph: GraphEntry | None = Field(
        None, description="another ranker that scores single blocks for a learned selector (BinB2); if none, the ranker itself does"
    )
    variants: dict[Literal["int8", "int8-static", "fp16"], Variant] = Field(
        {}, description="graphs for another arithmetic: int8 for plain CPUs, int8-static with VNNI, fp16 (without padding) for CUDA"
    )
    fails_on: dict[Literal["cuda", "openvino", "cpu"], str] = Field(
        {}, description="providers that could not run `graph` when the bundle was made, each with ONNX Runtime's version"
    )
    files: dict[str, FileEntry] = Field({}, description="every file but bundle.json, by name")
    provenance: dict[str, Any] = Field({}, description="where the model comes from")
    quality: dict[str, Any] = Field({}, description="measurements of the model")

    @field_validator("files")
    @classmethod
    def _plain_names(cls, files: dict[str, FileEntry]) -> dict[str, FileEntry]:
        for name in files:
            if not _PLAIN_NAME.fullmatch(name) or name == MANIFEST_FILE:
                raise ValueError(f"{name!r} is no plain file name inside the bundle")
        return files

    @model_validator(mode="after")
    def _graphs_of_the_pipeline(self) -> Self:
        aggregator = AGGREGATORS.create(self.pipeline.aggregator)
        if self.graph is None and self.pipeline.cosine_scale is None:
            raise ValueError("there is no entry 'graph', and no pipeline.cosine_scale to score without one")
        if self.pipeline.cosine_scale is not None and (self.graph or self.variants):
            raise ValueError("pipeline.cosine_scale scores by vectors alone, but there are entries 'graph' or 'variants'")
        if aggregator.learned and self.aggregator is None:
            raise ValueError(f"pipeline.aggregator {aggregator.name!r} combines states, but there is no entry 'aggregator'")
        if self.aggregator is not None and not aggregator.learned:
            raise ValueError(f"there is an entry 'aggregator', but pipeline.aggregator {aggregator.name!r} combines no states")
        if self.selector_graph is not None and not self.pipeline.asks_model:
            raise ValueError(
                f"there is an entry 'selector_graph', but pipeline.selector {self.pipeline.selector['name']!r} asks none"
            )
        for name, variant in self.variants.items():
            if (variant.selector_graph is None) != (self.selector_graph is None):
                raise ValueError(f"variant {name} and the bundle must both have an entry 'selector_graph', or neither")
        return self

    @property
    def encoders(self) -> list[GraphEntry]:
        """The graphs that read token ids, variants included: rankers, and selectors that have their own graph."""
        kinds: list[Manifest | Variant] = [self, *self.variants.values()]
        return [entry for kind in kinds for entry in (kind.graph, kind.selector_graph) if entry is not None]

    def graphs_for(self, precision: str) -> "Manifest | Variant":
        """The variant made for this precision; if there is none, the manifest itself, whose graphs then compute in it."""
        variants = (variant for name, variant in self.variants.items() if name == precision)
        return next(variants, self)

    @property
    def needed(self) -> list[str]:
        """The files that this bundle must have."""
        graphs = [entry.file for entry in (*self.encoders, self.aggregator) if entry is not None]
        return [*self.built_from, *graphs, *self.meaning_files]

    @property
    def built_from(self) -> list[str]:
        """The files that loading reads; sessions read the graphs."""
        vectors = [self.pipeline.encoder["file"]] if self.pipeline.encoder else []
        return [TOKENIZER_FILE, FREQUENCIES_FILE, *vectors]

    @property
    def meaning_files(self) -> list[str]:
        """The files of the sentence encoder that understands documents, if there is one."""
        return [self.pipeline.meaning.encoder["file"]] if self.pipeline.meaning else []


class GraphFiles(NamedTuple):
    """The files that a session reads for a graph.

    Attributes:
        graph: the ONNX file.
        shared: another graph's file that holds some of its weights; None if its own file holds them all.
    """

    graph: Path
    shared: Path | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Bundle:
    """A loaded bundle. Loading checked and built everything in it."""

    path: Path
    manifest: Manifest
    tokenizer: Tokenizer
    frequencies: DocumentFrequencies
    pipeline: Pipeline

    @property
    def graph_path(self) -> Path:
        """The ranker's ONNX file, for a session. Raises BundleError for a bundle that scores by vectors alone."""
        return self.path / self.graph.file

    @property
    def graph(self) -> GraphEntry:
        """The ranker's graph. Raises BundleError for a bundle that scores by vectors alone."""
        return self._graph_of(self.manifest)

    @property
    def aggregator_path(self) -> Path | None:
        """The learned aggregator's ONNX file; None for a ranker without one."""
        return self.path / self.manifest.aggregator.file if self.manifest.aggregator else None

    def encoder_files(self, precision: str) -> tuple[GraphFiles, GraphFiles | None]:
        """The files of the ranker and of the model that chooses blocks (None if no model does, or the ranker itself).

        Args:
            precision: the precision to compute in; without a variant for it, the bundle's own graphs are taken.

        Raises BundleError for a bundle that scores by vectors alone.
        """
        kind = self.manifest.graphs_for(precision)
        return self._files_of(self._graph_of(kind)), self._files_of(kind.selector_graph) if kind.selector_graph else None

    def _files_of(self, entry: GraphEntry) -> GraphFiles:
        return GraphFiles(self.path / entry.file, self.path / entry.shares.file if entry.shares else None)

    def _graph_of(self, kind: Manifest | Variant) -> GraphEntry:
        if kind.graph is None:
            raise BundleError(f"{self.path}: has no graph, since it scores by vectors alone; take a bundle of keyblock-export")
        return kind.graph

    def check_files(self) -> None:
        """Raise BundleError unless every file is still as the manifest says; then all that was read so far was of this bundle."""
        _verify_all(self.path, self.manifest.files)


def load_bundle(path: str | Path) -> Bundle:
    """Read and check a bundle; every file's size and SHA-256 are verified.

    Raises:
        BundleError: the directory is missing, damaged, incomplete, or of another format.
    """
    path = Path(path)
    if not path.is_dir():
        what = "is not a directory" if path.exists() else "does not exist"
        raise BundleError(f"{path}: {what}; give the path of a bundle, as keyblock-export writes it")
    manifest = _read_manifest(path / MANIFEST_FILE)
    for name in manifest.needed:
        if name not in manifest.files:
            raise BundleError(f"{path / MANIFEST_FILE}: 'files' does not list {name}, which this bundle needs; {_REMEDY}")
    _check_shared(path, manifest)
    read_here = {name: entry for name, entry in manifest.files.items() if name in manifest.built_from}
    others = {name: entry for name, entry in manifest.files.items() if name not in read_here}
    with ThreadPoolExecutor(1) as executor:  # verifies the rest, mostly graphs, which sessions read later
        verified = executor.submit(_verify_all, path, others)
        _verify_all(path, read_here)
        bundle = _build(path, manifest)
        verified.result()
    return bundle


def _read_manifest(file: Path) -> Manifest:
    try:
        if file.stat().st_size > _LONGEST_MANIFEST:
            raise BundleError(f"{file}: larger than {_LONGEST_MANIFEST >> 20} MiB, so not a manifest; {_REMEDY}")
        content = from_json(file.read_bytes(), allow_inf_nan=False)
    except OSError as error:
        raise _unreadable(file, error) from None
    except ValueError as error:
        if isinstance(error, BundleError):
            raise
        raise BundleError(f"{file}: not JSON ({_line(error)}); {_REMEDY}") from None
    if not isinstance(content, dict):
        raise BundleError(f"{file}: must hold a JSON object, not {type(content).__name__}; {_REMEDY}")
    _check_version(file, content.get("format_version"))
    try:
        manifest = Manifest.model_validate(content)
    except ValidationError as error:
        raise BundleError(f"{file}: {_problems(error)}; {_REMEDY}") from None
    _check_lengths(file, manifest)
    return manifest


def _check_version(file: Path, version: object) -> None:
    if not isinstance(version, int) or isinstance(version, bool):
        raise BundleError(f"{file}: format_version must be a whole number, not {version!r}; {_REMEDY}")
    if version != FORMAT_VERSION:
        remedy = "update KeyBlock, or export the bundle again" if version > FORMAT_VERSION else "export the bundle again"
        raise BundleError(f"{file}: is of format {version}, and this KeyBlock reads {FORMAT_VERSION}; {remedy}")


def _check_lengths(file: Path, manifest: Manifest) -> None:
    longest = manifest.pipeline.packing.budget_range[1]
    positions = min((entry.max_length for entry in manifest.encoders), default=longest)
    if longest > positions:
        raise BundleError(f"{file}: budget_range ends at {longest} tokens, but the graph takes {positions} at most; {_REMEDY}")


def _check_shared(path: Path, manifest: Manifest) -> None:
    for entry in manifest.encoders:
        shared = entry.shares
        found = manifest.files.get(shared.file) if shared else None
        if shared and (found is None or found.sha256 != shared.sha256):
            is_here = f"here it is {found.sha256[:12]}..." if found else "which is not in this bundle"
            raise BundleError(
                f"{path / entry.file}: reads weights in {shared.file} of sha256 {shared.sha256[:12]}..., {is_here}; {_REMEDY}"
            )


def _verify_all(path: Path, files: Mapping[str, FileEntry]) -> None:
    for name, entry in files.items():
        _verify(path / name, entry)


def _verify(file: Path, entry: FileEntry) -> None:
    try:
        with file.open("rb") as stream:
            size = os.fstat(stream.fileno()).st_size
            if size != entry.bytes:
                raise BundleError(f"{file}: has {size} bytes where bundle.json says {entry.bytes}; {_REMEDY}")
            found = digest_of(stream)
    except OSError as error:
        raise _unreadable(file, error) from None
    if found != entry.sha256:
        raise BundleError(f"{file}: was altered: its sha256 is {found[:12]}..., bundle.json says {entry.sha256[:12]}...; {_REMEDY}")


def digest_of(stream: BinaryIO) -> str:
    """The SHA-256 of the rest of a stream, read in chunks so large that the thread seldom waits for the interpreter lock."""
    digest = hashlib.sha256()
    while chunk := stream.read(_CHUNK):
        digest.update(chunk)
    return digest.hexdigest()


def _build(path: Path, manifest: Manifest) -> Bundle:
    try:
        tokenizer = Tokenizer(path / TOKENIZER_FILE, manifest.pipeline.prompt)
    except ValueError as error:
        raise BundleError(f"{path / TOKENIZER_FILE}: cannot be read ({_line(error)}); {_REMEDY}") from None
    known = min((entry.vocabulary_size for entry in manifest.encoders), default=tokenizer.vocabulary_size)
    if tokenizer.vocabulary_size > known:
        raise BundleError(
            f"{path / TOKENIZER_FILE}: has {tokenizer.vocabulary_size} tokens, but the graph knows {known}: "
            f"it belongs to another model; {_REMEDY}"
        )
    try:
        frequencies = DocumentFrequencies.read(path / FREQUENCIES_FILE)
    except ValueError as error:
        raise BundleError(f"{path / FREQUENCIES_FILE}: cannot be read ({_line(error)}); {_REMEDY}") from None
    encoder = _open_encoder(path, manifest, tokenizer)
    meaning = manifest.pipeline.meaning and manifest.pipeline.meaning.encoder
    open_meaning = partial(open_described, meaning, path, tokenizer) if meaning else None
    return Bundle(
        path, manifest, tokenizer, frequencies, Pipeline(manifest.pipeline, tokenizer, frequencies, encoder, open_meaning)
    )


def _open_encoder(path: Path, manifest: Manifest, tokenizer: Tokenizer) -> Encoder | None:
    try:
        return open_encoder(manifest.pipeline.encoder, path, tokenizer)
    except ValueError as error:
        raise BundleError(f"{_line(error)}; {_REMEDY}") from None


def write_bundle(path: str | Path, manifest: Manifest, files: Mapping[str, Path], *, overwrite: bool = False) -> Bundle:
    """Write a bundle next to its target, check it as a reader would, and move it there. So nobody sees a partial bundle.

    Args:
        path: a new or empty directory; with `overwrite` also an existing bundle, which is replaced.
        manifest: the manifest; this function fills in its `files`.
        files: the source of each file, by the file's name in the bundle.

    Raises:
        BundleError: the target is taken, or the new bundle does not load.
    """
    path = Path(path).resolve()  # what is renamed is the directory behind a link
    check_target(path, overwrite)
    if wrong := [name for name in files if not _PLAIN_NAME.fullmatch(name)]:
        raise BundleError(f"{path}: {wrong[0]!r} is no plain file name inside the bundle; rename it")
    partial = path.with_name(f".{path.name}.{uuid.uuid4().hex}.partial")
    try:
        partial.mkdir(parents=True)
        for name, source in files.items():
            shutil.copyfile(source, partial / name)
        entries = {name: _entry(partial / name) for name in sorted(files)}
        _write_manifest(partial / MANIFEST_FILE, manifest.model_copy(update={"files": entries}))
        checked = load_bundle(partial).manifest
        _move(partial, path)
    except OSError as error:
        raise BundleError(
            f"{path}: cannot be written ({error.strerror}: {error.filename}); check the path and the free space"
        ) from None
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return _build(path, checked)  # again: the encoder that is opened at its first use must be looked for there


def check_target(path: Path, overwrite: bool) -> None:
    """Raise BundleError unless a bundle may be written to this path; callers check before they make a bundle, which takes long."""
    path = path.resolve()
    if os.path.ismount(path):
        raise BundleError(f"{path}: cannot be replaced, since a file system is mounted there; give a new directory inside of it")
    above = next(parent for parent in path.parents if parent.exists())
    if not above.is_dir() or not os.access(above, os.W_OK | os.X_OK):
        raise BundleError(f"{path}: cannot be written: {above} is {'not writable' if above.is_dir() else 'a file'}; check the path")
    if not path.exists():
        return
    if not path.is_dir():
        raise BundleError(f"{path}: is a file; give a directory for the bundle")
    if not any(path.iterdir()):
        return
    if not overwrite:
        raise BundleError(f"{path}: is not empty; give another directory, or ask for the old bundle to be overwritten")
    if not (path / MANIFEST_FILE).is_file():
        raise BundleError(f"{path}: is not empty and holds no bundle, so it is not overwritten; give another directory")


def _move(partial: Path, path: Path) -> None:
    """Move the finished directory to its path; an old bundle is renamed first, since a rename cannot replace a full directory."""
    old = path.with_name(f"{partial.name}.old")
    if path.exists() and any(path.iterdir()):
        path.rename(old)
    partial.rename(path)
    shutil.rmtree(old, ignore_errors=True)


def _write_manifest(file: Path, manifest: Manifest) -> None:
    try:
        text = json.dumps(manifest.model_dump(mode="json"), indent=1, ensure_ascii=False, allow_nan=False)
        file.write_text(text + "\n", encoding="utf-8")
    except ValueError as error:
        raise BundleError(f"{file.name}: provenance or quality holds what JSON cannot ({_line(error)}); leave it out") from None


def _entry(file: Path) -> FileEntry:
    with file.open("rb") as stream:
        return FileEntry(sha256=digest_of(stream), bytes=file.stat().st_size)


def _unreadable(file: Path, error: OSError) -> BundleError:
    what = "is missing" if isinstance(error, FileNotFoundError) else f"cannot be read ({error.strerror})"
    return BundleError(f"{file}: {what}; {_REMEDY}")


def _problems(error: ValidationError) -> str:
    """The first three problems, each with its place and value; unknown fields have a message of their own."""
    described = [
        f"{'.'.join(map(str, e['loc']))}: {_message(e['type'], e['msg'])} ({_line(repr(e['input']))[:80]})"
        if e["loc"]
        else e["msg"]
        for e in error.errors()
    ]
    more = f"; and {len(described) - 3} more" if len(described) > 3 else ""
    return _line("; ".join(described[:3]) + more)


def _message(kind: str, message: str) -> str:
    return "unknown field of another or newer version" if kind == "extra_forbidden" else message


def _line(error: object) -> str:
    return " ".join(str(error).split())
