"""Documents whose one relevant passage never stands at the beginning, among random passages: MS MARCO FarRelevant.

Boytsov et al., "Understanding Performance of Long-Document Ranking Models through Comprehensive Evaluation and Leaderboarding",
section 2.2 and appendix B.1. With C tokens in the relevant passage, a document is made so:

1. Draw a length L between 512 + C and 1431 tokens.
2. Draw passages that are not relevant until together they have more than 512 tokens: the head.
3. Draw more while all of them have at most L - C tokens (the first that does not fit is discarded), mix these with the relevant
   passage, and append the mix to the head.

`Settings.behind` adds a fourth step, which is not the paper's: passages behind all this, until they have more tokens than that.
"""

import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from training.collections.passages import Gold, Passages
from training.collections.types import CollectionError, Document, Span

BETWEEN = "\n\n"
REJECTIONS = 1000  # in a row, until a split counts as one with too few passages
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
        passages: their texts in order.
        gold: which of them is relevant, from 0.
        fillers: ids of the others.
    """

    doc_id: str
    query_id: str
    passages: tuple[str, ...]
    gold: int
    fillers: tuple[str, ...]

    @property
    def document(self) -> Document:
        """Without a title."""
        return Document(self.doc_id, "", BETWEEN.join(self.passages))

    @property
    def span(self) -> Span:
        """Where the relevant passage stands."""
        start = sum(len(text) + len(BETWEEN) for text in self.passages[: self.gold])
        return Span(self.doc_id, start, start + len(self.passages[self.gold]))


@dataclass(frozen=True)
class FarSplit:
    """The documents of a split.

    Attributes:
        queries: in the split's order.
        documents: one a query, in the order of their ids, which says nothing.
        pool: how many passages the fillers were drawn from.
        left_out: how many queries have no document, by the reason.
    """

    name: str
    queries: list[str]
    documents: list[FarDocument]
    pool: int
    left_out: Mapping[str, int]


def make_splits(passages: Passages, splits: Mapping[str, int | None], count: Count, settings: Settings) -> list[FarSplit]:
    """The documents of each split; a split whose wanted number is 0 keeps its passages from the others, and gets none.

    No two splits share a source document. One that is relevant in two splits belongs to the one that is named first; those
    relevant in none are dealt at random, in proportion to the wanted queries.

    Args:
        splits: how many queries are wanted, by split; None for as many as possible.
        count: of tokens; the start is kept for this tokenizer.

    Raises CollectionError for a split without a query, or with too few passages to fill a document, for two splits of one run, and
    where every split has the number 0.
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
    for name, of_split in queries.items():
        for source in (source for query in of_split for source in passages.sources(query)):
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
        """What the split is called in the new collection: `dev` for `dev.small`, whose run would be that of `dev`."""
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
        """Queries in random order with the passage that each document is made for; and why others were left out.

        No passage is relevant for two of them: each document then holds exactly one that is relevant for any of them.
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
        texts = (*map(self.passages.text, before), gold.text, *map(self.passages.text, after))
        return FarDocument(doc_id, query, texts, len(before), (*before, *after))

    def _fill(self, drawn: Iterator[str], least: int) -> list[str]:
        """Passages until they have more than `least` tokens, each by itself and joined: joints may cost some tokenizers a token."""
        found, total = list[str](), 0
        while total <= least or self.count(BETWEEN.join(map(self.passages.text, found))) <= least:
            found.append(next(drawn))
            total += self._length(found[-1])
        return found

    def _draw(self, pool: Sequence[str], sources: set[str]) -> Iterator[str]:
        """Passages at random, none twice, none of these documents, none too short or too long (rejection sampling)."""
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
