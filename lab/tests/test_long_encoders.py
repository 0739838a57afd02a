"""Long encoders and decoders with each pooling, with more positions than a backbone has, with query-directed attention."""

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from transformers import AutoConfig, AutoModel, PreTrainedModel

from keyblock.packing import Packed
from lab.families import LongEncoderFamily, QueryDirected
from lab.models.long_encoder import LongEncoder, directed_mask, extend_positions, extended, sentence_starts
from tests.training.models.test_reshaping import KINDS as OLD_KINDS
from tests.training.models.test_reshaping import OLD, encoder, ids
from training.evaluate.scoring import score
from training.model.attention import NAME
from training.model.cross_encoder import CrossEncoder
from training.model.families import load_ranker, new_ranker
from training.model.transformer_ranker import FULL, position_table

SIZES = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "vocab_size": 200,
    "max_position_embeddings": 130,
    "pad_token_id": 1,
    "bos_token_id": 2,
    "eos_token_id": 3,
    "cls_token_id": 2,
    "sep_token_id": 3,
}
KINDS: dict[str, dict[str, Any]] = {
    "longformer": {"attention_window": 8, "type_vocab_size": 1},
    "big_bird": {"attention_type": "block_sparse", "block_size": 4, "num_random_blocks": 1},
    "modernbert": {"local_attention": 8, "global_attn_every_n_layers": 2},
    "llama": {"num_key_value_heads": 2},
    "qwen2": {"num_key_value_heads": 2},
}
DECODERS = ("llama", "qwen2")
RANKERS = [(kind, "last") for kind in DECODERS] + [
    (kind, pooling) for kind in KINDS for pooling in ("cls", "mean") if kind not in DECODERS
]


@pytest.fixture(scope="module")
def backbones(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A saved random model of each kind."""
    paths = {}
    for kind, extra in KINDS.items():
        paths[kind] = str(tmp_path_factory.mktemp(kind))
        torch.manual_seed(0)
        AutoModel.from_config(AutoConfig.for_model(kind, **SIZES | extra)).save_pretrained(paths[kind])
    return paths


def make(backbone: str, attention: str = "sdpa", **settings: Any) -> LongEncoder:
    torch.manual_seed(1)
    model = new_ranker({"name": "long_encoder", **settings}, backbone, attention=attention)
    assert isinstance(model, LongEncoder)
    torch.nn.init.normal_(model.head.weight)
    return model.eval()


def packed(*lengths: int) -> list[Packed]:
    """Sequences of so many tokens, five of them the query's."""
    rng = np.random.default_rng(0)
    return [Packed(rng.integers(5, 200, length).astype(np.int32), 5, np.arange(1)) for length in lengths]


@pytest.mark.parametrize("attention", ["sdpa", NAME])
@pytest.mark.parametrize(("kind", "pooling"), RANKERS)
def test_a_batch_of_different_lengths_is_one_by_one(
    kind: str, pooling: str, attention: str, backbones: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    """Long beside short, short alone, and long again: BigBird once read everything in full after its first short text."""
    model, sequences = make(backbones[kind], attention, pooling=pooling), packed(128, 7, 60, 33, 128)
    with caplog.at_level(logging.WARNING, "transformers.models.big_bird"):
        one_by_one = [float(score(model, [sequence], 1, bf16=False)[0]) for sequence in sequences]
        together = score(model, sequences, 1, bf16=False)
    np.testing.assert_allclose(together, one_by_one, atol=1e-4)
    assert np.ptp(one_by_one) > 1e-2
    assert not [record for record in caplog.records if "big_bird" in record.name]


@pytest.mark.parametrize(("kind", "pooling"), RANKERS)
def test_a_step_changes_the_scores_and_they_are_read_back(
    kind: str, pooling: str, backbones: dict[str, str], tmp_path: Path
) -> None:
    model, sequences = make(backbones[kind], NAME, pooling=pooling).train(), packed(40, 17)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    inputs = model.inputs(sequences, 1)
    before = model(*inputs)
    torch.nn.functional.softplus(before[1] - before[0]).backward()
    assert all(weight.grad is not None and weight.grad.isfinite().all() for weight in model.head.parameters())
    assert sum(bool(weight.grad is not None and weight.grad.any()) for weight in model.encoder.parameters()) > 5
    optimizer.step()
    after = model.eval()(*inputs)
    assert (after - before).diff().abs().item() > 1e-5, "the better one is no better"
    assert after[0] - after[1] > before[0] - before[1]
    model.save(tmp_path)
    loaded = load_ranker(tmp_path)
    assert loaded.family == model.family
    torch.testing.assert_close(loaded(*inputs), after, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", DECODERS)
def test_a_decoders_last_token_has_seen_all_and_its_first_none(kind: str, backbones: dict[str, str]) -> None:
    (one,) = packed(30)
    other = Packed(np.concatenate([one.ids[:10], [9], one.ids[11:]]).astype(np.int32), one.split, one.taken)
    for pooling, changes in (("last", True), ("cls", False)):
        scores = score(make(backbones[kind], pooling=pooling), [one, other], 1, bf16=False)
        assert (abs(scores[0] - scores[1]) > 1e-4) == changes


def test_longformers_global_tokens_are_cls_and_those_of_the_query(backbones: dict[str, str]) -> None:
    for global_query, tokens in ((False, [0]), (True, [0, 1, 2, 3, 4])):
        model = make(backbones["longformer"], global_query=global_query)
        inputs = model.inputs(packed(12, 9), 1, document_type=0)  # as RoBERTa's tokenizer says
        mask = model.named(*inputs)["global_attention_mask"]
        assert [row.nonzero().flatten().tolist() for row in mask] == [tokens, tokens]
        assert "token_type_ids" not in model.named(*inputs)


def test_a_global_query_of_an_encoder_without_global_attention(backbones: dict[str, str]) -> None:
    with pytest.raises(
        ValueError, match=r"model\.global_query: a modernbert has no global attention, Longformer has; leave it out"
    ):
        make(backbones["modernbert"], global_query=True)


TABLE = torch.tensor([[0.0, 8.0], [1.0, 6.0], [2.0, 4.0], [3.0, 2.0]])  # four positions
NEW = 70


def weights(model: PreTrainedModel) -> Tensor:
    """The rows of its positions, without those in front of the first."""
    found = position_table(model)
    assert found is not None
    return found.table.weight.detach()[found.offset :]


def test_four_positions_tiled_to_ten() -> None:
    first = [0.0, 1.0, 2.0, 3.0, 0.0, 1.0, 2.0, 3.0, 0.0, 1.0]
    assert extended(TABLE, 0, 10, "tiled")[:, 0].tolist() == first


def test_four_positions_interpolated_to_seven() -> None:
    longer = extended(TABLE, 0, 7, "interpolated")
    torch.testing.assert_close(longer[:, 0], torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0]))
    torch.testing.assert_close(longer[:, 1], torch.tensor([8.0, 7.0, 6.0, 5.0, 4.0, 3.0, 2.0]))


def test_rows_in_front_of_the_first_position_stay() -> None:
    """RoBERTa's two: nobody ever reads them as positions."""
    assert extended(TABLE, 2, 7, "tiled")[:, 0].tolist() == [0.0, 1.0, 2.0, 3.0, 2.0, 3.0, 2.0]
    torch.testing.assert_close(extended(TABLE, 2, 5, "interpolated")[:, 0], torch.tensor([0.0, 1.0, 2.0, 2.5, 3.0]))


@pytest.mark.parametrize("kind", OLD_KINDS)
@pytest.mark.parametrize("extension", ["tiled", "interpolated"])
def test_an_encoder_reads_more_and_its_checkpoint_needs_no_recipe(kind: str, extension: str, tmp_path: Path) -> None:
    encoder(kind).save_pretrained(tmp_path / "backbone")
    model = LongEncoder.from_backbone(str(tmp_path / "backbone"), positions=NEW, extension=extension).eval()
    assert model.max_length == NEW
    assert torch.equal(weights(model.encoder)[:OLD], weights(encoder(kind))) == (extension == "tiled")
    model.save(tmp_path / "saved")
    again = LongEncoder.load(tmp_path / "saved")
    given = ids(NEW), torch.zeros(2, NEW, dtype=torch.long), torch.ones(2, NEW, dtype=torch.long)
    with torch.inference_mode():
        torch.testing.assert_close(again(*given), model(*given))
    assert again.max_length == NEW


@pytest.mark.parametrize("kind", OLD_KINDS)
def test_a_tiled_encoder_computes_the_same_of_what_it_could_read_before(kind: str) -> None:
    before, after = encoder(kind), encoder(kind)
    extend_positions(after, NEW, "tiled")
    with torch.inference_mode():
        torch.testing.assert_close(after(ids(OLD)).last_hidden_state, before(ids(OLD)).last_hidden_state)


@pytest.mark.parametrize("kind", ["bert", "roberta"])
def test_a_longer_model_starts_from_a_shorter_checkpoint(kind: str, tmp_path: Path) -> None:
    encoder(kind).save_pretrained(tmp_path / "backbone")
    torch.manual_seed(1)
    trained = CrossEncoder.from_backbone(str(tmp_path / "backbone"))
    with torch.no_grad():
        weights(trained.encoder).mul_(3)
    trained.save(tmp_path / "trained")
    longer = LongEncoder.from_backbone(str(tmp_path / "backbone"), positions=NEW, extension="interpolated")
    longer.start_from(tmp_path / "trained")
    torch.testing.assert_close(longer.head.state_dict(), trained.head.state_dict())
    torch.testing.assert_close(weights(longer.encoder), extended(weights(trained.encoder), 0, NEW, "interpolated"))
    longer.save(tmp_path / "longer")
    with pytest.raises(ValueError, match="cannot be read as an encoder"):
        trained.start_from(tmp_path / "longer")


@pytest.mark.parametrize(
    ("kind", "positions", "said"),
    [
        ("bert", 39, "model.positions 39 are fewer than the 40 that the backbone has; leave it out"),
        ("roberta", 39, "model.positions 39 are fewer than the 40 that the backbone has"),
        ("modernbert", 9000, "model.positions: a modernbert has no table of absolute positions to extend"),
    ],
)
def test_impossible_positions_are_errors(kind: str, positions: int, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        extend_positions(encoder(kind), positions, "tiled")


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


def test_directed_attention_by_hand() -> None:
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
def test_directed_attention_is_its_definition(
    ends: tuple[int, ...], query: int, document: list[int], padding: int, window: int
) -> None:
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
def test_every_attention_computes_a_directed_mask_and_padding_never_changes_a_score(attention: str) -> None:
    model = ranker(attention=attention, query_directed={"window": 3, "sentence_ends": [12, 20]})
    wider = [torch.nn.functional.pad(tensor, (0, 9)) for tensor in SEQUENCE]
    scores = model(*SEQUENCE)
    torch.testing.assert_close(model(*wider), scores)
    torch.testing.assert_close(
        scores, ranker(attention="eager", query_directed={"window": 3, "sentence_ends": [12, 20]})(*SEQUENCE)
    )
    with torch.autocast("cpu", torch.bfloat16):
        torch.testing.assert_close(model(*wider), scores, rtol=0.1, atol=0.1)


def test_encoders_that_take_no_mask_of_pairs_say_so() -> None:
    with pytest.raises(
        ValueError, match=r"model.query_directed: a mpnet takes no mask of pairs of tokens; those that do: albert, bert"
    ):
        ranker("mpnet", "eager", query_directed={})
