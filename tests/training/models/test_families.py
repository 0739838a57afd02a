"""Families beside the cross-encoder: saved, read back and started from; the classifier beside its checkpoint; what is no family."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, BertConfig, BertModel

from tests.support.checkpoints import SIZES, save_checkpoint
from training.declarations import CrossEncoderFamily
from training.model.classifier import Classifier, Judge, final_layer
from training.model.cross_encoder import CrossEncoder
from training.model.families import load_ranker, new_ranker
from training.model.ranker_module import FAMILY_FILE
from training.recipe import Recipe


@pytest.mark.parametrize(
    "family", [{"name": "classifier"}, {"name": "bi_encoder", "scale": 20.0}], ids=lambda family: family["name"]
)
def test_a_ranker_is_saved_read_back_and_started_from(family: dict[str, Any], tmp_path: Path) -> None:
    one, other, third = (
        new_ranker(family, str(save_checkpoint("bert", tmp_path / name, intermediate_size=size)))
        for name, size in (("one", 48), ("other", 48), ("third", 64))
    )
    one.save(tmp_path / "saved")
    assert json.loads((tmp_path / "saved" / FAMILY_FILE).read_text(encoding="utf-8")) == family
    again = load_ranker(tmp_path / "saved")
    assert (type(again), again.family, again.training) == (type(one), family, False)
    for parameter in other.parameters():
        torch.nn.init.zeros_(parameter)
    other.start_from(tmp_path / "saved")
    for same in (again, other):
        torch.testing.assert_close(same.state_dict(), one.state_dict())
    with pytest.raises(ValueError, match="cannot be read as an encoder"):
        third.start_from(tmp_path / "saved")


def test_a_checkpoint_without_a_family_is_a_cross_encoders(tiny_backbone: Path, tmp_path: Path) -> None:
    """As they were written before there were families."""
    tmp_path = tmp_path / "not yet" / "there"
    CrossEncoder.from_backbone(str(tiny_backbone)).save(tmp_path)
    assert json.loads((tmp_path / FAMILY_FILE).read_text(encoding="utf-8")) == CrossEncoderFamily().describe()
    (tmp_path / FAMILY_FILE).unlink()
    assert isinstance(load_ranker(tmp_path), CrossEncoder)


@pytest.mark.parametrize(
    ("family", "problem"),
    [
        ({"name": "bert"}, "unknown ranker family 'bert'; known: bi_encoder, .*classifier, cross_encoder"),
        ({"name": "bi_encoder", "depth": 3}, "bi_encoder: depth: Extra inputs are not permitted"),
    ],
)
def test_what_is_no_family_is_refused(
    make_recipe: Callable[..., Recipe], tmp_path: Path, family: dict[str, Any], problem: str
) -> None:
    with pytest.raises(ValueError, match=problem):
        make_recipe(model=family)
    (tmp_path / FAMILY_FILE).write_text(json.dumps(family), encoding="utf-8")
    with pytest.raises(ValueError, match=f"^{tmp_path / FAMILY_FILE}: {problem}"):
        load_ranker(tmp_path)


@pytest.mark.parametrize("content", ["", "[1, 2]", "null"])
def test_a_damaged_family_file_is_named(tmp_path: Path, content: str) -> None:
    (tmp_path / FAMILY_FILE).write_text(content, encoding="utf-8")
    with pytest.raises(ValueError, match=f"^{tmp_path / FAMILY_FILE}: "):
        load_ranker(tmp_path)


IDS = torch.arange(5, 25).repeat(2, 1)
MASK = torch.ones_like(IDS)
MASK[1, 12:] = 0
TYPES = (torch.arange(20) > 8).long().repeat(2, 1)


def theirs(folder: Path) -> torch.Tensor:
    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    types = {"token_type_ids": TYPES} if model.config.type_vocab_size > 1 else {}
    with torch.inference_mode():
        logits: torch.Tensor = model(input_ids=IDS, attention_mask=MASK, **types).logits
    return logits


@pytest.mark.parametrize(("name", "labels"), [("bert", 1), ("bert", 2), ("electra", 1), ("roberta", 2), ("xlm-roberta", 1)])
def test_the_head_is_the_checkpoints_own(tmp_path: Path, name: str, labels: int) -> None:
    folder = save_checkpoint(name, tmp_path, labels=labels)
    model = new_ranker({"name": "classifier"}, str(folder)).eval()
    with torch.inference_mode():
        found = model.scores(model.states(IDS, TYPES, MASK))
    logits = theirs(folder)
    expected = logits[:, 0] if labels == 1 else logits[:, 1] - logits[:, 0]
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
    assert model.hidden_size == 32
    assert model.max_length == 512
    assert model.graph_inputs == (model.INPUTS if name in ("bert", "electra") else ("input_ids", "attention_mask"))


def test_an_encoder_without_a_head_gets_a_fresh_one_to_train(tmp_path: Path) -> None:
    BertModel(BertConfig(vocab_size=100, **SIZES)).save_pretrained(tmp_path)
    model = new_ranker({"name": "classifier"}, str(tmp_path))
    assert isinstance(model, Classifier)
    assert model.final.out_features == 1
    assert 0 < len(list(model.pretrained())) < len(list(model.parameters()))
    loss = model(IDS, TYPES, MASK).sum()
    loss.backward()
    assert model.final.weight.grad is not None


def test_what_it_refuses(tmp_path: Path) -> None:
    folder = save_checkpoint("bert", tmp_path, labels=3)
    with pytest.raises(ValueError, match="has 3 labels; a reranker has one, or two"):
        new_ranker({"name": "classifier"}, str(folder))
    with pytest.raises(ValueError, match="has no states for a learned aggregator"):
        new_ranker({"name": "classifier"}, str(folder), aggregator={"name": "max"})
    model = AutoModelForSequenceClassification.from_pretrained(folder)
    model.config.num_labels = 1
    with pytest.raises(ValueError, match="has no head"):
        final_layer(model)


@pytest.mark.parametrize("name", ["qwen2", "qwen3"])
def test_the_log_odds_of_two_words_at_the_last_token(tmp_path: Path, name: str) -> None:
    module = AutoModelForCausalLM.from_pretrained(save_checkpoint(name, tmp_path), attn_implementation="eager").eval()
    ids = torch.arange(5, 45).reshape(2, 20)
    mask = torch.ones_like(ids)
    mask[1, 12:] = 0
    judge = Judge(module, yes=7, no=9)
    with torch.inference_mode():
        found = judge(ids, torch.zeros_like(ids), mask)
        shares = [
            torch.log_softmax(module(input_ids=row[: int(n)][None]).logits[0, -1], 0)
            for row, n in zip(ids, mask.sum(1), strict=True)
        ]
    expected = torch.stack([share[7] - share[9] for share in shares])
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)
    assert judge.graph_inputs == ("input_ids", "attention_mask")
    assert judge.max_length == 4096
