"""Descriptions that cannot be meant, each refused in a line."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from training.data.collection import Collection
from training.data.types import CollectionError


@pytest.mark.parametrize(
    ("changes", "behind", "said"),
    [
        ({"documents": 7}, "", "documents"),
        ({"nmae": "x"}, "", "nmae: Extra inputs are not permitted"),
        ({"name": "a/b"}, "", "name: String should match"),
        ({"folds": 3}, "", "its folds need the split 'all'"),
        ({"folds": ["a", "b", "c"]}, "", "its folds need the split 'a'"),
        ({"folds": 2, "splits": {"all": "x"}}, "", "2 folds are too few"),
        ({"folds": 3, "splits": {"all": "x"}}, "#4", "there is no such fold; there are 3"),
        ({}, "#1", "there is no such fold; there are 0"),
        ({}, "#two", "behind the # stands the number of a fold"),
    ],
)
def test_descriptions_that_mean_nothing(
    describe: Callable[..., Collection], changes: dict[str, Any], behind: str, said: str
) -> None:
    with pytest.raises(CollectionError) as caught:
        describe(behind, **changes)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_files_that_are_no_description(tmp_path: Path) -> None:
    with pytest.raises(
        CollectionError, match=r"nowhere\.yaml: no such file, here or among those that come along \(.*robust04\.yaml"
    ):
        Collection(tmp_path / "nowhere.yaml")
    (tmp_path / "bad.yaml").write_text("a: [", encoding="utf-8")
    with pytest.raises(CollectionError, match=r"bad\.yaml: cannot be read as YAML"):
        Collection(tmp_path / "bad.yaml")
