"""Records what the embedded bundle answers, in process and over HTTP, and compares it with an earlier record.

    python -m tests.support.recorded record FILE
    python -m tests.support.recorded compare FILE

The requests are those of examples/ and of the client tests, with every option, and by id.
"""

import json
import math
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests" / "clients"))
TOLERANCE = 1e-6
TIMES = ("id", "created", "timings_ms")  # fields that differ from answer to answer
OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "blocks": {"return_blocks": True, "return_documents": True},
    "top": {"top_n": 1, "return_blocks": True},
    "logits": {"raw_scores": True, "return_blocks": True},
    "spans": {"relevant_spans": {"mode": "enabled", "threshold": 0.05, "max_spans": 3}, "return_blocks": True},
    "prune": {"prune": True, "max_context_tokens": 120},
    "everything": {"prune": True, "relevant_spans": {"mode": "enabled"}, "min_score": 0.2, "top_n": 2},
    "auto": {"min_score": "auto", "return_blocks": True},
    "small": {"max_tokens_per_doc": 64, "return_blocks": True},
    "large": {"max_tokens_per_doc": 4096, "return_blocks": True},
    "tiny": {"max_tokens_per_doc": 1},
    "unused": {"max_context_tokens": 10, "instruction": "Rank.", "model": "other"},
    "later": {"deadline_ms": 60000, "return_blocks": True, "priority": 1},
}
FULLY = ("request", "clients", "spans")  # with every option
BRIEFLY = ("blocks", "logits", "everything", "auto")
FUSED = ("mapfuse", "reciprocal_rank", {"name": "linear", "weight": 0.3})
IN_PROCESS = (
    "top_n",
    "max_tokens_per_doc",
    "return_blocks",
    "raw_scores",
    "instruction",
    "min_score",
    "prune",
    "max_context_tokens",
)


def questions() -> Iterator[tuple[str, str, list[Any]]]:
    """Name, query and documents of each request."""
    from asked import QUESTION, TEXTS
    from question import DOCUMENTS, QUERY

    for name in ("request", "multilingual"):
        example = json.loads((ROOT / "examples" / f"{name}.json").read_text(encoding="utf-8"))
        yield name, example["query"], example["documents"]
    yield "clients", QUERY, DOCUMENTS
    yield "spans", QUESTION, TEXTS
    yield "odd", QUERY, ["", "x", "\U0001f600 " * 30, *DOCUMENTS, "Ein Mieter kündigt zum Monatsende. " * 40]
    yield "strange query", "…", DOCUMENTS
    yield "long query", QUERY * 40, DOCUMENTS
    lines = (ROOT / "tests" / "data" / "paraphrases.jsonl").read_text(encoding="utf-8").splitlines()
    pairs = [json.loads(line) for line in lines]
    texts = [" ".join([pairs[n - 1]["lure"], one["passage"], one["lure"]] * 8) for n, one in enumerate(pairs)]
    yield "many", pairs[7]["question"], texts[:40]


def bodies() -> Iterator[tuple[str, dict[str, Any]]]:
    """Name and body of each request over HTTP."""
    for name, query, documents in questions():
        for option in OPTIONS if name in FULLY else BRIEFLY:
            fields = OPTIONS[option]
            yield f"{name}, {option}", {"query": query, "documents": documents, **fields}
        scores = [1.0 / (1 + number) for number in range(len(documents))]
        for fusion in FUSED if name in FULLY else FUSED[:1]:
            yield f"{name}, {fusion}", {"query": query, "documents": documents, "first_stage_scores": scores, "fusion": fusion}
        yield f"{name}, scores alone", {"query": query, "documents": documents, "first_stage_scores": scores}
        texts = [one if isinstance(one, str) else one["text"] for one in documents]
        yield f"{name}, texts", {"query": query, "texts": texts, "raw_scores": name == "clients"}
        ids: list[Any] = [{"id": f"{name}-{number}"} for number in range(len(documents))]
        for option in ("blocks", "spans", "prune"):
            yield f"{name}, {option} by id", {"query": query, "documents": [*ids, {"id": "nowhere"}], **OPTIONS[option]}
        yield f"{name}, mixed", {"query": query, "documents": [*ids[:2], *documents[2:], ids[0]], "return_blocks": True}


def over_http() -> Iterator[tuple[str, Any]]:
    """The answers of an application in this process, one request after the other."""
    from starlette.testclient import TestClient

    from service.app import create_app
    from service.settings import Settings

    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(bundle=(ROOT / "models" / "default",), provider="cpu", store=folder, score_cache_bytes=0, threads=1)
        with TestClient(create_app(settings)) as client:
            while client.get("/health/ready").status_code != 200:
                pass
            for name, _, documents in questions():
                for number, one in enumerate(documents):
                    fields = {"text": one} if isinstance(one, str) else {key: one[key] for key in ("title", "text") if key in one}
                    line = json.dumps({"id": f"{name}-{number}", **fields})
                    assert client.put("/documents", content=line).json()["stored"] == 1
            for name, body in bodies():
                answer = client.post("/rerank", json=body)
                yield f"http: {name}", {"status": answer.status_code, "body": answer.json()}


def in_process() -> Iterator[tuple[str, Any]]:
    """The answers of a Ranker."""
    from dataclasses import asdict

    from keyblock import Ranker

    with Ranker.open(ROOT / "models" / "default", provider="cpu", threads=1) as ranker:
        for name, body in bodies():
            if "texts" in body or "by id" in name or "mixed" in name:
                continue
            options = {field: body[field] for field in IN_PROCESS if field in body}
            spans = body.get("relevant_spans", {})
            options |= {
                "relevant_spans": bool(spans),
                "span_threshold": spans.get("threshold"),
                "max_spans": spans.get("max_spans"),
            }
            options |= {field: body[field] for field in ("first_stage_scores", "fusion") if field in body}
            found = asdict(ranker.rank(body["query"], body["documents"], **options))
            found["warnings"] = sorted(found["warnings"])
            yield f"ranker: {name}", found


def answers() -> dict[str, Any]:
    """All answers, by the name of their request, without what differs from answer to answer."""
    return {name: json.loads(json.dumps(_lasting(answer))) for source in (in_process, over_http) for name, answer in source()}


def _lasting(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _lasting(one) for key, one in value.items() if key not in TIMES or (key == "id" and not _is_request(one))}
    return [_lasting(one) for one in value] if isinstance(value, list | tuple) else value


def _is_request(identity: Any) -> bool:
    return isinstance(identity, str) and identity.startswith("rerank-")


def differences(before: Any, after: Any, place: str = "") -> Iterator[str]:
    """Where two answers differ, numbers by more than TOLERANCE."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key in before.keys() | after.keys():
            if key in before and key in after:
                yield from differences(before[key], after[key], f"{place}.{key}")
            else:
                yield f"{place}.{key}: only {'before' if key in before else 'after'}"
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for number, pair in enumerate(zip(before, after, strict=True)):
            yield from differences(*pair, f"{place}[{number}]")
    elif isinstance(before, float) and isinstance(after, float | int):
        if not math.isclose(before, after, rel_tol=TOLERANCE, abs_tol=TOLERANCE):
            yield f"{place}: {before} is now {after}"
    elif before != after:
        yield f"{place}: {before!r} is now {after!r}"


def main(command: str, file: str) -> int:
    """Record or compare; returns how many requests are answered differently, 255 at most."""
    found = answers()
    if command == "record":
        Path(file).write_text(json.dumps(found), encoding="utf-8")
        print(f"{len(found)} answers")
        return 0
    before = json.loads(Path(file).read_text(encoding="utf-8"))
    differing = {name: list(differences(before.get(name), answer)) for name, answer in found.items()}
    for name, places in differing.items():
        if places:
            print(name, *places[:6], sep="\n    ")
    count = sum(map(bool, differing.values())) + len(before.keys() - found.keys())
    print(f"{len(found)} answers, {count} differ")
    return min(count, 255)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
