import pytest

from keyblock import __version__
from service.keys.cli import main
from service.keys.keys import Keyring, Scope, read_keys


def test_the_entry_that_is_printed_admits_the_key_that_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["search", "--scopes", "rank, documents", "--namespace", "shelf"]) == 0
    shown = capsys.readouterr()
    secret = shown.err.split()[-1]
    assert secret not in shown.out
    key = Keyring(list(read_keys(shown.out, "here"))).admit(f"Bearer {secret}")
    assert (key.name, key.owns, key.scopes) == ("search", "shelf", {Scope.RANK, Scope.DOCUMENTS})


@pytest.mark.parametrize(
    "arguments", [["a:b"], ["search", "--scopes", "all"], ["search", "--scopes", ""], ["a", "--namespace", ":"]]
)
def test_what_is_no_key_is_refused_in_one_line(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    shown = capsys.readouterr()
    assert (shown.out, shown.err.count("\n")) == ("", 1)


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["--version"])
    assert capsys.readouterr().out == f"keyblock-key {__version__}\n"
