"""The tables of docs/field.md, with tests of the paper's findings."""

from collections.abc import Sequence
from pathlib import Path

from benchmarks.field.plan import CHANCE, FIRST_STAGE, REFERENCES, SETTINGS, STAGES, SYSTEMS, stage
from training.evaluation.records import Record, read_records
from training.evaluation.seeds import mean_over_seeds
from training.evaluation.significance import correct, corrected_tests, p_text, paired_t_test
from training.evaluation.tables import compare_pairs, comparisons_table, markdown

MEASURES = ("RR@10", "nDCG@10")
TITLES = {FIRST_STAGE: "BM25, the order given", CHANCE: "chance"} | {one.recipe: one.title for one in SYSTEMS}
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
    ("keyb", "maxp"),
    ("keyb-parade", "parade-attention"),
)
"""Pairs whose difference the paper discusses, and pairs with KeyB."""


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


def field_table(records: Sequence[Record], latencies: dict[str, float]) -> str:
    """A row per system and a column per setting: RR@10, with marks for significant differences.

    The p-values against one reference in one setting are a family, corrected after Holm; `f` marks a difference from FirstP, `m`
    one from MaxP, at p <= .05.
    """
    labels = [setting.label for setting in SETTINGS if stage(setting.stage).systems is None]
    settings = [label for label in labels if any(record.collection == label for record in records)]
    head = ["system", *settings, "ms a document", "minutes of training", "seeds"]
    rows = []
    for name, title in TITLES.items():
        own = {record.collection: record for record in records if record.system == name}
        if own:
            cells = [_cell(own.get(label), [r for r in records if r.collection == label]) for label in settings]
            first = next(iter(own.values()))
            minutes = {round((record.training_seconds or 0) / 60) for record in own.values()}
            rows.append([title, *cells, f"{latencies[name]:.1f}" if name in latencies else "", f"{max(minutes)}", f"{first.seeds}"])
    return markdown([head, *rows])


def _cell(record: Record | None, setting_records: Sequence[Record]) -> str:
    if record is None:
        return ""
    marks = [mark for mark, reference in zip("fm", REFERENCES, strict=True) if _differs(record, reference, setting_records)]
    return f"{record.means[MEASURES[0]]:.3f}" + (f" {''.join(marks)}" if marks else "")


def _differs(record: Record, reference: str, setting_records: Sequence[Record]) -> bool:
    p = p_values(reference, setting_records).get(record.system)
    return p is not None and p <= 0.05


def p_values(reference: str, records: Sequence[Record]) -> dict[str, float]:
    """The corrected p of every other system against the reference in a setting; empty if the reference was not measured."""
    values = {record.system: record.by_query[MEASURES[0]] for record in records}
    if reference not in values:
        return {}
    return corrected_tests({name: by_query for name, by_query in values.items() if name != reference}, values[reference])


def p_table(records: Sequence[Record]) -> str:
    """nDCG@10 of every system in every setting, and its p by RR@10 against FirstP and MaxP (Holm)."""
    rows = [["setting", "system", *MEASURES, *(f"p, {TITLES[reference]}" for reference in REFERENCES), "queries"]]
    for label in dict.fromkeys(record.collection for record in records):
        here = [record for record in records if record.collection == label]
        against = [p_values(reference, here) for reference in REFERENCES]
        for record in here:
            means = [f"{record.means[measure]:.4f}" for measure in MEASURES]
            found = [p_text(p[record.system]) if record.system in p else "" for p in against]
            rows.append([label, TITLES[record.system], *means, *found, str(len(record.queries))])
    return markdown(rows)


def findings_table(records: Sequence[Record]) -> str:
    """The paper's comparisons, as one family of tests."""
    names = {record.system for record in records}
    pairs = [pair for pair in FINDINGS if set(pair) <= names]
    return comparisons_table(compare_pairs(records, pairs, MEASURES[0])) if pairs else ""


def gain_table(records: Sequence[Record]) -> str:
    """The gain of fine-tuning on squad-far for each system that was measured without and with it, and the gain of longer tuning.

    The p-values of the gains are one family, those of the differences from MaxP's gain another. Both are corrected after Holm.
    """
    by = {(record.collection, record.system): record for record in records}
    before, after, longer = (setting.label for setting in SETTINGS if setting.collection == "squad-far")
    steps = next(one.steps for one in STAGES if one.steps is not None)
    names = [one.recipe for one in SYSTEMS if (before, one.recipe) in by and (after, one.recipe) in by]
    values = {name: [by[label, name].by_query[MEASURES[0]] for label in (before, after)] for name in names}
    gains = {name: {query: end[query] - start[query] for query in start} for name, (start, end) in values.items()}
    p = dict(zip(names, correct([paired_t_test(end, start) for start, end in values.values()]), strict=True))
    beyond = corrected_tests({name: gain for name, gain in gains.items() if name != "maxp"}, gains.get("maxp", {}))
    rows = [["system", "zero-shot", "fine-tuned", "gain", "p", "p, MaxP's gain", f"fine-tuned for {steps} steps", "gain"]]
    for name in names:
        start, end = (by[label, name].means[MEASURES[0]] for label in (before, after))
        much = by[longer, name].means[MEASURES[0]] if (longer, name) in by else None
        more = ["", ""] if much is None else [f"{much:.3f}", f"{much - start:+.3f}"]
        than_maxp = p_text(beyond[name]) if name in beyond and "maxp" in names else ""
        rows.append([TITLES[name], f"{start:.3f}", f"{end:.3f}", f"{end - start:+.3f}", p_text(p[name]), than_maxp, *more])
    return markdown(rows)
