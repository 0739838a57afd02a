from benchmarks.repeated import never_hit


def test_requests_that_never_hit_are_timed_once_the_cache_is_full() -> None:
    """Of 20 entries: 4 requests of 5 sequences fill it, and 3 more are timed."""
    seconds = never_hit(5, tokens=8, entries=20, times=3)
    assert len(seconds) == 3
    assert min(seconds) > 0
