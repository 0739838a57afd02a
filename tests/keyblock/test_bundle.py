import hashlib
import json
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from keyblock.bundle import (
    FORMAT_VERSION,
    AggregatorEntry,
    Bundle,
    BundleError,
    GraphEntry,
    Manifest,
    SharedFile,
    Variant,
    check_target,
    load_bundle,
    write_bundle,
)
from keyblock.description import PipelineConfig
from keyblock.encoders import TokenTable
from keyblock.fusion import Fusion
from keyblock.ranker import Ranker

WORDS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "river", "bank", "water", ".", ",")
Edit = Callable[[dict[str, Any]], Any]


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    """The three files of a bundle; the graph is opaque bytes here, since keyblock.bundle never opens it."""
    folder = tmp_path / "made"
    folder.mkdir()
    tokenizer = Tokenizer(models.WordPiece({word: i for i, word in enumerate(WORDS)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "model.onnx").write_bytes(bytes(range(256)) * 8)
    (folder / "frequencies.tsv").write_text("documents\t10\nriver\t4\nbank\t2\n")
    return {name: folder / name for name in ("tokenizer.json", "model.onnx", "frequencies.tsv")}


def graph(file: str = "model.onnx", vocabulary_size: int = len(WORDS), max_length: int = 256) -> GraphEntry:
    return GraphEntry(file=file, inputs={"input_ids": "int64"}, vocabulary_size=vocabulary_size, max_length=max_length)


def manifest(**changes: Any) -> Manifest:
    fields: dict[str, Any] = {"name": "tiny", "pipeline": PipelineConfig(), "graph": graph()}
    return Manifest(**{**fields, **changes})


@pytest.fixture
def bundle(tmp_path: Path, files: dict[str, Path]) -> Path:
    return write_bundle(tmp_path / "bundle", manifest(), files).path


def refusal(path: Path) -> str:
    with pytest.raises(BundleError) as caught:
        load_bundle(path)
    message = str(caught.value)
    assert len(message.splitlines()) == 1
    assert message.startswith(str(path))
    return message.removeprefix(str(path))


def edit_manifest(bundle: Path, edit: Edit) -> None:
    content = json.loads((bundle / "bundle.json").read_text())
    edit(content)
    (bundle / "bundle.json").write_text(json.dumps(content))


def replace_file(bundle: Path, name: str, content: bytes) -> None:
    """Damage that the hashes cannot see: the manifest is brought in line with the new content."""
    (bundle / name).write_bytes(content)
    entry = {"sha256": hashlib.sha256(content).hexdigest(), "bytes": len(content)}
    edit_manifest(bundle, lambda m: m["files"].update({name: entry}))


def test_what_is_written_reads_back(tmp_path: Path, files: dict[str, Path]) -> None:
    config = PipelineConfig(selector={"name": "bm25", "k1": 1.2})
    given = manifest(pipeline=config, quality={"dev": {"squad": {"128": {"nDCG@10": 0.9}}}}, provenance={"seed": 1})
    path = write_bundle(tmp_path / "deep" / "bundle", given, files).path
    loaded = load_bundle(path)
    assert loaded.manifest.model_copy(update={"files": {}}) == given
    assert loaded.manifest.format_version == FORMAT_VERSION
    assert loaded.manifest.files["model.onnx"].bytes == 2048
    assert loaded.graph_path.read_bytes() == files["model.onnx"].read_bytes()
    assert loaded.frequencies.n_documents == 10
    assert loaded.pipeline.config == config
    selection = loaded.pipeline.select(
        loaded.pipeline.prepare_query("river"), loaded.pipeline.prepare_document("bank, river water.")
    )
    assert selection.packed.ids.tolist() == [2, 4, 3, 5, 8, 4, 6, 7, 3]


def with_all_graphs(**changes: Any) -> Manifest:
    """A ranker that combines the states of passages which a second model chooses."""
    config = PipelineConfig(selector={"name": "learned"}, aggregator={"name": "states", "passages": 5})
    entries = {"aggregator": AggregatorEntry(hidden=32), "selector_graph": graph("selector.onnx")}
    return manifest(**{"pipeline": config, **entries, **changes})


@pytest.fixture
def all_files(files: dict[str, Path]) -> dict[str, Path]:
    return files | {"aggregator.onnx": files["model.onnx"], "selector.onnx": files["model.onnx"]}


def test_aggregator_and_selector_read_back(tmp_path: Path, all_files: dict[str, Path]) -> None:
    loaded = load_bundle(write_bundle(tmp_path / "bundle", with_all_graphs(), all_files).path)
    assert loaded.manifest.model_copy(update={"files": {}}) == with_all_graphs()
    assert loaded.aggregator_path == tmp_path / "bundle" / "aggregator.onnx"
    assert loaded.encoder_files("bf16") == ((loaded.graph_path, None), (tmp_path / "bundle" / "selector.onnx", None))
    (tmp_path / "bundle" / "aggregator.onnx").unlink()
    assert refusal(tmp_path / "bundle").startswith("/aggregator.onnx: is missing")


def with_table(files: dict[str, Path], tokens: int = len(WORDS)) -> dict[str, Path]:
    """With a table in which "river" and "water" are the same, and no other word is known."""
    table, scales = np.zeros((tokens, 2), np.int8), np.zeros(tokens, np.float32)
    table[[4, 6], 1], scales[[4, 6]] = 100, 0.01
    TokenTable(table, scales).write(path := files["model.onnx"].with_name("token_vectors.npz"))
    return files | {"token_vectors.npz": path}


VECTORS = PipelineConfig(selector={"name": "vectors"}, encoder={"name": "static"})


def test_an_encoder_reads_back(tmp_path: Path, files: dict[str, Path]) -> None:
    loaded = load_bundle(write_bundle(tmp_path / "bundle", manifest(pipeline=VECTORS), with_table(files)).path)
    assert loaded.pipeline.config == VECTORS
    query = loaded.pipeline.prepare_query("water")
    assert loaded.pipeline.selector.scores(query, loaded.pipeline.prepare_document("river"), loaded.frequencies).tolist() == [1]


def test_an_encoder_whose_file_is_not_listed(tmp_path: Path, files: dict[str, Path]) -> None:
    with pytest.raises(BundleError, match=r"'files' does not list token_vectors.npz, which this bundle needs"):
        write_bundle(tmp_path / "bundle", manifest(pipeline=VECTORS), files)
    elsewhere = VECTORS.model_copy(update={"encoder": {"name": "static", "file": "../made/token_vectors.npz"}})
    with pytest.raises(BundleError, match=r"'files' does not list \.\./made/token_vectors.npz"):
        write_bundle(tmp_path / "bundle", manifest(pipeline=elsewhere), with_table(files))


def variant(*names: str) -> Variant:
    """The ranker's and the selector's graphs for another arithmetic."""
    entries = [graph(name) for name in names]
    return Variant(graph=entries[0], selector_graph=entries[1] if len(entries) > 1 else None, quality={"nDCG@10 lost": 0.001})


def test_variants_read_back(tmp_path: Path, all_files: dict[str, Path]) -> None:
    names = "model.int8.onnx", "selector.int8.onnx"
    given = with_all_graphs(variants={"int8": variant(*names)})
    files = all_files | dict.fromkeys(names, all_files["model.onnx"])
    loaded = load_bundle(write_bundle(tmp_path / "bundle", given, files).path)
    assert loaded.manifest.variants == given.variants
    assert [files.graph.name for files in loaded.encoder_files("int8") if files] == list(names)
    assert [files.graph.name for files in loaded.encoder_files("fp32") if files] == ["model.onnx", "selector.onnx"]
    (tmp_path / "bundle" / names[1]).unlink()
    assert refusal(tmp_path / "bundle").startswith("/selector.int8.onnx: is missing")


def with_sharing(files: dict[str, Path]) -> tuple[Manifest, dict[str, Path]]:
    """A variant that reads weights in the bundle's own graph, and all files."""
    named = SharedFile(file="model.onnx", sha256=hashlib.sha256(files["model.onnx"].read_bytes()).hexdigest())
    sharing = variant("model.int8-static.onnx")
    sharing = sharing.model_copy(update={"graph": sharing.graph.model_copy(update={"shares": named})})
    return manifest(variants={"int8-static": sharing}), files | {"model.int8-static.onnx": files["tokenizer.json"]}


def test_a_graph_exchanged_beside_a_variant_that_reads_it(tmp_path: Path, files: dict[str, Path]) -> None:
    """Whatever the manifest says of the new file, the variant's weights would be somewhere else in it."""
    bundle = write_bundle(tmp_path / "bundle", *with_sharing(files)).path
    loaded = load_bundle(bundle)
    assert loaded.encoder_files("int8-static") == ((bundle / "model.int8-static.onnx", loaded.graph_path), None)
    assert loaded.encoder_files("bf16") == ((loaded.graph_path, None), None)
    made_with, found = (hashlib.sha256(content).hexdigest()[:12] for content in ((bundle / "model.onnx").read_bytes(), b"another"))
    (bundle / "model.onnx").write_bytes(b"another")
    assert refusal(bundle).startswith("/model.onnx: has 7 bytes where bundle.json says 2048")
    replace_file(bundle, "model.onnx", b"another")
    assert refusal(bundle).startswith(
        f"/model.int8-static.onnx: reads weights in model.onnx of sha256 {made_with}..., here it is {found}...; copy"
    )
    edit_manifest(bundle, lambda m: m["variants"]["int8-static"]["graph"]["shares"].update(file="other.onnx"))
    assert refusal(bundle).startswith(
        f"/model.int8-static.onnx: reads weights in other.onnx of sha256 {made_with}..., which is not"
    )


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"aggregator": None}, "pipeline.aggregator 'states' combines states, but there is no entry 'aggregator'"),
        (
            {"pipeline": PipelineConfig(selector={"name": "learned"}, aggregator={"name": "max"})},
            "'aggregator', but pipeline.aggregator 'max' combines no states",
        ),
        ({"pipeline": PipelineConfig(aggregator={"name": "states"})}, "'selector_graph', but pipeline.selector 'bm25' asks none"),
        (
            {"variants": {"int8": variant("model.int8.onnx")}},
            "variant int8 and the bundle must both have an entry 'selector_graph', or neither",
        ),
        ({"variants": {"int4": variant("model.int4.onnx", "selector.int4.onnx")}}, r"variants\.int4"),
    ],
)
def test_graphs_that_are_not_the_pipelines(changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        with_all_graphs(**changes)


def test_a_selector_of_another_size(tmp_path: Path, all_files: dict[str, Path]) -> None:
    short, small = graph("selector.onnx", max_length=128), graph("selector.onnx", vocabulary_size=3)
    with pytest.raises(BundleError, match="budget_range ends at 256 tokens, but the graph takes 128 at most"):
        write_bundle(tmp_path / "bundle", with_all_graphs(selector_graph=short), all_files)
    with pytest.raises(BundleError, match="belongs to another model"):
        write_bundle(tmp_path / "bundle", with_all_graphs(selector_graph=small), all_files)


def test_the_embedded_bundle_has_one_file_of_weights(embedded: Bundle) -> None:
    for precision in ("int8-static", "fp16"):
        assert embedded.encoder_files(precision) == ((embedded.path / f"model.{precision}.onnx", embedded.graph_path), None)
    assert sum(path.stat().st_size for path in embedded.path.iterdir()) <= 75_000_000


def test_the_papers_system_is_the_embedded_weights_with_other_blocks(embedded: Bundle) -> None:
    """BM25 chooses blocks, the model reads every document, and its own score decides."""
    ranker = Ranker.open(embedded.path.parent / "keyb-bm25")
    assert ranker.bundle.graph_path.resolve() == embedded.graph_path.resolve()
    fusion = ranker.bundle.pipeline.config.fusion
    assert fusion == Fusion(bias=fusion.bias, logit=fusion.logit)
    filler = "The committee met again and talked about chairs. " * 30
    texts = [filler, f"{filler}The Danube flows through Vienna. {filler}", *["No word of it."] * 30]
    ranking = ranker.rank("Which river flows through Vienna?", texts, return_blocks=True)
    assert (ranking[0].index, "The Danube flows through Vienna." in ranking[0].blocks[0].text) == (1, True)
    assert {result.scored_by for result in ranking} == {"model"}


def test_others_may_read_what_was_written(bundle: Path) -> None:
    mask = os.umask(0)
    os.umask(mask)
    assert stat.S_IMODE(bundle.stat().st_mode) == 0o777 & ~mask
    assert stat.S_IMODE((bundle / "model.onnx").stat().st_mode) == 0o666 & ~mask
    (bundle / "README.md").write_text("how it was made")
    assert "README.md" not in load_bundle(bundle).manifest.files, "what the manifest does not name is left alone"


def test_a_path_without_a_bundle(tmp_path: Path) -> None:
    assert "does not exist" in refusal(tmp_path / "none")
    (tmp_path / "file").write_text("")
    assert "is not a directory" in refusal(tmp_path / "file")
    (tmp_path / "empty").mkdir()
    assert refusal(tmp_path / "empty").startswith("/bundle.json: is missing")


@pytest.mark.parametrize("name", ["tokenizer.json", "model.onnx"])
def test_a_damaged_file(bundle: Path, name: str) -> None:
    content = (bundle / name).read_bytes()
    (bundle / name).write_bytes(content[:-1])
    assert refusal(bundle).startswith(f"/{name}: has {len(content) - 1} bytes where bundle.json says {len(content)}")
    (bundle / name).write_bytes(content + b"\n")
    assert refusal(bundle).startswith(f"/{name}: has {len(content) + 1} bytes")
    (bundle / name).write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    assert refusal(bundle).startswith(f"/{name}: was altered")
    (bundle / name).unlink()
    assert refusal(bundle).startswith(f"/{name}: is missing")
    (bundle / name).mkdir()
    assert refusal(bundle).startswith(f"/{name}: cannot be read (Is a directory)")


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "not JSON"),
        (b'\xff{"a": 1}', "not JSON"),
        (b'{"format_version": NaN}', "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"[]", "must hold a JSON object, not list"),
        (b"{}", "format_version must be a whole number, not None"),
        (b'{"format_version": "11"}', "format_version must be a whole number, not '11'"),
        (b'{"format_version": true}', "not True"),
        (b'{"format_version": 10}', "is of format 10, and this KeyBlock reads 11; export the bundle again"),
        (b'{"format_version": 12, "new": 1}', "is of format 12, and this KeyBlock reads 11; update KeyBlock, or export"),
        (b'{"format_version": 11}', "name: Field required"),
        (b" " * (17 << 20), "larger than 16 MiB"),
    ],
)
def test_an_invalid_manifest_is_named(bundle: Path, content: bytes, problem: str) -> None:
    (bundle / "bundle.json").write_bytes(content)
    message = refusal(bundle)
    assert message.startswith("/bundle.json: ")
    assert problem in message


@pytest.mark.parametrize(
    ("edit", "problem"),
    [
        (lambda m: m.update(colour="red"), "colour: unknown field of another or newer version ('red')"),
        (lambda m: m["graph"].update(device="x"), "graph.device: unknown field"),
        (lambda m: m.pop("graph"), "no entry 'graph', and no pipeline.cosine_scale"),
        (lambda m: m["pipeline"]["selector"].update(k9=1), "k9"),
        (lambda m: m["pipeline"].update(selector={"name": "oracle"}), "unknown selector 'oracle'; known: bm25"),
        (lambda m: m["pipeline"]["packing"].update(budget="many"), "pipeline.packing.budget: Input should be a valid integer"),
        (lambda m: m["pipeline"]["packing"].update(budget_range=[64, 300]), "ends at 300 tokens, but the graph takes 256 at most"),
        (lambda m: m["files"].pop("model.onnx"), "'files' does not list model.onnx"),
        (lambda m: m["files"]["model.onnx"].update(sha256="abc"), "files.model.onnx.sha256: String should match"),
        (lambda m: m["files"].update({"../secret": m["files"]["model.onnx"]}), "'../secret' is no plain file name"),
        (lambda m: m["files"].update({"..": m["files"]["model.onnx"]}), "'..' is no plain file name"),
        (lambda m: m["graph"].update(file="../model.onnx"), "'files' does not list ../model.onnx"),
        (
            lambda m: m["pipeline"].update(aggregator={"name": "states"}),
            "/bundle.json: Value error, pipeline.aggregator 'states' combines states, but there is no entry 'aggregator'; copy",
        ),
        (lambda m: m["graph"].update(vocabulary_size=4), "/tokenizer.json: has 9 tokens, but the graph knows 4"),
    ],
)
def test_a_manifest_that_does_not_fit(bundle: Path, edit: Edit, problem: str) -> None:
    edit_manifest(bundle, edit)
    assert problem in refusal(bundle)


def test_many_problems_are_shortened(bundle: Path) -> None:
    edit_manifest(bundle, lambda m: m.update({f"field{i}": "x" * 1000 for i in range(50)}))
    message = refusal(bundle)
    assert "and 47 more" in message
    assert len(message) < 700


@pytest.mark.parametrize(
    ("name", "content"),
    [("tokenizer.json", content) for content in (b"no tokenizer", b'{"version": "1.0"}', b"\xff\xfe")]
    + [
        ("frequencies.tsv", content)
        for content in (b"", b"documents\tmany\n", b"documents\t3\nriver\n", b"documents\t3\n\xff\t1\n")
    ],
)
def test_a_file_that_cannot_be_read(bundle: Path, name: str, content: bytes) -> None:
    replace_file(bundle, name, content)
    assert refusal(bundle).startswith(f"/{name}: cannot be read")


def test_an_occupied_place_is_kept(bundle: Path, tmp_path: Path, files: dict[str, Path]) -> None:
    with pytest.raises(BundleError, match="is not empty"):
        write_bundle(bundle, manifest(name="second"), files)
    assert load_bundle(bundle).manifest.name == "tiny"
    with pytest.raises(BundleError, match="holds no bundle"):
        write_bundle(tmp_path / "made", manifest(), files, overwrite=True)
    with pytest.raises(BundleError, match="is a file"):
        write_bundle(files["model.onnx"], manifest(), files, overwrite=True)
    with pytest.raises(BundleError, match=r"cannot be written: .*model\.onnx is a file; check the path"):
        check_target(files["model.onnx"] / "a" / "b", overwrite=False)
    with pytest.raises(BundleError, match="a file system is mounted there"):
        check_target(Path("/"), overwrite=False)
    check_target(tmp_path / "none" / "yet", overwrite=False)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bundle", "made"]


@pytest.mark.parametrize("place", ["bundle", "link"])
def test_overwriting_replaces_the_whole_bundle(bundle: Path, tmp_path: Path, files: dict[str, Path], place: str) -> None:
    """Behind a link, which stays."""
    (tmp_path / "link").symlink_to("bundle")
    (bundle / "left-over").write_text("old")
    write_bundle(tmp_path / place, manifest(name="second"), files, overwrite=True)
    assert load_bundle(bundle).manifest.name == "second"
    assert not (bundle / "left-over").exists()
    assert (tmp_path / "link").is_symlink()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bundle", "link", "made"]


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"quality": {"nDCG@10": float("nan")}}, "holds what JSON cannot"),
        ({"provenance": {"git": object()}}, "holds what JSON cannot"),
        ({"graph": GraphEntry(inputs={}, vocabulary_size=2)}, "belongs to another model"),
    ],
)
def test_what_would_not_load_is_not_written(tmp_path: Path, files: dict[str, Path], changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(BundleError, match=problem):
        write_bundle(tmp_path / "bundle", manifest(**changes), files)
    assert [path.name for path in tmp_path.iterdir()] == ["made"]


def test_a_file_that_is_not_there_or_leaves_the_bundle_is_not_written(tmp_path: Path, files: dict[str, Path]) -> None:
    with pytest.raises(BundleError, match=r"cannot be written \(No such file or directory: .*none"):
        write_bundle(tmp_path / "bundle", manifest(), {**files, "notes.txt": tmp_path / "none"})
    with pytest.raises(BundleError, match=r"'\.\./x' is no plain file name"):
        write_bundle(tmp_path / "bundle", manifest(), {**files, "../x": files["model.onnx"]})
    assert [path.name for path in tmp_path.iterdir()] == ["made"]


def test_a_bundle_that_scores_by_vectors_has_no_graph(tmp_path: Path, files: dict[str, Path]) -> None:
    """Every other bundle has one; each mismatch is refused in a line."""
    parts: dict[str, Any] = {"aggregator": {"name": "max"}, "packing": {"title_tokens": 0}, "cosine_scale": 20}
    by_vectors = PipelineConfig.model_validate(VECTORS.model_dump() | parts)
    kept = {name: path for name, path in with_table(files).items() if name != "model.onnx"}
    loaded = load_bundle(write_bundle(tmp_path / "bundle", manifest(pipeline=by_vectors, graph=None), kept).path)
    assert loaded.manifest.encoders == []
    for asked in (lambda: loaded.graph_path, lambda: loaded.encoder_files("fp32")):
        with pytest.raises(BundleError, match="has no graph, since it scores by vectors alone"):
            asked()
    with pytest.raises(ValueError, match="no entry 'graph'"):
        manifest(pipeline=VECTORS, graph=None)
    with pytest.raises(ValueError, match="scores by vectors alone, but there are entries 'graph'"):
        manifest(pipeline=by_vectors)


def test_an_encoder_of_another_tokenizer(tmp_path: Path, files: dict[str, Path]) -> None:
    problem = "is of a vocabulary of 12 tokens, and the tokenizer has 9: they belong to different models; copy the bundle again"
    with pytest.raises(BundleError, match=problem):
        write_bundle(tmp_path / "bundle", manifest(pipeline=VECTORS), with_table(files, tokens=12))


def test_a_damaged_encoder_file_is_named(tmp_path: Path, files: dict[str, Path]) -> None:
    path = write_bundle(tmp_path / "bundle", manifest(pipeline=VECTORS), with_table(files)).path
    replace_file(path, "token_vectors.npz", b"no archive")
    assert refusal(path).startswith("/token_vectors.npz: no table of token vectors")
