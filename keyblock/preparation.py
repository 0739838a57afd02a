"""Preparation of queries and documents, each separately: token ids, blocks, terms and vectors of one text."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from keyblock.description import PipelineConfig
from keyblock.encoders import Encoder, Texts, vector_of
from keyblock.meaning import Understanding
from keyblock.prepared import Mended, PreparedDocument, PreparedQuery
from keyblock.queries import QUERY_TERMS, long_query
from keyblock.segmenters import SEGMENTERS
from keyblock.selectors import SELECTORS
from keyblock.text.alphabets import Alphabets
from keyblock.text.analyzer import Analyzer, AnalyzerConfig, DocumentFrequencies, Spelling
from keyblock.text.reader import Pause, Reader
from keyblock.text.reading import CutText, Reading, Terms, terms_between
from keyblock.text.tokenizer import Tokenizer, respelled

TITLE_TOKEN_CHARS = 64  # characters of a title that are tokenized for each token it may keep: limits the work for a huge title
QUERY_VECTOR_TOKENS = 1024  # the most tokens of a query that its vector is made of; the model may read fewer
INSTRUCTION_TOKENS = 64  # the most tokens of a request's instruction to a model with a prompt


class TextPreparer:
    """The half of a pipeline that sees one text at a time. Safe to use from several threads.

    Args:
        config: the pipeline's description.
        tokenizer: the model's tokenizer.
        frequencies: document frequencies of terms.
        encoder: the encoder that the description names; see `keyblock.encoders.open_encoder`.
        open_meaning: opens the sentence encoder of the description's `meaning`; none: documents are not understood.

    Raises ValueError if the description names an unknown component or parameter, or an encoder that is not given.
    """

    def __init__(
        self,
        config: PipelineConfig,
        tokenizer: Tokenizer,
        frequencies: DocumentFrequencies,
        encoder: Encoder | None = None,
        open_meaning: Callable[[], Encoder] | None = None,
    ) -> None:
        if (encoder is None) != (config.encoder is None):
            raise ValueError(f"the description has {config.encoder or 'no'} encoder, and {encoder or 'none'} is given")
        self.config = config
        self.tokenizer = tokenizer
        self.frequencies = frequencies
        self.encoder = encoder
        self.understanding: Understanding | None = None
        if config.meaning is not None and encoder is not None and open_meaning is not None:
            self.understanding = Understanding(config.meaning.weight, encoder.dimensions, open_meaning)
        self.analyzer = Analyzer(config.analyzer)
        self.segmenter = SEGMENTERS.create(config.segmenter)
        self.selector = SELECTORS.create(config.selector)  # says whether a query's tokens are compared
        self.reader = Reader(tokenizer, self.analyzer)
        self._alphabets = None if config.trained_on is None else Alphabets(tokenizer, config.trained_on)
        self._universal = None if config.analyzer.name == "universal" else Analyzer(AnalyzerConfig(name="universal"))
        self._spelling = (
            Spelling(frequencies, self.analyzer, lambda word: tokenizer.backend.token_to_id(word) is not None)
            if config.analyzer.name == "english"
            else None
        )
        self._costs, self._rule = self.segmenter.cut_costs(tokenizer), self.segmenter.rule(tokenizer)

    def prepare_query(self, text: str, instruction: str | None = None) -> PreparedQuery:
        """Token ids up to the cap, and the distinct terms up to QUERY_TERMS (terms beyond the token cap still select blocks).

        With an encoder, the query's vector is made of all its tokens, up to QUERY_VECTOR_TOKENS. If the query exceeds the cap and
        the pipeline has a `long_query`, `keyblock.queries` chooses the tokens that are kept, and the vector is made of those.

        Args:
            text: any Unicode.
            instruction: the task for a model with a prompt, of which INSTRUCTION_TOKENS are kept; none: the prompt's own.
        """
        text = respelled(text)
        ids = self.tokenizer.ids(text)
        cap, long = self.config.packing.query_tokens, self.config.packing.long_query
        if len(ids) > cap and long is not None and self.tokenizer.prompt is None:
            query = long_query(self.reader.read([text])[0], self.analyzer, self.frequencies, long)
            if self._in_another_script(query.token_ids):
                query = replace(query, terms=self._query_terms(text, ids))
            return self._with_query_vector(query, query.token_ids)
        words = {} if self._spelling is None else self._spelling.mended(text)
        terms = self._query_terms(" ".join([text, *words.values()]), ids)
        query = self._read(text, ids, terms, instruction)
        if not words:
            return query
        meant = Spelling.replaced(text, words)
        mended = self._read(meant, self.tokenizer.ids(meant), terms, instruction)
        unknown = np.asarray(self.analyzer.keys(" ".join(words)), np.int64)
        return replace(query, mended=Mended(mended, words, unknown))

    def _read(self, text: str, ids: NDArray[np.int32], terms: NDArray[np.int64], instruction: str | None) -> PreparedQuery:
        cap = self.config.packing.query_tokens
        reads = f"its first {cap} tokens" if len(ids) > cap else ""
        query = PreparedQuery(self._model_ids(text, ids, instruction), terms, len(ids) > cap, reads=reads)
        return self._with_query_vector(query, ids[:QUERY_VECTOR_TOKENS])

    def _query_terms(self, text: str, ids: NDArray[np.int32]) -> NDArray[np.int64]:
        """Keys of the distinct terms, shape (n_terms,); with universal terms if the query has tokens in an unlearned script.

        Documents in such a script have universal terms too.
        """
        keys = self.analyzer.keys(text)
        if self._universal is not None and self._alphabets is not None and self._alphabets.foreign(ids, at_least=1):
            keys = self._universal.keys(text) + keys
        return np.asarray(list(dict.fromkeys(keys))[:QUERY_TERMS], dtype=np.int64)

    def _in_another_script(self, ids: NDArray[np.int32]) -> bool:
        """Whether the tokens are clearly in a script that the model has not learned; False if the bundle names no scripts."""
        return self._alphabets is not None and self._alphabets.foreign(ids)

    def _model_ids(self, text: str, ids: NDArray[np.int32], instruction: str | None) -> NDArray[np.int32]:
        """The ids that the model reads of a query; for a model with a prompt, all of the prompt that precedes the document."""
        prompt, cap = self.tokenizer.prompt, self.config.packing.query_tokens
        if prompt is None:
            return ids[:cap]
        task = None if instruction is None else self.tokenizer.beginning(instruction, INSTRUCTION_TOKENS)
        return prompt.head(self.tokenizer.backend, self.tokenizer.beginning(text, cap), task)

    def _with_query_vector(self, query: PreparedQuery, ids: NDArray[np.int32]) -> PreparedQuery:
        """The query with the vector and token similarities that the encoder makes of these tokens, if there is an encoder."""
        if self.encoder is None:
            return query
        similar = self.encoder.similar(ids) if self.selector.compares_tokens else None
        return replace(query, vector=vector_of(ids, self.encoder), similar=similar)

    def prepare_document(self, text: str, title: str = "") -> PreparedDocument:
        """One document; see `prepare_documents`."""
        return self.prepare_documents([text], [title])[0]

    def prepare_documents(
        self, texts: Sequence[str], titles: Sequence[str] | None = None, pause: Pause = int
    ) -> list[PreparedDocument]:
        """Tokenize and cut documents; the result does not depend on a query.

        Args:
            texts: any Unicode; an empty text has no block.
            titles: one for each text, or none.
            pause: is called between the steps of reading, which are of bounded length; see `keyblock.text.reader`.
        """
        texts, titles = self.reader.readable(texts, pause), titles or [""] * len(texts)
        lead = self.tokenizer.prompt.lead if self.tokenizer.prompt else ""
        led = [f"{lead}{text}" if text else text for text in texts] if lead else texts
        cut = self.reader.cut(led, None if lead else self._rule, pause)
        readings = iter(self.reader.read([text for text, found in zip(led, cut, strict=True) if found is None], pause))
        documents = []
        for text, found, title in zip(led, cut, titles, strict=True):
            ids, bounds, starts, ends, terms = self._cut(next(readings), len(lead), pause) if found is None else found
            if found is not None:
                terms = self._universal_terms(text, ids, starts, ends, pause) or terms
            documents.append(PreparedDocument(ids, bounds, starts, ends, terms.keys, terms.bounds, self._title(title)))
        if self.encoder is None:
            return documents
        vectors = self.encoder.quantized([Texts(document.token_ids, document.bounds) for document in documents], pause)
        return [document.with_vectors(own) for document, own in zip(documents, vectors, strict=True)]

    def check(self, document: PreparedDocument) -> None:
        """Raise ValueError for a document that this pipeline cannot have prepared: a graph or a selector would fail on it."""
        largest = max(document.token_ids.max(initial=0), document.title_ids.max(initial=0))
        if largest >= self.tokenizer.vocabulary_size:
            raise ValueError(f"has the token {largest}, and the model knows {self.tokenizer.vocabulary_size}")
        due = None if self.encoder is None else (document.n_blocks, self._dimensions(document, self.encoder))
        found = None if document.vectors is None else document.vectors.shape
        if found != due:
            raise ValueError(f"has vectors of shape {found}, and the pipeline makes them of {due}")

    def _dimensions(self, document: PreparedDocument, encoder: Encoder) -> int:
        """How long this document's vectors must be."""
        if self.understanding is None or not self.understanding.has_read(document):
            return encoder.dimensions
        return encoder.dimensions + self.understanding.encoder.dimensions

    def is_foreign(self, query: PreparedQuery, document: PreparedDocument) -> bool:
        """Whether query or document is clearly in a script that the model has not learned; False if the bundle names no scripts."""
        return self._in_another_script(query.token_ids) or self._in_another_script(document.token_ids)

    def _cut(self, reading: Reading, lead: int, pause: Pause) -> CutText:
        """The blocks of a text whose first `lead` characters belong to the prompt."""
        bounds = self.segmenter.ranges(self._costs(reading))
        starts, ends = reading.offsets(bounds)
        terms = self._universal_terms(reading.text, reading.ids, starts, ends, pause)
        terms = terms or terms_between(reading.text, starts, ends, self.analyzer, pause)
        if lead:
            starts, ends = np.maximum(starts - lead, 0), np.maximum(ends - lead, 0)
        return CutText(reading.ids, bounds, starts, ends, terms)

    def _universal_terms(
        self, text: str, ids: NDArray[np.int32], starts: NDArray[np.int32], ends: NDArray[np.int32], pause: Pause
    ) -> Terms | None:
        """Universal terms of the blocks between these offsets, if the model has not learned the text's script; else None."""
        if self._universal is None or not self._in_another_script(ids):
            return None
        return terms_between(text, starts, ends, self._universal, pause)

    def _title(self, title: str) -> NDArray[np.int32]:
        cap = self.config.packing.title_tokens
        if not title or not cap:
            return np.zeros(0, np.int32)
        lead = self.tokenizer.prompt.lead if self.tokenizer.prompt else ""
        return self.tokenizer.ids(f"{lead}{respelled(title[: TITLE_TOKEN_CHARS * cap])}")[:cap]
