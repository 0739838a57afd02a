"""From a recipe and collections to a run directory.

RUN holds: recipe.yaml, pipeline.json, tokenizer.json, frequencies.tsv, provenance.json, log.jsonl, curves.png and checkpoint/
(config.json, model.safetensors, head.safetensors, tokenizer.json, optimizer state).
"""

import json
import os
import platform
import shutil
from collections.abc import Iterable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
import yaml

from keyblock.frequencies import DocumentFrequencies
from keyblock.pipeline import Pipeline
from keyblock.text import Analyzer
from keyblock.tokenization import Tokenizer
from training import attention
from training.collection import Collection, distinct_names
from training.dev import DevSet
from training.first_stage import candidate_pool, complete_run
from training.loop import Trainer
from training.model import CrossEncoder
from training.recipe import Recipe, RecipeError, backbone_path, load_recipe
from training.sampling import Preparation, Source


def train(recipe: Recipe, collections: Sequence[Collection], run: Path) -> None:
    """Train, or continue the run that `run` holds.

    Raises RecipeError when `run` holds a run of another recipe, or the recipe does not fit the collections or the backbone.
    """
    torch.manual_seed(recipe.seed)
    _check_mixture(recipe, distinct_names(collections))
    backbone, device = backbone_path(recipe.backbone), best_device()
    model = CrossEncoder.from_backbone(backbone, recipe.dropout, attention=fastest_attention(device)).to(device)
    if recipe.longest > model.max_length:
        raise RecipeError(f"budgets or budget_range reach {recipe.longest} tokens, {backbone} reads {model.max_length} at most")
    run.mkdir(parents=True, exist_ok=True)
    _claim(run, recipe, collections)
    pipeline = make_pipeline(recipe, collections, backbone, run)
    preparations = {c.name: Preparation(c, pipeline) for c in collections}
    dev = DevSet.build(preparations, recipe)
    sources = {name: make_source(preparation, recipe) for name, preparation in preparations.items()}
    write_json(run / "provenance.json", provenance(recipe, sources))
    Trainer(recipe, model, pipeline, sources, dev, run).train()


def _check_mixture(recipe: Recipe, names: Sequence[str]) -> None:
    if recipe.mixture and set(recipe.mixture) != set(names):
        raise RecipeError(
            f"mixture names {', '.join(sorted(recipe.mixture))}, but the collections are {', '.join(sorted(names))}; "
            "give each a share, or --set mixture={} for equal ones"
        )


def make_source(preparation: Preparation, recipe: Recipe) -> Source:
    """The training queries of one collection, with a first-stage list for each."""
    depth = recipe.negatives.depth
    return Source.build(preparation, recipe.split, complete_run(preparation.collection, recipe.split, depth), depth)


def best_device() -> torch.device:
    """CUDA when there is one, else the CPU."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def fastest_attention(device: torch.device) -> str:
    """The attention implementation to train with on a device."""
    return attention.NAME if device.type == "cpu" else "sdpa"


def _claim(run: Path, recipe: Recipe, collections: Sequence[Collection]) -> None:
    """Write the recipe into RUN, or make sure that what began there is of the same one, on the same collections."""
    path, names = run / "recipe.yaml", [c.name for c in collections]
    if (run / "log.jsonl").exists() or (run / "checkpoint").exists():
        if load_recipe(path) != recipe:
            raise RecipeError(f"{run}: holds a run of another recipe; choose another --out, or the recipe in {path}")
        begun = list(json.loads((run / "provenance.json").read_text(encoding="utf-8")).get("collections", {}))
        if begun != names:  # their order decides what is drawn
            raise RecipeError(f"{run}: began on the collections {', '.join(begun)}, in that order, not on {', '.join(names)}")
    else:
        (run / "frequencies.tsv").unlink(missing_ok=True)  # of a try that never began: perhaps of other collections
        path.write_text(yaml.safe_dump(recipe.model_dump(mode="json"), sort_keys=False), encoding="utf-8")


def make_pipeline(recipe: Recipe, collections: Iterable[Collection], backbone: str, run: Path) -> Pipeline:
    """Build the pipeline and write its parts into RUN; frequencies are counted over the training pool once."""
    if not (Path(backbone) / "tokenizer.json").exists():
        from transformers import AutoTokenizer  # a hub name: transformers resolves and caches it

        AutoTokenizer.from_pretrained(backbone).backend_tokenizer.save(str(run / "tokenizer.json"))
    else:
        shutil.copy(Path(backbone) / "tokenizer.json", run / "tokenizer.json")
    path = run / "frequencies.tsv"
    if not path.exists():
        analyzer, partial = Analyzer(recipe.pipeline.analyzer), run / "frequencies.partial"
        DocumentFrequencies.count((t for c in collections for t in _pool_texts(c, recipe.split)), analyzer).write(partial)
        os.replace(partial, path)  # a table cut short by a kill would still read as one
    write_json(run / "pipeline.json", recipe.pipeline.model_dump(mode="json"))
    return Pipeline(recipe.pipeline, Tokenizer(run / "tokenizer.json"), DocumentFrequencies.read(path))


def _pool_texts(collection: Collection, split: str) -> Iterable[str]:
    for doc_id in candidate_pool(collection, split):
        _, title, text = collection.document(doc_id)
        yield f"{title} {text}"


def provenance(recipe: Recipe, sources: dict[str, Source]) -> dict[str, Any]:
    """What a bundle says of how its model was made."""
    return {
        "recipe": recipe.model_dump(mode="json"),
        "collections": {name: {"split": recipe.split, "queries": len(source.queries)} for name, source in sources.items()},
        "software": {name: version(name) for name in ("torch", "transformers", "tokenizers")}
        | {"python": platform.python_version()},
    }


def write_json(path: Path, value: Any) -> None:
    """Write JSON for people to read."""
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
