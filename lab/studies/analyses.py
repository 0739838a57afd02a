"""Analyses of the papers that need no training: KeyB's sections 3 and 6.5, the sentence paper's section 5.

    python -m lab.studies.analyses --data DATA [--only positions maps synonyms full_text pools depth stemming]

Prints Markdown, see lab/notes/analyses.md. Vectors are those of the embedded bundle's encoder of stored documents, all-MiniLM-L6-v2
in 8 bits. They are kept, so that the study may be stopped and started again.
"""

import argparse
import random
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from functools import cache, cached_property
from hashlib import blake2b
from itertools import islice, product
from pathlib import Path
from statistics import fmean

import numpy as np
from ir_measures import nDCG
from numpy.typing import NDArray
from scipy.stats import ttest_rel

from keyblock.bundle import load_bundle
from keyblock.description import PipelineConfig
from keyblock.encoders import Texts
from keyblock.pipeline import Pipeline
from keyblock.prepared import PreparedQuery, term_counts
from keyblock.selectors import SELECTORS, rank_blocks
from keyblock.text.analyzer import AnalyzerConfig, DocumentFrequencies
from lab.positions import POSITIONS, best_positions, by_position
from lab.tables import SIGNIFICANT
from training.data.collection import Collection
from training.data.examples import Preparation
from training.data.first_stage import bm25_run, candidate_pool
from training.data.prepared_cache import default_directory
from training.derive.wordnet import WordNet
from training.evaluate.evaluate import sample
from training.evaluate.measures import per_query
from training.evaluate.significance import holm, p_text
from training.evaluate.tables import markdown

BUNDLE = load_bundle(Path(__file__).resolve().parents[2] / "models" / "default")
OPENING = {"name": "window", "block_tokens": 126, "stride": 126}  # what the encoder reads of a text
CUTS = {"blocks": {"name": "cogltx"}, "sentences": {"name": "single_sentences"}, "opening": OPENING}
WORDNET = Path("/usr/share/wordnet")  # Debian's wordnet-base
COUNTED = 1000  # documents in which words are counted
FEWEST, OTHERS = 15, 3  # blocks of a document (KeyB leaves shorter ones out), and documents beside the relevant one
SHOWN = (1, 2, 5, 9, 10)  # positions in the table
POOLS, DEPTHS = (8, 16, 32, 64), (10, 20, 50, 100)  # sentences of a document, documents of a query; the first of each elsewhere
Scores = NDArray[np.float64]
SELECTIONS = {"FIRST": "first", "TERMF": "termf", "FIRST+TERMF": "first_termf"}
AGGREGATIONS = {  # of sentences' cosines, and the query's words in them
    "max": lambda cosines, _: float(cosines.max()),
    "sum": lambda cosines, _: float(cosines.sum()),
    "mean": lambda cosines, words: float(np.average(cosines, weights=words if words.any() else None)),
}
Scorer = Callable[[str, str], float]  # of a document, from the ids of query and document
Rows = Iterator[dict[str, str]]  # by the head of the column


class Store:
    """Vectors of texts, each computed once and kept in a file."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = sqlite3.connect(path, timeout=60)
        self._file.execute("CREATE TABLE IF NOT EXISTS kept (key BLOB PRIMARY KEY, numbers BLOB)")

    def vectors(self, token_ids: NDArray[np.int32], bounds: NDArray[np.int32]) -> NDArray[np.float32]:
        """The vectors of ranges of tokens, shape (n, dimensions)."""
        keys = [blake2b(token_ids[start:end].tobytes(), digest_size=16).digest() for start, end in bounds.tolist()]
        found = ((key, self._file.execute("SELECT numbers FROM kept WHERE key = ?", [key]).fetchone()) for key in keys)
        known = {key: row[0] for key, row in found if row}
        if missing := [number for number, key in enumerate(keys) if key not in known]:
            (made,) = BUNDLE.pipeline.understanding.encoder.encode([Texts(token_ids, bounds[missing])])
            known |= {keys[number]: row.tobytes() for number, row in zip(missing, made.astype(np.float16), strict=True)}
            with self._file:
                fresh = [(keys[number], known[keys[number]]) for number in missing]
                self._file.executemany("INSERT OR IGNORE INTO kept VALUES (?, ?)", fresh)
        return np.asarray([np.frombuffer(known[key], np.float16) for key in keys], np.float32)


class Corpus:
    """A collection whose documents are cut as CUTS says, and a sample of the queries of its test split, or of dev without one."""

    def __init__(self, path: Path, store: Store, queries: int, cut: str, *, stem: bool = True) -> None:
        self.collection, self.store = Collection(path), store
        self.split = "test" if self.collection.has_run("test") else "dev"
        self.run = self.collection.run(self.split)
        self.queries = sample([query for query in self.collection.split(self.split) if query in self.run], queries)
        config = PipelineConfig(analyzer=AnalyzerConfig(stem=stem), segmenter=CUTS[cut], packing={"title_tokens": 0})
        preparation = Preparation(self.collection, Pipeline(config, BUNDLE.tokenizer, DocumentFrequencies(1, {})))
        self.document, self.query, self.analyzer = preparation.document, preparation.query, preparation.pipeline.analyzer

    def cut(self, cut: str, *, stem: bool = True) -> "Corpus":
        """The same collection and queries, cut otherwise."""
        return Corpus(self.collection.path, self.store, len(self.queries), cut, stem=stem)

    @cached_property
    def frequencies(self) -> DocumentFrequencies:
        """In how many of a sample of documents each word occurs."""
        documents = map(self.collection.document, sample(self.collection.documents, COUNTED))
        return DocumentFrequencies.count((f"{document.title} {document.text}" for document in documents), self.analyzer)

    @cached_property
    def pairs(self) -> dict[str, tuple[str, list[str]]]:
        """Each query's relevant document, and candidates that are relevant to others of the queries; all have FEWEST blocks."""
        gold = {query: next(d for d, grade in self.collection.qrels[query].items() if grade > 0) for query in self.queries}
        long = {d for d in gold.values() if self.document(d).n_blocks >= FEWEST}
        others = {q: [*islice((d for d in self.run[q] if d in long - {gold[q]}), OTHERS)] for q in self.queries}
        return {query: (gold[query], others[query]) for query in self.queries if gold[query] in long and others[query]}

    def bm25(self, query: str | PreparedQuery, doc_id: str) -> Scores:
        """BM25 of the document's blocks, shape (n_blocks,)."""
        asked = self.query(query) if isinstance(query, str) else query
        return SELECTORS.create("bm25").scores(asked, self.document(doc_id), self.frequencies)

    def cosines(self, query: str, doc_id: str, blocks: NDArray[np.intp] | slice = slice(None)) -> Scores:
        """Cosines of the query and the blocks, shape (n_blocks,)."""
        asked, document = self.query(query).token_ids, self.document(doc_id)
        (vector,) = self.store.vectors(asked, np.asarray([[0, len(asked)]], np.int32))
        return np.asarray(self.store.vectors(document.token_ids, document.bounds[blocks]) @ vector, np.float64)


def positions(corpus: Corpus) -> Rows:
    """KeyB's Figures 2 and 3: scores by position, and at how many positions relevant documents score significantly higher."""
    for name, score in (("BM25", corpus.bm25), ("cosine", corpus.cosines)):
        relevant = np.asarray([by_position(score(query, gold)) for query, (gold, _) in corpus.pairs.items()])
        others = np.asarray([np.mean([by_position(score(q, d)) for d in found], axis=0) for q, (_, found) in corpus.pairs.items()])
        tests = zip(holm(ttest_rel(relevant, others).pvalue), (relevant - others).mean(axis=0), strict=True)
        above = sum(p <= SIGNIFICANT and gap > 0 for p, gap in tests)
        kinds = {"relevant": relevant, "others": others}.items()
        means = {f"{kind} at {place}": f"{rows[:, place - 1].mean():.2f}" for kind, rows in kinds for place in SHOWN}
        yield {"queries": str(len(relevant)), "score": name, **means, "above at": str(above)}


def maps(corpus: Corpus) -> Rows:
    """KeyB's Figures 11 and 12: where a document's eight best blocks stand, in relevant documents and in the best other ones."""
    for name, score in (("BM25", corpus.bm25), ("BinB, untuned", corpus.cosines)):
        both = [[best_positions(score(q, d)) for d in (gold, others[0])] for q, (gold, others) in corpus.pairs.items()]
        counts = np.sum(both, axis=0)
        shares = counts / counts.sum(axis=1, keepdims=True)
        parts = {"1": shares[:, 0], "2": shares[:, 1], "3": shares[:, 2], "6 to 10": shares[:, POSITIONS // 2 :].sum(axis=1)}
        cells = {f"{kind}: {at}": f"{of[n]:.0%}" for n, kind in enumerate(("relevant", "others")) for at, of in parts.items()}
        yield {"blocks by": name, **cells}


def expansions(words: Sequence[str], wordnet: WordNet, draw: random.Random) -> tuple[list[str], list[str]]:
    """Single-word synonyms of all senses of the words, and as many random words of WordNet; none is one of the words."""
    entries = [entry for word in words for entry in wordnet.entries(word)]
    senses = [wordnet.sense(entry._replace(offsets=(offset,))) for entry in entries for offset in entry.offsets]
    known = {*words, *(entry.lemma for entry in entries)}
    found = sorted({word for sense in senses for word in map(str.lower, sense.words) if word.isalpha()} - known)
    return found, draw.sample([lemma for lemma in wordnet.lemmas if lemma.isalpha() and lemma not in known], len(found))


def synonyms(stemmed: Corpus) -> Rows:
    """KeyB's Table 3 and Figure 4: blocks of relevant documents that words match, and BM25's gap between the documents."""
    corpus, draw, wordnet, counts, gaps = stemmed.cut("blocks", stem=False), random.Random(0), WordNet(WORDNET), [], []
    for query, (gold, others) in corpus.pairs.items():
        words = corpus.analyzer.terms(corpus.collection.query(query))
        keys = [corpus.analyzer.keys(" ".join([*words, *more])) for more in ([], *expansions(words, wordnet, draw))]
        forms = [PreparedQuery(np.zeros(0, np.int32), np.unique(np.asarray(of_form, np.int64))) for of_form in keys]
        matched = (term_counts(form, corpus.document(gold)).any(axis=0).sum() for form in forms)
        counts.append([len(forms[1].terms) - len(forms[0].terms), *matched])
        gaps.append([corpus.bm25(form, gold).mean() - fmean(corpus.bm25(form, d).mean() for d in others) for form in forms])
    (added, plain, *more), by_form = np.sum(counts, axis=0), np.transpose(gaps)
    row = {"words added": f"{added / len(counts):.1f}", "blocks": f"{plain:,}", "gap": f"{by_form[0].mean():.3f}"}
    for name, count, form in zip(("synonyms", "random"), more, by_form[1:], strict=True):
        row |= {name: f"{count / plain - 1:+.1%}", f"gap, {name}": f"{form.mean():.3f}"}
        row |= {f"p, {name}": p_text(ttest_rel(form, by_form[0]).pvalue)}
    yield row


def by_sentences(corpus: Corpus, selection: str, size: int, how: str) -> Scorer:
    """What scores a document by some of its sentences; of FIRST+TERMF's, half are the first ones."""
    first = {"first": size // 2} if selection == "FIRST+TERMF" else {}
    selector, unused = SELECTORS.create({"name": SELECTIONS[selection], **first}), DocumentFrequencies(1, {})

    def score(query: str, doc_id: str) -> float:
        asked, document = corpus.query(query), corpus.document(doc_id)
        pool = rank_blocks(selector.scores(asked, document, unused))[:size]
        words = term_counts(asked, document).sum(axis=0)[pool]
        return AGGREGATIONS[how](corpus.cosines(query, doc_id, pool), words) if len(pool) else -np.inf

    return score


def measured(corpus: Corpus, score: Scorer, depth: int = DEPTHS[0]) -> Scores:
    """Each query's nDCG@10 with the best `depth` candidates in the order of their scores, equal ones as given; (n_queries,)."""
    run = {}
    for query in corpus.queries:
        given = list(corpus.run[query])
        head = sorted(given[:depth], key=lambda doc_id: -score(query, doc_id))
        run[query] = dict.fromkeys([*head, *given[depth:]], 0.0)
    (values,) = per_query(corpus.collection.qrels, run, corpus.queries, [nDCG @ 10]).values()
    return np.asarray(list(values.values()))


def full_text(corpus: Corpus) -> Rows:
    """The sentence paper's Tables 2 to 4: nDCG@10, and p against the vector of the document's beginning."""
    scorers = {"full text": by_sentences(corpus.cut("opening"), "FIRST", 1, "max")}
    for (selection, size), how in product({"FIRST": 10, "TERMF": 10, "FIRST+TERMF": 20}.items(), AGGREGATIONS):
        scorers[f"{selection} {size}, {how}"] = by_sentences(corpus, selection, size, how)
    systems = {"BM25": measured(corpus, scorers["full text"], 0)} | {name: measured(corpus, of) for name, of in scorers.items()}
    for name, values in systems.items():
        p = "" if name == "full text" else p_text(ttest_rel(values, systems["full text"]).pvalue)
        yield {"system": name, "nDCG@10": f"{values.mean():.3f}", "p": p}


def pools(corpus: Corpus) -> Rows:
    """The sentence paper's Figure 2: nDCG@10 by the number of FIRST's sentences."""
    for how in AGGREGATIONS:
        scorers = {str(size): by_sentences(corpus, "FIRST", size, how) for size in POOLS}
        yield {"system": f"FIRST, {how}"} | {size: f"{measured(corpus, score).mean():.3f}" for size, score in scorers.items()}


def depth(corpus: Corpus) -> Rows:
    """The sentence paper's Figure 3: nDCG@10 by the number of documents that are ranked again."""
    for how in ("sum", "max"):
        score = cache(by_sentences(corpus, "FIRST", 10, how))
        yield {"system": f"FIRST 10, {how}"} | {str(most): f"{measured(corpus, score, most).mean():.3f}" for most in DEPTHS}


def stemming(corpus: Corpus) -> Rows:
    """The sentence paper's Table 1, and TERMF by words as they are: nDCG@10 with and without stems, and p."""
    words = corpus.cut("sentences", stem=False)
    termf = [measured(one, by_sentences(one, "TERMF", 10, "max")) for one in (corpus, words)]
    words.run = bm25_run(corpus.collection, corpus.queries, candidate_pool(corpus.collection, corpus.split), stem=False)
    order = [measured(one, by_sentences(one, "FIRST", 1, "max"), 0) for one in (corpus, words)]
    for name, both in (("BM25", order), ("TERMF 10, max", termf)):
        means = {kind: f"{values.mean():.3f}" for kind, values in zip(("stems", "words"), both, strict=True)}
        yield {"system": name, **means, "p": p_text(ttest_rel(*both).pvalue)}


ANALYSES = {"blocks": (positions, maps, synonyms), "sentences": (full_text, pools, depth, stemming)}


def main() -> None:
    """Print the tables."""
    analyses = {one.__name__: (cut, one) for cut, several in ANALYSES.items() for one in several}
    parser = argparse.ArgumentParser("lab.studies.analyses", description="The papers' analyses that need no training.")
    parser.add_argument("--data", type=Path, required=True, help="the directory of the collections")
    parser.add_argument("--collections", nargs="+", default=["squad-articles", "squad-far", "qmsum"], help="in it")
    parser.add_argument("--queries", type=int, default=100, help="a collection")
    parser.add_argument("--kept", type=Path, default=default_directory() / "analyses.sqlite", help="the file of vectors")
    parser.add_argument("--only", nargs="+", default=list(analyses), choices=list(analyses), help="some of the analyses")
    options = parser.parse_args()
    store = Store(options.kept)
    for cut, analysis in map(analyses.__getitem__, options.only):
        corpora = (Corpus(options.data / name, store, options.queries, cut) for name in options.collections)
        rows = [{"collection": corpus.collection.name} | row for corpus in corpora for row in analysis(corpus)]
        print(markdown([list(rows[0]), *(list(row.values()) for row in rows)]), end="\n\n", flush=True)


if __name__ == "__main__":
    main()
