"""Tables from the benchmarks' JSON, for the terminal, docs/speed.md and the README.

`python benchmarks/render.py` puts the last runs' tables between the markers on both pages.
"""

import json
import re
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harness import Result
from rich.table import Table

from headwise.formats import format_count, join_words


def read_json(path: Path) -> tuple[dict[str, object], list[Result]]:
    """Setting and results of a run."""
    record = json.loads(path.read_text(encoding="utf-8"))
    return record["setting"], [Result(**row) for row in record["results"]]


HEADINGS = (
    "",
    "task",
    "size",
    "dtype",
    "pass",
    "headwise",
    "best peer",
    "its time",
    "ratio",
    "of peak",
)
RIVALS = ("nn.MultiheadAttention", "torch sdpa, dense mask", "enable_gqa", "repeated keys")


def in_ms(value: float) -> str:
    """A time in milliseconds, to three digits."""
    return f"{value:,.0f} ms" if value >= 100 else f"{value:.3g} ms"


def cells(row: Result) -> list[str]:
    """The cells of one row as text."""
    ours, theirs = row.median["headwise"], row.median[row.best_peer]
    return [
        row.level,
        row.kind,
        row.size,
        row.dtype,
        "fwd+bwd" if row.is_training else "fwd",
        f"{in_ms(ours)} ±{row.spread['headwise']:.0%}",
        row.best_peer,
        f"{in_ms(theirs)} ±{row.spread[row.best_peer]:.0%}",
        f"{row.ratio_to_best:.2f}",
        "" if row.share_of_peak is None else f"{row.share_of_peak:.0%}",
    ]


def as_table(record: tuple[dict[str, object], list[Result]]) -> Table:
    """The whole run as a table for the terminal."""
    setting, results = record
    words = ", ".join(f"{name} {value}" for name, value in setting.items() if value)
    table = Table(title=words, title_style="dim")
    for heading in HEADINGS:
        table.add_column(heading, no_wrap=True)
    for row in results:
        table.add_row(*cells(row))
    return table


def as_markdown(record: tuple[dict[str, object], list[Result]]) -> str:
    """The whole run as a Markdown table."""
    return markdown([HEADINGS, *(cells(row) for row in record[1])])


def markdown(lines: Sequence[Sequence[str]]) -> str:
    """A Markdown table; the first line is its heading."""
    ruled = [lines[0], ["---"] * len(lines[0]), *lines[1:]]
    return "\n".join("| " + " | ".join(line) + " |" for line in ruled)


HERE = Path(__file__).parent
RESULTS = HERE / "results" / "layer.json"
README, SPEED = HERE.parent / "README.md", HERE.parent / "docs" / "speed.md"


def put(text: str, mark: str, made: str) -> str:
    """A page's text with `made` between the two markers named `mark`."""
    marked = re.compile(f"(<!-- {mark}: -->\n).*?(<!-- :{mark} -->)", re.DOTALL)
    text, count = marked.subn(lambda found: found[1] + made + found[2], text)
    assert count == 1, f"the page has no markers for {mark}"
    return text


def layer_markdown(record: tuple[dict[str, object], list[Result]]) -> str:
    """The run as Markdown: the claims, then every row."""
    setting, _ = record
    words = ", ".join(f"{name} {value}" for name, value in setting.items() if value)
    claims = "\n".join(f"- {line}" for line in targets(record))
    return f"{claims}\n\n{as_markdown(record)}\n\n{words}\n"


def targets(record: tuple[dict[str, object], list[Result]]) -> list[str]:
    """One line per claim about headwise, with the figures of this run."""
    results = record[1]
    lines = []
    worst = max(results, key=lambda row: row.ratio_to_best)
    over = [row for row in results if row.ratio_to_best > 1.05]
    lines.append(
        f"ratio to the best peer: largest {worst.ratio_to_best:.2f} "
        f"({worst.level} {worst.kind} {worst.size} {worst.dtype}); {len(over)} of {len(results)} "
        "rows over 1.05"
    )
    for row in results:
        times = row.median
        where = f"{row.level} {row.kind} {row.size} {row.dtype}"
        if row.is_training or row.dtype != "float32":
            continue
        if row.kind in ("full", "causal") and row.size in ("1 x 2,048", "1 x 8,192"):
            lines.append(f"{where}: {row.share_of_peak:.0%} of the matrix-multiply peak")
        for rival in RIVALS:
            if rival in times and ("8,192" in row.size or row.kind == "ragged"):
                gain = times[rival] / times["headwise"]
                lines.append(f"{where}: {gain:.1f}x as fast as {rival}")
        if "read" in times:
            cost = times["headwise"] / times["read"]
            lines.append(f"{where}: {cost:.1f}x the time of reading the cache once")
    return lines


SCAN = HERE / "results" / "scan.json"


def scan_markdown(record: dict[str, Any]) -> str:
    """The cost of measuring, one row per length and method."""
    heading = ("tokens", "way", "seconds", "time / plain", "peak memory", "memory / plain")
    lines: list[tuple[str, ...]] = [heading]
    for row in record["results"]:
        for name in row["seconds"]:
            lines.append(
                (
                    f"{row['length']:,}",
                    name,
                    f"{row['seconds'][name]:.3g} ±{row['spread'][name]:.0%}",
                    f"{row['time_ratio'][name]:.2f}",
                    f"{row['memory'][name] / 2**20:,.0f} MiB",
                    f"{row['memory_ratio'][name]:.2f}",
                )
            )
    for length, found in record.get("lens", {}).items():
        if "seconds" in found:
            memory = f"{found['memory'] / 2**20:,.0f} MiB"
            name = "TransformerLens run_with_cache, no measures"
            lines.append((f"{int(length):,}", name, f"{found['seconds']:.3g}", "", memory, ""))
    text = markdown(lines)
    longest = record.get("longest")
    if longest:
        text += (
            f"\n\nAt {longest['length']:,} tokens, 512 rows take {longest['seconds']:.0f} s; the "
            f"eager weights alone would take {longest['eager_bytes'] / 1e9:.0f} GB."
        )
    return f"{text}\n"


PRUNE = {name: HERE / "results" / f"prune-{name}.json" for name in ("minilm", "smollm2")}


def quality_lines(record: dict[str, Any]) -> list[tuple[str, ...]]:
    """Lines of a table: a heading, then one row per method, one column per share of heads."""
    cells = {
        (row["method"], row["share"]): " / ".join(
            quality_cell(row[name], record) for name in ("zeros", "means")
        )
        for row in record["choose"]
    }
    methods, shares = (list(dict.fromkeys(keys)) for keys in zip(*cells, strict=True))
    return [
        ("chosen by", *(f"{share:.0%} cut" for share in shares)),
        *((method, *(cells[method, share] for share in shares)) for method in methods),
    ]


def quality_cell(values: Sequence[float], record: dict[str, Any]) -> str:
    """The median cosine, or perplexity as a multiple of the uncut model's; with a range if any."""

    def cell(value: float) -> str:
        is_cosine = record["unit"] == "cosine"
        return f"{value:.3f}" if is_cosine else f"{value / record['uncut']:.2f}x"

    median, low, high = map(cell, (statistics.median(values), min(values), max(values)))
    return median if len(values) == 1 else f"{median} ({low} to {high})"


def quality_markdown(record: dict[str, Any]) -> str:
    """The quality of every choice, below a sentence that says what it is and on which text."""
    chosen, report = (record["text"][step] for step in ("choose", "report"))
    measure = "mean cosine to the uncut model's embeddings"
    if record["unit"] != "cosine":
        measure = f"perplexity as a multiple of the uncut model's ({record['uncut']:.1f})"
    sentence = (
        f"`{record['model']}`, {measure}, with zeros / with mean outputs in place of the cut "
        f"heads; chosen on {chosen['tokens']:,} tokens of {join_words(chosen['registers'])}, "
        f"measured on {report['tokens']:,} tokens of {join_words(report['registers'])}:"
    )
    return f"{sentence}\n\n{markdown(quality_lines(record))}"


def speed_markdown(record: dict[str, Any]) -> str:
    """How much faster a cut model is, and the share of multiply-adds removed."""
    lines: list[tuple[str, ...]] = [
        ("heads cut", "attention multiply-adds gone", "batch", "before", "after", "times as fast")
    ]
    for row in record["speed"]:
        lines.append(
            (
                f"{row['share']:.0%}",
                f"{row['multiply_adds_removed']:.0%}",
                f"{row['batch']} x {row['positions']}",
                f"{row['before']:.3f} s",
                f"{row['after']:.3f} s",
                f"{row['ratio']:.2f} ±{row['spread']:.2f}",
            )
        )
    run = record["settings"]["time"]
    sentence = (
        f"`{record['model']}`, time of one forward pass, uncut and cut, "
        f"{format_count(run['threads'], 'thread')}, commit {run['commit']}:"
    )
    return f"{sentence}\n\n{markdown(lines)}"


def prune_markdown(records: dict[str, dict[str, Any]]) -> str:
    """What the benchmark of cutting measured of each model: quality, speed, cost of importance."""
    parts = []
    for record in records.values():
        if "choose" in record:
            parts.append(quality_markdown(record))
        if "speed" in record:
            parts.append(speed_markdown(record))
        if "importance" in record:
            seconds = (f"{what} {taken:.1f} s" for what, taken in record["importance"].items())
            parts.append(f"Importance of its heads, in the same run: {', '.join(seconds)}.")
    return "\n\n".join(parts) + "\n"


def prune_records() -> dict[str, dict[str, Any]]:
    """Records of the last pruning runs, by model."""
    return {
        name: json.loads(path.read_text(encoding="utf-8"))
        for name, path in PRUNE.items()
        if path.exists()
    }


Job = tuple[str, str, str, str]
"""A table row: the job, headwise's result, the alternatives' results, and the command to run."""

LAYER_JOBS = (
    (
        "a causal layer, 8,192 tokens",
        ("layer", "causal", "1 x 8,192"),
        ("transformers sdpa", "x-transformers", "nn.MultiheadAttention"),
    ),
    (
        "decoding on 8,192 cached tokens, 32 heads over 8",
        ("core", "decode", "1 on 8,192, 32/8 heads"),
        ("enable_gqa", "repeated keys"),
    ),
)


def scan_job(record: dict[str, Any]) -> Job:
    """Measuring heads, compared with the two usual ways."""
    found = next(row for row in record["results"] if row["length"] == 4096)

    def took(name: str) -> str:
        return f"{found['seconds'][name]:.2g} s, {found['memory'][name] / 2**20:,.0f} MiB"

    lens = record["lens"]["4096"]
    return (
        "all measures of every head, six layers, 4,096 tokens",
        f"every row: **{took('headwise, every row')}**; 512 random rows: "
        f"**{took('headwise, 512 rows')}** (a plain pass: {took('plain')})",
        f"`output_attentions`, then the same measures on every row: {took('eager weights')}; "
        "TransformerLens `run_with_cache`, which caches activations and computes no measure: "
        f"{lens['seconds']:.2g} s, {lens['memory'] / 2**20:,.0f} MiB",
        "`benchmarks/scan.py`",
    )


def layer_jobs(results: list[Result]) -> list[Job]:
    """The layer and the function, compared with their peers."""
    plain = {
        (row.level, row.kind, row.size): row.median
        for row in results
        if row.dtype == "float32" and not row.is_training
    }
    return [
        (
            what,
            f"**{in_ms(plain[key]['headwise'])}**",
            "; ".join(f"{peer}: {in_ms(plain[key][peer])}" for peer in peers),
            "`benchmarks/layer.py`",
        )
        for what, key, peers in LAYER_JOBS
    ]


def page_job(record: dict[str, Any]) -> Job:
    """All heads of a model on one text, as a file for a browser."""
    theirs = record["bertviz"]
    (ours,) = (saved for saved in record["saved"] if saved["tokens"] == theirs["tokens"])
    return (
        "a file with all 270 heads of smollm2 on one text",
        f"**{ours['bytes'] / 1e6:.0f} MB** for {ours['tokens']} tokens",
        f"BertViz: {theirs['bytes'] / 1e6:.0f} MB for {theirs['tokens']} tokens",
        "`benchmarks/explore.py smollm2`",
    )


def cut_job(record: dict[str, Any]) -> Job:
    """Cutting half of the heads, chosen by several methods."""
    half = {
        row["method"]: quality_cell(row["means"], record)
        for row in record["choose"]
        if row["share"] == 0.5
    }
    names = [name for name in half if name.startswith(("ablation", "michel", "random"))]
    return (
        "choosing half of minilm's heads to cut: cosine to the uncut model on "
        f"{join_words(record['text']['report']['registers'])}, mean outputs in place of the heads",
        f"**{half['rounds']}**",
        "; ".join(f"{name}: {half[name]}" for name in names),
        "`benchmarks/prune.py minilm`",
    )


EXPLORE = HERE / "results" / "explore-smollm2.json"


def pages() -> dict[Path, str]:
    """The text of every page that shows results, updated from the last runs."""

    def read(path: Path) -> Any:
        return json.loads(path.read_text(encoding="utf-8"))

    layer, scan, prune = read_json(RESULTS), read(SCAN), prune_records()
    speed = put(SPEED.read_text(encoding="utf-8"), "layer.json", layer_markdown(layer))
    speed = put(speed, "scan.json", scan_markdown(scan))
    jobs = [
        scan_job(scan),
        *layer_jobs(layer[1]),
        page_job(read(EXPLORE)),
        cut_job(prune["minilm"]),
    ]
    peers = markdown([("job", "headwise", "otherwise", "command"), *jobs]) + "\n"
    return {
        SPEED: put(speed, "prune.json", prune_markdown(prune)),
        README: put(README.read_text(encoding="utf-8"), "peers", peers),
    }


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
