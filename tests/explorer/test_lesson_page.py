"""The lesson in a real browser: every step and figure, answers, keys, phones, and no errors."""

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import asdict
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from headwise.explorer.lesson.lesson import NAMES, Lesson
from headwise.explorer.lesson.prose import plain
from headwise.explorer.lesson.quiz import LessonStep
from headwise.explorer.model_facts import LESSON_PAIR

from .browser import DESKTOP, PHONE, faults, hash_has, page_at, served, until
from .lesson_cases import ANIMAL, CAT, STEPS, WIDE, browsers_weights
from .sessions import WORDS, minilm, tiny_session

MARKUP = "<img src=x onerror=alert(1)> turned 🙂 words"
SMALLEST = 14.95
SMALL_TEXT = """(least) => {
  const small = [];
  const walk = document.createTreeWalker(document.querySelector('.lesson'), NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const { parentElement: el, textContent } = walk.currentNode;
    if (!textContent.trim() || !el.getClientRects().length) continue;
    const matrix = el.closest('svg') && el.getScreenCTM?.();
    const size = parseFloat(getComputedStyle(el).fontSize) * (matrix ? matrix.a : 1);
    if (size < least) small.push(`${textContent} ${size}`);
  }
  return small;
}"""
"""Script: the lesson's texts that are smaller than `least` pixels."""


@pytest.fixture(scope="module")
def lesson() -> Lesson:
    session = minilm()
    return Lesson(session.scored, ANIMAL, other=WIDE, pair=LESSON_PAIR, table=session.scan_table)


def at(address: str, step: str = "", text: str = "", **values: str) -> str:
    more = "".join(f"&{key}={quote(value)}" for key, value in values.items())
    own = f"&text={quote(text)}" if text else ""
    return f"{address}#panel=lesson&step={step}{own}{more}"


def drawn(page: Page, step: str) -> Locator:
    page.wait_for_selector(f"body[data-lesson={step}]")
    return page.locator(".lesson-figure")


def solve(page: Page, step: str) -> None:
    """Ask for the solution."""
    page.get_by_role("button", name="Show the answer").click()
    page.wait_for_selector(f"body[data-answered={step}]")


def give(page: Page, step: LessonStep, answer: float) -> None:
    """Answer the question by clicking, or by typing a number."""
    if step.question.kind == "choice":
        page.locator(f"[data-option='{int(answer)}']").click()
    else:
        page.fill("#lesson-number", str(answer))
        page.get_by_role("button", name="Check").click()


def wrong_answers(step: LessonStep) -> list[float]:
    if step.question.kind == "number":
        return [step.question.answer + 7, step.question.answer - 7]
    options = range(len(step.question.options))
    return [float(option) for option in options if option != step.question.answer]


def shown_shares(page: Page) -> list[float]:
    cells = page.locator(".lesson-share[data-share]")
    return [float(share) for share in cells.evaluate_all("all => all.map(e => e.dataset.share)")]


@pytest.mark.parametrize("name", NAMES)
def test_a_step_answered_right_shows_what_follows_and_moves_on(
    chrome: Browser, site: str, lesson: Lesson, name: str
) -> None:
    step = lesson.step(name)
    with page_at(chrome, at(site, name)) as page:
        figure = drawn(page, name)
        expect(page.locator("#lesson-title")).to_have_text(step.title)
        shown = page.locator(".lesson-text > p:not(.lesson-where, .lesson-aside)")
        assert shown.all_text_contents() == [plain(each) for each in step.paragraphs]
        expect(page.locator(".lesson-asked")).to_have_text(plain(step.question.text))
        expect(page.locator(f"[data-step={name}][aria-current=step]")).to_have_count(1)
        expect(page.locator(".lesson-after p")).to_have_count(0)
        give(page, step, step.question.answer)
        expect(page.locator(".lesson-verdict")).to_contain_text("Right:")
        expect(page.locator(".lesson-verdict")).to_contain_text(plain(step.question.why))
        after = page.locator(".lesson-after > p:not(.lesson-aside)").all_text_contents()
        assert after[:-1] == [plain(each) for each in step.after]
        assert after[-1] == f"Try it. {plain(step.exercise)}"
        MOVES[name](page, figure, step)
        expect(page.locator(f"[data-step={name}].is-done").first).to_be_attached()
        if name != STEPS[-1]:
            page.locator(".lesson-forward").click()
            following = "spare" if name == "by-hand" else STEPS[STEPS.index(name) + 1]
            drawn(page, following)
            expect(page.locator("#lesson-title")).to_be_focused()
            hash_has(page, step=following)


@pytest.mark.parametrize("name", NAMES)
def test_a_step_answered_wrong_gets_a_hint_a_second_try_and_the_solution(
    chrome: Browser, site: str, lesson: Lesson, name: str
) -> None:
    step = lesson.step(name)
    first, second = wrong_answers(step)[:2]
    with page_at(chrome, at(site, name)) as page:
        drawn(page, name)
        give(page, step, first)
        verdict = page.locator(".lesson-verdict")
        expect(verdict).to_contain_text(plain(step.question.hint))
        expect(page.locator(".lesson-after p")).to_have_count(0)
        give(page, step, second)
        expect(verdict).to_contain_text("The right answer is:")
        expect(verdict).to_contain_text(plain(step.question.why))
        after = page.locator(".lesson-after > p:not(.lesson-aside)")
        expect(after).to_have_count(len(step.after) + 1)
        if step.question.kind == "choice":
            right = page.locator(f"[data-option='{int(step.question.answer)}']")
            expect(right).to_have_class(re.compile("is-right"))


def move_why_many(page: Page, figure: Locator, step: LessonStep) -> None:
    values = asdict(step.figures)
    pair = values["pair"]
    expect(figure.locator(".lesson-caption")).to_contain_text("L1H3reads both sentences")
    assert figure.locator('.hw-button[data-side="1"]').count() == len(pair["words"])
    figure.get_by_role("button", name="3 heads").click()
    expect(figure.locator(".lesson-average")).to_contain_text("Their average")
    bars = figure.locator(".lesson-average-bar b").all_text_contents()
    assert len(bars) == len(values["place"]["words"])
    assert f"{values['average']['largest']:.0%}" in bars
    figure.get_by_role("button", name="Swap").click()
    expect(figure.locator(".lesson-caption")).to_contain_text("animal \N{MINUS SIGN}40")
    figure.get_by_role("button", name="One head").click()
    expect(figure.locator('.hw-button[data-side="1"]')).to_have_count(0)


def move_vectors(page: Page, figure: Locator, step: LessonStep) -> None:
    values = asdict(step.figures)
    expect(figure.locator(".lesson-terms .is-sum")).to_contain_text("21.69")
    figure.locator(".lesson-tile.is-key").nth(8).click()
    score = f"{values['matches'][8]['score']:.2f}".replace("-", "\N{MINUS SIGN}")
    expect(figure.locator(".lesson-terms .is-sum")).to_contain_text(score)
    expect(figure.locator(".lesson-product > p")).to_contain_text("street")


def move_scores(page: Page, figure: Locator, step: LessonStep) -> None:
    values = asdict(step.figures)
    moved = list(values["scores"])
    moved[values["dragged"]] += values["change"] / values["scale"]
    assert shown_shares(page) == pytest.approx(browsers_weights(values, moved), abs=0.0001)
    figure.get_by_role("button", name="Reset").click()
    assert shown_shares(page) == pytest.approx(values["weights"], abs=0.0001)
    figure.get_by_role("button", name="+1 to all").click()
    assert shown_shares(page) == pytest.approx(values["weights"], abs=0.0001)
    expect(figure.locator(".lesson-remark")).to_contain_text("score set by hand")
    expect(figure.locator("[data-score]")).to_have_count(len(values["scores"]))


def move_mixing(page: Page, figure: Locator, step: LessonStep) -> None:
    part = asdict(step.figures)["parts"][0]
    figure.get_by_role("button", name="Tip to tail").click()
    expect(figure.locator(".lesson-arrows .is-sum")).to_have_count(1)
    figure.get_by_role("button", name="Whole values").click()
    expect(figure.locator(".lesson-arrows .is-sum")).to_have_count(0)
    figure.locator(".lesson-piece").nth(part["piece"]).hover()
    expect(figure.locator(".lesson-remark")).to_contain_text(f"= {part['length']:.3f}")


def move_heads(page: Page, figure: Locator, step: LessonStep) -> None:
    values = asdict(step.figures)
    slices = figure.locator(".lesson-slice")
    expect(slices).to_have_count(12)
    expect(figure.locator(".lesson-slice[aria-pressed=true]")).to_have_count(len(values["shown"]))
    slices.nth(11).click()
    expect(slices.nth(11)).to_have_attribute("aria-pressed", "true")
    expect(figure.locator(".lesson-shapes")).to_contain_text(
        "12 \N{MULTIPLICATION SIGN} 16 \N{MULTIPLICATION SIGN} 32"
    )


def move_output(page: Page, figure: Locator, step: LessonStep) -> None:
    owner = asdict(step.figures)["heads"][0]
    expect(figure.locator(".lesson-remark")).to_contain_text("has a part in 384 of 384 numbers")
    figure.locator("[data-head=L3H0]").click()
    expect(figure.locator(".lesson-remark")).to_contain_text(f"adds {owner['share']:.0%}")
    expect(page.locator(".lesson-aside [data-step=by-hand]")).to_be_visible()
    figure.get_by_role("button", name="Before Wo").click()
    expect(figure.locator(".lesson-remark")).to_contain_text("L3H0 fills numbers 1 to 32")


def move_spare(page: Page, figure: Locator, step: LessonStep) -> None:
    values = asdict(step.figures)
    said = figure.locator(".lesson-remark")
    count = values["together"][values["limit"]]["count"]
    expect(said).to_contain_text(f"{count} heads silent.")
    most = values["heads"][values["order"][-1]]
    figure.locator(f"[data-head={most['head']['name']}]").click()
    expect(said).to_contain_text(f"{most['head']['name']} is silent. ")
    expect(said).to_contain_text(f"{most['value']:.2f}")
    slider = figure.get_by_role("slider")
    slider.press("ArrowRight")
    slider.press("Home")
    expect(said).to_contain_text("All 72 heads are on.")
    slider.press("ArrowRight")
    first = values["together"][0]
    expect(said).to_contain_text(f"{first['count']} heads silent.")
    expect(said).to_contain_text(f"random heads: {min(first['random']):.2f} to")
    expect(figure.locator(".lesson-square.is-off")).to_have_count(first["count"])


def move_by_hand(page: Page, figure: Locator, step: LessonStep) -> None:
    expect(figure.locator("table")).to_have_count(9)
    expect(figure).to_contain_text("In head 1, sleeps has the sharp row")
    figure.get_by_role("button", name="Head 0").click()
    expect(figure).to_contain_text("In head 0, Cat has the sharp row")


MOVES: dict[str, Callable[[Page, Locator, LessonStep], None]] = {
    "why-many": move_why_many,
    "vectors": move_vectors,
    "scores": move_scores,
    "mixing": move_mixing,
    "heads": move_heads,
    "output": move_output,
    "spare": move_spare,
    "by-hand": move_by_hand,
}


@pytest.fixture
def scores(chrome: Browser, site: str) -> Iterator[tuple[Page, Locator]]:
    """Step 3 without motion, and its figure."""
    with page_at(chrome, at(site, "scores"), reduced_motion="reduce") as page:
        yield page, drawn(page, "scores")


def test_dragging_a_score_recomputes_the_row(scores: tuple[Page, Locator], lesson: Lesson) -> None:
    values = asdict(lesson.step("scores").figures)
    key, step = values["leader"], 1 / values["scale"]
    page, figure = scores
    bar = figure.locator(f"[data-score='{key}']")
    expect(bar).to_have_attribute("aria-disabled", "true")
    solve(page, "scores")
    bar.press("PageDown")
    bar.press("ArrowUp")
    moved = list(values["scores"])
    moved[key] -= 1.9 * step  # 1 of them by the question, whose solution is shown
    assert shown_shares(page) == pytest.approx(browsers_weights(values, moved), abs=0.0001)
    assert math.fsum(shown_shares(page)) == pytest.approx(1, abs=0.001)
    box = bar.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 40)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] - 2, steps=4)
    page.mouse.up()
    assert shown_shares(page)[key] < 0.05
    figure.get_by_role("button", name="Reset").click()
    assert shown_shares(page) == pytest.approx(values["weights"], abs=0.0001)
    warmth = figure.get_by_label("Temperature")
    warmth.press("End")
    cool = browsers_weights({**values, "scale": values["scale"] / 4})
    assert shown_shares(page) == pytest.approx(cool, abs=0.0001)


def test_the_query_moves_along_the_keys(scores: tuple[Page, Locator], lesson: Lesson) -> None:
    values = asdict(lesson.step("scores").figures)
    _, figure = scores
    pill = figure.get_by_role("slider", name="Query of it")
    expect(figure.locator(".lesson-remark")).to_contain_text("animal: 21.7 ÷ √32 = 3.8")
    pill.press("ArrowRight")
    dot = f"{values['scores'][values['leader'] + 1]:.1f}".replace("-", "\N{MINUS SIGN}")
    expect(figure.locator(".lesson-remark")).to_contain_text(f"didn: {dot} ÷")


def test_with_reduced_motion_everything_is_there_at_once(scores: tuple[Page, Locator]) -> None:
    page, figure = scores
    assert figure.locator(".before-share").count() == 0
    assert all(figure.locator(".lesson-score b").all_text_contents())
    page.evaluate("location.hash = '#panel=lesson&step=mixing'")
    drawn(page, "mixing")
    solve(page, "mixing")
    expect(figure.locator(".lesson-arrows .is-sum")).to_have_count(1)


def test_with_motion_the_query_travels_and_the_shares_come_last(chrome: Browser, site: str) -> None:
    with page_at(chrome, at(site, "scores")) as page:
        figure = drawn(page, "scores")
        page.wait_for_selector(".before-share")
        assert not all(figure.locator(".lesson-score b").all_text_contents())
        until(page, "!document.querySelector('.before-share')", seconds=20)
        assert all(figure.locator(".lesson-score b").all_text_contents())


def test_names_in_the_text_light_up_what_they_name(chrome: Browser, site: str) -> None:
    with page_at(chrome, at(site, "vectors"), reduced_motion="reduce") as page:
        figure = drawn(page, "vectors")
        name = page.locator(".lesson-text .lesson-name", has_text="animal").first
        name.hover()
        expect(figure.locator(".in-word.is-lit")).to_have_text("animal")
        page.locator("#lesson-title").hover()
        expect(figure.locator(".is-lit")).to_have_count(0)
        page.locator(".lesson-text .lesson-name", has_text="key").focus()
        expect(figure.locator(".is-lit.is-key")).to_have_count(1)
        page.evaluate("location.hash = '#panel=lesson&step=why-many'")
        drawn(page, "why-many")
        page.locator(".lesson-name", has_text="Another sentence").click()
        expect(figure.locator(".hw-words")).to_contain_text("Simon")


def test_answers_are_remembered_in_the_session(chrome: Browser, site: str, lesson: Lesson) -> None:
    step = lesson.step("heads")
    with page_at(chrome, at(site, "heads")) as page:
        drawn(page, "heads")
        give(page, step, step.question.answer)
        page.wait_for_selector("body[data-answered=heads]")
        page.click("[data-step=output]")
        drawn(page, "output")
        page.go_back()
        drawn(page, "heads")
        expect(page.locator(".lesson-verdict")).to_contain_text("Right:")
        page.reload()
        drawn(page, "heads")
        expect(page.locator("[data-step=heads]").first).to_have_class(re.compile("is-done"))


def test_the_learner_can_write_a_sentence_and_follow_a_word(chrome: Browser, site: str) -> None:
    with page_at(chrome, at(site, "vectors"), reduced_motion="reduce") as page:
        figure = drawn(page, "vectors")
        page.get_by_role("button", name="Change sentence").click()
        field = page.get_by_label("Your sentence")
        expect(field).to_have_value(ANIMAL)
        field.fill("   ")
        page.get_by_role("button", name="Read", exact=True).click()
        expect(page.locator(".lesson-own [role=alert]")).to_have_text("Write a few words.")
        field.fill("The agent merged the pull request after review")
        field.press("Enter")
        expect(page.locator(".lesson-where")).to_contain_text("Where does review look?")
        hash_has(page, text="The agent merged the pull request after review")
        figure.locator(".lesson-piece", has_text="merged").click()
        expect(page.locator(".lesson-where")).to_contain_text("Where does merged look?")
        expect(figure.locator(".lesson-piece.is-here")).to_have_text("merged")
        page.go_back()
        expect(page.locator(".lesson-where")).to_contain_text("Where does review look?")


def test_a_teachers_link_opens_a_step_with_a_sentence_and_a_swap(
    chrome: Browser, site: str
) -> None:
    warm = "The cat sat on the mat because it was warm"
    with page_at(chrome, at(site, "why-many", warm, swap=warm.replace("warm", "old"))) as page:
        figure = drawn(page, "why-many")
        expect(page.locator(".lesson-asked")).to_contain_text("old instead of warm")
        solve(page, "why-many")
        assert figure.locator('.hw-button[data-side="1"]', has_text="old").count() == 1
        page.click("[data-step=spare]")
        drawn(page, "spare")
        hash_has(page, text=warm, step="spare")


def test_an_unknown_step_or_word_opens_the_usual_one(chrome: Browser, site: str) -> None:
    page = chrome.new_page()  # a rejected request is also an error in the console
    try:
        page.goto(at(site, "warm-up"))
        drawn(page, "why-many")
        page.goto(at(site, "vectors", CAT, follow="L3H1-40"))
        drawn(page, "vectors")
        expect(page.locator(".lesson-where")).to_contain_text("What does it mean?")
    finally:
        page.close()


def test_a_causal_model_shows_groups_hidden_pieces_and_what_comes_next(chrome: Browser) -> None:
    with (
        served(tiny_session("llama")) as address,
        page_at(
            chrome, at(address, "heads", WORDS, follow="L0H1-4"), reduced_motion="reduce"
        ) as page,
    ):
        figure = drawn(page, "heads")
        solve(page, "heads")
        expect(figure.locator(".lesson-groups span")).to_have_count(2)
        page.click("[data-step=scores]")
        drawn(page, "scores")
        expect(figure.locator(".lesson-score.is-hidden")).to_have_count(4)
        page.click("[data-step=spare]")
        drawn(page, "spare")
        expect(figure.locator(".lesson-next-row")).to_have_count(5)
        solve(page, "spare")
        slider = figure.get_by_role("slider")
        slider.press("End")
        expect(figure.locator(".lesson-next-bar.is-after")).to_have_count(5)
        expect(figure.locator(".lesson-remark")).to_contain_text("The next word")


@pytest.mark.parametrize("family", ["gemma2", "gpt_oss"])
def test_caps_and_sinks_take_part_in_the_softmax(chrome: Browser, family: str) -> None:
    session = tiny_session(family)
    values = asdict(Lesson(session.scored, WORDS).step("scores").figures)
    assert (values["softcap"], values["sink"]) != (None, None)
    seen = [key for key, added in enumerate(values["added"]) if added is not None]
    raised = list(values["scores"])
    raised[seen[1]] += 1 / values["scale"]
    after = browsers_weights(values, raised)
    with (
        served(session) as address,
        page_at(chrome, at(address, "scores", WORDS), reduced_motion="reduce") as page,
    ):
        figure = drawn(page, "scores")
        assert shown_shares(page) == pytest.approx(values["weights"], abs=0.0001)
        solve(page, "scores")
        if figure.get_by_role("button", name="Reset").is_enabled():
            figure.get_by_role("button", name="Reset").click()
        figure.locator(f"[data-score='{seen[1]}']").press("PageUp")
        assert shown_shares(page) == pytest.approx(after, abs=0.0001)


def test_the_panel_shows_errors(chrome: Browser, site: str) -> None:
    page = chrome.new_page()  # a rejected request is also an error in the console
    try:
        page.goto(at(site, "vectors"))
        drawn(page, "vectors")
        page.get_by_role("button", name="Check").click()
        expect(page.locator(".lesson-verdict")).to_have_text("Write a number first.")
        page.fill("#lesson-number", "plenty")
        page.get_by_role("button", name="Check").click()
        expect(page.locator(".lesson-verdict")).to_contain_text("'plenty': write a number")
        with served(tiny_session("t5")) as address:
            page.goto(at(address, text=WORDS))
            expect(page.locator(".lesson-text [role=alert]")).to_contain_text(
                "several attention stacks"
            )
    finally:
        page.close()


def test_a_step_can_be_walked_with_keys_alone(chrome: Browser, site: str, lesson: Lesson) -> None:
    step = lesson.step("scores")
    with page_at(chrome, at(site, "scores"), reduced_motion="reduce") as page:
        drawn(page, "scores")
        page.locator("[data-step=why-many]").first.focus()

        def press_until(selector: str) -> None:
            for _ in range(80):
                page.keyboard.press("Tab")
                if page.evaluate("where => document.activeElement.matches(where)", selector):
                    return
            raise AssertionError(f"{selector} is not reached")

        press_until(".lesson-name")
        expect(page.locator(".is-lit").first).to_be_attached()
        press_until(".lesson-query")
        page.keyboard.press("ArrowLeft")
        press_until(f"[data-option='{int(step.question.answer)}']")
        page.keyboard.press("Enter")
        page.wait_for_selector("body[data-answered=scores]")
        press_until(".lesson-forward")
        page.keyboard.press("Enter")
        drawn(page, "mixing")
        expect(page.locator("#lesson-title")).to_be_focused()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("scheme", "size", "text"),
    [
        ("light", DESKTOP, ""),
        ("dark", {"width": 1024, "height": 768}, CAT),
        ("dark", PHONE, MARKUP),
        ("light", {"width": 1920, "height": 1080}, ""),
    ],
    ids=["light desktop", "dark 1024", "dark phone, hostile text", "projector"],
)
def test_every_step_is_accessible_fits_and_has_no_small_text(
    chrome: Browser, site: str, scheme: str, size: dict[str, int], text: str
) -> None:
    address = at(site, "why-many", text)
    with page_at(chrome, address, size=size, scheme=scheme, reduced_motion="reduce") as page:
        page.on("dialog", lambda dialog: pytest.fail(f"ran: {dialog.message}"))
        for name in NAMES:
            page.evaluate("where => { location.hash = where; }", at("", name, text))
            drawn(page, name)
            assert page.evaluate(SMALL_TEXT, SMALLEST) == [], f"{name}, before"
            solve(page, name)
            page.wait_for_timeout(300)
            assert faults(page) == [], name
            assert page.evaluate(SMALL_TEXT, SMALLEST) == [], name
            assert page.locator("main img").count() == 0
            assert page.evaluate("document.documentElement.scrollWidth") <= size["width"], name
