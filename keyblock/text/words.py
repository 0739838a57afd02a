r"""Reading texts word by word: what each word becomes is looked up, for all texts at once.

In "5€ a_b e\u0301te", to BERT's tokenizer and Python's analyzer:

word     what the tokenizer reads by itself: 5€, a, _, b, and e\u0301te, which is odd
run      what the analyzer makes a term of: 5, a_b, and e\u0301te, for all its terms; 5 and a_b are no words, but parts or several
odd      between two spaces, with a character that may change its neighbours, as \u0301 does: one word and one run
stretch  any of these: characters from a head up to a tail
page     all texts under each other, so that numpy finds the stretches of all at once (`keyblock.text.page`)
long     more than 64 characters: read by the tokenizer in each call, and by the analyzer in each block; all else is remembered
"""

from collections.abc import Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from keyblock.text.analyzer import Analyzer
from keyblock.text.characters import word_characters
from keyblock.text.hashing import hasher
from keyblock.text.lexicon import Lexicon, in_batches, keys_of, tokens_of
from keyblock.text.page import Page
from keyblock.text.page_reader import PageReader, long_words, runs_of
from keyblock.text.read_words import Runs
from keyblock.text.rows import Rows
from keyblock.text.tokenizer import Tokenizer


class WordReader(PageReader):
    """Reads what tokenizers read word by word.

    Args:
        tokenizer: reads each word once.
        analyzer: as well.
        kinds: what each code point is to the tokenizer, shape (CODES,).
    """

    def __init__(self, tokenizer: Tokenizer, analyzer: Analyzer, kinds: NDArray[np.uint8]) -> None:
        super().__init__(analyzer)
        self._tokenizer, self._kinds = tokenizer, kinds
        self._lexicon = Lexicon(partial(tokens_of, tokenizer), partial(keys_of, analyzer))

    def page(self, texts: Sequence[str]) -> Page:
        """See PageReader."""
        return Page.of(texts, self._kinds, word_characters())

    def looked_up(self, page: Page) -> tuple[Rows, Runs]:
        """See PageReader."""
        numbers, words = self._lexicon.find(hasher().hashes(page.codes, page.heads, page.tails), page.spell)
        tokens, long = words.tokens.taken(numbers[: page.n_words]), long_words(page)
        if len(long):
            tokens = tokens.filled(long, in_batches(partial(tokens_of, self._tokenizer), page.spell(long)))
        return tokens, runs_of(page, numbers[page.runs], words)
