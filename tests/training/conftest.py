"""A collection and an encoder small enough that training them is a matter of seconds, and real in every other way.

Twelve topics of four documents each, two to four blocks long. Three of them only talk about the topic, all the time; the fourth
has one sentence about it, behind its first block, and that one holds the answer: BM25 ranks it last, and a ranker of key blocks
can learn to rank it first. Eight topics are train's, four are dev's.
"""

import functools
import json
import random
import resource
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from keyblock.bundle import Bundle, GraphEntry, Manifest, write_bundle
from keyblock.description import PipelineConfig
from keyblock.fusion import Fusion
from keyblock.pipeline import Pipeline
from keyblock.text.analyzer import Analyzer, DocumentFrequencies
from keyblock.text.tokenizer import Tokenizer
from tests.conftest import export_plain
from tests.support.once import once
from training.data.collection import Collection
from training.data.examples import Preparation
from training.data.files import open_text, write_run
from training.data.first_stage import bm25_run
from training.recipe import Recipe

TOPICS = "river stone bridge winter garden market engine island teacher letter forest window".split()
CHATTER = (
    "people often went along before night with old friends while music played near houses under heavy clouds last summer".split()
)
TRAIN_TOPICS = 8
VOCABULARY = 8192  # words of the tiny backbone; all of the toy's are among them


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    """So small a model gains nothing from threads, and loses much where they wait for each other on a busy machine."""
    torch.set_num_threads(1)


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No test reads or leaves prepared documents where the user's are."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KEYBLOCK_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture
def small_disk() -> Iterator[Callable[[int | None], None]]:
    """Lets the system refuse to write files beyond a size, as it does on a full disk; None: no longer."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    yield lambda size: resource.setrlimit(resource.RLIMIT_FSIZE, (before[0] if size is None else size, before[1]))
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
    signal.signal(signal.SIGXFSZ, ignored)


def sentence(rng: random.Random, *words: str) -> str:
    chosen = [*rng.choices(CHATTER, k=11), *words]
    rng.shuffle(chosen)
    return " ".join(chosen).capitalize() + "."


def documents(rng: random.Random) -> tuple[list[dict[str, str]], list[dict[str, Any]]]:
    """Rows of corpus.jsonl and of spans.jsonl."""
    corpus, spans = [], []
    for topic in TOPICS:
        for number in range(4):
            parts = [sentence(rng) if number == 3 else sentence(rng, topic) for _ in range(rng.randint(8, 14))]
            name = f"{topic}-{number}"
            if number == 3:
                parts[-2] = f"The answer for the {topic} stands here."
                start = len(" ".join(parts[:-2])) + 1
                spans.append({"qid": f"{topic}?", "docid": name, "start": start, "end": start + len(parts[-2])})
            corpus.append({"_id": name, "title": topic.capitalize(), "text": " ".join(parts)})
    return corpus, spans


def write_rows(path: Path, rows: list[Any]) -> None:
    with open_text(path, "w") as out:
        out.writelines(json.dumps(row) + "\n" for row in rows)


@pytest.fixture(scope="session")
def toy_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The collection's directory; some files gzipped, some not. Never write into it."""
    return once(tmp_path_factory, "collections/toy", write_toy)


def write_toy(path: Path) -> None:
    (path / "splits").mkdir()
    corpus, spans = documents(random.Random(7))
    queries = [
        {"_id": f"{t}{mark}", "text": f"{what} the {t}"} for t in TOPICS for mark, what in (("?", "news of"), ("!", "say what is"))
    ]
    write_rows(path / "corpus.jsonl.gz", corpus)
    write_rows(path / "queries.jsonl", queries)
    write_rows(path / "spans.jsonl.gz", spans)
    with open_text(path / "qrels.tsv.gz", "w") as out:
        out.writelines(f"{q['_id']}\t0\t{q['_id'][:-1]}-3\t1\n{q['_id']}\t0\t{q['_id'][:-1]}-0\t0\n" for q in queries)
    for split, topics in (("train", TOPICS[:TRAIN_TOPICS]), ("dev", TOPICS[TRAIN_TOPICS:])):
        names = [f"{t}{mark}" for t in topics for mark in "?!"]
        (path / "splits" / f"{split}.txt").write_text("\n".join(names) + "\n", encoding="utf-8")
        asked = [q for q in names if split == "dev" or q.endswith("?")]  # train's run leaves every other query out
        pool = [row["_id"] for row in corpus if row["_id"][:-2] in topics]
        write_run(bm25_run(Collection(path), asked, pool, depth=4), path / f"run.{split}.bm25.trec.gz", "bm25")


@pytest.fixture(scope="session")
def toy(toy_path: Path) -> Collection:
    return Collection(toy_path)


@pytest.fixture
def toy_copy(toy_path: Path, tmp_path: Path) -> Path:
    """A copy to damage."""
    return Path(shutil.copytree(toy_path, tmp_path / "toy"))


@pytest.fixture(scope="session")
def tiny_backbone(tmp_path_factory: pytest.TempPathFactory, backbone: Path) -> Path:
    """A BERT of two layers and width 32 with random weights, and MiniLM's tokenizer with its most frequent words only."""
    return once(tmp_path_factory, "backbone", lambda path: write_backbone(path, backbone, VOCABULARY))


def write_backbone(path: Path, backbone: Path, vocabulary: int) -> None:
    """That BERT, with so many of the words."""
    from transformers import BertConfig, BertModel

    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    BertModel(BertConfig(vocab_size=vocabulary, max_position_embeddings=128, **sizes)).save_pretrained(path)
    tokenizer = json.loads((backbone / "tokenizer.json").read_text(encoding="utf-8"))
    words = tokenizer["model"]["vocab"]
    tokenizer["model"]["vocab"] = {word: number for word, number in words.items() if number < vocabulary}
    (path / "tokenizer.json").write_text(json.dumps(tokenizer), encoding="utf-8")


@pytest.fixture(scope="session")
def recipe_tree(tiny_backbone: Path) -> dict[str, Any]:
    """A recipe, as YAML reads it. Copy before changing."""
    return {
        "name": "toy",
        "backbone": str(tiny_backbone),
        "pipeline": {"packing": {"query_tokens": 8, "title_tokens": 4, "budget": 80, "budget_range": [32, 96]}},
        "loss": "listwise",
        "negatives": {"per_query": 3, "depth": 4},
        "optimizer": {"encoder_lr": 2e-3, "head_lr": 2e-2},
        "steps": 40,
        "tokens_per_step": 1024,
        "budgets": {80: 0.5, 96: 0.5},
        "precision": "fp32",
        "checkpoint_every": 20,
        "evaluate_every": 20,
        "dev_queries": 8,
        "dev_depth": 4,
    }


@pytest.fixture(scope="session")
def make_recipe(recipe_tree: dict[str, Any]) -> Callable[..., Recipe]:
    """The recipe with some keys replaced."""
    return lambda **changes: Recipe.model_validate(recipe_tree | changes)


@pytest.fixture(scope="session")
def recipe_file(recipe_tree: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    def write(folder: Path) -> None:
        (folder / "toy.yaml").write_text(yaml.safe_dump(recipe_tree), encoding="utf-8")

    return once(tmp_path_factory, "recipes", write) / "toy.yaml"


@pytest.fixture(scope="session")
def toy_pipeline(toy: Collection, tokenizer: Tokenizer, recipe_tree: dict[str, Any]) -> Pipeline:
    """The recipe's pipeline, its frequencies counted over all of the toy's documents."""
    config = PipelineConfig.model_validate(recipe_tree["pipeline"])
    frequencies = DocumentFrequencies.count((f"{d.title} {d.text}" for d in toy.documents.values()), Analyzer(config.analyzer))
    return Pipeline(config, tokenizer, frequencies)


@pytest.fixture(scope="session")
def preparation(toy: Collection, toy_pipeline: Pipeline) -> Preparation:
    return Preparation(toy, toy_pipeline)


@pytest.fixture(scope="session")
def change_pipeline(toy_pipeline: Pipeline) -> Callable[..., Pipeline]:
    """The recipe's pipeline with some parts replaced; each made once."""

    @functools.cache
    def changed(parts: str) -> Pipeline:
        config = PipelineConfig.model_validate(toy_pipeline.config.model_dump() | json.loads(parts))
        return Pipeline(config, toy_pipeline.tokenizer, toy_pipeline.frequencies)

    return lambda **parts: changed(json.dumps(parts))


@pytest.fixture(scope="session")
def toy_run(toy_path: Path, recipe_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of the recipe, by keyblock-train. Never write into it."""
    from training.commands.train import main as train_main

    def train(run: Path) -> None:
        assert train_main([str(recipe_file), "--collection", str(toy_path), "--out", str(run)]) == 0

    return once(tmp_path_factory, "runs/toy-run", train)


@pytest.fixture(scope="module")
def undrawn(toy_run: Path) -> Iterator[None]:
    """Runs without a picture of their curves, which takes longer than their few steps; `toy_run` has one."""
    from training.learn import loop

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "draw_curves", lambda _: None)
        yield


@pytest.fixture
def run_copy(toy_run: Path, tmp_path: Path) -> Path:
    """A copy of the finished run to calibrate or damage."""
    return Path(shutil.copytree(toy_run, tmp_path / "toy-run"))


@pytest.fixture(scope="session")
def toy_bundle(toy_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """The finished run as a bundle, with a fusion; the graph is PyTorch's plain export, in fp32."""
    from training.evaluate.ranking import load_run_pipeline
    from training.model.checkpoints import latest
    from training.model.cross_encoder import CrossEncoder

    work = tmp_path_factory.mktemp("bundle")
    model = CrossEncoder.load(latest(toy_run), attention="eager")
    export_plain(model, work / "model.onnx")
    fusion = Fusion(bias=-2.0, logit=0.7, best_block=0.2, coverage=0.5)
    config = load_run_pipeline(toy_run).config.model_copy(update={"fusion": fusion})
    graph = GraphEntry(inputs=dict.fromkeys(model.INPUTS, "int64"), vocabulary_size=model.vocabulary_size, max_length=128)
    files = {"model.onnx": work / "model.onnx"} | {name: toy_run / name for name in ("tokenizer.json", "frequencies.tsv")}
    return write_bundle(work / "toy", Manifest(name="toy-bundle", pipeline=config, graph=graph), files)


def bundle_with(bundle: Bundle, path: Path, parts: dict[str, object], **changes: object) -> Bundle:
    """A copy of the bundle whose pipeline has other parts, and whose manifest changes."""
    config = PipelineConfig.model_validate(bundle.pipeline.config.model_dump() | parts)
    manifest = bundle.manifest.model_copy(update={"pipeline": config} | changes)
    return write_bundle(path, manifest, {name: bundle.path / name for name in bundle.manifest.files})
