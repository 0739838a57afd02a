"""Warnings about a ranking, in words: `meta.warnings` of the service, `warnings` of an in-process Ranker."""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from keyblock.description import PipelineConfig
from keyblock.fusion import FirstStage
from keyblock.packing import PackingConfig
from keyblock.preparation import INSTRUCTION_TOKENS
from keyblock.prepared import PreparedQuery
from keyblock.queries import QUERY_TERMS
from keyblock.selectors import SELECTORS, SelectedBy
from keyblock.text.tokenizer import Tokenizer

MANY_APART = 4  # different letters in such a word: those of who stammers are fewer
_APART = re.compile(r"(?<!\S)[^\W\d_](?: [^\W\d_\u0e00-\U0010ffff]){4,}(?!\S)")  # letters of scripts with spaces between words
_SPACED = re.compile(r" \w \w \w ")  # each such word has it, and it is quick to find
MOST_EMPTY = 10  # documents that a warning names
GOOD = 0.5  # a score that answers, where the bundle recommends no min_score
LONGEST_SHOWN = 40  # characters of an id that a message repeats


class Missing(NamedTuple):
    """Numbers of the documents that were sent as an id alone and that the store has not given.

    Attributes:
        unknown: that the store does not have.
        away: on a part of the store that does not answer.
    """

    unknown: Collection[int] = ()
    away: Collection[int] = ()


NOTHING_MISSING = Missing()


def first_few(items: Sequence[str], at_most: int = 5) -> str:
    """A few of `items`, and how many more there are, so that no warning grows with the input.

    >>> first_few(["a", "b", "c"], at_most=2)
    'a, b and 1 more'
    """
    shown = ", ".join(items[:at_most])
    return f"{shown} and {len(items) - at_most} more" if len(items) > at_most else shown


def about_budget(requested: float | None, packing: PackingConfig) -> list[str]:
    """Whether `max_tokens_per_doc` lies outside the range that the model was measured at."""
    low, high = packing.budget_range
    if requested is not None and requested > high:
        return [f"max_tokens_per_doc: lowered to {high}, the most this model was measured at"]
    if requested is not None and requested < low:
        return [f"max_tokens_per_doc: raised to {low}, the least this model was measured at"]
    return []


def about_query(query: PreparedQuery) -> list[str]:
    """Whether the model reads only a part of the query, or none of it."""
    found = []
    if query.truncated:
        found.append(f"query: the model reads {query.reads}; up to {QUERY_TERMS} different words of it select blocks")
    if query.mended is not None:
        words = first_few([f"{word!r} as {meant!r}" for word, meant in query.mended.words.items()])
        found.append(f"query: read {words}, except in documents that have the word as it was typed")
    if not len(query.token_ids):
        found.append("query: holds nothing that the model reads; the order means little")
    return found


def about_instruction(instruction: str | None, tokenizer: Tokenizer) -> list[str]:
    """Whether the model does not read the instruction, or only a part of it."""
    if not instruction:
        return []
    if tokenizer.prompt is None or not tokenizer.prompt.instructed:
        return ["instruction: this model reads none"]
    read = tokenizer.beginning(instruction, INSTRUCTION_TOKENS)
    return [] if read == instruction else [f"instruction: the model reads its first {INSTRUCTION_TOKENS} tokens"]


def about_first_stage(first_stage: FirstStage, config: PipelineConfig, *, fused: bool) -> list[str]:
    """Whether the first stage changed nothing: neither call nor bundle names a fusion, or the model has scored nothing to fuse."""
    if first_stage.fusion(config.first_stage) is not None:
        return [] if fused else ["fusion: the model has scored no document, so the first stage changes nothing"]
    if first_stage.scores is None:
        return []
    return ["first_stage_scores: not used, since this model's bundle names no fusion; name one in `fusion`"]


def about_empty(documents: Sequence[int]) -> list[str]:
    """Which documents, by number, have no text to score."""
    if not documents:
        return []
    return [f"documents without text to score, ranked last: {first_few([str(number) for number in documents], MOST_EMPTY)}"]


def about_skipped(skipped: int, results: int) -> list[str]:
    """How many of the results the pre-ranking has skipped: their scores say only in which order they come."""
    if not skipped:
        return []
    return [f"pre-ranking: the model has not read {skipped} of the {results} results, the last ones; read_all lets it read all"]


def about_letters(blocks: Iterable[tuple[int, str]]) -> list[str]:
    """In which documents the letters of words stand apart, as scanners leave them; from numbers of documents with their blocks."""
    spaced = ((number, text) for number, text in blocks if _SPACED.search(text))
    found = dict.fromkeys(
        str(number) for number, text in spaced if any(len({*word.split()}) >= MANY_APART for word in _APART.findall(text))
    )
    if not found:
        return []
    shown = first_few(list(found), MOST_EMPTY)
    return [f"documents whose letters stand apart, as in n o t i c e, so that the model reads no words; join them: {shown}"]


def about_unknown(unknown: Collection[int], ids: Mapping[int, str]) -> list[str]:
    """Which ids the store does not have."""
    return [f"unknown ids, ranked last: {named(unknown, ids)}"] if unknown else []


def named(numbers: Iterable[int], ids: Mapping[int, str]) -> str:
    """The ids of documents that were sent as ids, as many as a message may list."""
    return first_few([repr(ids[number][:LONGEST_SHOWN]) for number in sorted(numbers)])


def about_scripts(foreign: int, documents: int, config: PipelineConfig, *, without_model: bool) -> list[str]:
    """Whether documents, or the query, are in a script that the model has not learned, and what that means for the order."""
    if config.trained_on is None or not foreign:
        return []
    learned = ", ".join(config.trained_on.scripts)
    found = f"model: it has learned texts in {learned} script, and {foreign} of {documents} documents, or the query, are in another"
    if without_model:
        return [
            f"{found}: it has no say, and the order is made of the order given and the words that the blocks share with the query"
        ]
    return [f"{found}: their scores mean little"]


def about_languages(unknown: int, documents: int, config: PipelineConfig) -> list[str]:
    """Whether most documents are in a learned script, but in an unlearned language, and what that means for the scores."""
    if config.trained_on is None or 2 * unknown <= documents:
        return []
    learned = ", ".join(config.trained_on.languages)
    found = (
        f"model: it has learned {learned}, and most words of {unknown} of {documents} documents are of no language that it knows"
    )
    return [f"{found}: what is rare is counted in this request, and scores compare within this answer alone"]


def about_position(
    selected_by: Sequence[SelectedBy | None], best: float, config: PipelineConfig, *, words: bool = True
) -> list[str]:
    """Whether no evidence told the blocks of any document apart, though the selector uses evidence, and nothing answers.

    A few such documents are what is to be expected: most candidates are not about the query.

    Args:
        selected_by: what chose the blocks of each document.
        best: the best score, a probability.
        config: of the model.
        words: whether the query has any: to one without, no score is an answer.
    """
    chosen = {by for by in selected_by if by is not None}
    answered = words and best >= (GOOD if config.min_score is None else config.min_score)
    if chosen != {SelectedBy.POSITION} or answered or not SELECTORS.create(config.selector).needs:
        return []
    return [
        "query: nothing in the documents stands out for it, so the passages that the model read may be the wrong ones; ask in "
        "words that the documents use"
    ]
