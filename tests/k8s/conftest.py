import json
import shutil
from pathlib import Path

import pytest

from tests.k8s.manifests import JOBS, K8S, MISSING, Manifest, build, kubectl, variants, write_variant
from tests.support.once import once
from tests.support.programs import missing


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Manifest]]:
    """What kustomize makes of every overlay, every overlay with components, and the jobs."""
    if kubectl() is None:
        missing(MISSING)

    def write(work: Path) -> None:
        tree = shutil.copytree(K8S, work / "k8s")
        made = {directory.name: build(directory) for directory in (write_variant(tree, *variant) for variant in variants())}
        made |= {job: build(K8S / job) for job in JOBS}
        (work / "built.json").write_text(json.dumps(made), encoding="utf-8")

    text = (once(tmp_path_factory, "kustomize", write) / "built.json").read_text(encoding="utf-8")
    found: dict[str, list[Manifest]] = json.loads(text)
    return found


@pytest.fixture(scope="session")
def cpu(built: dict[str, list[Manifest]]) -> list[Manifest]:
    return built["cpu"]


@pytest.fixture(scope="session")
def schemas() -> Path:
    return Path(__file__).with_name("schemas")
