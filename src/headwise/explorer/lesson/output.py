"""Step 6: the output matrix Wo mixes the heads.

In: Facts. Out: a LessonStep, with what each head adds before and after Wo.
"""

from typing import Any

from headwise.explorer.lesson import figures
from headwise.explorer.lesson.facts import Facts
from headwise.explorer.lesson.prose import Prose, part, prose, term
from headwise.explorer.lesson.quiz import LessonStep, QuizQuestion, choice_question
from headwise.explorer.lesson.token_text import percent, power
from headwise.tracing.record import segregation

NORMS = {"pre_feedforward_layernorm", "post_feedforward_layernorm", "post_self_attn_layernorm"}
"""Names of modules in blocks that normalize the output of attention before they add it."""


def output(facts: Facts) -> LessonStep:
    """The step on concat and Wo: heads are separate before Wo and mixed after it."""
    trace, here = facts.trace, facts.position
    owners = _owners(facts)
    bias = None if trace.bias is None else trace.bias.double().cpu()
    layer_output = facts.steps["output"][here].double()
    total = facts.steps["contributions"][:, here].double().sum(0) + (0 if bias is None else bias)
    d_value = facts.steps["mixed"].shape[-1]
    figure = figures.OutputFigure(
        place=facts.place,
        d_model=facts.d_model,
        d_value=d_value,
        segregation_concat=segregation(trace.shares_before.cpu()),
        segregation_output=segregation(trace.shares_after.cpu()),
        difference=float((total - layer_output).abs().max()),
        adds_up=trace.adds_up,
        output=layer_output.tolist(),
        has_bias=bias is not None,
        heads=owners,
    )
    return LessonStep(
        name="output",
        title="Wo mixes the heads",
        minutes=1.5,
        paragraphs=_opening(facts, d_value),
        exercise=prose("Switch between before and after Wo, and choose another head."),
        question=_reach_question(facts, figure),
        figures=figure,
        after=_after(facts, figure),
    )


def _owners(facts: Facts) -> list[figures.OwnerFigure]:
    contributions = facts.steps["contributions"][:, facts.position].double()
    mixed = facts.steps["mixed"][:, facts.position].double()
    lengths = contributions.norm(dim=-1)
    shares = (lengths / (lengths.sum() or 1.0)).tolist()
    d_value = mixed.shape[-1]
    return [
        figures.OwnerFigure(
            head=facts.lesson_head(head),
            columns=[head * d_value, (head + 1) * d_value],
            concat=mixed[head].tolist(),
            contribution=contributions[head].tolist(),
            length=float(lengths[head]),
            share=shares[head],
            touched=int((contributions[head] != 0).sum()),
        )
        for head in range(facts.num_heads)
    ]


def _opening(facts: Facts, d_value: int) -> list[Prose]:
    here, width = facts.word(facts.here), facts.num_heads * d_value
    first, last = facts.head * d_value + 1, (facts.head + 1) * d_value
    return [
        prose("Every head brings back ", f"{d_value} numbers for ", here, ". Laid side by side, ",
              f"they make {width:,}: the ", term("concat"), " (short for "
              "concatenation). The heads have not met yet. Numbers "
              f"{first:,} to {last:,} come from ", part(facts.name, f"head {facts.name}"),
              " alone; no other head has a part in them."),
        prose("Then comes a fourth matrix, ", term("Wo"), f" (o for output). It makes "
              f"{facts.d_model:,} new numbers from these {width:,}. They are {_added(facts)} the "
              f"{facts.d_model:,} numbers with which ", here, " came in, so what the heads found "
              "is added to what was there. (The layer has a second part, too, which looks at each "
              "word alone; it has no heads.)"),
    ]  # fmt: skip


def _added(facts: Facts) -> str:
    """How the layer adds the heads' output: some models change its scale first."""
    config: Any = facts.scored.model.config
    block = facts.call.site.name.rpartition(".")[0]
    beside = {name for name, _ in facts.scored.model.get_submodule(block).named_children()}
    is_scaled = bool(beside & NORMS) or getattr(config, "residual_multiplier", 1.0) != 1.0
    return "rescaled and added to" if is_scaled else "added to"


def _reach_question(facts: Facts, figure: figures.OutputFigure) -> QuizQuestion:
    owner, d_value = figure.heads[facts.head], figure.d_value
    values = [d_value, figure.d_model // 2, facts.num_heads, figure.d_model, 1]
    wrong = [f"{value:,}" for value in dict.fromkeys(values) if value != owner.touched][:2]
    return choice_question(
        prose(f"{facts.name} fills {d_value} numbers before Wo. How many of the "
              f"{figure.d_model:,} new numbers does it have a part in?"),
        f"{owner.touched:,}",
        wrong,
        hint=prose("Each number of the concat is multiplied by one whole row of Wo. A row of Wo is "
                   f"{figure.d_model:,} numbers long."),
        why=prose(f"Counted here: {owner.touched:,} of {figure.d_model:,}. Each of its {d_value} "
                  "numbers meets a whole row of Wo, and the rows are added up."),
    )  # fmt: skip


def _after(facts: Facts, figure: figures.OutputFigure) -> list[Prose]:
    owners, this = figure.heads, figure.heads[facts.head]
    top, least = max(owners, key=lambda each: each.share), min(owners, key=lambda each: each.share)
    bias = ", plus a fixed list called the bias," if figure.has_bias else ""
    check = (
        f"We checked: what the heads add{bias} is exactly the output, up to rounding."
        if figure.adds_up
        else f"What the heads add misses the output by {power(figure.difference)}."
    )
    paragraphs = [
        prose("So Wo is where heads meet. It gives every head a voice in every new number, and "
              f"adds the voices up. {check}")
    ]  # fmt: skip
    if facts.num_heads > 1:
        adds = prose("They do not speak equally loudly. ",
                     part(top.head.name, f"head {top.head.name}"),
                     f" adds most for this word, {percent(top.share)} by length; ",
                     part(least.head.name, f"head {least.head.name}"),
                     f" adds {percent(least.share)}.")  # fmt: skip
        mine = "" if this in (top, least) else f" {facts.name} adds {percent(this.share)}."
        even = percent(1 / facts.num_heads)
        paragraphs.append(
            prose(adds, mine, f" An even part would be {even}. But loud is not the same as needed: "
                  "that is the last question.")
        )  # fmt: skip
    return paragraphs
