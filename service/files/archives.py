"""Reads parts of archives up to a limit: a few kilobytes may unpack to gigabytes."""

import io
import zipfile
import zlib

from service.files.extracted import UnreadableError

MOST_MIB = 64  # of the parts that hold text, after unpacking
_BROKEN = (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, ValueError, OSError)  # RuntimeError: an unknown compression


class Archive:
    """A ZIP archive. Every method raises UnreadableError.

    Args:
        content: the archive.
        max_mib: limit of all parts that are read together, after unpacking.
    """

    def __init__(self, content: bytes, max_mib: int = MOST_MIB) -> None:
        self._max_mib, self._bytes_left = max_mib, max_mib * 2**20
        try:
            self._zip = zipfile.ZipFile(io.BytesIO(content))
        except _BROKEN as error:
            raise UnreadableError(f"it is broken ({error})") from None
        self._sizes = {part.filename: part.file_size for part in self._zip.infolist()}

    def __contains__(self, name: str) -> bool:
        return name in self._sizes

    def read(self, name: str) -> bytes:
        """Read a part."""
        self._count(self._sizes.get(name, 0))
        try:
            return self._zip.read(name)
        except KeyError:
            raise UnreadableError(f"it is broken (it has no {name!r})") from None
        except _BROKEN as error:
            if "password required" in str(error):
                raise UnreadableError("it is encrypted: give a copy without a password") from None
            raise UnreadableError(f"it is broken ({name!r}: {error})") from None

    def count_all(self, suffixes: tuple[str, ...]) -> None:
        """Count all parts with these suffixes as read, for a reader that opens the archive itself."""
        self._count(sum(size for name, size in self._sizes.items() if name.endswith(suffixes)))

    def _count(self, size: int) -> None:
        """Count the declared size of a part; zipfile unpacks no more than that."""
        self._bytes_left -= size
        if self._bytes_left < 0:
            raise UnreadableError(f"its parts unpack to more than {self._max_mib} MiB: save it as plain text and give that")
