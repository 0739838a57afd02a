"""The fixtures of the other tests: their collections, backbones and runs."""

from tests.conftest import backbone, drawn_alike, frequencies, pipeline, tokenizer
from tests.export.conftest import checkpoint, model, run, save_run, tiny
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
    tiny_backbone,
    toy,
    toy_bundle,
    toy_copy,
    toy_path,
    toy_pipeline,
    toy_run,
    undrawn,
)
