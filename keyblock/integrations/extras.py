"""What is said where the packages of an extra are not there."""

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def extra(name: str) -> Iterator[None]:
    """Around imports: one that fails names the extra that brings it. Raises ImportError."""
    try:
        yield
    except ImportError as error:
        raise ImportError(f"this needs the extra {name}: pip install 'keyblock[{name}]' ({error})") from error
