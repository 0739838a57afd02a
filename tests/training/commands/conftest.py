"""Commands that must fail."""

from collections.abc import Callable

import pytest

from tests.training.commands.running import Main, strings


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Runs a command that must fail in one line; gives the line."""

    def run(main: Main, *arguments: object) -> str:
        capsys.readouterr()
        assert main(strings(*arguments)) == 2
        said = capsys.readouterr()
        assert said.out == ""
        assert said.err.count("\n") == 1
        assert said.err.startswith("keyblock-")
        return said.err

    return run
