"""The parts of the benchmark, most important first, and the choice of those that fit into the time."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

SHARE_OVER = 1.5  # a part that takes longer than this times its minutes is stopped, for the sake of later parts


@dataclass(frozen=True)
class Part:
    """A part of the benchmark, which runs in its own process.

    Attributes:
        name: name of its record.
        title: title of its section on the page.
        minutes: expected time on a data-centre GPU.
        needs: modules that must be installed.
    """

    name: str
    title: str
    minutes: float
    needs: tuple[str, ...]


CORE = ("Stemmer", "numpy", "onnx", "onnxruntime", "pydantic", "stopwordsiso", "tokenizers", "torch", "yaml")
GRAPHS = (*CORE, "transformers")
SERVICE = (
    *(*CORE, "dotenv", "fastapi", "fastapi_offline", "httpx", "lmdb", "orjson", "prometheus_client", "pydantic_settings"),
    *("pythonjsonlogger", "uvicorn", "zstandard"),
)
PARTS = (
    Part("device", "The GPU and its roofline", 1, ("numpy", "onnx", "onnxruntime", "torch")),
    Part("parity", "The same ranking in other arithmetic", 2, GRAPHS),
    Part("service", "The service over HTTP", 3, SERVICE),
    Part("minilm-l6", "MiniLM-L6 by budget and batch", 3, GRAPHS),
    Part("bert-base", "BERT-base by budget and batch", 3, GRAPHS),
    Part("xlm-r-base", "XLM-R-base by budget and batch", 4, GRAPHS),
    Part("servers", "Other servers, where they are installed", 3, (*GRAPHS, "httpx")),
    Part("compiled", "torch.compile", 3, GRAPHS),
    Part("tensorrt", "TensorRT", 3, (*GRAPHS, "tensorrt")),
)


class Lab(Protocol):
    """Measures parts and knows their records."""

    def done(self, part: Part) -> bool:
        """Whether the part is measured."""

    def tried(self, part: Part) -> bool:
        """Whether the part was tried, and failed or was cut off."""

    def missing(self, part: Part) -> Sequence[str]:
        """The part's modules that are not installed."""

    def leave_out(self, part: Part, why: str) -> None:
        """Note that the part is not measured, and why."""

    def measure(self, part: Part, seconds: float) -> None:
        """Measure the part in at most `seconds` seconds. A problem is noted, not raised."""


def measure_all(parts: Sequence[Part], minutes: float, lab: Lab, clock: Callable[[], float] = time.monotonic) -> None:
    """Measure the missing parts in the given time. Parts that failed come last. A part that does not fit is left out."""
    until = clock() + 60 * minutes
    for part in sorted((one for one in parts if not lab.done(one)), key=lab.tried):
        remaining = until - clock()
        if missing := lab.missing(part):
            lab.leave_out(part, f"it needs {', '.join(missing)}, not installed there")
        elif 60 * part.minutes > remaining:
            lab.leave_out(part, f"it may take {part.minutes:g} minutes, and {max(remaining, 0) / 60:.1f} were left")
        else:
            lab.measure(part, min(remaining, SHARE_OVER * 60 * part.minutes))
