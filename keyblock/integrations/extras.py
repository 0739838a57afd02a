"""The error message if the packages of an extra are missing."""

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def extra(name: str) -> Iterator[None]:
    """Wrap imports: if one fails, raise ImportError that names the extra to install."""
    try:
        yield
    except ImportError as error:
        raise ImportError(f"this needs the extra {name}: pip install 'keyblock[{name}]' ({error})") from error
