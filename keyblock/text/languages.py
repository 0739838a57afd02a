"""Languages with a Snowball stemmer: their words become stems, and their stop words are dropped.

Stems are Snowball's (PyStemmer), stop words those of stopwords-iso, which has none for Nepali, Serbian, Tamil and Yiddish.
"""

import threading
from collections.abc import Callable
from functools import cache

import Stemmer

from keyblock.text.universal import caseless

LANGUAGES = dict(  # ISO 639-1, and Snowball's name
    pair.split(":")
    for pair in """ar:arabic ca:catalan cs:czech da:danish de:german el:greek en:english eo:esperanto es:spanish et:estonian
    eu:basque fa:persian fi:finnish fr:french ga:irish hi:hindi hu:hungarian hy:armenian id:indonesian it:italian
    lt:lithuanian ne:nepali nl:dutch no:norwegian pl:polish pt:portuguese ro:romanian ru:russian sr:serbian
    st:sesotho sv:swedish ta:tamil tr:turkish yi:yiddish""".split()
)
DOTLESS = str.maketrans({"I": "ı", "İ": "i"})  # Turkish


@cache
def stop_words(language: str) -> frozenset[str]:
    """The language's stop words, caseless; none if stopwords-iso has none."""
    import stopwordsiso  # late: it reads its file on import

    return frozenset(map(caseless, stopwordsiso.stopwords(language))) if stopwordsiso.has_lang(language) else frozenset()


class Stemming(threading.local):
    """Snowball's stemmer of this name, one for each thread: it keeps state between calls. Without a name words stay as they are.

    Attributes:
        of: gives the stem of a word.
    """

    def __init__(self, name: str | None) -> None:
        self.of: Callable[[str], str] = Stemmer.Stemmer(name, 0).stemWord if name else str
