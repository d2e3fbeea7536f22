"""The report's section on activation patching: a grid of all heads and the strongest of them."""

from headwise.drawing.html import Html, bullets, figure_html, section, tag
from headwise.patching.result import PatchResult
from headwise.views.patching import (
    patch_summary,
    paths_table,
    remark_lines,
    strongest_table,
)

MOST_HEADS = 20
"""Number of heads in the table."""


def patch_section(result: PatchResult) -> Html:
    """The prompts, a picture of every head's effect, the strongest heads, and the controls."""
    about, paths = result.table.about, paths_table(result, MOST_HEADS)
    caption = (
        "Change of the metric if only this head is patched, as a share of the difference between "
        "both runs: blue towards the clean run, red away from it. Point at a cell for its number."
    )
    limit = (
        "A head that is patched is not a head that is understood: the effect says that the head "
        "matters for these prompts, not how it works. Other heads may take over for it."
    )
    return section(
        "patch",
        "Heads that carry an answer",
        tag(
            "p",
            f"Activation patching on pairs of a clean and a corrupted prompt ({about['metric']}).",
        ),
        bullets(patch_summary(result)),
        figure_html(result.svg(), "Effects of patching each head", caption),
        strongest_table(result, MOST_HEADS).to_html(),
        "" if paths is None else paths.to_html(),
        bullets(remark_lines(result)),
        tag("p", limit, class_="limit"),
    )
