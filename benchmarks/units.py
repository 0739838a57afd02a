"""The CPU milliseconds that it takes to read the first 2,000 words of a document, by tokenizer and language.

    python -m benchmarks.units [--data ../shared/data/languages] [--languages en de zh th ar] [--documents 20] [--turns 5]

Reading finds tokens, their places, and the terms of `universal` (or of --analyzer, as JSON), on one thread. Three ways take turns:
the tokenizer alone, which finds no terms; the plain reader; and the compiled reader. The tokenizers are the embedded one
(WordPiece), and a Unigram and a byte-level BPE tokenizer of 30,000 tokens, like those of XLM-R and Qwen, trained on other documents
of these languages. Texts are joined until a document has 2,000 words, or 4,000 characters in languages without spaces. Prints means
over documents as medians of turns; `first` is a new compiled reader's first time with each document, after the documents before.
The last columns are the speed-up over the plain reader.
"""

import argparse
import gzip
import json
import os
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from benchmarks.languages import EMBEDDED
from benchmarks.lengths import trained
from keyblock.bundle import load_bundle
from keyblock.text.analyzer import Analyzer, AnalyzerConfig
from keyblock.text.reader import Reader
from keyblock.text.tokenizer import Tokenizer

WORDS, CHARACTERS = 2000, 4000
TOKENS = 30_000


def texts_of(directory: Path) -> list[str]:
    """The texts of a collection."""
    with gzip.open(directory / "corpus.jsonl.gz", "rt", encoding="utf-8") as corpus:
        return [json.loads(line)["text"] for line in corpus]


def documents(texts: Sequence[str], count: int) -> list[str]:
    """Join the first texts into `count` documents."""
    spaced = len(texts[0].split()) * 10 > len(texts[0])  # whether the language has spaces
    made, rest = list[str](), iter(texts)
    while len(made) < count:
        document = ""
        while (len(document.split()) if spaced else len(document) / CHARACTERS * WORDS) < WORDS:
            document += next(rest) + "\n\n"
        made.append(" ".join(document.split(" ")[:WORDS]) if spaced else document[:CHARACTERS])
    return made


def milliseconds(work: Callable[[], object]) -> float:
    """Run the work; returns this thread's CPU milliseconds."""
    started = time.thread_time()
    work()
    return (time.thread_time() - started) * 1000


def read(reader: Reader, text: str) -> None:
    """Read a text with all its terms."""
    (reading,) = reader.read([text])
    reading.terms(np.zeros(1, np.int32), np.asarray([len(text)], np.int32))


def times(tokenizer: Tokenizer, analyzer: Analyzer, texts: Sequence[str], turns: int) -> list[float]:
    """Milliseconds a document: of the tokenizer, the plain reader, and the compiled reader at first and later."""
    plain, compiled = Reader(tokenizer, analyzer, compiled=False), Reader(tokenizer, analyzer)
    first = statistics.mean(milliseconds(lambda: read(compiled, text)) for text in texts)  # noqa: B023
    ways = [lambda text: tokenizer.encode([text]), lambda text: read(plain, text), lambda text: read(compiled, text)]
    later = [[statistics.mean(milliseconds(lambda: way(text)) for text in texts) for way in ways] for _ in range(turns)]  # noqa: B023
    alone, slow, fast = map(statistics.median, zip(*later, strict=True))
    return [alone, slow, first, fast]


def main(options: argparse.Namespace) -> None:
    """Print a row for each tokenizer and language."""
    found = {language: texts_of(options.data / language) for language in options.languages}
    taken = {language: documents(texts, options.documents) for language, texts in found.items()}
    used = {language: sum(map(len, made)) for language, made in taken.items()}
    lines = [line for language, texts in found.items() for line in "\n".join(texts)[used[language] :].split("\n")]
    tokenizers = {"WordPiece": load_bundle(EMBEDDED).tokenizer} | {
        name: trained(kind, lines, TOKENS) for name, kind in (("Unigram", "unigram"), ("bytes", "bytes"))
    }
    print("| tokenizer | text | tokenizer alone | plain | compiled, first | compiled | gain, first | gain |")
    print("|---|---|---|---|---|---|---|---|")
    for name, tokenizer in tokenizers.items():
        for language, texts in taken.items():
            row = times(tokenizer, Analyzer(AnalyzerConfig.model_validate(options.analyzer)), texts, options.turns)
            cells = " | ".join(f"{value:.2f}" for value in row)
            print(f"| {name} | {language} | {cells} | {row[1] / row[2]:.1f} | {row[1] / row[3]:.1f} |", flush=True)


if __name__ == "__main__":
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    parser = argparse.ArgumentParser("units.py", description="Time the reading of documents by tokenizer and language.")
    parser.add_argument("--data", type=Path, default=Path("../shared/data/languages"))
    parser.add_argument("--languages", nargs="+", default=["en", "de", "zh", "th", "ar"])
    parser.add_argument("--analyzer", type=json.loads, default={"name": "universal"})
    parser.add_argument("--documents", type=int, default=20)
    parser.add_argument("--turns", type=int, default=5)
    main(parser.parse_args())
