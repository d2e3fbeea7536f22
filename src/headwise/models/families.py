"""Families: a table of the attention modules that need facts which experiments do not find.

`watching/` looks up whether a module returns its weights; `pruning/surgery/` looks up biases that
layers share, or why heads cannot be cut. Everything else is found by `watching/discovery.py`.
"""

from dataclasses import dataclass
from functools import partial

from torch import nn

from headwise.errors import OptionError


@dataclass(frozen=True)
class Family:
    """Facts about some classes of attention modules that experiments do not find."""

    classes: tuple[str, ...]
    output: str = ""
    """Path from the module to its output projection; `..` is the parent module. Empty: searched."""
    returns_weights: bool = False
    """Whether the module returns its weights instead of using transformers' interface."""
    refusal: str = ""
    """Reason why the heads cannot be cut; "" if they can."""


NUM_HEADS = ("num_heads", "num_attention_heads", "n_heads", "n_head", "num_attn_heads")
NUM_KV_HEADS = ("num_key_value_heads", "num_kv_heads")
NUM_GROUPS = ("num_key_value_groups",)
WIDTHS = ("all_head_size", "inner_dim")
"""Attributes in which modules store their numbers of heads and their total width."""

_returning = partial(Family, returns_weights=True)

FAMILIES: tuple[Family, ...] = (
    _returning(("XGLMAttention", "GPTNeoSelfAttention", "GPTJAttention"), "out_proj"),
    _returning(("DisentangledSelfAttention",), "../output/dense"),
    _returning(("MPNetSelfAttention",), "o"),
    _returning(("FalconAttention", "BloomAttention"), "dense"),
    _returning(("MptAttention",), "out_proj"),
    _returning(
        ("CodeGenAttention",),
        "out_proj",
        refusal="its projection is in four blocks, and its forward relies on all four",
    ),
)

CROSS = ("encoder_attn", "EncDecAttention", "crossattention", "cross_attn", "cross_attention")
"""Names of modules that attend from a decoder to an encoder's output."""
STACKS = {
    "text_model": "text",
    "language_model": "text",
    "vision_model": "vision",
    "vision_tower": "vision",
    "visual": "vision",
    "audio_model": "audio",
    "audio_tower": "audio",
    "encoder": "encoder",
    "decoder": "decoder",
}
"""Stack of everything inside a module of that name; the outermost such module decides."""
OUTPUT_PROJECTIONS = (
    *("o_proj", "out_proj", "c_proj", "Wo", "out_lin", "o", "dense", "proj", "projection"),
    *("post_proj", "linear_out", "../output/dense"),
)
"""Paths to try, in order, to find the output projection of a module that is not in the table."""


def add_family(row: Family) -> None:
    """Add a row for attention modules that headwise does not know, until this process ends.

    Raises OptionError if the row has no class name, or one that is already known.
    """
    global FAMILIES
    if not isinstance(row, Family):
        raise OptionError(f"row is a {type(row).__name__}: pass a headwise.Family", option="row")
    names = row.classes
    is_names = isinstance(names, tuple) and all(isinstance(name, str) and name for name in names)
    if not names or not is_names:
        raise OptionError(
            f"classes is {names!r}: it must be a tuple of class names, such as ('MyAttention',)",
            option="classes",
        )
    known = {name for family in FAMILIES for name in family.classes}
    if repeated := sorted(known.intersection(names)):
        raise OptionError(
            f"classes has {', '.join(repeated)}, which headwise already knows: leave it out, or "
            "rename your class",
            option="classes",
        )
    FAMILIES = (row, *FAMILIES)


def find_family(module: nn.Module) -> Family | None:
    """The first row for the module's class; None if it needs none."""
    class_name = type(module).__name__
    return next((row for row in FAMILIES if class_name in row.classes), None)
