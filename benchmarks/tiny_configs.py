"""Tiny configs of any model type: the type's default config with small, consistent sizes.

In: a model type and sizes. Out: a config of the type's class. Sub-configs are shrunk in the same
way; the ratio of query heads to KV heads and every kind of layer are kept.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import count
from typing import Any

from tiny_facts import COMPOSITES, DERIVED, MISSING, RESNET, missing_fields
from tiny_rules import INDICES, TOKEN_ID, Sizes, tiny_number, total_layers
from transformers import CONFIG_MAPPING, PreTrainedConfig

Fields = dict[str, Any]
IGNORED = {"id2label", "label2id", "torch_dtype", "dtype", "transformers_version", "stage_names"}
OUTPUTS = ("out_indices", "backbone_out_indices")
STAGES = {"depths", "num_blocks", "stage_num_blocks", "blocks_per_stage", "num_blocks_per_stage"}
PAIRS = (
    ("num_attention_heads", "num_key_value_heads"),
    ("num_heads", "num_key_value_heads"),
    ("num_attention_heads", "num_kv_heads"),
    ("encoder_num_attention_heads", "encoder_num_key_value_heads"),
    ("decoder_num_attention_heads", "decoder_num_key_value_heads"),
    ("swa_num_attention_heads", "swa_num_key_value_heads"),
    ("cross_num_attention_heads", "cross_num_key_value_heads"),
)
"""Counts of query heads and of KV heads; equal ones stay equal."""


def tiny_config(model_type: str, sizes: Sizes) -> PreTrainedConfig:
    """A config of the type with tiny sizes."""
    kind = CONFIG_MAPPING[model_type]
    if model_type in COMPOSITES:
        parts = {
            name: tiny_config(part, sizes).to_dict() | extra
            for name, (part, extra) in COMPOSITES[model_type].items()
        }
        return kind(**parts)
    fields = kind(**MISSING.get(model_type, {})).to_dict()
    for name in DERIVED.get(model_type, ()):
        fields.pop(name)
    return kind.from_dict(Shrinker(fields, sizes).shrunk())


@dataclass
class Shrinker:
    """The fields of one config or sub-config, made tiny."""

    fields: Mapping[str, Any]
    sizes: Sizes

    def __post_init__(self) -> None:
        self.total = total_layers(self.fields)
        self.layers = kept_layers(self.fields, self.total, self.sizes)
        self.ids: Iterator[int] = count(self.sizes.vocabulary - 40)

    def shrunk(self) -> Fields:
        """The tiny fields."""
        fields = self.fields
        if fields.get("model_type") in ("timm_backbone", "timm_wrapper") and self.sizes.backbone:
            return RESNET | {"out_indices": list(fields.get("out_indices") or [])[-4:] or [4]}
        made = {
            str(name): self.value_of(str(name), value)
            for name, value in fields.items()
            if name not in IGNORED
        }
        if "width_coefficient" in fields:
            return narrow(fields, self.sizes)
        if made.get("out_indices"):
            made.pop("out_features", None)
        missing_fields(made, fields, self.sizes, len(self.layers))
        return keep_ratios(made, fields, self.sizes)

    def value_of(self, name: str, value: Any) -> Any:
        """One field of the tiny config."""
        if isinstance(value, Mapping):
            return self.mapping_of(name, value)
        if isinstance(value, list | tuple):
            return self.list_of(name, list(value))
        if isinstance(value, bool) or not isinstance(value, int):
            return value
        if TOKEN_ID.fullmatch(name) and value >= self.sizes.vocabulary - 40:
            return next(self.ids)
        if self.total and value == self.total and "layer" in name:
            return len(self.layers)
        if name in ("vision_feature_layer", "vision_feature_layers") and value > 0:
            return -1
        return tiny_number(name, value, self.sizes)

    @property
    def grid(self) -> int:
        """Patches along the side of an image."""
        return self.sizes.image // self.sizes.patch

    def mapping_of(self, name: str, value: Mapping[str, Any]) -> Fields:
        """A sub-config, rotary parameters, or settings by layer."""
        if name in ("rope_parameters", "rope_scaling"):
            return shrink_rope(value, self.sizes)
        if name == "projector_patch_to_query_dict":
            return {str(self.grid**2): 4}
        if name == "per_layer_config":
            places = {layer: place for place, layer in enumerate(self.layers)}
            return {
                str(places[int(layer)]): Shrinker(one, self.sizes).shrunk()
                for layer, one in value.items()
                if int(layer) in places
            }
        return Shrinker(value, self.sizes).shrunk()

    def list_of(self, name: str, values: list[Any]) -> list[Any]:
        """A list: one value per layer, layers by number, token ids, stages, or sizes."""
        if self.total and len(values) == self.total:
            return [self.value_of(name, values[layer]) for layer in self.layers]
        if name == "image_grid_pinpoints":
            return [[self.sizes.image, 2 * self.sizes.image]]
        if name == "backbone_feature_sizes":
            return [[side * self.grid // values[-1][0] for side in sides] for sides in values]
        if any(isinstance(value, bool) or not isinstance(value, int) for value in values):
            return [self.value_of(name, value) for value in values]
        if TOKEN_ID.fullmatch(name) and max(values, default=0) >= self.sizes.vocabulary - 40:
            return [next(self.ids) for _ in values]
        if self.total and INDICES.fullmatch(name):
            return self.places_of(name, values)
        if name.startswith("vision_feature"):
            return [-1 - place % 2 for place in range(len(values))]
        if name in STAGES:
            return [min(value, 2 - bool(place)) for place, value in enumerate(values)]
        return [tiny_number(name, value, self.sizes) for value in values]

    def places_of(self, name: str, values: list[int]) -> list[int]:
        """Numbers of layers in the tiny model, as many as are kept."""
        if min(values, default=0) < 0:
            return values
        if name in OUTPUTS:  # counted from 1, after the stem; as many as before
            first = len(self.layers) + 1 - len(values)
            return [max(first + place, 0) for place in range(len(values))]
        return [place for place, layer in enumerate(self.layers) if layer in values]


def narrow(fields: Mapping[str, Any], sizes: Sizes) -> Fields:
    """The fields of an EfficientNet, whose sizes follow from two coefficients."""
    width = 0.2
    hidden = round(width * fields["hidden_dim"] / fields["width_coefficient"])
    return dict(fields) | {
        "width_coefficient": width,
        "depth_coefficient": 0.25,
        "hidden_dim": hidden,
        "image_size": sizes.image,
    }


def kept_layers(fields: Mapping[str, Any], total: int | None, sizes: Sizes) -> list[int]:
    """Layers of the default config that the tiny one keeps: one of each kind, and at least two."""
    if not total:
        return []
    if total <= 4:
        return list(range(total))
    lists = {name: list(v) for name, v in fields.items() if isinstance(v, list | tuple)}
    by_layer = [values for values in lists.values() if len(values) == total]
    chosen = [
        values
        for name, values in lists.items()
        if name not in OUTPUTS and is_choice(name, values, total)
    ]
    kinds: dict[str, int] = {}
    for layer in range(total):
        kind = [values[layer] for values in by_layer] + [layer in values for values in chosen]
        kinds.setdefault(repr(kind), layer)
    kept = sorted(kinds.values())[:4]
    wanted = max([sizes.layers, *(len(lists.get(name, ())) for name in OUTPUTS)])
    for layer in range(total):
        if len(kept) >= min(wanted, total):
            break
        kept = sorted({*kept, layer})
    if fields.get("num_kv_shared_layers"):  # the layers that share follow one of each kind
        kept = sorted({*kept, *range(total - len(kinds), total)})
    return kept


def is_choice(name: str, values: list[Any], total: int) -> bool:
    """Whether a list consists of numbers of layers."""
    return (
        INDICES.fullmatch(name) is not None
        and 0 < len(values) < total
        and all(type(value) is int and 0 <= value < total for value in values)
    )


def shrink_rope(fields: Mapping[str, Any], sizes: Sizes) -> Fields:
    """Rotary parameters for the tiny heads: sections keep their ratios, roughly."""
    made: Fields = {}
    for name, value in fields.items():
        if isinstance(value, Mapping):
            made[name] = shrink_rope(value, sizes)
        elif name == "mrope_section" and value:
            made[name] = sections(value, sizes, fields.get("partial_rotary_factor", 1.0))
        else:
            made[name] = value
    if sizes.mrope and "rope_theta" in made and "mrope_section" not in made:
        made["mrope_section"] = sections([2, 3, 3], sizes, fields.get("partial_rotary_factor", 1.0))
    return made


def sections(parts: list[int], sizes: Sizes, share: float) -> list[int]:
    """Rotary sections of the tiny heads."""
    half = round(sizes.head_dim * share) // 2
    made = [max(1, half * part // sum(parts)) for part in parts]
    return [half - sum(made[1:]), *made[1:]]


def keep_ratios(made: Fields, fields: Mapping[str, Any], sizes: Sizes) -> Fields:
    """The tiny fields, where fields that agreed in the default config agree again."""
    for many, few in PAIRS:
        if isinstance(fields.get(few), int) and fields.get(few) == fields.get(many):
            made[few] = made[many]
    if "qk_rope_head_dim" in made and isinstance(made.get("qk_head_dim"), int):
        made["qk_head_dim"] = made["qk_rope_head_dim"] + made["qk_nope_head_dim"]
    if made.get("qk_rope_head_dim") and fields.get("head_dim") == fields.get("qk_rope_head_dim"):
        made["head_dim"] = made["qk_rope_head_dim"]
    if fields.get("num_kv_shared_layers"):
        made["num_kv_shared_layers"] = len(set(made.get("layer_types", [0])))
    for expand, heads, size in (
        ("mamba_expand", "mamba_n_heads", "mamba_d_head"),
        ("expand", "num_heads", "head_dim"),
        ("mamba_expand", "n_mamba_heads", "mamba_head_dim"),
        ("mamba_expand", "n_mamba_heads", "mamba_headdim"),
    ):
        if (
            isinstance(made.get(expand), int)
            and made.get(heads)
            and isinstance(made.get(size), int)
        ):
            made[size] = made[expand] * made["hidden_size"] // made[heads]
    if isinstance(fields.get("attention_hidden_size"), int) and "attention_head_dim" in fields:
        made["attention_hidden_size"] = 2 * made["hidden_size"]  # Zamba
        made["attention_head_dim"] = 2 * made["hidden_size"] // made["num_attention_heads"]
    if "vision_output_dim" in made and "intermediate_layers_indices" in made:
        read = 1 + len(made["intermediate_layers_indices"])  # Mllama reads these layers, too
        made["vision_output_dim"] = read * made["hidden_size"]
    if "embed_dim_per_stage" in fields:
        made["hidden_size"] = fields["hidden_size"]
    for stages in ("num_heads", "num_attention_heads"):
        if isinstance(made.get(stages), list) and isinstance(made.get("embed_dim"), int):
            made["embed_dim"] = 8 * made[stages][0]
    return made
