"""The tables of the evaluation paper (Boytsov et al. 2022): every system from the same start, with equal budgets.

    python -m lab.studies.field --data DATA [--only firstp maxp ...] [--columns COLUMN ...] [--seeds 0 1 2] [--parallel 2]
    python -m lab.studies.field                          prints the tables of all records

DATA holds squad-articles, squad-far, qmsum and mix. Each training or measurement is a separate process with its own memory. RUNS
holds the runs, RECORDS a record per system and setting. A new run continues where the last one stopped, and a system that fails
does not stop the others.
"""

import argparse
import random
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from os import environ
from pathlib import Path

import transformers

from lab.records import Record, read_records, record_evaluation, record_path, write_record
from lab.tables import compare_pairs, comparisons_table
from training.data.collection import Collection
from training.data.prepared_cache import default_directory
from training.data.types import Run
from training.evaluate.evaluate import Evaluation, evaluate, evaluate_run, sample
from training.evaluate.measures import REPORTED, Grades, Values, mean_over_seeds, per_query
from training.evaluate.ranking import Ranker, Reranked, run_ranker
from training.evaluate.significance import correct, corrected_tests, p_text, paired_t_test
from training.evaluate.tables import markdown
from training.learn.best import train_best
from training.learn.tracking import read_log
from training.learn.train import train
from training.recipe import load_recipe

ROOT = Path(__file__).resolve().parents[2]
RECIPES = ROOT / "lab" / "recipes" / "field"
START = "vanilla"
FIRST_STAGE, CHANCE = "BM25", "chance"
REFERENCES = ("firstp", "maxp")
MEASURES = ("RR@10", "nDCG@10")
FINISHED = "finished"
SHUFFLES = 5  # of a candidate list, each turned round once: see `chance`


@dataclass(frozen=True)
class System:
    """A row of the tables.

    Attributes:
        recipe: name of its recipe in recipes/field.
        title: its name in the paper.
        teacher: recipe of a model that is trained first, on the same collection; this system starts from it.
        helper: recipe of a model that is trained next; it selects blocks for this system. With a teacher it is its student.
        words: whether the system has no transformer; it then starts from the backbone's word vectors, not from the shared start.
    """

    recipe: str
    title: str
    teacher: str | None = None
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
    System("idcm", "IDCM", teacher="idcm-teacher", helper="idcm-student"),
    System("deeprank", "DeepRank", words=True),
    System("tkl", "TKL", words=True),
    System("windows", "MaxP, windows of 150"),
    System("windows-parade-average", "PARADE Avg, windows of 150"),
    System("windows-parade-attention", "PARADE Attn, windows of 150"),
    System("maxp-whole", "MaxP, whole documents"),
    System("parade-attention-whole", "PARADE Attn, whole documents"),
    System("maxp-first", "MaxP, trained on first segments"),
    System("goldp", "GoldP"),
    System("best", "BeST"),
    System("keyb-random", "Random Select"),
    System("keyb-tfidf", "KeyB(vBERT), TF-IDF"),
    System("keyb", "KeyB(vBERT), BM25"),
    System("keyb-binb", "KeyB(vBERT), BinB"),
    System("keyb-parade-attention", "KeyB(PARADE Attn), BM25"),
    System("keyb-parade", "KeyB(PARADE5), BM25"),
    System("keyb-parade-binb", "KeyB(PARADE5), BinB"),
    System("keyb-parade-binb2", "KeyB(PARADE5), BinB2", helper="keyb"),
)
FORMER = {"idcm-of-start": "IDCM, whose student learned from the shared start"}
"""Systems that records still have, by recipes that are no more."""


TITLES = {FIRST_STAGE: "BM25, the order given", CHANCE: "chance"} | {one.recipe: one.title for one in SYSTEMS} | FORMER
FINDINGS = (
    ("maxp", "firstp"),
    ("parade-attention", "firstp"),
    ("parade-attention", "maxp"),
    ("parade-transformer", "maxp"),
    ("parade-pretrained", "maxp"),
    ("cedr-knrm", "maxp"),
    ("cedr-pacrr", "maxp"),
    ("neural-model1", "maxp"),
    ("longp", "maxp"),
    ("windows-parade-average", "avgp"),
    ("keyb", "maxp"),
    ("keyb", "keyb-random"),
    ("keyb", "keyb-tfidf"),
    ("keyb-binb", "keyb"),
    ("keyb", "cedr-knrm"),
    ("keyb", "deeprank"),
    ("keyb", "idcm"),
    ("keyb", "maxp-whole"),
    ("keyb-parade-attention", "parade-attention"),
    ("keyb-parade-attention", "parade-attention-whole"),
    ("keyb-parade", "parade-transformer"),
    ("keyb-parade-binb", "keyb-parade"),
    ("keyb-parade-binb2", "keyb-parade"),
    ("best", "maxp-first"),
    ("best", "goldp"),
)
"""Pairs whose difference the papers discuss."""


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
    Stage(
        "articles-again", "squad-articles", after="articles", systems=(*LONGER, "cedr-pacrr", "parade-cnn")
    ),  # as many further steps, of no far passages
)


@dataclass(frozen=True)
class Setting:
    """A column of the tables: models of a stage on a split of a collection; the domains of mix have no test split."""

    label: str
    collection: str
    stage: str
    split: str = "test"


SETTINGS = (
    Setting("squad-articles", "squad-articles", "articles"),
    Setting("squad-far, zero-shot", "squad-far", "articles"),
    Setting("squad-far, fine-tuned", "squad-far", "far"),
    Setting("qmsum, zero-shot", "qmsum", "articles"),
    Setting("squad-far, fine-tuned for 300 steps", "squad-far", "far-longer"),
    Setting("squad-far, trained further on squad-articles", "squad-far", "articles-again"),
    Setting("cloud, zero-shot", "mix/cloud", "articles", "dev"),
    Setting("medicine, zero-shot", "mix/medicine", "articles", "dev"),
)


def chosen_settings(options: argparse.Namespace) -> list[Setting]:
    """The columns to fill: all but those that were left out."""
    return [one for one in SETTINGS if one.label in options.columns]


def system(recipe: str) -> System:
    """The system of that name."""
    return next(one for one in SYSTEMS if one.recipe == recipe)


def stage(name: str) -> Stage:
    """The stage of that name."""
    return next(one for one in STAGES if one.name == name)


def run_of(runs: Path, stage: str, recipe: str, seed: int) -> Path:
    """The directory of a recipe's run in a stage."""
    return runs / stage / (recipe if seed == 0 else f"{recipe}-{seed}")


@dataclass
class HeadRanker(Ranker):
    """Re-ranks the first candidates of a list; the rest keeps its order below."""

    name: str
    inner: Ranker
    depth: int

    def rerank(self, query_id: str, candidates: Sequence[str]) -> Reranked:
        """See Ranker."""
        head = self.inner.rerank(query_id, candidates[: self.depth])
        lowest = min(head.scores.values(), default=0.0)
        rest = {d: lowest - place for place, d in enumerate(candidates[self.depth :], 1)}
        return Reranked(head.scores | rest, head.blocks)


def records_of(options: argparse.Namespace, seed: int) -> Path:
    """The directory of a seed's records."""
    return Path(options.records) / f"seed-{seed}"


def train_recipe(recipe: str, collection: str, run: Path, settings: list[str], options: argparse.Namespace) -> None:
    """Train a recipe of the field, or continue its training, unless it is finished."""
    if (run / FINISHED).exists():
        return
    loaded = load_recipe(RECIPES / f"{recipe}.yaml", [*settings, *options.set])
    procedure = train_best if loaded.best else train
    procedure(loaded, [Collection(options.data / collection)], run, cache=options.cache)
    (run / FINISHED).touch()


def train_system(system: System, stage: Stage, seed: int, options: argparse.Namespace) -> None:
    """Train a system in a stage; before it its teacher and its helper, in directories beside its own."""

    def part(name: str = "") -> Path:
        return _beside(run_of(options.runs, stage.name, system.recipe, seed), name)

    def before(name: str = "") -> str:
        """What the system, or a part of it, starts from."""
        shared = stage.after is None
        return f"init={options.runs / START if shared else _beside(run_of(options.runs, stage.after, system.recipe, seed), name)}"

    seeded = [f"seed={seed}"]
    settings = seeded if stage.steps is None else [*seeded, f"steps={stage.steps}"]
    start = [] if system.words and stage.after is None else [before()]
    if system.teacher:
        train_recipe(system.teacher, stage.collection, part(system.teacher), [*settings, before(system.teacher)], options)
        settings, start = seeded, [f"init={part(system.teacher)}"]  # the system itself puts its parts together
    if system.helper:
        student = [f"distillation.teacher={part(system.teacher)}"] if system.teacher else []
        began = [] if student and stage.after is None else [before(system.helper)]  # a student of words has no start at first
        train_recipe(system.helper, stage.collection, part(system.helper), [*seeded, *student, *began], options)
        start = [*start, f"selector_run={part(system.helper)}"]
    train_recipe(system.recipe, stage.collection, part(), [*settings, *start], options)


def _beside(run: Path, name: str) -> Path:
    """The directory of a system's part beside its run; without a name the run itself."""
    return run.with_name(f"{run.name}.{name}") if name else run


def measure(system: System, setting: Setting, seed: int, options: argparse.Namespace) -> None:
    """Measure a system in a setting, and write its record."""
    collection = Collection(options.data / setting.collection)
    queries, candidates = sample(collection.split(setting.split), options.queries), collection.run(setting.split)
    run = run_of(options.runs, setting.stage, system.recipe, seed)
    ranker = HeadRanker(system.recipe, run_ranker(run, collection), options.depth)
    evaluation = evaluate(ranker, collection, queries, candidates, measures=REPORTED)
    steps, seconds = cost(run)
    details = {"depth": options.depth, "title": system.title}
    record = record_evaluation(evaluation, setting.label, setting.split, steps=steps, training_seconds=seconds, details=details)
    write_record(record.model_copy(update={"ms_per_document": None}), records_of(options, seed))


def write_baselines(setting: Setting, options: argparse.Namespace) -> None:
    """Write the records of the first stage's order, and of its first candidates in random order."""
    collection, directory = Collection(options.data / setting.collection), records_of(options, 0)
    queries, candidates = sample(collection.split(setting.split), options.queries), collection.run(setting.split)
    given = {query: candidates[query] for query in queries if query in candidates}
    if not record_path(directory, setting.label, FIRST_STAGE).exists():
        found = evaluate_run(FIRST_STAGE, given, collection, queries, REPORTED)
        write_record(record_evaluation(found, setting.label, setting.split), directory)
    if not record_path(directory, setting.label, CHANCE).exists():
        found = Evaluation(CHANCE, {}, chance(given, collection.qrels, queries, options.depth))
        write_record(record_evaluation(found, setting.label, setting.split), directory)


def chance(given: Run, qrels: Grades, queries: Sequence[str], depth: int) -> Values:
    """The expected values of re-ranking the first `depth` candidates at random, by query and measure.

    They are means over all rotations of several shuffles, so that each document is at each rank equally often. They are exact if
    one relevant document is among the candidates, and always for nDCG and P.
    """
    rng, drawn = random.Random(0), []
    for _ in range(SHUFFLES):
        heads = {query: rng.sample(list(given[query])[:depth], min(depth, len(given[query]))) for query in given}
        for turn in range(depth):
            turned = {query: [*head[turn:], *head[:turn], *list(given[query])[depth:]] for query, head in heads.items()}
            run = {query: {d: -float(rank) for rank, d in enumerate(order)} for query, order in turned.items()}
            drawn.append(per_query(qrels, run, queries, REPORTED))
    return mean_over_seeds(drawn)


def cost(run: Path) -> tuple[int, float]:
    """Steps and seconds of a run's training, with resumed parts, all iterations of BeST, and the system's teacher and helper."""
    logs = [*run.glob("iteration-*/log.jsonl"), *run.parent.glob(f"{run.name}.*/log.jsonl"), run / "log.jsonl"]
    records = [record for log in logs if log.exists() for record in read_log(log.parent)]
    steps = [r for r in records if "loss" in r]
    return len(steps), sum(r["seconds"] for r in steps)


def known_records(directory: Path) -> list[Record]:
    """One record per system and setting, in the table's order. Records of several seeds are averaged per query."""
    by_key: dict[tuple[str, str], list[Record]] = {}
    for folder in sorted(directory.glob("seed-*")):
        for record in read_records(folder):
            by_key.setdefault((record.collection, record.system), []).append(record)
    labels = [setting.label for setting in SETTINGS]
    keys = sorted(by_key, key=lambda key: (labels.index(key[0]), list(TITLES).index(key[1])))
    return [over_seeds(by_key[key]) for key in keys]


def over_seeds(seeds: Sequence[Record]) -> Record:
    """Merge the records of several seeds: values are each query's mean; steps and minutes are those of one training."""
    first = seeds[0]
    values = mean_over_seeds([record.by_query for record in seeds])
    by_measure = {measure: [by_query[query] for query in first.queries] for measure, by_query in values.items()}
    return first.model_copy(update={"values": by_measure, "seeds": len(seeds)})


def field_table(records: Sequence[Record]) -> str:
    """A row per system and a column per setting: RR@10, with marks for significant differences.

    The p-values against one reference in one setting are a family, corrected after Holm; `f` marks a difference from FirstP, `m`
    one from MaxP, at p <= .05.
    """
    labels = [setting.label for setting in SETTINGS if stage(setting.stage).systems is None]
    settings = [label for label in labels if any(record.collection == label for record in records)]
    head = ["system", *settings, "minutes of training", "seeds"]
    rows = []
    for name, title in TITLES.items():
        own = {record.collection: record for record in records if record.system == name}
        if own:
            cells = [_cell(own.get(label), [r for r in records if r.collection == label]) for label in settings]
            first = next(iter(own.values()))
            minutes = {round((record.training_seconds or 0) / 60) for record in own.values()}
            rows.append([title, *cells, f"{max(minutes)}", f"{first.seeds}"])
    return markdown([head, *rows])


def _cell(record: Record | None, setting_records: Sequence[Record]) -> str:
    if record is None:
        return ""
    p = [p_values(reference, setting_records).get(record.system, 1.0) for reference in REFERENCES]
    marks = [mark for mark, value in zip("fm", p, strict=True) if value <= 0.05]
    return f"{record.means[MEASURES[0]]:.3f}" + (f" {''.join(marks)}" if marks else "")


def p_values(reference: str, records: Sequence[Record]) -> dict[str, float]:
    """The corrected p of every other system against the reference in a setting; empty if the reference was not measured."""
    values = {record.system: record.by_query[MEASURES[0]] for record in records}
    if reference not in values:
        return {}
    return corrected_tests({name: by_query for name, by_query in values.items() if name != reference}, values[reference])


def findings_table(records: Sequence[Record]) -> str:
    """The paper's comparisons, as one family of tests."""
    names = {record.system for record in records}
    pairs = [pair for pair in FINDINGS if set(pair) <= names]
    return comparisons_table(compare_pairs(records, pairs, MEASURES[0])) if pairs else ""


def gain_table(records: Sequence[Record]) -> str:
    """The gain of fine-tuning on squad-far for each system that was measured without and with it.

    Beside it stand that of longer tuning, and that of as many further steps on squad-articles, the control. The p-values of the
    gains are one family, those of the differences from MaxP's gain another. Both are corrected after Holm.
    """
    by = {(record.collection, record.system): record for record in records}
    before, after, *others = (setting.label for setting in SETTINGS if setting.collection == "squad-far")
    steps = next(one.steps for one in STAGES if one.steps is not None)
    trained = [name for name in TITLES if name not in (FIRST_STAGE, CHANCE)]
    names = [name for name in trained if (before, name) in by and (after, name) in by]
    values = {name: [by[label, name].by_query[MEASURES[0]] for label in (before, after)] for name in names}
    gains = {name: {query: end[query] - start[query] for query in start} for name, (start, end) in values.items()}
    p = dict(zip(names, correct([paired_t_test(end, start) for start, end in values.values()]), strict=True))
    beyond = corrected_tests({name: gain for name, gain in gains.items() if name != "maxp"}, gains.get("maxp", {}))
    further = [f"fine-tuned for {steps} steps", "gain", "trained further on squad-articles", "gain"]
    rows = [["system", "zero-shot", "fine-tuned", "gain", "p", "p, MaxP's gain", *further]]
    for name in names:
        start, end = (by[label, name].means[MEASURES[0]] for label in (before, after))
        ends = [by[label, name].means[MEASURES[0]] if (label, name) in by else None for label in others]
        more = [cell for end_ in ends for cell in (("", "") if end_ is None else (f"{end_:.3f}", f"{end_ - start:+.3f}"))]
        than_maxp = p_text(beyond[name]) if name in beyond and "maxp" in names else ""
        rows.append([TITLES[name], f"{start:.3f}", f"{end:.3f}", f"{end - start:+.3f}", p_text(p[name]), than_maxp, *more])
    return markdown(rows)


def main(options: argparse.Namespace) -> None:
    """Do the rest of the work and print the tables. If systems failed, exits with their names after all others are done."""
    for setting in chosen_settings(options):
        write_baselines(setting, options)
    if not (options.runs / START / FINISHED).exists() and (problem := process(["--train", START], options)):
        sys.exit(f"field: {problem}")
    chosen = [one for one in SYSTEMS if one.recipe in (options.only or [s.recipe for s in SYSTEMS])]
    jobs = [(one, seed) for seed in options.seeds for one in chosen]
    with ThreadPoolExecutor(options.parallel) as pool:
        problems = list(pool.map(lambda job: complete(*job, options), jobs))
    print(tables(options))
    if failed := [f"{one.recipe} ({problem})" for (one, _), problem in zip(jobs, problems, strict=True) if problem]:
        sys.exit(f"field: {'; '.join(failed)}; mend it and start again: what was done is kept")


def complete(one: System, seed: int, options: argparse.Namespace) -> str | None:
    """Do the rest of a system's trainings and measurements. Returns the problem of the first that fails, or None."""
    for step in pieces(one, seed, options):
        if problem := process([*step, "--seed", str(seed)], options):
            return problem
    return None


def pieces(one: System, seed: int, options: argparse.Namespace) -> Iterator[list[str]]:
    """The arguments of each remaining piece of work of a system, in order."""
    for level in STAGES:
        if level.systems is not None and one.recipe not in level.systems:
            continue
        due = [
            setting
            for setting in chosen_settings(options)
            if setting.stage == level.name and not record_path(records_of(options, seed), setting.label, one.recipe).exists()
        ]
        later = [setting for setting in chosen_settings(options) if _comes_after(level, stage(setting.stage), one)]
        needed = due or any(not record_path(records_of(options, seed), s.label, one.recipe).exists() for s in later)
        if needed and not (run_of(options.runs, level.name, one.recipe, seed) / FINISHED).exists():
            yield ["--train", one.recipe, "--stage", level.name]
        for setting in due:
            yield ["--measure", one.recipe, "--setting", setting.label]


def _comes_after(level: Stage, other: Stage, one: System) -> bool:
    """Whether a system's training in stage `other` starts from its training in stage `level`."""
    return other.after == level.name and (other.systems is None or one.recipe in other.systems)


def process(arguments: Sequence[str], options: argparse.Namespace) -> str | None:
    """Run this program with other arguments; a log beside the runs gets its output. Returns the problem, or None."""
    paths = [f"--{name}={getattr(options, name)}" for name in ("data", "runs", "records", "cache", "queries", "depth")]
    command = [sys.executable, "-m", "lab.studies.field", *arguments, *paths, *(f"--set={one}" for one in options.set)]
    log, started = options.runs / f"{arguments[1]}.log", time.perf_counter()
    threads = str(max(1, options.threads // options.parallel))
    with log.open("a", encoding="utf-8") as out:
        code = subprocess.run(command, check=False, env=environ | {"OMP_NUM_THREADS": threads}, stdout=out, stderr=out).returncode
    print(f"{' '.join(arguments)}: {time.perf_counter() - started:.0f} s", flush=True)
    return f"{' '.join(arguments)} ended with {code}, see {log}" if code else None


def one_piece(options: argparse.Namespace) -> None:
    """Do one training or one measurement. Called in a child process."""
    if options.train == START:
        train_recipe(START, "squad-articles", options.runs / START, [], options)
    elif options.train:
        train_system(system(options.train), stage(options.stage), options.seed, options)
    else:
        setting = next(one for one in SETTINGS if one.label == options.setting)
        measure(system(options.measure), setting, options.seed, options)


def tables(options: argparse.Namespace) -> str:
    """All tables in Markdown."""
    records = known_records(options.records)
    return "\n\n".join([field_table(records), gain_table(records), findings_table(records)])


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser("lab.studies.field", description="The evaluation paper's tables; resumable.")
    made.add_argument("--data", type=Path, help="directory of the collections; without it the tables are printed")
    made.add_argument("--runs", type=Path, default=Path("runs/field"), help="directory of the trainings (%(default)s)")
    made.add_argument("--records", type=Path, default=ROOT / "lab" / "results" / "field", help="directory of the measurements")
    made.add_argument("--only", nargs="+", choices=[one.recipe for one in SYSTEMS], help="only these systems")
    labels = [one.label for one in SETTINGS]
    made.add_argument("--columns", nargs="+", choices=labels, default=labels, help="only these columns of the tables")
    made.add_argument("--seeds", nargs="+", type=int, default=[0], help="trainings of each system, by seed")
    made.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="change a key of every recipe")
    made.add_argument("--queries", type=int, default=100, help="test queries of a collection, a fixed sample")
    made.add_argument("--depth", type=int, default=8, help="candidates that are re-ranked; the rest stay below them")
    made.add_argument("--parallel", type=int, default=1, metavar="N", help="systems to train and measure at once")
    made.add_argument("--threads", type=int, default=2, help="CPU threads of all processes together")
    made.add_argument("--cache", type=Path, default=default_directory(), help="directory of prepared documents (%(default)s)")
    for hidden in ("train", "measure", "stage", "setting"):
        made.add_argument(f"--{hidden}", help=argparse.SUPPRESS)
    made.add_argument("--seed", type=int, default=0, help=argparse.SUPPRESS)
    return made


if __name__ == "__main__":
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    given = parser().parse_args()
    given.records.mkdir(parents=True, exist_ok=True)
    given.runs.mkdir(parents=True, exist_ok=True)
    if given.data is None:
        print(tables(given))
    elif given.train or given.measure:
        one_piece(given)
    else:
        main(given)
