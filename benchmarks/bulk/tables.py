"""The tables of docs/bulk.md: the measurements, and the plans that are computed from them."""

from collections.abc import Mapping
from typing import Any

from benchmarks.bulk.beside import COMMANDS, SERVICE
from benchmarks.bulk.reckon import MACHINES, Large, Plan, Rates, bottlenecks, cores_of_a_gpu, on_cores, on_gpus
from training.evaluation.tables import markdown

MINUTE = 60.0
STAGES = {
    "take_in_run": ("take in a run and its collection", "{:,.0f} pairs a CPU second"),
    "take_in_lists": ("take in JSON lines with their texts", "{:,.0f} pairs a CPU second"),
    "prepare": ("prepare", "{:,.0f} documents a CPU second"),
    "choose": ("score, without the model: read, choose blocks, order", "{:,.0f} pairs a CPU second"),
    "score": ("score", "{:,.0f} pairs a CPU second"),
    "write": ("write and sync rankings, one worker", "{:,.0f} pairs a second"),
    "hand_out_local": ("hand out shards to processes", "{:,.0f} shards a second"),
    "hand_out_ray": ("hand out shards with Ray Data", "{:,.0f} shards a second"),
    "document_bytes": ("texts on disk", "{:,.0f} bytes a document"),
    "prepared_bytes": ("prepared on disk", "{:,.0f} bytes a document"),
    "ranking_bytes": ("rankings on disk", "{:,.1f} bytes a pair"),
}


def measured(record: Mapping[str, Any]) -> str:
    """The machine, the rates beside the service, the rate of each stage, and memory."""
    beside, machine, run = record["beside"], record["machine"], record["run"]
    where = f"{machine['cpu']}, {run['date']}, load {run['load']} before: `{run['command']}`, {beside['pairs']:,} pairs"
    memory = "; ".join(f"{name}: {_sizes(sizes)}" for name, sizes in beside["resident"].items())
    return "\n\n".join(
        [
            f"{where}, {run['rounds']} rounds of all in turns, medians. The CPU seconds of Ray's workers are not known.",
            markdown(
                [
                    [
                        "",
                        "pairs/s by the clock",
                        "x the service",
                        "pairs a CPU second",
                        "x the service",
                        "largest difference of a score",
                    ],
                    *_rate_rows(beside),
                ]
            ),
            markdown(
                [
                    ["stage, one thread", "rate"],
                    *([name, form.format(record["stages"][key])] for key, (name, form) in STAGES.items()),
                ]
            ),
            f"Resident at most, MiB. {memory}.",
        ]
    )


def _rate_rows(beside: Mapping[str, Any]) -> list[list[str]]:
    service = beside["rates"][SERVICE]
    rows = []
    for name, of in beside["rates"].items():
        kinds = ("wall",) if "ray" in COMMANDS.get(name, ()) else ("wall", "cpu")
        cells = [cell for kind in kinds for cell in (f"{of[kind]:.1f}", f"{of[kind] / service[kind]:.2f}")]
        difference = beside["differences"].get(name)
        rows.append([name, *cells, *[""] * (4 - len(cells)), "" if difference is None else f"{difference:.1g}"])
    return rows


def _sizes(sizes: Mapping[str, int]) -> str:
    return ", ".join(f"{kind} {size:,}" for kind, size in sizes.items())


def reckoned(record: Mapping[str, Any], large: Large) -> str:
    """The plans on cores and on GPUs, and the bottlenecks."""
    local, ray = Rates.of(record, ray=False), Rates.of(record, ray=True)
    gpu, in_processes = cores_of_a_gpu(large, ray), bottlenecks(large, local)
    head = ["take in, min", "prepare, min", "score, min", "in all, min", "hours paid", "cost"]
    return "\n\n".join(
        [
            f"{large.pairs:,} pairs of {large.documents:,} documents, {large.shard_pairs:,} pairs a shard, on Ray; "
            f"{large.core_hour:g} a core-hour, {large.gpu_hour:g} a GPU-hour.",
            markdown([["cores", *head], *(_row(on_cores(large, ray, cores)) for cores in MACHINES)]),
            f"If a GPU scores {large.gpu_pairs:,.0f} pairs a second, which is assumed, it takes {gpu} cores to feed it:",
            markdown([["GPUs", *head], *(_row(on_gpus(large, ray, gpus)) for gpus in MACHINES)]),
            "How many cores it takes until each part alone takes as long as the work that is spread over them:",
            markdown(
                [
                    ["part", "on Ray", "in processes"],
                    *([name, f"{at:,.0f}", f"{in_processes[name]:,.0f}"] for name, at in bottlenecks(large, ray).items()),
                ]
            ),
        ]
    )


def _row(plan: Plan) -> list[str]:
    minutes = [f"{seconds / MINUTE:,.1f}" for seconds in (plan.take_in, plan.prepare, plan.score, plan.seconds)]
    return [f"{plan.machines:,}", *minutes, f"{plan.machines * plan.seconds / MINUTE**2:,.1f}", f"{plan.cost:,.2f}"]
