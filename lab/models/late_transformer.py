"""PARADE with late interaction, Transf-PRETR-LATEIR of the evaluation paper (Boytsov et al. 2022, appendix A.2).

Query and chunk are encoded separately. The interaction, a second transformer, reads the states of all tokens of both, and its [CLS]
is the passage's state. The recipe's `states` combines these states, as the third transformer of the paper does. The paper says no
more. Two details come from its public code: the interaction has two layers, and the encoder reads a query as a first segment and a
chunk as a second one. Here the interaction adds no positions, since the encoder's states have them already. The [CLS] and [SEP] of
both texts take the place of the learned vectors in the public code.

A sequence holds its query, which is therefore encoded once for each passage. A server would encode it once for each request, and
stored passages in advance, so that only the interaction remains.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers.modeling_utils import PreTrainedModel

from keyblock.packing import Packed
from training.declarations import read_family
from training.model.aggregators import Aggregation, build_aggregation
from training.model.cross_encoder import CrossEncoder
from training.model.ranker_module import FAMILY_FILE, Inputs
from training.model.transformer_ranker import one_clear_error

INTERACTION_FILE, INTERACTION_WEIGHTS = "interaction.json", "interaction.safetensors"


class LateTransformer(CrossEncoder):
    """Scores packed (query, passage) sequences, whose two texts meet only in the interaction.

    Args:
        encoder: see CrossEncoder.
        interaction: combines the states of all tokens into one state.
        aggregator: see CrossEncoder.
    """

    def __init__(self, encoder: PreTrainedModel, interaction: Aggregation, aggregator: Aggregation | None = None) -> None:
        super().__init__(encoder, aggregator)
        self.interaction = interaction

    @classmethod
    def from_backbone(cls, *arguments: Any, **settings: Any) -> Self:
        """See RankerFamily; the settings, except `shape`, are the interaction's."""
        shape: dict[str, Any] = {"shape": settings.pop("shape", None)}
        vanilla = CrossEncoder.from_backbone(*arguments, **shape)
        interaction = build_aggregation({"name": "transformer", **settings}, vanilla.hidden_size)
        return cls(vanilla.encoder, interaction, vanilla.aggregator)

    @classmethod
    def load(cls, directory: str | Path, attention: str = "sdpa") -> Self:
        """See RankerFamily."""
        vanilla = CrossEncoder.load(directory, attention)
        with one_clear_error(directory):
            model = cls(vanilla.encoder, build_aggregation(_described(directory), vanilla.hidden_size), vanilla.aggregator)
            model.family = read_family(Path(directory, FAMILY_FILE)).describe()
            model.load_weights(directory, encoder=False)
        return model.eval()

    def save_weights(self, directory: str | Path) -> None:
        """Write what CrossEncoder writes, interaction.json and interaction.safetensors."""
        super().save_weights(directory)
        Path(directory, INTERACTION_FILE).write_text(json.dumps(self.interaction.description), encoding="utf-8")
        save_file(self.interaction.state_dict(), Path(directory, INTERACTION_WEIGHTS))

    def load_weights(self, directory: str | Path, encoder: bool = True) -> None:
        """See CrossEncoder."""
        super().load_weights(directory, encoder)
        self.interaction.load_state_dict(load_file(Path(directory, INTERACTION_WEIGHTS)))

    def start_from(self, directory: str | Path) -> None:
        """See CrossEncoder; the interaction is taken over, too, if both models have the same kind."""
        super().start_from(directory)
        with one_clear_error(directory):
            if Path(directory, INTERACTION_FILE).exists() and _described(directory) == self.interaction.description:
                self.interaction.load_state_dict(load_file(Path(directory, INTERACTION_WEIGHTS)))

    def pretrained(self) -> Iterator[nn.Parameter]:
        """See RankerModule: the encoder's parameters, and the pretrained ones of interaction and aggregator."""
        yield from super().pretrained()
        yield from self.interaction.pretrained

    @property
    def graph_inputs(self) -> tuple[str, ...]:
        """See RankerModule: the types separate query and passage."""
        return self.INPUTS

    def inputs(self, sequences: Sequence[Packed], pad_id: int, document_type: int = 1) -> tuple[Tensor, ...]:
        """See RankerModule; the types separate query and passage, even if the encoder has one type only."""
        return super().inputs(sequences, pad_id, 1)

    def states(self, *inputs: Tensor) -> Tensor:
        """The interaction's [CLS] of shape (batch, hidden), in fp32, from three (batch, length) integer tensors."""
        texts = split_pairs(*inputs)
        tokens = [self.encoder(**self.named(*text)).last_hidden_state for text in texts]
        mask = torch.cat([text.attention_mask for text in texts], dim=1)
        state: Tensor = self.interaction(torch.cat(tokens, dim=1), mask > 0)
        return state.float()


def split_pairs(input_ids: Tensor, token_type_ids: Tensor, attention_mask: Tensor) -> tuple[Inputs, Inputs]:
    """Split ``[CLS] query [SEP] passage [SEP]`` into the sequences ``[CLS] query [SEP]`` and ``[CLS] passage [SEP]``.

    Args:
        input_ids: (batch, length).
        token_type_ids: (batch, length), 0 for ``[CLS] query [SEP]``, 1 for ``passage [SEP]``.
        attention_mask: (batch, length), 1 for real tokens, which stand before padding.
    """
    place = torch.arange(input_ids.shape[1], device=input_ids.device)
    split = (attention_mask * (1 - token_type_ids)).sum(1, keepdim=True)
    query_length, passage_length = split, attention_mask.sum(1, keepdim=True) - split + 1  # (batch, 1)
    source = torch.where(place == 0, 0, place + split - 1).clamp(max=input_ids.shape[1] - 1)
    query, passage = place[: query_length.max()], place[: passage_length.max()]
    passage_mask = (passage < passage_length).long()
    return (
        Inputs(
            input_ids[:, : query.shape[0]], torch.zeros_like(token_type_ids[:, : query.shape[0]]), (query < query_length).long()
        ),
        Inputs(input_ids.gather(1, source)[:, : passage.shape[0]], passage_mask * (passage > 0), passage_mask),
    )


def _described(directory: str | Path) -> Mapping[str, Any]:
    """The description of a checkpoint's interaction."""
    description: Mapping[str, Any] = json.loads(Path(directory, INTERACTION_FILE).read_text(encoding="utf-8"))
    return description
