"""The tables of docs/gpu.md, from the records of the parts."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from benchmarks.gpu.plan import PARTS
from benchmarks.gpu.record import PartRecord, Row
from benchmarks.gpu.shapes import SHAPES
from benchmarks.performance.report import command_line, put
from training.evaluate.tables import markdown

BEGIN = "<!-- the GPU: python -m benchmarks.gpu --publish writes from here -->"
TERA, GIGA, MILLI, MEBI = 1e12, 1e9, 1e3, 2**20
TITLES = {part.name: part.title for part in PARTS} | {shape.name: shape.title for shape in SHAPES}
TENSOR_FLOAT = {"fp32": "tf32"}  # ONNX Runtime's CUDA provider multiplies fp32 matrices in TF32
Records = Mapping[str, PartRecord]


class NothingToSayError(ValueError):
    """The records cannot be published; the message says why in one line."""


def write_page(page: Path, records: Records) -> None:
    """Put all tables between the page's marks. Raises NothingToSayError and `benchmarks.performance.report.PageError`."""
    put(page, report(records), BEGIN)


def report(records: Records) -> str:
    """All tables in Markdown, and a list of missing parts. Raises NothingToSayError unless all records are of one GPU."""
    setups = {tuple(record["setup"].values()) for record in records.values() if record["rows"]}
    if not setups:
        raise NothingToSayError("no part is measured: run python -m benchmarks.gpu first")
    if len(setups) > 1 or any(record["setup"]["provider"] == "cpu" for record in records.values() if record["rows"]):
        setups_text = "; ".join(", ".join(setup) for setup in sorted(setups))
        raise NothingToSayError(f"the records are of {setups_text}; a page is of one GPU: remove the others and measure again")
    sections = [head(records)]
    for name, record in records.items():
        if record["rows"]:
            sections.append(f"## {TITLES[name]}\n\n{section(record, rates_of(records))}")
    return "\n\n".join([*sections, absent(records)])


def head(records: Records) -> str:
    """The device, the commit and the command of the measurements."""
    measured = [record for record in records.values() if record["rows"]]
    run = measured[0]["run"]
    minutes = sum(record["seconds"] for record in measured) / 60
    how = f"`{run['command']}`: {command_line([record['run'] for record in measured])}; {minutes:.0f} minutes of measuring."
    return f"Measured on {measured[0]['setup']['device']}, {run['sizes']} sizes.\n\n{how}"


def absent(records: Records) -> str:
    """The parts that are missing or incomplete, and why."""
    lines = [f"- {TITLES[name]}: {record['state']}, {record['why']}" for name, record in records.items() if record["why"]]
    lines += [f"- {part.title}: never tried" for part in PARTS if part.name not in records]
    return "## Not measured, or not whole\n\n" + ("\n".join(lines) or "Nothing is missing.")


def rates_of(records: Records) -> dict[str, float]:
    """The GPU's own rates: operations a second by precision, and bytes a second of its memory."""
    rows = records["device"]["rows"] if "device" in records else []
    return {row["what"]: row["rate"] for row in rows if row["table"] == "roofline"}


def section(record: PartRecord, rates: Mapping[str, float]) -> str:
    """A part's tables: one for each kind of row."""
    kinds = dict.fromkeys(row["table"] for row in record["rows"])
    made = [WRITERS[kind]([row for row in record["rows"] if row["table"] == kind], rates) for kind in kinds]
    return "\n\n".join(part for part in made if part)


def device_text(rows: Sequence[Row], _: Mapping[str, float]) -> str:
    """The device, its driver, its clocks, and the versions of packages."""
    row = rows[0]
    memory = f"{row['memory'] / MEBI:,.0f} MiB" if row["memory"] else "unknown memory"
    versions = ", ".join(f"{name} {version}" for name, version in row["versions"].items())
    what = f"{row['name']}, {memory}, driver {row['driver']}, CUDA {row['cuda']}; host: {row['host']}, Python {row['python']}."
    runs = f"{versions}. Providers: {', '.join(row['providers'])}. Clocks before, MHz: {clocks(row['clocks'])}."
    return f"{what}\n\n{runs}"


def clocks(found: Mapping[str, int]) -> str:
    """Clocks in MHz by name, as text."""
    return ", ".join(f"{name} {value:,}" for name, value in found.items()) or "not told"


def clocks_text(rows: Sequence[Row], _: Mapping[str, float]) -> str:
    """The clocks after the matrix products."""
    return f"Clocks after the products: {clocks(rows[0]['after'])}."


def roofline_table(rows: Sequence[Row], _: Mapping[str, float]) -> str:
    """The rates of PyTorch's matrix products and copies."""
    grid = [["", "rate"]]
    for row in rows:
        bytes_moved = row["what"] in ("memory", "host to device, pinned")
        unit = f"{row['rate'] / GIGA:,.0f} GB/s" if bytes_moved else f"{row['rate'] / TERA:,.1f} TFLOP/s"
        grid.append([row["what"], unit])
    return markdown(grid)


def parity_table(rows: Sequence[Row], _: Mapping[str, float]) -> str:
    """How far logits and rankings differ between arithmetics."""
    grid = [["arithmetic", "largest difference of a logit", "mean", "first document kept", "pairs swapped"]]
    for row in rows:
        if "refused" in row:
            grid.append([row["way"], f"not computed: {row['refused']}", "", "", ""])
        else:
            cells = [f"{row['largest']:.4f}", f"{row['mean']:.5f}", f"{row['first_kept']:.1%}", f"{row['swapped']:.3%}"]
            grid.append([row["way"], *cells])
    sizes = f"{rows[0]['sequences']:,} sequences of {rows[0]['queries']} queries, against the first row."
    return f"{sizes}\n\n{markdown(grid)}"


def speed_tables(rows: Sequence[Row], rates: Mapping[str, float]) -> str:
    """For each shape: sequences a second and the share of the roofline, then milliseconds, by way, budget and batch."""
    shapes = dict.fromkeys(row["shape"] for row in rows)
    made = []
    for shape in shapes:
        own = [row for row in rows if row["shape"] == shape]
        cells = [row for row in own if "latency" in row]
        name = f"{TITLES[shape]}: " if len(shapes) > 1 else ""
        if cells:
            made.append(f"{name}sequences a second (share of the GPU's own rate in that arithmetic):")
            made.append(_grid(cells, lambda row: f"{row['sequences']:,.0f}{_share(row, rates)}"))
            made.append(f"{name}milliseconds from host to host, median (90th percentile):")
            made.append(_grid(cells, lambda row: f"{row['latency'] * MILLI:.2f} ({row['latency_p90'] * MILLI:.2f})"))
        if refused := list(dict.fromkeys(_refused(own))):
            made.append("\n".join(refused))
    return "\n\n".join(made)


def _grid(rows: Sequence[Row], cell: Callable[[Row], str]) -> str:
    """A table with a line for each way and budget and a column for each batch size."""
    batches = sorted({row["batch"] for row in rows})
    lines = dict.fromkeys((row["way"], row["precision"], row["budget"]) for row in rows)
    found = {((row["way"], row["precision"], row["budget"]), row["batch"]): cell(row) for row in rows}
    grid = [["", "arithmetic", "tokens", *(f"batch {batch}" for batch in batches)]]
    grid += [[*map(str, line), *(found.get((line, batch), "") for batch in batches)] for line in lines]
    return markdown(grid)


def _share(row: Row, rates: Mapping[str, float]) -> str:
    rate = rates.get(TENSOR_FLOAT.get(row["precision"], row["precision"]))
    return f" ({row['achieved'] / rate:.0%})" if rate else ""


def _refused(rows: Sequence[Row]) -> Iterator[str]:
    for row in rows:
        if "refused" in row:
            where = f" at {row['budget']} x {row['batch']}" if "budget" in row else ""
            yield f"- {row['way']} {row['precision']}{where} was refused: {row['refused']}"


def servers_table(rows: Sequence[Row], _: Mapping[str, float]) -> str:
    """The rates of other servers."""
    grid = [["", "documents a second, one request at a time"]]
    grid += [[row["way"], row.get("refused") or f"{row['documents_a_second']:,.0f}"] for row in rows]
    return markdown(grid)


def start_text(rows: Sequence[Row], _: Mapping[str, float]) -> str:
    """Seconds from start to ready."""
    row = rows[0]
    spread = f"{row['seconds']['median']:.1f} s ({row['seconds']['low']:.1f} to {row['seconds']['high']:.1f})"
    return f"On {row['provider']} in {row['arithmetic']}. From start to ready, every shape warmed up: {spread}."


def stages_text(rows: Sequence[Row], _: Mapping[str, float]) -> str:
    """Where a request's time goes."""
    stages = ", ".join(f"{name} {seconds * MILLI:.1f}" for name, seconds in rows[0]["stages"].items())
    return f"One request alone, new documents: {rows[0]['seconds'] * MILLI:.0f} ms; its stages in ms: {stages}."


def service_table(rows: Sequence[Row], _: Mapping[str, float]) -> str:
    """Documents a second of the service, and the energy they take."""
    grid = [["documents", "clients", "documents a second", "joules of the GPU for 1,000"]]
    for row in rows:
        joules = "not told" if row["joules"] is None else f"{row['joules']:,.0f}"
        grid.append([row["seen"], str(row["clients"]), f"{row['documents_a_second']:,.0f}", joules])
    return markdown(grid)


def memory_text(rows: Sequence[Row], _: Mapping[str, float]) -> str:
    """Memory of the process on the GPU and the host."""
    on_device = "not told" if rows[0]["device"] is None else f"{rows[0]['device'] / MEBI:,.0f} MiB"
    return f"Memory after these: {on_device} of the GPU's, {rows[0]['resident'] / MEBI:,.0f} MiB of the host's."


WRITERS: dict[str, Callable[[Sequence[Row], Mapping[str, float]], str]] = {
    "device": device_text,
    "clocks": clocks_text,
    "roofline": roofline_table,
    "parity": parity_table,
    "speed": speed_tables,
    "servers": servers_table,
    "start": start_text,
    "stages": stages_text,
    "service": service_table,
    "memory": memory_text,
}
"""The functions that make tables, by kind of row."""
