"""Cutting units leaves all groups of a layer the same size."""

from headwise.heads import HeadCounts, HeadId, parse_heads
from headwise.pruning.selection.methods import (
    membership,
    one_of_each_group,
    whole_groups,
)
from headwise.pruning.surgery.cut import cut

from ..tiny_models import model_of

COUNTS: HeadCounts = {"L0": (6, 2), "L1": (3, 3), "cross.L1": (2, 1)}
HEADS = (
    *(HeadId(0, head) for head in range(6)),
    *(HeadId(1, head) for head in range(3)),
    *(HeadId(1, head, "cross") for head in range(2)),
)


def test_the_heads_of_a_kv_head_are_one_unit() -> None:
    found = [" ".join(map(str, unit)) for unit in whole_groups(HEADS, COUNTS)]
    of_groups = ["L0H0 L0H1 L0H2", "L0H3 L0H4 L0H5"]
    assert found == [*of_groups, "L1H0", "L1H1", "L1H2", "cross.L1H0 cross.L1H1"]
    assert [unit[0].layer_name for unit in whole_groups(HEADS, COUNTS)] == ["L0"] * 2 + [
        "L1"
    ] * 3 + ["cross.L1"]


def test_units_of_one_head_per_group_start_with_the_least_important() -> None:
    scores = [5.0, 1.0, 3.0, 2.0, 6.0, 4.0, *[0.0, 0.0, 0.0], 8.0, 7.0]
    found = one_of_each_group(HEADS, COUNTS, scores)
    # L1 has KV heads that serve one head each, and none of them can go without its KV head
    assert [" ".join(map(str, unit)) for unit in found] == ["L0H1 L0H3", "L0H2 L0H5", "cross.L1H1"]
    assert one_of_each_group(HEADS[6:9], {"L1": (3, 3)}, [1.0, 2.0, 3.0]) == ()


def test_any_prefix_of_a_layers_units_can_be_cut() -> None:
    heads = [HeadId(0, head) for head in range(6)]
    units = one_of_each_group(heads, {"L0": (6, 2)}, [5.0, 1.0, 3.0, 2.0, 6.0, 4.0])
    for count in (1, 2):
        gone = [head for unit in units[:count] for head in unit]
        assert cut(model_of("llama"), gone).kept["L0"] == tuple(
            head.head for head in heads if head not in gone
        )
    for unit in whole_groups(heads, {"L0": (6, 2)}):
        assert len(cut(model_of("llama"), unit).kept["L0"]) == 3


def test_membership_marks_a_units_heads() -> None:
    units = [parse_heads("L1H2"), parse_heads("L0H0 L0H2")]
    found = membership(units, HEADS)
    assert found.nonzero().tolist() == [[0, 8], [1, 0], [1, 2]]
    assert found.sum() == 3
