"""Whether a text is in a script that the model has not learned, decided by the text's tokens.

The name of a script is the first word of its letters' names in Unicode, in lower case: latin, cyrillic, arabic, devanagari,
hiragana; Chinese characters are han.
"""

import re
import unicodedata
from collections.abc import Collection
from functools import cache

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from keyblock.text.tokenizer import Tokenizer

LEARNED, NEUTRAL, FOREIGN = 1, 0, -1
CLEARLY = 2  # the least foreign tokens of a foreign text: a single π is no text in Greek
_LETTER = re.compile("[A-Za-z]")
_NO_SCRIPT = frozenset("combining modifier variation zero masculine feminine".split())
_OTHER_NAMES = {"cjk": "han", "ideographic": "han"}


class TrainedOn(BaseModel):
    """The languages and scripts that a model has learned to read."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    languages: tuple[str, ...] = Field(min_length=1, description="ISO 639-1 codes, to help users choose a model")
    scripts: tuple[str, ...] = Field(min_length=1, description="latin, cyrillic, han, ...: the model does not order other scripts")


@cache  # a vocabulary has few different letters in many tokens
def script_of(character: str) -> str | None:
    """The script of a letter or of a mark on a letter; None for characters without a script, such as digits and punctuation."""
    if unicodedata.category(character)[0] not in "LM":
        return None
    first = unicodedata.name(character, "").partition(" ")[0].lower()
    return None if not first or first in _NO_SCRIPT else _OTHER_NAMES.get(first, first)


class Alphabets:
    """Decides whether a text is in a script that the model has learned.

    Args:
        tokenizer: the model's tokenizer.
        trained_on: the scripts that the model has learned.

    Attributes:
        kinds: shape (vocabulary,), LEARNED, NEUTRAL or FOREIGN for each token.
    """

    def __init__(self, tokenizer: Tokenizer, trained_on: TrainedOn) -> None:
        self.kinds = np.zeros(tokenizer.vocabulary_size, np.int8)
        surfaces, scripts = _surfaces(tokenizer), frozenset(trained_on.scripts)
        self.kinds[list(surfaces)] = [_kind(surface, scripts) for surface in surfaces.values()]
        special = tokenizer.backend.get_added_tokens_decoder()
        self.kinds[list(special)] = NEUTRAL
        self.kinds[[token for token, added in special.items() if added.content in ("[UNK]", "<unk>")]] = FOREIGN
        self._foreign = self.kinds == FOREIGN

    def foreign(self, token_ids: NDArray[np.int32], at_least: int = CLEARLY) -> bool:
        """Whether most tokens with a script are in one that the model has not learned; unknown tokens count as unlearned.

        Args:
            token_ids: shape (n_tokens,), the text's tokens.
            at_least: the least number of tokens in such a script.
        """
        count = np.count_nonzero(self._foreign.take(token_ids))
        return bool(count >= at_least and count > np.count_nonzero(self.kinds.take(token_ids) == LEARNED))


def _surfaces(tokenizer: Tokenizer) -> dict[int, str]:
    """The text of each token, by its id. An ASCII name is the text already, unless it may be special notation (<0xE4>, </w>)."""
    names = tokenizer.backend.get_vocab()
    surfaces = {token: name for name, token in names.items() if name.isascii() and "<" not in name}
    encoded = [token for token in names.values() if token not in surfaces]
    decoded = tokenizer.backend.decode_batch([[token] for token in encoded], skip_special_tokens=False)
    return surfaces | dict(zip(encoded, decoded, strict=True))


def _kind(surface: str, learned: Collection[str]) -> int:
    if surface.isascii():  # most tokens are, and need no look-up of their characters
        return NEUTRAL if _LETTER.search(surface) is None else LEARNED if "latin" in learned else FOREIGN
    scripts = {script for character in unicodedata.normalize("NFKC", surface) if (script := script_of(character)) is not None}
    if not scripts:
        return NEUTRAL
    return FOREIGN if scripts.isdisjoint(learned) else LEARNED
