"""KeyBlock's targets, with what a record says of them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from benchmarks.harness import Record, Row, tables
from training.evaluate.tables import markdown

Figure = Callable[[list[Row]], float]  # found in a part's rows


@dataclass(frozen=True)
class Target:
    """A bound on a figure of a part; `most`: it is an upper bound; unit x, % or s."""

    name: str
    part: str
    bound: float
    value: Figure
    most: bool = False
    unit: str = "x"

    def row(self, parts: Mapping[str, Record]) -> list[str]:
        """The target, its bound, what was measured and the verdict: passed, or missed and by what share of the bound."""
        said = [self.name, f"at {'most' if self.most else 'least'} {self._in_words(self.bound)}"]
        try:
            value = self.value(parts[self.part]["rows"])
        except (KeyError, ValueError, StopIteration, IndexError):
            return [*said, "not measured", ""]
        met = value <= self.bound if self.most else value >= self.bound
        return [*said, f"**{self._in_words(value)}**", "passed" if met else f"**missed** by {abs(value / self.bound - 1):.0%}"]

    def _in_words(self, value: float) -> str:
        return {"%": f"{value:.1%}", "s": f"{value:.2f} s"}.get(self.unit, f"{value:.2f}")


def seconds_of(row: Row) -> float:
    """The median of a row's seconds."""
    return float(row["seconds"]["median"])


def own(rows: list[Row], tokens: int | None) -> float:
    """KeyBlock's seconds with that budget."""
    return next(seconds_of(row) for row in rows if row.get("tokens", 0) == tokens and row["system"].startswith("KeyBlock"))


def peers(rows: list[Row], *, default: bool) -> list[float]:
    """The seconds of the peers, or of those in their default set-up."""
    ranked = [row for row in rows if "seconds" in row and not row["system"].startswith("KeyBlock")]
    return [seconds_of(row) for row in ranked if row["set-up"] == "default" or not default]


def gain(tokens: int | None) -> Figure:
    """How many times as fast as the fastest default peer KeyBlock is with that budget."""
    return lambda rows: min(peers(rows, default=True)) / own(rows, tokens)


def before_model(seen: str) -> Figure:
    """The share of a request's time before the model, at the longest budget."""
    return lambda rows: next(float(row["before the model"]) for row in rows if row["tokens"] and row["seen"] == seen)


TARGETS = (
    Target("throughput at 512 tokens, over the faster peer's", "throughput", 3.2, gain(512)),
    Target("throughput at 256 tokens", "throughput", 6.0, gain(256)),
    Target("throughput at 128 tokens", "throughput", 12.0, gain(128)),
    Target("throughput at the default budget", "throughput", 6.0, gain(None)),
    Target("before the model, documents never seen", "stages", 0.05, before_model("cold"), most=True, unit="%"),
    Target("before the model, documents seen before", "stages", 0.01, before_model("warm"), most=True, unit="%"),
    Target(
        "32 clients of 10 documents, over one batch",
        "concurrency",
        0.9,
        lambda rows: next(float(row["over one batch"]) for row in rows if row["who"] == "32 clients"),
    ),
    Target("start to ready", "start", 3.0, lambda rows: seconds_of(rows[0]), most=True, unit="s"),
    Target("20,000 words a document, over 2,000", "length", 1.5, lambda rows: seconds_of(rows[1]) / seconds_of(rows[0]), most=True),
)


def targets(record: Record) -> list[list[str]]:
    """A row for each target."""
    return [target.row(record["parts"]) for target in TARGETS]


def report(record: Record) -> str:
    """The whole report in Markdown."""
    return f"## Targets\n\n{markdown([['target', 'bound', 'measured', 'verdict'], *targets(record)])}\n\n{tables(record)}"
