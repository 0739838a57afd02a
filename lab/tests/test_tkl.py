"""TKL against hand-worked numbers and loops: windows, regions, saturation, and which regions count."""

import math
from pathlib import Path

import pytest
import torch
from torch import Tensor

from lab.models.cedr import MEANS, SOFT
from lab.models.tkl import AROUND, LEAST, OVERLAP, STRIDE, WINDOW, Tkl, best_regions, regional
from lab.tests.test_families import packed
from training.model.aggregators import attended
from training.model.families import new_ranker


def a_model(tiny_backbone: Path, **settings: int) -> Tkl:
    torch.manual_seed(1)
    model = new_ranker({"name": "tkl", "query_tokens": 4, **settings}, str(tiny_backbone)).eval()
    assert isinstance(model, Tkl)
    return model


def test_heads_must_divide_the_vectors(tiny_backbone: Path) -> None:
    with pytest.raises(ValueError, match="5 heads do not divide the word vectors' size of 32; set heads"):
        a_model(tiny_backbone, heads=5)


def test_windows_are_read_one_by_one(tiny_backbone: Path) -> None:
    """A passage of 95 tokens has three windows; each word is looked at in its own, with five tokens of the next ones."""
    model, ids = a_model(tiny_backbone), torch.arange(100, 195)
    with torch.no_grad():
        found = model.local(ids[None], torch.ones(1, 95, dtype=torch.bool))[0]
        for start in range(0, 95, WINDOW):
            seen = [place for place in range(start - OVERLAP, start + WINDOW + OVERLAP) if 0 <= place < 95]
            at = torch.tensor([place - start + OVERLAP for place in seen])
            words = model.table(ids[seen])
            mixed = attended(model.layers, (words + model.places[at])[None], torch.ones(1, len(seen)) > 0)[0]
            for row, place in enumerate(seen):
                if start <= place < start + WINDOW:
                    torch.testing.assert_close(found[place], 0.5 * words[row] + 0.5 * mixed[row])


def slow_regional(cosines: Tensor, shown: Tensor, region: int) -> tuple[Tensor, Tensor]:
    """Of one matrix (query_tokens, length): region by region, kernel by kernel, cell by cell."""
    starts = range(0, cosines.shape[1] + 1, STRIDE)
    counts, lengths = torch.zeros(len(cosines), len(starts), len(MEANS)), torch.zeros(len(starts))
    for number, start in enumerate(starts):
        for place in range(start, min(start + region, cosines.shape[1])):
            if shown[place]:
                lengths[number] += 1
                for kernel, mean in enumerate(MEANS):
                    counts[:, number, kernel] += (-((cosines[:, place] - mean) ** 2) / (2 * SOFT**2)).exp()
    return counts, lengths


@pytest.mark.parametrize(("length", "region"), [(9, 4), (6, 30), (1, 3), (8, 5)])
def test_regions_are_those_of_a_loop(length: int, region: int) -> None:
    cosines, shown = torch.rand(2, 3, length) * 2 - 1, torch.arange(length) < torch.tensor([[length], [max(1, length - 3)]])
    counts, lengths = regional(cosines, shown, region)
    for row in range(2):
        slow = slow_regional(cosines[row], shown[row], region)
        torch.testing.assert_close(counts[row], slow[0], atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(lengths[row], slow[1])


def test_the_best_regions_do_not_overlap() -> None:
    """Regions of four tokens start at every second: the best is at 2; 1 and 3 overlap with it, 4 is next, and then 0."""
    scores = torch.tensor([[1.0, 6.0, 9.0, 8.0, 5.0, 7.0]])
    real = torch.tensor([[True] * 5 + [False]])
    found = best_regions(scores, real, regions=4, region=4)[0]
    assert AROUND == (0, -1, 1, -2, 2)
    assert found[0].tolist() == [1, 9, 6, 8, 1, 5]
    assert found[1].tolist() == [1, 5, 8, 0, 9, 0]
    assert found[2].tolist() == [1, 1, 0, 6, 0, 9]
    assert found[3].tolist() == [0] * 6


def test_a_fresh_saturation_is_nearly_the_logarithm(tiny_backbone: Path) -> None:
    """With a = b = c = 100: of a count of e, 100 e^(1/100) - 100 = 1.005; of none, 100 (1e-10)^(1/100) - 100 = -20.6."""
    model = a_model(tiny_backbone)
    with torch.no_grad():
        model.saturation.weight.zero_()
        found = model.saturated(torch.tensor([[[[math.e, 0.0]]]]), torch.tensor([[30.0]]), torch.tensor([[[0.3]]]))
    assert found.flatten().tolist() == pytest.approx([1.005, 100 * LEAST**0.01 - 100], abs=1e-3)


def test_a_saturation_depends_on_salience_and_length(tiny_backbone: Path) -> None:
    """A = 100 + 0.3 + 2 * 15 / 30 = 101.3, b = 1, c = 0: a count of 2 becomes 202.6."""
    model = a_model(tiny_backbone)
    with torch.no_grad():
        model.saturation.weight[:] = torch.tensor([[1.0, 2.0], [0.0, 0.0], [0.0, 0.0]])
        model.saturation.bias[:] = torch.tensor([100.0, 1.0, 0.0])
        found = model.saturated(torch.tensor([[[[2.0]]]]), torch.tensor([[15.0]]), torch.tensor([[[0.3]]]))
    assert found.item() == pytest.approx(202.6)


def test_a_document_has_the_best_regions_of_all_its_passages(tiny_backbone: Path) -> None:
    """Of 5 and 1 here, 4 and nothing there, the best two are 5 and 4, whose ranks weigh 1 and 10: 45."""
    model = a_model(tiny_backbone, regions=2)
    states = torch.zeros(1, 2, 2, 1 + len(AROUND))
    for passage, rank, score in ((0, 0, 5.0), (0, 1, 1.0), (1, 0, 4.0)):
        states[0, passage, rank, :2] = torch.tensor([1.0, score])
    with torch.no_grad():
        model.shares[:] = torch.tensor([[1.0], [10.0]])
        assert model.combine(states.flatten(2), torch.tensor([[True, True]])).tolist() == [45.0]


def test_bad_regions_are_regions_and_none_is_not(tiny_backbone: Path) -> None:
    """Below nothing is still the document's best: -3, and not the 0 of a passage without a second region."""
    model = a_model(tiny_backbone, regions=2)
    states = torch.zeros(1, 1, 2, 1 + len(AROUND))
    states[0, 0, 0, :2] = torch.tensor([1.0, -3.0])
    with torch.no_grad():
        assert model.combine(states.flatten(2), torch.tensor([[True]])).tolist() == [-3.0]


def test_words_of_the_query_side_by_side_beat_the_same_words_far_apart(tiny_backbone: Path) -> None:
    """What regions are for. The words' own vectors are compared, and the kernel of equal words and the best region count alone."""
    model = a_model(tiny_backbone, regions=1)
    with torch.no_grad():
        model.own.fill_(1.0)
        model.kernels.weight.zero_()
        model.kernels.weight[0, 0] = 1.0
        model.shares[:, 1:] = 0.0
        fill = list(range(200, 260))
        together, apart = [*fill, 7, 8, *fill], [7, *fill, *fill, 8]
        logits = model(*model.inputs([packed([7, 8], together), packed([7, 8], apart)], 0))
    assert logits[0] > logits[1] + 10
