"""IDCM: a student learns its teacher's order of a document's passages, and chooses what the teacher reads."""

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from keyblock.packing import Packed
from keyblock.pipeline import Pipeline
from keyblock.scoring import score_documents
from lab.models.ck import Ck
from tests.training.learning.test_distillation import BUDGET, groups_of
from tests.training.learning.test_train import SMALL, losses
from training.data.collection import Collection
from training.data.examples import Preparation, Selected
from training.evaluate.ranking import run_ranker
from training.evaluate.scoring import TorchModel
from training.learn.distillation import DistillationObjective
from training.learn.loop import make_optimizer
from training.learn.tracking import read_log
from training.learn.train import train
from training.model.aggregators import build_aggregation
from training.model.cross_encoder import CrossEncoder
from training.model.families import new_ranker
from training.recipe import Distillation, Recipe

Make = Callable[..., Recipe]
ANSWER = "answer for the"


@pytest.fixture(scope="module")
def pipeline(change_pipeline: Callable[..., Pipeline]) -> Pipeline:
    """Each sentence is a passage."""
    return change_pipeline(
        segmenter={"name": "sentences", "block_tokens": 20}, selector={"name": "first"}, aggregator={"name": "max"}
    )


class Words(CrossEncoder):
    """Of the encoder it has the word vectors alone: those of the query and of the document are added up, and multiplied."""

    def states(self, *inputs: torch.Tensor) -> torch.Tensor:
        """See RankerModule."""
        ids, types, mask = inputs
        vectors = self.encoder.get_input_embeddings()(ids)
        query, document = (vectors.mul((mask * part)[..., None]).sum(1) for part in (1 - types, types))
        return query * document


def make_teacher(backbone: Path, pipeline: Pipeline) -> Words:
    """A passage with the word "answer" in it is worth more than any other; no two are worth the same."""
    teacher = Words.from_backbone(str(backbone))
    with torch.no_grad():
        words = teacher.encoder.get_input_embeddings().weight.zero_()
        words[:, 0].uniform_(0, 0.02, generator=torch.Generator().manual_seed(0))
        words[int(pipeline.tokenizer.ids("answer")[0]), 0] = 3.0
        teacher.head.weight.zero_()[0, 0] = 1.0
        teacher.head.bias.zero_()
    teacher.aggregator = build_aggregation({"name": "top"}, teacher.hidden_size)
    return teacher.eval()


class Counting(TorchModel):
    """Remembers what the ranker itself was asked about."""

    def outputs(self, sequences: Sequence[Packed]) -> np.ndarray:
        self.read = list(sequences)
        return super().outputs(sequences)


def test_a_student_finds_the_teachers_passage_and_the_teacher_reads_no_others(
    toy: Collection,
    change_pipeline: Callable[..., Pipeline],
    pipeline: Pipeline,
    tiny_backbone: Path,
    make_recipe: Callable[..., Recipe],
) -> None:
    """IDCM whole: one sentence of a document has the answer; queries of the dev split were not learned from."""
    torch.manual_seed(0)
    student, teacher = (
        new_ranker({"name": "ck", "window": 2, "filters": 32}, str(tiny_backbone)),
        make_teacher(tiny_backbone, pipeline),
    )
    how = Distillation(teacher="runs/teacher", best=1)
    objective = DistillationObjective(make_recipe(), how, pipeline, Selected(pipeline), teacher)
    learned = groups_of(toy, pipeline, toy.split("train"))
    optimizer = make_optimizer(make_recipe(optimizer={"head_lr": 3e-2}).optimizer, student)
    losses = []
    for _ in range(50):
        optimizer.zero_grad()
        loss = objective(student, learned)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.5 * losses[0]

    served = change_pipeline(
        segmenter={"name": "sentences", "block_tokens": 20},
        selector={"name": "learned"},
        aggregator={"name": "states", "passages": 3},
    )
    (answer,) = served.tokenizer.ids("answer")
    preparation, model = Preparation(toy, served), Counting(teacher, served.tokenizer, chooser=student)
    for query in toy.split("dev"):
        names = [f"{query[:-1]}-{number}" for number in (0, 3)]
        documents = [preparation.document(name) for name in names]
        assert all(document.n_blocks > 6 for document in documents)
        scored = score_documents(served, preparation.query(query), documents, model, BUDGET)
        assert len(model.read) == 3 * 2, "passages that the teacher reads, of two documents"
        assert scored.logits.argmax() == 1, "the document with the answer"
        assert any(answer in packed.ids for packed in model.read)
        sequences = served.shortlist(preparation.query(query), documents[1], BUDGET).sequences
        assert answer in sequences[int(model.choose(sequences).argmax())].ids, "the student's first choice, as the teacher's"
        first, end = scored.selections[1].reach[0]
        text = toy.document(names[1]).text[documents[1].starts[first] : documents[1].ends[end - 1]]
        assert ANSWER in text, "the block that decided"


@pytest.mark.usefixtures("undrawn")
def test_a_cascade_is_put_together_of_a_teacher_and_its_student(
    toy: Collection, run_copy: Path, tmp_path: Path, make_recipe: Make
) -> None:
    """IDCM: another family learns the scores of a run that may go; no step follows what unites them."""
    passages = make_recipe().pipeline.model_dump() | {"aggregator": {"name": "max"}}
    how = {"model": {"name": "ck"}, "pipeline": passages, "distillation": {"teacher": str(run_copy)}}
    student = make_recipe(**how, **SMALL)
    train(student, [toy], tmp_path / "student")
    before = losses(tmp_path / "student")
    assert len(before) == 2
    teacher = load_file(tmp_path / "student" / "teacher" / "head.safetensors")
    assert torch.equal(teacher["weight"], load_file(run_copy / "checkpoint" / "head.safetensors")["weight"])

    parts = {"pipeline": passages | {"selector": {"name": "learned"}, "aggregator": {"name": "max", "passages": 2}}}
    whole = make_recipe(**parts, init=str(run_copy), selector_run=str(tmp_path / "student"), **SMALL | {"steps": 0})
    train(whole, [toy], tmp_path / "whole")
    shutil.rmtree(run_copy)
    train(whole, [toy], tmp_path / "whole")  # again: it stands by itself
    assert not losses(tmp_path / "whole")
    ranker = run_ranker(tmp_path / "whole", toy, bf16=False)
    assert isinstance(ranker.model.chooser, Ck)
    assert torch.equal(ranker.model.model.head.weight, teacher["weight"])
    found = ranker.score("river?", ["river-3", "river-0"])
    assert [len(selection.sequences) for selection in found.selections] == [2, 2]
    assert all("dev" in record for record in read_log(tmp_path / "whole"))
