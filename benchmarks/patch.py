"""Which heads carry the built-in tasks, how good the estimates are, and what they cost.

For each task: the heads found with their intervals; how many of the exact twenty largest effects
each estimate finds; the CPU time of each method beside that of plain forward passes. With --length,
attribution on prompts of that many tokens, and its peak memory beside what a cache of every
activation and attention weight of both runs would take.

    python benchmarks/patch.py smollm2 --task indirect-object agreement pronoun
    python benchmarks/patch.py smollm2 --length 256 2048
"""

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from harness import setting

from headwise.models.loaded import LoadedModel
from headwise.models.loading import LoadOptions, load_model
from headwise.objectives.scored_model import ScoredModel, open_scored_model
from headwise.patching.alignment import PairBatch, align_pairs
from headwise.patching.attribution import attribute_heads, attribute_with_drops
from headwise.patching.exact import patch_each_head
from headwise.patching.metrics import LogitDifference
from headwise.patching.result import agreement, bootstrap_shares
from headwise.patching.runs import PairRuns, run_pairs
from headwise.patching.tasks import task_pairs
from headwise.watching.running import forward

RESULTS = Path(__file__).parent / "results"
STEPS = 10
TOP = 20
SHOWN = 10


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    """The result, and the CPU seconds that it took."""
    start = time.process_time()
    result = work()
    return result, time.process_time() - start


def measure_task(loaded: LoadedModel, task: str, count: int) -> dict[str, Any]:
    """Effects of all heads by denoising, exact and estimated, and the time of each method."""
    batches = align_pairs(loaded, task_pairs(task, loaded, count), batch_tokens=100_000)
    methods: dict[str, Callable[[PairRuns], torch.Tensor]] = {
        "exact": lambda runs: patch_each_head(runs, "denoise", outputs_of(runs), heads_of(runs)),
        "attribution": lambda runs: attribute_heads(
            runs, "denoise", outputs_of(runs), heads_of(runs)
        ),
        f"{STEPS} steps": lambda runs: attribute_heads(
            runs, "denoise", outputs_of(runs), heads_of(runs), steps=STEPS
        ),
    }
    every = [run_pairs(loaded.model, batch, LogitDifference()) for batch in batches]
    differences = torch.cat([runs.clean - runs.corrupted for runs in every])
    mean = differences.mean()
    seconds, effects = dict[str, float](), dict[str, torch.Tensor]()
    for name, method in methods.items():
        parts, seconds[name] = timed(lambda method=method: [method(runs) for runs in every])
        effects[name] = torch.cat(parts, 1)
    parts, seconds["AtP* drops"] = timed(
        lambda: [
            attribute_with_drops(runs, "denoise", outputs_of(runs), heads_of(runs))
            for runs in every
        ]
    )
    drops = torch.cat(parts, 2).mean(2).abs().mean(0) / abs(mean)
    with torch.no_grad():
        _, plain = timed(
            lambda: [forward(loaded.model, batch.clean, logits_to_keep=1) for batch in batches]
        )
    heads = heads_of(every[0])
    seconds[f"{len(heads)} plain passes"] = plain * len(heads)
    means = {name: values.mean(1) / mean for name, values in effects.items()} | {
        "AtP* drops": drops
    }
    exact = means.pop("exact")
    intervals = bootstrap_shares(effects["exact"], differences, resamples=1000, seed=0)
    order = exact.abs().argsort(descending=True)[:SHOWN].tolist()
    return {
        "task": task,
        "pairs": len(differences),
        "tokens": sum(batch.clean["input_ids"].numel() for batch in batches),
        "difference": float(mean),
        "heads": {str(heads[row]): [round(value, 4) for value in intervals[row]] for row in order},
        "smallest_of_top": float(exact.abs().topk(TOP).values[-1]),
        "agreement": agreement(means, exact, TOP),
        "seconds": {name: round(value, 2) for name, value in seconds.items()},
    }


def outputs_of(runs: PairRuns) -> Any:
    """The clean outputs."""
    return runs.replacements("denoise")


def heads_of(runs: PairRuns) -> Any:
    """Every head of the model."""
    from headwise.heads import HeadId

    return [
        HeadId(call.layer, head, call.stack)
        for call in runs.calls["noise"]
        for head in range(call.num_heads)
    ]


def measure_length(model: str, length: int) -> dict[str, Any]:
    """Time and peak memory of attribution on a prompt of `length` tokens, in this process."""
    scored: ScoredModel = open_scored_model(model)
    pair = task_pairs("indirect-object", scored, 1)[0]
    (short,) = align_pairs(scored, [pair])
    filler = scored.tokenizer(" ".join(["The rain fell on the old town all day."] * length))
    start = filler["input_ids"][: length - short.length]

    def lengthen(inputs: Any) -> dict[str, torch.Tensor]:
        ids = torch.cat([torch.tensor([start]), inputs["input_ids"]], 1)
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}

    batch = PairBatch(
        indices=(0,),
        clean=lengthen(short.clean),
        corrupted=lengthen(short.corrupted),
        position=torch.tensor([length - 1]),
        answer=short.answer,
        instead=short.instead,
        tokens=(),
    )
    with torch.no_grad():
        forward(scored.model, short.clean, logits_to_keep=1)  # the first pass allocates buffers
        before = reset_peak()
        _, plain = timed(lambda: forward(scored.model, batch.clean, logits_to_keep=1))
        plain_memory = memory("VmHWM") - before
    before = reset_peak()

    def attribute() -> Any:
        runs = run_pairs(scored.model, batch, LogitDifference())
        return attribute_heads(runs, "denoise", outputs_of(runs), heads_of(runs))

    _, seconds = timed(attribute)
    return {
        "length": length,
        "plain_seconds": round(plain, 2),
        "seconds": round(seconds, 2),
        "plain_memory": plain_memory,
        "memory": memory("VmHWM") - before,
        "full_cache": full_cache_bytes(scored, length),
    }


def full_cache_bytes(loaded: LoadedModel, length: int) -> int:
    """Bytes of scores and weights of every head in two runs and one backward pass, in float32.

    This is what attribution takes that stores every activation: two caches with scores and
    weights, and the gradients of both in the run that is differentiated.
    """
    config: Any = loaded.model.config
    matrices = 2 + 2 + 2
    heads = config.num_hidden_layers * config.num_attention_heads
    return matrices * heads * length * length * 4


def memory(field: str) -> int:
    """A memory figure of this process, in bytes, as reported by the kernel."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{field}:"))


def reset_peak() -> int:
    """Start to measure the peak again; returns the memory in use now."""
    Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")
    return memory("VmRSS")


def main() -> None:
    """Measure, print JSON and write it to benchmarks/results."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model", nargs="?", default="smollm2")
    parser.add_argument("--task", nargs="*", default=[])
    parser.add_argument("--count", type=int, default=16, help="pairs per task")
    parser.add_argument("--length", nargs="*", type=int, default=[])
    given = parser.parse_args()
    torch.set_num_threads(1)
    file = RESULTS / f"patch-{given.model}.json"
    known = json.loads(file.read_text("utf-8")) if file.is_file() else {"tasks": {}, "lengths": {}}
    known["setting"] = setting()
    for length in given.length:
        known["lengths"][str(length)] = measure_length(given.model, length)
        print(json.dumps(known["lengths"][str(length)]), flush=True)
    if given.task:
        loaded = load_model(given.model, LoadOptions(keeps_head=True))
        loaded.model.eval()
        for task in given.task:
            known["tasks"][task] = measure_task(loaded, task, given.count)
            print(json.dumps(known["tasks"][task], indent=1), flush=True)
    file.write_text(json.dumps(known, indent=1) + "\n", "utf-8")
    print(f"wrote {file}", file=sys.stderr)


if __name__ == "__main__":
    main()
