"""Writes pairs of a question and a paragraph from SQuAD's train articles, to train a cross-encoder without KeyBlock.

    python -m benchmarks.outside_pairs --data ../shared/data --out PAIRS.json [--questions 3700] [--words 90]

Only paragraphs of at most --words words are used: two cores can then read more of them in the same time. Each question gives three
pairs: its gold paragraph (label 1), one of the ten other paragraphs of train articles that share most of its rare words (label 0),
and a random other paragraph of its article (label 0). No article of a dev or test question is read.
"""

import argparse
import json
import math
import random
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from keyblock.text.analyzer import Analyzer, AnalyzerConfig
from training.collections.collection import Collection
from training.collections.types import Span
from training.evaluation.evaluate import sample

HARDEST = 10  # paragraphs from which the hard negative is drawn
SEED = 1
PARAGRAPH = "\n\n"


class Sharing:
    """Finds the paragraphs that share most of a question's rare words."""

    def __init__(self, paragraphs: Sequence[str]) -> None:
        self._analyzer, self._count = Analyzer(AnalyzerConfig()), len(paragraphs)
        found: dict[str, list[int]] = defaultdict(list)
        for number, paragraph in enumerate(paragraphs):
            for term in set(self._analyzer.terms(paragraph)):
                found[term].append(number)
        self._holding = {term: np.asarray(numbers) for term, numbers in found.items()}

    def best(self, question: str, count: int) -> list[int]:
        """Numbers of the `count` best paragraphs, best first."""
        scores = np.zeros(self._count)
        for term in set(self._analyzer.terms(question)) & self._holding.keys():
            scores[self._holding[term]] += math.log(self._count / len(self._holding[term]))
        return np.argsort(-scores, kind="stable")[:count].tolist()


def pairs(collection: Collection, questions: int, words: int) -> list[tuple[str, str, int]]:
    """Triples of question, paragraph and label."""
    rng = random.Random(SEED)
    queries = [query for query in collection.split("train") if collection.spans.get(query)]
    articles = sorted({span.doc_id for query in queries for span in collection.spans[query]})
    paragraphs = ((article, text) for article in articles for text in collection.document(article).text.split(PARAGRAPH))
    owned = [(article, text) for article, text in paragraphs if 0 < len(text.split()) <= words]
    sharing, made = Sharing([text for _, text in owned]), []
    by_article: dict[str, list[str]] = defaultdict(list)
    for article, text in owned:
        by_article[article].append(text)
    short = [query for query in queries if len(_text(collection, collection.spans[query][0]).split()) <= words]
    for query in sample(short, questions):
        question, span = collection.query(query), collection.spans[query][0]
        gold = _text(collection, span)
        hard = [owned[number][1] for number in sharing.best(question, HARDEST + 1)]
        article_negatives = [text for text in by_article[span.doc_id] if not _same(text, gold)]
        made.append((question, gold, 1))
        made.append((question, rng.choice([text for text in hard if not _same(text, gold)]), 0))
        made += [(question, rng.choice(article_negatives), 0)] if article_negatives else []
    return made


def _text(collection: Collection, span: Span) -> str:
    return collection.document(span.doc_id).text[span.start : span.end]


def _same(text: str, gold: str) -> bool:
    """Whether a paragraph is the gold one, or a part of a gold one that has an empty line."""
    return text.strip() in gold or gold.strip() in text


def main() -> None:
    """Write the pairs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="a directory of collections")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--questions", type=int, default=3700)
    parser.add_argument("--words", type=int, default=90, help="most words of a paragraph")
    given = parser.parse_args()
    made = pairs(Collection(given.data / "squad-articles"), given.questions, given.words)
    given.out.write_text(json.dumps(made), encoding="utf-8")
    print(f"{len(made)} pairs, {sum(label for *_, label in made)} relevant")


if __name__ == "__main__":
    main()
