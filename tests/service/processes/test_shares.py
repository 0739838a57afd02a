import pytest

from service.processes.shares import share_of
from service.settings import Settings


def test_limits_and_threads_are_divided_and_each_gets_some() -> None:
    whole = Settings(processes=4, threads=6, max_requests_in_flight=1024, max_connections=2, cache_bytes=0)
    share = share_of(whole)
    assert (share.threads, share.max_requests_in_flight, share.max_connections, share.cache_bytes) == (2, 256, 1, 0)
    assert share.max_documents == whole.max_documents, "which is a request's, and no process's"
    assert share.score_cache_bytes == whole.score_cache_bytes, "which the model's process has alone"


@pytest.mark.parametrize("store", ["redis://localhost:6379/0", "redis+cluster://a:1,b:2", ""])
def test_stores_that_processes_share(store: str) -> None:
    assert Settings(processes=2, store=store).store == store


def test_a_directory_is_for_one_process() -> None:
    assert Settings(processes=1, store="documents").store == "documents"
    with pytest.raises(ValueError, match="a directory is for one process: with --processes give redis://HOST:PORT/N"):
        Settings(processes=2, store="documents")
