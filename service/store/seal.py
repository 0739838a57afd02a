"""A seal on stored values: a user of the same Redis without the key cannot forge a value that the service accepts.

The seal is an HMAC-SHA256 over the namespace, the id and the value, so a value cannot pass for another document's either.
It does not cover the value's age: a user with write access can restore an earlier value of the same document, or delete it.
"""

import hashlib
import hmac

from service.store.codec import DamagedError

SEAL_BYTES = 32


class Seal:
    """Seals and opens values.

    Args:
        key: shared by the replicas, too long to guess; empty: values are not sealed.
    """

    def __init__(self, key: str = "") -> None:
        self._key = key.encode()

    @property
    def extra_bytes(self) -> int:
        """Bytes that the seal adds to a value."""
        return SEAL_BYTES if self._key else 0

    def sealed(self, namespace: str, identity: str, content: bytes) -> bytes:
        """The value, followed by its seal."""
        return content + self._seal(namespace, identity, content) if self._key else content

    def opened(self, namespace: str, identity: str, content: bytes) -> bytes:
        """The value without its seal. Raises DamagedError if the seal does not fit the key, namespace, id and value."""
        if not self._key:
            return content
        value, seal = content[:-SEAL_BYTES], content[-SEAL_BYTES:]
        if not hmac.compare_digest(seal, self._seal(namespace, identity, value)):
            raise DamagedError("a stored document was not sealed with this service's KEYBLOCK_STORE_KEY")
        return value

    def _seal(self, namespace: str, identity: str, content: bytes) -> bytes:
        names = [part.encode("utf-8", "surrogatepass") for part in (namespace, identity)]
        made = hmac.new(self._key, digestmod=hashlib.sha256)
        for name in names:
            made.update(len(name).to_bytes(4, "little") + name)
        made.update(content)
        return made.digest()
