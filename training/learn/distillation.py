"""A student learns a frozen teacher's scores of the same sequences (IDCM, Hofstätter et al., SIGIR 2021: ESM from ETM).

A list holds the members that are compared: a document's sequences, or a query's documents. A loss takes the student's and the
teacher's scores of one list, both of shape (members,), and gives a scalar. For a list of one member it is 0, except for `squared`.
"""

from collections.abc import Callable, Sequence
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from keyblock.pipeline import Pipeline
from training.data.examples import Examples, Row
from training.data.sampling import Group
from training.learn.objectives import RankingObjective
from training.model.cross_encoder import CrossEncoder
from training.model.ranker_module import RankerModule
from training.recipe import Distillation, Recipe

Distance = Callable[[Tensor, Tensor], Tensor]


def lambda_loss(student: Tensor, teacher: Tensor, best: int = 4) -> Tensor:
    """NDCG-Loss2 of LambdaLoss (Wang et al., CIKM 2018), the default in the code of IDCM's authors.

    The teacher's `best` members gain 2^best - 1, ..., 2^1 - 1; other members gain 0. Each pair of different gains costs the
    student's uncertainty about its order, in bits, times the difference of the gains, times the difference of the discounts at
    the distance of the pair's ranks by the student.
    """
    n, device = len(student), student.device
    levels = torch.zeros(n, device=device)
    order = teacher.argsort(descending=True, stable=True)[:best]
    levels[order] = torch.arange(best, best - len(order), -1.0, device=device)
    discounts = torch.log2(torch.arange(2.0, n + 2, device=device))  # of ranks 1, 2, ...
    gains = 2**levels - 1
    gains = gains / (gains.sort(descending=True).values / discounts[:n]).sum()  # by the ideal DCG
    ranks = student.detach().argsort(descending=True, stable=True).argsort()
    apart = (ranks[:, None] - ranks).abs()  # (n, n)
    change = (1 / discounts[apart - 1] - 1 / discounts[apart]).abs() * (gains[:, None] - gains).abs()
    uncertainty = -F.logsigmoid(student[:, None] - student) / torch.log(torch.tensor(2.0))
    return (change * uncertainty)[levels[:, None] > levels].sum()


def margin_loss(student: Tensor, teacher: Tensor) -> Tensor:
    """Mean over pairs of the squared error of the student's margin (Margin-MSE, Hofstätter et al. 2020)."""
    error = student - teacher
    pairs = torch.triu_indices(len(error), len(error), 1, device=error.device)
    return ((error[pairs[0]] - error[pairs[1]]) ** 2).sum() / max(1, pairs.shape[1])


def softmax_loss(student: Tensor, teacher: Tensor) -> Tensor:
    """The KL divergence of the student's softmax from the teacher's, in nats (also in the code of IDCM's authors)."""
    return F.kl_div(student.log_softmax(0), teacher.log_softmax(0), reduction="sum", log_target=True)


def squared_loss(student: Tensor, teacher: Tensor) -> Tensor:
    """Mean squared error of the scores (Ba and Caruana, NIPS 2014): so the student's compare across queries as the teacher's do."""
    return F.mse_loss(student, teacher)


def unexplained(student: Tensor, teacher: Tensor, lengths: Tensor) -> Tensor:
    """The share of the variance of the teacher's token states that the student's states leave unexplained; 0 for equal states.

    DistilBERT (Sanh et al. 2019) and TinyBERT (Jiao et al. 2020, equation 8) also learn states, layer by layer. Here only the last
    layer's input counts, since all outputs for tokens and sequences are computed from it.

    Args:
        student: shape (sequences, length, hidden).
        teacher: the same shape.
        lengths: shape (sequences,), the number of tokens in each; the rest is padding.
    """
    real = torch.arange(teacher.shape[1], device=teacher.device) < lengths[:, None]
    target = teacher[real]
    return ((student[real] - target) ** 2).sum() / ((target - target.mean(dim=0)) ** 2).sum()


DISTANCES: dict[str, Distance] = {
    "lambda": lambda_loss,
    "margin": margin_loss,
    "softmax": softmax_loss,
    "squared": squared_loss,
}
"""The losses by their names in training.declarations."""


class DistillationObjective(RankingObjective):
    """The mean over lists of the distance between a model's scores and its teacher's.

    Args:
        recipe: gives the precision.
        distillation: gives the loss, and the kind of lists.
        pipeline: the pipeline of the training examples.
        examples: makes the rows.
        teacher: the frozen teacher, in eval mode, on the model's device.
        chooser: scores single blocks for a learned selector; None: the model in training does.
    """

    def __init__(
        self,
        recipe: Recipe,
        distillation: Distillation,
        pipeline: Pipeline,
        examples: Examples,
        teacher: RankerModule,
        chooser: RankerModule | None = None,
    ) -> None:
        super().__init__(recipe, pipeline, examples, chooser)
        is_lambda = distillation.loss == "lambda"
        self.distance = partial(lambda_loss, best=distillation.best) if is_lambda else DISTANCES[distillation.loss]
        self.among_passages, self.states, self.teacher = distillation.among == "passages", distillation.states, teacher

    def __call__(self, model: RankerModule, groups: Sequence[Group]) -> Tensor:
        """See Objective."""
        choose = self._choose(model)
        rows = [row for group in groups for row in self.examples.rows(group.prepared, choose)]
        lists = [one for row in rows for one in self._lists(row)]
        members = [member for one in lists for member in one]
        student, student_states = self._scores(model, members)
        with torch.no_grad():
            teacher, teacher_states = self._scores(self.teacher, members)
        sizes = list(map(len, lists))
        loss = torch.stack(list(map(self.distance, student.split(sizes), teacher.split(sizes)))).mean()
        if student_states is None or teacher_states is None:
            return loss
        lengths = torch.tensor([len(packed.ids) for member in members for packed in member], device=student_states.device)
        return loss + self.states * unexplained(student_states, teacher_states, lengths)

    def _lists(self, row: Row) -> list[Row]:
        """The lists of a row. A member is a list of sequences: one sequence each if passages are compared."""
        return [[[packed] for packed in document] for document in row] if self.among_passages else [row]

    def _read(self, model: RankerModule, inputs: tuple[Tensor, ...]) -> tuple[Tensor, Tensor | None]:
        """States (batch, hidden) of sequences; if states are learned, also the tokens' states before the last layer."""
        if self.states and isinstance(model, CrossEncoder):
            return model.read(*inputs)
        return model.states(*inputs), None

    def _document_scores(self, model: RankerModule, states: Tensor, counts: Tensor, weights: Tensor) -> Tensor:
        """Scores of the members; a passage is scored alone, without the model's aggregator."""
        return model.scores(states) if self.among_passages else super()._document_scores(model, states, counts, weights)
