"""`headwise prune`: make a model smaller by cutting the heads that it needs least."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Option

from headwise.cli import options
from headwise.errors import OptionError
from headwise.formats import format_count

if TYPE_CHECKING:
    from headwise.models.loaded import LoadedModel
    from headwise.pruning.prune import Pruned

Out = Annotated[Path | None, Option(help="Directory for the smaller model.")]
Heads = Annotated[str | None, Option(help='Heads to cut, such as "L0H1 L2H3".')]
PlanFile = Annotated[Path | None, Option(help="Plan file that lists the heads to cut.")]
CutCount = Annotated[
    int | None, Option(help="Number of heads to cut; fewer if only whole KV groups can be cut.")
]
Keep = Annotated[str | None, Option(help="Share of heads to keep: 60% or 0.6.")]
MaxLoss = Annotated[
    str | None, Option(help="Cut as many heads as possible within this loss on held-out text: 1%.")
]
Uniform = Annotated[bool, Option("--uniform", help="Cut the same number of heads in every layer.")]
Policy = Annotated[
    str,
    Option(help="Grouped-query models: groups (whole KV groups), even (some heads of each), auto."),
]
Method = Annotated[
    str | None,
    Option(help="rounds, quadratic, greedy, ablation, michel, fisher or random (default: rounds)."),
]
Refit = Annotated[
    str, Option(help="bias (keep mean outputs), full (refit weights), wide (more weights) or none.")
]
ChooseTokens = Annotated[int, Option(help="Tokens to choose heads on.")]
ChooseDtype = Annotated[
    str,
    Option(help="Precision to choose heads in: float32, bfloat16, or auto (the faster)."),
]
FitTokens = Annotated[int, Option(help="Tokens to fit corrections on.")]
HeldTokens = Annotated[int, Option(help="Held-out tokens to measure the cut on.")]
HasSamples = Annotated[
    bool,
    Option("--samples/--no-samples", help="Also choose on text sampled from a causal model."),
]
HasCurve = Annotated[
    bool, Option("--curve/--no-curve", help="Measure cuts of other sizes (always with --max-loss).")
]
HasSpeed = Annotated[bool, Option("--speed/--no-speed", help="Measure the speed of both models.")]
Onnx = Annotated[bool, Option("--onnx", help="Also export the smaller model to ONNX.")]
DryRun = Annotated[bool, Option("--dry-run", help="Print the plan and the sizes; write nothing.")]


def prune_command(  # noqa: PLR0913 - one parameter per option
    model: options.Model = "minilm",
    out: Out = None,
    heads: Heads = None,
    plan: PlanFile = None,
    cut: CutCount = None,
    keep: Keep = None,
    max_loss: MaxLoss = None,
    uniform: Uniform = False,
    policy: Policy = "auto",
    method: Method = None,
    refit: Refit = "bias",
    text: options.TextFiles = None,
    image: options.Images = None,
    audio: options.Sounds = None,
    lines: options.Lines = False,
    field: options.Field = None,
    pooling: options.Pooling = None,
    choose_tokens: ChooseTokens = 4608,
    choose_dtype: ChooseDtype = "auto",
    fit_tokens: FitTokens = 4096,
    held_tokens: HeldTokens = 3072,
    samples: HasSamples = True,
    curve: HasCurve = False,
    speed: HasSpeed = True,
    onnx: Onnx = False,
    dry_run: DryRun = False,
    force: options.Force = False,
    as_json: options.AsJson = False,
    seed: options.Seed = 0,
    dtype: options.Dtype = "float32",
    device: options.Device = "cpu",
    revision: options.Revision = None,
    trust_remote_code: options.RemoteCode = False,
) -> None:
    """Choose and cut heads, refit the rest, measure the model on held-out text and write it.

    Set how much to cut with one of --heads, --plan, --cut, --keep and --max-loss.
    """
    amount = _amount(heads, plan, cut, keep, max_loss)
    folder = None if dry_run else _destination(out, force=force)
    from headwise.pruning.prune import prune
    from headwise.pruning.settings import PruneSettings
    from headwise.views.terminal import ProgressDisplay, quiet_console

    settings = PruneSettings(
        method=method or PruneSettings.method,
        policy=policy,
        is_uniform=uniform,
        refit=refit,
        choose_tokens=choose_tokens,
        choose_dtype=choose_dtype,
        fit_tokens=fit_tokens,
        held_tokens=held_tokens,
        keeps_texts_whole=lines or field is not None,
        seed=seed,
        samples_text=samples,
        draws_curve=curve and not dry_run,
        times_speed=speed and not dry_run,
    )
    if "heads" in amount and not settings.draws_curve:
        options.refuse("the heads to cut are named", {"--method": method, "--uniform": uniform})
    if dry_run and max_loss is None:
        settings = replace(settings, refit="none")  # plan and sizes do not depend on the refit
    objective = options.embedding_of(pooling)
    texts = options.texts_of(text, by_line=lines, field=field)
    loaded = _load(model, dtype, device, revision, trust_remote_code)
    with ProgressDisplay(quiet_console(is_stderr=True), prints_lines=True) as progress:
        pruned = prune(
            loaded,
            folder,
            **amount,
            **_read(loaded, texts, image, audio),
            objective=objective,
            settings=settings,
            with_onnx=onnx and not dry_run,
            force=force,
            progress=progress,
        )
    _show(pruned, folder, as_json=as_json)


def _load(
    model: str, dtype: str, device: str, revision: str | None, trust_remote_code: bool
) -> "LoadedModel":
    from headwise.models.loading import LoadOptions, load_model

    load = LoadOptions(dtype, device, revision, trust_remote_code, keeps_head=True)
    return load_model(model, load)


def _read(
    loaded: "LoadedModel",
    texts: list[str] | None,
    images: list[Path] | None,
    sounds: list[Path] | None,
) -> dict[str, Any]:
    """The argument to `prune` with the texts, or with a batch for each picture and sound."""
    from headwise.pruning.setup import FEWEST_BATCHES

    batches = options.media_of(loaded, images, sounds, texts)
    if batches is None:
        return {"texts": texts}
    if len(batches) < FEWEST_BATCHES:
        raise OptionError(
            f"{format_count(len(batches), 'file')} cannot be divided into some to choose heads on "
            f"and others to measure the cut on: give at least {FEWEST_BATCHES}"
        )
    return {"batches": batches}


def _destination(out: Path | None, *, force: bool) -> Path:
    """The folder to write, checked before the model loads."""
    from headwise.pruning.export.directories import check_destination

    if out is None:
        raise OptionError("there is nowhere to write the model: give --out DIR, or --dry-run")
    check_destination(out.expanduser(), force=force)
    return out


def _amount(
    heads: str | None, plan: Path | None, cut: int | None, keep: str | None, max_loss: str | None
) -> dict[str, Any]:
    """The arguments to `prune` that set how much to cut, checked before the model loads."""
    from headwise.pruning.selection.cut_plan import CutPlan
    from headwise.pruning.settings import Amount

    if heads is not None and plan is not None:
        raise OptionError("--heads and --plan both name the heads to cut: give one of them")
    named = heads if plan is None else CutPlan.read(plan)
    if named is not None and not str(named).strip(" ,"):
        raise OptionError(f"{plan or '--heads'} names no heads: there is nothing to cut")
    amount = Amount(
        None if named is None else str(named),
        cut,
        _share(keep, "--keep", "60% or 0.6"),
        _share(max_loss, "--max-loss", "1% or 0.01"),
    )
    if amount.cut == 0 or amount.keep == 1:
        option = "--cut is 0" if amount.cut == 0 else "--keep is 1"
        raise OptionError(f"{option}, which keeps every head: there is nothing to do")
    return amount.to_dict() | ({} if named is None else {"heads": named})


def _share(text: str | None, option: str, examples: str) -> float | None:
    if text is None:
        return None
    try:
        return float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError as err:
        raise OptionError(f"{option} is {text!r}: give a share such as {examples}") from err


def _show(pruned: "Pruned", out: Path | None, *, as_json: bool) -> None:
    if as_json:
        typer.echo(pruned.to_json())
        return
    from rich.markup import escape

    from headwise.views import pruning as views
    from headwise.views.terminal import quiet_console, say, show_table

    console, plan, record, curve = quiet_console(), pruned.plan, pruned.record, pruned.curve
    count = f"{format_count(len(plan), 'head')} {'to cut' if out is None else 'cut'}"
    console.print(f"[bold]{escape(plan.model)}[/bold]: {count}")
    console.print(plan.text() if out is None else str(plan), markup=False)
    show_table(console, views.sizes_table(record))
    show_table(console, views.quality_table(record))
    console.print(views.held_out_line(record))
    if len(record.quality.registers) > 1 or record.quality.other is not None:
        show_table(console, views.register_table(record))
    for warning in views.cut_warnings(record):
        say(console, warning)
    if curve is not None:
        show_table(console, views.curve_table(curve))
        if curve.elbow:
            console.print(f"elbow of {curve.method}: {curve.elbow} of {curve.total} heads cut")
    if record.speed:
        show_table(console, views.speed_table(record))
    for subject, difference in (
        ("cut model compared with the same heads silenced", record.cut_against_silenced),
        ("model.onnx", record.onnx_difference),
    ):
        if difference is not None:
            console.print(f"{subject}: largest difference {difference:.1e}")
    if pruned.export is not None:
        loader = "transformers"
        if not pruned.export.is_plain:
            loader = "headwise.load, or with transformers and trust_remote_code=True"
        say(console, f"\nwrote {out}: load it with {loader}; prune.json has every figure")
    if out is None:
        say(console, "nothing was written: give --out DIR without --dry-run to write the model")
