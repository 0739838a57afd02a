"""Writes the same weights for all systems: the embedded ranker for Hugging Face, and the bundle with a wider range of budgets."""

import json
import shutil
from pathlib import Path

import torch
from transformers import BertForSequenceClassification

from keyblock.bundle import TOKENIZER_FILE, Bundle, load_bundle, write_bundle
from training.model.cross_encoder import CrossEncoder

EPSILON = 2.0**-10  # a power of two: scaling by it loses no digit
ONE_LABEL = {"id2label": {0: "LABEL_0"}, "label2id": {"LABEL_0": 0}}
SPECIAL = {"unk_token": "[UNK]", "sep_token": "[SEP]", "pad_token": "[PAD]", "cls_token": "[CLS]", "mask_token": "[MASK]"}


def write_hugging_face(directory: Path, ranker: CrossEncoder, tokenizer: Path) -> None:
    """Write a BERT ranker as a BertForSequenceClassification with the same logits.

    Such a model has a pooler, the tanh of a linear layer. KeyBlock's head reads [CLS] directly. So the linear layer here multiplies
    by EPSILON, which is so small that tanh(x) is x, and the classifier divides by it.

    Args:
        directory: where to write.
        ranker: KeyBlock's ranker.
        tokenizer: the ranker's tokenizer.json.
    """
    config = type(ranker.encoder.config).from_dict(ranker.encoder.config.to_dict() | ONE_LABEL)
    model = BertForSequenceClassification(config)
    model.bert.load_state_dict(ranker.encoder.state_dict(), strict=False)
    with torch.no_grad():
        model.bert.pooler.dense.weight.copy_(torch.eye(config.hidden_size) * EPSILON)
        model.bert.pooler.dense.bias.zero_()
        model.classifier.weight.copy_(ranker.head.weight / EPSILON)
        model.classifier.bias.copy_(ranker.head.bias)
    model.float().eval().save_pretrained(directory)
    write_tokenizer(directory, tokenizer, config.max_position_embeddings)


def write_tokenizer(directory: Path, tokenizer: Path, max_length: int) -> None:
    """Write a bundle's tokenizer as transformers reads it."""
    content = json.loads(tokenizer.read_text(encoding="utf-8")) | {"truncation": None, "padding": None}
    (directory / TOKENIZER_FILE).write_text(json.dumps(content), encoding="utf-8")
    config = SPECIAL | {"tokenizer_class": "BertTokenizer", "do_lower_case": True, "model_max_length": max_length}
    (directory / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    (directory / "special_tokens_map.json").write_text(json.dumps(SPECIAL), encoding="utf-8")
    vocabulary = content["model"]["vocab"]
    (directory / "vocab.txt").write_text("".join(f"{word}\n" for word in sorted(vocabulary, key=vocabulary.get)), encoding="utf-8")


def write_wide_bundle(path: Path, directory: Path, longest: int) -> Bundle:
    """A copy of a bundle whose budgets range up to `longest` tokens; nothing else differs."""
    shutil.rmtree(directory, ignore_errors=True)
    bundle = load_bundle(path)
    described = bundle.manifest.model_dump()
    described["pipeline"]["packing"]["budget_range"] = (described["pipeline"]["packing"]["budget_range"][0], longest)
    manifest = type(bundle.manifest).model_validate(described)
    return write_bundle(directory, manifest, {name: bundle.path / name for name in bundle.manifest.files})
