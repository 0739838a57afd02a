"""Archives whose parts are read up to a bound: a few kilobytes may unpack to gigabytes."""

import io
import zipfile
import zlib

from service.files.extracted import UnreadableError

MOST_MIB = 64  # of the parts that hold text, once they are unpacked
_BROKEN = (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, ValueError, OSError)  # RuntimeError: an unknown compression


class Archive:
    """A ZIP archive. Every method raises UnreadableError.

    Args:
        content: the archive.
        most_mib: of all parts together that are read, unpacked.
    """

    def __init__(self, content: bytes, most_mib: int = MOST_MIB) -> None:
        self._most_mib, self._left = most_mib, most_mib * 2**20
        try:
            self._zip = zipfile.ZipFile(io.BytesIO(content))
        except _BROKEN as error:
            raise UnreadableError(f"it is broken ({error})") from None
        self._sizes = {part.filename: part.file_size for part in self._zip.infolist()}

    def __contains__(self, name: str) -> bool:
        return name in self._sizes

    def read(self, name: str) -> bytes:
        """A part."""
        self._take(self._sizes.get(name, 0))
        try:
            return self._zip.read(name)
        except KeyError:
            raise UnreadableError(f"it is broken (it has no {name!r})") from None
        except _BROKEN as error:
            if "password required" in str(error):
                raise UnreadableError("it is encrypted: give a copy without a password") from None
            raise UnreadableError(f"it is broken ({name!r}: {error})") from None

    def take_all(self, suffixes: tuple[str, ...]) -> None:
        """Count all parts with these ends of their names as read, for a reader that opens the archive itself."""
        self._take(sum(size for name, size in self._sizes.items() if name.endswith(suffixes)))

    def _take(self, size: int) -> None:
        """A part unpacks to no more than it declares: zipfile stops there."""
        self._left -= size
        if self._left < 0:
            raise UnreadableError(f"its parts unpack to more than {self._most_mib} MiB: save it as plain text and give that")
