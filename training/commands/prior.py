"""keyblock-prior."""

import argparse
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from keyblock.pre_ranking import PreRanking, Prior
from training.commands.command import count, make_parser, quiet_transformers, run

if TYPE_CHECKING:
    from training.data.examples import Preparation
    from training.evaluate.calibration.prior import Request

SHARES = (0.15, 0.2, 0.25, 0.3, 0.5)  # shares of a request's documents read, for which the table shows how many are missed


def main(arguments: Sequence[str] | None = None) -> int:
    """Learn the prior score of a bundle's pre-ranking."""
    parser = make_parser(
        "keyblock-prior",
        "Learn from judged queries a document's prior score, before the model reads it, and write it into the pre-ranking of a "
        "copy of the bundle; print the share of relevant candidates that a pre-ranking of each size would skip. No model is run.",
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
    from training.evaluate.calibration.prior import fit_prior, fusion_prior
    from training.evaluate.calibration.systems import CalibratedBundle

    quiet_transformers()
    system = CalibratedBundle(options.bundle, options.out)
    config = system.pipeline.config
    pre_ranking = _pre_ranking(config.pre_ranking or PreRanking(), options.share)
    collections = [Collection(path) for path in options.collection]
    names, bar = distinct_names(collections), pre_ranking.reads(options.depth)
    preparations = [Preparation(collection, system.pipeline) for collection in collections]
    train, measured = ([_requests(one, split, options) for one in preparations] for split in (options.split, options.measured))
    prior = fit_prior(train, bar)
    learned = {"pre_ranking": pre_ranking.model_copy(update={"prior": prior}).model_dump()}
    config_with = PipelineConfig.model_validate(config.model_dump() | learned)
    system.write(
        config_with, {"prior": {"split": options.split, "bar": bar, "queries": dict(zip(names, map(len, train), strict=True))}}
    )
    fusion = fusion_prior(config.fusion)
    priors = {
        label: [combination] * len(names)
        for label, combination in {"the fusion's": [fusion], "learned": [prior], "both": [prior, fusion]}.items()
    }
    if len(names) > 1:
        with suppress(ValueError):  # the requests of the other collections may be too few
            priors["both, learned without it"] = [[fit_prior(train[:n] + train[n + 1 :], bar), fusion] for n in range(len(names))]
    print(prior.model_dump_json(), _table(dict(zip(names, measured, strict=True)), priors), sep="\n\n")


def _pre_ranking(pre_ranking: PreRanking, share: float | None) -> PreRanking:
    """The pre-ranking with this share, or unchanged for None. Raises ValueError for a share outside of 0 to 1."""
    if share is not None and not 0 < share <= 1:
        raise ValueError(f"--share must be above 0 and at most 1, not {share:g}")
    return pre_ranking if share is None else pre_ranking.model_copy(update={"share": share})


def _requests(preparation: "Preparation", split: str, options: argparse.Namespace) -> "list[Request]":
    from training.evaluate.calibration.prior import read_requests
    from training.evaluate.evaluate import sampled_run

    return read_requests(preparation, sampled_run(preparation.collection, split, options.queries, options.depth))


def _table(measured: "Mapping[str, list[Request]]", priors: Mapping[str, Sequence[Sequence[Prior]]]) -> str:
    """The shares of relevant candidates missed: a row for each collection and prior score, a column for each share of SHARES."""
    from training.evaluate.calibration.prior import missed
    from training.evaluate.tables import markdown

    at = [PreRanking(share=share, per_result=1, least=1) for share in SHARES]
    rows = [
        [name, f"{len(requests)}", label, *(f"{missed(requests, by_collection[number], one):.2%}" for one in at)]
        for number, (name, requests) in enumerate(measured.items())
        for label, by_collection in priors.items()
    ]
    return markdown([["relevant candidates missed", "queries", "prior", *(f"{share:.0%} read" for share in SHARES)], *rows])
