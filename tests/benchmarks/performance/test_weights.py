"""What peers are given computes what KeyBlock's ranker computes."""

import json
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer, BertConfig, BertModel

from benchmarks.performance.weights import write_hugging_face, write_wide_bundle
from keyblock.bundle import load_bundle
from training.model.cross_encoder import CrossEncoder

BUNDLE = Path(__file__).parents[3] / "models" / "default"
TOKENIZER = BUNDLE / "tokenizer.json"
PAIRS = [
    ("which river flows through Vienna?", "The Danube flows through Vienna, Bratislava, Budapest and Belgrade."),
    ("which river flows through Vienna?", "Members may end the contract at the end of a month."),
    ("who wrote the letter", "A letter reached him in the spring; " * 20),
]


def small_ranker() -> CrossEncoder:
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
    ranker = CrossEncoder(BertModel(BertConfig(vocab_size=30522, **sizes), add_pooling_layer=False)).eval()
    torch.nn.init.normal_(ranker.head.weight, std=2.0)  # logits of the size that a trained one gives
    torch.nn.init.constant_(ranker.head.bias, -3.0)
    return ranker


def test_logits_are_the_same(tmp_path: Path) -> None:
    ranker = small_ranker()
    write_hugging_face(tmp_path, ranker, TOKENIZER)
    written = AutoModelForSequenceClassification.from_pretrained(tmp_path).eval()
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    encoded = tokenizer(*map(list, zip(*PAIRS, strict=True)), padding=True, truncation=True, return_tensors="pt")
    with torch.no_grad():
        theirs = written(**encoded).logits[:, 0]
        ours = ranker(encoded["input_ids"], encoded["token_type_ids"], encoded["attention_mask"])
    assert float(ours.std()) > 0.05
    torch.testing.assert_close(theirs, ours, atol=1e-2, rtol=0)


def test_text_becomes_the_tokens_that_keyblock_makes(tmp_path: Path) -> None:
    write_hugging_face(tmp_path, small_ranker(), TOKENIZER)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    text = PAIRS[0][1]
    (ours,) = load_bundle(BUNDLE).tokenizer.encode([text])
    assert tokenizer(text, add_special_tokens=False)["input_ids"] == list(ours.ids)
    assert tokenizer.model_max_length == 512


def test_the_directory_has_what_old_readers_look_for(tmp_path: Path) -> None:
    write_hugging_face(tmp_path, small_ranker(), TOKENIZER)
    config = json.loads((tmp_path / "config.json").read_text(encoding="utf-8"))
    assert config["architectures"] == ["BertForSequenceClassification"]
    assert len(config["id2label"]) == 1
    assert {"special_tokens_map.json", "tokenizer_config.json", "vocab.txt"} <= {file.name for file in tmp_path.iterdir()}


@pytest.mark.parametrize("longest", [512])
def test_the_wide_bundle_differs_in_its_range_alone(tmp_path: Path, longest: int) -> None:
    wide = write_wide_bundle(BUNDLE, tmp_path / "wide", longest)
    write_wide_bundle(BUNDLE, tmp_path / "wide", longest)  # again, over it
    narrow = load_bundle(BUNDLE).manifest
    packing = wide.manifest.pipeline.packing
    assert load_bundle(tmp_path / "wide").manifest.pipeline.packing.budget_range == (packing.budget_range[0], longest)
    assert packing.budget == narrow.pipeline.packing.budget
    assert wide.manifest.files == narrow.files
