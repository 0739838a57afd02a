"""What a plan says, and that it downloads nothing."""

from collections.abc import Callable
from pathlib import Path

import pytest

from training.data.collection import Collection
from training.data.descriptions import PACKAGED
from training.data.types import CollectionError


def test_a_plan_says_what_is_read_and_what_is_to_be_brought(describe: Callable[..., Collection], files: Path) -> None:
    documents, train = describe().parts.plan(["train"]).reads
    assert documents == "documents: trec files documents.sgml.gz"
    assert train == "split train: queries topics.txt; judgements qrels.txt; candidates: the best 3 of run.trec"
    assert describe().parts.plan(["train"]).missing == []
    (files / "run.trec").unlink()
    (files / "documents.sgml.gz").unlink()
    assert describe().parts.plan(["train"]).missing == [str(files / "run.trec"), str(files / "documents.sgml.gz")]


def test_a_plan_says_what_its_data_set_lacks(data_set: str, describe: Callable[..., Collection]) -> None:
    collection = Collection(Path(f"ir_datasets:{data_set}"))
    assert collection.parts.plan(["train"]).reads[-1].endswith("candidates: the best 100 of its scoreddocs (?)")
    with pytest.raises(CollectionError, match=f"{data_set}/dev has no scoreddocs; name a TREC run"):
        collection.parts.plan(["dev"])
    with pytest.raises(CollectionError, match=rf"ir_datasets:{data_set} has no split 'test'; it has dev, gold, train"):
        collection.split("test")
    with pytest.raises(CollectionError, match=f"{data_set}/gold has no queries"):
        describe(documents=data_set, splits={"train": f"{data_set}/gold"}).parts.plan(["train"])
    with pytest.raises(CollectionError, match=r"its queries have no field 'description'; they have query_id, text"):
        describe(documents=data_set, splits={"train": f"{data_set}/train"}, field="description").parts.plan(["train"])


@pytest.mark.parametrize("path", sorted(PACKAGED.glob("*.yaml")), ids=lambda path: path.stem)
def test_the_collections_of_the_papers(path: Path) -> None:
    """Their names resolve in ir_datasets, without a download; what has no candidates there names a run to bring."""
    plan = Collection(Path(path.name)).parts.plan(["train", "dev", "test"])
    assert "documents: " in plan.reads[0]
    assert all(line.startswith(("split ", "gold passages: ")) for line in plan.reads[1:])
    assert all(name.endswith(".trec.gz") for name in plan.missing)
