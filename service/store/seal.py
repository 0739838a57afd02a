"""A seal on stored values: who shares a Redis and has not the key cannot make a value that the service takes for its own.

The seal is an HMAC-SHA256 over the namespace, the id and the value, so that a value is not taken for another document's either.
It does not say how old a value is: anyone who may write can put back an earlier one of the same document, or delete it.
"""

import hashlib
import hmac

from service.store.codec import DamagedError

SEAL_BYTES = 32


class Seal:
    """Seals values, and opens them.

    Args:
        key: shared by the replicas, long enough that nobody guesses it; empty: values are left as they are.
    """

    def __init__(self, key: str = "") -> None:
        self._key = key.encode()

    @property
    def extra_bytes(self) -> int:
        """Bytes that a sealed value has beyond the value."""
        return SEAL_BYTES if self._key else 0

    def sealed(self, namespace: str, identity: str, content: bytes) -> bytes:
        """The value with its seal behind it."""
        return content + self._seal(namespace, identity, content) if self._key else content

    def opened(self, namespace: str, identity: str, content: bytes) -> bytes:
        """The value without its seal. Raises DamagedError where it is not the seal of this key, namespace, id and value."""
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
