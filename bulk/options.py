"""The options of keyblock-bulk: each has a type, a default and a meaning. The command line is made from them."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic.fields import FieldInfo

from bulk.errors import BulkError
from keyblock import __version__
from keyblock.flags import add_flag, flag
from keyblock.ranking.spans import THRESHOLD
from keyblock.runtime.providers import Precision, Provider

PROGRAM = "keyblock-bulk"
ABOUT = "Re-rank candidate lists with a bundle. To continue a stopped job, run the same command again. See docs/models/bulk.md."


class Asking(BaseModel):
    """The options that decide the answers, to the byte. One output directory never mixes shards of two different `Asking`."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    top_n: int = Field(0, ge=0, description="results per query, best first; 0: all")
    blocks: bool = Field(False, description="write the blocks of each document that the model read")
    spans: bool = Field(False, description="write the sentences that answer")
    span_threshold: float = Field(THRESHOLD, ge=0, le=1, description="the probability that a sentence of a span must reach")
    understand: bool = Field(
        False,
        description="let the bundle's sentence encoder read each document, so that queries find what it says in other words; that "
        "takes longer than the ranking of a few lists",
    )
    max_tokens_per_doc: int | None = Field(None, ge=1, description="limit on the tokens of a sequence; the bundle's own by default")
    fusion: str | None = Field(
        None, description="name of a fusion, which orders by the model and the first stage together; the bundle's own by default"
    )
    provider: Provider = Field(Provider.AUTO, description="where the model runs")
    precision: Precision = Field(Precision.AUTO, description="the model's arithmetic")
    threads: int = Field(1, ge=1, description="compute threads of each worker")
    shard_pairs: int = Field(
        2000, ge=1, description="pairs of query and document in a shard; a stopped job continues with the shards that are not done"
    )


class Options(Asking):
    """All options of the command."""

    lists: tuple[Path, ...] = Field((), description="candidate lists: Parquet or JSON lines, gzipped or not; may be repeated")
    run: Path | None = Field(None, description="candidate lists as a TREC run, whose texts are in the collection")
    collection: Path | None = Field(None, description="directory with corpus.jsonl and queries.jsonl, gzipped or not")
    bundle: Path = Field(description="directory of a bundle")
    out: Path = Field(description="directory for the rankings; all workers must see it")
    engine: Literal["local", "ray"] = Field("local", description="engine that runs the workers")
    workers: int | None = Field(None, ge=1, description="worker processes; by default as many as the CPUs allow")
    address: str | None = Field(None, description="address of a Ray cluster; by default Ray starts one on this machine")
    gpus: float = Field(0.0, ge=0, description="GPUs that Ray reserves for a scoring worker; 0.5: two share one")
    attempts: int = Field(3, ge=1, description="times that a shard is tried when its worker dies")
    keep_work: bool = Field(False, description="keep OUT/work, the prepared documents, when the job is done")

    @model_validator(mode="after")
    def _one_input(self) -> Self:
        if bool(self.lists) == (self.run is not None):
            raise ValueError("name the candidate lists: --lists FILE, or --run FILE with --collection DIR; one of both")
        if self.run is not None and self.collection is None:
            raise ValueError("a TREC run has no texts: name the directory that has them with --collection")
        if self.address is not None and self.engine != "ray":
            raise ValueError("--address is of a Ray cluster: add --engine ray")
        return self

    @property
    def asking(self) -> Asking:
        """The options that decide the answers."""
        return Asking(**self.model_dump(include=set(Asking.model_fields)))


def parser() -> argparse.ArgumentParser:
    """The command line's parser. It leaves defaults to `Options`."""
    made = argparse.ArgumentParser(prog=PROGRAM, description=ABOUT, argument_default=argparse.SUPPRESS)
    made.add_argument("--version", action="version", version=f"{PROGRAM} {__version__}")
    answers = made.add_argument_group("answers", "What is written for each list. One output directory holds one kind of answers.")
    job_options = [name for name in Options.model_fields if name not in Asking.model_fields]
    for name in (*job_options, *Asking.model_fields):
        _add(answers if name in Asking.model_fields else made, name, Options.model_fields[name])
    return made


def parse(arguments: Sequence[str]) -> Options:
    """Options from a command line. Exits at --help, --version and an unknown flag. Raises BulkError for an invalid value."""
    try:
        return Options(**vars(parser().parse_args(arguments)))
    except ValidationError as error:
        raise BulkError("; ".join(map(_problem, error.errors()))) from None


def _problem(problem: Any) -> str:
    message = problem["msg"].removeprefix("Value error, ")
    return f"{flag(str(problem['loc'][0]))}: {message}, and it is {problem['input']!r}" if problem["loc"] else message


def _add(group: argparse._ActionsContainer, name: str, field: FieldInfo) -> None:
    default = field.default
    shown = f" [default {default}]" if isinstance(default, str | int | float) and not isinstance(default, bool) else ""
    add_flag(group, name, field, f"{field.description}{shown}")
