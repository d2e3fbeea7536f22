"""CutPlan sorts and checks heads, keeps everything in JSON, and fits models of its shape."""

import json
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from headwise.errors import OptionError, OutputError
from headwise.heads import HeadId, parse_heads
from headwise.pruning.selection.cut_plan import CutPlan

COUNTS = {"L0": (6, 3), "L1": (6, 3), "L2": (6, 3)}
STACKS = {"encoder.L0": (5, 5), "encoder.L1": (5, 5), "cross.L0": (3, 3)}
WHOLE = CutPlan(
    parse_heads("L2H3 L0H1 L2H3"),
    model="minilm",
    counts=COUNTS,
    method="ablation",
    reasons={HeadId(0, 1): "looks at [SEP] # <b>only</b>\nand rests"},
    costs={HeadId(0, 1): 0.000125, HeadId(2, 3): -3.0},
    about={"seed": 7, "text": ["a", None]},
)
OLD = {"format": "headwise cut plan 1", "model": "", "method": "", "counts": {}, "about": {}}

stacks = st.sampled_from(["", "encoder", "cross", "a.L1H1", "é"])
head_ids = st.builds(HeadId, st.integers(0, 12), st.integers(0, 12), stacks)
makings = st.lists(head_ids, unique=True, max_size=6).flatmap(
    lambda heads: st.fixed_dictionaries(
        {
            "heads": st.just(tuple(heads)),
            "model": st.text(),
            "counts": st.sampled_from([{}, {head.layer_name: (26, 13) for head in heads}]),
            "method": st.text(),
            "reasons": of_some(heads, st.text()),
            "costs": of_some(heads, st.floats(allow_nan=False, allow_infinity=False)),
            "about": st.dictionaries(st.text(max_size=5), st.integers() | st.text() | st.none()),
        }
    )
)


def of_some(heads: list[HeadId], values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.dictionaries(st.sampled_from(heads), values) if heads else st.just({})


@given(makings)
def test_json_and_files_keep_everything(making: dict[str, Any]) -> None:
    plan = CutPlan(**making)
    assert CutPlan.from_json(plan.to_json()) == plan
    with tempfile.TemporaryDirectory() as folder:
        plan.save(Path(folder) / "plan.json")
        assert CutPlan.read(Path(folder) / "plan.json") == plan


@given(makings)
def test_both_texts_name_the_heads_and_nothing_else(making: dict[str, Any]) -> None:
    plan = CutPlan(**making)
    assert CutPlan.parse(str(plan)) == CutPlan.parse(plan.text()) == CutPlan(plan.heads)
    assert len(plan.text().splitlines()) == len(plan) + 1


@given(st.lists(head_ids, max_size=6), st.randoms())
def test_a_plan_ignores_order_and_repetition(heads: list[HeadId], random: Any) -> None:
    plan = CutPlan(tuple(heads))
    random.shuffle(heads)
    assert plan == CutPlan((*heads, *heads)) and hash(plan) == hash(CutPlan(tuple(heads)))
    assert list(plan) == sorted(set(heads)) and len(plan) == len(set(heads))


@given(st.lists(head_ids, max_size=6), st.lists(head_ids, max_size=6))
def test_plans_combine_like_sets(one: list[HeadId], other: list[HeadId]) -> None:
    first, second = CutPlan(tuple(one)), CutPlan(tuple(other))
    assert set(first | second) == {*one, *other}
    assert set(first - second) == set(one) - set(other) and first - second == first - other
    assert (first | second) - second == first - second


def test_read_accepts_files_written_by_hand(tmp_path: Path) -> None:
    file = tmp_path / "plan.txt"
    file.write_text("\ufeff# a comment L9H9\n  L2H3, L0H1 # why\n\nencoder.L0H2#L1H1\n", "utf-8")
    assert str(CutPlan.read(file)) == "L0H1 L2H3 encoder.L0H2"


def test_a_text_file_has_costs_and_reasons(tmp_path: Path) -> None:
    file = tmp_path / "plan.txt"
    WHOLE.save(file)
    assert file.read_text("utf-8") == (
        "# cut 2 of 18 heads of minilm by ablation\n"
        "L0H1  # cost 0.000125: looks at [SEP] # <b>only</b> and rests\n"
        "L2H3  # cost -3\n"
    )
    assert CutPlan.read(file) == CutPlan.parse("L0H1 L2H3")


def test_save_overwrites_only_with_force(tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    WHOLE.save(file)
    with pytest.raises(OutputError, match=r"plan\.json .*force=True"):
        CutPlan(()).save(file)
    assert CutPlan.read(file) == WHOLE
    CutPlan(()).save(str(file), force=True)
    assert CutPlan.read(str(file)) == CutPlan(())
    assert [path.name for path in tmp_path.iterdir()] == ["plan.json"]


def test_missing_folders_and_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"p\.json .*none"):
        WHOLE.save(tmp_path / "none/p.json")
    with pytest.raises(OptionError, match=r"p\.json .*No such file"):
        CutPlan.read(tmp_path / "p.json")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("L0H1 L2", r"plan .*'L2'"),
        ("{L0H1", r"plan .*property name"),
        ('{"heads": []}', r"None, not 'headwise cut plan 1'"),
        (json.dumps(OLD), r"plan .*'heads'"),
        (json.dumps({**OLD, "heads": [3]}), r"plan .*'int'"),
        (json.dumps({**OLD, "heads": [{"head": "L0H1", "cost": "x"}]}), r"convert string to float"),
        (json.dumps({**OLD, "heads": [], "counts": {"L0": [1]}}), r"not enough values to unpack"),
        ("\xff\xfe\0", r"plan .*UTF-8.* byte 0"),
    ],
)
def test_read_rejects_files_without_a_plan(tmp_path: Path, content: str, message: str) -> None:
    file = tmp_path / "plan"
    file.write_bytes(content.encode("latin1"))
    with pytest.raises(OptionError, match=message):
        CutPlan.read(file)


@pytest.mark.parametrize("text", ["[]", "", "L0H1", "null"])
def test_from_json_rejects_other_texts(text: str) -> None:
    with pytest.raises(OptionError, match="cut plan"):
        CutPlan.from_json(text)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"heads": (HeadId(0, 0, "a b"),)}, r"'a b\.L0H0'"),
        ({"reasons": {HeadId(1, 4): "old"}}, r"L1H4 .*reason or a cost"),
        ({"costs": {HeadId(1, 4): 1.0}}, r"L1H4 .*reason or a cost"),
        ({"costs": {HeadId(2, 3): float("inf")}}, r"L2H3 .*inf"),
        ({"about": {"seed": {1, 2}}}, r"about .*JSON: .*set"),
        ({"counts": {"L07": (6, 6)}}, r"'L07'"),
        (
            {"counts": {"L0": (6, 4)}},
            r"L0 .*6 heads and 4 KV heads",
        ),
        ({"counts": {"L0": (0, 1)}}, r"L0 .*0 heads and 1 KV heads"),
        ({"counts": {"L0": (6, 6)}}, r"L2H3.* L0$"),
    ],
)
def test_contradictory_plans_raise(change: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        replace(WHOLE, **change)


def test_a_plan_fits_another_checkpoint_of_its_shape() -> None:
    WHOLE.check(dict(reversed(COUNTS.items())))
    CutPlan.parse("encoder.L1H4").check(STACKS)


@pytest.mark.parametrize(
    ("counts", "message"),
    [
        (
            COUNTS | {"L1": (8, 4)},
            r"minilm with 6 heads over 3 KV heads in L1.* 8 heads over 4 KV heads in L1",
        ),
        (COUNTS | {"L3": (1, 1)}, r"with no L3.* 1 head over 1 KV head in L3"),
        ({"L0": (6, 3)}, r"with 6 heads over 3 KV heads in L1.* no L1"),
    ],
)
def test_check_rejects_models_of_another_shape(counts: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        WHOLE.check(counts)
    with pytest.raises(OptionError, match="minilm"):
        WHOLE | CutPlan((), counts=counts)


@pytest.mark.parametrize(
    ("head", "counts", "message"),
    [
        ("L0H6", COUNTS, r"L0H6 .*L0 .*0\.\.5"),
        ("L3H0", COUNTS, r"L3H0 .*L0, L1, L2"),
        ("L0H0", STACKS, r"encoder\.L0, .*cross\.L0"),
        ("L0H0", {}, r"L0H0 .*no layers"),
    ],
)
def test_a_head_that_a_model_lacks_is_named(head: str, counts: Any, message: str) -> None:
    for ask in (CutPlan.check, CutPlan.kept):
        with pytest.raises(OptionError, match=message):
            ask(CutPlan.parse(head), counts)


def test_every_head_is_either_cut_or_kept() -> None:
    plan = CutPlan.parse("encoder.L1H0 encoder.L1H4 cross.L0H1")
    assert plan.kept(STACKS) == {
        "encoder.L0": (0, 1, 2, 3, 4),
        "encoder.L1": (1, 2, 3),
        "cross.L0": (0, 2),
    }


def test_union_keeps_facts_of_both_and_prefers_the_first() -> None:
    other = CutPlan(
        parse_heads("L0H1 L1H1"),
        method="hand",
        reasons={HeadId(0, 1): "tried"},
        costs={HeadId(0, 1): 9.0, HeadId(1, 1): 2.0},
        about={"seed": 8, "by": "me"},
    )
    both = WHOLE | other
    assert (both.model, both.counts, both.method) == ("minilm", COUNTS, "ablation + hand")
    assert both.costs == {HeadId(0, 1): 0.000125, HeadId(1, 1): 2.0, HeadId(2, 3): -3.0}
    assert both.about == {**WHOLE.about, "by": "me"} and both.reasons == WHOLE.reasons
    assert both - "L1H1" == replace(WHOLE, method="ablation + hand", about=both.about)
    assert (other | WHOLE).costs[HeadId(0, 1)] == 9.0


def test_notebook_table_is_escaped_and_short() -> None:
    shown = WHOLE._repr_html_()
    assert "&lt;b&gt;only&lt;/b&gt;" in shown and "<b>" not in shown and "minilm" in shown
    many = CutPlan(tuple(HeadId(0, head) for head in range(100)))
    assert "and 80 more" in many._repr_html_() and "L0H20" not in many._repr_html_()
    assert repr(WHOLE) == "CutPlan(2 heads of minilm: L0H1 L2H3)"
    assert repr(many) == "CutPlan(100 heads)" and repr(CutPlan.parse("L0H1")) == (
        "CutPlan(1 head: L0H1)"
    )


def test_a_plan_copies_its_arguments() -> None:
    reasons, about = {HeadId(0, 1): "rests"}, {"texts": ["a"]}
    plan = CutPlan(parse_heads("L0H1"), reasons=reasons, about=about)
    reasons.clear()
    about["texts"].append("b")
    assert plan.reasons == {HeadId(0, 1): "rests"} and plan.about == {"texts": ["a"]}


def test_a_plan_loads_no_torch() -> None:
    code = "import sys, headwise.pruning.selection.cut_plan; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
