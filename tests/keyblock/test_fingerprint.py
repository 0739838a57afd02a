"""The name of a preparation changes with everything that changes what is prepared, and with nothing else."""

import ast
import inspect
from importlib import import_module
from pathlib import Path

import pytest

from keyblock.description import PipelineConfig
from keyblock.encoders import ENCODERS
from keyblock.fingerprint import code_files, preparation_fingerprint
from keyblock.pipeline import Pipeline
from keyblock.preparation import TextPreparer
from keyblock.text.analyzer import DocumentFrequencies
from keyblock.text.tokenizer import Tokenizer
from tests.support.vectors import concept_table


@pytest.fixture(scope="module")
def tokenizer_file(backbone: Path) -> Path:
    return backbone / "tokenizer.json"


@pytest.mark.parametrize(
    ("change", "same"),
    [
        ({"segmenter": {"name": "cogltx", "block_tokens": 40}}, False),
        ({"analyzer": {"stem": False}}, False),
        ({"packing": {"title_tokens": 8}}, False),
        ({"selector": {"name": "first"}, "aggregator": {"name": "max"}}, True),
    ],
)
def test_another_preparation_has_another_name_and_another_selection_has_not(
    pipeline: Pipeline, tokenizer_file: Path, change: dict[str, object], same: bool
) -> None:
    config = PipelineConfig.model_validate(pipeline.config.model_dump() | change)
    other = Pipeline(config, pipeline.tokenizer, DocumentFrequencies(7, {}))
    names = [preparation_fingerprint(one, tokenizer_file) for one in (pipeline, other)]
    assert (names[0] == names[1]) == same
    assert len(bytes.fromhex(names[0])) == 16


def test_vectors_have_a_name_for_each_table(pipeline: Pipeline, tokenizer_file: Path) -> None:
    """Documents that are kept without vectors, or with those of another table, are prepared again."""
    config = PipelineConfig(encoder={"name": "static"})
    tables = concept_table(pipeline.tokenizer), concept_table(pipeline.tokenizer, [["river"]])
    ours = [Pipeline(config, pipeline.tokenizer, pipeline.frequencies, table) for table in tables]
    assert len({preparation_fingerprint(one, tokenizer_file) for one in (pipeline, *ours)}) == 3


def test_another_tokenizer_has_another_name(pipeline: Pipeline, tokenizer_file: Path, tmp_path: Path) -> None:
    other = tmp_path / "tokenizer.json"
    other.write_bytes(tokenizer_file.read_bytes() + b"\n")
    assert Tokenizer(other).ids("stone").tolist() == pipeline.tokenizer.ids("stone").tolist()
    assert preparation_fingerprint(pipeline, other) != preparation_fingerprint(pipeline, tokenizer_file)


def imported(name: str) -> set[str]:
    """The modules of keyblock that one of them imports."""
    nodes = ast.walk(ast.parse(inspect.getsource(import_module(name))))
    froms = [node for node in nodes if isinstance(node, ast.ImportFrom) and node.module]
    packages = [node for node in froms if node.module in ("keyblock", "keyblock.text")]
    found = {f"{node.module}.{alias.name}" for node in packages for alias in node.names}
    return found | {str(node.module) for node in froms if str(node.module).startswith("keyblock.") and node not in packages}


def test_the_code_that_prepares_is_named() -> None:
    """Where a document is made from its text, and where each encoder makes its blocks' vectors."""
    makers = (TextPreparer.prepare_documents, *(ENCODERS.create(name).open for name in ENCODERS.names()))
    assert {Path(inspect.getfile(maker)) for maker in makers} <= set(code_files())


def test_no_module_that_reads_or_cuts_documents_is_forgotten() -> None:
    reached: set[str] = set()
    todo = {"keyblock.text.reader", "keyblock.encoders", "keyblock.segmenters", "keyblock.prepared", "keyblock.text.analyzer"}
    while todo:
        reached |= todo
        todo = {found for name in todo for found in imported(name)} - reached
    files = {
        Path(str(import_module(name).__file__)) for name in reached - {"keyblock.registry"}
    }  # that only finds segmenters by name
    assert files <= set(code_files())
