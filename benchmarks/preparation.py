"""How long documents take to prepare, beside what the tokenizer alone takes to read them.

    python benchmarks/preparation.py [--data DATA/squad-articles] [--documents 100] [--words 2000] [--turns 5]

In turns, on one thread: the pipeline as it is, the same with other segmenters, the same where the tokenizer reads each text whole,
that tokenizer alone, and the selection of the prepared documents' blocks for a query. Medians of CPU time, and ratios. The first
turn of a new process is shown apart: it meets every word for the first time. Without --data the documents are of random words, of
which a few are frequent and most are rare, as in a language.
"""

import argparse
import copy
import os
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from keyblock.bundle import load_bundle
from keyblock.pipeline import Pipeline
from keyblock.segmenters import SEGMENTERS
from keyblock.text.reader import Pause
from keyblock.text.reading import EncodedText, Reading
from training.collections.collection import Collection

BUNDLE = Path(__file__).resolve().parent.parent / "models" / "default"
VOCABULARY = 20_000


class WholeTexts:
    """A reader that leaves every text to the tokenizer."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._tokenizer, self._analyzer = pipeline.tokenizer, pipeline.analyzer

    def read(self, texts: Sequence[str], pause: Pause = int) -> list[Reading]:
        """See keyblock.reader.Reader."""
        encodings = self._tokenizer.encode(texts)
        return [EncodedText(text, encoding, self._analyzer) for text, encoding in zip(texts, encodings, strict=True)]


def invented(documents: int, words: int) -> list[str]:
    """Texts of random words by Zipf's law, in sentences."""
    rng = np.random.default_rng(0)
    letters = np.array(list("etaoinshrdlucmfwypvbgk"))
    vocabulary = ["".join(rng.choice(letters, rng.integers(2, 11))) for _ in range(VOCABULARY)]
    shares = 1 / np.arange(2, VOCABULARY + 2)
    drawn = rng.choice(VOCABULARY, (documents, words), p=shares / shares.sum())
    marks = rng.choice(["", "", "", "", "", "", "", "", "", ",", ".", "."], (documents, words))
    return [" ".join(vocabulary[w] + m for w, m in zip(*row, strict=True)) for row in zip(drawn, marks, strict=True)]


def collected(directory: Path, documents: int, words: int) -> list[str]:
    """The heads of a collection's documents, the longest first."""
    texts = (document.text.split() for document in Collection(directory).documents.values())
    return [" ".join(text[:words]) for text in sorted(texts, key=len, reverse=True)[:documents]]


def cpu_seconds(work: Callable[[], object]) -> float:
    """CPU time of a piece of work."""
    started = time.process_time()
    work()
    return time.process_time() - started


def main(options: argparse.Namespace) -> None:
    """Measure and print."""
    texts = (
        collected(options.data, options.documents, options.words) if options.data else invented(options.documents, options.words)
    )
    pipeline = load_bundle(BUNDLE).pipeline
    by_texts, others = copy.copy(pipeline), {}
    by_texts.reader = WholeTexts(pipeline)  # type: ignore[assignment]
    for name in options.segmenters:
        config = pipeline.config.model_copy(update={"segmenter": SEGMENTERS.create(name).describe()})
        others[name] = Pipeline(config, pipeline.tokenizer, pipeline.frequencies, pipeline.encoder)
        others[name].reader = pipeline.reader  # which has met the words
    ways = {"word by word": pipeline, "text by text": by_texts, **others}
    first = cpu_seconds(lambda: pipeline.prepare_documents(texts))
    query, prepared = pipeline.prepare_query(" ".join(texts[0].split()[-8:])), pipeline.prepare_documents(texts)
    turns = [
        {way: cpu_seconds(lambda by=by: by.prepare_documents(texts)) for way, by in ways.items()}
        | {"tokenizer alone": cpu_seconds(lambda: pipeline.tokenizer.encode(texts))}
        | {"selection": cpu_seconds(lambda: [pipeline.select(query, document) for document in prepared])}
        for _ in range(options.turns)
    ]
    medians = {way: statistics.median(turn[way] for turn in turns) for way in turns[0]}
    print(f"{len(texts)} documents, {sum(len(text.split()) for text in texts):,} words; CPU milliseconds")
    print(f"{'word by word, a new process':28} {first * 1000:8.0f}")
    for way, seconds in medians.items():
        print(f"{way:28} {seconds * 1000:8.0f}  {seconds / medians['word by word']:5.2f} x")


if __name__ == "__main__":
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    parser = argparse.ArgumentParser("preparation.py", description="Time the preparation of documents.")
    parser.add_argument("--data", type=Path, help="a collection's directory")
    parser.add_argument("--documents", type=int, default=100)
    parser.add_argument("--words", type=int, default=2000)
    parser.add_argument("--segmenters", nargs="*", default=["whole_sentences"], help="other segmenters, compared as well")
    parser.add_argument("--turns", type=int, default=5)
    main(parser.parse_args())
