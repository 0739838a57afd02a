"""A running service for the clients to speak to."""

import os
from collections.abc import Iterator

import pytest
from contract import ENTRY
from running import Service

os.environ |= {
    "HAYSTACK_TELEMETRY_ENABLED": "False",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "HF_HUB_OFFLINE": "1",
}  # nothing goes out


@pytest.fixture(scope="session")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    service = Service(tmp_path_factory.mktemp("service") / "log")
    yield service
    service.stop()


@pytest.fixture(scope="session")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """One that asks for the key of `contract`."""
    service = Service(tmp_path_factory.mktemp("guarded") / "log", API_KEYS=ENTRY)
    yield service
    service.stop()


@pytest.fixture(params=["", "/v1"], ids=["bare", "v1"])
def base(service: Service, request: pytest.FixtureRequest) -> str:
    """The service's address as people give it to clients."""
    return service.url + str(request.param)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A module with a Contract runs it for each of its LIBRARIES."""
    if "library" in metafunc.fixturenames:
        libraries = metafunc.module.LIBRARIES
        metafunc.parametrize("library", libraries.values(), ids=list(libraries))
