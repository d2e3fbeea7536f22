"""The cost of measuring heads: time and memory of all default measures, and of a plain pass.

A Llama-like model with six layers, d_model 512 and 8 heads reads one document of random tokens.
Contestants: the plain forward pass (transformers' sdpa); headwise on every row and on 512 sampled
rows; the usual way, which computes the same numbers from transformers' eager weights
(`output_attentions`); and TransformerLens' `run_with_cache`, in a separate environment (--lens
PYTHON). Contestants are timed in turns in one process; each memory figure has its own process.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch
from harness import setting
from rich.console import Console
from rich.table import Table
from torch import Tensor
from transformers import LlamaConfig, LlamaModel

from headwise.measures.counter import HeadCounter, LayerCache, RowChoice, make_measures
from headwise.measures.head_sums import HeadSums
from headwise.measures.similarity import LOOKS, ROWS, centred_kernels, divergences, pairwise_hsic
from headwise.reading.batch import Batch, TokenFacts
from headwise.scans.scan import count_batch

RESULTS = Path(__file__).parent / "results" / "scan.json"
VOCABULARY, LAYERS, HEADS, D_MODEL = 1000, 6, 8, 512
LENGTHS = (1024, 4096, 16384)
LONGEST_EAGER = 4096
"""Longest document for eager weights; at 16,384 tokens, the weights alone take over 50 GB."""


@dataclass(frozen=True)
class Result:
    """Each contestant's seconds and bytes at one length, and their ratios to the plain pass."""

    length: int
    seconds: dict[str, float]
    spread: dict[str, float]
    time_ratio: dict[str, float]
    memory: dict[str, int]
    memory_ratio: dict[str, float]


def make_model(implementation: str = "sdpa") -> LlamaModel:
    """A model with the same random weights each time."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=D_MODEL,
        intermediate_size=1376,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=HEADS,
        max_position_embeddings=1 << 16,
        attn_implementation=implementation,
    )
    return LlamaModel(config).eval()


def make_batch(length: int) -> Batch:
    """One document of random tokens, a tenth of them punctuation."""
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(0, VOCABULARY, (1, length), generator=generator)
    facts = TokenFacts(
        ids=ids,
        is_real=torch.ones_like(ids, dtype=torch.bool),
        is_special=ids < 2,
        is_punctuation=ids % 10 == 0,
    )
    return Batch({"input_ids": ids}, {"": facts}, (0,))


def plain(length: int) -> Callable[[], object]:
    """Only the forward pass."""
    model, batch = make_model(), make_batch(length)
    return lambda: model(**batch.inputs, use_cache=False)


def headwise_way(rows: int | str) -> Callable[[int], Callable[[], object]]:
    """Every default measure, including comparisons between heads."""

    def build(length: int) -> Callable[[], object]:
        model, batch, cache = make_model(), make_batch(length), LayerCache()

        def run() -> None:
            choice = RowChoice(rows)
            counter = HeadCounter(HeadSums(), make_measures(), choice, compares=True, cache=cache)
            tokens = {stack: replace(one) for stack, one in batch.tokens.items()}
            fresh = Batch(batch.inputs, tokens, batch.indices)  # nothing cached yet
            count_batch(model, fresh, counter)

        return run

    return build


class EagerWay:
    """Computes the same numbers from every layer's full attention weights."""

    def __init__(self, length: int) -> None:
        """Make a model that returns attention weights, and compute the tensors all layers share."""
        self.model, self.batch = make_model("eager"), make_batch(length)
        facts, position = self.batch.tokens[""], torch.arange(length)
        self.apart = (position - position[:, None]).float()
        self.same = (facts.ids[0][:, None] == facts.ids[0]).tril(-1).float()
        self.followed = torch.zeros_like(self.same)
        self.followed[:, 1:] = self.same[:, :-1]
        self.is_special = facts.is_special[0]
        self.seen = torch.arange(1, length + 1).float()
        classes = [position < 1, position < 4, facts.is_special[0], facts.is_punctuation[0]]
        self.classes = torch.stack(classes, -1).float()
        self.heard: dict[str, list[Tensor]] = {"values": [], "mixed": []}
        for layer in self.model.layers:
            layer.self_attn.v_proj.register_forward_hook(
                lambda _, __, output: self.heard["values"].append(output)
            )
            layer.self_attn.o_proj.register_forward_pre_hook(
                lambda _, inputs: self.heard["mixed"].append(inputs[0])
            )

    def __call__(self) -> None:
        """Measure one document."""
        for parts in self.heard.values():
            parts.clear()
        result = self.model(**self.batch.inputs, use_cache=False, output_attentions=True)
        kernels = []
        for number, weights in enumerate(result.attentions):
            values, mixed = (
                self.heard[name][number][0].unflatten(-1, (HEADS, -1)).transpose(0, 1)
                for name in ("values", "mixed")
            )
            projection = self.model.layers[number].self_attn.o_proj.weight.T
            self.measure(weights[0], values, mixed, projection.unflatten(0, (HEADS, -1)))
            kernels.append(centred_kernels(mixed[:, :ROWS]))
            divergences(weights[0, :, -LOOKS:])
        pairwise_hsic(torch.cat(kernels))

    def measure(self, weights: Tensor, values: Tensor, mixed: Tensor, projection: Tensor) -> None:
        """Compute means over the rows of one layer."""
        norms = (values @ projection).norm(dim=-1)
        features = torch.cat([self.classes.expand(HEADS, -1, -1), norms[..., None]], -1)
        features = torch.cat([features, self.classes * norms[..., None]], -1)
        (weights @ features).mean(1)
        weighted = weights * norms[:, None]
        entropy = torch.special.entr(weights).sum(-1)
        entropy.mean(1), (entropy[:, 1:] / self.seen[1:].log()).mean(1)
        largest = weights.argmax(-1)
        weights.masked_fill(self.is_special, 0).amax(-1).mean(1)
        for offset in range(-4, 1):
            weights.diagonal(offset, 1, 2).mean(1), weighted.diagonal(offset, 1, 2).mean(1)
            (largest == torch.arange(len(self.seen)) + offset).float().mean(1)
        for pairs in (self.same, self.followed):
            (weights * pairs).sum(-1).mean(1), (weighted * pairs).sum(-1).mean(1)
        signed = (weights * self.apart).sum(-1)
        signed.mean(1), signed.abs().mean(1)
        lengths = (mixed @ projection).norm(dim=-1)
        lengths.mean(1), (lengths / lengths.sum(0)).mean(1)


CONTESTANTS: dict[str, Callable[[int], Callable[[], object]]] = {
    "plain": plain,
    "headwise, every row": headwise_way("all"),
    "headwise, 512 rows": headwise_way(512),
    "eager weights": EagerWay,
}


def takes_part(name: str, length: int) -> bool:
    """Whether the contestant can run at this length."""
    return name != "eager weights" or length <= LONGEST_EAGER


def time_them(length: int, rounds: int) -> dict[str, list[float]]:
    """Seconds of each contestant's runs; the contestants take turns."""
    runs = {name: build(length) for name, build in CONTESTANTS.items() if takes_part(name, length)}
    times: dict[str, list[float]] = {name: [] for name in runs}
    with torch.inference_mode():
        for run in runs.values():
            run()
        for _ in range(rounds):
            for name, run in runs.items():
                start = time.perf_counter()
                run()
                times[name].append(time.perf_counter() - start)
    return times


def peak_of(name: str, length: int) -> int:
    """Peak memory in bytes of one contestant and its model, measured in a separate process."""
    command = [sys.executable, __file__, "--memory", name, str(length)]
    # Return large blocks to the system when they are freed. Otherwise the peak depends on what the
    # allocator happens to keep, which varies by a third from run to run.
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": str(1 << 19)}
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    return int(done.stdout.split()[-1])


def print_peak(name: str, length: int) -> None:
    """Run once, and print peak memory minus the memory in use before the model was built."""
    before = status("VmRSS")
    Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")  # reset the peak
    run = CONTESTANTS[name](length)
    with torch.inference_mode():
        run()
    print(status("VmHWM") - before)


def status(field: str) -> int:
    """A memory figure for this process, in bytes, as reported by the kernel."""
    for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    raise LookupError(field)


def measure(length: int, rounds: int) -> Result:
    """Measure one row of the table."""
    times = time_them(length, rounds)
    seconds = {name: statistics.median(values) for name, values in times.items()}
    ratios = {
        name: statistics.median(
            ours / theirs for ours, theirs in zip(values, times["plain"], strict=True)
        )
        for name, values in times.items()
    }
    memory = {name: peak_of(name, length) for name in times}
    return Result(
        length=length,
        seconds={name: round(value, 4) for name, value in seconds.items()},
        spread={name: round((max(v) - min(v)) / 2 / seconds[name], 3) for name, v in times.items()},
        time_ratio={name: round(value, 3) for name, value in ratios.items()},
        memory=memory,
        memory_ratio={name: round(value / memory["plain"], 3) for name, value in memory.items()},
    )


def lens(python: str, length: int) -> dict[str, float]:
    """Measure TransformerLens on a model of the same size, with another Python interpreter."""
    script = Path(__file__).with_name("lens.py")
    done = subprocess.run([python, str(script), str(length)], capture_output=True, text=True)
    if done.returncode:
        return {"failed": done.returncode}
    return json.loads(done.stdout.splitlines()[-1])


def as_table(results: list[Result]) -> Table:
    """The rows as a table for the terminal."""
    table = Table()
    for heading in ("tokens", "way", "seconds", "times plain", "peak memory", "times plain"):
        table.add_column(heading)
    for row in results:
        for name in row.seconds:
            table.add_row(
                f"{row.length:,}",
                name,
                f"{row.seconds[name]:.3g} ±{row.spread.get(name, 0):.0%}",
                f"{row.time_ratio[name]:.2f}",
                f"{row.memory[name] / 2**20:,.0f} MiB",
                f"{row.memory_ratio[name]:.2f}",
            )
    return table


def main() -> None:
    """Measure every length, print the results and write them to a file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--memory", nargs=2, metavar=("NAME", "LENGTH"), help=argparse.SUPPRESS)
    parser.add_argument("--lengths", type=int, nargs="+", default=LENGTHS)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--longest", type=int, default=0, help="also time 512 rows at this length")
    parser.add_argument("--lens", help="Python interpreter that has transformer-lens")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    if options.memory:
        print_peak(options.memory[0], int(options.memory[1]))
        return
    console, results = Console(width=110), []
    record: dict[str, object] = {"setting": setting()}
    for length in options.lengths:
        rounds = {1024: 3 * options.rounds, 16384: 3}.get(length, options.rounds)
        results.append(measure(length, rounds))
        console.print(as_table(results[-1:]))
    if options.longest:
        start = time.perf_counter()
        run = headwise_way(512)(options.longest)
        with torch.inference_mode():
            run()
        seconds = time.perf_counter() - start
        eager = LAYERS * HEADS * options.longest**2 * 4
        record["longest"] = {
            "length": options.longest, "seconds": round(seconds, 1), "eager_bytes": eager
        }  # fmt: skip
        console.print(f"{options.longest:,} tokens: {seconds:.1f} s; eager: {eager / 1e9:.0f} GB")
    if options.lens:
        record["lens"] = {str(length): lens(options.lens, length) for length in options.lengths[:2]}
        console.print(record["lens"])
    record["results"] = [asdict(row) for row in results]
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    console.print(as_table(results))


if __name__ == "__main__":
    main()
