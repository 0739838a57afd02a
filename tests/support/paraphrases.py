"""A hundred questions in other words than their answers: are the answers read? See lab/notes/paraphrases.md.

    python -m tests.support.paraphrases [models/default OTHER ...] [--stored]

Each answer is hidden in other text, drawn from seeds, so that every bundle gets the same documents.
"""

import argparse
import json
import zlib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from keyblock.bundle import load_bundle
from keyblock.packing import Packed
from keyblock.prepared import PreparedDocument
from keyblock.runtime.model import GraphModel
from keyblock.scoring import select_documents
from training.evaluate.tables import markdown

DATA = Path(__file__).resolve().parents[1] / "data"
PAIRS, FILLER = DATA / "paraphrases.jsonl", DATA / "filler.txt"
WORDS = (1_000, 4_500)  # words of other text around a passage; the last paragraph is added whole


class Pair(NamedTuple):
    """A question and the passage that answers it in other words.

    Attributes:
        id: its domain (everyday, office, medicine, law or software) and a number.
        question: in the words of a person or an agent.
        passage: one to three sentences that share no content stem with the question.
        answer: the answering part of the passage.
        lure: a sentence that shares words with the question and does not answer it.
    """

    id: str
    question: str
    passage: str
    answer: str
    lure: str

    @property
    def domain(self) -> str:
        """The pair's domain."""
        return self.id.partition("-")[0]


class Buried(NamedTuple):
    """A document; its answer is ``text[start:end]``."""

    text: str
    start: int
    end: int


def read_pairs() -> list[Pair]:
    """The hundred pairs."""
    return [Pair(**json.loads(line)) for line in PAIRS.read_text(encoding="utf-8").splitlines()]


def read_filler() -> list[str]:
    """The paragraphs that surround the passages."""
    return FILLER.read_text(encoding="utf-8").splitlines()


def buried(pair: Pair, filler: Sequence[str]) -> Buried:
    """A document of 1,000 to 5,000 words with the pair's passage at a random place between, before or after its paragraphs."""
    rng = np.random.default_rng([zlib.crc32(pair.id.encode()), zlib.crc32(b"gold")])
    wanted, drawn, total = int(rng.integers(*WORDS)), list[str](), 0
    for number in rng.permutation(len(filler)).tolist():
        if total >= wanted:
            break
        drawn.append(filler[number])
        total += len(filler[number].split())
    place = int(rng.integers(len(drawn) + 1))
    text = "\n\n".join([*drawn[:place], pair.passage, *drawn[place:]])
    start = sum(len(paragraph) + 2 for paragraph in drawn[:place]) + pair.passage.index(pair.answer)
    return Buried(text, start, start + len(pair.answer))


def answers_read(bundle: Path, pairs: Sequence[Pair], provider: str = "auto", *, stored: bool = False) -> list[str]:
    """The ids of the pairs of whose buried answer the bundle's chosen blocks hold every character.

    Args:
        bundle: chooses.
        pairs: the questions and answers.
        provider: what runs its model, if that chooses.
        stored: whether the documents are understood, as those that the service has stored.
    """
    loaded, filler = load_bundle(bundle), read_filler()
    pipeline = loaded.pipeline
    choose = GraphModel.open(loaded, provider).choose if pipeline.asks_model else _nobody
    found = []
    for pair in pairs:
        document = buried(pair, filler)
        prepared = pipeline.prepare_document(document.text)
        if stored and pipeline.understanding is not None:
            prepared = pipeline.understanding.read(prepared)
        (selection,) = select_documents(pipeline, pipeline.prepare_query(pair.question), [prepared], choose)
        if holds(prepared, selection.taken, document):
            found.append(pair.id)
    return found


def _nobody(sequences: Sequence[Packed]) -> NDArray[np.float32]:
    raise AssertionError(f"a selector without a model has asked one about {len(sequences)} blocks")


def holds(prepared: PreparedDocument, blocks: NDArray[np.intp], document: Buried) -> bool:
    """Whether these blocks together hold every character of the answer but for white space."""
    missing = [not character.isspace() for character in document.text]
    for block in blocks.tolist():
        start, end = int(prepared.starts[block]), int(prepared.ends[block])
        missing[start:end] = [False] * (end - start)
    return not any(missing[document.start : document.end])


def main() -> None:
    """Print a row for each bundle."""
    parser = argparse.ArgumentParser("tests.support.paraphrases", description="Questions in other words than their answers.")
    parser.add_argument("bundles", type=Path, nargs="*", default=[Path("models/default")])
    parser.add_argument("--provider", default="auto", help="what runs the model")
    parser.add_argument("--stored", action="store_true", help="documents are understood, as those that the service has stored")
    options, pairs = parser.parse_args(), read_pairs()
    domains = list(dict.fromkeys(pair.domain for pair in pairs))
    rows = [["bundle", "answers read", *domains]]
    for bundle in options.bundles:
        read = answers_read(bundle, pairs, options.provider, stored=options.stored)
        counts = Counter(one.partition("-")[0] for one in read)
        rows.append([str(bundle), str(len(read)), *(str(counts[domain]) for domain in domains)])
    print(markdown(rows))


if __name__ == "__main__":
    main()
