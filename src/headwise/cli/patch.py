"""`headwise patch`: which heads make a model answer this rather than that."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer import Argument, Option

from headwise.cli import options
from headwise.errors import OptionError

if TYPE_CHECKING:
    from headwise.patching.result import PatchResult

Model = Annotated[str, Argument(help="smollm2, minilm, a directory, a GGUF file, or a hub id.")]
Clean = Annotated[str | None, Option(help="Prompt that the model answers with --answer.")]
Corrupted = Annotated[
    str | None,
    Option(help="The prompt with other words, as many tokens long, that changes the answer."),
]
Answer = Annotated[
    str | None,
    Option(help='Word that should follow the clean prompt, with its leading space: " Mary".'),
]
Instead = Annotated[
    str | None, Option(help='Word to compare the answer with, with its leading space: " John".')
]
Pairs = Annotated[
    Path | None,
    Option(
        metavar="FILE",
        help="CSV, TSV or JSON lines file with clean, corrupted, answer and instead.",
    ),
]
Task = Annotated[
    str | None,
    Option(
        metavar="NAME",
        help="Built-in pairs: indirect-object, greater-than, agreement, pronoun, induction or "
        "capitals.",
    ),
]
Count = Annotated[
    int | None, Option(help="Number of pairs to use (default: 16 of a task, all of a file).")
]
MetricName = Annotated[
    str | None,
    Option(
        metavar="NAME",
        help="logit-difference, probability, kl or cosine (default: logit-difference with answers, "
        "cosine for embedding models, otherwise kl).",
    ),
]
Part = Annotated[
    str,
    Option(help="Part of a head to patch: output, pattern (where it looks) or value."),
]
Positions = Annotated[
    str | None,
    Option(help='Tokens to patch at, counted from 0 or from the end: "4 5 -1" (default: all).'),
]
Direction = Annotated[
    Literal["denoise", "noise"] | None, Option(help="Patch in one direction only (default: both).")
]
Exact = Annotated[
    bool, Option("--exact/--no-exact", help="Patch each head in a pass of its own, or estimate.")
]
ExactHeads = Annotated[
    int | None,
    Option(help="Patch only this many heads exactly, those with the largest estimates."),
]
Steps = Annotated[
    int, Option(help="Also average gradients over this many runs between the two prompts.")
]
GradDrop = Annotated[
    bool, Option("--grad-drop", help="Also estimate without the gradient through each block.")
]
PathsTo = Annotated[
    str | None,
    Option(metavar="HEAD", help="Also measure direct paths from earlier heads to this one."),
]
Control = Annotated[
    int,
    Option(help="Heads, those with the largest effects, to patch from other pairs; 0 for none."),
]
Out = Annotated[Path | None, Option(help="Folder for the tables; a stopped run resumes there.")]
SvgFile = Annotated[Path | None, Option(help="Write the grid of all heads as an image.")]


def patch_command(  # noqa: PLR0913 - one parameter per option
    model: Model = "smollm2",
    clean: Clean = None,
    corrupted: Corrupted = None,
    answer: Answer = None,
    instead: Instead = None,
    pairs: Pairs = None,
    task: Task = None,
    count: Count = None,
    metric: MetricName = None,
    part: Part = "output",
    positions: Positions = None,
    direction: Direction = None,
    exact: Exact = True,
    exact_heads: ExactHeads = None,
    steps: Steps = 0,
    grad_drop: GradDrop = False,
    paths_to: PathsTo = None,
    control: Control = 20,
    out: Out = None,
    svg: SvgFile = None,
    force: options.Force = False,
    as_json: options.AsJson = False,
    seed: options.Seed = 0,
    dtype: options.Dtype = "float32",
    device: options.Device = "cpu",
    revision: options.Revision = None,
    trust_remote_code: options.RemoteCode = False,
) -> None:
    """Find the heads that make a model answer this rather than that, by activation patching.

    Set the prompts with --task, with --clean and --corrupted, or with --pairs.
    """
    prompts = _prompts(clean, corrupted, answer, instead, pairs, task, count)
    from headwise.models.loading import LoadOptions, load_model
    from headwise.patching.metrics import check_metric
    from headwise.patching.patch import patch
    from headwise.patching.runs import DIRECTIONS
    from headwise.patching.settings import PatchSettings
    from headwise.views.terminal import ProgressDisplay, check_new, quiet_console, write_new

    check_metric(metric)
    if not exact:
        options.refuse("--no-exact patches no head", {"--exact-heads": exact_heads is not None})
    settings = PatchSettings(
        directions=DIRECTIONS if direction is None else (direction,),
        part=part,
        positions=None if positions is None else _numbers(positions),
        exact=exact if exact_heads is None else exact_heads,
        steps=steps,
        grad_drop=grad_drop,
        receiver=paths_to,
        control=control,
        seed=seed,
    )
    if svg is not None:
        check_new(svg, ".svg", force=force)
    load = LoadOptions(dtype, device, revision, trust_remote_code, keeps_head=True)
    loaded = load_model(model, load)
    with ProgressDisplay(quiet_console(is_stderr=True), prints_lines=True) as progress:
        result = patch(
            loaded,
            **prompts,
            metric=metric,
            settings=settings,
            out=out,
            force=force,
            progress=progress,
        )
    if svg is not None:
        write_new(svg, result.svg(), ".svg", force=force)
    if as_json:
        typer.echo(result.to_json())
    else:
        _show(result, out, svg)


def _prompts(
    clean: str | None,
    corrupted: str | None,
    answer: str | None,
    instead: str | None,
    pairs: Path | None,
    task: str | None,
    count: int | None,
) -> dict[str, Any]:
    """The arguments to `patch` that set the prompts, checked before the model loads."""
    from headwise.checks import whole_number
    from headwise.patching.prompts import PromptPair, read_pairs
    from headwise.patching.tasks import TASKS, find_task

    words = {"--answer": answer, "--instead": instead}
    prompts = {"--clean": clean, "--corrupted": corrupted, **words}
    if count is not None:
        whole_number("count", count, least=1)
    if task is not None:
        options.refuse("--task has prompts of its own", {**prompts, "--pairs": pairs})
        return {"task": find_task(task).name, "count": count}
    if pairs is not None:
        options.refuse("--pairs names a file of prompts", prompts)
        return {"pairs": read_pairs(pairs), "count": count}
    if clean is None or corrupted is None:
        missing = [name for name in ("--clean", "--corrupted") if prompts[name] is None]
        if len(missing) == 1:
            raise OptionError(f"{missing[0]} is missing: give --clean and --corrupted together")
        options.refuse("there are no prompts to answer: give --clean and --corrupted", words)
        raise OptionError(
            "there are no prompts: give --clean and --corrupted, --pairs FILE, or --task with one "
            f"of {', '.join(TASKS)}"
        )
    options.refuse("--clean and --corrupted are one pair", {"--count": count})
    return {"pairs": [PromptPair(clean, corrupted, answer or "", instead or "")]}


def _numbers(positions: str) -> tuple[int, ...]:
    works = 'positions such as "4 5 -1"'
    words = positions.replace(",", " ").split()
    return tuple(options.parse_number(word, "--positions", works) for word in words)


def _show(result: "PatchResult", out: Path | None, svg: Path | None) -> None:
    from headwise.patching.store import FILES
    from headwise.views import patching as views
    from headwise.views.terminal import quiet_console, say, show_table

    console = quiet_console()
    for line in views.patch_summary(result):
        console.print(line, markup=False)
    console.print("", views.effect_grids(result))
    show_table(console, views.strongest_table(result))
    for line in views.remark_lines(result):
        console.print(line, markup=False)
    if (paths := views.paths_table(result)) is not None:
        show_table(console, paths)
    if svg is not None:
        say(console, f"\nwrote {svg}")
    if out is not None:
        written = [name for name in FILES if (out / name).is_file()]
        say(console, f"\nwrote {', '.join(written)} in {out}")
