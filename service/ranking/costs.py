"""What it costs to prepare a text, by its characters and their scripts, before it is prepared.

A million characters of English prose take 0.12 s and 6 MB, of one-letter words and marks up to 1.4 s and 80 MB, of Chinese 4.3 s
and 60 MB (`python -m benchmarks.faults.preparing`). So time is counted by characters and, outside ASCII, by their bytes of UTF-8,
and memory by the worst kind: an estimate that is too high costs a little waiting, one that is too low takes from others.
"""

WIDE = 12  # characters of English that take as much time as a byte of UTF-8 beyond one a character
BYTES = 80  # of memory while a text is prepared, for a byte of UTF-8
COLD_SECONDS = 3e-7  # for a character of English, until it is measured
PIECE = 1 << 18  # characters that are counted at once


def utf8_bytes(text: str) -> int:
    """The bytes of a text in UTF-8."""
    if text.isascii():
        return len(text)
    return sum(len(text[start : start + PIECE].encode("utf-8", "surrogatepass")) for start in range(0, len(text), PIECE))


def cost(n_chars: int, n_bytes: int) -> int:
    """The time that a text takes, in characters of English."""
    return n_chars + WIDE * max(n_bytes - n_chars, 0)


def footprint(n_bytes: int) -> int:
    """The most bytes of memory that a text takes while it is prepared."""
    return BYTES * n_bytes
