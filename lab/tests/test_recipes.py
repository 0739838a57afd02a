"""The recipes of the papers' systems: each reads and resolves, and says what its paper says."""

from itertools import pairwise
from pathlib import Path

import pytest
import torch
import yaml
from transformers import AutoModelForSequenceClassification

from keyblock.pipeline import Pipeline
from keyblock.text.analyzer import DocumentFrequencies
from keyblock.text.tokenizer import Tokenizer
from lab.families import LongEncoderFamily
from lab.plan import dry_run
from tests.support.checkpoints import save_checkpoint
from training.data.collection import Collection
from training.model.classifier import Classifier
from training.model.families import new_ranker
from training.recipe import Recipe, load_recipe

RECIPES = Path(__file__).resolve().parents[1] / "recipes"
PAPER = RECIPES / "paper"
OVERLAYS = sorted((PAPER / "on").glob("*.yaml"))
KEYB = ["firstp", "keyb-tfidf", "keyb-bm25", "keyb-binb", "keyb-random", "parade16", "parade5", "parade5-binb2", "best"]


def named(recipe: Recipe) -> list[Collection]:
    return [Collection(Path(name)) for name in recipe.collections]


@pytest.mark.parametrize("path", sorted(RECIPES.glob("*/*.yaml")), ids=lambda path: path.stem)
def test_the_recipes_read_and_dump_to_themselves(path: Path) -> None:
    recipe = load_recipe(path)
    assert recipe.name == path.stem
    assert Recipe.model_validate(yaml.safe_load(yaml.safe_dump(recipe.model_dump(mode="json")))) == recipe


@pytest.mark.parametrize("folder", ["small", "field"])
def test_every_small_recipe_resolves(folder: str, toy: Collection) -> None:
    for path in sorted((RECIPES / folder).glob("*.yaml")):
        assert dry_run(load_recipe(path, ["mixture={}"]), [toy])[-1] in ("everything resolves", "everything else resolves"), path


@pytest.mark.parametrize("path", sorted(PAPER.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_paper_recipe_resolves(path: Path) -> None:
    recipe = load_recipe(path)
    lines = dry_run(recipe, named(recipe))
    assert lines[0].startswith(f"{path.stem}: ")
    assert lines[-1] in ("everything resolves", "everything else resolves")
    assert recipe.backbone.split("/")[0] in ("google-bert", "cross-encoder", "distilbert", "sentence-transformers", "allenai")


@pytest.mark.parametrize(
    ("name", "overlay"), [*((name, OVERLAYS[0]) for name in KEYB), *(("keyb-bm25", overlay) for overlay in OVERLAYS[1:])]
)
def test_every_system_resolves_on_a_collection_and_one_on_every(name: str, overlay: Path) -> None:
    recipe = load_recipe([PAPER / f"{name}.yaml", overlay])
    lines = dry_run(recipe, named(recipe))
    assert recipe.name == name
    assert recipe.steps < 3000
    assert any("round 1 of 5" in line for line in lines)


def test_the_papers_settings() -> None:
    """KeyB section 6.1; BeST section 4: one to ten."""
    keyb = load_recipe([PAPER / "keyb-bm25.yaml", PAPER / "on" / "robust04.yaml"])
    assert (keyb.loss, keyb.optimizer.encoder_lr, keyb.optimizer.head_lr, keyb.optimizer.decay) == ("hinge", 2e-5, 1e-3, "none")
    assert (keyb.longest, keyb.negatives.depth) == (512, 200)
    best = load_recipe(PAPER / "best-robust04.yaml")
    assert (best.negatives.depth, best.collections) == (100, ("robust04.yaml",))
    parade = load_recipe(PAPER / "parade16.yaml").pipeline
    assert parade.segmenter == {"name": "window", "block_tokens": 225, "stride": 200}
    assert parade.aggregator == {"name": "states", "passages": 16}
    assert parade.packing.budget == 256


PASSES = [("system", 10, 15_000), ("on/robust04", 10, 1_024), ("on/mq", 10, 2_048)]


@pytest.mark.parametrize(("name", "epochs", "batches"), PASSES)
def test_paper_recipes_take_the_steps_that_the_paper_says(name: str, epochs: int, batches: int) -> None:
    """KeyB, section 6.1: epochs of so many batches of two pairs. Each is measured on dev once."""
    recipe = load_recipe([PAPER / "system.yaml", PAPER / f"{name}.yaml"])
    assert recipe.queries_per_step is not None
    assert recipe.steps * recipe.queries_per_step == epochs * batches * 2
    assert recipe.steps == epochs * recipe.evaluate_every


@pytest.mark.parametrize("name", ["best", "best-robust04"])
def test_best_chooses_among_the_four_leading_segments(name: str) -> None:
    """BeST, section 4."""
    recipe = load_recipe(PAPER / f"{name}.yaml")
    assert recipe.training_pipeline.selector == {"name": "learned", "keep": 4, "by": {"name": "first"}}
    assert (recipe.negatives.per_query, recipe.loss) == ((1, "hinge") if name == "best" else (10, "pointwise"))


def sequences_of(name: str, tokenizer: Tokenizer, tokens: int, folder: str = "paper") -> list[list[int]]:
    """The document's tokens in each sequence of a recipe's model, of a document of so many tokens."""
    recipe = load_recipe(RECIPES / folder / f"{name}.yaml")
    pipeline = Pipeline(recipe.pipeline, tokenizer, DocumentFrequencies(1, {}))
    query, document = pipeline.prepare_query("x"), pipeline.prepare_document("a b c d e f g h i j " * (tokens // 10))
    return [packed.ids[packed.split : -1].tolist() for packed in pipeline.select(query, document).sequences]


def test_windows_overlap_and_chunks_do_not(tokenizer: Tokenizer) -> None:
    """The evaluation paper's PARADE-Avg and AvgP average the same states and differ in what they read (footnote 6)."""
    windows, chunks = (sequences_of(name, tokenizer, 340) for name in ("parade-average", "chunks-avgp"))
    assert [len(window) for window in windows] == [150, 150, 140]  # tokens 0 to 150, 100 to 250, 200 to 340
    assert all(before[100:] == after[:50] for before, after in pairwise(windows))
    assert [len(chunk) for chunk in chunks] == [340]
    assert [len(chunk) for chunk in sequences_of("chunks-avgp", tokenizer, 2000)] == [461, 461, 461]
    for name in ("windows-maxp", "windows-sump", "parade-average"):
        assert [len(window) for window in sequences_of(name, tokenizer, 2000)] == [150] * 14
        assert len(sequences_of(name, tokenizer, 1430)) == 14


def test_the_field_has_windows_that_overlap_too(tokenizer: Tokenizer) -> None:
    """Beside chunks of 213, with which PARADE-Avg and AvgP are one system."""
    for name in ("windows", "windows-parade-average", "windows-parade-attention"):
        windows = sequences_of(name, tokenizer, 2000, "field")
        assert [len(window) for window in windows] == [150] * 10, name
        assert all(before[100:] == after[:50] for before, after in pairwise(windows))
    assert [len(chunk) for chunk in sequences_of("parade-average", tokenizer, 2000, "field")] == [213] * 5


def test_firstp_reads_a_documents_first_tokens(tokenizer: Tokenizer) -> None:
    """KeyB, section 6.1: 512 tokens with the query; the evaluation paper, appendix A: the first chunk."""
    words = tokenizer.ids("a b c d e f g h i j " * 200).tolist()
    assert sequences_of("firstp", tokenizer, 2000) == [words[: 512 - 4]], "all but [CLS] x [SEP] ... [SEP]"
    assert sequences_of("chunks-firstp", tokenizer, 2000) == [words[:461]]


def test_binb2s_ranker_keeps_the_cross_encoders_head(tmp_path: Path) -> None:
    """KeyB, section 6.1: the ranker comes from a cross-encoder of MS MARCO, head and all."""
    recipe = load_recipe(PAPER / "parade5-binb2-selector.yaml")
    source = save_checkpoint("bert", tmp_path / "checkpoint")
    model = new_ranker(recipe.model, str(source))
    theirs = AutoModelForSequenceClassification.from_pretrained(source)
    assert isinstance(model, Classifier)
    assert torch.equal(model.final.weight, theirs.classifier.weight)


def test_longp_reads_a_documents_first_tokens_in_order(tokenizer: Tokenizer) -> None:
    """The evaluation paper cuts documents to 1,431 tokens, beside queries of 32; here the query has one, and leaves 31."""
    words = tokenizer.ids("a b c d e f g h i j " * 200).tolist()
    for folder, tokens in (("paper", 1467), ("small", 1024)):
        (sequence,) = sequences_of("longp", tokenizer, 2000, folder)
        assert sequence == words[: tokens - 4], "all but [CLS] x [SEP] ... [SEP]"
        assert load_recipe(RECIPES / folder / "longp.yaml").longest == tokens


def test_qds_adds_its_attention_to_longp(tokenizer: Tokenizer) -> None:
    longp, qds = (load_recipe(RECIPES / "small" / f"{name}.yaml").model_dump() for name in ("longp", "qds"))
    directed = qds.pop("model")["query_directed"]
    assert list(directed["sentence_ends"]) == [tokenizer.ids(mark)[0] for mark in ".?!"]
    assert longp.pop("model") == LongEncoderFamily(positions=1024).describe()
    assert longp | {"name": ""} == qds | {"name": ""}
