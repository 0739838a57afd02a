"""How native/ is compiled for release: for an old glibc, by the interpreter that runs it."""

import shlex
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from native.wheel import GLIBC, NATIVE, compilers
from tests.support.programs import need


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_compilers_and_linkers_are_for_the_processor_and_the_old_glibc(machine: str) -> None:
    target = f"{machine}-linux-gnu.2.17"
    for tool in ("CC", "CXX", "LDSHARED", "LDCXXSHARED"):
        command = shlex.split(compilers(machine)[tool])
        assert command[command.index("-target") + 1] == target


def test_an_interpreter_whose_path_has_a_space_is_still_one_word(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/a b/python")
    assert all(shlex.split(compilers("x86_64")[tool])[0] == "/a b/python" for tool in ("CC", "CXX", "LDSHARED", "LDCXXSHARED"))


@pytest.mark.parametrize("variable", ["CFLAGS", "CXXFLAGS"])
def test_headers_beside_those_of_the_interpreter_are_found_last(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Debian's pyconfig.h includes <x86_64-linux-gnu/python3.11/pyconfig.h>; setuptools compiles C++ with CXXFLAGS alone."""
    monkeypatch.setattr(sysconfig, "get_path", {"include": "/usr/a b/python3.11"}.__getitem__)
    flags = shlex.split(compilers("x86_64")[variable])
    assert flags[flags.index("-idirafter") + 1] == "/usr/a b"


def test_each_python_has_an_environment_of_its_own(tmp_path: Path) -> None:
    """Whatever it is called, and wherever it is."""
    need("make", "make")
    python = tmp_path / "a b" / "python3"
    python.parent.mkdir()
    python.write_text("#!/bin/sh\necho cpython-399-x86_64-linux-gnu\n")
    python.chmod(0o755)

    def steps(path: Path) -> str:
        command = ["make", "--dry-run", "wheel", f"PYTHON={shlex.quote(str(path))}"]
        return subprocess.run(command, cwd=NATIVE.parent, check=True, capture_output=True, text=True).stdout

    assert "build/wheel/cpython-399-x86_64-linux-gnu/bin/python native/wheel.py" in steps(python)
    assert f"build/wheel/{sysconfig.get_config_var('SOABI')}/bin/python native/wheel.py" in steps(Path(sys.executable))


def test_it_builds_what_the_environments_build() -> None:
    assert (NATIVE / "setup.py").is_file()
    assert (NATIVE / "keyblock_native" / "__init__.py").is_file()
    assert GLIBC == (2, 17)  # older than that of any system with Python 3.11
