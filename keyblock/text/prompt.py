"""The prompt of a model that answers in words: the text around the query and the document, and how to tokenize it.

Pieces are tokenized one by one, as the authors of such models do: no token extends over the border of two pieces.
"""

import re
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, model_validator
from tokenizers import Tokenizer

_PLACE = re.compile(r"\{(instruction|query|document)\}")


class Prompt(BaseModel):
    """Texts with `{query}` once, `{instruction}` at most once, and `{document}` last, at the end of its piece."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    pieces: tuple[str, ...] = Field(min_length=1, description="tokenized one by one; they contain special tokens by name")
    instruction: str = Field("", description="the instruction if a request gives none")

    @model_validator(mode="after")
    def _places(self) -> Self:
        found = _PLACE.findall("".join(self.pieces))
        if found.count("query") != 1 or found.count("document") != 1 or found.count("instruction") > 1:
            raise ValueError("a prompt has {query} once, {document} once and {instruction} at most once")
        if found[-1] != "document" or not any(piece.endswith("{document}") for piece in self.pieces):
            raise ValueError("{document} comes last, and ends its piece: what follows is another piece")
        return self

    @property
    def instructed(self) -> bool:
        """Whether a request may give an instruction."""
        return any("{instruction}" in piece for piece in self.pieces)

    @cached_property
    def lead(self) -> str:
        """The space before the document, which tokenizers of this kind read as a part of its first word."""
        return " " if self.pieces[self._document].endswith(" {document}") else ""

    @property
    def _document(self) -> int:
        return next(i for i, piece in enumerate(self.pieces) if piece.endswith("{document}"))

    def head(self, tokenizer: Tokenizer, query: str, instruction: str | None = None) -> NDArray[np.int32]:
        """Token ids of the prompt before the document.

        Args:
            tokenizer: the model's tokenizer; it does not read special tokens in a request's texts as special.
            query: any text.
            instruction: the model's task; None for the prompt's own.
        """
        values = {"query": query, "instruction": self.instruction if instruction is None else instruction}
        last = self.pieces[self._document].removesuffix(f"{self.lead}{{document}}")
        return _ids(tokenizer, [*self.pieces[: self._document], last], values)

    def tail(self, tokenizer: Tokenizer) -> tuple[int, ...]:
        """Token ids of the prompt after the document."""
        return tuple(_ids(tokenizer, self.pieces[self._document + 1 :], {}).tolist())

    def text(self, query: str, document: str, instruction: str | None = None) -> list[str]:
        """The pieces with query, document and instruction filled in, to tokenize elsewhere."""
        values = {"query": query, "document": document, "instruction": self.instruction if instruction is None else instruction}
        return [_filled(piece, values) for piece in self.pieces]


def _filled(piece: str, values: dict[str, str]) -> str:
    """The piece with all places filled in at once, so that braces in a query stay text."""
    return _PLACE.sub(lambda place: values[place[1]], piece)


def _ids(tokenizer: Tokenizer, pieces: "list[str] | tuple[str, ...]", values: dict[str, str]) -> NDArray[np.int32]:
    special = {token.content: number for number, token in tokenizer.get_added_tokens_decoder().items() if token.special}
    border = re.compile("(" + "|".join(map(re.escape, sorted(special, key=len, reverse=True))) + ")") if special else None
    ids: list[int] = []
    for piece in pieces:
        for part in border.split(piece) if border else [piece]:
            if part in special:
                ids.append(special[part])
            elif part:
                ids += tokenizer.encode(_filled(part, values), add_special_tokens=False).ids
    return np.asarray(ids, dtype=np.int32)
