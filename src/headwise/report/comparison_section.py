"""The report's section on two models side by side."""

from headwise.comparing.comparison import Comparison
from headwise.drawing.html import Html, bullets, section, tag
from headwise.report.cut_sections import size_bars
from headwise.views.comparing import reading_line, texts_table
from headwise.views.pruning import speed_table


def comparison_section(comparison: Comparison) -> Html:
    """Sizes, speed, quality and agreement of two models, and the conclusions in plain words."""
    before, after = comparison.model_before.name, comparison.model_after.name
    text = f"{after} (after) compared with {before} (before) on several kinds of text."
    return section(
        "comparison",
        "Two models compared",
        tag("p", text),
        bullets(comparison.conclusions()),
        size_bars(comparison),
        texts_table(comparison).to_html(),
        tag("p", reading_line(comparison)),
        speed_table(comparison).to_html(),
    )
