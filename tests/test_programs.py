import pytest

from tests.programs import need


def test_a_program_that_is_here() -> None:
    assert need("sh", "dash").endswith("/sh")


@pytest.mark.parametrize(("ci", "outcome"), [("", pytest.skip.Exception), ("1", pytest.fail.Exception)])
def test_one_that_is_not_is_named(ci: str, outcome: type[BaseException], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEYBLOCK_CI", ci)
    with pytest.raises(outcome, match=r"no-such-program is not installed \(Debian: apt install a-package\)"):
        need("no-such-program", "a-package")
