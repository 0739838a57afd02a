"""KeyBlock's performance targets with their verdicts, and the comparison of a run with the published record."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.performance import LONGEST
from benchmarks.performance.record import Record

Part = Mapping[str, Any]
Row = Mapping[str, Any]
SLACK = 0.01  # change of a ratio that means nothing, however small the ratio is


@dataclass(frozen=True)
class Target:
    """A bound on a figure.

    Attributes:
        name: name on the page.
        part: part that measures the figure.
        bound: upper or lower bound of the figure.
        value: computes the figure; None if the part does not have it.
        most: whether the bound is an upper bound.
        aim: a better figure to aim at.
        unit: `x` for ratios, `%` for shares, `s` for seconds.
    """

    name: str
    part: str
    bound: float
    value: Callable[[Part], float | None]
    most: bool = False
    aim: float | None = None
    unit: str = "x"

    def met(self, value: float) -> bool:
        """Whether a figure keeps the bound."""
        return value <= self.bound if self.most else value >= self.bound

    def verdict(self, value: float) -> str:
        """Passed, or missed and by what share of the bound."""
        if not self.met(value):
            return f"**missed** by {abs(value / self.bound - 1):.0%}"
        if self.aim is not None and not (value <= self.aim if self.most else value >= self.aim):
            return f"passed; the aim is {in_words(self.aim, self.unit)}"
        return "passed"


def in_words(value: float, unit: str) -> str:
    """A figure with its unit."""
    return {"%": f"{value:.1%}", "s": f"{value:.2f} s"}.get(unit, f"{value:.2f}")


def pace(row: Row) -> float:
    """Documents a second."""
    return float(row["documents"] / row["seconds"]["median"])


def ours(part: Part, tokens: int | None) -> Row | None:
    """KeyBlock's row with that budget; None: the bundle's own budget."""
    return next((row for row in part["rows"] if row["ours"] and row["tokens"] == tokens), None)


def fastest_default(part: Part) -> Row | None:
    """The fastest peer among those in their default set-up."""
    return max((row for row in part["rows"] if row["default"] and not row["ours"]), key=pace, default=None)


def fastest(part: Part) -> Row | None:
    """The fastest peer in any set-up."""
    return max((row for row in part["rows"] if not row["ours"]), key=pace, default=None)


def gain(tokens: int | None) -> Callable[[Part], float | None]:
    """KeyBlock's documents a second divided by those of the fastest peer in its default set-up."""

    def value(part: Part) -> float | None:
        mine, theirs = ours(part, tokens), fastest_default(part)
        return None if mine is None or theirs is None else pace(mine) / pace(theirs)

    return value


def stage_row(part: Part, tokens: int | None, seen: str) -> Row | None:
    """KeyBlock's row in the part `stages`."""
    return next((row for row in part["rows"] if row["tokens"] == tokens and row["seen"] == seen), None)


def before_model(seen: str) -> Callable[[Part], float | None]:
    """The share of a request's time before the model, at 512 tokens."""

    def value(part: Part) -> float | None:
        row = stage_row(part, LONGEST, seen)
        return None if row is None else float(row["share_before"])

    return value


def best_peak(part: Part) -> float:
    """The highest rate of any matrix product in the run of this part, in operations a second; 0 if none was measured."""
    return max(part.get("peaks", {}).values(), default=0.0)


def over_limit(part: Part) -> float | None:
    """Seconds in the model divided by the arithmetic limit, at 512 tokens, cold."""
    row = stage_row(part, LONGEST, "cold")
    return None if row is None or not best_peak(part) else row["stages"]["model"] * best_peak(part) / row["operations"]


def client_share(part: Part) -> float | None:
    """Documents a second of the most clients divided by those of one batch."""
    rates = part["documents_a_second"]
    return float(rates[f"{part['clients']} clients"]["median"] / rates["one batch"]["median"])


def growth(part: Part) -> float | None:
    """Resident memory after the last request divided by that after the first ones."""
    return float(part["resident_last"] / part["resident_first"])


def lengthening(part: Part) -> float | None:
    """Seconds with the longest documents divided by those with the shortest."""
    seconds = {int(words): spread["median"] for words, spread in part["seconds"].items()}
    return float(seconds[max(seconds)] / seconds[min(seconds)])


TARGETS = (
    Target("throughput at 512 tokens, over the faster peer's", "throughput", 3.2, gain(512), aim=4.0),
    Target("throughput at 256 tokens", "throughput", 6.0, gain(256)),
    Target("throughput at 128 tokens", "throughput", 12.0, gain(128)),
    Target("throughput at the default budget", "throughput", 6.0, gain(None)),
    Target("before the model, documents never seen", "stages", 0.05, before_model("cold"), most=True, unit="%"),
    Target("before the model, documents seen before", "stages", 0.01, before_model("warm"), most=True, unit="%"),
    Target("model time over the arithmetic limit", "stages", 5.0, over_limit, most=True, aim=3.0),
    Target("32 clients of 10 documents, over one batch", "concurrency", 0.9, client_share),
    Target("memory after ten times the requests, over that before", "memory", 1.05, growth, most=True),
    Target("start to ready", "start", 3.0, lambda part: float(part["seconds"]["median"]), most=True, unit="s"),
    Target("20,000 words a document, over 2,000", "length", 1.5, lengthening, most=True),
)


def figures(record: Record) -> dict[str, tuple[float, bool]]:
    """Every ratio that can be compared between runs, and whether less is better. Absolute seconds cannot."""
    found = {}
    for target in TARGETS:
        part = record["parts"].get(target.part)
        value = None if part is None else target.value(part)
        if value is not None and target.unit != "s":
            found[target.name] = (value, target.most)
    return found | peer_figures(record["parts"].get("throughput"))


def peer_figures(part: Part | None) -> dict[str, tuple[float, bool]]:
    """KeyBlock's pace at 512 tokens divided by each peer's."""
    mine = None if part is None else ours(part, LONGEST)
    if part is None or mine is None:
        return {}
    return {f"512 tokens over {row['name']}": (pace(mine) / pace(row), False) for row in part["rows"] if not row["ours"]}


def regressions(new: Record, old: Record, tolerance: float) -> list[str]:
    """A line for each ratio that is worse than the recorded one by more than the tolerance, in parts with the same sizes."""
    same = [name for name, part in new["parts"].items() if same_sizes(part, old["parts"].get(name))]
    now, before = (figures({**record, "parts": {name: record["parts"][name] for name in same}}) for record in (new, old))
    lines = []
    for name in [name for name in now if name in before]:
        (value, less), (recorded, _) = now[name], before[name]
        room = recorded * tolerance + SLACK
        if (value - recorded if less else recorded - value) > room:
            lines.append(f"{name}: {value:.3f}, recorded {recorded:.3f}")
    return lines


def same_sizes(part: Part, other: Part | None) -> bool:
    """Whether two measurements of a part can be compared."""
    return other is not None and all(part["run"][key] == other["run"][key] for key in ("sizes", "texts"))


def comparable(new: Record, old: Record) -> str:
    """Why the ratios of two records cannot be compared; empty if they can."""
    if not old["parts"]:
        return "nothing is recorded yet"
    different = [key for key in ("cpu", "bf16", "threads") if new["machine"].get(key) != old["machine"].get(key)]
    if different:
        return f"what is recorded was measured on another machine ({', '.join(str(old['machine'].get(key)) for key in different)})"
    if not any(same_sizes(part, old["parts"].get(name)) for name, part in new["parts"].items()):
        return "nothing of the same sizes and texts is recorded"
    return ""


def verdicts(record: Record) -> Sequence[tuple[Target, float | None]]:
    """Each target with its figure; None if it was not measured."""
    parts = record["parts"]
    return [(target, target.value(parts[target.part]) if target.part in parts else None) for target in TARGETS]
