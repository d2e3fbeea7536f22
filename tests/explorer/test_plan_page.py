"""The planner in a browser: it opens on the loaded model, and its sizes are in the address."""

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from headwise.explorer.loaded_plan import loaded_plan
from headwise.planning.plans import head_choices, plan
from headwise.planning.shapes import make_shape

from .browser import DESKTOP, PHONE, faults, page_at, served, settle
from .sessions import minilm, tiny_session
from .stage_modules import run

TIMES = " \N{MULTIPLICATION SIGN} "
TABLET = {"width": 1024, "height": 900}


@pytest.fixture(scope="module")
def tiny() -> Iterator[str]:
    with served(tiny_session("llama")) as address:
        yield address


def planned(page: Page, parameters: int) -> None:
    page.wait_for_selector(f"body[data-planned='{parameters}']")


def address(page: Page) -> str:
    page.wait_for_timeout(350)
    return str(page.evaluate("decodeURIComponent(location.hash)"))


def test_the_planner_opens_on_the_loaded_model(chrome: Browser, site: str) -> None:
    facts = loaded_plan(minilm().scored).plan
    assert facts is not None and facts.parameters_attention == 3_548_160
    with page_at(chrome, f"{site}#panel=plan") as page:
        planned(page, facts.parameters_attention)
        expect(page.locator("#plan .panel-headline")).to_have_text(
            "all-MiniLM-L6-v2: 12 heads per layer, 32 numbers each"
        )
        expect(page.locator("#plan table").first).to_contain_text(
            f"Attention weights of one layer (12{TIMES}512{TIMES}512)"
        )
        expect(page.locator("#plan .panel-sub")).to_contain_text(
            "3.55M parameters of attention in 6 layers"
        )
        expect(page.locator("#plan .panel-sub")).to_contain_text("no KV cache")
        for name, value in {"d_model": 384, "heads": 12, "kv_heads": 12, "layers": 6}.items():
            expect(page.locator(f"#plan-{name} + output")).to_have_text(str(value))
        expect(page.locator(".pl-plot text.pl-own")).to_have_text("all-MiniLM-L6-v2")
        expect(page.locator(".pl-plot")).to_contain_text("gpt2")
        assert page.locator("button:text-is('Back to the loaded model')").is_disabled()
        assert "plan=" not in address(page).replace("panel=plan", "")


def test_sliders_change_the_costs_and_the_address(chrome: Browser, site: str) -> None:
    shape = make_shape(d_model=384, num_heads=12, num_layers=8)
    costs = plan(shape=shape, length=512)
    with page_at(chrome, f"{site}#panel=plan") as page:
        planned(page, 3_548_160)
        page.focus("#plan-layers")
        page.keyboard.press("ArrowRight")
        planned(page, costs.model_parameters)
        expect(page.locator("#plan .panel-kicker")).to_contain_text("Beside all-MiniLM-L6-v2")
        table = page.locator("#plan table").first
        expect(table).to_contain_text(f"{costs.layer_parameters:,}")
        expect(table.locator("thead th")).to_have_text(["your sizes", "all-MiniLM-L6-v2"])
        expect(page.locator(".pl-plot circle")).to_have_count(
            page.locator(".pl-plot circle").count()
        )
        assert "plan=layers.8" in address(page)
        page.reload()
        planned(page, costs.model_parameters)
        expect(page.locator("#plan-layers + output")).to_have_text("8")
        page.go_back()
        planned(page, 3_548_160)
        page.go_forward()
        planned(page, costs.model_parameters)
        page.click("button:text-is('Back to the loaded model')")
        planned(page, 3_548_160)
        assert "layers" not in address(page)


def test_many_heads_cost_memory_and_not_parameters(chrome: Browser, site: str) -> None:
    choices = head_choices(384, length=512)
    with page_at(chrome, f"{site}#panel=plan") as page:
        planned(page, 3_548_160)
        rows = page.locator("#plan table").nth(1).locator("tbody tr")
        expect(rows).to_have_count(sum(choice.num_heads <= 256 for choice in choices))
        cells = [row.split("\t") for row in rows.all_inner_texts()]
        for choice, row in zip(choices, cells, strict=False):
            assert [row[0], row[1]] == [str(choice.num_heads), str(choice.d_key)]
            assert row[5] == ", ".join(choice.remarks)
        assert {(row[2], row[3]) for row in cells} == {("590k", "787k")}
        assert len({row[4] for row in cells}) == len(cells)
        expect(rows.locator("xpath=self::*[@aria-current]")).to_contain_text("12")


def test_the_title_of_attention_weights_holds_for_all_columns() -> None:
    plans = [{"num_heads": heads, "length": length} for heads, length in ((12, 512), (6, 512))]
    body = """
        const [one, other] = data;
        return [[[one], 1], [[one, other], 1], [[one], 3]].map((each) => weightsTitle(...each));
    """
    said = run({"../plan/plan_tables": "weightsTitle"}, body, plans)
    assert [title.split("(")[1] for title in said] == [
        f"12{TIMES}512{TIMES}512)",
        f"heads{TIMES}tokens{TIMES}tokens)",
        f"sequences{TIMES}heads{TIMES}tokens{TIMES}tokens)",
    ]


def test_kv_heads_follow_the_heads(chrome: Browser, tiny: str) -> None:
    with page_at(
        chrome, f"{tiny}#panel=plan&plan=heads.12,kv_heads.12,d_key.0,d_model.768"
    ) as page:
        kv_heads = page.locator("#plan-kv_heads + output")
        expect(kv_heads).to_have_text("12")
        page.focus("#plan-heads")
        for heads in (16, 20, 24):
            page.keyboard.press("ArrowRight")
            expect(page.locator("#plan-heads + output")).to_have_text(str(heads))
            expect(kv_heads).to_have_text(str(heads))  # each head keeps its own
        page.focus("#plan-kv_heads")
        for _ in range(3):
            page.keyboard.press("ArrowLeft")
        few = int(kv_heads.inner_text())
        assert few < 24 and 24 % few == 0
        page.focus("#plan-heads")
        page.keyboard.press("ArrowRight")
        expect(page.locator("#plan-heads + output")).to_have_text("32")
        kept = int(kv_heads.inner_text())
        assert kept <= few and 32 % kept == 0


def test_uneven_heads_say_their_size(chrome: Browser, tiny: str) -> None:
    with page_at(
        chrome, f"{tiny}#panel=plan&plan=heads.20,kv_heads.20,d_model.768,d_key.0"
    ) as page:
        expect(page.locator("#plan .panel-sub")).to_contain_text(
            "20 heads do not share a width of 768 evenly: each has 38 numbers."
        )


def test_known_models_and_axes_are_chosen(chrome: Browser, site: str) -> None:
    gpt2 = plan("gpt2")
    with page_at(chrome, f"{site}#panel=plan") as page:
        planned(page, 3_548_160)
        page.get_by_label("Start from").select_option("gpt2")
        planned(page, gpt2.model_parameters - 12 * 4 * 768)  # without biases
        expect(page.locator("#plan .panel-sub")).to_contain_text(
            "The KV cache takes 36 MiB for 1,024 tokens"
        )
        expect(page.get_by_label("Start from")).to_have_value("gpt2")
        page.locator("[data-axis=up]").select_option("num_heads")
        expect(page.locator(".pl-plot")).to_contain_text("Heads per layer")
        assert "axes=parameters_attention,num_heads" in address(page)
        page.reload()
        expect(page.locator("[data-axis=up]")).to_have_value("num_heads")
        page.get_by_label("Causal").uncheck()
        expect(page.locator("#plan .panel-sub")).to_contain_text("no KV cache")
        page.locator("[data-axis=up]").select_option("cache_bytes")
        expect(page.locator(".pl-chart")).to_contain_text("so it is not in this chart")


def test_wrong_sizes_in_an_address_are_left_out(chrome: Browser, site: str) -> None:
    wrong = "heads.0,layers.x,d_model.99999999999,kv_heads.5,evil.3,batch"
    with page_at(chrome, f"{site}#panel=plan&plan={wrong}") as page:
        planned(page, 3_548_160)
        expect(page.locator("#plan-kv_heads + output")).to_have_text("12")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("size", "scheme"), [(DESKTOP, "light"), (TABLET, "dark"), (PHONE, "light"), (PHONE, "dark")]
)
def test_the_planner_is_accessible_and_fits(
    chrome: Browser, site: str, size: dict[str, int], scheme: str
) -> None:
    with page_at(chrome, f"{site}#panel=plan&plan=layers.8", size=size, scheme=scheme) as page:
        page.wait_for_selector("body[data-planned]")
        settle(page)
        assert faults(page) == []
        assert page.evaluate("document.documentElement.scrollWidth") <= size["width"]
        hues = page.evaluate(
            """[...document.querySelectorAll('#plan *')].flatMap((each) => {
              const style = getComputedStyle(each);
              return [style.color, style.backgroundColor, style.fill, style.accentColor];
            })"""
        )
        assert {colour for colour in hues if is_hue(colour)} == set()


def is_hue(colour: str) -> bool:
    """Whether a colour is far from grey; greys of the palette are a little blue."""
    parts = [int(part) for part in re.findall(r"\d+", colour)[:3]]
    return len(parts) == 3 and max(parts) - min(parts) > 40
