from service.processes.shares import share_of
from service.settings import Settings


def test_limits_and_threads_are_divided_and_each_gets_some() -> None:
    whole = Settings(processes=4, threads=6, upstream_concurrency=8, max_connections=2, cache_bytes=0)
    share = share_of(whole)
    assert (share.threads, share.upstream_concurrency, share.max_connections, share.cache_bytes) == (2, 2, 1, 0)
    assert share.max_documents == whole.max_documents, "which is a request's, and no process's"
    assert share.max_requests_in_flight == whole.max_requests_in_flight, "which is counted together"
    assert share.score_cache_bytes == whole.score_cache_bytes, "which the model's process has alone"
