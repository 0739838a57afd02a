"""A bundle in the process. That it ranks as POST /rerank does, whatever the bundle, is in tests/service/test_kinds.py."""

import json
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from keyblock import Ranker
from keyblock.bundle import Bundle, BundleError
from keyblock.client import Document
from keyblock.runtime.providers import ProviderError
from tests.conftest import ROOT

FILLER = "The meeting went on for a while, and nobody said anything of interest about the weather. "
THAMES, DANUBE = "The Thames flows through London.", "The Danube flows through Vienna, Bratislava and Budapest."
QUERY = "Which river flows through Vienna?"


@pytest.fixture(scope="module")
def ranker(embedded: Bundle) -> Iterator[Ranker]:
    with Ranker.open(embedded, provider="cpu", precision="fp32", threads=2) as ranker:
        yield ranker


def test_the_sentence_that_answers_is_found_deep_in_a_long_document(ranker: Ranker) -> None:
    long = FILLER * 60 + DANUBE + " " + FILLER * 60
    ranking = ranker.rank(QUERY, [FILLER * 120, THAMES, {"id": "long", "title": "Minutes", "text": long}])
    assert [result.index for result in ranking] == [2, 1, 0]
    best = ranking[0]
    assert (best.id, best.title, best.text, best.scored_by) == ("long", "Minutes", long, "model")
    assert DANUBE in (best.blocks[0].text or "")
    assert all(block.text == long[block.start : block.end] for block in best.blocks)
    assert 0 < ranking[1].relevance_score < best.relevance_score < 1
    assert ranking.model == "keyb-hybrid-minilm-l6"
    assert (ranking.degraded, ranking.fallback) == (False, False)
    assert [result.selected_by for result in ranking] == ["evidence", None, "position"]
    assert ranking.warnings == (), "that the text about other things has no block for the query is nobody's fault"
    assert ranking.total_tokens > 100
    assert ranking.timings_ms["total"] == pytest.approx(ranking.timings_ms["prepare"] + ranking.timings_ms["model"])


CHINESE = ["多瑙河流经维也纳和布达佩斯。", "泰晤士河流经伦敦。", "会议持续了很长时间。"]


def test_chinese_is_not_ordered_by_a_model_of_english(ranker: Ranker) -> None:
    ranking = ranker.rank("哪条河流经维也纳", CHINESE)
    assert ranking[0].index == 0
    assert {result.scored_by for result in ranking} == {"selector"}
    assert any("3 of 3 documents, or the query, are in another" in warning for warning in ranking.warnings)
    english = ranker.rank(QUERY, [THAMES, DANUBE])
    assert [result.scored_by for result in english] == ["model", "model"]
    assert not any("script" in warning for warning in english.warnings)


MINUTES = (
    "The committee discussed the maintenance of pumps and valves in the northern plant. Operators reported that pressure varied "
    "during the night shift. Several technicians recommended that seals be replaced every spring. "
)


@pytest.mark.parametrize("query", ["zzqxv wkjhg", "什么是泵的压力", "???"])
def test_a_query_that_says_nothing_to_a_document_has_no_evidence_there(ranker: Ranker, query: str) -> None:
    """Nonsense, another script, and no word at all: vectors of such queries are near some blocks and far from others, too."""
    ranking = ranker.rank(query, [MINUTES * 20])
    assert [result.selected_by for result in ranking] == ["position"]
    assert any(warning.startswith("query: nothing in the documents stands out for it") for warning in ranking.warnings)


@pytest.mark.parametrize(
    ("query", "needle"),
    [
        ("How do I fix error E4711 of the pump in the northern plant?", "The display shows E4711 then."),
        ("What did Wojciechowska say about maintenance and seals replaced every spring?", "Wojciechowska left before lunch."),
    ],
)
def test_a_code_or_a_name_is_read_however_deep_it_stands(ranker: Ranker, query: str, needle: str) -> None:
    """Among blocks that are all about what the query is about."""
    (result,) = ranker.rank(query, [MINUTES * 30 + needle + " " + MINUTES * 30])
    assert needle in (result.blocks[0].text or "")
    assert result.selected_by == "evidence"


def test_the_first_of_equal_blocks_are_read(ranker: Ranker) -> None:
    """Each block is one long sentence."""
    long = "Operators of the old pumps, who were asked by the committee, reported that the pressure of the water in the northern "
    long += "plant varied much more during the long night shifts of the winter than it did on summer days. "
    for times in (8, 23, 38):
        (result,) = ranker.rank("pump pressure at night", [long * times])
        assert (result.blocks[0].start, result.selected_by) == (0, "position"), times


def test_a_document_is_a_text_a_mapping_or_an_object(ranker: Ranker) -> None:
    plain = SimpleNamespace(text=DANUBE, title="Danube", id=7)
    given = [DANUBE, {"text": DANUBE, "title": "Danube", "id": "a", "url": "x"}, Document(text=DANUBE, title="Danube"), plain]
    found = {result.index: result for result in ranker.rank(QUERY, (one for one in given))}
    assert [(found[n].id, found[n].title, found[n].text) for n in range(4)] == [
        (None, None, DANUBE),
        ("a", "Danube", DANUBE),
        (None, "Danube", DANUBE),
        (7, "Danube", DANUBE),
    ]
    assert found[1].relevance_score == found[2].relevance_score == found[3].relevance_score != found[0].relevance_score
    for alone in (DANUBE, {"text": DANUBE}, SimpleNamespace(text=DANUBE)):
        assert [result.index for result in ranker.rank(QUERY, alone)] == [0]


def test_options(ranker: Ranker) -> None:
    documents = [THAMES, "", DANUBE]
    ranking = ranker.rank(QUERY, documents, top_n=2, return_blocks=False, max_tokens_per_doc=9999)
    assert [(result.index, result.blocks) for result in ranking] == [(2, ()), (0, ())]
    assert ranking.warnings == (
        "max_tokens_per_doc: lowered to 128, the most this model was measured at",
        "documents without text to score, ranked last: 1",
    )
    raw = ranker.rank(QUERY, documents, raw_scores=True)
    assert [result.index for result in raw] == [2, 0, 1]
    assert raw[0].relevance_score < 0  # a logit
    assert (raw[2].scored_by, raw[2].blocks) == ("order", ())
    assert len(ranker.rank(QUERY, [])) == 0
    assert len(ranker.rank(QUERY, documents, top_n=np.int64(1))) == 1  # type: ignore[arg-type]
    told = ranker.rank(QUERY, documents, instruction="Find rivers.")
    assert (told.results, told.warnings[0]) == (ranker.rank(QUERY, documents).results, "instruction: this model reads none")


def test_a_budget_bounds_what_the_model_reads(ranker: Ranker) -> None:
    tokens = [
        ranker.rank(QUERY, FILLER * 50, max_tokens_per_doc=budget, second_look=False).total_tokens for budget in (96, 112, 128)
    ]
    assert tokens == [96, 112, 128]


def test_the_model_reads_on_unless_it_shall_not(ranker: Ranker) -> None:
    """One sequence of 128 tokens, and four of a block of three of these sentences each."""
    no: Any = np.bool_(False)
    looked, not_looked = (ranker.rank(QUERY, FILLER * 50, second_look=look) for look in (None, no))
    assert (len(looked[0].blocks), len(not_looked[0].blocks)) == (7, 3)
    assert looked.total_tokens > not_looked.total_tokens + 4 * 50


def test_any_text_is_ranked_with_offsets_of_what_was_given(ranker: Ranker) -> None:
    text = "\ud800 😀 \x00 e\u0301 東京 " + DANUBE
    (result,) = ranker.rank("\udfff Vienna", text)
    assert result.text == text
    assert all(block.text == text[block.start : block.end] for block in result.blocks)
    assert "Vienna" in "".join(block.text or "" for block in result.blocks)


@pytest.mark.parametrize(
    ("documents", "message"),
    [
        ([THAMES, 5], r"documents\[1\] must be a string, a mapping or an object with a text, not 5"),
        ([{"id": "a"}], r"documents\[0\] must have a text that is a string, not None"),
        ([{"text": b"x"}], r"documents\[0\] must have a text that is a string, not b'x'"),
        ([{"text": "x", "title": 3}], r"documents\[0\] must have a title that is a string, or none, not 3"),
        ([{"text": "x", "id": True}], r"documents\[0\] must have an id that is a string or an integer, or none, not True"),
        (5, "documents must be a list of texts, mappings or objects with a text, not 5"),
    ],
)
def test_what_is_no_document_is_named(ranker: Ranker, documents: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        ranker.rank(QUERY, documents)


def test_what_cannot_be_opened_is_named(embedded: Bundle) -> None:
    with pytest.raises(BundleError, match="does not exist"):
        Ranker.open("nowhere")
    with pytest.raises(ProviderError, match="unknown provider 'gpu'"):
        Ranker.open(embedded, provider="gpu")


def test_a_closed_ranker_says_so(embedded: Bundle) -> None:
    with Ranker.open(embedded, provider="cpu", precision="fp32") as ranker:
        assert len(ranker.rank(QUERY, [THAMES])) == 1
    with pytest.raises(ValueError, match="the ranker is closed"):
        ranker.rank(QUERY, [THAMES])


def test_threads_share_a_ranker(ranker: Ranker) -> None:
    documents = [THAMES, DANUBE, FILLER * 9]
    queries = [QUERY, "Which river flows through London?"]
    alone = [ranker.rank(query, documents).results for query in queries]
    assert [results[0].index for results in alone] == [1, 0]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda query: ranker.rank(query, documents).results, queries * 4))
    assert together == alone * 4


def test_nothing_is_imported_before_it_is_used() -> None:
    """Neither ONNX Runtime by the name, nor the service, nor what sends HTTP."""
    code = """import json, sys
import keyblock
def have(*names): return [name for name in names if name in sys.modules]
before = have("numpy", "tokenizers", "keyblock.ranker")
from keyblock import Ranker
print(json.dumps([before, have("onnxruntime", "keyblock.ranker", "httpx", "fastapi", "service", "torch")]))
try:
    keyblock.nobody
except AttributeError as error:
    print(error)"""
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    imported, unknown = shown.stdout.splitlines()
    assert json.loads(imported) == [[], ["keyblock.ranker"]]
    assert unknown == "module 'keyblock' has no attribute 'nobody'"


def test_without_onnx_runtime_a_line_says_what_to_install() -> None:
    code = f"""import sys
sys.modules["onnxruntime"] = None
from keyblock import Ranker
try:
    Ranker.open({str(ROOT / "models/default")!r})
except ImportError as error:
    print(error)"""
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.startswith("install what runs a bundle: pip install 'keyblock[cpu]', or gpu (")


REQUEST = json.loads((ROOT / "examples/request.json").read_text(encoding="utf-8"))


def test_the_span_that_answers_the_readmes_request(ranker: Ranker) -> None:
    """Of three long documents one answers, in one sentence; it is what is passed on."""
    found = ranker.rank(REQUEST["query"], REQUEST["documents"], relevant_spans=True, max_spans=1, prune=True)
    best = found[0]
    assert best.id == "lease"
    (span,) = best.relevant_spans
    assert "two months' notice" in (span.text or "")
    assert best.text is not None
    assert best.text[span.start : span.end] == span.text
    assert 0 < span.score <= 1
    assert best.context is not None
    assert "two months' notice" in best.context.text
    assert found.context is not None
    assert found.context.tokens == sum(one.context.tokens for one in found if one.context is not None)


@pytest.mark.parametrize("precision", ["bf16", "int8-static"])
def test_coarser_arithmetic_gives_the_readmes_answer(ranker: Ranker, embedded: Bundle, precision: str) -> None:
    """The same order, the same sentence, and scores that a person would call the same."""
    try:
        coarse = Ranker.open(embedded, provider="openvino", precision=precision, threads=2)
    except ProviderError as error:
        pytest.skip(str(error))
    asked = {"relevant_spans": True, "max_spans": 1}
    expected, found = (one.rank(REQUEST["query"], REQUEST["documents"], **asked) for one in (ranker, coarse))
    assert [one.index for one in found] == [one.index for one in expected] == [2, 0, 1]
    assert [span.text for span in found[0].relevant_spans] == [span.text for span in expected[0].relevant_spans]
    for one, other in zip(found, expected, strict=True):
        assert one.relevance_score == pytest.approx(other.relevance_score, abs=0.1)


@pytest.mark.parametrize(
    ("options", "kind", "problem"),
    [
        ({"query": " \n"}, ValueError, "query is empty"),
        ({"query": None}, TypeError, "query must be a string, not None"),
        ({"top_n": -1}, ValueError, "top_n must be at least 0, not -1"),
        *(({"top_n": wrong}, TypeError, f"top_n must be a .*, not {wrong!r}") for wrong in ("3", 2.5, True)),
        ({"instruction": 5}, TypeError, "instruction must be a .*, not 5"),
        ({"max_tokens_per_doc": "9"}, TypeError, "max_tokens_per_doc must be a .*, not '9'"),
        ({"max_tokens_per_doc": float("nan")}, ValueError, "max_tokens_per_doc must be a .*, not nan"),
        ({"min_score": 2}, ValueError, "min_score must be from 0 to 1, or auto, not 2"),
        ({"min_score": "best"}, ValueError, "min_score must be from 0 to 1, or auto, not 'best'"),
        ({"diversity": 1.5}, ValueError, "diversity must be from 0 to 1, not 1.5"),
        ({"span_threshold": -1}, ValueError, "span_threshold must be from 0 to 1, not -1"),
        ({"span_threshold": [0.5]}, ValueError, r"span_threshold must be from 0 to 1, not \[0.5\]"),
        ({"max_spans": 0}, ValueError, "max_spans must be a whole number from 1, or none, not 0"),
        ({"max_context_tokens": 1.5}, ValueError, "max_context_tokens must be a whole number from 1, or none, not 1.5"),
        ({"relevant_spans": {"mode": "disabled"}}, TypeError, "relevant_spans must be True or False, not {'mode': 'disabled'};"),
        ({"prune": "no"}, TypeError, "prune must be True or False, not 'no';"),
        ({"min_scor": 1}, TypeError, r"rank\(\) has no option 'min_scor'"),
    ],
)
def test_a_wrong_argument_is_named(ranker: Ranker, options: Any, kind: type[Exception], problem: str) -> None:
    with pytest.raises(kind, match=problem):
        ranker.rank(**{"query": QUERY, "documents": ["text"], **options})


def test_bounds_left_open_and_of_numpy_are_taken(ranker: Ranker) -> None:
    usual = ranker.rank(REQUEST["query"], REQUEST["documents"], relevant_spans=True)
    options: Any = {"span_threshold": None, "max_spans": np.int64(1), "min_score": np.float32(0)}
    found = ranker.rank(REQUEST["query"], REQUEST["documents"], relevant_spans=True, **options)
    assert [one.relevant_spans for one in found] == [one.relevant_spans[:1] for one in usual]
