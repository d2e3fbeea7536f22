"""Core: attention as a function of queries, keys and values; what layer, drop-in and watcher share.

In: tensors `[batch heads position size]`, heads grouped or not, and `Rules`. Out: mixed values, and
on request the log-sum-exp of each row or the weights themselves. It knows no parameters and no
modules.

The values may be any features of the keys: `attend(queries, keys, features)` is the mean of the
features under the weights, in memory linear in the length.
"""

from dataclasses import replace

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from headwise.attention.bias import bias_tile, check_per_head
from headwise.attention.kernels import (
    AttentionSteps,
    Mixed,
    fold_groups,
    is_transformed,
    plain_steps,
    unfold_groups,
)
from headwise.attention.paths import (
    PATHS,
    PathChoice,
    choose_path,
    compute,
    trains_short_in_half,
)
from headwise.attention.prepare import (
    Computation,
    are_tensors,
    check_axes,
    check_batch,
    check_sizes,
    count,
    count_if_known,
    drop_hidden_keys,
    is_ragged,
    keys_as_mask,
    lengths_as_mask,
    make_task,
    one_by_one,
    sequences_of,
    why_one_by_one,
    with_padding_cleared,
    without_full_lengths,
)
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
    """The weighted mean of the values for each query; zeros where it may attend to no key.

    `mask` and `is_causal` are shorthands for the same fields of `rules`, which holds everything
    else. A `path` that is asked for is taken or refused with the reason, never replaced by another.

    >>> values = torch.eye(3).expand(1, 1, 3, 3)
    >>> attend(torch.zeros(1, 1, 3, 2), torch.zeros(1, 1, 3, 2), values, is_causal=True)[0, 0]
    tensor([[1.0000, 0.0000, 0.0000],
            [0.5000, 0.5000, 0.0000],
            [0.3333, 0.3333, 0.3333]])
    """
    if rules is None and mask is None and path is None:  # before rules are made, which takes longer
        mixed = plain_attention(queries, keys, values, is_causal=is_causal)
        if mixed is not None:
            return mixed
    return mix(queries, keys, values, merge_rules(rules, mask, is_causal), path=path).output


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
    """`attend`, and the log of each row's softmax denominator: -inf where a query sees no key.

    With no bias a single weight is `exp(scale * queries[q] . keys[k] - lse[q])`.
    """
    rules = merge_rules(rules, mask, is_causal)
    output, lse = mix(queries, keys, values, rules, path=path, with_lse=True)
    assert lse is not None
    return output, lse


def attend_in_steps(
    queries: Float[Tensor, "batch heads query d_key"],
    keys: Float[Tensor, "batch kv_heads key d_key"],
    values: Float[Tensor, "#batch #kv_heads key d_value"],
    *,
    mask: Tensor | None = None,
    is_causal: bool = False,
    rules: Rules | None = None,
) -> AttentionSteps:
    """Every intermediate, the weights of all heads among them; memory grows with query x key."""
    check_axes(queries, keys, values)
    queries, keys, values = under_autocast(queries, keys, values)
    values = check_sizes(queries, keys, values)
    rules = merge_rules(rules, mask, is_causal)
    rules = without_full_lengths(rules, queries, keys, count_if_known(rules, queries, keys))
    check_batch(rules, queries, keys)
    if isinstance(rules.offset, Tensor) and queries.shape[0] > 0:
        each = [
            attend_in_steps(*tensors, rules=alone)
            for tensors, alone in sequences_of(queries, keys, values, rules)
        ]
        return AttentionSteps(*(torch.cat(parts) for parts in zip(*each, strict=True)))
    task = make_task(queries, keys, values, lengths_as_mask(rules, queries, keys))
    steps = plain_steps(
        task.queries,
        task.keys,
        task.values,
        scale=task.scale,
        bias=bias_tile(task, 0, task.num_queries, 0, task.num_keys),
        softcap=rules.softcap,
        dropout=rules.dropout,
    )
    if rules.sinks is None:
        return steps
    weights = steps.weights * share_beside_sinks(steps.lse, task)
    mixed, lse = with_sinks(Mixed(steps.mixed, steps.lse), task)
    assert lse is not None
    return steps._replace(mixed=mixed, lse=lse, weights=weights)


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
    check_axes(queries, keys, values)
    queries, keys, values = under_autocast(queries, keys, values)
    values = check_sizes(queries, keys, values)
    rules = merge_rules(rules, mask, is_causal)
    counts = count_if_known(rules, queries, keys)
    rules = without_full_lengths(rules, queries, keys, counts)
    if is_ragged(rules, queries.shape[0]):
        check_batch(rules, queries, keys)
        reason = why_one_by_one(queries, keys, rules, counts)
        if reason is not None:
            return PathChoice("ragged", reason)
    task = drop_hidden_keys(make_task(queries, keys, values, keys_as_mask(rules, queries, keys)))
    return choose_path(task, with_lse=rules.sinks is not None)


def typical_paths() -> dict[str, PathChoice]:
    """The path of each usual kind of call on this machine: 8 heads of 64, 2,048 keys."""
    one = torch.zeros(())
    queries, few = one.expand(4, 8, 2048, 64), one.expand(4, 2, 2048, 64)
    mask = torch.ones((), dtype=torch.bool).expand(2048, 2048)
    lengths = torch.tensor([256, 512, 1024, 2048])
    calls: dict[str, tuple[Tensor, Tensor, Rules]] = {
        "every key": (queries, queries, Rules()),
        "causal": (queries, queries, Rules(is_causal=True)),
        "causal, 256 new after 1,792 cached": (queries[:, :, :256], queries, Rules(is_causal=True)),
        "one new token, 8 heads over 2": (queries[:, :, :1], few, Rules(is_causal=True)),
        "window of 256": (queries, queries, Rules(is_causal=True, window=256)),
        "four lengths in one batch": (queries, queries, Rules(lengths=lengths)),
        "dense mask": (queries, queries, Rules(mask=mask)),
        "softcap": (queries, queries, Rules(softcap=50.0)),
    }
    return {
        name: explain_path(queries, keys, keys, rules=rules)
        for name, (queries, keys, rules) in calls.items()
    }


def plain_attention(
    queries: Tensor, keys: Tensor, values: Tensor, *, is_causal: bool
) -> Tensor | None:
    """The mixed values where torch's own fused call is all it takes, else None.

    Short inputs are over in some microseconds; reading rules would take as long again.
    """
    if not is_plain(queries, keys, values):
        return None
    if queries.shape == keys.shape:
        return F.scaled_dot_product_attention(queries, keys, values, is_causal=is_causal)
    if is_step(queries, keys):
        folded = fold_groups(queries, keys.shape[1])
        mixed = F.scaled_dot_product_attention(folded, keys, values)
        return unfold_groups(mixed, queries.shape[1])
    return None


def is_plain(queries: Tensor, keys: Tensor, values: Tensor) -> bool:
    """Whether nothing but shapes may keep torch's own fused call from computing this."""
    return (
        are_tensors(queries, keys, values)
        and queries.dim() == keys.dim() == 4
        and keys.shape == values.shape
        and queries.dtype == keys.dtype == values.dtype
        and queries.is_floating_point()
        and not is_transformed()
        and not (torch.is_grad_enabled() and is_autocast(queries))
        and not trains_short_in_half(queries, keys, values)
    )


def is_step(queries: Tensor, keys: Tensor) -> bool:
    """Whether this is one new token against a cache: it sees every key, causal or not."""
    shape = queries.shape
    return (
        shape[2] == 1
        and shape[::3] == keys.shape[::3]
        and keys.shape[1] > 0
        and shape[1] % keys.shape[1] == 0
    )


def merge_rules(rules: Rules | None, mask: Tensor | None, is_causal: bool) -> Rules:
    """The rules with the two shorthands put in."""
    if rules is None and mask is None:
        return CAUSAL if is_causal else EVERY_KEY
    if rules is None:
        return Rules(mask=mask, is_causal=is_causal)
    if mask is None and not is_causal:
        return rules
    if mask is not None and rules.mask is not None:
        raise OptionError(
            f"there are two masks, {list(mask.shape)} and rules.mask {list(rules.mask.shape)}: "
            "give one that says what both say"
        )
    return replace(
        rules,
        mask=rules.mask if mask is None else mask,
        is_causal=rules.is_causal or is_causal,
    )


def mix(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    rules: Rules,
    *,
    path: str | None = None,
    with_lse: bool = False,
) -> Mixed:
    """Mixed values by the best path, or by the one asked for."""
    if (rules is EVERY_KEY or rules is CAUSAL) and path is None and not with_lse:
        mixed = plain_attention(queries, keys, values, is_causal=rules is CAUSAL)
        if mixed is not None:
            return Mixed(mixed, None)
    if path is not None and path not in PATHS:
        raise PathError(f"there is no path {path!r}; the paths are {', '.join(PATHS)}")
    check_axes(queries, keys, values)
    queries, keys, values = under_autocast(queries, keys, values)
    if not is_ragged(rules, queries.shape[0]):
        if path == "ragged":
            raise PathError("path 'ragged' cannot compute this: it needs lengths")
        return run_together(queries, keys, values, rules, path, with_lse)
    values = check_sizes(queries, keys, values)
    check_batch(rules, queries, keys)
    counts = count_if_known(rules, queries, keys)
    if path != "ragged":
        rules = without_full_lengths(rules, queries, keys, counts)
    reason = why_one_by_one(queries, keys, rules, counts)
    if (
        path == "ragged"
        or (reason is not None and path is None)
        or isinstance(rules.offset, Tensor)
    ):
        inner = None if path == "ragged" else path

        def alone(queries: Tensor, keys: Tensor, values: Tensor, rules: Rules) -> Mixed:
            return run_together(queries, keys, values, rules, inner, with_lse)

        return one_by_one(
            queries, keys, values, rules, counts or count(rules, queries, keys), alone
        )
    return run_together(queries, keys, values, rules, path, with_lse)


def run_together(
    queries: Tensor, keys: Tensor, values: Tensor, rules: Rules, path: str | None, with_lse: bool
) -> Mixed:
    """All sequences at once, sinks included."""
    task = drop_hidden_keys(make_task(queries, keys, values, keys_as_mask(rules, queries, keys)))
    mixed = compute(task, with_lse=with_lse or rules.sinks is not None, path=path)
    if rules.sinks is not None:
        mixed = with_sinks(mixed, task)
    return with_padding_cleared(mixed, rules, queries)


def share_beside_sinks(lse: Tensor, task: Computation) -> Float[Tensor, "batch heads query 1"]:
    """Part of each row's softmax that the sink leaves to the keys."""
    return torch.sigmoid(lse - sinks_of(task, lse))[..., None]


def sinks_of(task: Computation, lse: Tensor) -> Float[Tensor, "heads 1"]:
    """The sinks in the log-sum-exps' dtype; -inf, which is no sink, as the lowest finite number."""
    assert task.rules.sinks is not None
    sinks = check_per_head(task, task.rules.sinks, "sinks")[:, None].to(lse.dtype)
    return sinks.clamp(min=torch.finfo(lse.dtype).min)


def with_sinks(mixed: Mixed, task: Computation) -> Mixed:
    """The result with each head's sink taking its share of every row."""
    assert mixed.lse is not None and task.rules.sinks is not None
    share = share_beside_sinks(mixed.lse, task)
    is_closed = (task.rules.sinks == -torch.inf)[:, None]
    joint = torch.logaddexp(mixed.lse, sinks_of(task, mixed.lse))
    lse = torch.where(is_closed, mixed.lse, joint)
    return Mixed(mixed.output * share.to(mixed.output.dtype), lse)


def is_autocast(tensor: Tensor) -> bool:
    """Whether autocast is on where the tensor is."""
    device = tensor.device.type
    return device != "meta" and torch.is_autocast_enabled(device)


def under_autocast(*tensors: Tensor) -> tuple[Tensor, ...]:
    """The tensors in autocast's dtype where it is on, as for torch's own attention."""
    if not is_autocast(tensors[0]):
        return tensors
    dtype = torch.get_autocast_dtype(tensors[0].device.type)
    return tuple(
        tensor if tensor.dtype == torch.float64 else tensor.to(dtype) for tensor in tensors
    )
