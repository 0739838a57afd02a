"""A checkpoint whose tokenizer is a SentencePiece model alone, as it was trained, without a tokenizer.json."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from export.certificate import ALLOWED
from export.importing import import_model
from export.options import ImportOptions
from keyblock.runtime.providers import Provider
from tests.support.checkpoints import SAMPLE

sentencepiece = pytest.importorskip("sentencepiece", reason="the package sentencepiece is not installed")
FEW = ImportOptions(pairs=16, provider=Provider.CPU)
TEXT = "The river took the bridge in 1987."
MODELS: list[tuple[str, str, dict[str, Any]]] = [
    ("xlm-roberta", "sentencepiece.bpe.model", {"unk_id": 0, "bos_id": 1, "eos_id": 2, "pad_id": -1}),
    (
        "deberta",
        "spm.model",
        {"pad_id": 0, "bos_id": 1, "eos_id": 2, "unk_id": 3}
        | {"pad_piece": "[PAD]", "bos_piece": "[CLS]", "eos_piece": "[SEP]", "unk_piece": "[UNK]"},
    ),
]
"""Of a family: what its model is called, and its special tokens there, as the models that people use have them."""


def bare(checkpoint: Path, folder: Path, file: str, special: dict[str, Any]) -> Path:
    """The checkpoint with a tokenizer that SentencePiece itself has trained."""
    shutil.copytree(checkpoint, folder)
    for path in folder.glob("tokenizer*"):
        path.unlink()
    made, texts = BytesIO(), [json.loads(line)["text"] for line in SAMPLE.read_text(encoding="utf-8").splitlines()]
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(texts), model_writer=made, vocab_size=390, num_threads=1, minloglevel=2, **special
    )
    (folder / file).write_bytes(made.getvalue())
    return folder


@pytest.mark.parametrize(("family", "file", "special"), MODELS)
def test_it_is_converted(
    checkpoint: Callable[[str], Path], tmp_path: Path, family: str, file: str, special: dict[str, Any]
) -> None:
    source = bare(checkpoint(family), tmp_path / "bare", file, special)
    bundle = import_model(str(source), tmp_path / "bundle", replace(FEW, passage_tokens=128))
    assert bundle.manifest.quality["certificate"]["logits"]["max"] <= ALLOWED
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(source / file)).encode(TEXT, out_type=str)
    assert len(pieces) > len(TEXT.split())
    assert bundle.tokenizer.backend.encode(TEXT, add_special_tokens=False).tokens == pieces
