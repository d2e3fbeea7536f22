"""The layer and the functional core against their peers: `make bench` (`--quick`: some rows only).

Rows: full, causal, window, ragged, cross and decode; 16 to 8,192 tokens; forward, and forward with
backward; float32 and bfloat16. Peers and headwise take turns in one process.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

import harness
import torch
import torch.nn.functional as F
from harness import Case, Run, peak, race, restart_if_unsafe, write_json
from peers import Textbook, TransformersSdpa, dense_mask, dense_sdpa, x_attention
from render import RESULTS, as_table, read_json, targets
from rich.console import Console
from rich.progress import track
from torch import Tensor, nn

import headwise
from headwise import GrowingCache, MultiHeadAttention, Rules, attend

D_MODEL, NUM_HEADS = 1024, 8
D_KEY = D_MODEL // NUM_HEADS
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
LONGEST_MATRIX = 4096
"""Longest sequence for the textbook class: beyond it, the full weight matrix takes gigabytes."""
BATCH_TOKENS = 2048
"""Short sequences come in batches of up to this many tokens; longer ones come one at a time."""


def batch_of(length: int) -> int:
    """Number of sequences of `length` tokens in a batch."""
    return max(1, min(8, BATCH_TOKENS // length))


def as_run(call: Run, inputs: list[Tensor], *, is_training: bool) -> Run:
    """The call, followed by its backward pass if `is_training`."""
    if not is_training:
        return call

    def forward_and_backward() -> None:
        output = call()
        output = output[0] if isinstance(output, tuple) else output
        assert isinstance(output, Tensor)
        output.backward(torch.ones_like(output))
        for tensor in inputs:
            tensor.grad = None

    return forward_and_backward


def layer_case(kind: str, length: int, dtype: str, *, is_training: bool) -> Case:
    """Self-attention layers on a batch of equally long sequences, full or causal."""
    batch = batch_of(length)
    is_causal = kind == "causal"
    pairs = length * (length + 1) / 2 if is_causal else length**2
    flops = batch * (8.0 * length * D_MODEL**2 + 4.0 * pairs * D_MODEL)

    def build() -> dict[str, Run]:
        torch.manual_seed(0)
        ours = MultiHeadAttention(D_MODEL, NUM_HEADS, is_causal=is_causal)
        drop_in = headwise.nn.MultiheadAttention(D_MODEL, NUM_HEADS, batch_first=True)
        torchs = nn.MultiheadAttention(D_MODEL, NUM_HEADS, batch_first=True)
        book, hugging = Textbook(D_MODEL, NUM_HEADS), TransformersSdpa(D_MODEL, NUM_HEADS)
        hugging.is_causal = is_causal
        other = x_attention(D_MODEL, NUM_HEADS, is_causal=is_causal)
        layers = [ours, drop_in, torchs, book, hugging, other]
        x = torch.randn(batch, length, D_MODEL).to(DTYPES[dtype]).requires_grad_(is_training)
        for layer in layers:
            layer.to(DTYPES[dtype]).train(is_training)
        blocked = ~dense_mask(length, length) if is_causal else None
        options = {"need_weights": False, "attn_mask": blocked, "is_causal": is_causal}
        calls: dict[str, Run] = {
            "headwise": lambda: ours(x),
            "drop-in": lambda: drop_in(x, x, x, **options),
            "nn.MultiheadAttention": lambda: torchs(x, x, x, **options),
            "textbook": lambda: book(x, None if blocked is None else ~blocked),
            "transformers sdpa": lambda: hugging(x),
            "x-transformers": lambda: other(x),
        }
        if length > LONGEST_MATRIX:
            del calls["textbook"]
        inputs = [x, *(parameter for layer in layers for parameter in layer.parameters())]
        runs = {name: as_run(call, inputs, is_training=is_training) for name, call in calls.items()}
        return runs | {"peak": peak(DTYPES[dtype])}

    size = f"{batch} x {length:,}"
    return Case("layer", kind, size, dtype, is_training, flops * (3 if is_training else 1), build)


def cross_case(num_queries: int, num_keys: int, dtype: str) -> Case:
    """A layer that attends from a short sequence to a long one."""
    rows = num_queries + num_keys
    flops = 4.0 * rows * D_MODEL**2 + 4.0 * num_queries * num_keys * D_MODEL

    def build() -> dict[str, Run]:
        torch.manual_seed(0)
        ours, book = MultiHeadAttention(D_MODEL, NUM_HEADS), Textbook(D_MODEL, NUM_HEADS)
        torchs = nn.MultiheadAttention(D_MODEL, NUM_HEADS, batch_first=True)
        hugging, other = TransformersSdpa(D_MODEL, NUM_HEADS), x_attention(D_MODEL, NUM_HEADS)
        for layer in (ours, book, torchs, hugging, other):
            layer.to(DTYPES[dtype]).eval()
        x = torch.randn(1, num_queries, D_MODEL).to(DTYPES[dtype])
        context = torch.randn(1, num_keys, D_MODEL).to(DTYPES[dtype])
        return {
            "headwise": lambda: ours(x, context),
            "nn.MultiheadAttention": lambda: torchs(x, context, context, need_weights=False),
            "textbook": lambda: book(x, context=context),
            "transformers sdpa": lambda: hugging(x, context=context),
            "x-transformers": lambda: other(x, context=context),
            "peak": peak(DTYPES[dtype]),
        }

    return Case("layer", "cross", f"{num_queries} on {num_keys:,}", dtype, False, flops, build)


def tensors(batch: int, heads: int, length: int, d_key: int, dtype: torch.dtype) -> list[Tensor]:
    """Queries, keys and values as projections return them: positions before heads in memory."""
    made = [torch.randn(batch, length, heads, d_key).to(dtype).transpose(1, 2) for _ in range(3)]
    return [tensor.requires_grad_() for tensor in made]


def core_case(kind: str, length: int, dtype: str, *, is_training: bool) -> Case:
    """`attend` against torch's fused attention itself."""
    batch = batch_of(length)
    is_causal = kind == "causal"
    pairs = length * (length + 1) / 2 if is_causal else length**2
    flops = 4.0 * batch * NUM_HEADS * pairs * D_KEY * (3.5 if is_training else 1)

    def build() -> dict[str, Run]:
        queries, keys, values = inputs = tensors(batch, NUM_HEADS, length, D_KEY, DTYPES[dtype])
        calls: dict[str, Run] = {
            "headwise": lambda: attend(queries, keys, values, is_causal=is_causal),
            "torch sdpa": lambda: F.scaled_dot_product_attention(
                queries, keys, values, is_causal=is_causal
            ),
        }
        runs = {name: as_run(call, inputs, is_training=is_training) for name, call in calls.items()}
        return runs | {"peak": peak(DTYPES[dtype])}

    return Case("core", kind, f"{batch} x {length:,}", dtype, is_training, flops, build)


def window_case(length: int, window: int, dtype: str, *, is_training: bool) -> Case:
    """A sliding window against the same window as a dense mask."""
    seen = sum(min(query + 1, window) for query in range(length))
    flops = 4.0 * NUM_HEADS * seen * D_KEY * (3.5 if is_training else 1)

    def build() -> dict[str, Run]:
        queries, keys, values = inputs = tensors(1, NUM_HEADS, length, D_KEY, DTYPES[dtype])
        mask = dense_mask(length, length, window)
        rules = Rules(is_causal=True, window=window)
        calls: dict[str, Run] = {
            "headwise": lambda: attend(queries, keys, values, rules=rules),
            "torch sdpa, dense mask": lambda: dense_sdpa(queries, keys, values, mask),
        }
        runs = {name: as_run(call, inputs, is_training=is_training) for name, call in calls.items()}
        return runs | {"peak": peak(DTYPES[dtype])}

    size = f"1 x {length:,}, {window} back"
    return Case("core", "window", size, dtype, is_training, flops, build)


def ragged_case(dtype: str, *, is_training: bool) -> Case:
    """Sixteen causal sequences of 64 to 1,024 tokens against a dense mask."""
    batch, longest = 16, 1024
    lengths = torch.linspace(64, longest, batch).long()
    pairs = sum(length * (length + 1) / 2 for length in lengths.tolist())
    flops = 4.0 * NUM_HEADS * pairs * D_KEY * (3.5 if is_training else 1)

    def build() -> dict[str, Run]:
        queries, keys, values = inputs = tensors(batch, NUM_HEADS, longest, D_KEY, DTYPES[dtype])
        real = torch.arange(longest) < lengths[:, None]
        mask = real[:, None, None] & dense_mask(longest, longest)
        rules = Rules(is_causal=True, lengths=lengths, query_lengths=lengths)
        calls: dict[str, Run] = {
            "headwise": lambda: attend(queries, keys, values, rules=rules),
            "torch sdpa, dense mask": lambda: dense_sdpa(queries, keys, values, mask),
        }
        runs = {name: as_run(call, inputs, is_training=is_training) for name, call in calls.items()}
        return runs | {"peak": peak(DTYPES[dtype])}

    size = f"{batch} x 64..{longest:,}"
    return Case("core", "ragged", size, dtype, is_training, flops, build)


def decode_case(cached: int, dtype: str) -> Case:
    """One new token, with 32 query heads and 8 KV heads of size 128, against the usual methods."""
    heads, kv_heads, d_key = 32, 8, 128

    def build() -> dict[str, Run]:
        queries = torch.randn(1, heads, 1, d_key).to(DTYPES[dtype])
        keys, values = (torch.randn(1, kv_heads, cached, d_key).to(DTYPES[dtype]) for _ in range(2))
        group = heads // kv_heads

        def repeated() -> Tensor:
            spread = (tensor.repeat_interleave(group, 1) for tensor in (keys, values))
            return F.scaled_dot_product_attention(queries, *spread)

        return {
            "headwise": lambda: attend(queries, keys, values, is_causal=True),
            "enable_gqa": lambda: F.scaled_dot_product_attention(
                queries, keys, values, enable_gqa=True
            ),
            "repeated keys": repeated,
            "read": lambda: (keys.sum(), values.sum()),
        }

    flops = 4.0 * heads * cached * d_key
    return Case("core", "decode", f"1 on {cached:,}, 32/8 heads", dtype, False, flops, build)


def step_case(cached: int, dtype: str) -> Case:
    """Decoding a token with a layer's cache, against concatenating keys and values at each step."""

    def build() -> dict[str, Run]:
        ours = MultiHeadAttention(D_MODEL, NUM_HEADS, is_causal=True).to(DTYPES[dtype])
        past = torch.randn(1, cached, D_MODEL).to(DTYPES[dtype])
        x = torch.randn(1, 1, D_MODEL).to(DTYPES[dtype])
        cache = GrowingCache()
        ours(past, cache=cache)
        keys, values = (
            torch.randn(1, NUM_HEADS, cached, D_KEY).to(DTYPES[dtype]) for _ in range(2)
        )
        hugging = TransformersSdpa(D_MODEL, NUM_HEADS, is_causal=True).to(DTYPES[dtype])

        def step() -> object:
            cache.crop(cached)
            return ours(x, cache=cache)

        def joined() -> Tensor:
            shape = (1, 1, NUM_HEADS, D_KEY)
            query, key, value = (
                linear(x).view(shape).transpose(1, 2)
                for linear in (hugging.q_proj, hugging.k_proj, hugging.v_proj)
            )
            mixed = F.scaled_dot_product_attention(
                query, torch.cat([keys, key], 2), torch.cat([values, value], 2)
            )
            return hugging.o_proj(mixed.reshape(1, 1, D_MODEL))

        return {
            "headwise": step,
            "joined each step": joined,
            "read": lambda: (keys.sum(), values.sum()),
        }

    flops = 8.0 * D_MODEL**2 + 4.0 * cached * D_MODEL
    return Case("layer", "decode", f"1 on {cached:,}", dtype, False, flops, build)


def all_cases() -> Iterator[Case]:
    """Every row of the table."""
    for dtype in DTYPES:
        for is_training, lengths in ((False, (16, 128, 512, 2048, 8192)), (True, (16, 512, 2048))):
            for kind in ("full", "causal"):
                for length in lengths:
                    yield layer_case(kind, length, dtype, is_training=is_training)
        for is_training, lengths in ((False, (16, 512, 2048, 8192)), (True, (512, 2048))):
            for kind in ("full", "causal"):
                for length in lengths:
                    yield core_case(kind, length, dtype, is_training=is_training)
        for is_training in (False, True):
            yield window_case(2048, 256, dtype, is_training=is_training)
            yield window_case(8192, 256, dtype, is_training=is_training)
            yield ragged_case(dtype, is_training=is_training)
        yield cross_case(128, 2048, dtype)
        yield decode_case(512, dtype)
        yield decode_case(8192, dtype)
        yield step_case(8192, dtype)


def is_quick(case: Case) -> bool:
    """Whether `--quick` runs this row: float32, and shorter than 8,192 tokens."""
    return case.dtype == "float32" and "8,192" not in case.size


def main() -> None:
    """Run the races, print the results and write them to a file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="float32 rows up to 2,048 tokens")
    parser.add_argument("--only", default="", help="rows that match this text, e.g. 'core window'")
    parser.add_argument("--seconds", type=float, default=harness.SECONDS, help="seconds per row")
    parser.add_argument("--out", type=Path, help=f"JSON file (default {RESULTS.name})")
    parser.add_argument("--show", action="store_true", help="print the last run's table and stop")
    options = parser.parse_args()
    console = Console(width=max(Console().width, 150))
    if not options.show:
        restart_if_unsafe()
        cases = [
            case
            for case in all_cases()
            if options.only in f"{case.level} {case.kind} {case.size} {case.dtype}"
            and (is_quick(case) or not options.quick)
        ]
        partial = options.quick or options.only
        path = options.out or (RESULTS.with_name("layer-part.json") if partial else RESULTS)
        results = []
        for case in track(cases, "racing", console=console):
            results.append(race(case, seconds=options.seconds))
            write_json(path.with_suffix(".running.json"), results)
        path.with_suffix(".running.json").replace(path)
        console.print(f"wrote {path}")
    else:
        path = options.out or RESULTS
    record = read_json(path)
    console.print(as_table(record))
    for line in targets(record):
        console.print(line)


if __name__ == "__main__":
    main()
