"""Resumable checkpoints: the model in its own directory, optimizer and schedule beside it, replaced as one."""

import os
import shutil
from pathlib import Path

import torch
from safetensors.torch import load_file

from training.model import HEAD_FILE, CrossEncoder

STATE_FILE = "state.pt"


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
    shutil.rmtree(old, ignore_errors=True)
    if current.exists():
        os.replace(current, old)
    os.replace(fresh, current)
    shutil.rmtree(old, ignore_errors=True)


def load_state(
    run: Path, model: CrossEncoder, optimizer: torch.optim.Optimizer, scheduler: torch.optim.lr_scheduler.LRScheduler
) -> int:
    """Load the last checkpoint into its arguments and give its step; 0 when there is none."""
    checkpoint = run / "checkpoint"
    if not checkpoint.exists():
        checkpoint = run / "checkpoint.old"  # a crash between the two replacements
    if not (checkpoint / STATE_FILE).exists():
        return 0
    model.encoder.load_state_dict(load_file(checkpoint / "model.safetensors"), strict=False)
    model.head.load_state_dict(load_file(checkpoint / HEAD_FILE))
    state = torch.load(checkpoint / STATE_FILE, weights_only=True)
    optimizer.load_state_dict(state["optimizer"])
    scheduler.load_state_dict(state["scheduler"])
    return int(state["step"])
