"""The family of published rerankers: a Hugging Face checkpoint for sequence classification, with its head; and decoders as judges.

The head is transformers' own code for the architecture, so that a model is exported, trained further and measured as its authors
made it. With two labels, the difference of their logits is the score: the softmax of two logits is the sigmoid of the difference.
A decoder's score is the log-odds of two words after a prompt (Qwen3-Reranker, mxbai-rerank-v2).
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Self

import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForSequenceClassification
from transformers.modeling_utils import PreTrainedModel

from training.model.cross_encoder import last
from training.model.ranker_module import RankerModule
from training.model.transformer_ranker import (
    ENCODER_WEIGHTS,
    TransformerRanker,
    one_clear_error,
    tells_types,
    unchanged,
    with_attention,
    without_dropout,
)


class Classifier(TransformerRanker):
    """Scores packed sequences by a checkpoint whose head has one label, or two with "relevant" as the second.

    Args:
        module: the checkpoint's model.

    Attributes:
        final: the head's last layer; its input is a sequence's state.
    """

    family: Mapping[str, Any] = {"name": "classifier"}
    aggregator = None

    def __init__(self, module: PreTrainedModel) -> None:
        super().__init__()
        self.module = module
        self.masks = unchanged
        self.typed = tells_types(module)
        self._final_name = final_layer(module)

    @property
    def transformer(self) -> PreTrainedModel:
        """See TransformerRanker."""
        return self.module

    @property
    def final(self) -> nn.Linear:
        """The head's last layer."""
        layer = self.module.get_submodule(self._final_name)
        assert isinstance(layer, nn.Linear)  # noqa: S101  # final_layer has checked it
        return layer

    @classmethod
    def from_backbone(
        cls,
        name_or_path: str,
        dropout: float = 0.0,
        attention: str = "sdpa",
        aggregator: Mapping[str, Any] | None = None,
    ) -> Self:
        """See RankerFamily: with the checkpoint's own head, or a fresh one of one label if it has none."""
        if aggregator:
            raise ValueError("model classifier scores by its own head, and has no states for a learned aggregator")
        with one_clear_error(name_or_path):
            config = without_dropout(AutoConfig.from_pretrained(name_or_path), dropout)
            if not any(name.endswith("ForSequenceClassification") for name in config.architectures or ()):
                config.num_labels = 1
            return cls(_module(name_or_path, attention, config=config))

    @classmethod
    def load(cls, directory: str | Path, attention: str = "sdpa") -> Self:
        """See RankerFamily."""
        with one_clear_error(directory):
            return cls(_module(str(directory), attention)).eval()

    def save_weights(self, directory: str | Path) -> None:
        """Write config.json and model.safetensors, as transformers reads them."""
        self.module.save_pretrained(directory)

    def load_weights(self, directory: str | Path) -> None:
        """See RankerModule."""
        self.module.load_state_dict(load_file(Path(directory) / ENCODER_WEIGHTS), strict=False)  # tied weights are stored once

    def start_from(self, directory: str | Path) -> None:
        """See RankerModule."""
        with one_clear_error(directory):
            self.take(load_file(Path(directory) / ENCODER_WEIGHTS))

    def take(self, weights: Mapping[str, Tensor]) -> None:
        """Take over weights by their names in the checkpoint. Raises RuntimeError for weights of another architecture."""
        wrong = self.module.load_state_dict(weights, strict=False)
        tied = set(getattr(self.module, "all_tied_weights_keys", ()))
        if missing := [*wrong.unexpected_keys, *(name for name in wrong.missing_keys if name not in tied)]:
            raise RuntimeError(f"weights do not fit: {', '.join(missing[:3])}")

    def pretrained(self) -> Iterator[nn.Parameter]:
        """See RankerModule: all parameters but those of the head's last layer."""
        last = {id(parameter) for parameter in self.final.parameters()}
        return (parameter for parameter in self.module.parameters() if id(parameter) not in last)

    @property
    def graph_inputs(self) -> tuple[str, ...]:
        """See RankerModule: without type ids if the model has one type of segment."""
        return self.INPUTS if self.typed else (self.INPUTS[0], self.INPUTS[2])

    @property
    def hidden_size(self) -> int:
        """See RankerModule."""
        return self.final.in_features

    def states(self, *inputs: Tensor) -> Tensor:
        """The input of the head's last layer: (batch, hidden), in fp32, from three (batch, length) integer tensors."""
        read: list[Tensor] = []
        hooks = [
            self.final.register_forward_pre_hook(lambda _, given: read.append(given[0])),
            self.module.base_model.register_forward_pre_hook(self._with_masks, with_kwargs=True),
        ]
        try:
            self.module(**self.named(*inputs))
        finally:
            for hook in hooks:
                hook.remove()
        return read[0].float()

    def _with_masks(self, _: nn.Module, given: tuple[Any, ...], named: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The encoder's arguments with the mask that `masks` makes; a head that takes a mean still reads the original mask."""
        return given, named | {"attention_mask": self.masks(named["attention_mask"])}

    def scores(self, states: Tensor) -> Tensor:
        """Logits of shape (...,) from states (..., hidden), in fp32; with two labels their difference."""
        with torch.autocast(states.device.type, enabled=False):
            logits: Tensor = self.final(states.float())
        return logits.squeeze(-1) if logits.shape[-1] == 1 else logits[..., 1] - logits[..., 0]


def final_layer(module: PreTrainedModel) -> str:
    """The name of the layer that gives the labels. Raises ValueError for a module without one, or with more than two labels."""
    labels = module.config.num_labels
    if labels not in (1, 2):
        raise ValueError(f"has {labels} labels; a reranker has one, or two of which the second is 'relevant'")
    layers = [name for name, layer in module.named_modules() if isinstance(layer, nn.Linear) and layer.out_features == labels]
    if not layers:
        raise ValueError("has no head: no linear layer gives its labels")
    return layers[-1]


def _module(name_or_path: str, attention: str, **options: object) -> PreTrainedModel:
    return with_attention(
        attention,
        lambda kind: AutoModelForSequenceClassification.from_pretrained(name_or_path, attn_implementation=kind, **options),
    )


class Judge(Classifier):
    """Scores packed sequences by a causal language model. It is imported and served, not trained: no recipe names the family.

    Args:
        module: the checkpoint's model, with its output embeddings.
        yes: id of the word for a relevant document.
        no: id of the word for a document that is not relevant.
    """

    family: Mapping[str, Any] = {"name": "judge"}

    def __init__(self, module: PreTrainedModel, yes: int, no: int) -> None:
        RankerModule.__init__(self)
        self.module = module
        self.masks = unchanged
        self.typed = False
        words = module.get_output_embeddings()
        self._final = nn.Linear(words.in_features, 1, bias=words.bias is not None)
        with torch.no_grad():
            self._final.weight.copy_((words.weight[yes] - words.weight[no])[None])
            if words.bias is not None:
                self._final.bias.copy_((words.bias[yes] - words.bias[no])[None])

    @property
    def final(self) -> nn.Linear:
        """The layer from the last token's state to the difference of the two words' logits."""
        return self._final

    def states(self, *inputs: Tensor) -> Tensor:
        """The last real token's state: (batch, hidden), in fp32, from three (batch, length) integer tensors."""
        input_ids, _, attention_mask = inputs
        arguments = {"input_ids": input_ids, "attention_mask": self.masks(attention_mask)}
        states: Tensor = self.module.base_model(**arguments, use_cache=False).last_hidden_state
        return last(states, attention_mask).float()
