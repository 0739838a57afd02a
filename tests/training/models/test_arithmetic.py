"""bf16 where the device has it, and words that say so."""

import pytest
import torch

from training.model import devices as arithmetic
from training.model.devices import in_bf16, in_words

CPU, GPU = torch.device("cpu"), torch.device("cuda")


@pytest.mark.parametrize(
    ("precision", "feature", "bf16", "words"),
    [
        ("auto", None, False, "fp32 on the CPU, which has no bf16"),
        ("auto", "amx_bf16", True, "bf16 on the CPU, by its amx_bf16"),
        ("bf16", None, True, "bf16 on a CPU that only emulates it; fp32 is several times as fast"),
        ("bf16", "amx_bf16", True, "bf16 on the CPU, by its amx_bf16"),
        ("fp32", None, False, "fp32 on the CPU, which has no bf16"),
        ("fp32", "avx512_bf16", False, "fp32 on the CPU, though its avx512_bf16 computes bf16 faster"),
    ],
)
def test_on_cpus(monkeypatch: pytest.MonkeyPatch, precision: str, feature: str | None, bf16: bool, words: str) -> None:
    """With a CPU of either kind, whichever this one is."""
    monkeypatch.setattr(arithmetic, "bf16_feature", lambda: feature)
    assert in_bf16(precision, CPU) is bf16
    assert in_words(precision, CPU) == words
    assert in_bf16(precision, GPU) is (precision != "fp32")


def test_on_gpus_bf16_stays() -> None:
    assert [in_words(precision, GPU) for precision in ("auto", "bf16", "fp32")] == ["bf16 on cuda", "bf16 on cuda", "fp32 on cuda"]
