"""Resumable checkpoints: the model in its own directory, optimizer and schedule beside it, replaced as one."""

import os
import pickle
import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from training.model import HEAD_FILE, CrossEncoder

STATE_FILE = "state.pt"


class CheckpointError(ValueError):
    """A run has no checkpoint, or a damaged one; one line that names it."""


def latest(run: Path) -> Path:
    """The directory of the last whole checkpoint. Raises CheckpointError when the run has none."""
    for name in ("checkpoint", "checkpoint.old"):  # the second is left by a crash between the two replacements
        if (run / name).is_dir():
            return run / name
    raise CheckpointError(f"{run}: has no checkpoint; keyblock-train writes one every checkpoint_every steps")


def save_state(
    run: Path,
    model: CrossEncoder,
    optimizer: torch.optim.Optimizer,
    scheduler: torch.optim.lr_scheduler.LRScheduler,
    step: int,
) -> None:
    """Replace RUN/checkpoint; a crash at any moment leaves the old or the new one whole."""
    fresh, current, old = run / "checkpoint.new", run / "checkpoint", run / "checkpoint.old"
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True)
    model.save(fresh)
    shutil.copy(run / "tokenizer.json", fresh / "tokenizer.json")
    torch.save({"optimizer": optimizer.state_dict(), "scheduler": scheduler.state_dict(), "step": step}, fresh / STATE_FILE)
    if current.exists():
        shutil.rmtree(old, ignore_errors=True)
        os.replace(current, old)
    os.replace(fresh, current)
    shutil.rmtree(old, ignore_errors=True)


def load_state(
    run: Path, model: CrossEncoder, optimizer: torch.optim.Optimizer, scheduler: torch.optim.lr_scheduler.LRScheduler
) -> int:
    """Load the last checkpoint into its arguments and give its step; 0 when there is none. Raises CheckpointError for damage."""
    try:
        checkpoint = latest(run)
    except CheckpointError:
        return 0
    try:
        return _load(checkpoint, model, optimizer, scheduler)
    except (OSError, EOFError, KeyError, ValueError, RuntimeError, pickle.UnpicklingError, SafetensorError) as error:
        raise CheckpointError(f"{checkpoint}: cannot be continued, remove it to start again ({error})") from None


def _load(checkpoint: Path, model: CrossEncoder, optimizer: torch.optim.Optimizer, scheduler: Any) -> int:
    state = torch.load(checkpoint / STATE_FILE, map_location="cpu", weights_only=True)
    model.encoder.load_state_dict(load_file(checkpoint / "model.safetensors"))
    model.head.load_state_dict(load_file(checkpoint / HEAD_FILE))
    optimizer.load_state_dict(state["optimizer"])
    scheduler.load_state_dict(state["scheduler"])
    return int(state["step"])
