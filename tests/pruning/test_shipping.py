"""Cut models of every family come back, bit for bit, in a process that cannot import headwise."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from ..watching.helpers import allow_weights
from ..watching.tiny_configs import FAMILIES
from .shipping import ship

pytestmark = allow_weights

PARTS = {
    "encoder": ("encoder",),
    "decoder": ("decoder",),
    "other": ("encoder-decoder", "speech", "vision", "text and vision"),
}
PLAIN = {"nomic_bert", "llama", "mistral", "mixtral", "qwen2", "qwen3", "gemma2"}
PLAIN |= {"phi3", "granite", "gpt_oss", "vit", "dinov2"}
"""Families of which an even cut needs no code.

Not Gemma 3 here: 4 heads would be left, and configs want them to divide its hidden size, 35.
"""
OF_EVERY_KIND = ("bert", "deberta_v2", "gpt2", "falcon", "llama", "gpt_oss", "t5", "whisper", "vit")
"""Families that every cut is shipped of here; `python -m tests.pruning.shipping` ships all."""
LOADED_TO_BE_WATCHED = {"falcon": 1e-13}
"""How far a model may be that headwise loads with other kernels than transformers would."""


def families_of(part: str) -> list[str]:
    return [name for name, family in FAMILIES.items() if family.kind in PARTS[part]]


def test_no_family_is_left_out() -> None:
    assert sum(len(families_of(part)) for part in PARTS) == len(FAMILIES)


@pytest.mark.parametrize("part", PARTS)
def test_what_was_cut_comes_back_without_headwise_and_with_it(part: str, tmp_path: Path) -> None:
    assert_shipped(families_of(part), ["mixed"], tmp_path)


@pytest.mark.parametrize("plan", ["emptied", "even"])
def test_other_cuts_come_back_too(plan: str, tmp_path: Path) -> None:
    assert_shipped(OF_EVERY_KIND, [plan], tmp_path)


def assert_shipped(families: Sequence[str], plans: Sequence[str], folder: Path) -> None:
    found = ship(families, plans, folder)
    assert len(found) == len(families) * len(plans)
    for name, shipped in found.items():
        family, plan = name.split()
        assert shipped.faults == (), name
        assert shipped.trusted == 0, name
        assert shipped.loaded <= LOADED_TO_BE_WATCHED.get(family, 0), name
        assert shipped.is_plain == (plan == "even" and family in PLAIN), name
