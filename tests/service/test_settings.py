import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import ValidationError

from keyblock import __version__
from keyblock.runtime.providers import Provider
from service.options import flag, parse, parser, unknown_variables, variable
from service.settings import Settings
from tests.service.faults import PATIENCE


def read_settings(arguments: list[str]) -> Settings:
    return Settings(**parse(arguments))


@pytest.mark.parametrize("name", list(Settings.model_fields))
def test_every_setting_is_an_environment_variable_and_a_flag(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    values = {"bundle": "/b", "host": "::1", "provider": "cpu", "precision": "fp32", "log_level": "error"}
    values |= {"store_key": "k" * 32, "otlp_endpoint": "http://c:4318", "log_format": "json", "cors_origins": "https://a.example"}
    values |= {"upstream": "http://u/rerank", "upstream_kind": "tei", "upstream_scores": "logit", "upstream_retries": "1"}
    values |= dict.fromkeys(["upstream_passages", "upstream_concurrency"], "7")
    values |= {"allowed_hosts": "search.internal,pc.example"}
    default = Settings.model_fields[name].default
    value = str(not default).lower() if isinstance(default, bool) else values.get(name, "600")
    flag = f"--{'no-' if value == 'false' else ''}{name.replace('_', '-')}"
    from_flag = getattr(read_settings([flag] if value in ("true", "false") else [f"{flag}={value}"]), name)
    monkeypatch.setenv(f"KEYBLOCK_{name.upper()}", value)
    assert getattr(Settings(), name) == from_flag
    assert from_flag != default


def test_defaults_are_those_of_the_documentation() -> None:
    settings = Settings()
    assert (settings.max_documents, settings.max_document_chars, settings.max_body_bytes) == (2048, 4_000_000, 64 << 20)
    assert (settings.host, settings.port, settings.provider) == ("127.0.0.1", 8000, Provider.AUTO)
    assert settings.bundle[0].parts[-2:] == ("models", "default")


def test_flags_win_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEYBLOCK_PORT", "1234")
    assert read_settings([]).port == 1234
    assert read_settings(["--port", "4321", "--bundle", "x/y"]).port == 4321


NO_ORIGINS = "a.example", "https://a.example/", "https://a.example,*", "https://*.example", "null"  # no browser sends such a one
BAD = [("port", "70000"), ("provider", "tpu"), ("log_level", "loud"), ("max_documents", "0"), ("store_ttl_seconds", f"{10**17}")]


@pytest.mark.parametrize(("name", "value"), [*BAD, *(("cors_origins", origins) for origins in NO_ORIGINS)])
def test_bad_values_are_refused(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"KEYBLOCK_{name.upper()}", value)
    with pytest.raises(ValidationError, match=name):
        Settings()


@pytest.mark.parametrize("origins", ["", "*", "https://a.example", "https://a.example, http://localhost:3000"])
def test_origins(origins: str) -> None:
    assert Settings(cors_origins=origins).cors_origins == origins


def test_a_bundle_beside_the_embedded_one_has_a_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    named = read_settings(["--bundle", "keyb-bm25"]).bundle[0]
    assert (named.parts[-2:], named.is_dir()) == (("models", "keyb-bm25"), True)
    (tmp_path / "keyb-bm25").mkdir()
    assert read_settings(["--bundle", "keyb-bm25"]).bundle == (Path("keyb-bm25"),), "a directory of that name goes before"
    assert read_settings(["--bundle", "unknown"]).bundle == (Path("unknown"),)


def test_several_bundles(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    several = (Path("a"), Path("b/c"))
    assert read_settings(["--bundle", "a", "--bundle", "b/c"]).bundle == several
    assert read_settings(["--bundle", os.pathsep.join(map(str, several))]).bundle == several
    monkeypatch.setenv("KEYBLOCK_BUNDLE", os.pathsep.join(map(str, several)))
    assert Settings().bundle == several
    odd = tmp_path / f"one,of{os.pathsep}mine"
    odd.mkdir()
    monkeypatch.setenv("KEYBLOCK_BUNDLE", str(odd))
    assert Settings().bundle == (odd,), "what is there is one path, whatever it is called"
    assert Settings(bundle=odd).bundle == (odd,)
    with pytest.raises(ValidationError, match="bundle"):
        Settings(bundle=())


HEAVY = ("onnxruntime", "fastapi", "starlette", "uvicorn", "numpy", "tokenizers")


def entries() -> dict[str, str]:
    """The help of each flag, by the flag's name."""
    parts = re.split(r"\n  (?=--)", parser().format_help())
    return {part.split(maxsplit=1)[0].rstrip(","): " ".join(part.split()) for part in parts[1:]}


def test_help_is_in_plain_words() -> None:
    shown = entries()
    assert all(f"[{variable(name)}" in shown[flag(name)] for name in Settings.model_fields)
    assert shown["--port"] == "--port NUMBER port to listen on; 0 takes a free one [KEYBLOCK_PORT; default 8000]"
    assert shown["--provider"].startswith("--provider {cuda,tensorrt,openvino,cpu,auto} ")
    assert shown["--bundle"].endswith("[KEYBLOCK_BUNDLE; default the embedded model]")
    assert shown["--playground"].endswith("[KEYBLOCK_PLAYGROUND; on by default]")
    assert not re.search(r"tuple|Optional|Secret|Path\b|\bint\b|\bstr\b|None|Annotated", parser().format_help())


def test_help_loads_neither_the_runtime_nor_the_web_framework() -> None:
    code = f"import sys; from service.cli import main\ntry: main(['--help'])\nfinally: print(*{{*sys.modules}} & {{*{HEAVY}}})"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE, check=True)
    assert "--bundle PATH" in shown.stdout
    assert shown.stdout.splitlines()[-1] == ""


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        parse(["--version"])
    assert capsys.readouterr().out == f"keyblock-serve {__version__}\n"


def test_an_unknown_flag_is_reported_in_two_lines(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        parse(["--prot", "1"])
    usage, error = capsys.readouterr().err.splitlines()
    assert "keyblock-serve --help lists the options" in usage
    assert error == "keyblock-serve: error: unrecognized arguments: --prot 1"


def test_variables_of_the_other_commands_are_known() -> None:
    root = Path(__file__).parents[2]
    code = [file.read_text() for package in ("service/command", "training", "export") for file in (root / package).rglob("*.py")]
    names = {name for text in code for name in re.findall(r'"(KEYBLOCK_[A-Z_]+)"', text)}
    assert {"KEYBLOCK_API_KEY", "KEYBLOCK_BACKBONE"} < names
    assert unknown_variables(names) == {}


def test_unknown_variables() -> None:
    known = ["KEYBLOCK_PORT", "keyblock_port", "KEYBLOCK_CI", "KEYBLOCK_CACHE", "KEYBLOCK_API_KEY", "PATH", "PORT"]
    assert unknown_variables(known) == {}
    wrong = ["KEYBLOCK_PROT", "KEYBLOCK_MAX_DOCUMENT", "KEYBLOCK_QQQ"]
    assert unknown_variables([*known, *wrong]) == {
        "KEYBLOCK_MAX_DOCUMENT": "KEYBLOCK_MAX_DOCUMENTS",
        "KEYBLOCK_PROT": "KEYBLOCK_PORT",
        "KEYBLOCK_QQQ": "",
    }
