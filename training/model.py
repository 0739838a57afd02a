"""The cross-encoder: a Hugging Face encoder and one linear layer on [CLS] (KeyB section 4.1, step 4)."""

from pathlib import Path
from typing import Self

from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import AutoConfig, AutoModel
from transformers.modeling_utils import PreTrainedModel

HEAD_FILE = "head.safetensors"


class CrossEncoder(nn.Module):
    """Scores packed (query, blocks) sequences.

    Args:
        encoder: any encoder whose output has `last_hidden_state` with [CLS] first.
    """

    def __init__(self, encoder: PreTrainedModel) -> None:
        super().__init__()
        self.encoder = encoder
        self.head = nn.Linear(encoder.config.hidden_size, 1)
        nn.init.normal_(self.head.weight, std=0.02)
        nn.init.zeros_(self.head.bias)

    @classmethod
    def from_backbone(cls, name_or_path: str, dropout: float = 0.0, attention: str = "sdpa") -> Self:
        """A fresh head on a pretrained encoder (hub name or local path).

        Dropout costs a third of a CPU step's speed and these runs stop long before they overfit: 0 by default.
        """
        config = AutoConfig.from_pretrained(name_or_path)
        for name in ("hidden_dropout_prob", "attention_probs_dropout_prob"):
            if hasattr(config, name):
                setattr(config, name, dropout)
        return cls(_encoder(name_or_path, config=config, attn_implementation=attention))

    @classmethod
    def load(cls, directory: str | Path, attention: str = "sdpa") -> Self:
        """Read what `save` wrote; in eval mode."""
        model = cls(_encoder(str(directory), attn_implementation=attention))
        model.head.load_state_dict(load_file(Path(directory) / HEAD_FILE))
        return model.eval()

    def save(self, directory: str | Path) -> None:
        """Write config.json, model.safetensors (the encoder) and head.safetensors."""
        self.encoder.save_pretrained(directory)
        save_file(self.head.state_dict(), Path(directory) / HEAD_FILE)

    def forward(self, input_ids: Tensor, token_type_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Logits of shape (batch,) from three (batch, length) integer tensors."""
        states = self.encoder(input_ids=input_ids, token_type_ids=token_type_ids, attention_mask=attention_mask)
        return self.head(states.last_hidden_state[:, 0]).squeeze(-1)


def _encoder(name_or_path: str, **options: object) -> PreTrainedModel:
    """The encoder alone: a pooler, where the architecture has one, is neither used nor kept."""
    try:
        return AutoModel.from_pretrained(name_or_path, add_pooling_layer=False, **options)
    except TypeError:  # architectures without a pooler do not know the option
        return AutoModel.from_pretrained(name_or_path, **options)
