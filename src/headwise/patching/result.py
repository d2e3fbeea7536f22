"""PatchResult: which heads carry the difference between two prompts.

In: the metric of both runs and its changes, by head and pair. Out: a head table with shares and
bootstrap intervals, a table of paths, and files.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor

from headwise.drawing.effect_grid import effect_svg
from headwise.errors import OptionError, OutputError
from headwise.files import make_folder, read_text, write_aside
from headwise.formats import replace_nonfinite
from headwise.head_table import HeadTable
from headwise.patching.store import FILES

LOW, HIGH = 0.025, 0.975
"""Quantiles of the bootstrap samples that bound an interval."""
TITLES = {
    "patch_denoise": "share of the difference that each head restores",
    "patch_noise": "share of the difference that each head takes away",
    "attribution": "estimated share of the difference, by head",
    "attribution_steps": "estimated share of the difference, by head (integrated)",
    "attribution_drops": "estimated size of each head's effects (gradients dropped)",
    "direct_logit": "direct effect of each head on the logit difference",
    "control": "share that each head restores with outputs of other pairs",
}
"""Titles of pictures, by column."""
UNSIGNED = ("attribution_drops",)
"""Estimates of the sizes of effects, without their signs."""
PARTS_OF_ESTIMATE = ("", "_se", "_low", "_high")
"""Endings of the columns that each estimate has: value, standard error and 95% interval."""


@dataclass(frozen=True, eq=False)
class PatchResult:
    """Effects of patching each head, and of the paths to one head."""

    table: HeadTable
    paths: pd.DataFrame | None = None
    """One row per sender: its share of the difference through the receiver's `query`, `key` and
    `value`; None if no receiver was chosen."""

    def __repr__(self) -> str:
        about = self.table.about
        return f"PatchResult({about['model']!r}, {len(self.table)} heads, {about['pairs']} pairs)"

    def _repr_html_(self) -> str:
        return self.table._repr_html_()

    @property
    def ranked_by(self) -> str:
        """The column that ranks heads: the exact effect if it was measured."""
        names = ("patch_denoise", "patch_noise", "attribution_steps", "attribution")
        columns = (*names, "attribution_drops", "direct_logit")
        return next(name for name in columns if name in self.table.df)

    def strongest(self, count: int = 20) -> pd.DataFrame:
        """The heads with the largest effects, of either sign."""
        df = self.table.df.assign(name=list(map(str, self.table.heads)))
        return df.sort_values(self.ranked_by, key=abs, ascending=False, kind="stable").head(count)

    def svg(self, column: str | None = None) -> str:
        """A grid of all heads, coloured by their effects."""
        column = column or self.ranked_by
        grids = {stack: self.table.grid(column, stack).tolist() for stack in self.table.stacks}
        return effect_svg(grids, title=f"{self.table.about['model']}: {TITLES.get(column, column)}")

    def to_json(self) -> str:
        """All tables in one JSON document; numbers that are not finite become null."""
        paths = None if self.paths is None else self.paths.to_dict("records")
        heads = self.table.df.drop(columns="roles").to_dict("records")
        return json.dumps(
            {
                "about": self.table.about,
                "heads": replace_nonfinite(heads),
                "paths": replace_nonfinite(paths),
            }
        )

    def write(self, folder: str | Path, *, force: bool = False) -> None:
        """Write the tables, the picture and `patch.json` to `folder`."""
        folder = Path(folder)
        existing = [name for name in FILES if (folder / name).exists()]
        if existing and not force:
            raise OutputError(
                f"{folder} already has {existing[0]}: choose another folder, or pass force=True"
            )
        make_folder(folder)
        for name in ("heads.parquet", "heads.csv"):
            self.table.write(folder / name, force=True)
        if self.paths is not None:
            write_aside(folder / "paths.csv", self.paths.to_csv(index=False))
        write_aside(folder / "heads.svg", self.svg())
        write_aside(folder / "patch.json", self.to_json())

    @classmethod
    def read(cls, folder: str | Path) -> "PatchResult":
        """Read the result that was written to `folder`."""
        folder = Path(folder)
        if not (folder / "patch.json").is_file():
            raise OptionError(
                f"{folder} has no patch.json: pass a folder that headwise patch --out wrote"
            )
        try:
            about = json.loads(read_text(folder / "patch.json"))["about"]
        except (ValueError, TypeError, KeyError) as error:
            raise OptionError(
                f"{folder / 'patch.json'} is not a result of headwise patch: run it again with "
                "--force"
            ) from error
        paths = folder / "paths.csv"
        table = HeadTable.read(folder / "heads.parquet")
        return cls(HeadTable(table.df, about), pd.read_csv(paths) if paths.is_file() else None)


def bootstrap_shares(
    changes: Float[Tensor, "rows pairs"],
    differences: Float[Tensor, " pairs"] | None,
    *,
    resamples: int,
    seed: int,
) -> list[tuple[float, float, float, float]]:
    """Mean change of each row as a share of the mean difference, with its error and interval.

    Pairs are drawn with replacement. Without `differences`, the mean itself. One pair has no
    error, nor have pairs whose differences vary so much that their mean may be 0.
    """
    pairs = changes.shape[1]
    scale = torch.ones(pairs, dtype=torch.float64) if differences is None else differences
    means = changes.mean(1) / scale.mean()
    if pairs == 1 or not resamples:
        return [(value, *[float("nan")] * 3) for value in means.tolist()]
    random = torch.Generator().manual_seed(seed)
    drawn = torch.randint(0, pairs, (resamples, pairs), generator=random)
    counts = torch.zeros(resamples, pairs, dtype=torch.float64)
    counts.scatter_add_(1, drawn, torch.ones_like(drawn, dtype=torch.float64))
    totals = scale @ counts.T
    if not (totals.sign() == totals[0].sign()).all():
        return [(value, *[float("nan")] * 3) for value in means.tolist()]
    shares = (changes @ counts.T) / totals
    low, high = shares.quantile(torch.tensor([LOW, HIGH], dtype=torch.float64), dim=1)
    columns = (means, shares.std(1), low, high)
    return list(zip(*(column.tolist() for column in columns), strict=True))


def estimate_columns(
    name: str, rows: Sequence[tuple[float, float, float, float]]
) -> dict[str, list[float]]:
    """The four columns of an estimate."""
    parts = zip(*rows, strict=True)
    return {
        f"{name}{ending}": list(part) for ending, part in zip(PARTS_OF_ESTIMATE, parts, strict=True)
    }


def agreement(
    estimates: Mapping[str, Float[Tensor, " heads"]],
    exact: Float[Tensor, " heads"],
    count: int = 20,
) -> dict[str, dict[str, Any]]:
    """How far each estimate agrees with the exact effects: recall of the largest, and the errors.

    Estimates in `UNSIGNED` are compared with the sizes of the exact effects.
    """
    count = min(count, len(exact))
    largest = set(exact.abs().topk(count).indices.tolist())
    errors = {
        name: (values - (exact.abs() if name in UNSIGNED else exact)).abs()
        for name, values in estimates.items()
    }
    return {
        name: {
            "top": count,
            "recall": len(largest & set(values.abs().topk(count).indices.tolist())) / count,
            "mean_absolute_error": float(errors[name].mean()),
            "largest_error": float(errors[name].max()),
        }
        for name, values in estimates.items()
    }
