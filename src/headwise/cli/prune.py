"""`headwise prune`: a smaller model without the heads that it needs least."""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headwise.cli.options import (
    AsJson,
    Device,
    Dtype,
    Model,
    RemoteCode,
    Revision,
    refuse,
    texts_of,
    with_head,
)
from headwise.errors import OptionError
from headwise.formats import format_count, join_words
from headwise.views.terminal import quiet_console, say, show_table

if TYPE_CHECKING:
    from headwise.pruning.prune import Pruned
    from headwise.pruning.settings import PruneSettings

Out = Annotated[Path | None, typer.Option(help="Directory for the smaller model.")]
Heads = Annotated[str | None, typer.Option(help='Cut these: "L0H1 L2H3".')]
PlanFile = Annotated[
    Path | None, typer.Option("--plan", help="Cut the heads that a plan file names.")
]
CutCount = Annotated[
    int | None, typer.Option("--cut", help="Cut this many heads; fewer where whole KV groups go.")
]
Keep = Annotated[str | None, typer.Option(help="Keep this share of the heads: 60% or 0.6.")]
MaxLoss = Annotated[
    str | None,
    typer.Option(help="Cut as many heads as cost no more than this on held-out text: 1%."),
]
Uniform = Annotated[bool, typer.Option("--uniform", help="Cut the same number in every layer.")]
Policy = Annotated[
    str,
    typer.Option(help="Grouped-query models: groups (whole KV heads) or even (some of each)."),
]
Method = Annotated[
    str | None,
    typer.Option(
        help="rounds, quadratic, greedy, ablation, michel, fisher or random (default: rounds)."
    ),
]
Refit = Annotated[
    str, typer.Option(help="full, wide (feed-forward parts too), scale, bias or none.")
]
Text = Annotated[
    list[str] | None,
    typer.Option(
        metavar="FILE",
        help="Text file to choose, fit and measure on; - reads standard input. May be repeated.",
    ),
]
ChooseTokens = Annotated[int, typer.Option(help="Tokens that heads are chosen on.")]
FitTokens = Annotated[int, typer.Option(help="Tokens that projections are refitted on.")]
HeldTokens = Annotated[int, typer.Option(help="Held-out tokens that figures are measured on.")]
HasCurve = Annotated[bool, typer.Option("--curve/--no-curve", help="Measure other cuts, too.")]
HasSpeed = Annotated[bool, typer.Option("--speed/--no-speed", help="Time both models.")]
Onnx = Annotated[bool, typer.Option("--onnx", help="Export the smaller model to ONNX, too.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print plan and sizes, write nothing.")]
Force = Annotated[bool, typer.Option("--force", help="Replace a model that is there already.")]
Seed = Annotated[int, typer.Option(help="Seed of texts, random cuts and projections.")]


CHOOSING = ("backward passes", "silencing heads one by one", "cutting heads one by one")
"""Stages in which prune finds out which heads are to go."""


@dataclass(frozen=True)
class Asked:
    """How much is to go, and where to, as the options say it."""

    heads: str | None
    plan: Path | None
    cut: int | None
    keep: float | None
    max_loss: float | None
    out: Path | None
    force: bool
    onnx: bool

    def check(self) -> None:
        """Refuse none and several ways to say how much goes, and a cut of nothing."""
        ways = {"--heads": self.heads, "--plan": self.plan, "--cut": self.cut, "--keep": self.keep}
        ways["--max-loss"] = self.max_loss
        given = [name for name, value in ways.items() if value is not None]
        if len(given) != 1:
            said = f"{join_words(given)} each say" if given else "nothing says"
            raise OptionError(f"{said} how much to cut: give one of {', '.join(ways)}")
        if self.cut == 0 or self.keep == 1:
            asked = "--cut is 0" if self.cut == 0 else "--keep is 1"
            raise OptionError(f"{asked}: every head would stay, and there is nothing to do")


def prune_command(  # noqa: PLR0913 - one parameter an option
    model: Model = "minilm",
    out: Out = None,
    heads: Heads = None,
    plan: PlanFile = None,
    cut: CutCount = None,
    keep: Keep = None,
    max_loss: MaxLoss = None,
    uniform: Uniform = False,
    policy: Policy = "groups",
    method: Method = None,
    refit: Refit = "full",
    text: Text = None,
    choose_tokens: ChooseTokens = 4096,
    fit_tokens: FitTokens = 16384,
    held_tokens: HeldTokens = 4096,
    curve: HasCurve = True,
    speed: HasSpeed = True,
    onnx: Onnx = False,
    dry_run: DryRun = False,
    force: Force = False,
    as_json: AsJson = False,
    seed: Seed = 0,
    dtype: Dtype = "float32",
    device: Device = "cpu",
    revision: Revision = None,
    trust_remote_code: RemoteCode = False,
) -> None:
    """Choose heads, cut them, refit what is left, prove it on other text, write a model.

    Say how much to cut with one of --heads, --plan, --cut, --keep and --max-loss.
    """
    most, kept = share_of(max_loss, "--max-loss", "1%"), share_of(keep, "--keep", "60%")
    place = None if dry_run else out
    asked = Asked(heads, plan, cut, kept, most, place, force, onnx)
    asked.check()
    if out is None and not dry_run:
        raise OptionError("nothing says where to write the model: give --out DIR, or --dry-run")
    from headwise.pruning.export.directories import check_destination
    from headwise.pruning.selection.methods import BEST
    from headwise.pruning.settings import PruneSettings

    if place is not None:
        check_destination(place.expanduser(), force=force)

    has_curve, are_named = curve and not dry_run, heads is not None or plan is not None
    if are_named and not has_curve:
        refuse("the heads are named", {"--method": method, "--uniform": uniform})
    settings = PruneSettings(
        method=method or BEST,
        policy=policy,
        is_uniform=uniform,
        refit=refit,
        choose_tokens=choose_tokens,
        fit_tokens=fit_tokens,
        held_tokens=held_tokens,
        seed=seed,
        draws_curve=has_curve,
        times_speed=speed and not dry_run,
    )
    options = with_head(dtype, device, revision, trust_remote_code)
    if dry_run and max_loss is None:
        settings = replace(settings, refit="none")  # plan and sizes do not depend on it
    found = pruned(model, options, settings, asked, text)
    if as_json:
        typer.echo(json.dumps({**found.record, "plan": json.loads(found.plan.to_json())}))
    else:
        show(found, place)


def share_of(text: str | None, option: str, example: str) -> float | None:
    """A share written as 1% or as 0.01; None where there is none."""
    if text is None:
        return None
    try:
        return float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError as err:
        other = float(example.removesuffix("%")) / 100
        raise OptionError(
            f"{option} is {text!r}: give a share such as {example} or {other}"
        ) from err


def pruned(
    model: str,
    options: Any,
    settings: "PruneSettings",
    asked: Asked,
    text: list[str] | None,
) -> "Pruned":
    """The smaller model, made as the options say."""
    from headwise.models.loading import load_model
    from headwise.pruning.prune import prune
    from headwise.pruning.selection.cut_plan import CutPlan
    from headwise.pruning.settings import Amount
    from headwise.views.terminal import Stages

    named = asked.heads if asked.plan is None else CutPlan.read(asked.plan)
    heads = str(named) if isinstance(named, CutPlan) else named
    if heads is not None and not heads.strip(" ,"):
        source = "--heads" if asked.plan is None else str(asked.plan)
        raise OptionError(f"{source} names no head: there is nothing to cut")
    Amount(heads=heads, cut=asked.cut, keep=asked.keep, max_loss=asked.max_loss)
    texts = texts_of(text)
    loaded = load_model(model, options)
    with Stages(quiet_console(is_stderr=True), tells=True) as stages:

        def told(stage: str, done: int, total: int) -> None:
            stages(f"choosing heads: {stage}" if stage in CHOOSING else stage, done, total)

        return prune(
            loaded,
            asked.out,
            heads=named,
            cut=asked.cut,
            keep=asked.keep,
            max_loss=asked.max_loss,
            texts=texts,
            settings=settings,
            with_onnx=asked.onnx and asked.out is not None,
            force=asked.force,
            progress=told,
        )


def show(found: "Pruned", out: Path | None) -> None:
    """What went, what is left, and what it scores."""
    from rich.markup import escape

    from headwise.views.pruning import (
        curve_table,
        held_out_line,
        quality_table,
        sizes_table,
        speed_lines,
    )

    console, record = quiet_console(), found.record
    unit, done = record["quality"]["unit"], "to cut" if out is None else "cut"
    console.print(
        f"[bold]{escape(found.plan.model)}[/bold]: {format_count(len(found.plan), 'head')} {done}"
    )
    console.print(found.plan.text() if out is None else str(found.plan), markup=False)
    show_table(console, sizes_table(record["sizes"]))
    show_table(console, quality_table(record["quality"], unit))
    console.print(held_out_line(record["text"], unit))
    if record["quality"]["refit_dropped"]:
        console.print("the refit did not help on text it was not fitted on, and was dropped")
    if found.curve is not None:
        show_table(console, curve_table(found.curve.points, unit))
        if found.curve.elbow:
            cut = f"{found.curve.elbow} of {found.curve.total} heads cut"
            console.print(f"elbow of {found.curve.method}: {cut}")
    for line in speed_lines(record["speed"]):
        console.print(line)
    difference = record["cut_against_silenced"]
    if difference is not None:
        console.print(
            f"cut model against the same heads silenced: largest difference {difference:.1e}"
        )
    if found.onnx_difference is not None:
        console.print(f"model.onnx: largest difference {found.onnx_difference:.1e}")
    if out is not None and found.export is not None:
        kind = (
            "transformers loads it as it is"
            if found.export.is_plain
            else "headwise.load loads it, and so does transformers with trust_remote_code=True"
        )
        say(console, f"\nwrote {out}: {kind}; prune.json says what was measured")
    if out is None:
        say(
            console,
            "nothing was written: give --out DIR without --dry-run to keep the smaller model",
        )
