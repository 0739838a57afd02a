"""What is measured, in the order of its worth, and what of it fits into the time there is."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

SHARE_OVER = 1.5  # a part that takes longer than this times its minutes is ended, for the sake of those behind it


@dataclass(frozen=True)
class Part:
    """Something that is measured, in a process of its own.

    Attributes:
        name: of its record.
        title: of its section on the page.
        minutes: that it is expected to take on a data-centre GPU.
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
    """Where parts are measured."""

    def done(self, part: Part) -> bool:
        """Whether it was measured before."""

    def tried(self, part: Part) -> bool:
        """Whether that was tried, and failed or was cut off."""

    def missing(self, part: Part) -> Sequence[str]:
        """Modules that it needs and that are not installed."""

    def leave_out(self, part: Part, why: str) -> None:
        """Note that it was not measured."""

    def measure(self, part: Part, seconds: float) -> None:
        """Measure it in at most so many seconds; what goes wrong is noted, not raised."""


def measure_all(parts: Sequence[Part], minutes: float, lab: Lab, clock: Callable[[], float] = time.monotonic) -> None:
    """Measure what was not, as far as time goes: parts that failed come last, one that would not fit is left out for the next."""
    until = clock() + 60 * minutes
    for part in sorted((one for one in parts if not lab.done(one)), key=lab.tried):
        left = until - clock()
        if missing := lab.missing(part):
            lab.leave_out(part, f"it needs {', '.join(missing)}, not installed there")
        elif 60 * part.minutes > left:
            lab.leave_out(part, f"it may take {part.minutes:g} minutes, and {max(left, 0) / 60:.1f} were left")
        else:
            lab.measure(part, min(left, SHARE_OVER * 60 * part.minutes))
