"""Which store the settings ask for."""

from pathlib import Path

from service.settings import Settings
from service.store.base import DocumentStore
from service.store.lmdb_store import LmdbStore

SCHEMES = ("redis://", "rediss://", "unix://")


def open_store(settings: Settings) -> DocumentStore | None:
    """The store, or None where none is asked for. Raises StoreUnavailableError, one line, where it cannot be used."""
    if not settings.store:
        return None
    if settings.store.startswith(SCHEMES):
        from service.store.redis_store import RedisStore  # a tenth of a second of the start of those who have none

        return RedisStore(settings.store)
    return LmdbStore(Path(settings.store), settings.store_bytes, evict=settings.store_evict)
