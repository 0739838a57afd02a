"""The plan: the systems, their trainings in order, and the collections for measurement."""

from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RECIPES = ROOT / "training" / "recipes" / "field"
START = "vanilla"
FIRST_STAGE, CHANCE = "BM25", "chance"
REFERENCES = ("firstp", "maxp")


@dataclass(frozen=True)
class System:
    """A row of the tables.

    Attributes:
        recipe: name of its recipe in recipes/field.
        title: its name in the paper.
        helper: recipe of a model that must be trained first, on the same collection; it selects blocks for this system.
        words: whether the system has no transformer; it then starts from the backbone's word vectors, not from the shared start.
    """

    recipe: str
    title: str
    helper: str | None = None
    words: bool = False


SYSTEMS = (
    System("firstp", "FirstP"),
    System("lastp", "LastP"),
    System("avgp", "AvgP"),
    System("maxp", "MaxP"),
    System("sump", "SumP"),
    System("parade-average", "PARADE Avg"),
    System("parade-max", "PARADE Max"),
    System("parade-attention", "PARADE Attn"),
    System("parade-cnn", "PARADE CNN"),
    System("parade-transformer", "PARADE Transf-RAND-L2"),
    System("parade-pretrained", "PARADE Transf-PRETR-L6"),
    System("parade-lateir", "PARADE Transf-PRETR-LATEIR-L6"),
    System("cedr-knrm", "CEDR-KNRM"),
    System("cedr-drmm", "CEDR-DRMM"),
    System("cedr-pacrr", "CEDR-PACRR"),
    System("neural-model1", "Neural Model 1"),
    System("longp", "LongP"),
    System("qds", "QDS"),
    System("idcm", "IDCM", helper="idcm-student"),
    System("deeprank", "DeepRank", words=True),
    System("tkl", "TKL", words=True),
    System("keyb", "KeyB(vBERT), BM25"),
    System("keyb-parade", "KeyB(PARADE Attn), BM25"),
)


@dataclass(frozen=True)
class Stage:
    """A training of every system.

    Attributes:
        name: name of its folder among the runs.
        collection: collection to learn from.
        after: stage whose model it starts from; None: the shared start.
        steps: training steps; None: as in the recipe.
        systems: systems that are trained in this stage; None: all.
    """

    name: str
    collection: str
    after: str | None = None
    steps: int | None = None
    systems: tuple[str, ...] | None = None


# systems for which the paper says that fine-tuning decides, and the systems they are compared with
LONGER = ("firstp", "maxp", "parade-attention", "parade-transformer", "cedr-knrm", "longp")
STAGES = (
    Stage("articles", "squad-articles"),
    Stage("far", "squad-far", after="articles"),
    Stage("far-longer", "squad-far", after="articles", steps=300, systems=LONGER),
)


@dataclass(frozen=True)
class Setting:
    """A column of the tables: models of a stage on a collection's test split."""

    label: str
    collection: str
    stage: str


SETTINGS = (
    Setting("squad-articles", "squad-articles", "articles"),
    Setting("squad-far, zero-shot", "squad-far", "articles"),
    Setting("squad-far, fine-tuned", "squad-far", "far"),
    Setting("qmsum, zero-shot", "qmsum", "articles"),
    Setting("squad-far, fine-tuned for 300 steps", "squad-far", "far-longer"),
)


def system(recipe: str) -> System:
    """The system of that name."""
    return next(one for one in SYSTEMS if one.recipe == recipe)


def stage(name: str) -> Stage:
    """The stage of that name."""
    return next(one for one in STAGES if one.name == name)


def run_of(runs: Path, stage: str, recipe: str, seed: int) -> Path:
    """The directory of a recipe's run in a stage."""
    return runs / stage / (recipe if seed == 0 else f"{recipe}-{seed}")
