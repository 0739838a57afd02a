"""Query-directed attention against a loop over pairs of tokens, by hand, and inside an encoder."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from transformers import AutoConfig, AutoModel

from lab.families import LongEncoderFamily, QueryDirected
from lab.models.long_encoder import LongEncoder, directed_mask, sentence_starts
from training.model.attention import NAME
from training.model.transformer_ranker import FULL

DOT = 9


def sees(pattern: QueryDirected, ids: list[int], types: list[int], real: int, row: int, column: int) -> bool:
    """Whether the token `row` sees `column`: the definition, slowly."""

    def is_global(place: int) -> bool:
        if types[place] == 0:
            return place < real
        return bool(pattern.sentence_ends) and (types[place - 1] == 0 or ids[place - 1] in pattern.sentence_ends)

    if row == column:
        return True
    return column < real and (abs(row - column) <= pattern.window or is_global(row) or is_global(column))


def tensors(ids: list[int], types: list[int], real: int) -> tuple[Tensor, Tensor, Tensor]:
    mask = [int(place < real) for place in range(len(ids))]
    return torch.tensor([ids]), torch.tensor([types]), torch.tensor([mask])


def picture(pattern: QueryDirected, ids: list[int], types: list[int], real: int) -> list[str]:
    return ["".join("#" if of == 0 else "." for of in row) for row in directed_mask(pattern, *tensors(ids, types, real))[0, 0]]


def test_by_hand() -> None:
    """[CLS] query [SEP], a document of six tokens whose third ends a sentence, and a padding token; a window of one."""
    ids, types = [2, 5, 3, 6, 7, DOT, 6, 7, 3, 0], [0, 0, 0, 1, 1, 1, 1, 1, 1, 0]
    assert picture(QueryDirected(window=1), ids, types, 9) == [
        "#########.",
        "#########.",
        "#########.",
        "#####.....",
        "######....",
        "###.###...",
        "###..###..",
        "###...###.",
        "###....##.",
        "###.....##",
    ]
    starts = sentence_starts(*tensors(ids, types, 9)[:2], (DOT,))[0]
    assert starts.nonzero().flatten().tolist() == [3, 6], "the document's first token, and that behind the full stop"
    with_starts = picture(QueryDirected(window=1, sentence_ends=(DOT,)), ids, types, 9)
    assert with_starts[3] == with_starts[6] == "#########."
    assert with_starts[8] == "####..###."


@given(
    query=st.integers(1, 4),
    document=st.lists(st.integers(5, DOT), min_size=1, max_size=12),
    padding=st.integers(0, 3),
    window=st.integers(1, 5),
)
@pytest.mark.parametrize("ends", [(), (DOT,)])
def test_it_is_the_definition(ends: tuple[int, ...], query: int, document: list[int], padding: int, window: int) -> None:
    ids, types = [5] * query + document + [0] * padding, [0] * query + [1] * len(document) + [0] * padding
    pattern, real = QueryDirected(window=window, sentence_ends=ends), query + len(document)
    expected = [
        "".join("#" if sees(pattern, ids, types, real, row, column) else "." for column in range(len(ids)))
        for row in range(len(ids))
    ]
    assert picture(pattern, ids, types, real) == expected


def ranker(kind: str = "bert", attention: str = "sdpa", **settings: object) -> LongEncoder:
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64, "embedding_size": 16}
    plain = {"vocab_size": 50, "pad_token_id": 0, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    config = AutoConfig.for_model(kind, initializer_range=0.3, **sizes | plain)
    encoder = AutoModel.from_config(config, attn_implementation=attention)
    model = LongEncoder(encoder, settings=LongEncoderFamily.read(settings)).eval()
    torch.nn.init.normal_(model.head.weight)
    return model


SEQUENCE = tensors([2, 5, 6, 3, *range(10, 40), 3], [0] * 4 + [1] * 31, 35)


@pytest.mark.parametrize("kind", FULL)
def test_a_window_over_everything_is_full_attention(kind: str) -> None:
    full, directed = ranker(kind), ranker(kind, query_directed={"window": 35})
    torch.testing.assert_close(directed(*SEQUENCE), full(*SEQUENCE))
    assert not torch.allclose(ranker(kind, query_directed={"window": 2})(*SEQUENCE), full(*SEQUENCE))


@pytest.mark.parametrize("attention", ["eager", "sdpa", NAME])
def test_every_attention_computes_it_and_padding_never_changes_a_score(attention: str) -> None:
    model = ranker(attention=attention, query_directed={"window": 3, "sentence_ends": [12, 20]})
    wider = [torch.nn.functional.pad(tensor, (0, 9)) for tensor in SEQUENCE]
    scores = model(*SEQUENCE)
    torch.testing.assert_close(model(*wider), scores)
    torch.testing.assert_close(
        scores, ranker(attention="eager", query_directed={"window": 3, "sentence_ends": [12, 20]})(*SEQUENCE)
    )
    with torch.autocast("cpu", torch.bfloat16):
        torch.testing.assert_close(model(*wider), scores, rtol=0.1, atol=0.1)


def test_after_one_layer_a_word_reaches_as_far_as_it_is_seen() -> None:
    """A far word changes no word's state but those of the query: it is beyond the window, and they alone look everywhere."""
    model = ranker(query_directed={"window": 3})
    del model.encoder.encoder.layer[1:]
    ids, types, mask = SEQUENCE
    other = ids.clone()
    other[0, 30] = 45
    before, after = (model.encoder(**model.named(of, types, mask)).last_hidden_state[0] for of in (ids, other))
    changed = (before - after).abs().amax(1) > 1e-6
    assert changed.nonzero().flatten().tolist() == [0, 1, 2, 3, *range(27, 34)]


def test_encoders_that_take_no_such_mask_say_so() -> None:
    with pytest.raises(
        ValueError, match=r"model.query_directed: a mpnet takes no mask of pairs of tokens; those that do: albert, bert"
    ):
        ranker("mpnet", "eager", query_directed={})
