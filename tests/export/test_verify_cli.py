import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from export.verify_cli import main
from tests.support.serving import Service


def test_a_running_service_is_proven_and_asked_for_the_precision_that_was_the_reason(
    imported: Callable[[str], Path],
    checkpoint: Callable[[str], Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with Service(1, tmp_path / "log", bundle=imported("bert"), provider="cpu", precision="fp32") as service:
        given = [str(imported("bert")), "--url", service.url, "--model", str(checkpoint("bert")), "--pairs", "24"]
        assert main(given) == 0
        found = json.loads(capsys.readouterr().out)
        monkeypatch.setattr("export.certificate.ALLOWED", -1.0)  # no difference at all
        assert main(given) == 2
    assert found["pairs"] == 24
    assert found["max"] <= 1e-3
    said = capsys.readouterr().err
    assert re.search(r"\(-\S+ is allowed where logits span \S+\): it computes in fp32, so it serves another model\n", said), said


def test_no_service_is_one_line(
    imported: Callable[[str], Path], checkpoint: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    given = [str(imported("bert")), "--url", "http://127.0.0.1:9", "--model", str(checkpoint("bert")), "--pairs", "4"]
    assert main(given) == 2
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 1
    assert said[0].startswith("keyblock-verify: ")


def test_no_bundle_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path), "--url", "http://127.0.0.1:9", "--model", "any"]) == 2
    assert "bundle.json: is missing" in capsys.readouterr().err


def test_one_pair_proves_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([str(tmp_path), "--url", "http://127.0.0.1:9", "--model", "any", "--pairs", "1"])
    assert "1 pair proves nothing: 2 or more" in capsys.readouterr().err
