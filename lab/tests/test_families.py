"""What the token families share: which token is whose, and that a model comes back as it went."""

import random
from pathlib import Path

import numpy as np
import pytest
import torch

from keyblock.packing import Packed
from lab.families import TokenFamily
from lab.models.cedr import CedrKnrm
from lab.models.tokens import TokenRanker, Tokens, mean_cls, segments
from training.declarations import FAMILIES
from training.model.cross_encoder import CrossEncoder
from training.model.families import load_ranker, new_ranker

NAMES = [name for name in FAMILIES.names() if isinstance(FAMILIES.create(name), TokenFamily)]


def packed(query: list[int], passage: list[int]) -> Packed:
    """With 2 for [CLS] and 3 for [SEP]."""
    ids = np.asarray([2, *query, 3, *passage, 3], np.int32)
    return Packed(ids, len(query) + 2, np.zeros(1, np.intp))


def test_segments_leave_special_tokens_out() -> None:
    """[CLS] q q [SEP] p p p [SEP], and a shorter one with two places of padding: [CLS] q [SEP] p p [SEP]."""
    types = torch.tensor([[0, 0, 0, 0, 1, 1, 1, 1], [0, 0, 0, 1, 1, 1, 0, 0]])
    mask = torch.tensor([[1] * 8, [1] * 6 + [0] * 2])
    query, passage = segments(types, mask, 3)
    assert query.tolist() == [[True, True, False], [True, False, False]]
    assert passage.nonzero().tolist() == [[0, 4], [0, 5], [0, 6], [1, 3], [1, 4]]


def test_a_query_longer_than_is_compared_is_cut() -> None:
    types, mask = torch.tensor([[0, 0, 0, 0, 0, 1, 1]]), torch.ones(1, 7, dtype=torch.long)
    assert segments(types, mask, 2)[0].tolist() == [[True, True]]


def test_cosines_are_those_of_pairs_of_tokens() -> None:
    layers = torch.randn(1, 2, 6, 5)
    tokens = Tokens(
        torch.zeros(1, 6), layers, torch.tensor([[True, False]]), torch.tensor([[False, False, False, True, True, False]])
    )
    found = tokens.cosines()
    assert found.shape == (1, 2, 2, 6)
    for channel in range(2):
        for place in range(6):
            expected = torch.cosine_similarity(layers[0, channel, 1], layers[0, channel, place], dim=0) if place in (3, 4) else 0
            assert found[0, channel, 0, place].item() == pytest.approx(float(expected), abs=1e-6)
    assert not found[0, :, 1].any()


def test_the_mean_cls_does_not_see_padding() -> None:
    cls = torch.tensor([[[2.0, 4.0], [4.0, 8.0], [0.0, 0.0]]])
    assert mean_cls(cls, torch.tensor([[True, True, False]])).tolist() == [[3.0, 6.0]]


def a_model(tiny_backbone: Path, name: str = "cedr_knrm") -> TokenRanker:
    torch.manual_seed(0)
    model = new_ranker({"name": name, "query_tokens": 3}, str(tiny_backbone)).eval()
    assert isinstance(model, TokenRanker)
    return model


@pytest.mark.parametrize("name", NAMES)
def test_a_model_comes_back_as_it_went(tiny_backbone: Path, tmp_path: Path, name: str) -> None:
    model = a_model(tiny_backbone, name)
    model.save(tmp_path)
    inputs = model.inputs([packed([5, 6], [7, 8, 9]), packed([5], [7])], 0)
    with torch.no_grad():
        torch.testing.assert_close(load_ranker(tmp_path)(*inputs), model(*inputs))
        other = new_ranker(model.family, str(tiny_backbone)).eval()
        other.start_from(tmp_path)
        torch.testing.assert_close(other(*inputs), model(*inputs))


def test_it_starts_from_a_vanilla_rankers_encoder(tiny_backbone: Path, tmp_path: Path) -> None:
    vanilla = CrossEncoder.from_backbone(str(tiny_backbone))
    with torch.no_grad():
        for parameter in vanilla.parameters():
            parameter.add_(0.01)
    vanilla.save(tmp_path)
    model = a_model(tiny_backbone)
    model.start_from(tmp_path)
    for ours, theirs in zip(model.encoder.parameters(), vanilla.encoder.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("name", NAMES)
def test_padding_changes_no_score(tiny_backbone: Path, name: str) -> None:
    model, pair = a_model(tiny_backbone, name), packed([5, 6], [7, 8])
    with torch.no_grad():
        alone = model(*model.inputs([pair], 0))
        beside = model(*model.inputs([pair, packed([5, 6], [7, 8, 9, 10, 11, 12])], 0))
        states = model.states(*model.inputs([pair, packed([5, 6], [9])], 0))
        two = model.combine(states[None], torch.ones(1, 2, dtype=torch.bool))
        padding = torch.full_like(states[:1], 7.0)
        three = model.combine(torch.cat([states, padding])[None], torch.tensor([[True, True, False]]))
    torch.testing.assert_close(alone[0], beside[0])
    torch.testing.assert_close(two, three)


@pytest.mark.parametrize("name", NAMES)
def test_a_documents_only_passage_is_its_logit(tiny_backbone: Path, name: str) -> None:
    model = a_model(tiny_backbone, name)
    with torch.no_grad():
        states = model.states(*model.inputs([packed([5], [7, 8]), packed([5], [9])], 0))
        documents = model.documents(states, torch.tensor([1, 1]), "states")
        torch.testing.assert_close(documents, model.scores(states))
        outputs = model.outputs(*model.inputs([packed([5], [7, 8])], 0))
    assert outputs.shape == (1, 1 + model.hidden_size)


def test_a_module_of_states_is_refused(tiny_backbone: Path) -> None:
    with pytest.raises(ValueError, match="combines passages itself: leave the module of states 'max' out"):
        CedrKnrm.from_backbone(str(tiny_backbone), aggregator={"name": "max"}, query_tokens=3)


@pytest.mark.parametrize("name", NAMES)
def test_a_sequence_may_be_shorter_than_a_query_can_be(tiny_backbone: Path, name: str) -> None:
    model = new_ranker({"name": name}, str(tiny_backbone)).eval()
    with torch.no_grad():
        assert model(*model.inputs([packed([5], [7])], 0)).isfinite().all()


@pytest.mark.parametrize(("name", "steps"), [(name, 60 if name == "neural_model1" else 20) for name in NAMES])
def test_it_learns_that_the_document_with_the_querys_word_comes_first(tiny_backbone: Path, name: str, steps: int) -> None:
    """Of four documents of two passages, one has the query's word in one of its passages; asked are words never trained on."""
    model, draw = a_model(tiny_backbone, name), random.Random(0)
    with torch.no_grad():
        model.encoder.get_input_embeddings().weight.mul_(10)  # in a trained encoder words tell more than places do
    for parameter in model.pretrained():
        parameter.requires_grad_(False)
    optimizer = torch.optim.Adam([parameter for parameter in model.parameters() if parameter.requires_grad], lr=0.01)
    for _ in range(steps):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(*logits_and_right(model, draw, range(5, 500))).backward()
        optimizer.step()
    with torch.no_grad():
        logits, right = logits_and_right(model, draw, range(500, 600))
    assert (logits.argmax(1) == right).sum() >= 14


def logits_and_right(model: TokenRanker, draw: random.Random, words: range, queries: int = 16) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits (queries, 4) of documents, and which of the four is right."""
    sequences, right = [], []
    for _ in range(queries):
        word, *others = draw.sample(words, 25)
        place = draw.randrange(24)
        others[place] = word
        sequences += [packed([word], others[start : start + 3]) for start in range(0, 24, 3)]
        right.append(place // 6)
    states = model.states(*model.inputs(sequences, 0))
    documents = model.documents(states, torch.full((4 * queries,), 2), "states")
    return documents.view(queries, 4), torch.tensor(right)
