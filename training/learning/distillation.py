"""A student learns a frozen teacher's scores of the same sequences (IDCM, Hofstätter et al., SIGIR 2021: ESM from ETM).

A list is what is compared: the sequences of a document, or a query's documents. A loss takes the student's and the teacher's
scores of one list, both of shape (members,), and gives a scalar; but for `squared` it is 0 for a list of one.
"""

from collections.abc import Callable, Sequence
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from keyblock.pipeline import Pipeline
from training.examples.examples import Examples, Row
from training.examples.sampling import Group
from training.learning.objectives import RankingObjective
from training.models.cross_encoder import CrossEncoder
from training.models.ranker_module import RankerModule
from training.recipe import Distillation, Recipe

Distance = Callable[[Tensor, Tensor], Tensor]


def lambda_loss(student: Tensor, teacher: Tensor, best: int = 4) -> Tensor:
    """NDCG-Loss2 of LambdaLoss (Wang et al., CIKM 2018), the default of the code of IDCM's authors: the teacher's best matter.

    The teacher's `best` members gain 2^n - 1, ..., 2^1 - 1, the others 0. Each pair of different gains costs, in bits, how unsure
    the student is of its order, times what a swap is worth at the student's distance of both.
    """
    n, device = len(student), student.device
    levels = torch.zeros(n, device=device)
    order = teacher.argsort(descending=True, stable=True)[:best]
    levels[order] = torch.arange(best, best - len(order), -1.0, device=device)
    discounts = torch.log2(torch.arange(2.0, n + 2, device=device))  # of ranks 1, 2, ...
    gains = 2**levels - 1
    gains = gains / (gains.sort(descending=True).values / discounts[:n]).sum()  # by the best DCG that there is
    ranks = student.detach().argsort(descending=True, stable=True).argsort()
    apart = (ranks[:, None] - ranks).abs()  # (n, n)
    worth = (1 / discounts[apart - 1] - 1 / discounts[apart]).abs() * (gains[:, None] - gains).abs()
    unsure = -F.logsigmoid(student[:, None] - student) / torch.log(torch.tensor(2.0))
    return (worth * unsure)[levels[:, None] > levels].sum()


def margin_loss(student: Tensor, teacher: Tensor) -> Tensor:
    """Mean over pairs of the squared error of the student's margin (Margin-MSE, Hofstätter et al. 2020)."""
    error = student - teacher
    pairs = torch.triu_indices(len(error), len(error), 1, device=error.device)
    return ((error[pairs[0]] - error[pairs[1]]) ** 2).sum() / max(1, pairs.shape[1])


def softmax_loss(student: Tensor, teacher: Tensor) -> Tensor:
    """The divergence, in nats, of the student's softmax from the teacher's (KL; the code of IDCM's authors has it, too)."""
    return F.kl_div(student.log_softmax(0), teacher.log_softmax(0), reduction="sum", log_target=True)


def squared_loss(student: Tensor, teacher: Tensor) -> Tensor:
    """Mean squared error of the scores (Ba and Caruana, NIPS 2014): they compare across queries as the teacher's do."""
    return F.mse_loss(student, teacher)


def unexplained(student: Tensor, teacher: Tensor, lengths: Tensor) -> Tensor:
    """The share of the variance of the teacher's token states that the student's leave: 0 where they are the same.

    DistilBERT (Sanh et al. 2019) and TinyBERT (Jiao et al. 2020, equation 8) learn states, too, one layer from another. Here
    those count that the last layer reads: whatever is said of tokens or sequences is made of them.

    Args:
        student: shape (sequences, length, hidden).
        teacher: of the same shape.
        lengths: shape (sequences,), tokens of each; what is behind them is padding.
    """
    real = torch.arange(teacher.shape[1], device=teacher.device) < lengths[:, None]
    taught = teacher[real]
    return ((student[real] - taught) ** 2).sum() / ((taught - taught.mean(dim=0)) ** 2).sum()


DISTANCES: dict[str, Distance] = {
    "lambda": lambda_loss,
    "margin": margin_loss,
    "softmax": softmax_loss,
    "squared": squared_loss,
}
"""By the names that training.declarations gives them."""


class DistillationObjective(RankingObjective):
    """The mean over lists of the distance between a model's scores and its teacher's.

    Args:
        recipe: names precision.
        how: names the loss, and what a list is.
        pipeline: of the training examples.
        examples: make the rows.
        teacher: in eval mode, on the device of the model; it does not learn.
        chooser: scores single blocks for a learned selector; none: the model being trained.
    """

    def __init__(
        self,
        recipe: Recipe,
        how: Distillation,
        pipeline: Pipeline,
        examples: Examples,
        teacher: RankerModule,
        chooser: RankerModule | None = None,
    ) -> None:
        super().__init__(recipe, pipeline, examples, chooser)
        self.distance = partial(lambda_loss, best=how.best) if how.loss == "lambda" else DISTANCES[how.loss]
        self.alone, self.states, self.teacher = how.among == "passages", how.states, teacher

    def __call__(self, model: RankerModule, groups: Sequence[Group]) -> Tensor:
        """See Objective."""
        choose = self._choose(model)
        rows = [row for group in groups for row in self.examples.rows(group.prepared, choose)]
        lists = [one for row in rows for one in self._lists(row)]
        members = [member for one in lists for member in one]
        learned, own = self._scores(model, members)
        with torch.no_grad():
            taught, theirs = self._scores(self.teacher, members)
        sizes = list(map(len, lists))
        loss = torch.stack(list(map(self.distance, learned.split(sizes), taught.split(sizes)))).mean()
        if own is None or theirs is None:
            return loss
        lengths = torch.tensor([len(packed.ids) for member in members for packed in member], device=own.device)
        return loss + self.states * unexplained(own, theirs, lengths)

    def _lists(self, row: Row) -> list[Row]:
        """Lists of members, each given by its sequences: a document's passages are members of one sequence."""
        return [[[packed] for packed in document] for document in row] if self.alone else [row]

    def _read(self, model: RankerModule, inputs: tuple[Tensor, ...]) -> tuple[Tensor, Tensor | None]:
        """States (batch, hidden) of sequences; where they are learned, those that the last layer reads of the tokens, too."""
        if self.states and isinstance(model, CrossEncoder):
            return model.read(*inputs)
        return model.states(*inputs), None

    def _of_documents(self, model: RankerModule, states: Tensor, counts: Tensor, weights: Tensor) -> Tensor:
        """A passage's score is its own, whatever the model's aggregator makes of several."""
        return model.scores(states) if self.alone else super()._of_documents(model, states, counts, weights)
