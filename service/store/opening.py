"""Which store the settings ask for."""

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from service.settings import Settings
from service.store import lmdb_store
from service.store.base import DocumentStore, StoreUnavailableError
from service.store.lmdb_store import LmdbStore

SCHEMES = ("redis://", "rediss://", "unix://")
CLUSTERS = ("redis+cluster://", "rediss+cluster://")


def open_store(settings: Settings) -> DocumentStore | None:
    """The store, or None where none is asked for. Raises StoreUnavailableError, one line, where it cannot be used."""
    if not settings.store:
        return None
    if settings.store.startswith(SCHEMES):
        from service.store.redis_store import RedisStore  # a tenth of a second of the start of those who have none

        return RedisStore(settings.store)
    if settings.store.startswith(CLUSTERS):
        from service.store.redis_cluster import RedisClusterStore

        return RedisClusterStore(settings.store, settings.store_replicas)
    if "://" in settings.store:
        scheme = settings.store.partition("://")[0]
        raise StoreUnavailableError(
            f"the store's URL begins with {scheme}://: give {', '.join((*SCHEMES, *CLUSTERS))} or a directory"
        )
    return LmdbStore(Path(settings.store), settings.store_bytes, evict=settings.store_evict, processes=settings.processes)


def claimed(settings: Settings) -> AbstractContextManager[None]:
    """The store for the processes that this one starts, where it is a directory. Raises StoreUnavailableError."""
    is_directory = bool(settings.store) and "://" not in settings.store
    return lmdb_store.claimed(Path(settings.store)) if is_directory else nullcontext()
