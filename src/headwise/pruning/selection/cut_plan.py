"""CutPlan: which heads go, why, and at what predicted cost; the waist between choice and surgery.

In: heads, and what is known of them and of the model they were chosen in. Out: text that people
edit, JSON that loses nothing, and what a model of given counts keeps. It knows no model and no
torch: a model is its `counts`, the heads and KV heads of every layer by its name.
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
"""What a JSON file calls itself."""


@dataclass(frozen=True, repr=False)
class CutPlan:
    """The heads to cut, sorted, each once, with the reason and the expected cost of each.

    >>> str(CutPlan.parse("L2H3 L0H1"))
    'L0H1 L2H3'
    """

    heads: tuple[HeadId, ...]
    model: str = ""
    """Name of the model that the heads were chosen in."""
    counts: HeadCounts = field(default_factory=dict, hash=False)
    """Of that model; empty where it is not known."""
    method: str = ""
    reasons: Mapping[HeadId, str] = field(default_factory=dict, hash=False)
    """Why a head goes, in a few words."""
    costs: Mapping[HeadId, float] = field(default_factory=dict, hash=False)
    """How much larger the loss is predicted to be for cutting a head."""
    about: dict[str, Any] = field(default_factory=dict, hash=False)
    """How it was made, as JSON can hold it: text, seed, versions."""

    def __post_init__(self) -> None:
        """Sort, copy and check."""
        held = {
            "heads": tuple(sorted(set(self.heads))),
            "counts": {name: _checked(name, pair) for name, pair in self.counts.items()},
            "reasons": dict(sorted(self.reasons.items())),
            "costs": {head: float(cost) for head, cost in sorted(self.costs.items())},
            "about": _plain(self.about),
        }
        for name, value in held.items():
            object.__setattr__(self, name, value)
        for head in self.heads:
            if re.search(r"[\s,#]", head.stack):
                raise OptionError(f"{str(head)!r} has a stack with a space, ',' or '#' in its name")
        for head in [*self.reasons, *self.costs]:
            if head not in self.heads:
                raise OptionError(f"{head} has a reason or a cost, but is not among the heads cut")
        for head, cost in self.costs.items():
            if not math.isfinite(cost):
                raise OptionError(f"the cost of {head} must be finite, not {cost}: leave it out")
        if self.counts:
            self.check(self.counts)

    def __str__(self) -> str:
        """The heads on one line, as `parse` reads them."""
        return " ".join(map(str, self.heads))

    def __repr__(self) -> str:
        """One line: how many heads, of which model, and which."""
        of = f" of {self.model}" if self.model else ""
        names = f": {self}" if len(self) <= FULL_ROWS else ""
        return f"CutPlan({format_count(len(self), 'head')}{of}{names})"

    def __len__(self) -> int:
        """Number of heads that go."""
        return len(self.heads)

    def __iter__(self) -> Iterator[HeadId]:
        """The heads that go, so that a plan can be silenced as it is."""
        return iter(self.heads)

    def __or__(self, other: "CutPlan") -> "CutPlan":
        """The heads of both; where both know something of a head or a model, what this one knows.

        Two plans that both know their model's counts must agree on them.
        """
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
        """The same plan, in which these heads stay; another plan's heads too."""
        staying = set(parse_heads(heads))
        return replace(
            self,
            heads=tuple(head for head in self.heads if head not in staying),
            reasons={head: why for head, why in self.reasons.items() if head not in staying},
            costs={head: cost for head, cost in self.costs.items() if head not in staying},
        )

    def _repr_html_(self) -> str:
        """The plan for a notebook: a row a head, the first ones of many."""
        rows = [(str(head), *self._known(head)) for head in self.heads[:FULL_ROWS]]
        if len(self) > FULL_ROWS:
            rows.append((f"and {len(self) - FULL_ROWS} more", "", ""))
        table = Table("", ("head", "cost", "reason"), tuple(rows))
        return notebook_html(tag("p", self._title()), table.to_html())

    @classmethod
    def parse(cls, text: str) -> "CutPlan":
        """The plan of the heads that a text names; what follows a `#` on a line is not read."""
        return cls(parse_heads(re.sub(r"#[^\n]*", "", text)))

    def text(self) -> str:
        """One line a head, with its cost and reason as a comment; `parse` reads the heads back."""
        lines = [f"# {self._title()}"]
        for head in self.heads:
            comment = ": ".join(filter(None, self._known(head)))
            lines.append(f"{head}  # {comment}" if comment else str(head))
        return "\n".join(lines) + "\n"

    def to_json(self) -> str:
        """The whole plan as JSON."""
        heads = []
        for head in self.heads:
            known = {"reason": self.reasons.get(head), "cost": self.costs.get(head)}
            given = {name: value for name, value in known.items() if value is not None}
            heads.append({"head": str(head), **given})
        held = {"format": FORMAT, "model": self.model, "method": self.method}
        counts = {name: list(pair) for name, pair in self.counts.items()}
        return json.dumps({**held, "counts": counts, "heads": heads, "about": self.about}, indent=1)

    @classmethod
    def from_json(cls, text: str) -> "CutPlan":
        """The plan that `to_json` gave as this text."""
        return _decoded(text, "the text", _from_json)

    def save(self, path: str | Path, *, force: bool = False) -> None:
        """Keep the plan in a file: as text where the name ends in .txt, else as JSON."""
        path = Path(path)
        if path.exists() and not force:
            raise OutputError(f"{path} would be overwritten: give force=True to do so")
        if not path.parent.is_dir():
            raise OptionError(f"{path} cannot be written: there is no folder {path.parent}")
        content = self.text() if path.suffix.lower() == ".txt" else self.to_json()
        write_aside(path, content.encode(errors="replace"))

    @classmethod
    def read(cls, path: str | Path) -> "CutPlan":
        """The plan that a file holds, JSON or text as its content says."""
        text = read_text(path).removeprefix("\ufeff")  # some editors begin a file with it
        decode = _from_json if text.lstrip().startswith("{") else cls.parse
        return _decoded(text, str(path), decode)

    def check(self, counts: HeadCounts) -> None:
        """Raise where the plan does not fit a model of these counts."""
        _check_shape(self, counts, "this model")
        num_heads = {layer: pair[0] for layer, pair in counts.items()}
        for head in self.heads:
            check_head(head, num_heads)

    def kept(self, counts: HeadCounts) -> dict[str, tuple[int, ...]]:
        """The heads that each layer of a model of these counts keeps, by their old numbers."""
        self.check(counts)
        gone = {(head.layer_name, head.head) for head in self.heads}
        return {
            layer: tuple(head for head in range(num_heads) if (layer, head) not in gone)
            for layer, (num_heads, _) in counts.items()
        }

    def _known(self, head: HeadId) -> list[str]:
        """A head's cost and reason as one reads them; empty where they are not known."""
        cost = f"cost {self.costs[head]:.4g}" if head in self.costs else ""
        return [cost, " ".join(self.reasons.get(head, "").split())]

    def _title(self) -> str:
        """How many heads go, of which model, and by which method."""
        total = sum(num_heads for num_heads, _ in self.counts.values())
        heads = format_count(total or len(self), "head")
        cut = f"cut {len(self)} of {heads}" if total else f"cut {heads}"
        method = ", as named" if self.method == "named" else self.method and f" by {self.method}"
        model = self.model and f" of {self.model}"
        return " ".join(f"{cut}{model}{method}".split())


def _checked(layer: str, pair: tuple[int, int]) -> tuple[int, int]:
    """Numbers of heads and KV heads of a layer as any model has them."""
    if not re.fullmatch(r"(?:.+\.)?L(?:0|[1-9][0-9]*)", layer, re.DOTALL):
        raise OptionError(f"{layer!r} is no layer: write L3, or encoder.L3")
    num_heads, num_kv_heads = pair
    if num_kv_heads < 1 or num_heads < 1 or num_heads % num_kv_heads:
        works = "the first must be a multiple of the second, and neither 0"
        raise OptionError(f"{layer} cannot have {num_heads} heads over {num_kv_heads}: {works}")
    return num_heads, num_kv_heads


def _plain(about: dict[str, Any]) -> dict[str, Any]:
    try:
        held: dict[str, Any] = json.loads(json.dumps(about, allow_nan=False))
    except (TypeError, ValueError) as error:
        raise OptionError(f"about must be what JSON can hold: {error}") from error
    return held


def _check_shape(plan: CutPlan, counts: HeadCounts, model: str) -> None:
    """Raise where the plan was made for other counts than these."""
    if not plan.counts:
        return
    for layer in [*plan.counts, *counts]:
        mine, theirs = plan.counts.get(layer), counts.get(layer)
        if mine != theirs:
            raise OptionError(
                f"the plan was made for {plan.model or 'a model'} with {_heads_in(layer, mine)}, "
                f"and {model} has {_heads_in(layer, theirs)}: give a model of the same shape"
            )


def _heads_in(layer: str, pair: tuple[int, int] | None) -> str:
    if pair is None:
        return f"no {layer}"
    return f"{format_count(pair[0], 'head')} over {format_count(pair[1], 'KV head')} in {layer}"


def _decoded(text: str, name: str, decode: Callable[[str], CutPlan]) -> CutPlan:
    """The plan in a text, whose name is told where it holds none."""
    try:
        return decode(text)
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        raise OptionError(f"{name} cannot be read as a cut plan: {error}") from error


def _from_json(text: str) -> CutPlan:
    held = json.loads(text)
    if held.get("format") != FORMAT:
        raise OptionError(f"its format must be {FORMAT!r}, not {held.get('format')!r}")
    rows = [(HeadId.parse(str(row["head"])), row) for row in held["heads"]]
    return CutPlan(
        tuple(head for head, _ in rows),
        model=str(held["model"]),
        counts={layer: (int(one), int(other)) for layer, (one, other) in held["counts"].items()},
        method=str(held["method"]),
        reasons={head: str(row["reason"]) for head, row in rows if "reason" in row},
        costs={head: float(row["cost"]) for head, row in rows if "cost" in row},
        about=dict(held["about"]),
    )
