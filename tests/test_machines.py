"""The Compose file and the systemd unit: what they set is what the service reads, and they give it no needless right."""

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from keyblock import __version__
from service.settings import Settings
from tests.support.programs import need

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
UNIT = EXAMPLES / "keyblock.service"
CLOSING = 10  # seconds to close the store


def unit() -> dict[str, str]:
    return dict(re.findall(r"^(\w+)=(.*)$", UNIT.read_text(encoding="utf-8"), re.MULTILINE))


def compose() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((EXAMPLES / "compose.yaml").read_text(encoding="utf-8"))["services"]["keyblock"]
    return found


def read(variables: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Settings:
    for name, value in variables.items():
        assert name.removeprefix("KEYBLOCK_").lower() in Settings.model_fields
        monkeypatch.setenv(name, value)
    return Settings()


def fits_two_gib(settings: Settings) -> bool:
    """Whether bodies and what they become, which is as much again, fit beside the cache and the model."""
    return settings.max_bytes_in_flight + settings.cache_bytes <= 2**30


def test_the_unit(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = read(dict(pair.split("=", 1) for pair in unit()["Environment"].split()), monkeypatch)
    assert Path(settings.store).is_relative_to(Path("/var/lib", unit()["StateDirectory"]))
    assert int(unit()["TimeoutStopSec"]) >= settings.shutdown_seconds + CLOSING
    assert fits_two_gib(settings)
    assert unit()["MemoryMax"] == "2G"


def test_systemd_finds_no_fault_and_no_right_too_many() -> None:
    analyze = need("systemd-analyze", "systemd")
    verified = subprocess.run([analyze, "verify", UNIT], capture_output=True, text=True, check=False)
    unknown = [line for line in verified.stderr.splitlines() if UNIT.name in line and "is not executable" not in line]
    assert unknown == []
    rights = [analyze, "security", "--offline=true", "--no-pager", "--threshold=20", UNIT]  # a score of at most 2 of 10
    assert subprocess.run(rights, capture_output=True, check=False).returncode == 0


def test_compose(monkeypatch: pytest.MonkeyPatch) -> None:
    service = compose()
    settings = read(service["environment"], monkeypatch)
    assert service["image"] == f"keyblock:{__version__}-cpu"
    assert service["volumes"] == [f"store:{settings.store}"]
    assert int(service["stop_grace_period"].removesuffix("s")) >= settings.shutdown_seconds + CLOSING
    assert fits_two_gib(settings)
    assert (service["read_only"], service["cap_drop"], service["mem_limit"]) == (True, ["ALL"], "2g")
    assert all(port.startswith("127.0.0.1:") for port in service["ports"])
