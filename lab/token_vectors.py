"""Static token vectors: the vector of a text is the weighted sum of its tokens' vectors, scaled to length 1.

The initial table is that of model2vec (Minish, 2024): a sentence encoder, the teacher, encodes each token of the vocabulary, a
principal component analysis reduces the dimensions, and rarer tokens get a higher weight, a / (a + p), where p is the token's share
of all tokens (Arora, Liang and Ma, "A Simple but Tough-to-Beat Baseline for Sentence Embeddings", 2017).

Then the table is trained. The first stage is distillation on batches of texts. Their vectors learn the direction of the teacher's
vectors, cut to as many dimensions, and the similarities between the teacher's vectors.

The second stage uses questions, each with its gold block and other blocks of the same document, among them the hardest for BM25.
The gold block must score highest, also among the blocks of other questions (InfoNCE; van den Oord et al. 2018). For texts that the
teacher has read, its scores are soft labels and its vectors stay a target, so that general meaning is not forgotten. Some queries
lose words that occur in the gold block, so that the remaining words must find it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor, nn
from torch.nn import functional as F
from tqdm import tqdm

from keyblock.selectors import SELECTORS
from training.data.examples import Preparation
from training.evaluate.selection import segmented

Record = Callable[[int, float], object]

CHECKPOINT_EVERY = 500  # steps
FEWEST_LEFT = 2  # tokens that must remain when some of a query or text are left out
COMMON = 1e-3  # a: a token with this share of all tokens has the weight 1/2
LARGEST = 127  # largest value of a signed byte


class Bags(NamedTuple):
    """Texts as bags of tokens.

    Attributes:
        ids: shape (n_tokens,), token ids, text by text.
        firsts: shape (n_texts,), the index of each text's first token in `ids`.
    """

    ids: Tensor
    firsts: Tensor

    @classmethod
    def of(cls, texts: Sequence[NDArray[np.int32]]) -> "Bags":
        """Build from texts of token ids, shape (n_tokens,) each; an empty text has the vector 0."""
        firsts = np.cumsum([0, *map(len, texts[:-1])]) if texts else np.zeros(0, np.int64)
        ids = np.concatenate(texts) if texts else np.zeros(0, np.int32)
        return cls(torch.from_numpy(ids.astype(np.int64)), torch.from_numpy(firsts))


class StaticVectors(nn.Module):
    """A vector and a weight for each token; both are trained.

    Args:
        table: shape (vocabulary, dimensions).
        weights: shape (vocabulary,), above 0.
    """

    def __init__(self, table: NDArray[np.float32], weights: NDArray[np.float32]) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.from_numpy(table.copy()))
        self.log_weights = nn.Parameter(torch.from_numpy(np.log(weights)))

    def forward(self, bags: Bags) -> Tensor:
        """The texts' vectors, shape (n_texts, dimensions); length 1, or 0 for a text without a token."""
        weights = self.log_weights[bags.ids].exp()
        return F.normalize(F.embedding_bag(bags.ids, self.table, bags.firsts, mode="sum", per_sample_weights=weights), dim=1)

    def folded(self) -> NDArray[np.float32]:
        """The table with its weights folded in, shape (vocabulary, dimensions)."""
        return (self.table * self.log_weights.exp()[:, None]).detach().cpu().numpy()


class Projection(NamedTuple):
    """A principal component analysis.

    Attributes:
        mean: shape (width,).
        axes: shape (width, dimensions).
    """

    mean: NDArray[np.float32]
    axes: NDArray[np.float32]

    @classmethod
    def of(cls, vectors: NDArray[np.float32], dimensions: int) -> "Projection":
        """The principal components of vectors, shape (n, width). Raises ValueError for fewer vectors or a smaller width."""
        if dimensions > min(vectors.shape):
            raise ValueError(f"{len(vectors)} vectors of {vectors.shape[1]} dimensions cannot be cut to {dimensions}")
        mean = vectors.mean(0)
        _, axes = np.linalg.eigh(np.cov(vectors - mean, rowvar=False))
        return cls(mean, axes[:, ::-1][:, :dimensions].astype(np.float32))

    def __call__(self, vectors: NDArray[np.float32]) -> NDArray[np.float32]:
        """Project vectors, shape (n, width), to shape (n, dimensions)."""
        return np.asarray((vectors - self.mean) @ self.axes, dtype=np.float32)


def rarity(texts: Sequence[NDArray[np.int32]], vocabulary: int) -> NDArray[np.float32]:
    """The weight a / (a + p) of each token, shape (vocabulary,), from texts of token ids."""
    counts = np.bincount(np.concatenate(texts), minlength=vocabulary).astype(np.float64)
    return (COMMON / (COMMON + counts / counts.sum())).astype(np.float32)


def quantised(table: NDArray[np.float32]) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """The table as signed bytes, and each row's scale: row t is about ``scales[t] * bytes[t]``."""
    scales = np.abs(table).max(1) / LARGEST
    rounded = np.rint(table / np.where(scales > 0, scales, 1)[:, None])
    return rounded.astype(np.int8), scales.astype(np.float32)


@dataclass(frozen=True, slots=True, eq=False)
class Question:
    """A query and the blocks of a document that holds its gold passage.

    Attributes:
        query: number of the query's text.
        first: number of the text of block 0; the other blocks follow.
        right: shape (n_blocks,), which blocks hold the passage; at least one does.
        lexical: shape (n_blocks,), the blocks' BM25 scores.
    """

    query: int
    first: int
    right: NDArray[np.bool_]
    lexical: NDArray[np.float64]

    @property
    def blocks(self) -> NDArray[np.intp]:
        """Numbers of the blocks' texts, shape (n_blocks,)."""
        return self.first + np.arange(len(self.right))


@dataclass
class Passages:
    """Numbered texts of queries and blocks, and the questions that refer to them.

    Attributes:
        texts: the texts of queries and blocks.
        tokens: token ids of each text, shape (n_tokens,).
        questions: the questions with a block that holds the passage, by collection.
    """

    texts: list[str] = field(default_factory=list)
    tokens: list[NDArray[np.int32]] = field(default_factory=list)
    questions: dict[str, list[Question]] = field(default_factory=dict)

    def add(self, name: str, preparation: Preparation, queries: Sequence[str]) -> None:
        """Add a collection's queries and the documents that hold their gold passages; queries without one are left out."""
        found, documents = list[Question](), dict[str, int]()
        for query_id, doc_id, right in segmented(preparation, queries):
            document, query = preparation.document(doc_id), preparation.query(query_id)
            if doc_id not in documents:
                documents[doc_id] = len(self.texts)
                text = preparation.collection.document(doc_id).text
                for (first, last), start, end in zip(document.bounds, document.starts, document.ends, strict=True):
                    self._text(text[start:end], document.token_ids[first:last])
            lexical = SELECTORS.create({"name": "bm25"}).scores(query, document, preparation.pipeline.frequencies)
            number = self._text(preparation.collection.query(query_id), query.token_ids)
            found.append(Question(number, documents[doc_id], right, lexical))
        self.questions[name] = found

    def _text(self, text: str, tokens: NDArray[np.int32]) -> int:
        self.texts.append(text)
        self.tokens.append(tokens)
        return len(self.texts) - 1


class VectorsRecipe(BaseModel):
    """Everything that decides a table of token vectors, except the texts and the teacher."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    seed: int = Field(0, ge=0, description="of every draw")
    dimensions: int = Field(128, ge=8, le=1024, description="of a vector")
    questions: int = Field(16_000, ge=1, description="training queries of a collection that are used at most")
    questions_per_document: int = Field(40, ge=1, description="of them with the same document at most")
    teacher_blocks: int = Field(3_000, ge=0, description="blocks of a collection, of whole documents, that the teacher reads")
    distil_steps: int = Field(500, ge=0, description="steps of the first stage")
    distil_texts: int = Field(384, ge=2, description="texts of such a step")
    steps: int = Field(2_000, ge=0, description="steps of the second stage")
    step_questions: int = Field(48, ge=2, description="questions of such a step, drawn by `mixture`")
    mixture: dict[str, float] = Field({}, description="share of each collection's questions in a step; all the same when left out")
    taught: float = Field(0.5, ge=0, le=1, description="share of questions drawn among those that the teacher read")
    hard: int = Field(5, ge=0, description="blocks beside the gold one, drawn among the `hardest`")
    hardest: int = Field(12, ge=1, description="the blocks without the passage that BM25 puts first")
    random: int = Field(3, ge=0, description="blocks beside those, drawn from the document")
    drop_queries: float = Field(0.5, ge=0, le=1, description="share of queries that lose words of the gold block")
    drop_tokens: float = Field(0.7, ge=0, le=1, description="share of such words that they lose")
    thin: float = Field(0.3, ge=0, lt=1, description="share of a text's tokens that a step does not see, so that none is relied on")
    temperature: float = Field(0.05, gt=0, description="by which cosines are divided")
    gold: float = Field(1.0, ge=0, description="weight of finding the gold block")
    soft: float = Field(1.0, ge=0, description="weight of scoring as the teacher does")
    distil: float = Field(1.0, ge=0, description="weight of standing for the teacher's vectors in the second stage")
    lr: float = Field(0.003, gt=0, description="peak learning rate of the vectors (Adam)")
    weight_lr: float = Field(0.01, gt=0, description="of the logarithms of the tokens' weights")


@dataclass(frozen=True)
class Teacher:
    """The sentence encoder's vectors of the texts that it has read.

    Attributes:
        rows: shape (n_texts,), each text's row in the arrays below; -1 if it was not read.
        vectors: shape (n_read, width), of length 1.
        targets: shape (n_read, dimensions), the vectors cut to fewer dimensions, of length 1.
    """

    rows: NDArray[np.int64]
    vectors: Tensor
    targets: Tensor

    @classmethod
    def of(cls, n_texts: int, read: NDArray[np.int64], vectors: NDArray[np.float32], projection: Projection) -> "Teacher":
        """Build from the numbers of the texts that were read, shape (n_read,), and their vectors."""
        rows = np.full(n_texts, -1)
        rows[read] = np.arange(len(read))
        return cls(rows, torch.from_numpy(vectors), F.normalize(torch.from_numpy(projection(vectors)), dim=1))

    def known(self, texts: NDArray[np.int64]) -> NDArray[np.intp]:
        """The indices in `texts` of the texts that were read."""
        return np.flatnonzero(self.rows[texts] >= 0)


@dataclass(frozen=True)
class Batch:
    """Questions with candidate blocks.

    Attributes:
        questions: text numbers of the questions' queries, shape (B,).
        queries: token ids of each query, without some random tokens; some queries also without words of the gold block.
        tokens: token ids of each of the n blocks, without some random tokens.
        blocks: text numbers of all questions' blocks, shape (n,), each question's gold block first.
        gold: shape (B,), the index of each question's gold block in `blocks`.
        hidden: shape (B, n), further blocks that hold the question's passage, which are not negatives.
    """

    questions: NDArray[np.int64]
    queries: list[NDArray[np.int32]]
    tokens: list[NDArray[np.int32]]
    blocks: NDArray[np.int64]
    gold: NDArray[np.int64]
    hidden: NDArray[np.bool_]


class Draws:
    """Draws the batches of each step from a generator of (seed, step): the same whether or not the run was interrupted.

    Raises ValueError if no collection of the mixture has questions.
    """

    def __init__(self, passages: Passages, teacher: Teacher, recipe: VectorsRecipe) -> None:
        self.passages, self.teacher, self.recipe = passages, teacher, recipe
        self.read = np.flatnonzero(teacher.rows >= 0)
        self.groups = {name: questions for name, questions in passages.questions.items() if questions}
        self.taught = {name: [q for q in group if self._taught(q)] for name, group in self.groups.items()}
        mixture = recipe.mixture or dict.fromkeys(self.groups, 1.0)
        shares = np.asarray([mixture.get(name, 0.0) for name in self.groups])
        if not shares.sum() > 0:
            raise ValueError(f"mixture: none of its collections has questions; there are {', '.join(self.groups) or 'none'}")
        self._shares = shares / shares.sum()

    def _taught(self, question: Question) -> bool:
        return bool((self.teacher.rows[[question.query, question.first]] >= 0).all())

    def texts(self, step: int) -> NDArray[np.int64]:
        """The text numbers of a step of distillation."""
        rng = np.random.default_rng((self.recipe.seed, 0, step))
        return rng.choice(self.read, min(self.recipe.distil_texts, len(self.read)), replace=False)

    def questions(self, step: int) -> Batch:
        """The questions of a step of the second stage."""
        rng = np.random.default_rng((self.recipe.seed, 1, step))
        names = rng.choice(list(self.groups), self.recipe.step_questions, p=self._shares)
        chosen = [self._question(name, rng) for name in names.tolist()]
        rows = [[int(rng.choice(np.flatnonzero(q.right))), *negatives(q, self.recipe, rng)] for q in chosen]
        blocks = np.concatenate([q.first + np.asarray(row) for q, row in zip(chosen, rows, strict=True)])
        gold = np.cumsum([0, *map(len, rows[:-1])])
        tokens = self.passages.tokens
        queries = [self._query(q, tokens[blocks[index]], rng) for q, index in zip(chosen, gold.tolist(), strict=True)]
        thin = partial(thinned, share=self.recipe.thin, rng=rng)
        hidden = np.stack([_right(q, blocks) for q in chosen])
        hidden[np.arange(len(chosen)), gold] = False
        numbers = np.asarray([q.query for q in chosen])
        return Batch(numbers, [thin(ids) for ids in queries], [thin(tokens[i]) for i in blocks], blocks, gold, hidden)

    def _question(self, name: str, rng: np.random.Generator) -> Question:
        pool = self.taught[name] if rng.random() < self.recipe.taught and self.taught[name] else self.groups[name]
        return pool[int(rng.integers(len(pool)))]

    def _query(self, question: Question, gold: NDArray[np.int32], rng: np.random.Generator) -> NDArray[np.int32]:
        query = self.passages.tokens[question.query]
        if rng.random() >= self.recipe.drop_queries:
            return query
        kept = query[~(np.isin(query, gold) & (rng.random(len(query)) < self.recipe.drop_tokens))]
        return kept if len(kept) >= FEWEST_LEFT else query


def thinned(tokens: NDArray[np.int32], share: float, rng: np.random.Generator) -> NDArray[np.int32]:
    """The tokens, shape (n,), with about this share left out at random; all of them if too few would remain."""
    kept = tokens[rng.random(len(tokens)) >= share]
    return kept if len(kept) >= FEWEST_LEFT else tokens


def negatives(question: Question, recipe: VectorsRecipe, rng: np.random.Generator) -> list[int]:
    """Numbers of blocks of the document that do not hold the passage: some of the hardest for BM25, and some random ones."""
    wrong = np.flatnonzero(~question.right)
    hardest = wrong[np.argsort(-question.lexical[wrong], kind="stable")[: recipe.hardest]]
    drawn = [rng.choice(pool, min(n, len(pool)), replace=False) for pool, n in ((hardest, recipe.hard), (wrong, recipe.random))]
    return np.unique(np.concatenate(drawn)).tolist()


def _right(question: Question, blocks: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which of these texts, shape (n,), are blocks that hold the question's passage."""
    places = blocks - question.first
    inside = (places >= 0) & (places < len(question.right))
    return inside & question.right[np.where(inside, places, 0)]


class Training:
    """The training of a table. `run` continues from the checkpoint in `directory`, if there is one."""

    def __init__(self, model: StaticVectors, draws: Draws, directory: Path) -> None:
        self.model, self.draws, self.recipe, self.teacher = model, draws, draws.recipe, draws.teacher
        self.checkpoint = directory / "checkpoint.pt"
        lr = self.recipe.lr
        groups = [{"params": [model.table], "lr": lr}, {"params": [model.log_weights], "lr": self.recipe.weight_lr}]
        self.optimizer = torch.optim.Adam(groups, fused=True)
        self.peaks = (lr, self.recipe.weight_lr)

    @property
    def steps(self) -> int:
        """The number of steps of both stages."""
        return self.recipe.distil_steps + self.recipe.steps

    def run(self, record: Record | None = None) -> None:
        """Train to the last step; `record(step, loss)` is called with the mean loss at every checkpoint."""
        done, losses = self._resume(), list[float]()
        for step in tqdm(range(done, self.steps), initial=done, total=self.steps, desc="vectors", unit="step"):
            losses.append(self._step(step))
            if (step + 1) % CHECKPOINT_EVERY == 0 or step + 1 == self.steps:
                if record:
                    record(step + 1, float(np.mean(losses)))
                losses.clear()
                self._save(step + 1)

    def _step(self, step: int) -> float:
        for group, peak in zip(self.optimizer.param_groups, self.peaks, strict=True):
            group["lr"] = peak * learning_rate(step, self.steps)
        second = step - self.recipe.distil_steps
        loss = self.distillation_loss(self.draws.texts(step)) if second < 0 else self.question_loss(self.draws.questions(second))
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def distillation_loss(self, texts: NDArray[np.int64]) -> Tensor:
        """The distance of the texts' vectors from the teacher's, plus that of their similarities."""
        vectors = self.model(Bags.of([self.draws.passages.tokens[i] for i in texts]))
        target = self.teacher.vectors[self.teacher.rows[texts]]
        return self._distance(vectors, texts) + 10 * F.mse_loss(vectors @ vectors.T, target @ target.T)

    def question_loss(self, batch: Batch) -> Tensor:
        """The loss of the second stage; scores are of shape (B, n)."""
        recipe = self.recipe
        vectors = self.model(Bags.of([*batch.queries, *batch.tokens]))
        queries, blocks = vectors[: len(batch.queries)], vectors[len(batch.queries) :]
        scores = queries @ blocks.T / recipe.temperature
        visible = scores.masked_fill(torch.from_numpy(batch.hidden), -torch.inf)
        loss = recipe.gold * F.cross_entropy(visible, torch.from_numpy(batch.gold))
        if recipe.soft:
            loss = loss + recipe.soft * self._soft(scores, batch)
        return loss + recipe.distil * self._distance(blocks, batch.blocks) if recipe.distil else loss

    def _distance(self, vectors: Tensor, texts: NDArray[np.int64]) -> Tensor:
        """The mean of 1 - cosine with the teacher's vectors, over the texts that it has read."""
        known = self.teacher.known(texts)
        if not len(known):
            return vectors.sum() * 0
        return 1 - (vectors[known] * self.teacher.targets[self.teacher.rows[texts[known]]]).sum(1).mean()

    def _soft(self, scores: Tensor, batch: Batch) -> Tensor:
        """The KL divergence of the scores' softmax from the teacher's, over the texts that the teacher has read."""
        rows, columns = self.teacher.known(batch.questions), self.teacher.known(batch.blocks)
        if not len(rows) or not len(columns):
            return scores.sum() * 0
        vectors, places = self.teacher.vectors, self.teacher.rows
        target = vectors[places[batch.questions[rows]]] @ vectors[places[batch.blocks[columns]]].T / self.recipe.temperature
        own = scores[rows][:, columns]
        return F.kl_div(own.log_softmax(1), target.log_softmax(1), reduction="batchmean", log_target=True)

    def _save(self, step: int) -> None:
        partial = self.checkpoint.with_suffix(".partial")
        torch.save({"step": step, "model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}, partial)
        partial.replace(self.checkpoint)

    def _resume(self) -> int:
        if not self.checkpoint.exists():
            return 0
        state = torch.load(self.checkpoint, weights_only=True)
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        return int(state["step"])


def learning_rate(step: int, steps: int, warm: int = 50, last: float = 0.05) -> float:
    """The share of the peak rate at a step: it rises for `warm` steps, and falls linearly to `last`."""
    return min(1.0, (step + 1) / warm) * max(last, 1 - step / max(1, steps))
