"""Tokenizers as imported models have them, trained on a few lines of many scripts."""

from functools import partial
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, models, normalizers, pre_tokenizers, processors, trainers
from tokenizers import Tokenizer as Backend

from keyblock.text.tokenizer import Tokenizer
from keyblock.text.units import WITH_NEWLINES

LINES = """The bridges weren't built in 1902: naïve engineers, 5€ a day, said "no" (twice).  E-mails: a_b@c.org; x != y!
Der Fluß überschwemmte die Brücke. Ωραία πόλη, Она идёт через мост. العربية «نص» قصير. हिन्दी के शब्द। ภาษาไทย คำ
東京都は日本の首都。 中文句子！ 한국어 문장 tiếng Việt l'eau
	if x[i] != y:    return 12345
""".splitlines()
SPM = [normalizers.Nmt(), normalizers.NFKC()]  # what SentencePiece's own table does, as far as it is known without it
XLM_R = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
MARKS_APART = pre_tokenizers.Sequence([pre_tokenizers.Punctuation(behavior="isolated"), pre_tokenizers.Metaspace()])


def _replaced(pattern: str, content: str) -> Any:
    return [normalizers.Replace(Regex(pattern), content), normalizers.Strip(left=False, right=True)]


def _split(pattern: str) -> Any:
    bytes_alone = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False, trim_offsets=False)
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"), bytes_alone])


GPT_2 = partial(pre_tokenizers.ByteLevel, use_regex=True)
KINDS: dict[str, tuple[str, list[Any], Any, list[str]]] = {  # the model, normalizers, pre-tokenizer and added tokens
    "xlm-roberta": ("unigram", SPM, XLM_R, []),
    "bge-m3": ("unigram", [*SPM, *_replaced(" {2,}", "\u2581")], pre_tokenizers.Metaspace(), []),
    "deberta": ("unigram", [normalizers.Lowercase(), *_replaced(r"\s{2,}|[\n\r\t]", " "), normalizers.NFC()], MARKS_APART, []),
    "first": ("unigram", [], pre_tokenizers.Metaspace(prepend_scheme="first"), []),
    "merges": ("bpe", SPM, XLM_R, []),
    "roberta": ("bytes", [], GPT_2(add_prefix_space=False, trim_offsets=True), []),
    "prefixed": ("bytes", [], GPT_2(add_prefix_space=True, trim_offsets=False), []),
    "modernbert": ("bytes", [normalizers.NFC()], GPT_2(add_prefix_space=False), [" " * n for n in range(2, 9)]),
    "qwen2": ("bytes", [normalizers.NFC()], _split(WITH_NEWLINES[0]), []),
    "llama3": ("bytes", [], _split(WITH_NEWLINES[1]), []),
    "qwen3": ("bytes", [normalizers.NFC()], _split(WITH_NEWLINES[0]), ["<think>", "</think>"]),
    "qwen3.5": ("bytes", [normalizers.NFC()], _split(WITH_NEWLINES[2]), []),
}


def backend(name: str) -> Backend:
    """One of KINDS, trained."""
    model, steps, pre_tokenizer, added = KINDS[name]
    found = Backend(models.Unigram() if model == "unigram" else models.BPE(unk_token="<unk>" if model == "bpe" else None))
    found.normalizer = normalizers.Sequence(steps) if steps else None
    found.pre_tokenizer = pre_tokenizer
    special = ["<s>", "<pad>", "</s>", "<unk>"]
    if model == "unigram":
        trainer: Any = trainers.UnigramTrainer(vocab_size=400, special_tokens=special, unk_token="<unk>", show_progress=False)
    else:
        alphabet = pre_tokenizers.ByteLevel.alphabet() if model == "bytes" else []
        trainer = trainers.BpeTrainer(vocab_size=600, special_tokens=special, initial_alphabet=alphabet, show_progress=False)
    found.train_from_iterator(LINES * 4, trainer)
    found.add_tokens([AddedToken(token, normalized=True) for token in added])
    found.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    if name == "roberta":
        found.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), trim_offsets=True, add_prefix_space=False)
    return found


def trained(name: str, directory: Path) -> Tokenizer:
    """One of KINDS, as the service has it."""
    path = directory / f"{name}.json"
    backend(name).save(str(path))
    return Tokenizer(path)
