"""examples/use-with: what each system sends, by its own source, with the address of its file; and the fields that it reads."""

import asyncio
import importlib.util
import json
import re
from collections.abc import Callable
from typing import Any

import httpx
import pytest
import yaml
from question import DOCUMENTS, ORDER, QUERY, check
from running import ROOT, Service

FOLDER = ROOT / "examples" / "use-with"
SERVED_AT = "http://keyblock:8000"
TEXTS = {path.name: path.read_text(encoding="utf-8") for path in sorted(FOLDER.iterdir()) if path.is_file()}
Asked = tuple[str, dict[str, Any]]


def bodies(name: str) -> list[dict[str, Any]]:
    """The JSON of an .http file, in order."""
    text = "\n".join(line for line in TEXTS[name].splitlines() if not line.startswith("#"))
    return [json.loads(part) for part in re.split(r"^(?:PUT|POST) \S+$", text, flags=re.MULTILINE)[1:]]


def fill(template: str, **values: str) -> dict[str, Any]:
    for name, value in values.items():
        template = template.replace(f"${{{name}}}", value)
    return json.loads(template)


def elasticsearch() -> Asked:
    settings = bodies("elasticsearch.http")[0]["service_settings"]
    return settings["url"], fill(settings["request"], query=json.dumps(QUERY), input=json.dumps(DOCUMENTS))


def opensearch() -> Asked:
    action = bodies("opensearch.http")[1]["actions"][0]
    documents = json.dumps(DOCUMENTS)
    return action["url"], fill(action["request_body"], **{"parameters.query": QUERY, "parameters.documents": documents})


def milvus() -> Asked:
    return named("milvus.py", r'"endpoint": "(.+?)"') + "/rerank", {"query": QUERY, "documents": DOCUMENTS}


def weaviate() -> Asked:
    model = named("weaviate_rerank.py", r'model="(.+?)"')
    asked = {"documents": DOCUMENTS, "query": QUERY, "model": model, "return_documents": False}
    return named("weaviate_rerank.py", r'base_url="(.+?)"') + "/v2/rerank", asked


def dify() -> Asked:
    form = yaml.safe_load(TEXTS["dify.yaml"])
    return form["API endpoint URL"] + "/rerank", top(form["Model Name"])


def open_webui() -> Asked:
    return named("open-webui.env", r"RERANKER_URL=(\S+)"), top(named("open-webui.env", r"RERANKING_MODEL=(\S+)"))


def librechat() -> Asked:
    return named("librechat.yaml", r"JINA_API_URL=(\S+)"), top("jina-reranker-v2-base-multilingual") | {"return_documents": True}


def n8n() -> Asked:
    parameters = json.loads(TEXTS["n8n.json"])["nodes"][0]["parameters"]
    expression = re.fullmatch(r"=\{\{ JSON\.stringify\((.+)\) \}\}", parameters["jsonBody"])
    assert expression is not None
    keyed = re.sub(r"(\w+): ", r'"\1": ', expression[1])
    return parameters["url"], json.loads(
        keyed.replace("$json.query", json.dumps(QUERY)).replace("$json.documents", json.dumps(DOCUMENTS))
    )


def named(name: str, pattern: str) -> str:
    found = re.search(pattern, TEXTS[name])
    assert found is not None
    return found[1]


def top(model: str) -> dict[str, Any]:
    return {"model": model, "query": QUERY, "documents": DOCUMENTS, "top_n": len(DOCUMENTS)}


@pytest.mark.parametrize("system", [elasticsearch, opensearch, milvus, weaviate, dify, open_webui, librechat, n8n])
def test_what_it_sends_is_answered_as_it_reads_it(service: Service, system: Callable[[], Asked]) -> None:
    """All of them read `results[].index` and `results[].relevance_score`."""
    url, body = system()
    assert url.startswith(SERVED_AT)
    answer = httpx.post(url.replace(SERVED_AT, service.url), json=body, headers={"Authorization": "Bearer any"})
    check([(result["index"], result["relevance_score"]) for result in answer.raise_for_status().json()["results"]])


def test_litellms_list_of_models(service: Service) -> None:
    import litellm

    models = yaml.safe_load(TEXTS["litellm.yaml"].replace(SERVED_AT, service.url))["model_list"]
    answer = asyncio.run(litellm.Router(models).arerank("keyblock", query=QUERY, documents=DOCUMENTS))
    check([(result["index"], result["relevance_score"]) for result in answer.results])


def test_qdrant_in_memory(service: Service) -> None:
    from qdrant_client import QdrantClient
    from qdrant_client.models import Distance, PointStruct, VectorParams

    from keyblock.client import Client

    stored = QdrantClient(":memory:")
    stored.create_collection("texts", VectorParams(size=2, distance=Distance.COSINE))
    vectors = [[1.0, 0.0], [0.9, 0.1], [0.0, 1.0]]  # the vectors put the document that answers last
    stored.upsert("texts", [PointStruct(id=n, vector=vectors[n], payload={"text": text}) for n, text in enumerate(DOCUMENTS)])
    spec = importlib.util.spec_from_file_location("use_with_qdrant", FOLDER / "qdrant.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with Client(service.url) as client:
        found = module.search(stored, client, QUERY, [1.0, 0.0])
    assert [point.id for point, _ in found] == ORDER
    check([(point.id, score) for point, score in found])


@pytest.mark.parametrize("name", TEXTS)
def test_its_file_is_well_formed(name: str) -> None:
    read: dict[str, Callable[[str], object]] = {".json": json.loads, ".yaml": yaml.safe_load, ".http": lambda _: bodies(name)}
    compiled = read.get((FOLDER / name).suffix, lambda text: compile(text, name, "exec") if name.endswith(".py") else text)
    assert compiled(TEXTS[name])
