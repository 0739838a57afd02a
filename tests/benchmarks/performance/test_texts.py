"""Documents that nobody has seen, of the lengths asked for, one of which says the query."""

import json
from pathlib import Path

import pytest

from benchmarks.performance.texts import QUERY_WORDS, Source, collected, invented, whole_words

TOKENIZER = Path(__file__).parents[3] / "models" / "default" / "tokenizer.json"


@pytest.fixture
def collection(tmp_path: Path) -> Path:
    letters = "abcdefghijklmnopqrstuvwxyz"
    texts = [" ".join(f"{a}{b}word" for b in letters for _ in range(2)) for a in letters]
    rows = [json.dumps({"_id": str(number), "title": "", "text": text}) for number, text in enumerate(texts)]
    (tmp_path / "corpus.jsonl").write_text("\n".join(rows) + "\n", encoding="utf-8")
    (tmp_path / "queries.jsonl").write_text(json.dumps({"_id": "q", "text": "a"}) + "\n", encoding="utf-8")
    return tmp_path


def check(source: Source) -> None:
    requests = [source.request(5, 100) for _ in range(3)]
    texts = [text for request in requests for text in request.documents]
    assert len(set(texts)) == 15
    for request in requests:
        assert len(request.query.split()) == QUERY_WORDS
        lengths = [len(text.split()) for text in request.documents]
        assert [length for place, length in enumerate(lengths) if place != request.relevant] == [100] * 4
        where = [place for place, text in enumerate(request.documents) if f". {request.query}." in text]
        assert where == [request.relevant]
        assert request.documents[request.relevant].index(request.query) > 300  # characters: deep in it


def test_invented_texts() -> None:
    check(invented(TOKENIZER))


def test_another_seed_gives_other_texts() -> None:
    first, second = (invented(TOKENIZER, seed).request(1, 50) for seed in (1, 2))
    assert first.documents != second.documents
    assert first.query != second.query
    assert invented(TOKENIZER, 1).request(1, 50) == first


def test_words_come_by_their_frequency() -> None:
    assert whole_words(TOKENIZER)[:4] == ["the", "of", "and", "in"]


def test_texts_of_a_collection(collection: Path) -> None:
    check(collected(collection))


def test_a_collection_that_is_used_up_begins_again_elsewhere(collection: Path) -> None:
    texts = collected(collection).request(40, 100).documents  # three times its words
    assert len(set(texts)) == 40
