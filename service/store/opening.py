"""Opens the store that the settings name."""

from pathlib import Path

from service.settings import Settings
from service.store.base import DocumentStore, StoreUnavailableError
from service.store.lmdb_store import LmdbStore

SCHEMES = ("redis://", "rediss://", "unix://")
CLUSTERS = ("redis+cluster://", "rediss+cluster://")


def open_store(settings: Settings) -> DocumentStore | None:
    """The store, or None if the settings name none. Raises StoreUnavailableError, one line, if it cannot be used."""
    if not settings.store:
        return None
    if settings.store.startswith(SCHEMES):
        from service.store.redis_store import RedisStore  # importing it takes a tenth of a second, which only its users pay

        return RedisStore(settings.store)
    if settings.store.startswith(CLUSTERS):
        from service.store.redis_cluster import RedisClusterStore

        return RedisClusterStore(settings.store, settings.store_replicas)
    if "://" in settings.store:
        scheme = settings.store.partition("://")[0]
        raise StoreUnavailableError(
            f"the store's URL begins with {scheme}://: give {', '.join((*SCHEMES, *CLUSTERS))} or a directory"
        )
    return LmdbStore(Path(settings.store), settings.store_bytes, evict=settings.store_evict)
