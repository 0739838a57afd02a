import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.store.codec import SEAL_BYTES, DamagedError, Seal

SEAL = Seal("k" * 32)
ANY = st.text(st.characters(codec=None), max_size=20)


@given(ANY, ANY, st.binary(max_size=100))
def test_what_is_sealed_is_opened(namespace: str, identity: str, content: bytes) -> None:
    sealed = SEAL.sealed(namespace, identity, content)
    assert len(sealed) == len(content) + SEAL.extra_bytes == len(content) + SEAL_BYTES
    assert SEAL.opened(namespace, identity, sealed) == content


def test_without_a_key_values_are_as_they_are() -> None:
    assert Seal().sealed("n", "a", b"value") == Seal().opened("n", "a", b"value") == b"value"
    assert Seal().extra_bytes == 0


@pytest.mark.parametrize(
    ("namespace", "identity", "sealed"),
    [
        ("n", "a", b"value"),
        ("n", "a", b""),
        ("n", "a", b"other" + SEAL.sealed("n", "a", b"value")[5:]),
        ("n", "b", SEAL.sealed("n", "a", b"value")),
        ("m", "a", SEAL.sealed("n", "a", b"value")),
        ("na", "", SEAL.sealed("n", "a", b"value")),
        ("n", "a", Seal("x" * 32).sealed("n", "a", b"value")),
    ],
)
def test_nothing_else_is_opened(namespace: str, identity: str, sealed: bytes) -> None:
    """Not an unsealed value, not a changed one, not that of another id or namespace, and not that of another key."""
    with pytest.raises(DamagedError, match="not sealed with this service's KEYBLOCK_STORE_KEY"):
        SEAL.opened(namespace, identity, sealed)
