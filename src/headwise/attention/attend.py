"""Attention as a function of queries, keys and values, for the layer, the drop-in and the watcher.

The values may be any features of the keys: `attend(queries, keys, features)` returns the
weighted mean of the features for each query, with memory linear in the length.
"""

from dataclasses import replace

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from headwise.attention.bias import bias_tile
from headwise.attention.kernels import AttentionSteps, fold_groups, plain_steps, unfold_groups
from headwise.attention.paths import PATHS, RUNNERS, PathChoice, choose_path, trains_short_in_half
from headwise.attention.prepare import Mixed, add_sinks, is_autocast, is_transformed, prepare_call
from headwise.attention.rules import Rules
from headwise.errors import OptionError, PathError

EVERY_KEY, CAUSAL = Rules(), Rules(is_causal=True)


def attend(
    queries: Float[Tensor, "batch heads query d_key"],
    keys: Float[Tensor, "batch kv_heads key d_key"],
    values: Float[Tensor, "#batch #kv_heads key d_value"],
    *,
    mask: Tensor | None = None,
    is_causal: bool = False,
    rules: Rules | None = None,
    path: str | None = None,
) -> Float[Tensor, "batch heads query d_value"]:
    """The weighted mean of the values for each query, or zeros if a query may attend to no key.

    `mask` and `is_causal` are shorthands for the same fields of `rules`, which has further options.
    `path` requests a path by name; if that path cannot compute the call, a PathError says why.

    >>> values = torch.eye(3).expand(1, 1, 3, 3)
    >>> attend(torch.zeros(1, 1, 3, 2), torch.zeros(1, 1, 3, 2), values, is_causal=True)[0, 0]
    tensor([[1.0000, 0.0000, 0.0000],
            [0.5000, 0.5000, 0.0000],
            [0.3333, 0.3333, 0.3333]])
    """
    return mix(queries, keys, values, _merge_rules(rules, mask, is_causal), path=path).output


def attend_with_lse(
    queries: Float[Tensor, "batch heads query d_key"],
    keys: Float[Tensor, "batch kv_heads key d_key"],
    values: Float[Tensor, "#batch #kv_heads key d_value"],
    *,
    mask: Tensor | None = None,
    is_causal: bool = False,
    rules: Rules | None = None,
    path: str | None = None,
) -> tuple[Float[Tensor, "batch heads query d_value"], Float[Tensor, "batch heads query"]]:
    """`attend`'s output, and the log of each query's softmax denominator (-inf if it sees no key).

    Without a bias, query `q` gives key `k` the weight `exp(scale * queries[q] . keys[k] - lse[q])`.
    """
    rules = _merge_rules(rules, mask, is_causal)
    output, lse = mix(queries, keys, values, rules, path=path, with_lse=True)
    assert lse is not None
    return output, lse


def attend_in_steps(
    queries: Float[Tensor, "batch heads query d_key"],
    keys: Float[Tensor, "batch kv_heads key d_key"],
    values: Float[Tensor, "#batch #kv_heads key d_value"],
    *,
    rules: Rules = EVERY_KEY,
) -> AttentionSteps:
    """Every intermediate result, the weights of all heads included; memory is queries x keys."""
    prepared = prepare_call(queries, keys, values, rules, keeps_padding=True)
    parts = [plain_steps(part, bias_tile(part)) for part in prepared.computations]
    steps = parts[0]
    if prepared.why_apart is not None:
        steps = AttentionSteps(*map(torch.cat, zip(*parts, strict=True)))
    if rules.sinks is None:
        return steps
    share, lse = add_sinks(steps.lse, rules.sinks)
    mixed = steps.mixed * share.to(steps.mixed.dtype)
    return steps._replace(weights=steps.weights * share, mixed=mixed, lse=lse)


def explain_path(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    *,
    mask: Tensor | None = None,
    is_causal: bool = False,
    rules: Rules | None = None,
) -> PathChoice:
    """The path that `attend` takes for these arguments, and why; nothing is computed.

    >>> explain_path(*torch.zeros(3, 1, 2, 9, 4), is_causal=True)
    PathChoice(path='fused', reason='causal from the first key')
    """
    rules = _merge_rules(rules, mask, is_causal)
    prepared = prepare_call(queries, keys, values, rules)
    if prepared.why_apart is not None:
        return PathChoice("ragged", prepared.why_apart)
    return choose_path(next(prepared.computations), with_lse=rules.sinks is not None)


def typical_paths() -> dict[str, PathChoice]:
    """The path that each common kind of call takes here, for 8 heads of size 64 and 2,048 keys."""
    zero = torch.zeros(())
    queries, few = zero.expand(4, 8, 2048, 64), zero.expand(4, 2, 2048, 64)
    causal, lengths = Rules(is_causal=True), torch.tensor([256, 512, 1024, 2048])
    mask = torch.ones((), dtype=torch.bool).expand(2048, 2048)
    calls = {
        "every key": (queries, queries, Rules()),
        "causal": (queries, queries, causal),
        "causal, 256 new after 1,792 cached": (queries[:, :, :256], queries, causal),
        "one new token, 8 heads over 2": (queries[:, :, :1], few, causal),
        "window of 256": (queries, queries, Rules(is_causal=True, window=256)),
        "four lengths in one batch": (queries, queries, Rules(lengths=lengths)),
        "dense mask": (queries, queries, Rules(mask=mask)),
        "softcap": (queries, queries, Rules(softcap=50.0)),
    }
    return {
        name: explain_path(queries, keys, keys, rules=rules)
        for name, (queries, keys, rules) in calls.items()
    }


def _merge_rules(rules: Rules | None, mask: Tensor | None, is_causal: bool) -> Rules:
    if rules is None and mask is None:
        return CAUSAL if is_causal else EVERY_KEY
    rules = EVERY_KEY if rules is None else rules
    if mask is None and not is_causal:
        return rules
    if mask is not None and rules.mask is not None:
        raise OptionError(
            f"mask {list(mask.shape)} and rules.mask {list(rules.mask.shape)} are both set: "
            "combine them into one mask"
        )
    mask = rules.mask if mask is None else mask
    return replace(rules, mask=mask, is_causal=rules.is_causal or is_causal)


def mix(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    rules: Rules,
    *,
    path: str | None = None,
    with_lse: bool = False,
) -> Mixed:
    """Mixed values from the fastest or the requested path; lse if requested or with sinks."""
    if (rules is EVERY_KEY or rules is CAUSAL) and path is None and not with_lse:
        output = _plain_attention(queries, keys, values, is_causal=rules is CAUSAL)
        if output is not None:
            return Mixed(output, None)
    if path is not None and path not in PATHS:
        raise PathError(f"path is {path!r}: choose from {', '.join(PATHS)}")
    prepared = prepare_call(queries, keys, values, rules, path=path)
    path, with_lse = None if path == "ragged" else path, with_lse or rules.sinks is not None
    results = []
    for part in prepared.computations:
        choice = choose_path(part, with_lse=with_lse, path=path)
        results.append(RUNNERS[choice.path](part, with_lse))
    return prepared.join(results)


def _plain_attention(
    queries: Tensor, keys: Tensor, values: Tensor, *, is_causal: bool
) -> Tensor | None:
    """Result of torch's own fused attention if the call needs nothing else; otherwise None.

    On a short input it takes a few microseconds, and preparing the call would double that.
    """
    if not (
        isinstance(queries, Tensor)
        and isinstance(keys, Tensor)
        and isinstance(values, Tensor)
        and queries.dim() == keys.dim() == 4
        and keys.shape == values.shape
        and queries.dtype == keys.dtype == values.dtype
        and queries.is_floating_point()
        and not is_transformed()
        and not (torch.is_grad_enabled() and is_autocast(queries))
        and not trains_short_in_half(queries, keys, values)
    ):
        return None
    if queries.shape == keys.shape:
        return F.scaled_dot_product_attention(queries, keys, values, is_causal=is_causal)
    (batch, heads, num_queries, d_key), kv_heads = queries.shape, keys.shape[1]
    # One new token after cached ones sees every key, causal or not.
    fits = (batch, d_key) == (keys.shape[0], keys.shape[3])
    if num_queries == 1 and fits and kv_heads > 0 and heads % kv_heads == 0:
        folded = fold_groups(queries, kv_heads)
        return unfold_groups(F.scaled_dot_product_attention(folded, keys, values), heads)
    return None
