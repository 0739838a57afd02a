"""The snippets of docs/use/clients.md, run as they stand there."""

import io
from contextlib import chdir, redirect_stdout

from running import ROOT

PAGE = (ROOT / "docs" / "use" / "clients.md").read_text(encoding="utf-8")
SERVED_AT = "http://127.0.0.1:8000"
START = "The documents"


def snippets() -> dict[str, str]:
    """The first Python below each heading of the third level."""
    sections = (section.partition("\n") for section in PAGE.split("\n### ")[1:])
    return {heading: text.split("```python\n")[1].split("```")[0] for heading, _, text in sections}


def run(heading: str, url: str) -> list[tuple[int, float]]:
    """What a snippet prints: the documents' numbers, best first, and their scores."""
    found = snippets()
    printed = io.StringIO()
    with chdir(ROOT), redirect_stdout(printed):
        code = (found[START] + found[heading]).replace(SERVED_AT, url)
        exec(compile(code, heading, "exec"), {"__name__": heading})
    lines = [line.split() for line in printed.getvalue().splitlines()]
    return [(int(number), float(score)) for number, score in lines]
