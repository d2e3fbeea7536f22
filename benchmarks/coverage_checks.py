"""What headwise does with one tiny model, checked against the model on its own.

In: a model type. Out: a `Row`: for each of building, watching, generating, scanning, silencing and
cutting, an `Outcome`: it works, it is refused with a sentence, its result is wrong, or it ends in a
traceback.
"""

import copy
import traceback
import warnings
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from coverage_compare import ROUNDING, Wrong, compare, has_attention, largest_gap, same_values
from tiny_inputs import pad_last_row
from tiny_models import NotBuilt, TinyModel, build, run
from tiny_sizes import Inputs
from torch import Tensor, nn

import headwise
from headwise.errors import HeadwiseError
from headwise.pruning.surgery.cut import head_counts
from headwise.watching.sites import Site, find_sites, output_weight

GENERATED = 4
"""Number of tokens to write from a cache."""


@dataclass(frozen=True)
class Outcome:
    """How one step ended: yes, refused, wrong, failed, or "" where it does not apply."""

    state: str = ""
    why: str = ""


@dataclass
class Row:
    """What headwise does with a model type."""

    type: str
    model: str = ""
    """Class of the tiny model; "" if none could be built."""
    inputs: str = ""
    why_not_built: str = ""
    attention: bool = False
    sites: int = 0
    left_out: str = ""
    """Attention classes that headwise warns it leaves out."""
    outcomes: dict[str, Outcome] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """The row as JSON values."""
        return asdict(self)


def examine(model_type: str) -> Row:
    """The row of a model type. Builds its model in this process."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return fill(Row(model_type))


def fill(row: Row) -> Row:
    """The row with everything found out about its type."""
    try:
        tiny = build(row.type)
    except NotBuilt as error:
        row.why_not_built = short(str(error))
        return row
    row.model, row.inputs = type(tiny.model).__name__, " ".join(tiny.inputs)
    row.attention = has_attention(tiny)
    if not row.attention:
        return row
    for step, check in CHECKS.items():
        row.outcomes[step] = outcome(check, tiny, row)
        if step == "watched" and row.outcomes[step].state != "yes":
            break
    return row


def outcome(check: Callable[[TinyModel, Row], str | None], tiny: TinyModel, row: Row) -> Outcome:
    """How a check ended. A check returns None if it does not apply to the model."""
    try:
        words = check(tiny, row)
    except HeadwiseError as error:
        return Outcome("refused", short(str(error)))
    except Wrong as error:
        return Outcome("wrong", str(error))
    except Exception as error:
        return Outcome("failed", describe(error))
    return Outcome() if words is None else Outcome("yes", words)


def describe(error: Exception) -> str:
    """An unexpected error, and the line of headwise, or else of the model, that raised it."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if "headwise" in Path(frame.filename).parts]
    at = (ours or frames)[-1]
    place = f"{Path(at.filename).name}:{at.lineno}"
    return short(f"{type(error).__name__} at {place}: {' '.join(str(error).split())}")


def short(words: str, limit: int = 400) -> str:
    """At most `limit` characters of the first line."""
    return words.partition("\n")[0][:limit]


def watched(tiny: TinyModel, row: Row) -> str:
    """Outputs are the same while the model is watched, and every row of weights sums to one."""
    return compare_watched(tiny.model, tiny.inputs, row)


def padded(tiny: TinyModel, row: Row) -> str | None:
    """The same with padding at the end of a sequence, at the real tokens."""
    inputs = pad_last_row(tiny.inputs)
    if inputs is None:
        return None
    try:
        run(tiny.model, inputs)
    except Exception:
        return None  # the model itself cannot read this padding
    return compare_watched(tiny.model, inputs, row)


def compare_watched(model: nn.Module, inputs: Inputs, row: Row) -> str:
    """The largest difference that watching makes, in words."""

    def watching(one: nn.Module, given: Inputs) -> list[Tensor]:
        calls: list[int] = []
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            with headwise.watch(one, lambda call: calls.append(call.mixed.shape[1])) as watching_it:
                outputs = run(one, given)
        row.sites = len(watching_it.sites)
        row.left_out = next(
            (short(str(w.message)) for w in said if "left out" in str(w.message)), ""
        )
        if not calls:
            raise Wrong("no call was recorded")
        return outputs

    mask = inputs.get("attention_mask")
    try:
        return compare(model, inputs, watching, "watched", mask=mask)
    except Wrong as error:
        raise Wrong(f"{error}{if_eager(model, inputs, watching)}") from error


def if_eager(
    model: nn.Module, inputs: Inputs, watching: Callable[[nn.Module, Inputs], list[Tensor]]
) -> str:
    """Words that say whether watched outputs equal those of transformers' eager attention."""
    try:
        plain: Any = copy.deepcopy(model)
        plain.set_attn_implementation("eager")
        gap = largest_gap(run(plain, inputs), watching(model, inputs), inputs.get("attention_mask"))
    except Exception:  # the model has no eager attention
        return ""
    return " but equal transformers' eager attention" if gap < ROUNDING else ""


def generated(tiny: TinyModel, row: Row) -> str | None:
    """Tokens written from a cache have the same logits while the model is watched."""
    inputs = {name: value for name, value in tiny.inputs.items() if not name.startswith("decoder_")}
    try:
        if not generate(tiny.model, inputs):
            return None
    except Exception:
        return None  # the model itself does not write text from these inputs

    def watching(model: nn.Module, given: Inputs) -> list[Tensor]:
        with headwise.watch(model, lambda call: None):
            return generate(model, given)

    return compare(tiny.model, inputs, watching, "generating", expected=generate)


@torch.no_grad()
def generate(model: Any, inputs: Inputs) -> list[Tensor]:
    """Logits of every token that the model writes; none if it writes no text."""
    if not model.can_generate():
        return []
    torch.manual_seed(0)
    lengths = {"max_new_tokens": GENERATED, "min_new_tokens": GENERATED}
    written = model.generate(
        **inputs,
        **lengths,
        do_sample=False,
        use_cache=True,
        return_dict_in_generate=True,
        output_logits=True,
    )
    return list(written.logits or ())


def scanned(tiny: TinyModel, row: Row) -> str:
    """A scan of the inputs measures every head."""
    settings = headwise.ScanSettings(probe=False, repeats=False)
    table = headwise.scan(tiny.model, inputs=[tiny.inputs], settings=settings)
    return f"{len(table.rows)} heads" if hasattr(table, "rows") else f"{len(table)} heads"


def silenced(tiny: TinyModel, row: Row) -> str:
    """Gates of one change nothing; a silenced head changes outputs, as zero weights would."""
    model, inputs = tiny.model, tiny.inputs
    sites = find_sites(model)
    shapes, changed = head_shapes(tiny, sites)
    counts = {name: heads for name, (heads, _) in shapes.items()}
    ones = {name: torch.ones(count) for name, count in counts.items()}

    def gated(one: nn.Module, given: Inputs) -> list[Tensor]:
        with headwise.gate(one, ones):
            return run(one, given)

    compare(model, inputs, gated, "with gates of one")
    first = first_heads(sites, shapes)
    plain = run(model, inputs)
    if largest_gap(silent_run(model, inputs, first), plain) < ROUNDING:
        everything = [f"{name}H{head}" for name, n in counts.items() for head in range(n)]
        if largest_gap(silent_run(model, inputs, everything), plain) < ROUNDING:
            raise Wrong("silencing all heads changes nothing")
    if any(site.output_projection is None for site in sites if f"{site.layer_name}H0" in first):
        return "its output projection is unknown"

    def zeroed(one: nn.Module, given: Inputs) -> list[Tensor]:
        return run(without_columns(one, first, shapes), given)

    try:
        return compare(
            model,
            inputs,
            lambda one, given: silent_run(one, given, first),
            "silenced and with zero weights",
            expected=zeroed,
        )
    except Wrong:
        if changed.isdisjoint(head.rpartition("H")[0] for head in first):
            raise
        return "the model changes its heads' outputs before it projects them"


def silent_run(model: nn.Module, inputs: Inputs, heads: list[str]) -> list[Tensor]:
    """Outputs with the heads silenced."""
    with headwise.silence(model, heads):
        return run(model, inputs)


def head_shapes(
    tiny: TinyModel, sites: Iterable[Site]
) -> tuple[dict[str, tuple[int, int]], set[str]]:
    """Number of heads and size of their outputs, for each layer that was called.

    Also the layers whose output projection reads something else, such as a norm of these outputs.
    """
    shapes: dict[str, tuple[int, int]] = {}
    mixed: dict[nn.Module, list[Tensor]] = {}
    projected: dict[nn.Module, list[Tensor]] = {}

    def note(call: Any) -> None:
        shapes[call.site.layer_name] = (call.mixed.shape[1], call.mixed.shape[3])
        concat = call.mixed.transpose(1, 2).flatten()
        mixed.setdefault(call.site.output_projection, []).append(concat)

    def project(module: nn.Module, args: tuple[Tensor, ...]) -> None:
        projected.setdefault(module, []).append(args[0].flatten())

    with ExitStack() as stack:
        for module in {site.output_projection for site in sites} - {None}:
            stack.callback(module.register_forward_pre_hook(project).remove)
        stack.enter_context(headwise.watch(tiny.model, note))
        run(tiny.model, tiny.inputs)
    return shapes, {
        site.layer_name
        for site in sites
        if not same_values(
            mixed.get(site.output_projection, []), projected.get(site.output_projection, [])
        )
    }


def first_heads(sites: Iterable[Site], shapes: dict[str, tuple[int, int]]) -> list[str]:
    """Head 0 of the first layer of every stack, in every layer that shares its projection."""
    called = [site for site in sites if site.layer_name in shapes]
    chosen: dict[str, int] = {}
    for site in called:
        if shapes[site.layer_name][0] > 1:
            chosen.setdefault(site.stack, weights_of(site))
    kept = [site for site in called if weights_of(site) in chosen.values()] or called[:1]
    return [f"{site.layer_name}H0" for site in kept]


def weights_of(site: Site) -> int:
    """Identity of the projection's weights, which layers may share."""
    return id(getattr(site.output_projection, "weight", site.module))


@torch.no_grad()
def without_columns(
    model: nn.Module, heads: list[str], shapes: dict[str, tuple[int, int]]
) -> nn.Module:
    """A copy of the model, whose output projections do not read these heads."""
    model = copy.deepcopy(model)
    done = set()
    for site in find_sites(model):
        if f"{site.layer_name}H0" in heads and id(site.module) not in done:
            done.add(id(site.module))
            assert site.output_projection is not None
            weight = output_weight(site.output_projection)
            weight[: shapes[site.layer_name][1]] = 0
    return model


def cut(tiny: TinyModel, row: Row) -> str:
    """A cut model's outputs equal those with the same heads silenced."""
    model = copy.deepcopy(tiny.model)
    shared = [site for site in find_sites(model) if site.layer_loop is not None]
    plan = cut_plan(head_counts(model))
    if shared:
        plan = [f"{site.layer_name}H{head}" for site in shared for head in (0, 1)]
    headwise.cut(model, plan, inputs=tiny.inputs)
    gap = largest_gap(run(model, tiny.inputs), silent_run(tiny.model, tiny.inputs, plan))
    if gap > ROUNDING:
        raise Wrong(f"cut and silenced, outputs differ by {gap:.1g} of their size")
    return f"{gap:.0e}"


def cut_plan(counts: dict[str, tuple[int, int]]) -> list[str]:
    """A head of every group in each stack's first layer, and a whole group in its last layer."""
    last = {name.rpartition("L")[0]: name for name in counts}
    plan: list[str] = []
    for layer, (heads, kv_heads) in counts.items():
        group = heads // kv_heads
        if layer.endswith("L0"):
            plan += [f"{layer}H{head}" for head in range(0, heads, max(group, heads // 2))]
        elif layer == last[layer.rpartition("L")[0]] and kv_heads > 1:
            plan += [f"{layer}H{head}" for head in range(heads - group, heads)]
    return plan


CHECKS: dict[str, Callable[[TinyModel, Row], str | None]] = {
    "watched": watched,
    "padded": padded,
    "generated": generated,
    "scanned": scanned,
    "silenced": silenced,
    "cut": cut,
}
