"""Checkpoints of others: what is read, and what is refused."""

import json
import shutil
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from transformers import BertConfig, BertModel

from export import ExportError
from export.checkpoint import batches, read_checkpoint
from export.import_defaults import import_tokenizer
from export.options import ImportOptions
from tests.support.checkpoints import FAMILIES, SAMPLE, SIZES, save_checkpoint, save_tokenizer, wordpiece

PLAIN = ImportOptions()


@pytest.fixture
def copied(checkpoint: Callable[[str], Path], tmp_path: Path) -> Path:
    """A BERT's checkpoint that a test may spoil."""
    return Path(shutil.copytree(checkpoint("bert"), tmp_path / "bert"))


def change(folder: Path, **changes: Any) -> Path:
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text("utf-8")) | changes), encoding="utf-8")
    return folder


def refused(source: str | Path, options: ImportOptions = PLAIN) -> str:
    with pytest.raises(ExportError) as error:
        read_checkpoint(str(source), options)
    said = str(error.value)
    assert said.startswith(f"{source}: ")
    assert "\n" not in said
    return said


def test_a_checkpoint_says_what_transformers_says(checkpoint: Callable[[str], Path]) -> None:
    read = read_checkpoint(str(checkpoint("xlm-roberta")), PLAIN)
    assert read.window == 512, "514 positions, of which the padding id takes the first two"
    assert read.about["architecture"] == "XLMRobertaForSequenceClassification"
    logits = read.logits([("a bridge", "short"), ("a bridge", "a much longer text about the bridge"), ("b", "short")])
    alone = read.logits([("a bridge", "short")])
    assert logits.shape == (3,)
    assert logits[0] == pytest.approx(alone[0], abs=1e-5), "padding beside a longer text changes nothing"


@pytest.mark.parametrize(
    ("lengths", "expected"),
    [
        ([512] * 9, [(0, 8), (8, 9)]),
        ([4, 4096, 4, 4], [(0, 1), (1, 2), (2, 4)]),
        ([8192, 2048, 2048, 1], [(0, 1), (1, 3), (3, 4)]),
    ],
)
def test_long_pairs_are_read_few_at_once(lengths: list[int], expected: list[tuple[int, int]]) -> None:
    assert [(some.start, some.stop) for some in batches(lengths)] == expected


@pytest.mark.parametrize("source", ["/no/such/directory", "./none", "a/b/c"])
def test_a_missing_directory(source: str) -> None:
    assert "no such directory" in refused(source)


def test_an_unknown_model_without_a_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    said = refused("nobody/no-such-model")
    assert "no such directory here, and the hub does not give it" in said
    assert "check the name and the network" in said


def test_a_directory_of_something_else(tmp_path: Path) -> None:
    assert "has no config.json" in refused(tmp_path)
    BertModel(BertConfig(vocab_size=100, **SIZES)).save_pretrained(tmp_path)
    assert "is no cross-encoder: its config.json names BertModel" in refused(tmp_path)
    three = save_checkpoint("bert", tmp_path / "three", labels=3)
    assert "has 3 labels; a reranker has one, or two" in refused(three)


def test_a_head_is_never_invented(tmp_path: Path) -> None:
    """A bi-encoder whose config.json was made to say that it is a cross-encoder."""
    tokenizer = wordpiece(FAMILIES["bert"].special)
    BertModel(BertConfig(vocab_size=tokenizer.get_vocab_size(), **SIZES)).save_pretrained(tmp_path)
    save_tokenizer(tokenizer, FAMILIES["bert"], tmp_path)
    change(tmp_path, architectures=["BertForSequenceClassification"], id2label={"0": "relevant"}, label2id={"relevant": 0})
    assert "has no weights for classifier.bias, classifier.weight, which would start at random" in refused(tmp_path)


def test_a_slow_tokenizer(copied: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Slow:
        is_fast = False

    monkeypatch.setattr("transformers.AutoTokenizer.from_pretrained", lambda *_, **__: Slow())
    assert "its tokenizer Slow is a slow one, which does not say where tokens stand" in refused(copied)


def test_no_tokenizer(copied: Path) -> None:
    for file in ("tokenizer.json", "tokenizer_config.json"):
        (copied / file).unlink()
    assert "has no tokenizer; put the checkpoint's tokenizer.json beside its weights" in refused(copied)


def test_remote_code_runs_only_when_requested(copied: Path) -> None:
    (copied / "mine.py").write_text("raise SystemExit('this ran')", encoding="utf-8")
    change(copied, model_type="mine", auto_map={"AutoConfig": "mine.MineConfig"})
    assert "it runs code of its own, which is not trusted; read that code, then add --trust-remote-code" in refused(copied)


def test_damaged_weights_and_weights_of_another_shape(copied: Path) -> None:
    said = refused(change(copied, max_position_embeddings=64))
    assert "weights of another shape than its config.json says: ('bert.embeddings.position_embeddings.weight'" in said
    (copied / "model.safetensors").write_bytes(b"\x08\0\0\0\0\0\0\0{}")
    said = refused(copied)
    assert "its weights cannot be read" in said
    assert "put all of model.safetensors beside config.json" in said


@pytest.mark.parametrize(
    ("card", "expected"),
    [
        ({}, "sigmoid"),
        ({"sbert_ce_default_activation_function": "torch.nn.modules.linear.Identity"}, "identity"),
        ({"sentence_transformers": {"activation_fn": "torch.nn.modules.activation.Sigmoid"}}, "sigmoid"),
    ],
)
def test_the_cards_activation(copied: Path, card: dict[str, Any], expected: str) -> None:
    activation = read_checkpoint(str(change(copied, **card)), PLAIN).activation()
    assert (activation.name, activation.scale) == (expected, 1.0)


def test_the_cards_activation_in_a_file_of_its_own(copied: Path) -> None:
    """Where sentence-transformers 6 writes it; the file of a bi-encoder says nothing of it."""
    change(copied, sbert_ce_default_activation_function="torch.nn.modules.activation.Sigmoid")
    card = copied / "config_sentence_transformers.json"
    for content, expected in (('{"activation_fn": "torch.nn.modules.linear.Identity"}', "identity"), ("{}", "sigmoid")):
        card.write_text(content, encoding="utf-8")
        assert read_checkpoint(str(copied), PLAIN).activation().name == expected
    card.write_text("{", encoding="utf-8")
    with pytest.raises(ExportError, match=r"its config_sentence_transformers\.json cannot be read .*; copy it again"):
        read_checkpoint(str(copied), PLAIN).activation()


def test_an_activation_that_nobody_has(copied: Path) -> None:
    change(copied, sentence_transformers={"activation_fn": "torch.nn.modules.activation.Tanh"})
    with pytest.raises(ExportError, match=r"activation torch\.nn\.modules\.activation\.Tanh is unknown here; give --activation"):
        read_checkpoint(str(copied), PLAIN).activation()


def test_prompts_and_answers_of_which_the_model_knows_none(checkpoint: Callable[[str], Path]) -> None:
    said = refused(checkpoint("bert"), ImportOptions(template="qwen3-reranker", yes="1"))
    assert "reads pairs, and --template, --yes is for decoders" in said
    said = refused(checkpoint("qwen3"), ImportOptions(yes="certainly"))
    assert "its vocabulary has no token 'certainly' to answer with; give the words of its training with --yes and --no" in said
    with pytest.raises(ExportError, match=r"none\.json: no such file; the templates that have names are qwen3-reranker"):
        read_checkpoint(str(checkpoint("qwen3")), ImportOptions(template="none.json"))


sentencepiece = pytest.importorskip("sentencepiece", reason="the package sentencepiece is not installed")
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
    tokenizer = import_tokenizer(read_checkpoint(str(source), PLAIN), tmp_path / "tokenizer.json")
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(source / file)).encode(TEXT, out_type=str)
    assert len(pieces) > len(TEXT.split())
    assert tokenizer.backend.encode(TEXT, add_special_tokens=False).tokens == pieces
