import shutil
from pathlib import Path

import pytest

from tests.k8s.manifests import JOBS, K8S, MISSING, Manifest, build, kubectl, variants, write_variant
from tests.support.programs import missing


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Manifest]]:
    """What kustomize makes of every overlay, every overlay with components, and the jobs."""
    if kubectl() is None:
        missing(MISSING)
    tree = shutil.copytree(K8S, tmp_path_factory.mktemp("kustomize") / "k8s")
    made = {directory.name: build(directory) for directory in (write_variant(tree, *variant) for variant in variants())}
    return made | {job: build(K8S / job) for job in JOBS}


@pytest.fixture(scope="session")
def cpu(built: dict[str, list[Manifest]]) -> list[Manifest]:
    return built["cpu"]


@pytest.fixture(scope="session")
def schemas() -> Path:
    return Path(__file__).with_name("schemas")
