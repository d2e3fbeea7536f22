"""PatchSettings: what to patch, how, and with which controls. Checked when they are made."""

from dataclasses import asdict, dataclass
from typing import Any

from headwise.checks import whole_number
from headwise.errors import OptionError
from headwise.formats import join_words
from headwise.heads import HeadId, as_head
from headwise.patching.runs import DIRECTIONS, PARTS

LARGEST = 2**63 - 1
"""Largest seed of torch's generators."""


@dataclass(frozen=True, kw_only=True)
class PatchSettings:
    """Settings of `patch`."""

    directions: tuple[str, ...] = DIRECTIONS
    """`denoise` puts clean outputs into the corrupted run, `noise` corrupted ones into the clean
    run. Estimates and paths are for the first of them."""
    part: str = "output"
    """`output`; `pattern`, only where a head looks; or `value`, only what it carries."""
    positions: tuple[int, ...] | None = None
    """Positions of tokens at which outputs are replaced, from the end if negative; None for all."""
    exact: bool | int = True
    """Whether to patch each head in a pass of its own; a number for as many heads, those with the
    largest estimates by attribution."""
    attribution: bool = True
    """Whether to estimate the effects of all heads from one backward pass."""
    steps: int = 0
    """Number of runs between the two prompts over which gradients are averaged; 0 for none."""
    grad_drop: bool = False
    """Whether to estimate effects without the gradient through each block, too (AtP*)."""
    direct: bool | None = None
    """Whether to compute direct effects on the logits; None to do so if they are defined."""
    receiver: HeadId | str | None = None
    """Head to measure paths to; None for no paths."""
    control: int = 20
    """Number of heads, those with the largest effects, to patch from other pairs as a control."""
    resamples: int = 1000
    """Number of bootstrap samples of the pairs for intervals."""
    seed: int = 0

    def to_json(self) -> dict[str, Any]:
        """The settings as JSON values."""
        values = asdict(self) | {"receiver": self.receiver and str(self.receiver)}
        lists = {name: list(each) for name, each in values.items() if isinstance(each, tuple)}
        return values | lists

    def __post_init__(self) -> None:
        wrong = [name for name in self.directions if name not in DIRECTIONS]
        if wrong or not self.directions or len(set(self.directions)) < len(self.directions):
            raise OptionError(
                f"directions are {join_words(self.directions) or 'empty'}: choose from "
                f"{' and '.join(DIRECTIONS)}, each once",
                option="directions",
            )
        if self.part not in PARTS:
            raise OptionError(
                f"part is {self.part!r}: choose from {', '.join(PARTS)}", option="part"
            )
        for name in ("steps", "control", "resamples", "seed"):
            value = whole_number(name, getattr(self, name), least=0, most=LARGEST)
            object.__setattr__(self, name, value)
        if not isinstance(self.exact, bool):
            object.__setattr__(self, "exact", whole_number("exact", self.exact, least=1))
            if not self.attribution:
                raise OptionError(
                    f"exact is {self.exact}, but attribution, which chooses these heads, is off: "
                    "turn it on, or set exact to True",
                    option="exact",
                )
        if self.positions is not None and not self.positions:
            raise OptionError("positions is empty: name a position, or leave it out for all")
        if self.receiver is not None:
            object.__setattr__(self, "receiver", as_head(self.receiver))
        if not (self.exact or self.attribution or self.steps or self.grad_drop or self.direct):
            raise OptionError(
                "exact, attribution, steps, grad_drop and direct are all off: turn one on",
                option="exact",
            )
