"""Reads a transformers checkpoint for keyblock-import, from the hub or a directory: its model, its tokenizer, and its scores.

Errors are one line. A missing head is never invented, and a checkpoint's own code runs only if that is requested.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import ValidationError
from pydantic_core import from_json
from tqdm import tqdm
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForSequenceClassification, AutoTokenizer, PretrainedConfig
from transformers.modeling_utils import PreTrainedModel
from transformers.utils import cached_file

from export import ExportError
from export.onnx_source import GivenGraph, find_graph
from export.options import ImportOptions
from keyblock.fusion import Activation
from keyblock.text.prompt import Prompt
from training.model.classifier import Classifier, Judge


class Question(NamedTuple):
    """A decoder's prompt and answers.

    Attributes:
        prompt: the prompt around query and document.
        yes, no: the words that the decoder answers with.
    """

    prompt: Prompt
    yes: str
    no: str


QUESTIONS = {
    "qwen3-reranker": Question(
        Prompt(
            pieces=(
                "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct "
                'provided. Note that the answer can only be "yes" or "no".<|im_end|>\n<|im_start|>user\n',
                "<Instruct>: {instruction}\n<Query>: {query}\n<Document>: {document}",
                "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n",
            ),
            instruction="Given a web search query, retrieve relevant passages that answer the query",
        ),
        "yes",
        "no",
    ),
    "mxbai-rerank-v2": Question(
        Prompt(
            pieces=(
                "<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant.<|im_end|>\n"
                "<|im_start|>user\n",
                "query: {query}",
                "\n",
                "document: {document}",
                "\n",
                "You are a search relevance expert who evaluates how well documents match search queries. For each "
                "query-document pair, carefully analyze the semantic relationship between them, then provide your binary "
                "relevance judgment (0 for not relevant, 1 for relevant).\nRelevance:",
                "<|im_end|>\n<|im_start|>assistant\n",
            )
        ),
        "1",
        "0",
    ),
}
BY_ARCHITECTURE = {"qwen3": "qwen3-reranker", "qwen2": "mxbai-rerank-v2"}


def question_of(template: str | None, model_type: str, yes: str | None = None, no: str | None = None) -> Question:
    """The question of a checkpoint.

    Args:
        template: a name of QUESTIONS, or a JSON file with `pieces` and perhaps `instruction`; none: by the architecture.
        model_type: transformers' name of the architecture.
        yes, no: the answers, if they differ from the template's.

    Raises:
        ExportError: there is no such template, or the file holds none.
    """
    name = template or BY_ARCHITECTURE.get(model_type)
    if name is None:
        raise ExportError(f"no prompt is known for decoders of the architecture {model_type}; give --template, --yes and --no")
    question = QUESTIONS[name] if name in QUESTIONS else Question(_read(Path(name)), "yes", "no")
    return Question(question.prompt, yes or question.yes, no or question.no)


def _read(path: Path) -> Prompt:
    if not path.is_file():
        raise ExportError(f"--template {path}: no such file; the templates that have names are {', '.join(QUESTIONS)}")
    try:
        return Prompt.model_validate(from_json(path.read_bytes()))
    except ValidationError as error:
        raise ExportError(f"--template {path}: {error.errors()[0]['msg']}") from None
    except ValueError as error:
        raise ExportError(f"--template {path}: not JSON ({error})") from None


CLASSIFIER, GENERATOR = "ForSequenceClassification", "ForCausalLM"
CARD = "config_sentence_transformers.json"
TOKENIZERS = ("tokenizer.json", "vocab.txt", "vocab.json", "*.model")  # without any of these, transformers makes an empty one
ROWS, TOKENS = 8, 4096  # the most pairs, and tokens with padding, of a batch: memory grows with the square of the length
PROGRESS = "transformers"
UNBOUNDED = 1 << 20  # a tokenizer without a model_max_length reports a far larger number
ACTIVATIONS = {"Sigmoid": "sigmoid", "Identity": "identity"}
WHOLE = "put all of model.safetensors beside config.json (a file of a few lines is git-lfs's pointer: git lfs pull)"
Pair = tuple[str, str]


@dataclass(frozen=True)
class Checkpoint:
    """A cross-encoder that somebody else trained.

    Attributes:
        source: the directory or name that was given.
        model: in eval mode, with eager attention, in fp32; or the repository's own graph, if it has no weights.
        tokenizer: transformers' fast tokenizer.
        question: a decoder's prompt and answers; none for a model that reads pairs.
    """

    source: str
    model: Classifier | GivenGraph
    tokenizer: Any
    question: Question | None = None

    @property
    def config(self) -> PretrainedConfig:
        """The model's configuration."""
        return self.model.config if isinstance(self.model, GivenGraph) else self.model.module.config

    @property
    def window(self) -> int:
        """The most tokens of a pair that the model and its tokenizer are made for."""
        most = int(self.tokenizer.model_max_length)
        return min(self.model.max_length, most if 0 < most < UNBOUNDED else UNBOUNDED)

    @property
    def about(self) -> dict[str, Any]:
        """The checkpoint's origin, for the bundle."""
        return {
            "model": self.source,
            "revision": getattr(self.config, "_commit_hash", None),
            "architecture": ", ".join(self.config.architectures),
            "from": "its own ONNX graph" if isinstance(self.model, GivenGraph) else "its weights",
            "model_type": self.config.model_type,
            "labels": self.config.num_labels,
            "window": self.window,
        }

    def activation(self) -> Activation:
        """The activation on the card (sentence-transformers' file, or one of its older keys); by default the sigmoid, as there.

        Raises ExportError for a function that KeyBlock does not have.
        """
        card = self._card() or getattr(self.config, "sentence_transformers", None) or {}
        function = card.get("activation_fn") or getattr(self.config, "sbert_ce_default_activation_function", None)
        if function is None:
            return Activation()
        name = ACTIVATIONS.get(str(function).rpartition(".")[2])
        if name is None:
            known = " or ".join(ACTIVATIONS.values())
            raise ExportError(f"{self.source}: its card's activation {function} is unknown here; give --activation {known}")
        return Activation(name=name)

    def _card(self) -> dict[str, Any] | None:
        """The file that sentence-transformers 6 writes beside config.json; None if it does not exist or names no activation."""
        path = cached_file(
            self.source, CARD, _raise_exceptions_for_missing_entries=False, _raise_exceptions_for_connection_errors=False
        )
        if path is None:
            return None
        with _one_line(self.source, f"its {CARD} cannot be read", "copy it again"):
            card: dict[str, Any] = json.loads(Path(path).read_text(encoding="utf-8"))
            return card if card.get("activation_fn") else None

    def logits(self, pairs: Sequence[Pair]) -> NDArray[np.float32]:
        """Logits from transformers' tokenizer and model for (query, text), shape (pairs,); for two labels, their difference."""
        if self.question is not None:
            given = tqdm(pairs, PROGRESS, disable=None)
            return np.asarray([self._log_odds(self.question, *pair) for pair in given], dtype=np.float32)
        found = []
        lengths = [len(self.tokenizer(*pair)["input_ids"]) for pair in pairs]
        for batch in tqdm(list(batches(lengths)), PROGRESS, disable=None):
            queries, texts = zip(*pairs[batch], strict=True)
            logits = self._labels(self.tokenizer(list(queries), list(texts), padding=True, return_tensors="pt"))
            found.append(logits[:, 0] if logits.shape[1] == 1 else logits[:, 1] - logits[:, 0])
        return np.concatenate(found)

    def _labels(self, given: Mapping[str, torch.Tensor]) -> NDArray[np.float32]:
        """Logits of shape (batch, labels)."""
        if isinstance(self.model, GivenGraph):
            return self.model.logits(given)
        with torch.inference_mode():
            logits: NDArray[np.float32] = self.model.module(**given).logits.numpy()
        return logits

    def _log_odds(self, question: Question, query: str, text: str) -> float:
        """The log odds of a decoder's two answers after the prompt, from the logits of its vocabulary."""
        words = [word_id(self.tokenizer, word) for word in (question.yes, question.no)]
        pieces = [self.tokenizer(piece, add_special_tokens=False)["input_ids"] for piece in question.prompt.text(query, text)]
        assert isinstance(self.model, Judge)  # noqa: S101  # a checkpoint with a question has one
        with torch.inference_mode():
            logits = self.model.module(input_ids=torch.tensor([list(chain.from_iterable(pieces))])).logits[0, -1]
        return float(logits[words[0]] - logits[words[1]])


def batches(lengths: Sequence[int]) -> Iterator[slice]:
    """Batches of pairs with these token counts, in order, as large as ROWS and TOKENS allow, but at least one pair."""
    first, longest = 0, 0
    for number, length in enumerate(lengths):
        rows, longest = number - first + 1, max(longest, length)
        if number > first and (rows > ROWS or rows * longest > TOKENS):
            yield slice(first, number)
            first, longest = number, length
    yield slice(first, len(lengths))


def read_checkpoint(source: str, options: ImportOptions) -> Checkpoint:
    """Read a checkpoint: a directory, or a name on the hub. Raises ExportError for a checkpoint that is no cross-encoder."""
    trust_remote_code = options.trust_remote_code
    config = _config(source, trust_remote_code)
    architectures = config.architectures or []
    if any(name.endswith(GENERATOR) for name in architectures):
        question = question_of(options.template, config.model_type, options.yes, options.no)
        if options.instruction is not None:
            question = question._replace(prompt=question.prompt.model_copy(update={"instruction": options.instruction}))
        tokenizer = _tokenizer(source, trust_remote_code)
        return Checkpoint(source, _judge(source, trust_remote_code, tokenizer, question), tokenizer, question)
    if not any(name.endswith(CLASSIFIER) for name in architectures):
        named = ", ".join(architectures) or "no architecture"
        raise ExportError(
            f"{source}: is no cross-encoder: its config.json names {named}, which has no head that scores a pair (a bi-encoder, or "
            "a model to be trained on); give a checkpoint for sequence classification"
        )
    if unused := [f"--{name}" for name in ("template", "instruction", "yes", "no") if getattr(options, name) is not None]:
        raise ExportError(f"{source}: reads pairs, and {', '.join(unused)} is for decoders, which answer in words; leave it out")
    if config.num_labels not in (1, 2):
        raise ExportError(
            f"{source}: has {config.num_labels} labels; a reranker has one, or two of which the second is 'relevant': this "
            "checkpoint classifies something else"
        )
    tokenizer = _tokenizer(source, trust_remote_code)
    graph = find_graph(Path(source)) if Path(source).is_dir() else None
    model = _classifier(source, trust_remote_code) if graph is None else GivenGraph(graph, config)
    return Checkpoint(source, model, tokenizer)


def _config(source: str, trust: bool) -> PretrainedConfig:
    path = Path(source)
    if path.is_dir() and not (path / "config.json").is_file():
        raise ExportError(f"{source}: has no config.json; give the directory of a checkpoint as transformers writes it")
    if not path.is_dir() and (path.exists() or source.startswith((".", "/", "~")) or source.count("/") > 1):
        raise ExportError(f"{source}: no such directory; give the directory of a checkpoint, or its name on the hub")
    with _one_line(source, "its config.json cannot be read", "give one as transformers writes it"):
        return AutoConfig.from_pretrained(source, trust_remote_code=trust)


def _tokenizer(source: str, trust: bool) -> Any:
    if Path(source).is_dir() and not any(next(Path(source).glob(name), None) for name in TOKENIZERS):
        raise ExportError(f"{source}: has no tokenizer; put the checkpoint's tokenizer.json beside its weights")
    with _one_line(source, "its tokenizer cannot be read", "copy the checkpoint's tokenizer.json again"):
        tokenizer = AutoTokenizer.from_pretrained(source, use_fast=True, trust_remote_code=trust)
    if not getattr(tokenizer, "is_fast", False):
        raise ExportError(
            f"{source}: its tokenizer {type(tokenizer).__name__} is a slow one, which does not say where tokens stand; save it as "
            "a fast one (tokenizer.json) beside the weights"
        )
    return tokenizer


def _judge(source: str, trust: bool, tokenizer: Any, question: Question) -> Judge:
    ids = [_answer(source, tokenizer, word) for word in (question.yes, question.no)]
    return Judge(_loaded(AutoModelForCausalLM, source, trust), *ids)


def _answer(source: str, tokenizer: Any, word: str) -> int:
    if (number := word_id(tokenizer, word)) is None:
        raise ExportError(
            f"{source}: its vocabulary has no token {word!r} to answer with; give the words of its training with --yes and --no"
        )
    return number


def word_id(tokenizer: Any, word: str) -> int | None:
    """The id of the single token for this word; None if there is none."""
    ids = tokenizer(word, add_special_tokens=False)["input_ids"]
    return ids[0] if len(ids) == 1 and ids[0] != tokenizer.unk_token_id else None


def _classifier(source: str, trust: bool) -> Classifier:
    try:
        return Classifier(_loaded(AutoModelForSequenceClassification, source, trust))
    except ValueError as error:
        raise ExportError(f"{source}: {error}") from None


def _loaded(kind: Any, source: str, trust: bool) -> PreTrainedModel:
    """The model with all its weights, in eval mode."""
    with _one_line(source, "its weights cannot be read", WHOLE):
        module, loaded = kind.from_pretrained(
            source,
            attn_implementation="eager",
            dtype=torch.float32,
            trust_remote_code=trust,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # reported below, by their names
        )
    if wrong := sorted(map(str, loaded["mismatched_keys"])):
        raise ExportError(f"{source}: weights of another shape than its config.json says: {wrong[0]}; copy both again")
    if missing := sorted(loaded["missing_keys"]):
        raise ExportError(
            f"{source}: has no weights for {', '.join(missing[:3])}, which would start at random (a bi-encoder taken for a "
            "cross-encoder?); give a checkpoint with its head"
        )
    return module.eval()


@contextmanager
def _one_line(source: str, what: str, advice: str) -> Any:
    """Turn any error of transformers into one line: what fails, and what to do."""
    try:
        yield
    except Exception as error:  # OSError for the hub, ValueError for untrusted code, safetensors' own errors, ...
        line = " ".join(str(error).split())
        if "trust_remote_code" in line:
            message = "it runs code of its own, which is not trusted; read that code, then add --trust-remote-code"
        elif not Path(source).is_dir():
            said = line.partition(". ")[0][:160]
            message = f"no such directory here, and the hub does not give it ({said}); check the name and the network"
        else:
            message = f"{what} ({type(error).__name__}: {line[:200]}); {advice}"
        raise ExportError(f"{source}: {message}") from None
