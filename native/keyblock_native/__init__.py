"""KeyBlock's reading of texts, compiled; `keyblock.text.native` is its one user, and says what goes in and comes out."""

from keyblock_native._core import (
    FLAGS,
    INTERFACE,
    NONE,
    SIGN_SHIFT,
    Characters,
    Encoder,
    Odds,
    Sentences,
    WholeSentences,
    WordReader,
    porter,
    term_key,
)

__all__ = [
    "FLAGS",
    "INTERFACE",
    "NONE",
    "SIGN_SHIFT",
    "Characters",
    "Encoder",
    "Odds",
    "Sentences",
    "WholeSentences",
    "WordReader",
    "porter",
    "term_key",
]
