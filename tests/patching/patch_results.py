"""A result of patching made by hand: five heads in two layers, L1H0 the strongest."""

import math
from collections.abc import Sequence
from typing import Any

import pandas as pd

from headwise.head_table import HeadTable
from headwise.patching.result import PatchResult

EFFECTS = [0.0, 0.025, -0.24, 0.5, 0.005]
ABOUT: dict[str, Any] = {
    "model": "small",
    "metric": "logit-difference",
    "unit": "logits",
    "pairs": 7,
    "clean": 3.0,
    "corrupted": -1.0,
    "difference": 4.0,
    "part": "output",
    "positions": None,
    "direction": "denoise",
    "examples": [
        {"clean": "The key is", "corrupted": "The keys is", "answer": " here", "instead": " there"}
    ],
}


def estimate(name: str, values: Sequence[float]) -> dict[str, list[float]]:
    """The columns of an estimate whose intervals reach 0.1 to either side."""
    return {
        name: list(values),
        f"{name}_se": [0.05] * len(values),
        f"{name}_low": [value - 0.1 for value in values],
        f"{name}_high": [value + 0.1 for value in values],
    }


def patch_result(**about: Any) -> PatchResult:
    """Both directions, an estimate, direct effects and a control of two heads."""
    places = pd.DataFrame({"stack": "", "layer": [0, 0, 0, 1, 1], "head": [0, 1, 2, 0, 1]})
    columns = {
        **estimate("patch_denoise", EFFECTS),
        **estimate("patch_noise", EFFECTS),
        **estimate("attribution", EFFECTS),
        "control": [math.nan, math.nan, math.nan, 0.031, 0.0],
        **estimate("direct_logit", [4 * effect for effect in EFFECTS]),
    }
    control = {"heads": 2, "pairs": 7, "largest": 0.031}
    df = pd.DataFrame({**places.to_dict("list"), **columns})
    return PatchResult(HeadTable(df, {**ABOUT, "control": control, **about}))
