"""What a plan says, and that it downloads nothing."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lab.plan import plan_parts
from tests.training.collections.descriptions import BASIC
from training.data.collection import Collection
from training.data.descriptions import PACKAGED
from training.data.types import CollectionError


def test_a_plan_says_what_is_read_and_what_is_to_be_brought(describe: Callable[..., Collection], files: Path) -> None:
    documents, train = plan_parts(describe().parts, ["train"]).reads
    assert documents == "documents: trec files documents.sgml.gz"
    assert train == "split train: queries topics.txt; judgements qrels.txt; candidates: the best 3 of run.trec"
    assert plan_parts(describe().parts, ["train"]).missing == []
    (files / "run.trec").unlink()
    (files / "documents.sgml.gz").unlink()
    assert plan_parts(describe().parts, ["train"]).missing == [str(files / "run.trec"), str(files / "documents.sgml.gz")]


def test_a_plan_says_what_its_data_set_lacks(data_set: str, describe: Callable[..., Collection]) -> None:
    collection = Collection(Path(f"ir_datasets:{data_set}"))
    assert plan_parts(collection.parts, ["train"]).reads[-1].endswith("candidates: the best 100 of its scoreddocs (?)")
    with pytest.raises(CollectionError, match=f"{data_set}/dev has no scoreddocs; name a TREC run"):
        plan_parts(collection.parts, ["dev"])
    with pytest.raises(CollectionError, match=rf"ir_datasets:{data_set} has no split 'test'; it has dev, gold, train"):
        collection.split("test")
    with pytest.raises(CollectionError, match=f"{data_set}/gold has no queries"):
        plan_parts(describe(documents=data_set, splits={"train": f"{data_set}/gold"}).parts, ["train"])
    with pytest.raises(CollectionError, match=r"its queries have no field 'description'; they have query_id, text"):
        plan_parts(describe(documents=data_set, splits={"train": f"{data_set}/train"}, field="description").parts, ["train"])


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"candidates": "scoreddocs"}, "TREC files have no scoreddocs; name a TREC run"),
        ({"splits": {"train": {"qrels": "qrels.txt"}}}, "a split needs datasets, or files of queries and of qrels"),
    ],
)
def test_what_cannot_be_planned(describe: Callable[..., Collection], changes: dict[str, Any], said: str) -> None:
    with pytest.raises(CollectionError, match=said):
        plan_parts(describe(**changes).parts, ["train"])


def test_a_round_of_cross_validation(describe: Callable[..., Collection], files: Path) -> None:
    part = BASIC["splits"]["train"]
    plan = plan_parts(describe("#2", folds=list("abcd"), splits=dict.fromkeys("abcd", part)).parts, ["train", "dev"])
    assert "split train: round 2 of 4, of a, d" in plan.reads
    assert [line.partition(":")[0] for line in plan.reads[-3:]] == ["split a", "split d", "split c"]


@pytest.mark.parametrize("path", sorted(PACKAGED.glob("*.yaml")), ids=lambda path: path.stem)
def test_the_collections_of_the_papers(path: Path) -> None:
    """Their names resolve in ir_datasets, without a download; what has no candidates there names a run to bring."""
    plan = plan_parts(Collection(Path(path.name)).parts, ["train", "dev", "test"])
    assert "documents: " in plan.reads[0]
    assert all(line.startswith(("split ", "gold passages: ")) for line in plan.reads[1:])
    assert all(name.endswith(".trec.gz") for name in plan.missing)
