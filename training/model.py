"""The cross-encoder: a Hugging Face encoder and one linear layer on [CLS] (KeyB section 4.1, step 4)."""

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import AutoConfig, AutoModel
from transformers.modeling_utils import PreTrainedModel

HEAD_FILE = "head.safetensors"
RELATIVE = 1 << 20  # an encoder without a table of positions sets no limit


class CrossEncoder(nn.Module):
    """Scores packed (query, blocks) sequences.

    Args:
        encoder: any encoder whose output has `last_hidden_state` with [CLS] first.
    """

    def __init__(self, encoder: PreTrainedModel) -> None:
        super().__init__()
        self.encoder = encoder
        # RoBERTa has one segment type, ModernBERT and DistilBERT none: such encoders see no types
        self.typed = (
            getattr(encoder.config, "type_vocab_size", 0) > 1 and "token_type_ids" in inspect.signature(encoder.forward).parameters
        )
        self.head = nn.Linear(encoder.config.hidden_size, 1)
        nn.init.normal_(self.head.weight, std=0.02)
        nn.init.zeros_(self.head.bias)

    @classmethod
    def from_backbone(cls, name_or_path: str, dropout: float = 0.0, attention: str = "sdpa") -> Self:
        """A fresh head on a pretrained encoder (hub name or local path).

        Dropout costs a third of a CPU step's speed and these runs stop long before they overfit: 0 by default.
        Raises ValueError when there is no encoder.
        """
        with _one_clear_error(name_or_path):
            config = AutoConfig.from_pretrained(name_or_path)
            for name, value in config.to_dict().items():  # BERT's hidden_dropout_prob, DistilBERT's attention_dropout ...
                if name.endswith(("dropout", "dropout_prob")) and isinstance(value, int | float):
                    setattr(config, name, dropout)
            return cls(_encoder(name_or_path, attention, config=config))

    @classmethod
    def load(cls, directory: str | Path, attention: str = "sdpa") -> Self:
        """Read what `save` wrote; in eval mode. Raises ValueError when it is damaged."""
        with _one_clear_error(directory):
            model = cls(_encoder(str(directory), attention))
            model.head.load_state_dict(load_file(Path(directory) / HEAD_FILE))
            return model.eval()

    def save(self, directory: str | Path) -> None:
        """Write config.json, model.safetensors (the encoder) and head.safetensors."""
        self.encoder.save_pretrained(directory)
        save_file(self.head.state_dict(), Path(directory) / HEAD_FILE)

    @property
    def max_length(self) -> int:
        """Tokens of the longest sequence that the encoder has positions for (RoBERTa's begin behind its padding id)."""
        for name, module in self.encoder.named_modules():
            if name.endswith("position_embeddings") and isinstance(module, nn.Embedding):
                return module.num_embeddings - (0 if module.padding_idx is None else module.padding_idx + 1)
        longest = getattr(self.encoder.config, "max_position_embeddings", None)
        return longest if longest and longest > 0 else RELATIVE

    def forward(self, input_ids: Tensor, token_type_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Logits of shape (batch,) from three (batch, length) integer tensors."""
        types = {"token_type_ids": token_type_ids} if self.typed else {}
        states = self.encoder(input_ids=input_ids, attention_mask=attention_mask, **types)
        return self.head(states.last_hidden_state[:, 0]).squeeze(-1)


@contextmanager
def _one_clear_error(where: str | Path) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # configuration, weights and architecture each raise kinds of their own
        raise ValueError(f"{where}: cannot be read as an encoder ({type(error).__name__}: {error})") from None


def _encoder(name_or_path: str, attention: str, pooler: bool = False, **options: object) -> PreTrainedModel:
    """The encoder alone: a pooler, where the architecture has one, is neither used nor kept.

    An architecture that does not have the attention asked for (DeBERTa, MPNet) takes its own.
    """
    without = {} if pooler else {"add_pooling_layer": False}
    try:
        return AutoModel.from_pretrained(name_or_path, attn_implementation=attention, **without, **options)
    except TypeError:  # architectures without a pooler do not know the option
        if pooler:
            raise
        return _encoder(name_or_path, attention, pooler=True, **options)
    except ValueError as error:
        if attention == "eager" or "attention implementation" not in str(error):
            raise
        return _encoder(name_or_path, "eager", pooler, **options)
