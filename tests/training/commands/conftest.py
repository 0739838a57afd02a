"""Commands that must succeed, and commands that must fail."""

import pytest

from tests.training.commands.running import Main, Printed, strings


@pytest.fixture
def printed(capsys: pytest.CaptureFixture[str]) -> Printed:
    """Runs a command that must succeed; gives what it prints."""

    def run(main: Main, *arguments: object) -> str:
        capsys.readouterr()
        assert main(strings(*arguments)) == 0
        return capsys.readouterr().out

    return run


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str]) -> Printed:
    """Runs a command that must fail in one line; gives the line."""

    def run(main: Main, *arguments: object) -> str:
        capsys.readouterr()
        assert main(strings(*arguments)) == 2
        said = capsys.readouterr()
        assert said.out == ""
        progress = ("prepare: ", "teacher: ")  # of documents that no test before it has prepared
        lines = [line for line in said.err.splitlines() if line and not line.startswith(progress)]
        assert len(lines) == 1
        assert lines[0].startswith("keyblock-")
        return f"{lines[0]}\n"

    return run
