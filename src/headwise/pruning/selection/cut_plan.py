"""CutPlan: which heads to cut, why, and at what predicted cost.

In: heads, with the reasons and costs of cutting them. Out: text that people can edit, JSON that
contains everything, and the heads that a model keeps. Does not import torch: all it knows of a
model are its `counts`, the numbers of heads and KV heads in every layer.
"""

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from headwise.drawing.html import notebook_html, tag
from headwise.drawing.table import FULL_ROWS, Table
from headwise.errors import OptionError, OutputError
from headwise.files import read_text, write_aside
from headwise.formats import format_count
from headwise.heads import HeadCounts, HeadId, check_head, parse_heads

FORMAT = "headwise cut plan 1"


@dataclass(frozen=True, repr=False)
class CutPlan:
    """The heads to cut, sorted and without duplicates, each with its reason and expected cost.

    >>> str(CutPlan.parse("L2H3 L0H1"))
    'L0H1 L2H3'
    """

    heads: tuple[HeadId, ...]
    model: str = ""
    """Name of the model that the heads were chosen in."""
    counts: HeadCounts = field(default_factory=dict, hash=False)
    """Number of heads and KV heads in each layer of that model; empty if unknown."""
    method: str = ""
    reasons: Mapping[HeadId, str] = field(default_factory=dict, hash=False)
    """The reason for cutting each head, in a few words."""
    costs: Mapping[HeadId, float] = field(default_factory=dict, hash=False)
    """Predicted increase in loss from cutting each head."""
    about: dict[str, Any] = field(default_factory=dict, hash=False)
    """How the plan was made, as JSON values: text, seed, versions."""

    def __post_init__(self) -> None:
        for layer, (num_heads, num_kv_heads) in self.counts.items():
            if not re.fullmatch(r"(?:.+\.)?L(?:0|[1-9][0-9]*)", layer, re.DOTALL):
                raise OptionError(f"{layer!r} is not a layer: write L3 or encoder.L3")
            if num_kv_heads < 1 or num_heads < 1 or num_heads % num_kv_heads:
                raise OptionError(
                    f"{layer} cannot have {num_heads} heads and {num_kv_heads} KV heads: both "
                    "must be positive, and the first a multiple of the second"
                )
        try:
            about = json.loads(json.dumps(self.about, allow_nan=False))
        except (TypeError, ValueError) as error:
            raise OptionError(f"about cannot be written as JSON: {error}") from error
        fields = {
            "heads": tuple(sorted(set(self.heads))),
            "counts": {layer: tuple(pair) for layer, pair in self.counts.items()},
            "reasons": dict(sorted(self.reasons.items())),
            "costs": {head: float(cost) for head, cost in sorted(self.costs.items())},
            "about": about,
        }
        for name, value in fields.items():
            object.__setattr__(self, name, value)
        for head in self.heads:
            if re.search(r"[\s,#]", head.stack):
                raise OptionError(
                    f"{str(head)!r} cannot be cut: its stack's name has a space, ',' or '#'"
                )
        for head in [*self.reasons, *self.costs]:
            if head not in self.heads:
                raise OptionError(
                    f"{head} has a reason or a cost, but is not one of the heads to cut"
                )
        for head, cost in self.costs.items():
            if not math.isfinite(cost):
                raise OptionError(f"the cost of {head} is {cost}: omit costs that are not finite")
        if self.counts:
            self.check(self.counts)

    def __str__(self) -> str:
        """The heads on one line, readable by `parse`."""
        return " ".join(map(str, self.heads))

    def __repr__(self) -> str:
        of = f" of {self.model}" if self.model else ""
        names = f": {self}" if len(self) <= FULL_ROWS else ""
        return f"CutPlan({format_count(len(self), 'head')}{of}{names})"

    def __len__(self) -> int:
        return len(self.heads)

    def __iter__(self) -> Iterator[HeadId]:
        """Iterate over the heads to cut, so that `silence` accepts a plan."""
        return iter(self.heads)

    def __or__(self, other: "CutPlan") -> "CutPlan":
        """The heads of both plans, whose counts must agree; this plan's other facts come first."""
        if self.counts and other.counts:
            _check_shape(self, other.counts, other.model or "the other plan's model")
        return CutPlan(
            self.heads + other.heads,
            model=self.model or other.model,
            counts=self.counts or other.counts,
            method=" + ".join(dict.fromkeys(filter(None, [self.method, other.method]))),
            reasons={**other.reasons, **self.reasons},
            costs={**other.costs, **self.costs},
            about={**other.about, **self.about},
        )

    def __sub__(self, heads: "str | Iterable[str | HeadId]") -> "CutPlan":
        """This plan without `heads`, which may be another plan."""
        excluded = set(parse_heads(heads))
        return replace(
            self,
            heads=tuple(head for head in self.heads if head not in excluded),
            reasons={head: why for head, why in self.reasons.items() if head not in excluded},
            costs={head: cost for head, cost in self.costs.items() if head not in excluded},
        )

    def _repr_html_(self) -> str:
        rows = [(str(head), *self._cost_and_reason(head)) for head in self.heads[:FULL_ROWS]]
        if len(self) > FULL_ROWS:
            rows.append((f"and {len(self) - FULL_ROWS} more", "", ""))
        table = Table("", ("head", "cost", "reason"), tuple(rows))
        return notebook_html(tag("p", self._title()), table.to_html())

    @classmethod
    def parse(cls, text: str) -> "CutPlan":
        """A plan with the heads in `text`; ignores comments, from `#` to the end of the line."""
        return cls(parse_heads(re.sub(r"#[^\n]*", "", text)))

    def text(self) -> str:
        """One line per head, with its cost and reason as a comment; `parse` reads the heads."""
        lines = [f"# {self._title()}"]
        for head in self.heads:
            comment = ": ".join(filter(None, self._cost_and_reason(head)))
            lines.append(f"{head}  # {comment}" if comment else str(head))
        return "\n".join(lines) + "\n"

    def to_json(self) -> str:
        """The whole plan as JSON."""
        rows = []
        for head in self.heads:
            facts = {"reason": self.reasons.get(head), "cost": self.costs.get(head)}
            known = {name: value for name, value in facts.items() if value is not None}
            rows.append({"head": str(head), **known})
        plan: dict[str, Any] = {"format": FORMAT, "model": self.model, "method": self.method}
        plan |= {"counts": self.counts, "heads": rows, "about": self.about}
        return json.dumps(plan, indent=1)

    @classmethod
    def from_json(cls, text: str) -> "CutPlan":
        """The plan in JSON from `to_json`."""
        return _decode(text, "the text", _from_json)

    def save(self, path: str | Path, *, force: bool = False) -> None:
        """Write the plan to a file: as text if its name ends in .txt, else as JSON."""
        path = Path(path)
        if path.exists() and not force:
            raise OutputError(
                f"{path} would be overwritten: choose another path, or use force=True"
            )
        if not path.parent.is_dir():
            raise OptionError(f"{path} cannot be written: there is no folder {path.parent}")
        content = self.text() if path.suffix.lower() == ".txt" else self.to_json()
        write_aside(path, content.encode(errors="replace"))

    @classmethod
    def read(cls, path: str | Path) -> "CutPlan":
        """The plan in a JSON or text file."""
        text = read_text(path).removeprefix("\ufeff")  # byte order mark, from some editors
        decode = _from_json if text.lstrip().startswith("{") else cls.parse
        return _decode(text, str(path), decode)

    def check(self, counts: HeadCounts) -> None:
        """Raise OptionError unless the plan fits a model with these counts."""
        _check_shape(self, counts, "this model")
        num_heads = {layer: pair[0] for layer, pair in counts.items()}
        for head in self.heads:
            check_head(head, num_heads)

    def kept(self, counts: HeadCounts) -> dict[str, tuple[int, ...]]:
        """Original numbers of the heads that each layer keeps, in a model with these counts."""
        self.check(counts)
        cut = {(head.layer_name, head.head) for head in self.heads}
        return {
            layer: tuple(head for head in range(num_heads) if (layer, head) not in cut)
            for layer, (num_heads, _) in counts.items()
        }

    def _cost_and_reason(self, head: HeadId) -> list[str]:
        cost = f"cost {self.costs[head]:.4g}" if head in self.costs else ""
        return [cost, " ".join(self.reasons.get(head, "").split())]

    def _title(self) -> str:
        total = sum(num_heads for num_heads, _ in self.counts.values())
        heads = format_count(total or len(self), "head")
        cut = f"cut {len(self)} of {heads}" if total else f"cut {heads}"
        method = ", as named" if self.method == "named" else self.method and f" by {self.method}"
        model = self.model and f" of {self.model}"
        return " ".join(f"{cut}{model}{method}".split())


def _check_shape(plan: CutPlan, counts: HeadCounts, model: str) -> None:
    for layer in [*plan.counts, *counts] if plan.counts else []:
        expected, actual = plan.counts.get(layer), counts.get(layer)
        if expected != actual:
            raise OptionError(
                f"the plan was made for {plan.model or 'a model'} with "
                f"{_heads_in(layer, expected)}, but {model} has {_heads_in(layer, actual)}: use a "
                "model of the same shape"
            )


def _heads_in(layer: str, pair: tuple[int, int] | None) -> str:
    if pair is None:
        return f"no {layer}"
    return f"{format_count(pair[0], 'head')} over {format_count(pair[1], 'KV head')} in {layer}"


def _decode(text: str, name: str, decode: Callable[[str], CutPlan]) -> CutPlan:
    """The plan that `decode` reads from `text`; the message of any error starts with `name`."""
    try:
        return decode(text)
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        raise OptionError(f"{name} cannot be read as a cut plan: {error}") from error


def _from_json(text: str) -> CutPlan:
    content = json.loads(text)
    if content.get("format") != FORMAT:
        raise OptionError(f"its format is {content.get('format')!r}, not {FORMAT!r}")
    rows = [(HeadId.parse(str(row["head"])), row) for row in content["heads"]]
    return CutPlan(
        tuple(head for head, _ in rows),
        model=str(content["model"]),
        counts={
            layer: (int(heads), int(kv_heads))
            for layer, (heads, kv_heads) in content["counts"].items()
        },
        method=str(content["method"]),
        reasons={head: str(row["reason"]) for head, row in rows if "reason" in row},
        costs={head: float(row["cost"]) for head, row in rows if "cost" in row},
        about=dict(content["about"]),
    )
