"""keyblock-promise."""

import argparse
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from keyblock.cascade import Cascade, Promise
from training.commands.command import count, make_parser, quiet_transformers, run

if TYPE_CHECKING:
    from training.data.examples import Preparation
    from training.evaluate.calibration.promise import Request

SHARES = (0.15, 0.2, 0.25, 0.3, 0.5)  # shares of a request's documents read, for which the table shows how many are missed


def main(arguments: Sequence[str] | None = None) -> int:
    """Learn the promise of a bundle's cascade."""
    parser = make_parser(
        "keyblock-promise",
        "Learn from judged queries what a document promises before the model reads it, and write it into the cascade of a copy of "
        "the bundle; print the share of relevant candidates that a cascade of each size would spare the model. No model is run.",
    )
    parser.add_argument("--bundle", type=Path, required=True, help="a bundle, exported or imported: it stays as it is")
    parser.add_argument("--out", type=Path, required=True, help="where the copy goes: a new or empty directory")
    parser.add_argument("--collection", type=Path, action="append", required=True, help="a collection directory; may be repeated")
    parser.add_argument("--split", default="train", help="whose queries teach (%(default)s)")
    parser.add_argument("--measured", default="dev", help="the split that is measured (%(default)s)")
    parser.add_argument("--queries", type=count, default=1000, help="queries of a collection and split at most (%(default)s)")
    parser.add_argument("--depth", type=count, default=100, help="candidates of a query (%(default)s)")
    parser.add_argument(
        "--share", type=float, help="of a request's documents that the model shall read; the bundle's when left out"
    )
    return run(_learn, parser, arguments)


def _learn(options: argparse.Namespace) -> None:
    from keyblock.description import PipelineConfig
    from training.data.collection import Collection, distinct_names
    from training.data.examples import Preparation
    from training.evaluate.calibration.promise import fit_promise, fusion_promise
    from training.evaluate.calibration.systems import CalibratedBundle

    quiet_transformers()
    system = CalibratedBundle(options.bundle, options.out)
    config = system.pipeline.config
    cascade = _cascade(config.cascade or Cascade(), options.share)
    collections = [Collection(path) for path in options.collection]
    names, bar = distinct_names(collections), cascade.reads(options.depth)
    preparations = [Preparation(collection, system.pipeline) for collection in collections]
    train = [_requests(one, options.split, options) for one in preparations]
    promise = fit_promise(train, bar)
    learned = {"cascade": cascade.model_copy(update={"promise": promise}).model_dump()}
    config_with = PipelineConfig.model_validate(config.model_dump() | learned)
    system.write(
        config_with, {"promise": {"split": options.split, "bar": bar, "queries": dict(zip(names, map(len, train), strict=True))}}
    )
    fusion = fusion_promise(config.fusion)
    promises = {
        label: [combination] * len(names)
        for label, combination in {"the fusion's": [fusion], "learned": [promise], "both": [promise, fusion]}.items()
    }
    if len(names) > 1:
        with suppress(ValueError):  # the requests of the other collections may be too few
            promises["both, learned without it"] = [
                [fit_promise(train[:n] + train[n + 1 :], bar), fusion] for n in range(len(names))
            ]
    measured = [_requests(one, options.measured, options) for one in preparations]
    print(promise.model_dump_json(), _table(dict(zip(names, measured, strict=True)), promises), sep="\n\n")


def _cascade(cascade: Cascade, share: float | None) -> Cascade:
    """The cascade with this share, or unchanged for None. Raises ValueError for a share outside of 0 to 1."""
    if share is not None and not 0 < share <= 1:
        raise ValueError(f"--share must be above 0 and at most 1, not {share:g}")
    return cascade if share is None else cascade.model_copy(update={"share": share})


def _requests(preparation: "Preparation", split: str, options: argparse.Namespace) -> "list[Request]":
    from training.data.first_stage import first_stage_run
    from training.evaluate.calibration.promise import read_requests
    from training.evaluate.evaluate import sample

    run = first_stage_run(preparation.collection, split, options.depth)
    return read_requests(preparation, sample(sorted(run), options.queries), run, options.depth)


def _table(measured: "Mapping[str, list[Request]]", promises: Mapping[str, Sequence[Sequence[Promise]]]) -> str:
    """The shares of relevant candidates missed: a row for each collection and promise, a column for each share of SHARES."""
    from training.evaluate.calibration.promise import missed
    from training.evaluate.tables import markdown

    head = ["relevant candidates missed", "queries", "promise", *(f"{share:.0%} read" for share in SHARES)]
    rows = [
        [
            name,
            f"{len(requests)}",
            label,
            *(f"{missed(requests, by_collection[number], cascade_of(share)):.2%}" for share in SHARES),
        ]
        for number, (name, requests) in enumerate(measured.items())
        for label, by_collection in promises.items()
    ]
    return markdown([head, *rows])


def cascade_of(share: float) -> Cascade:
    """A cascade that reads this share of the documents, and at least one document for each result."""
    return Cascade(share=share, per_result=1, least=1)


if __name__ == "__main__":
    sys.exit(main())
