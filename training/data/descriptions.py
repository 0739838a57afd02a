"""The YAML file that describes a collection of TREC files and of `ir_datasets` names.

::

    name: robust04
    documents: disks45/nocr                   # an ir_datasets name; or files: {path: documents/, format: trec}
    candidates: robust04.bm25.trec.gz         # a TREC run; scoreddocs: the data set's own; judged: the documents judged
    splits:
      train: {queries: {path: topics.txt}, qrels: qrels.train.txt}
      dev: disks45/nocr/trec-robust-2004/fold4
      all: [gov2/trec-tb-2004, gov2/trec-tb-2005]

A split that is not listed is looked up below `documents`: 'train' of msmarco-document is msmarco-document/train. `folds` names
splits, or says into how many folds the queries of the split `all` are dealt. Then train, dev and test are the splits of a round of
cross-validation: ``FILE#2`` tests on the second fold, validates on the third and trains on the others; FILE alone is the first
round. Paths are relative to the file.

A query without a relevant document among its judgements belongs to no split: it can be neither trained on nor measured.
"""

from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from training.data import datasets
from training.data.datasets import Files, Topics
from training.data.types import CollectionError

PACKAGED = Path(__file__).parent / "presets"
DESCRIPTION = "collection.yaml"
DATASETS = "ir_datasets:"  # in front of the name of a data set
SCORED, JUDGED, ALL = "scoreddocs", "judged", "all"


def _as_list(value: Any) -> Any:
    return (value,) if isinstance(value, str) else value


def _as_part(value: Any) -> Any:
    return {"datasets": value} if isinstance(value, str | list) else value


Names = Annotated[tuple[str, ...], BeforeValidator(_as_list)]


class Part(BaseModel):
    """Where the queries and judgements of a split come from. A file replaces what the data sets have."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    datasets: Names = Field((), description="ir_datasets names")
    queries: Topics | None = Field(None, description="a file of topics")
    qrels: str | None = Field(None, description="a file of TREC judgements")
    candidates: str | None = Field(None, description="candidates of this split, when they are not the collection's")


class Description(BaseModel):
    """A collection, as its YAML file describes it."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    name: str = Field(description="what it is called in recipes and tables", pattern=r"^[\w.-]+$")
    documents: str | Files = Field(description="an ir_datasets name, or files")
    candidates: str = Field(SCORED, description="a TREC run; scoreddocs: the data set's own; judged: the documents judged")
    depth: int = Field(100, ge=1, description="candidates of a query that are kept, the best ones; judged ones are all kept")
    field: str | None = Field(None, description="a topic's field that is asked, such as description; its title when left out")
    splits: dict[str, Annotated[Part, BeforeValidator(_as_part)]] = Field({}, description="by name")
    folds: int | tuple[str, ...] = Field(0, description="splits that are folds, or into how many the queries of `all` are dealt")
    passages: Names = Field((), description="ir_datasets names of judged passages of the documents: gold spans, for GoldP")

    def part(self, split: str) -> Part:
        """The description of a split. Raises CollectionError for an unknown split."""
        if split in self.splits:
            return self.splits[split]
        if isinstance(self.documents, str):
            return Part(datasets=(datasets.find_split(self.documents, split),))
        known = ", ".join(self.splits) or "none"
        raise CollectionError(f"{self.name}: has no split {split!r}; it describes {known}")

    def candidates_of(self, part: Part) -> str:
        """The source of a split's candidates: its own, else the collection's."""
        return part.candidates or self.candidates


def _file(reference: Path) -> Path:
    """The file that a name stands for, if it is a description's: itself, or that in its directory, without the fold."""
    path = Path(str(reference).partition("#")[0])
    return path / DESCRIPTION if (path / DESCRIPTION).is_file() else path


def is_described(reference: Path) -> bool:
    """Whether a collection's name is that of a data set or a description, and not of a directory in our own layout."""
    return reference.as_posix().startswith(DATASETS) or _file(reference).suffix in (".yaml", ".yml")


def find_description(reference: Path) -> tuple[Description, Path, int]:
    """The description of a collection's name, the directory that its paths are relative to, and the fold behind its '#', or 0.

    A missing file is looked for among the presets. Raises CollectionError for a fold that is no number from 1, a data set that
    is unknown, and a file that cannot be read.
    """
    if reference.as_posix().startswith(DATASETS):
        name = reference.as_posix().removeprefix(DATASETS)
        datasets.load(name)
        return Description(name=name.replace("/", "-"), documents=name), Path(), 0
    path, fold = _file(reference), str(reference).partition("#")[2]
    if fold and (not fold.isdecimal() or int(fold) < 1):
        raise CollectionError(f"{reference}: behind the # stands the number of a fold, from 1, not {fold!r}")
    path = path if path.exists() else PACKAGED / path
    return read_description(path), path.parent, int(fold or 0)


def read_description(path: Path) -> Description:
    """Read a YAML file. Raises CollectionError in one line for a missing or unreadable file and for keys that do not fit."""
    try:
        return Description.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        known = ", ".join(sorted(p.name for p in PACKAGED.glob("*.yaml")))
        raise CollectionError(f"{path.name}: no such file, here or among those that come along ({known})") from None
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise CollectionError(f"{path}: cannot be read as YAML ({' '.join(str(error).split())})") from None
    except ValidationError as error:
        wrong = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']} ({e['input']!r})" for e in error.errors())
        raise CollectionError(f"{path}: {wrong}") from None
