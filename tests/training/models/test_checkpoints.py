"""Checkpoints: what comes back, and a crash at any moment of a save."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import BertConfig, BertModel

from training.model.checkpoints import (
    STATE_FILE,
    CheckpointError,
    chosen,
    has_checkpoint,
    latest,
    load_state,
    save_best,
    save_state,
)
from training.model.cross_encoder import HEAD_FILE, CrossEncoder
from training.model.ranker_module import FAMILY_FILE

MODEL_FILES = {"config.json", "model.safetensors", HEAD_FILE, FAMILY_FILE, "tokenizer.json"}

Parts = tuple[CrossEncoder, torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler]


def parts(seed: int) -> Parts:
    """A model with its optimizer and schedule, one step into training."""
    torch.manual_seed(seed)
    config = BertConfig(vocab_size=20, hidden_size=8, num_hidden_layers=1, num_attention_heads=1, intermediate_size=8)
    model = CrossEncoder(BertModel(config, add_pooling_layer=False)).eval()  # no dropout
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, fused=True)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step))
    return model, optimizer, scheduler


def save(run: Path, parts: Parts, step: int) -> None:
    save_state(run, parts[0], {"optimizer": parts[1], "scheduler": parts[2]}, step)


def load(run: Path, parts: Parts) -> int:
    return load_state(run, parts[0], {"optimizer": parts[1], "scheduler": parts[2]})


def weights(model: CrossEncoder) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in model.parameters()])


@pytest.fixture
def run(tmp_path: Path, backbone: Path) -> Path:
    shutil.copy(backbone / "tokenizer.json", tmp_path / "tokenizer.json")
    return tmp_path


def test_a_run_without_a_checkpoint_starts_at_0(run: Path) -> None:
    assert load(run, parts(0)) == 0
    assert not has_checkpoint(run)
    with pytest.raises(CheckpointError, match="has no checkpoint"):
        latest(run)


def test_the_best_model_is_what_a_run_gives(run: Path) -> None:
    best, last = parts(0), parts(1)
    save(run, last, 2)
    assert chosen(run) == latest(run) == run / "checkpoint"
    assert {p.name for p in latest(run).iterdir()} == {*MODEL_FILES, STATE_FILE}
    save_best(run, best[0])
    assert (latest(run), chosen(run)) == (run / "checkpoint", run / "best")
    assert {p.name for p in chosen(run).iterdir()} == MODEL_FILES
    assert torch.equal(weights(CrossEncoder.load(chosen(run))), weights(best[0]))
    (run / "best").rename(run / "best.old")  # as a crash between the two replacements leaves it
    assert chosen(run) == run / "best.old"
    save_best(run, last[0])
    assert chosen(run) == run / "best"
    assert not (run / "best.old").exists()


@pytest.mark.parametrize("room", [0, 1000, 6000])  # bytes a file: the head's weights take 100 and more
def test_without_room_for_a_checkpoint_the_one_before_stays(run: Path, small_disk: Callable[[int | None], None], room: int) -> None:
    (run / "tokenizer.json").write_text("{}", encoding="utf-8")
    mine = parts(1)
    save(run, mine, 1)
    sizes = [path.stat().st_size for path in (run / "checkpoint").iterdir()]
    assert max(sizes) > 6000
    small_disk(room)
    with pytest.raises(CheckpointError, match=r"checkpoint: could not be written, what was there stays; is the disk full\?"):
        save(run, parts(2), 2)
    small_disk(None)
    assert [path.name for path in run.iterdir() if path.name.startswith("checkpoint")] == ["checkpoint"]
    found = parts(9)
    assert load(run, found) == 1
    assert torch.equal(weights(found[0]), weights(mine[0]))


class Crash(BaseException):
    """Not an Exception: nothing may catch it, as nothing catches a kill."""


def crashing(monkeypatch: pytest.MonkeyPatch, after: int) -> Callable[[], bool]:
    """Let the process die before its file operation number `after`; tells whether it did."""
    left, died = after, False

    def before(real: Callable[..., Any]) -> Callable[..., Any]:
        def operation(*args: Any, **options: Any) -> Any:
            nonlocal left, died
            if left == 0:
                died = True
                raise Crash
            left -= 1
            return real(*args, **options)

        return operation

    for where, name in [(os, "replace"), (shutil, "copy"), (shutil, "rmtree"), (torch, "save"), (CrossEncoder, "save")]:
        monkeypatch.setattr(where, name, before(getattr(where, name)))
    return lambda: died


@pytest.mark.parametrize("second_crash", [1, 3, 5])
@pytest.mark.parametrize("first_crash", range(8))
def test_a_crash_at_any_moment_leaves_the_old_or_the_new_one_whole(
    run: Path, monkeypatch: pytest.MonkeyPatch, first_crash: int, second_crash: int
) -> None:
    """Saves of steps 1 to 3; the second dies at one moment, and so does the third, on what the second left."""
    states = {step: parts(step) for step in (1, 2, 3)}
    save(run, states[1], 1)
    possible = {1}
    for step, crash in ((2, first_crash), (3, second_crash)):
        with monkeypatch.context() as patch:
            died = crashing(patch, crash)
            try:
                save(run, states[step], step)
            except Crash:
                pass
        possible = possible | {step} if died() else {step}
        found = parts(9)
        loaded = load(run, found)
        assert loaded in possible
        assert torch.equal(weights(found[0]), weights(states[loaded][0]))
        possible = {loaded}
    save(run, states[3], 3)
    assert load(run, parts(9)) == 3


@pytest.mark.parametrize("victim", [STATE_FILE, "model.safetensors", HEAD_FILE])
@pytest.mark.parametrize("how", ["missing", "empty", "cut short", "of another model"])
def test_damage_is_one_clear_error(run: Path, tmp_path_factory: pytest.TempPathFactory, victim: str, how: str) -> None:
    save(run, parts(0), 1)
    path = run / "checkpoint" / victim
    content = path.read_bytes()
    if how == "missing":
        path.unlink()
    elif how == "of another model":
        torch.save({"weights": torch.zeros(2)}, path) if victim == STATE_FILE else shutil.copy(
            path.with_name(HEAD_FILE if victim == "model.safetensors" else "model.safetensors"), path
        )
    else:
        path.write_bytes(b"" if how == "empty" else content[: len(content) // 2])
    with pytest.raises(CheckpointError, match="checkpoint: cannot be continued, remove it to start again"):
        load(run, parts(1))
