"""The report is one page that is complete, safe, readable and true to its tables."""

import re
from dataclasses import replace
from html import escape
from itertools import pairwise

import pandas as pd
import pytest

from headwise.drawing.heatmap import HeatMap, colour
from headwise.drawing.html import figure_html
from headwise.head_table import HeadTable
from headwise.heads import parse_heads
from headwise.pruning.export.sizes import Sizes
from headwise.pruning.importance.importance import importance
from headwise.pruning.importance.importance_tables import Importance
from headwise.pruning.importance.redundancy import RedundantHeads
from headwise.pruning.record import ModelFacts, Score
from headwise.report.cut_sections import stand_ins_part
from headwise.report.data import AttentionMaps, ReportData
from headwise.report.heads_section import value_cell
from headwise.report.maps import MAPS_PER_ROLE, MOST_TOKENS
from headwise.report.report import report_page, style_sheet
from headwise.roles import ROLES, UNKNOWN_ROLE
from headwise.scans.folder import Scan
from headwise.views.pruning import SIZES, cut_warnings, sizes_table

from ..pruning.records import QUALITY, prune_record, text_use
from ..pruning.tiny_models import model_of, plain
from .report_cases import (
    Page,
    curve_of,
    cut_of,
    data_of,
    drawn_of,
    everything,
    pairs_of,
    relations_of,
    table_of,
)

READABLE = 4.5  # WCAG 2.2 AA for text: https://www.w3.org/TR/WCAG22/#contrast-minimum
HOSTILE = "<script>alert('x')</script>\"><img src=x onerror=alert(1)>&amp;"


def luminance(colour: str) -> float:
    """Relative luminance, 0 to 1: https://www.w3.org/TR/WCAG22/#dfn-relative-luminance."""
    parts = [int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5)]
    red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(colour: str, background: str) -> float:
    low, high = sorted((luminance(colour), luminance(background)))
    return (high + 0.05) / (low + 0.05)


def section_of(page: str, name: str) -> str:
    """The text of one section of a page."""
    start = page.index(f'<section id="{name}"')
    return Page(page[start : page.index("</section>", start) + len("</section>")]).text


@pytest.fixture(scope="module")
def page() -> str:
    return report_page(everything())


def test_every_tag_is_closed_in_order(page: str) -> None:
    assert Page(page).faults == []
    assert page.startswith("<!doctype html>")


@pytest.mark.parametrize(
    "wrong", ["<p><b>one</p></b>", "<div>", "</p>", '<p id="a" id="b"></p>', "<svg><rect></svg>"]
)
def test_page_reader_finds_wrong_tags(wrong: str) -> None:
    assert Page(wrong).faults


def test_every_role_has_its_claim_and_its_limit(page: str) -> None:
    roles = section_of(page, "roles")
    for name, role in ROLES.items():
        assert f"{name}: " in roles
        assert role.meaning in roles
    assert "such as at the token before.</b> Unknown: what it reads.</p>" in page


def test_roles_that_no_head_has_are_listed() -> None:
    data = data_of(table_of({(0, 0): ["sink"]}))
    roles = section_of(report_page(data), "roles")
    assert "sink: 1 head" in roles
    assert f"induction. {ROLES['induction'].meaning}" in roles
    summary = section_of(report_page(data), "summary")
    assert re.search("Not tested.*: induction, duplicate, coreference, pos", summary)
    assert "No head is" not in Page(report_page(data)).text
    scored = data.table.df.assign(induction_score=0.1)
    tested = data_of(HeadTable(scored, data.table.about))
    assert "No head is induction." in Page(report_page(tested)).text
    assert "Roles that no head has induction." in section_of(report_page(tested), "roles")


def test_every_head_has_a_named_cell_and_a_row(page: str) -> None:
    read = Page(page)
    cells = [element.get("aria-label", "") for element in read.all("td")]
    for head in everything().table.heads:
        assert [label for label in cells if label.startswith(f"{head}: ")], head
        assert f" {head} " in section_of(page, "grid")
    assert "L0H1: delimiter, sink; entropy 5%" in cells
    assert "L0H3: no role; entropy 15%" in cells
    titled = [element for element in read.all("td") if "aria-label" in element]
    assert all(element["title"] == element["aria-label"] for element in titled)


def test_the_summary_counts(page: str) -> None:
    summary = section_of(page, "summary")
    assert "small has 13 attention heads in 3 layers" in summary
    assert "1,234 tokens of text and 37 sentences with known relations" in summary
    assert "7 of them meet the criteria for at least one role; the other 6" in summary
    assert "positional 2, syntactic 1, semantic 1, sink 1, delimiter 1" in summary
    assert "L2H4 gives 72% of its attention to the token before" in summary
    assert "L0H2 and L2H4 have the most similar outputs: CKA 0.87" in summary
    assert (
        "Silencing L2H4 costs the most (0.011 of loss), silencing L0H0 the least (-0.001)"
        in summary
    )
    assert (
        "2 heads were cut; cosine is now 0.750, compared with 0.600 if the same number is cut"
        in summary
    )


def test_the_strongest_head_of_a_role_comes_first(page: str) -> None:
    roles = section_of(page, "roles")
    table = roles[roles.index("positional: 2 heads") : roles.index("delimiter: 1 head")]
    assert table.index("L2H4 0.720 0.500 0.125 1 back") < table.index("L0H0 0.600")


def test_relation_is_shown_with_its_baseline(page: str) -> None:
    relations = section_of(page, "relations")
    assert "obj L0H2 75% 25% yes 70% to 80% 41 the governor looks at its dependent" in relations


def test_mixed_figures_are_marked_and_skipped_sentences_counted(page: str) -> None:
    assert "*" not in section_of(page, "relations")
    table = table_of(
        counts={"natural_sentences": 37, "natural_unusable": 5}, settings={"length": 14}
    )
    frame = relations_of(table)
    frame.loc[frame["name"] == "L2H4", "half0_accuracy"] = 0.9
    relations = section_of(report_page(data_of(table, relations=frame)), "relations")
    assert "obj L0H2* 42% 25% yes" in relations  # L0H2's 75% in the first half, L2H4's 10%
    assert "* Here the two halves of the sentences choose different heads or readings" in relations
    assert (
        "5 of 42 sentences with known relations were left out: too long for a length" in relations
    )


def test_scores_of_relations_name_the_text_they_were_measured_on(page: str) -> None:
    roles = section_of(page, "roles")
    assert roles.count("in natural sentences") == 2
    assert roles.count("in running text") == 1


def test_pairs_are_ranked_and_stand_ins_have_their_costs(page: str) -> None:
    alike = section_of(page, "alike")
    assert alike.index("0.870") < alike.index("0.400") < alike.index("0.110")
    assert "L0H0 L0H1 0.2300 0.3300" in alike  # .07 + .16, and with the .1 that they share


@pytest.fixture(scope="module")
def measured() -> Importance:
    """Importance in which cutting a head can lower the loss."""
    return importance(model_of("llama"), batches=[plain("llama")])


def test_every_group_of_stand_ins_has_its_costs(measured: Importance) -> None:
    group = RedundantHeads(parse_heads("L0H0 L1H3"), 0.4, 0.5, 0.01, 0.03, 0.002)
    part = Page(stand_ins_part(replace(measured, groups=(group,)))).text
    assert "L0H0 L1H3 0.0100 0.0300 0.002" in part
    without = Page(stand_ins_part(replace(measured, groups=()))).text
    assert "No group of heads" in without
    assert "Not tested: all heads (4 examples were read" in without


def test_measures_that_were_not_taken_are_not_on_the_page(measured: Importance) -> None:
    df = measured.table.df.drop(columns=["zero", "zero_se", "mean", "mean_se", "stand_ins"])
    about = {**measured.table.about, "measures": ["michel", "fisher", "expected"]}
    few = Importance(HeadTable(df, about))
    data = replace(everything(), importance=few)
    worth = section_of(report_page(data), "importance")
    assert "Heads are ranked by Michel's score" in worth and "on 4 examples" in worth
    for absent in ("silent", "stand-ins", "One head left"):
        assert absent not in worth
    assert stand_ins_part(few) == ""
    none = Importance(HeadTable(df[["stack", "layer", "head"]], about), layers=measured.layers)
    worth = section_of(report_page(replace(everything(), importance=none)), "importance")
    assert "One head left in a layer" in worth and "ranked" not in worth


def test_the_page_shows_importance_and_the_cut(page: str) -> None:
    worth, cut = section_of(page, "importance"), section_of(page, "cut")
    assert "on 29 examples" in worth and "0.0110 ± 0.0005" in worth
    assert "L0 5 L0H3 0.25 ± 0.03 0.7500" in worth
    assert "1 of them had no role" in cut
    assert "parameters 2 M 1.5 M 25.0%" in cut
    assert "cut 0.75 ± 0.01 0.62 ± 0.01" in cut
    random = "same number at random, median of 3 0.60 ± 0.01 best 0.65 ± 0.01 worst 0.55 ± 0.01"
    assert random in cut
    assert "law 1.00 ± 0.01 0.50 ± 0.01 given 1.00 ± 0.01 0.75 ± 0.01 news" in cut
    assert "Measured on 1,233 sentences of your text, 4,096 tokens." in cut
    for warning in cut_warnings(cut_of()):
        assert warning in cut
    assert "16 x 512 tokens 2.000 s 1.000 s 2.00 ± 0.10" in cut
    assert "to the last bit" in cut
    assert "Curves of cosine against the share of heads cut" in page
    for line in re.findall(r"<path [^>]*>", curve_of().svg("small: cosine against heads cut")):
        assert line in page


def test_the_page_shows_the_comparison(page: str) -> None:
    part = section_of(page, "comparison")
    assert "smaller (after) compared with small (before)" in part
    assert "worst register: news, cosine 0.938 to small (± 0.002)" in part
    assert "warning: other text suffers much more than your text" in part
    assert "parameters 2 M 1.5 M 25.0%" in part
    assert "captions 0.969 ± 0.004 75.0 ± 1.2%" in part
    assert "16 x 512 tokens 2.000 s 1.000 s 2.00 ± 0.10" in part
    assert "model after name smaller" in section_of(page, "making")


def test_loss_of_zero_has_no_sign() -> None:
    scores = replace(QUALITY.scores, uncut=Score(-1e-9, 0.01, -1e-9, 0.01))
    record = prune_record(quality=replace(QUALITY, scores=scores))
    cut = section_of(report_page(replace(everything(), cut=record)), "cut")
    assert "uncut 0.00 ± 0.01" in cut


def test_captions_claim_no_more_than_is_true(page: str) -> None:
    assert "A row adds up to 1, or to less if the model's heads have sinks" in Page(page).text
    assert "The floor is the model with every head silent. The elbow is where" in Page(page).text
    points = curve_of().points
    straight = replace(curve_of(), points=points.assign(loss=points["cut"] / 13))
    data = replace(everything(), curve=straight)
    assert straight.elbow == 0 and "The elbow is where" not in report_page(data)


def test_sizes_have_one_name_in_the_terminal_and_on_the_page() -> None:
    eight, six = (Sizes(**dict.fromkeys(SIZES, size), positions=1) for size in (8, 6))
    record = prune_record(before=eight, after=six)
    cut = section_of(report_page(replace(everything(), cut=record)), "cut")
    names = [row[0] for row in sizes_table(record).rows]
    assert len(names) == len(SIZES)
    assert all(f"{name} 8" in cut for name in names)


def test_the_page_says_which_parts_were_not_measured() -> None:
    page = report_page(data_of(table_of(), maps=AttentionMaps("x", reason="it is gone")))
    read = Page(page)
    assert "This report has no attention maps: it is gone." in read.text
    assert read.all("figure") == []
    assert "read no sentences with known relations" in read.text
    assert "did not compare heads" in read.text
    ids = {element.get("id") for element in read.all("section")}
    assert ids == {"summary", "grid", "roles", "relations", "alike", "making"}


def test_an_almost_empty_table_makes_a_page() -> None:
    df = pd.DataFrame({"stack": "", "layer": [0], "head": [0]})
    read = Page(report_page(data_of(HeadTable(df, {}))))
    assert read.faults == []
    assert "an unnamed model has 1 attention head in 1 layer." in read.text


def test_stacks_have_grids_of_their_own() -> None:
    df = table_of().df
    both = pd.concat([df.assign(stack="encoder"), df.assign(stack="decoder")])
    read = Page(report_page(data_of(HeadTable(both, {"model": "two"}))))
    assert "encoder: First role of each head" in read.text
    assert "decoder.L2H1: broad; entropy 45%" in [
        element.get("title") for element in read.all("td")
    ]


def test_maps_are_those_of_the_strongest_heads() -> None:
    data = everything()
    labels = [element["aria-label"] for element in Page(report_page(data)).all("svg")]
    maps = [label for label in labels if label.startswith("Attention map")]
    assert maps.count("Attention map of L2H4 over 5 tokens") == 1
    assert maps.count("Attention map of L0H1 over 5 tokens") == 2  # delimiter and sink
    assert maps.count("Attention map of L0H2 over 3 tokens") == 3  # only words
    assert len(maps) == 9 + 1  # nine roles, and positional has two heads


def test_text_with_only_special_tokens_has_no_word_maps() -> None:
    data = everything()
    empty = {name: HeatMap(name, [], [], []) for name in data.maps.words_by_head}
    page = report_page(replace(data, maps=replace(data.maps, words_by_head=empty)))
    assert "over 0 tokens" not in page and "Attention map of L2H4 over 5 tokens" in page


# Safety.


def hostile() -> ReportData:
    roles = {(0, 0): ["positional", HOSTILE.replace(";", ",")], (0, 2): ["syntactic"]}
    loaded = {"source": HOSTILE, "sha256": HOSTILE}
    table = table_of(roles, model=HOSTILE, loaded=loaded, settings={HOSTILE: [HOSTILE]})
    df = table.df.assign(syntactic_detail=HOSTILE)
    table = HeadTable(df, table.about)
    maps = drawn_of(table, (HOSTILE, "</svg></figure>", "</style>", HOSTILE, "x\x00y"))
    return replace(
        everything(),
        scan=Scan(table, pairs_of(), relations_of(table, HOSTILE)),
        maps=replace(maps, text=HOSTILE),
        cut=prune_record(
            method=HOSTILE,
            model=ModelFacts(HOSTILE),
            quality=replace(QUALITY, unit=HOSTILE, registers={HOSTILE: QUALITY.scores}),
            text=text_use(HOSTILE, HOSTILE),
            speed=everything().cut.speed,
        ),
    )


def test_no_name_and_no_token_becomes_a_tag() -> None:
    page = report_page(hostile())
    read = Page(page)
    assert read.faults == []
    assert {tag for tag, _ in read.elements} == {
        tag for tag, _ in Page(report_page(everything())).elements
    }
    assert HOSTILE not in page
    assert page.count(escape(HOSTILE)) >= 10
    names = {name for _, element in read.elements for name in element}
    assert not [name for name in names if name.startswith("on")]


def test_page_loads_nothing_from_elsewhere(page: str) -> None:
    assert not re.search(r"https?://|//[a-z]|url\(|@import|javascript:", page, re.IGNORECASE)
    read = Page(page)
    assert read.all("script", "img", "iframe", "object", "embed", "use", "image") == []
    loads = [
        element
        for _, element in read.elements
        if {"src", "href", "xlink:href", "action"} & element.keys()
    ]
    assert loads
    assert {element["href"][:1] for element in loads if element["href"] != "data:,"} == {"#"}
    policy = [element["content"] for element in read.all("meta") if "http-equiv" in element]
    assert policy == ["default-src 'none'; style-src 'unsafe-inline'; img-src data:"]


def test_figure_rejects_foreign_images() -> None:
    with pytest.raises(AssertionError, match="not an image"):
        figure_html("<script>", "label", "caption")


# Readable by everyone.


def test_headings_are_in_order_and_landmarks_exist(page: str) -> None:
    read = Page(page)
    levels = [int(tag[1]) for tag, _ in read.elements if re.fullmatch(r"h[1-6]", tag)]
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    for name in ("header", "nav", "main", "footer"):
        assert len(read.all(name)) == 1
    assert [element["lang"] for element in read.all("html")] == ["en"]


def test_links_and_labels_point_at_something(page: str) -> None:
    read = Page(page)
    ids = [element["id"] for _, element in read.elements if "id" in element]
    assert len(set(ids)) == len(ids)
    for _, element in read.elements:
        targets = [
            element[name].lstrip("#") for name in ("href", "aria-labelledby") if name in element
        ]
        assert all(name in ids for name in targets if name != "data:,")


def test_tables_have_captions_and_scoped_headers(page: str) -> None:
    read = Page(page)
    assert len(read.all("caption")) == len(read.all("table")) > 8
    assert {element["scope"] for element in read.all("th")} == {"row", "col"}


def test_every_image_has_a_role_and_a_name(page: str) -> None:
    images = Page(page).all("svg")
    assert len(images) > 10
    assert all(element["role"] == "img" and element["aria-label"] for element in images)


def test_text_is_readable_on_every_background_in_both_modes() -> None:
    colours: dict[str, list[str]] = {}  # in light and in dark mode
    for name, value in re.findall(r"--(\w+): (#\w{6});", style_sheet()):
        colours.setdefault(name, []).append(value)
    for ground in ("page", "card", "note"):
        for ink in ("ink", "soft", "accent"):
            for pair in zip(colours[ink], colours[ground], strict=True):
                assert contrast(*pair) >= READABLE, (ink, ground)
    assert len(colours["ink"]) == 2


def test_letters_and_numbers_are_readable_on_their_colours() -> None:
    for role in (*ROLES.values(), UNKNOWN_ROLE):
        assert contrast("#ffffff", role.light) >= READABLE, role.name
    for step in range(1001):
        ground = colour(step / 1000)
        black, white = contrast("#000000", ground), contrast("#ffffff", ground)
        better, most = ("#000", black) if black >= white else ("#fff", white)
        assert most >= READABLE, step
        assert f"background:{ground};color:{better}" in value_cell(step / 1000, "7", "L0H1"), step


def test_contrast_is_that_of_the_standard() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)  # just too faint


def test_style_has_rules_for_dark_narrow_and_paper() -> None:
    text = style_sheet()
    assert text.count("{") == text.count("}")
    for media in ("prefers-color-scheme: dark", "max-width: 36rem", "print"):
        assert media in text
    assert "<" not in text


# Size, and small things.


def test_the_largest_page_stays_under_8_mb() -> None:
    roles = {(layer, head): list(ROLES)[: 3 * (layer + 1)] for layer in (0, 2) for head in (0, 1)}
    table = table_of({**roles, (2, 2): list(ROLES), (2, 3): list(ROLES)})
    maps = drawn_of(table, tuple(f"token{number}" for number in range(MOST_TOKENS)))
    page = report_page(data_of(table, maps=maps))
    assert page.count("<figure>") == len(ROLES) * MAPS_PER_ROLE
    assert len(page.encode()) < 8e6


def test_settings_are_read_in_one_line() -> None:
    settings = {"seed": 0, "probe": True, "length": None, "rows": ["all", False]}
    page = report_page(data_of(table_of(settings=settings)))
    assert "seed 0; probe yes; length none; rows [all, no]" in Page(page).text
