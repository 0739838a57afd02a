"""Decoders as rerankers: the log-odds of two words after a prompt (Qwen3-Reranker, mxbai-rerank-v2).

There is one forward pass without a cache; only the last layer's state of a sequence's last token is used.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from transformers.modeling_utils import PreTrainedModel

from training.models.classifier import Classifier
from training.models.pooling import last
from training.models.ranker_module import RankerModule
from training.models.transformer_ranker import unchanged


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
