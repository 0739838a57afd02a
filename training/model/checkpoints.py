"""Resumable checkpoints: a directory of the model and of the training state, replaced as one."""

import os
import pickle
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

import torch
from safetensors import SafetensorError

from training.model.ranker_module import RankerModule

STATE_FILE = "state.pt"
LAST, BEST = "checkpoint", "best"
DAMAGE = (OSError, EOFError, KeyError, ValueError, RuntimeError, pickle.UnpicklingError, SafetensorError)


class CheckpointError(ValueError):
    """A run has no checkpoint, a damaged one, or no room for one; the message is one line that names it."""


class Stateful(Protocol):
    """A part of a checkpoint beside the model: an optimizer, a schedule, early stopping."""

    def state_dict(self) -> dict[str, Any]:
        """The state as tensors and plain values."""

    def load_state_dict(self, state_dict: dict[str, Any], /) -> Any:
        """Restore the state that `state_dict` gave."""


def latest(run: Path) -> Path:
    """The directory of the last complete checkpoint. Raises CheckpointError if the run has none."""
    found = _whole(run / LAST)
    if found is None:
        raise CheckpointError(f"{run}: has no checkpoint; keyblock-train writes one every checkpoint_every steps")
    return found


def has_checkpoint(run: Path) -> bool:
    """Whether a run has a checkpoint to continue from."""
    return _whole(run / LAST) is not None


def chosen(run: Path) -> Path:
    """The directory of a run's final model: the best on dev if early stopping kept one, else the last.

    Raises CheckpointError if the run has none.
    """
    return _whole(run / BEST) or latest(run)


def save_state(run: Path, model: RankerModule, parts: Mapping[str, Stateful], step: int) -> None:
    """Replace RUN/checkpoint; a crash at any moment leaves the old or the new checkpoint complete.

    Raises CheckpointError if it cannot be written; the old checkpoint stays.
    """

    def write(fresh: Path) -> None:
        _write_model(run, model, fresh)
        torch.save({name: part.state_dict() for name, part in parts.items()} | {"step": step}, fresh / STATE_FILE)

    _replace(run / LAST, write)


def save_best(run: Path, model: RankerModule) -> None:
    """Replace RUN/best, which holds the model alone, as `save_state` replaces the checkpoint. Raises CheckpointError likewise."""
    _replace(run / BEST, lambda fresh: _write_model(run, model, fresh))


def load_state(run: Path, model: RankerModule, parts: Mapping[str, Stateful]) -> int:
    """Load the last checkpoint into `model` and `parts`. Returns its step, 0 without one. Raises CheckpointError for damage."""
    checkpoint = _whole(run / LAST)
    if checkpoint is None:
        return 0
    try:
        state = torch.load(checkpoint / STATE_FILE, map_location="cpu", weights_only=True)
        model.load_weights(checkpoint)
        for name, part in parts.items():
            part.load_state_dict(state[name])
        return int(state["step"])
    except DAMAGE as error:
        raise CheckpointError(f"{checkpoint}: cannot be continued, remove it to start again ({error})") from None


def _whole(directory: Path) -> Path | None:
    """The directory, or its .old copy if a crash interrupted a save; None without both."""
    return next((path for path in (directory, directory.with_suffix(".old")) if path.is_dir()), None)


def _replace(directory: Path, write: Callable[[Path], None]) -> None:
    fresh, old = directory.with_suffix(".new"), directory.with_suffix(".old")
    try:
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir(parents=True)
        write(fresh)
        if directory.exists():
            shutil.rmtree(old, ignore_errors=True)
            os.replace(directory, old)
        os.replace(fresh, directory)
    except (OSError, RuntimeError, SafetensorError) as error:  # PyTorch and safetensors raise various errors for a full disk
        shutil.rmtree(fresh, ignore_errors=True)  # an incomplete checkpoint is of no use
        raise CheckpointError(f"{directory}: could not be written, what was there stays; is the disk full? ({error})") from None
    shutil.rmtree(old, ignore_errors=True)


def _write_model(run: Path, model: RankerModule, directory: Path) -> None:
    model.save(directory)
    shutil.copy(run / "tokenizer.json", directory / "tokenizer.json")
