"""Is a training step as fast as the CrossEncoder trainer's of sentence-transformers? Both train on the same pairs, in turns.

    python benchmarks/training_step.py [--turns 4] [--steps 3] [--precision bf16] [--peer PYTHON]

Both have the same backbone, pairs, batch, length, loss (binary cross-entropy), optimizer (AdamW, clipped at 1) and precision, and
no dropout. Both read text: KeyBlock's trainer prepares documents once, and selects and packs during training. The peer gets the
text of the selected blocks and tokenizes it in every step. Each trainer has its own process and waits while the other takes its
turn.

sentence-transformers' trainer needs `datasets`, which KeyBlock does not need: the script creates an environment for it
(build/peer-trainer), which shares everything else, PyTorch and transformers included. --peer names another Python to use instead.
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
PEER = ROOT / "build" / "peer-trainer"
QUERIES, DOCUMENTS, WORDS = 64, 512, 1500
PAIRS = 8  # documents of a query, one of them relevant
VOCABULARY = "river stone bridge winter garden market engine island teacher letter forest window people music cloud summer".split()
Rows = list[list[Any]]
"""Query, text and label of each pair."""


class Turn(NamedTuple):
    """Seconds of wall time, and CPU seconds of the trainer's process, which other work on the machine changes little."""

    wall: float
    cpu: float


def make_collection(directory: Path) -> None:
    """Write a collection: long documents of random words, a run in random order, two splits."""
    rng = random.Random(0)
    (directory / "splits").mkdir(parents=True)
    with (directory / "corpus.jsonl").open("w", encoding="utf-8") as corpus:
        for number in range(DOCUMENTS):
            words = [word + rng.choice(["", "", "", "", "s", ",", ".", "."]) for word in rng.choices(VOCABULARY, k=WORDS)]
            corpus.write(json.dumps({"_id": str(number), "title": words[0], "text": " ".join(words)}) + "\n")
    names = [f"q{number}" for number in range(QUERIES)]
    queries = [json.dumps({"_id": name, "text": " ".join(rng.choices(VOCABULARY, k=8))}) for name in names]
    (directory / "queries.jsonl").write_text("\n".join(queries) + "\n", encoding="utf-8")
    (directory / "qrels.tsv").write_text("".join(f"{q} 0 {rng.randrange(DOCUMENTS)} 1\n" for q in names), encoding="utf-8")
    for split in ("train", "dev"):
        (directory / "splits" / f"{split}.txt").write_text("\n".join(names) + "\n", encoding="utf-8")
        ranked = [f"{q} Q0 {d} {r} {100 - r} x\n" for q in names for r, d in enumerate(rng.sample(range(DOCUMENTS), 40), 1)]
        (directory / f"run.{split}.bm25.trec").write_text("".join(ranked), encoding="utf-8")


def make_recipe(options: argparse.Namespace) -> Any:
    """The recipe of both trainers."""
    from training.recipe import Recipe

    return Recipe.model_validate(
        {
            "name": "step",
            "loss": "pointwise",
            "negatives": {"per_query": PAIRS - 1, "depth": 40},
            "steps": (options.turns + 1) * options.steps,
            "tokens_per_step": options.pairs * options.budget,
            "micro_tokens": options.pairs * options.budget,
            "budgets": {options.budget: 1.0},
            "precision": options.precision,
        }
    )


def make_data(directory: Path, options: argparse.Namespace) -> Any:
    """The data of KeyBlock's trainer."""
    from training.collections.collection import Collection
    from training.learning.data import Data
    from training.learning.run_directory import make_pipeline
    from training.recipe import backbone_path

    recipe, collection = make_recipe(options), Collection(directory / "collection")
    (directory / "run").mkdir(exist_ok=True)
    pipeline = make_pipeline(recipe, [collection], backbone_path(recipe.backbone), directory / "run")
    return Data.build(recipe, [collection], pipeline, directory / "run" / "tokenizer.json", directory / "cache")


def selected_texts(data: Any) -> Rows:
    """The pairs of all steps as text; each document is the text of the blocks that KeyBlock's step packs."""
    (source,) = data.sources.values()
    preparation, rows = source.preparation, []
    for step in range(data.recipe.steps):
        batch = data.draw(step)
        for group in batch.groups:
            for rank, name in enumerate(group.documents):
                document = preparation.document(name)
                taken = data.pipeline.select(preparation.query(group.query), document, batch.budget).taken
                _, title, text = preparation.collection.document(name)
                blocks = [text[document.starts[b] : document.ends[b]] for b in sorted(taken.tolist())]
                rows.append([preparation.collection.query(group.query), " ".join([title, *blocks]), float(rank == 0)])
    return rows


def wait_for_turn(step: int, steps: int, began: list[Turn]) -> None:
    """After each turn of `steps` steps, print a step's time and wait for the next turn."""
    if step % steps == 0:
        if began:
            wall, cpu = time.perf_counter() - began[-1].wall, time.process_time() - began[-1].cpu
            print(json.dumps({"wall": wall / steps, "cpu": cpu / steps}), flush=True)
        sys.stdin.readline()
        began.append(Turn(time.perf_counter(), time.process_time()))


def train_ours(directory: Path, options: argparse.Namespace) -> None:
    """Train with KeyBlock's trainer."""
    from training.learning.loop import Trainer, make_accelerator
    from training.learning.objectives import RankingObjective
    from training.learning.train import make_model

    class InTurns(Trainer):
        began: list[Turn] = []  # noqa: RUF012  # of the one trainer in this process

        def _at_milestones(self) -> None:
            """Wait for the next turn; nothing is measured or saved."""
            synchronize()
            wait_for_turn(self.step, options.steps, self.began)

    data, accelerator = make_data(directory, options), make_accelerator()
    data.prepare()
    model, _ = make_model(data.recipe, accelerator.device)
    trainer = InTurns(
        data.recipe, model, RankingObjective(data.recipe, data.pipeline, data.examples), data.draw, data.dev, directory / "run"
    )
    wait_for_turn(0, options.steps, trainer.began)
    trainer.train()


def train_theirs(directory: Path, options: argparse.Namespace) -> None:
    """Train with the trainer of sentence-transformers."""
    from datasets import Dataset
    from sentence_transformers.cross_encoder import CrossEncoder, CrossEncoderTrainer, CrossEncoderTrainingArguments
    from sentence_transformers.cross_encoder.losses import BinaryCrossEntropyLoss
    from transformers import TrainerCallback

    from training.recipe import backbone_path

    class InTurns(TrainerCallback):
        began: list[Turn] = []  # noqa: RUF012

        def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            synchronize()
            wait_for_turn(state.global_step, options.steps, self.began)

        def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            wait_for_turn(0, options.steps, self.began)

    rows: Rows = json.loads((directory / "pairs.json").read_text(encoding="utf-8"))
    recipe, columns = make_recipe(options), list(zip(*rows, strict=True))
    dataset = Dataset.from_dict(dict(zip(("query", "text", "label"), map(list, columns), strict=True)))
    undropped = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    model = CrossEncoder(
        backbone_path(recipe.backbone), num_labels=1, max_length=options.budget, config_kwargs=undropped, device=options.device
    )
    arguments = CrossEncoderTrainingArguments(
        output_dir=str(directory / "theirs"),
        per_device_train_batch_size=options.pairs,
        max_steps=recipe.steps,
        learning_rate=recipe.optimizer.encoder_lr,
        bf16=options.precision == "bf16",
        use_cpu=options.device == "cpu",
        train_sampling_strategy="sequential",
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
    )
    CrossEncoderTrainer(
        model=model, args=arguments, train_dataset=dataset, loss=BinaryCrossEntropyLoss(model), callbacks=[InTurns()]
    ).train()


def synchronize() -> None:
    """Wait until a GPU has finished its work."""
    import torch

    if torch.cuda.is_available():
        torch.cuda.synchronize()


TRAINERS = {"KeyBlock": train_ours, "sentence-transformers": train_theirs}


def peer_python() -> Path:
    """The Python of an environment with `datasets`, created if missing; it uses all other packages of this environment."""
    python = PEER / ("Scripts" if os.name == "nt" else "bin") / "python"
    if not (PEER / "made").exists():
        venv.create(PEER, with_pip=True, clear=True)
        here = next(path for path in sys.path if path.endswith("site-packages"))
        (site,) = PEER.glob("**/site-packages")
        (site / "beside.pth").write_text(f"import site; site.addsitedir({here!r})\n", encoding="utf-8")
        pinned = ["-c", str(ROOT / "requirements" / "constraints.txt")]
        subprocess.run([python, "-m", "pip", "install", "--quiet", *pinned, "datasets>=4"], check=True)
        (PEER / "made").touch()
    return python


@contextmanager
def worker(name: str, python: Path, directory: Path) -> Iterator[subprocess.Popen[str]]:
    """A trainer's process, which takes a turn for each line written to it."""
    command = [str(python), str(Path(__file__).resolve()), *sys.argv[1:], "--worker", name, "--directory", str(directory)]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "TOKENIZERS_PARALLELISM": "true"}
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def take_turn(process: subprocess.Popen[str]) -> Turn:
    """Let a trainer take its turn. Returns a step's seconds. Raises RuntimeError if the trainer ended."""
    process.stdin.write("\n")
    process.stdin.flush()
    for line in process.stdout:
        if line.startswith('{"wall"'):
            return Turn(**json.loads(line))
    raise RuntimeError("a trainer ended before its turns were over; what it said stands above")


def measure(options: argparse.Namespace, directory: Path) -> dict[str, list[Turn]]:
    """The seconds of a step in every turn, by trainer; the first turn, which warms up, is left out."""
    pythons = {"KeyBlock": Path(sys.executable), "sentence-transformers": options.peer or peer_python()}
    taken: dict[str, list[Turn]] = {name: [] for name in TRAINERS}
    with (
        worker("KeyBlock", pythons["KeyBlock"], directory) as ours,
        worker("sentence-transformers", pythons["sentence-transformers"], directory) as theirs,
    ):
        for turn in range(options.turns + 1):
            pairs = [("KeyBlock", ours), ("sentence-transformers", theirs)]
            for name, process in pairs if turn % 2 else reversed(pairs):
                seconds = take_turn(process)
                if turn:
                    taken[name].append(seconds)
    return taken


def table(taken: Mapping[str, list[Turn]], options: argparse.Namespace) -> str:
    """A Markdown table of each trainer's time per step, and the median ratio of neighbouring turns."""
    lines = ["| trainer | seconds a step, median (lowest) | CPU seconds a step, median (lowest) | pairs/s |", "|---|---|---|---|"]
    for name, turns in taken.items():
        wall, cpu = ([getattr(turn, clock) for turn in turns] for clock in Turn._fields)
        cells = [f"{statistics.median(seconds):.2f} ({min(seconds):.2f})" for seconds in (wall, cpu)]
        lines.append(f"| {name} | {' | '.join(cells)} | {options.pairs / statistics.median(wall):.1f} |")
    rounds = list(zip(*taken.values(), strict=True))
    wall, cpu = (
        statistics.median(getattr(theirs, clock) / getattr(ours, clock) for ours, theirs in rounds) for clock in Turn._fields
    )
    load = f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} CPUs" if hasattr(os, "getloadavg") else ""
    batch = f"{options.pairs} pairs of {options.budget} tokens, {options.precision}, {options.device}, {threads()} threads"
    ratios = f"A step of theirs takes {wall:.2f} times as long as ours, and {cpu:.2f} times the CPU seconds"
    return "\n".join([*lines, "", f"{ratios} (median of {options.turns} turns of {options.steps} steps; {batch}; {load})."])


def threads() -> int:
    """PyTorch's CPU threads; on a busy machine measure with OMP_NUM_THREADS=1."""
    import torch

    return torch.get_num_threads()


def main() -> None:
    """Measure both trainers, or, with --worker, run one of them."""
    import torch

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, default=4, help="turns of each trainer, after one to warm up")
    parser.add_argument("--steps", type=int, default=3, help="steps a turn")
    parser.add_argument("--pairs", type=int, default=64, help=f"pairs a step, a multiple of {PAIRS}")
    parser.add_argument("--budget", type=int, default=128, help="tokens a pair")
    parser.add_argument("--precision", choices=["bf16", "fp32"], default="bf16")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--peer", type=Path, help="a Python with sentence-transformers[train]; made in build/ when left out")
    parser.add_argument("--worker", choices=list(TRAINERS), help=argparse.SUPPRESS)
    parser.add_argument("--directory", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        TRAINERS[options.worker](options.directory, options)
        return
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        make_collection(directory / "collection")
        data = make_data(directory, options)
        (directory / "pairs.json").write_text(json.dumps(selected_texts(data)), encoding="utf-8")
        data.close()
        print(table(measure(options, directory), options))


if __name__ == "__main__":
    main()
