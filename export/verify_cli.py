"""keyblock-verify."""

import argparse
import json
import os
from collections.abc import Sequence
from pathlib import Path

from export.options import ImportOptions
from keyblock.client import Client, KeyBlockError
from training.commands.command import count, make_parser, quiet_transformers, run, say_for

API_KEY = "KEYBLOCK_API_KEY"
LEAST_PAIRS = 2  # with fewer, scores cannot differ from each other
SECONDS = 600.0  # the timeout of a request: for models of half a billion weights on few cores


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = make_parser("keyblock-verify", "Prove that a running service gives the scores of the model that it was imported from.")
    made.add_argument("bundle", type=Path, help="the bundle that is served")
    made.add_argument("--url", required=True, help=f"the service, like http://127.0.0.1:8000; its key is in {API_KEY}")
    made.add_argument("--model", required=True, help="the checkpoint: a directory, or a name on the hub")
    made.add_argument("--pairs", type=_pairs, default=ImportOptions.pairs, help="pairs of a query and a text (%(default)s)")
    made.add_argument("--template", help="as at keyblock-import")
    made.add_argument("--yes", help="as at keyblock-import")
    made.add_argument("--no", help="as at keyblock-import")
    made.add_argument("--trust-remote-code", action="store_true", help="run Python code that comes with the checkpoint")
    return made


def _pairs(text: str) -> int:
    if (number := count(text)) < LEAST_PAIRS:
        raise argparse.ArgumentTypeError(f"{number} pair proves nothing: {LEAST_PAIRS} or more")
    return number


def main(arguments: Sequence[str] | None = None) -> int:
    """Verify a service."""
    return run(_verify, parser(), arguments, RuntimeError, KeyBlockError)  # ExportError among them


def _verify(given: argparse.Namespace) -> None:
    from export.certificate import in_words, verify  # imports PyTorch, which takes seconds
    from keyblock.bundle import load_bundle

    quiet_transformers()
    say = say_for("keyblock-verify")
    name = load_bundle(given.bundle).manifest.name
    options = ImportOptions(
        pairs=given.pairs, template=given.template, yes=given.yes, no=given.no, trust_remote_code=given.trust_remote_code
    )

    def ask(query: str, texts: Sequence[str], longest: int) -> list[float]:
        answer = client.rerank(
            query, texts, raw_scores=True, max_tokens_per_doc=longest, model=name, strict=True, return_blocks=False
        )
        scores = {result.index: result.relevance_score for result in answer.results}
        return [scores[number] for number in range(len(texts))]

    def precision() -> str:
        return next(str(model["precision"]) for model in client.info()["models"] if model["model"] == name)

    with Client(given.url, api_key=os.environ.get(API_KEY), timeout=SECONDS) as client:
        found = verify(given.bundle, given.model, ask, options, precision, say)
        print(json.dumps(found, indent=2), flush=True)
        say(f"OK: raw scores {in_words(found)}")
