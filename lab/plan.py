"""Says what a recipe would do, without training or downloading. Looks up everything that it names; a missing part is an error."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from training.data import datasets
from training.data.collection import Collection, DescribedCollection
from training.data.descriptions import JUDGED, SCORED, Description, Part
from training.data.directory import run_file
from training.data.folds import Round
from training.data.types import CollectionError, FileError
from training.learn.train import check_gold, check_mixture, fitted
from training.model.devices import fastest_device, in_words
from training.model.starting import check_weights
from training.model.transformer_ranker import TRACED
from training.recipe import Recipe, RecipeError, backbone_path, find_start

TESTED = "test"
EXPORTED = {"cross_encoder": TRACED, "long_encoder": TRACED, "classifier": TRACED}  # architectures, by family


class Plan(NamedTuple):
    """What reading a collection would need.

    Attributes:
        reads: what would be read, one line for each part.
        missing: paths of missing files that no download brings.
    """

    reads: list[str]
    missing: list[str]


class Backbone(NamedTuple):
    """An encoder by its configuration.

    Attributes:
        positions: tokens of the longest sequence that it reads.
        hidden: the size of a [CLS] state.
        kind: its architecture, as transformers names it.
        layers: the number of layers.
    """

    positions: int
    hidden: int
    kind: str
    layers: int


def dry_run(recipe: Recipe, collections: Sequence[Collection]) -> list[str]:
    """The lines that say what training would read and what is missing.

    Raises RecipeError, CollectionError or FileError in one line for missing or damaged parts.
    """
    check_mixture(recipe, collections)
    backbone = changed(local_backbone(recipe.backbone), recipe)
    check_sizes(recipe, backbone)
    check_gold(recipe, collections)
    recipe = fitted(recipe, collections)
    plans = [(collection.name, plan_collection(collection, recipe.split)) for collection in collections]
    exported = backbone is None or backbone.kind in _exported(recipe)
    starts = [why for key, start in recipe.starts.items() if (why := _missing(key, start))]
    missing = [*starts, *(path for _, plan in plans for path in plan.missing)]
    return [
        f"{recipe.name}: {system(recipe)}",
        *_backbone_lines(recipe, backbone),
        *(f"{name}, {line}" for name, plan in plans for line in plan.reads),
        f"{recipe.steps:,} steps; computes in {in_words(recipe.precision, fastest_device())}",
        *(f"to bring before it can start: {path}" for path in dict.fromkeys(missing)),
        "everything else resolves" if missing or not exported else "everything resolves",
    ]


def local_backbone(name: str) -> Backbone | None:
    """The encoder's sizes, from a local path or the hub's cache; None if it is yet to be downloaded.

    Raises RecipeError for a local path that holds no encoder.
    """
    from transformers import AutoConfig

    path = backbone_path(name)
    try:
        config = AutoConfig.from_pretrained(path, local_files_only=True)
    except (OSError, ValueError) as error:
        if Path(path).is_absolute() or Path(path).exists():
            raise RecipeError(f"backbone {name}: holds no encoder ({' '.join(str(error).split())})") from None
        return None
    return Backbone(config.max_position_embeddings, config.hidden_size, config.model_type, config.num_hidden_layers)


def changed(backbone: Backbone | None, recipe: Recipe) -> Backbone | None:
    """The encoder's sizes with the layers that `reshape` keeps and the positions that `model` adds.

    Raises RecipeError for layers that it does not have.
    """
    if backbone is None:
        return None
    kept = recipe.reshape.kept if recipe.reshape else ()
    if kept and kept[-1] >= backbone.layers:
        raise RecipeError(f"reshape asks for {kept[-1] + 1} layers, and {backbone.kind} has {backbone.layers}")
    return backbone._replace(layers=len(kept) or backbone.layers, positions=recipe.model.get("positions") or backbone.positions)


def check_sizes(recipe: Recipe, backbone: Backbone | None) -> None:
    """Raise RecipeError if the recipe's sequences or its learned aggregator do not fit the backbone."""
    if backbone is None:
        return
    if recipe.longest > backbone.positions:
        raise RecipeError(
            f"budgets or budget_range reach {recipe.longest} tokens, {recipe.backbone} reads {backbone.positions} at most"
        )
    module = recipe.states or {}
    if not module.get("pretrained") and backbone.hidden % module.get("heads", 1):
        raise RecipeError(f"states: {module['heads']} heads do not divide the backbone's width of {backbone.hidden}")


def plan_collection(collection: Collection, trained_on: str) -> Plan:
    """What would be read for the training split, dev, and the test split if there is one."""
    plan = plan_parts(collection, [trained_on, "dev"])
    try:
        tested = plan_parts(collection, [TESTED])
    except CollectionError:  # it has no such split
        return plan
    return Plan([*plan.reads, *(line for line in tested.reads if line not in plan.reads)], [*plan.missing, *tested.missing])


def system(recipe: Recipe) -> str:
    """The pipeline that would be served, and the parts that differ while training."""
    config = recipe.pipeline.model_dump()
    parts = " > ".join(_component(config[part]) for part in ("segmenter", "selector", "aggregator"))
    changed = ", ".join(f"{part} {_component(value)}" for part, value in recipe.training.items())
    while_training = f"; while training: {changed}" if changed else ""
    examples = "" if recipe.examples == "selected" else f"; trained on {recipe.examples} blocks"
    return f"{parts}, {config['packing']['budget']} tokens a sequence{while_training}{examples}"


def _component(description: Any) -> str:
    """A component in words, such as `bm25(k1=0.9, b=0.4)`."""
    if not isinstance(description, dict) or "name" not in description:
        return str(description)
    inner = ", ".join(f"{key}={_component(value)}" for key, value in description.items() if key != "name" and value is not None)
    return f"{description['name']}({inner})" if inner else str(description["name"])


def _backbone_lines(recipe: Recipe, backbone: Backbone | None) -> Iterator[str]:
    sizes = (
        f"{backbone.positions} positions, width {backbone.hidden}"
        if backbone
        else "to be downloaded; its positions are not checked"
    )
    yield f"backbone {recipe.backbone}: {sizes}"
    known, family = _exported(recipe), recipe.model["name"]
    if backbone and backbone.kind not in known and family != "ck":  # a ck uses the word vectors alone
        yield f"keyblock-export writes no bundle of a {family} on {backbone.kind}, only on {', '.join(known)}"
    if recipe.states:
        yield f"learned aggregator: {_component(recipe.states)}"


def _exported(recipe: Recipe) -> tuple[str, ...]:
    return EXPORTED.get(recipe.model["name"], ("bert",))


def _missing(key: str, start: str) -> str | None:
    """Why the run that a recipe starts from cannot be used: it is missing, or holds other weights than the recipe names."""
    if not find_start(Path(start)).is_dir():
        return f"{start} ({key}: a run of keyblock-train)"
    try:
        check_weights(key, start)
    except ValueError as error:
        return str(error)
    return None


def plan_parts(parts: Collection, splits: Sequence[str]) -> Plan:
    """What would be read for these splits. Nothing is downloaded; local files are read, but not the documents of a store.

    Raises CollectionError for a split, a field or candidates that do not exist, FileError for a damaged file.
    """
    if isinstance(parts, DescribedCollection):
        return make_plan(parts.description, parts.base, parts.round, splits)
    return plan_directory(parts, splits)


def plan_directory(parts: Collection, splits: Sequence[str]) -> Plan:
    """What of a directory would be read: all. Raises FileError for a damaged file, or one that names what the corpus lacks."""
    described = [f"split {split}: {_plan_split(parts, split)}" for split in splits]
    reads = [f"documents: {len(parts.documents):,} in {parts.path}", *described]
    if unknown := parts.unknown_judgements():
        reads.append(unknown)
    _ = parts.spans
    return Plan(reads, [])


def _plan_split(parts: Collection, split: str) -> str:
    """One line about a split's queries and candidates."""
    queries = parts.split(split)
    if unknown := [query for query in queries if query not in parts.queries]:
        raise FileError(f"{parts.path}: split {split} names query {unknown[0]!r}, which {parts.topics} lacks")
    if not parts.has_run(split):
        return f"{len(queries):,} queries, candidates from all documents by BM25 (it has no {run_file(split)})"
    run = parts.run(split)
    for query, documents in run.items():
        if unknown := [document for document in documents if document not in parts.documents]:
            named = f"{run_file(split)} names document {unknown[0]!r} for query {query!r}"
            raise FileError(f"{parts.path}: {named}, which {parts.corpus} lacks")
    return f"{len(queries):,} queries, {len(run):,} of them in its BM25 run"


def make_plan(description: Description, base: Path, cross_validation: Round, splits: Sequence[str]) -> Plan:
    """What of a described collection would be read; nothing is downloaded. Raises CollectionError for what does not exist.

    Args:
        description: names what is read.
        base: the directory that its paths are relative to.
        cross_validation: the round that the splits belong to.
        splits: the splits that would be read.
    """
    names = list(dict.fromkeys(name for split in splits for name in cross_validation.sources(split)))
    parts = [description.part(name) for name in names]
    reads = [_plan_documents(description)]
    reads += [
        f"split {split}: {cross_validation.in_words(split)}" for split in splits if cross_validation.sources(split) != [split]
    ]
    reads += [f"gold passages: {_plan_passages(name)}" for name in description.passages]
    reads += [f"split {name}: {_plan_part(description, part)}" for name, part in zip(names, parts, strict=True)]
    files = [file for part in parts for file in _files(description, part)]
    if isinstance(description.documents, datasets.Files):
        files.append(description.documents.path)
    paths = dict.fromkeys(datasets.resolve(base, file) for file in files)
    return Plan(reads, [str(path) for path in paths if not path.exists()])


def _files(description: Description, part: Part) -> list[str]:
    kind = description.candidates_of(part)
    files = [part.queries.path if part.queries else None, part.qrels, None if kind in (SCORED, JUDGED) else kind]
    return [file for file in files if file]


def _plan_documents(description: Description) -> str:
    source = description.documents
    if not isinstance(source, str):
        return f"documents: {source.format} files {source.path}"
    dataset = datasets.load(source)
    fields = ", ".join(dataset.docs_cls()._fields)
    return f"documents: {_count(dataset, 'docs')} of ir_datasets {source} ({fields})"


def _plan_part(description: Description, part: Part) -> str:
    """One line about what a split reads. Raises CollectionError for a data set that lacks a part it should give."""
    if not part.datasets and not (part.queries and part.qrels):
        raise CollectionError(f"{description.name}: a split needs datasets, or files of queries and of qrels")
    reads = [_plan_dataset(name, part, description.field) for name in part.datasets]
    reads += [f"queries {part.queries.path}"] if part.queries else []
    reads += [f"judgements {part.qrels}"] if part.qrels else []
    return "; ".join([*reads, f"candidates: {_plan_candidates(description, part)}"])


def _plan_candidates(description: Description, part: Part) -> str:
    kind = description.candidates_of(part)
    if kind == JUDGED:
        return "every judged document"
    if kind != SCORED:
        return f"the best {description.depth} of {kind}"
    lacking = [name for name in part.datasets if not datasets.load(name).has(SCORED)]
    if lacking or not part.datasets:
        where = f"ir_datasets {lacking[0]} has no scoreddocs" if lacking else "TREC files have no scoreddocs"
        raise CollectionError(f"{description.name}: {where}; name a TREC run in a YAML file as candidates, or say judged")
    counts = ", ".join(_count(datasets.load(name), SCORED) for name in part.datasets)
    return f"the best {description.depth} of its scoreddocs ({counts})"


def _plan_dataset(name: str, part: Part, field: str | None) -> str:
    dataset = datasets.load(name)
    for kind in [k for k, file in (("queries", part.queries), ("qrels", part.qrels)) if not file]:
        if not dataset.has(kind):
            raise CollectionError(f"ir_datasets {name} has no {kind}")
    if field and not part.queries and field not in dataset.queries_cls()._fields:
        known = ", ".join(dataset.queries_cls()._fields)
        raise CollectionError(f"ir_datasets {name}: its queries have no field {field!r}; they have {known}")
    return f"ir_datasets {name}, {_count(dataset, 'queries')} queries, {_count(dataset, 'qrels')} judgements"


def _plan_passages(name: str) -> str:
    dataset = datasets.load(name)
    for kind in ("docs", "qrels"):
        if not dataset.has(kind):
            raise CollectionError(f"ir_datasets {name} has no {kind}: it says no gold passages")
    return f"{_count(dataset, 'qrels')} of ir_datasets {name}"


def _count(dataset: Any, kind: str) -> str:
    number = datasets.count(dataset, kind)
    return "?" if number is None else f"{number:,}"
