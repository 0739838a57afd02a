"""The fixtures of the other tests: their collections, backbones and runs."""

from pathlib import Path

import pytest

from tests.conftest import backbone, drawn_alike, frequencies, pipeline, tokenizer
from tests.export.conftest import checkpoint, model, run, save_run, tiny
from tests.support.once import once
from tests.training.collections.conftest import data_set, describe, files
from tests.training.commands.conftest import refused
from tests.training.conftest import (
    change_pipeline,
    make_recipe,
    one_thread,
    own_cache,
    recipe_file,
    recipe_tree,
    run_copy,
    toy,
    toy_bundle,
    toy_copy,
    toy_path,
    toy_pipeline,
    toy_run,
    undrawn,
    write_backbone,
)


@pytest.fixture(scope="session")
def tiny_backbone(tmp_path_factory: pytest.TempPathFactory, backbone: Path) -> Path:
    """With all of MiniLM's words: what the systems here learn is measured."""
    return once(tmp_path_factory, "backbone", lambda path: write_backbone(path, backbone, 30522))
