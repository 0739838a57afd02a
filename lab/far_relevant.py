"""Makes documents of one relevant passage, never at the beginning, among random passages: MS MARCO FarRelevant.

Boytsov et al., "Understanding Performance of Long-Document Ranking Models through Comprehensive Evaluation and Leaderboarding",
section 2.2 and appendix B.1. With C tokens in the relevant passage, a document is made so:

1. Draw a length L between 512 + C and 1431 tokens.
2. Draw passages that are not relevant until together they have more than 512 tokens: the head.
3. Draw more while all of them have at most L - C tokens (the first that does not fit is discarded), mix these with the relevant
   passage, and append the mix to the head.

`Settings.behind` adds a fourth step, which is not the paper's: append random passages until they have more than `behind` tokens.
With `Settings.front` the relevant passage is the first one instead: a collection with the bias that the paper finds in others.
"""

import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from lab.passages import Gold, Passages
from training.data.types import CollectionError, Document, Span

BETWEEN = "\n\n"
REJECTIONS = 1000  # draws in a row that do not fit: then the split has too few passages
Count = Callable[[str], int]
"""How many tokens a text has."""


class Settings(BaseModel):
    """How documents are made; the defaults are the paper's."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    start: int = Field(512, ge=0, description="tokens that stand in front of every relevant passage, at least")
    longest: int = Field(
        1431, ge=1, description="tokens of the longest document; lengths are uniform up to it from the shortest possible"
    )
    behind: int = Field(0, ge=0, description="tokens that stand behind every relevant passage, at least, beside those of `longest`")
    front: int = Field(0, ge=0, le=1, description="1: the relevant passage stands in front of all others")
    shortest_passage: int = Field(1, ge=1, description="passages of fewer tokens are never fillers")
    longest_passage: int = Field(512, ge=1, description="passages of more tokens are never fillers")
    seed: int = Field(0, description="decides the queries, lengths, fillers and their order")

    @model_validator(mode="after")
    def _room(self) -> Self:
        if self.longest <= self.start:
            raise ValueError(f"longest {self.longest} leaves no room for a passage behind the first {self.start} tokens")
        if self.longest_passage < self.shortest_passage:
            raise ValueError(f"no passage has at least {self.shortest_passage} and at most {self.longest_passage} tokens")
        return self


class FarDocument(NamedTuple):
    """A document made for a query.

    Attributes:
        passages: the passages' texts in order.
        gold: the number of the relevant passage, from 0.
        fillers: ids of the other passages.
    """

    doc_id: str
    query_id: str
    passages: tuple[str, ...]
    gold: int
    fillers: tuple[str, ...]

    @property
    def document(self) -> Document:
        """The document, without a title."""
        return Document(self.doc_id, "", BETWEEN.join(self.passages))

    @property
    def span(self) -> Span:
        """The relevant passage's place."""
        start = sum(len(text) + len(BETWEEN) for text in self.passages[: self.gold])
        return Span(self.doc_id, start, start + len(self.passages[self.gold]))


@dataclass(frozen=True)
class FarSplit:
    """The documents of a split.

    Attributes:
        queries: the query ids, in the split's order.
        documents: one for each query, sorted by id; the ids are in random order of the queries.
        pool: how many passages the fillers were drawn from.
        left_out: how many queries have no document, by reason.
    """

    name: str
    queries: list[str]
    documents: list[FarDocument]
    pool: int
    left_out: Mapping[str, int]


def make_splits(passages: Passages, splits: Mapping[str, int | None], count: Count, settings: Settings) -> list[FarSplit]:
    """The documents of each split. A split with the number 0 gets no documents, but its passages are kept from the other splits.

    No two splits share a source document. A source document that is relevant in two splits belongs to the split that is named
    first. Those that are relevant in none are dealt at random, in proportion to the wanted queries.

    Args:
        passages: the collection's passages.
        splits: how many queries are wanted, by split; None for as many as possible.
        count: counts the tokens of a text.
        settings: how documents are made.

    Raises CollectionError for a split without a usable query, for one with too few passages to fill a document, for two splits
    whose names differ only after a dot, and where every split has the number 0.
    """
    if len({name.partition(".")[0] for name in splits}) < len(splits):
        raise CollectionError(f"two of the splits {', '.join(splits)} would be one: what follows a dot is left out")
    queries = {name: passages.collection.split(name) for name in splits}
    wanted = {name: len(queries[name]) if number is None else number for name, number in splits.items()}
    if not any(wanted.values()):
        raise CollectionError("every split has the number 0, so that nothing would be written: ask one for queries (NAME=NUMBER)")
    owners = deal_sources(passages, queries, wanted, settings.seed)
    pools: dict[str, list[str]] = {name: [] for name in splits}
    for passage in passages.ids:
        pools[owners[passages.source(passage)]].append(passage)
    return [
        _Maker(name, passages, owners, count, settings).make(queries[name], wanted[name], pools[name])
        for name in splits
        if wanted[name]
    ]


def deal_sources(passages: Passages, queries: Mapping[str, Sequence[str]], wanted: Mapping[str, int], seed: int) -> dict[str, str]:
    """The split of each source document, see `make_splits`."""
    owners: dict[str, str] = {}
    for name, split in queries.items():
        for source in (source for query in split for source in passages.sources(query)):
            owners.setdefault(source, name)
    rng, names, weights = random.Random(f"{seed} sources"), list(wanted), list(wanted.values())
    for source in map(passages.source, passages.ids):
        if source not in owners:
            owners[source] = rng.choices(names, weights if any(weights) else None)[0]
    return owners


@dataclass
class _Maker:
    """Makes the documents of one split."""

    name: str
    passages: Passages
    owners: Mapping[str, str]
    count: Count
    settings: Settings
    _tokens: dict[str, int] = field(default_factory=dict)

    @property
    def written(self) -> str:
        """The split's name in the new collection: `dev` for `dev.small`, which would read the run of `dev`."""
        return self.name.partition(".")[0]

    @cached_property
    def rng(self) -> random.Random:
        return random.Random(f"{self.settings.seed} {self.name}")

    def make(self, queries: Sequence[str], wanted: int, pool: Sequence[str]) -> FarSplit:
        """The split's documents, for at most `wanted` of the queries."""
        chosen, left_out = self._choose(queries, wanted)
        taken = {passage for query in chosen for gold in self.passages.relevant(query) for passage in gold.covers}
        fillers = [passage for passage in pool if passage not in taken]
        if not chosen:
            raise CollectionError(f"{self.passages.collection.path}: no query of split {self.name} can be used: {left_out}")
        if not fillers:
            raise CollectionError(self._too_few(len(fillers)))
        documents = [
            self._document(f"far-{self.written}-{number:0{len(str(len(chosen)))}d}", query, gold, fillers)
            for number, (query, gold) in enumerate(chosen.items())
        ]
        return FarSplit(self.written, [query for query in queries if query in chosen], documents, len(fillers), left_out)

    def _choose(self, queries: Sequence[str], wanted: int) -> tuple[dict[str, Gold], dict[str, int]]:
        """Queries in random order, each with its relevant passage; and how many were left out, by reason.

        No passage is relevant for two chosen queries. So each document holds exactly one passage that is relevant for any of them.
        """
        chosen: dict[str, Gold] = {}
        taken: set[str] = set()
        left_out: Counter[str] = Counter()
        for query in self.rng.sample(list(queries), len(queries)):
            if len(chosen) == wanted:
                left_out["more than were asked for"] += 1
                continue
            relevant = self.passages.relevant(query)
            covered = {passage for gold in relevant for passage in gold.covers}
            fitting = [gold for gold in relevant if 0 < self.count(gold.text) <= self.settings.longest - self.settings.start]
            if not relevant:
                left_out["no relevant passage is known"] += 1
            elif any(self.owners[self.passages.source(passage)] != self.name for passage in covered):
                left_out["its document belongs to another split"] += 1
            elif not fitting:
                left_out["its passage is too long"] += 1
            elif covered & taken:
                left_out["its passage is another query's"] += 1
            else:
                chosen[query] = self.rng.choice(fitting)
                taken |= covered
        return chosen, dict(left_out)

    def _document(self, doc_id: str, query: str, gold: Gold, pool: Sequence[str]) -> FarDocument:
        settings = self.settings
        room = self.rng.randint(settings.start + self.count(gold.text), settings.longest) - self.count(gold.text)
        drawn = self._draw(pool, set(self.passages.sources(query)))
        head = self._fill(drawn, settings.start)
        used, mixed = sum(map(self._length, head)), list[str]()
        while used + self._length(filler := next(drawn)) <= room:
            mixed.append(filler)
            used += self._length(filler)
        behind = self._fill(drawn, settings.behind) if settings.behind else []
        self.rng.shuffle(mixed)
        place = self.rng.randint(0, len(mixed))
        before, after = head + mixed[:place], mixed[place:] + behind
        if settings.front:
            before, after = [], before + after
        texts = (*map(self.passages.text, before), gold.text, *map(self.passages.text, after))
        return FarDocument(doc_id, query, texts, len(before), (*before, *after))

    def _fill(self, drawn: Iterator[str], least: int) -> list[str]:
        """Passages with more than `least` tokens in all, counted one by one and joined: some tokenizers save a token at a joint."""
        found, total = list[str](), 0
        while total <= least or self.count(BETWEEN.join(map(self.passages.text, found))) <= least:
            found.append(next(drawn))
            total += self._length(found[-1])
        return found

    def _draw(self, pool: Sequence[str], sources: set[str]) -> Iterator[str]:
        """Random passages: none twice, none from the documents `sources`, none too short or too long (rejection sampling)."""
        seen: set[str] = set()
        rejected = 0
        while rejected < REJECTIONS:
            passage = self.rng.choice(pool)
            shortest, longest = self.settings.shortest_passage, self.settings.longest_passage
            fits = shortest <= self._length(passage) <= longest
            if passage in seen or not fits or self.passages.source(passage) in sources:
                rejected += 1
                continue
            rejected = 0
            seen.add(passage)
            yield passage
        raise CollectionError(self._too_few(len(pool)))

    def _length(self, passage: str) -> int:
        if passage not in self._tokens:
            self._tokens[passage] = self.count(self.passages.text(passage))
        return self._tokens[passage]

    def _too_few(self, fillers: int) -> str:
        return (
            f"{self.passages.collection.path}: split {self.name} has {fillers:,} passages relevant for none of its queries, "
            f"too few to fill a document: ask for fewer queries ({self.name}=NUMBER), or take shorter documents"
        )
