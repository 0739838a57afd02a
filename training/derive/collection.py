"""Writes a collection's lessons as a collection, which trains, calibrates and measures like any other."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from training.data.collection import Collection
from training.data.directory import write_directory
from training.data.files import write_run
from training.data.types import CollectionError, Document, Run, Span
from training.derive.answers import Near, Replacement, content_words, shared_count
from training.derive.lessons import PIECE, Lesson, Source, Teacher, pieces
from training.derive.wordnet import WordNet

DOCUMENTS = 2_000  # documents of a split that filler, passages and replacements are taken from
SAMPLE = 4_000  # passages that words are taken from
LONGEST_PASSAGE = 3_000  # characters of a gold passage: a longer one is a part of a document, not an answer
TRIES = 3  # how many queries are drawn at most for each lesson


def derive(
    collection: Collection, splits: dict[str, int], out: Path, near: Near, wordnet: WordNet | None = None, seed: int = 0
) -> dict[str, int]:
    """Write lessons of the splits' queries to the directory OUT. Returns how many lessons each split got.

    Each split's texts come from documents that are relevant to its own queries. So no document of dev is trained on.

    Args:
        collection: a collection with gold passages.
        splits: how many lessons at most to make of each split.
        out: the directory, which must not exist.
        near: finds the sentence of a passage that answers.
        wordnet: gives synonyms; None: shared words are left out.
        seed: of every draw.

    Raises CollectionError for a split without gold passages, FileExistsError for a directory that exists.
    """
    if out.exists():
        raise FileExistsError(f"{out}: exists already; give another --out")
    made = {
        split: list(_lessons(collection, split, wanted, near, wordnet, (seed, number)))
        for number, (split, wanted) in enumerate(splits.items())
    }
    for split, lessons in made.items():
        if not lessons:
            raise CollectionError(f"{collection.path}: no query of split {split} has a gold passage to derive lessons from")
    return write_lessons(made, out)


def write_lessons(splits: Mapping[str, Sequence[Lesson]], out: Path) -> dict[str, int]:
    """Write each split's lessons as a collection. Returns how many lessons each split has.

    A split's run has a lesson's documents by the query's words that they share.
    """
    documents: list[Document] = []
    queries: dict[str, str] = {}
    spans: dict[str, list[Span]] = {}
    runs: dict[str, Run] = {split: {} for split in splits}
    for number, (split, lessons) in enumerate(splits.items()):
        for place, lesson in enumerate(lessons):
            name, shared = f"{split}-{place}", shared_count(lesson.query)
            queries[name], spans[name], runs[split][name] = lesson.query, [], {}
            texts = [*lesson.answers, *lesson.others]
            order = np.random.default_rng((number, place)).permutation(len(texts))  # neither a tie nor an id tells what answers
            for index, text in enumerate(texts[which] for which in order):
                documents.append(document := Document(f"{name}-{index}", text.title, text.text))
                spans[name] += [Span(document.doc_id, *gold) for gold in text.gold]
                runs[split][name][document.doc_id] = float(shared(text.text))
    write_directory(out, documents, queries, spans, {split: list(run) for split, run in runs.items()})
    for split, run in runs.items():
        write_run(run, out / f"run.{split}.bm25.trec.gz", "shared-words")
    return {split: len(run) for split, run in runs.items()}


def _lessons(
    collection: Collection, split: str, wanted: int, near: Near, wordnet: WordNet | None, seed: tuple[int, int]
) -> Iterator[Lesson]:
    sources = list(_sources(collection, split))
    if not sources:
        return
    teacher = _teacher(collection, [query for query, _ in sources], near, wordnet, seed)
    order = np.random.default_rng((*seed, 0)).permutation(len(sources))
    made = 0
    for place in (int(order[i % len(order)]) for i in range(min(wanted * TRIES, len(order) * 4))):
        if made == wanted:
            return
        if lesson := teacher.lesson(sources[place][1], np.random.default_rng((*seed, 1, place, made))):
            made += 1
            yield lesson


def _sources(collection: Collection, split: str) -> Iterator[tuple[str, Source]]:
    """The split's queries with their first gold passage, and the query before it whose passage is elsewhere in the document."""
    before: dict[str, Source] = {}
    for query in collection.split(split):
        for span in collection.spans.get(query, ())[:1]:
            document = collection.document(span.doc_id)
            rest = (collection.document(one.doc_id).text[one.start : one.end].strip() for one in collection.spans[query][1:])
            source = Source(collection.query(query), document.title, document.text, span, others=tuple(filter(None, rest)))
            if not source.passage or len(source.passage) > LONGEST_PASSAGE:
                continue
            other = before.get(span.doc_id)
            apart = other is not None and (other.gold.end <= span.start or span.end <= other.gold.start)
            yield query, source._replace(beside=(other.query, other.passage) if other and apart else None)
            before[span.doc_id] = source


def _teacher(collection: Collection, queries: Sequence[str], near: Near, wordnet: WordNet | None, seed: tuple[int, int]) -> Teacher:
    rng = np.random.default_rng((*seed, 2))
    names = sorted({span.doc_id for query in queries for span in collection.spans.get(query, ())})
    chosen = [names[place] for place in rng.permutation(len(names))[:DOCUMENTS]]
    passages = [piece for name in chosen for piece in pieces(collection.document(name).text)]
    if not passages:
        raise CollectionError(f"{collection.path}: its documents have no paragraphs of {PIECE[0]} characters or more")
    sample = [passages[place] for place in rng.permutation(len(passages))[:SAMPLE]]
    words = [word for text in sample for word in content_words(text)[1:] if len(word) > 3]
    replacements = Replacement([w for w in words if w[0].isupper()] or words, [w for w in words if w.islower()] or words)
    return Teacher(passages, list(dict.fromkeys(map(collection.query, queries))), replacements, near, wordnet)
