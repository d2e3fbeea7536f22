"""The lesson in a real browser: every step and figure, answers, progress, and no errors."""

import math
import re
from dataclasses import asdict
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from headwise.explorer.lesson.lesson import lesson
from headwise.explorer.lesson.quiz import LessonStep

from .browser import DESKTOP, PHONE, faults, page_at, served, until
from .lesson_cases import STEPS, browsers_weights
from .sessions import CAT, WORDS, minilm, tiny_session

MARKUP = "<img src=x onerror=alert(1)> turned 🙂 words"


@pytest.fixture(scope="module")
def steps() -> dict[str, LessonStep]:
    return {step.name: step for step in lesson(minilm().scored, CAT)}


def at(address: str, step: str = "", text: str = CAT) -> str:
    return f"{address}#panel=lesson&step={step}&text={quote(text)}"


def drawn(page: Page, step: str) -> Locator:
    page.wait_for_selector(f"body[data-lesson={step}]")
    return page.locator(".lesson-figure")


def shown_weights(page: Page) -> list[float]:
    texts = page.locator("[role=slider][data-score]").evaluate_all(
        "all => all.map((slider) => slider.getAttribute('aria-valuetext'))"
    )
    return [float(re.sub(".*weight ", "", text)) for text in texts]


def test_every_step_can_be_reached_and_its_figure_changes(
    chrome: Browser, site: str, steps: dict[str, LessonStep]
) -> None:
    with page_at(chrome, at(site)) as page:
        for name, step in steps.items():
            figure = drawn(page, name)
            title = page.locator(".lesson-step h3")
            expect(title).to_have_text(step.title)
            if name != STEPS[0]:
                expect(title).to_be_focused()
                assert f"step={name}" in page.url
            assert page.locator(".lesson-words p").all_inner_texts() == list(step.paragraphs)
            expect(figure.locator(".lesson-exercise")).to_have_text(step.exercise)
            expect(page.locator(".lesson-question")).to_contain_text(step.question.text)
            expect(page.locator(f"[data-step={name}]")).to_have_attribute("aria-current", "step")
            MOVES[name](page, figure, step)
            if name != STEPS[-1]:
                page.get_by_role("button", name="Next", exact=True).click()
        expect(page.get_by_role("button", name="Next", exact=True)).to_be_disabled()
        page.get_by_role("button", name="Previous").click()
        drawn(page, "output")


def move_warm_up(page: Page, figure: Locator, step: LessonStep) -> None:
    expect(figure.locator("table")).to_have_count(9)
    expect(figure).to_contain_text("In head 0, Cat stays sharp")
    figure.get_by_role("button", name="Head 1").click()
    expect(figure).to_contain_text("In head 1, sleeps stays sharp")


def move_why_many(page: Page, figure: Locator, step: LessonStep) -> None:
    rows = figure.locator("button.lesson-row")
    expect(rows).to_have_count(len(asdict(step.figures)["heads"]))
    assert_one_scale(figure, step)
    head = asdict(step.figures)["place"]["head"]
    expect(rows.nth(head)).to_have_attribute("aria-pressed", "true")
    page.get_by_role("button", name="Previous head").click()
    expect(rows.nth(head - 1)).to_have_attribute("aria-pressed", "true")
    before = asdict(step.figures)["heads"][head - 1]
    expect(figure).to_contain_text(f"{before['name']} puts {before['largest']:.2f} on")
    rows.nth(head - 1).press("ArrowDown")
    expect(rows.nth(head)).to_be_focused()


def assert_one_scale(figure: Locator, step: LessonStep) -> None:
    """Bars have the same number of pixels per weight in every row, including the average row."""
    heights = figure.locator(".lesson-row-bars").evaluate_all(
        "all => all.map((row) => Math.max(...[...row.querySelectorAll('rect')]"
        ".map((bar) => bar.getBoundingClientRect().height)))"
    )
    rows = [*asdict(step.figures)["heads"], asdict(step.figures)["single"]]
    pixels = [height / row["largest"] for height, row in zip(heights, rows, strict=True)]
    assert pixels == pytest.approx([pixels[0]] * len(pixels), rel=0.02)
    axis = figure.locator(".lesson-axis .lesson-token").all_inner_texts()
    assert axis == [
        asdict(step.figures)["place"]["tokens"][key] for key in asdict(step.figures)["keys"]
    ]


def move_projections(page: Page, figure: Locator, step: LessonStep) -> None:
    vector = figure.get_by_role("slider", name=re.compile("^Query"))
    vector.press("ArrowRight")
    expect(figure.locator(".lesson-read").nth(1)).to_have_text(
        f"number 2: {asdict(step.figures)['query'][1]:.3f}".replace("-", "\N{MINUS SIGN}")
    )
    expect(figure.locator(".lesson-strip")).to_have_count(4)


def move_heads(page: Page, figure: Locator, step: LessonStep) -> None:
    expect(figure.locator("tr.chosen")).to_contain_text("this model")
    expect(figure.locator("svg rect")).to_have_count(12)
    figure.get_by_role("button", name="24 heads").click()
    expect(figure.locator("svg rect")).to_have_count(24)
    expect(figure).to_contain_text("24 heads of 16 numbers: 384 in all.")


def move_scores(page: Page, figure: Locator, step: LessonStep) -> None:
    expect(figure.locator("[role=slider]")).to_have_count(len(asdict(step.figures)["scores"]))


def move_mixing(page: Page, figure: Locator, step: LessonStep) -> None:
    figure.locator("[data-part='2']").hover()
    expect(figure.locator("caption")).to_contain_text("What")
    cells = figure.locator(".lesson-sums tr").nth(1).locator("td").all_inner_texts()
    numbers = [float(cell.replace("\N{MINUS SIGN}", "-")) for cell in cells]
    figures = asdict(step.figures)
    part, whole = figures["parts"][2][0], figures["mixed"][0]
    wanted = [figures["values"][2][0], part, whole - part, whole]
    assert numbers == pytest.approx(wanted, abs=0.0006)


def move_output(page: Page, figure: Locator, step: LessonStep) -> None:
    expect(figure).to_contain_text("Segregation: 1.00")
    figure.get_by_role("button", name="After Wo").click()
    expect(figure).to_contain_text("in 384 of the 384 numbers")
    expect(figure).to_contain_text(f"Segregation: {asdict(step.figures)['segregation_output']:.2f}")
    figure.locator("[data-head$=H0]").click()
    expect(figure.locator("table")).to_contain_text("H0 adds")
    expect(figure.locator(".good")).to_contain_text("Checked")


def move_spare(page: Page, figure: Locator, step: LessonStep) -> None:
    most = asdict(step.figures)["heads"][0]
    figure.locator(f"[data-head={most['name']}]").click()
    expect(figure.locator(".lesson-answer")).to_contain_text(f"{most['name']} is silent.")
    expect(figure.locator(".lesson-value")).to_have_text(f"{most['value']:.4f}")
    figure.locator(f"[data-head={most['name']}]").click()
    expect(figure.locator(".lesson-answer")).to_contain_text("No head is silent.")


MOVES = {
    "warm-up": move_warm_up,
    "why-many": move_why_many,
    "projections": move_projections,
    "heads": move_heads,
    "scores": move_scores,
    "mixing": move_mixing,
    "output": move_output,
    "spare": move_spare,
}


def test_dragging_a_score_recomputes_the_row(
    chrome: Browser, site: str, steps: dict[str, LessonStep]
) -> None:
    figures = asdict(steps["scores"].figures)
    key = figures["dragged"]
    with page_at(chrome, at(site, "scores")) as page:
        figure = drawn(page, "scores")
        assert shown_weights(page) == pytest.approx(figures["weights"], abs=0.0006)
        slider = figure.locator(f"[data-score='{key}']")
        slider.press("PageUp")
        slider.press("ArrowLeft")
        raised = list(figures["scores"])
        raised[key] += 0.9 * figures["step"]
        wanted = browsers_weights(figures, raised)
        assert shown_weights(page) == pytest.approx(wanted, abs=0.0006)
        assert math.fsum(shown_weights(page)) == pytest.approx(1, abs=0.01)
        expect(figure.locator(".lesson-sum")).to_have_text("All weights together: 1.000")
        box = slider.bounding_box()
        assert box is not None
        page.mouse.move(box["x"] + 0.8 * box["width"], box["y"] + box["height"] / 2)
        page.mouse.down()
        page.mouse.move(box["x"] + 2, box["y"] + box["height"] / 2, steps=4)
        page.mouse.up()
        weights = shown_weights(page)
        assert weights[key] < 0.01 and math.fsum(weights) == pytest.approx(1, abs=0.01)
        leader = figures["place"]["tokens"][weights.index(max(weights))]
        expect(figure.locator(".lesson-said")).to_contain_text(leader)
        figure.get_by_role("button", name="Reset the scores").click()
        assert shown_weights(page) == pytest.approx(figures["weights"], abs=0.0006)


def test_answers_are_judged_and_progress_is_kept(
    chrome: Browser, site: str, steps: dict[str, LessonStep]
) -> None:
    question = steps["projections"].question
    assert question.kind == "choice"
    with page_at(chrome, at(site, "projections")) as page:
        drawn(page, "projections")
        page.get_by_role("button", name="Check").click()
        verdict = page.locator(".lesson-verdict")
        expect(verdict).to_have_text("Choose one of the answers first.")
        options = page.locator(".lesson-question input[type=radio]")
        options.nth((int(question.answer) + 1) % len(question.options)).check()
        page.get_by_role("button", name="Check").click()
        expect(verdict.locator("p.bad")).to_contain_text("Not quite")
        expect(page.locator("[data-step=projections]")).to_contain_text("tried")
        options.nth(int(question.answer)).check()
        page.get_by_role("button", name="Check").click()
        expect(verdict.locator("p.good")).to_contain_text("Right")
        expect(verdict).to_contain_text(question.why)
        expect(page.locator("[data-step=projections]")).to_contain_text("answered")
        page.click("[data-step=warm-up]")
        drawn(page, "warm-up")
        page.fill("#lesson-number", str(steps["warm-up"].question.answer))
        page.press("#lesson-number", "Enter")
        expect(verdict.locator("p.good")).to_contain_text("Right")
        expect(page.locator("#lesson-progress")).to_have_text("2 of 8 questions answered.")
        page.click("[data-step=projections]")
        drawn(page, "projections")
        expect(verdict.locator("p.good")).to_contain_text("Right")
        page.reload()
        drawn(page, "projections")
        expect(page.locator("#lesson-progress")).to_have_text("2 of 8 questions answered.")
        minutes = f"{sum(step.minutes for step in steps.values()):.0f}"
        summary = page.locator(".lesson-steps summary")
        expect(summary).to_have_text(f"A warm-up and 7 steps, {minutes} min")
        hint = page.locator("#lesson > .hint")
        expect(hint).to_contain_text(f"a warm-up and seven steps, {minutes} minutes")


def test_the_learner_can_choose_another_token_for_the_step_and_its_question(
    chrome: Browser, site: str
) -> None:
    with page_at(chrome, at(site, "projections")) as page:
        figure = drawn(page, "projections")
        figure.locator("[data-token='2']").click()
        chosen = page.locator("[data-token='2']")
        expect(chosen).to_have_attribute("aria-pressed", "true")
        expect(chosen).to_be_focused()
        page.click("[data-step=scores]")
        drawn(page, "scores")
        place = page.locator(".lesson-step .legend").first.inner_text()
        name = re.search(r"L(\d+)H(\d+)", place)
        assert name is not None and "cat" in place
        layer, head = int(name[1]), int(name[2])
        steps_there = lesson(minilm().scored, CAT, layer=layer, head=head, position=2)
        step = steps_there[STEPS.index("scores")]
        assert shown_weights(page) == pytest.approx(asdict(step.figures)["weights"], abs=0.0006)
        page.fill("#lesson-number", str(step.question.answer))
        page.press("#lesson-number", "Enter")
        expect(page.locator(".lesson-verdict p.good")).to_contain_text("Right")


def test_a_causal_model_shows_groups_blocked_tokens_and_what_comes_next(chrome: Browser) -> None:
    with (
        served(tiny_session("llama")) as address,
        page_at(chrome, at(address, "projections", WORDS)) as page,
    ):
        drawn(page, "projections")
        page.click("[data-token='4']")
        expect(page.locator("[data-token='4']")).to_have_attribute("aria-pressed", "true")
        page.click("[data-step=heads]")
        drawn(page, "heads")
        expect(page.locator(".lesson-groups li")).to_have_count(2)
        page.click("[data-step=scores]")
        drawn(page, "scores")
        expect(page.locator(".lesson-blocked")).to_have_count(4)
        assert len(shown_weights(page)) == 5
        page.click("[data-step=spare]")
        figure = drawn(page, "spare")
        figure.locator("button[data-head]").first.click()
        expect(figure.locator(".lesson-next tr")).to_have_count(6)
        expect(figure.locator(".lesson-next")).to_contain_text("without L")


@pytest.mark.parametrize("family", ["gemma2", "gpt_oss"])
def test_caps_and_sinks_take_part_in_the_softmax(chrome: Browser, family: str) -> None:
    session = tiny_session(family)
    figures = asdict(lesson(session.scored, WORDS)[STEPS.index("scores")].figures)
    assert (figures["softcap"], figures["sink"]) != (None, None)
    seen = [key for key, added in enumerate(figures["added"]) if added is not None]
    raised = list(figures["scores"])
    raised[seen[1]] += figures["step"]
    after = browsers_weights(figures, raised)
    with served(session) as address, page_at(chrome, at(address, "scores", WORDS)) as page:
        figure = drawn(page, "scores")
        wanted = [figures["weights"][key] for key in seen]
        assert shown_weights(page) == pytest.approx(wanted, abs=0.0006)
        figure.locator(f"[data-score='{seen[1]}']").press("PageUp")
        assert shown_weights(page) == pytest.approx([after[key] for key in seen], abs=0.0006)
        expect(figure.locator(".lesson-sum")).to_contain_text("1.000")


def test_the_first_step_fits_a_large_screen(chrome: Browser, site: str) -> None:
    size = {"width": 1920, "height": 1050}
    bottom = "document.querySelector('.lesson-moves').getBoundingClientRect().bottom"
    with page_at(chrome, at(site), size=size) as page:
        drawn(page, "warm-up")
        page.get_by_role("button", name="Next", exact=True).click()
        drawn(page, "why-many")
        until(page, f"{bottom} <= {size['height']}", seconds=5)


def test_the_panel_shows_errors(chrome: Browser, site: str) -> None:
    page = chrome.new_page()  # a rejected request is also an error in the console
    try:
        page.goto(at(site))
        drawn(page, "warm-up")
        page.fill("#lesson-number", "plenty")
        page.get_by_role("button", name="Check").click()
        expect(page.locator(".lesson-verdict")).to_contain_text("'plenty': write a number")
        with served(tiny_session("t5")) as address:
            page.goto(at(address, text=WORDS))
            expect(page.locator(".lesson-step .bad")).to_contain_text("several attention stacks")
    finally:
        page.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("scheme", "size", "text"),
    [("light", DESKTOP, CAT), ("dark", PHONE, MARKUP)],
    ids=["light desktop", "dark phone, hostile text"],
)
def test_every_step_is_accessible_fits_and_shows_text_as_text(
    chrome: Browser, site: str, scheme: str, size: dict[str, int], text: str
) -> None:
    with page_at(chrome, at(site, "warm-up", text), size=size, scheme=scheme) as page:
        page.on("dialog", lambda dialog: pytest.fail(f"ran: {dialog.message}"))
        for name in STEPS:
            page.evaluate("where => { location.hash = where; }", at("", name, text))
            drawn(page, name)
            if name == "warm-up":
                page.fill("#lesson-number", "7")
                page.press("#lesson-number", "Enter")
                page.wait_for_selector(".lesson-verdict .bad")
            if name == "scores" and text == MARKUP:
                expect(page.locator(".lesson-token", has_text="<")).to_be_visible()
            until(page, "document.getElementById('progress').hidden")
            assert faults(page) == [], name
            assert page.locator("main img").count() == 0
            wide = page.evaluate("document.documentElement.scrollWidth")
            assert wide <= size["width"], (name, wide)
