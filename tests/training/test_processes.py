"""Two processes that train together over gloo, against one that trains alone."""

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tests.training.learning.test_train import weights
from training.commands.train import main as train_main
from training.learn.tracking import read_log

ROOT = Path(__file__).resolve().parents[2]
SEVERAL = "import sys; from training.commands.train import main; print(*(main(given.split()) for given in sys.argv[1:]))"
SHIFTS = {"bias", "encoder.layer.1.output.LayerNorm.bias"}  # move all scores alike: their gradient is rounding, Adam's step is not
WEIGHT = "encoder.layer.0.intermediate.dense.weight"
PATIENCE = 200  # seconds until a process that waits for the other one is given up
RATES = "--set optimizer.encoder_lr=1e-4 --set optimizer.head_lr=1e-4 --set steps=5 --set evaluate_every=1 --set patience=1"
TRAININGS = {  # the first has three groups or two a step, so that shares are uneven; the second one, so that a process has none
    "several": f"{RATES} --set tokens_per_step=1024",
    "single": f"{RATES} --set tokens_per_step=320",
    "broken": "--set optimizer.encoder_lr=1e38 --set optimizer.head_lr=1e38 --set optimizer.warmup=0 --set steps=3",
}


def together(commands: Sequence[str], processes: int = 2) -> list[tuple[str, str]]:
    """Run keyblock-train commands, one after the other, in so many processes at once, as torchrun does; exit codes and stderr."""
    meeting = torch.distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)  # holds its port: nobody takes it
    shared = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(meeting.port)}
    shared |= {"TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_RESTART_COUNT": "0"}  # both processes meet there
    shared |= {"WORLD_SIZE": str(processes), "LOCAL_WORLD_SIZE": str(processes), "CUDA_VISIBLE_DEVICES": ""}
    started = [
        subprocess.Popen(
            [sys.executable, "-c", SEVERAL, *commands],
            env=os.environ | shared | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(processes)
    ]
    try:
        return [process.communicate(timeout=PATIENCE) for process in started]
    finally:
        for process in started:
            process.kill()


@pytest.mark.timeout(300)  # two processes import PyTorch; on a busy machine that takes its time
def test_two_processes_update_like_one(toy_path: Path, recipe_file: Path, tiny_backbone: Path, tmp_path: Path) -> None:
    """And both report errors, since what they compute is the same."""
    commands = {name: f"{recipe_file} --collection {toy_path} {settings}" for name, settings in TRAININGS.items()}
    for codes, said in together([f"{command} --out {tmp_path}/two-{name}" for name, command in commands.items()]):
        assert codes == "0 0 2\n", said[-2000:]
        assert "Traceback" not in said
        problem = r"^keyblock-train: step 1: the loss is .*lower optimizer\.encoder_lr or use precision: fp32"
        assert re.search(problem, said, re.MULTILINE), "a line of its own, behind the closed bar"
    assert not (tmp_path / "two-broken" / "checkpoint").exists()
    for name in ("several", "single"):
        one, two = (tmp_path / f"{how}-{name}" for how in ("one", "two"))
        assert train_main(f"{commands[name]} --out {one}".split()) == 0
        mine, theirs, start = weights(one), weights(two), load_file(tiny_backbone / "model.safetensors")
        assert mine.keys() == theirs.keys()
        far = {name: float((mine[name] - theirs[name]).abs().max()) for name in mine.keys() - SHIFTS}
        assert max(far.values()) < 1e-5, far
        assert float((mine[WEIGHT] - start[WEIGHT]).abs().median()) > 5e-5
        records, others = read_log(one), read_log(two)
        assert len(records) == len(others) < 2 * 5  # stopped before the five steps were done, all processes alike
        assert [r["loss"] for r in records if "loss" in r] == pytest.approx([r["loss"] for r in others if "loss" in r], abs=1e-5)
        assert [r["dev"] for r in records if "dev" in r] == [r["dev"] for r in others if "dev" in r]
