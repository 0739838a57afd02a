"""Makes random checkpoints of many families, in the published formats and of any size, with small tokenizers trained here."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import (
    AlbertConfig,
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    BertConfig,
    DebertaV2Config,
    DistilBertConfig,
    ElectraConfig,
    ModernBertConfig,
    MPNetConfig,
    PretrainedConfig,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen3Config,
    RobertaConfig,
    XLMRobertaConfig,
)

SAMPLE = Path(__file__).resolve().parents[2] / "export" / "sample" / "corpus.jsonl"
VOCABULARY = 400
NARROW = 64  # columns of a layer's weights
SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 48}


@dataclass(frozen=True)
class Special:
    """A tokenizer's special tokens, in the order of their ids, and how a pair is put together."""

    tokens: list[str]
    pair: str
    single: str
    named: dict[str, str] = field(default_factory=dict)


BERT = Special(
    ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"],
    "[CLS] $A [SEP] $B:1 [SEP]:1",
    "[CLS] $A [SEP]",
    {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]", "mask_token": "[MASK]"},
)
ROBERTA = Special(
    ["<s>", "<pad>", "</s>", "<unk>", "<mask>"],
    "<s> $A </s> </s> $B </s>",
    "<s> $A </s>",
    {
        "pad_token": "<pad>",
        "unk_token": "<unk>",
        "cls_token": "<s>",
        "sep_token": "</s>",
        "mask_token": "<mask>",
        "bos_token": "<s>",
        "eos_token": "</s>",
    },
)


def wordpiece(special: Special) -> Tokenizer:
    """A tokenizer like BERT's."""
    made = Tokenizer(models.WordPiece(unk_token=special.named["unk_token"]))
    made.normalizer = normalizers.BertNormalizer(lowercase=True)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.decoder = decoders.WordPiece()
    return trained(made, trainers.WordPieceTrainer(vocab_size=VOCABULARY, special_tokens=special.tokens), special)


def byte_level(special: Special) -> Tokenizer:
    """A tokenizer like RoBERTa's and ModernBERT's."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=VOCABULARY, special_tokens=special.tokens, initial_alphabet=alphabet)
    return trained(made, trainer, special)


def sentencepiece(special: Special) -> Tokenizer:
    """A tokenizer like XLM-RoBERTa's and DeBERTa's."""
    made = Tokenizer(models.Unigram())
    made.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")])
    made.pre_tokenizer = pre_tokenizers.Metaspace()
    made.decoder = decoders.Metaspace()
    unknown = special.named["unk_token"]
    trainer = trainers.UnigramTrainer(vocab_size=VOCABULARY, special_tokens=special.tokens, unk_token=unknown)
    return trained(made, trainer, special)


def trained(made: Tokenizer, trainer: Any, special: Special) -> Tokenizer:
    """Train on the sample, and set the family's template of pairs."""
    made.train_from_iterator(SAMPLE.read_text("utf-8").splitlines(), trainer)
    if special.pair:
        ids = [(token, made.token_to_id(token)) for token in special.tokens]
        made.post_processor = processors.TemplateProcessing(single=special.single, pair=special.pair, special_tokens=ids)
    return made


@dataclass(frozen=True)
class Family:
    """The settings of a small checkpoint of a family."""

    config: Callable[..., PretrainedConfig]
    tokenizer: Callable[[Special], Tokenizer]
    special: Special
    sizes: dict[str, Any] = field(default_factory=dict)
    inputs: tuple[str, ...] = ("input_ids", "attention_mask")


QWEN = Special(
    ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "yes", "no", "0", "1"],
    "",
    "",
    {"pad_token": "<|endoftext|>", "eos_token": "<|im_end|>"},
)


def qwen_like(special: Special) -> Tokenizer:
    """A tokenizer like Qwen's: byte-level, without a post-processor, with the answer words as tokens."""
    made = Tokenizer(models.BPE())
    pattern = Regex(r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
    split = pre_tokenizers.Split(pattern, behavior="isolated")
    made.pre_tokenizer = pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    made.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=VOCABULARY, special_tokens=special.tokens[:3], initial_alphabet=alphabet)
    made = trained(made, trainer, special)
    made.add_tokens(["yes", "no"])
    return made


WITH_TYPES = ("input_ids", "token_type_ids", "attention_mask")
POSITIONS = {"max_position_embeddings": 514, "pad_token_id": 1}
ROBERTAS = {**SIZES, **POSITIONS, "type_vocab_size": 1, "bos_token_id": 0, "eos_token_id": 2}
DEBERTA = {
    **SIZES,
    "relative_attention": True,
    "pos_att_type": ["p2c", "c2p"],
    "position_buckets": 64,
    "share_att_key": True,
    "norm_rel_ebd": "layer_norm",
    "position_biased_input": False,
    "max_relative_positions": -1,
    "type_vocab_size": 0,
    "pooler_hidden_size": 32,
    "max_position_embeddings": 512,
}
MODERN = {
    **SIZES,
    "local_attention": 16,
    "global_attn_every_n_layers": 2,
    "max_position_embeddings": 8192,
    "pad_token_id": 0,
    "cls_token_id": 2,
    "sep_token_id": 3,
    "bos_token_id": None,
    "eos_token_id": None,
}
FAMILIES = {
    "bert": Family(BertConfig, wordpiece, BERT, SIZES, WITH_TYPES),
    "electra": Family(ElectraConfig, wordpiece, BERT, {**SIZES, "embedding_size": 16}, WITH_TYPES),
    "distilbert": Family(DistilBertConfig, wordpiece, BERT, {"dim": 32, "n_layers": 2, "n_heads": 2, "hidden_dim": 48}),
    "roberta": Family(RobertaConfig, byte_level, ROBERTA, ROBERTAS),
    "xlm-roberta": Family(XLMRobertaConfig, sentencepiece, ROBERTA, ROBERTAS),
    "mpnet": Family(MPNetConfig, wordpiece, ROBERTA, {**SIZES, **POSITIONS}),
    "deberta": Family(DebertaV2Config, sentencepiece, BERT, DEBERTA, WITH_TYPES),
    "modernbert-cls": Family(ModernBertConfig, byte_level, BERT, {**MODERN, "classifier_pooling": "cls"}),
    "modernbert-mean": Family(ModernBertConfig, byte_level, BERT, {**MODERN, "classifier_pooling": "mean"}),
}
"""Cross-encoders by the name that tests give them."""
BACKBONES = {"albert": Family(AlbertConfig, sentencepiece, BERT, {**SIZES, "embedding_size": 16}, WITH_TYPES)}
"""Encoders that tests train on, and do not import."""
DECODER = {**SIZES, "num_key_value_heads": 1, "max_position_embeddings": 4096, "bos_token_id": None, "eos_token_id": None}
DECODERS = {
    "qwen3": Family(Qwen3Config, qwen_like, QWEN, {**DECODER, "head_dim": 16, "tie_word_embeddings": True}),
    "qwen2": Family(Qwen2Config, qwen_like, QWEN, DECODER),
}
"""Models that answer in words."""


def save_checkpoint(name: str, folder: Path, labels: int = 1, **changes: Any) -> Path:
    """Write a random checkpoint whose logits spread over a unit or more."""
    family = {**FAMILIES, **BACKBONES, **DECODERS}[name]
    tokenizer = family.tokenizer(family.special)
    given = {**family.sizes, **changes}
    head = {} if name in DECODERS else {"num_labels": labels}
    config = family.config(**{"vocab_size": tokenizer.get_vocab_size(), **head, **given})
    kind = AutoModelForCausalLM if name in DECODERS else AutoModelForSequenceClassification
    module = kind.from_config(config)
    spread(module)
    module.save_pretrained(folder)
    save_tokenizer(tokenizer, family, folder)
    return folder


def save_tokenizer(tokenizer: Tokenizer, family: Family, folder: Path, **named: str) -> None:
    """Write the tokenizer's files as transformers does."""
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, model_input_names=list(family.inputs), **{**family.special.named, **named}
    ).save_pretrained(folder)


def spread(module: torch.nn.Module) -> None:
    """Set random weights that are large enough for different texts to get different logits, but smaller in wide layers.

    In wide layers such large weights would turn a rounding of 1e-7 into a difference of 1e-2 after a few layers, unlike any trained
    model.
    """
    torch.manual_seed(7)
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=_deviation(parameter, 0.25) if parameter.dim() > 1 else 0.1)
    for name, parameter in module.named_parameters():
        if "norm" in name.lower() and name.endswith("weight"):
            torch.nn.init.normal_(parameter, mean=1.0, std=0.1)
        elif name.endswith(("self_attn.v_proj.weight", "self_attn.o_proj.weight")):
            # a decoder's last token is always the same: what it attends to must count
            torch.nn.init.normal_(parameter, std=_deviation(parameter, 1.0))


def _deviation(weight: torch.nn.Parameter, narrow: float) -> float:
    """The standard deviation of a weight's values: in wide layers it keeps the output about as large as the input."""
    return narrow if (width := weight.shape[-1]) <= NARROW else width**-0.5
