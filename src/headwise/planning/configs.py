"""Configs: a shape from the config.json of a transformers model.

In: a directory, or the id of a model on a hub. Out: a shape. The file is read as it is, without
transformers; a config that does not say what is needed is refused, with what it lacks.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headwise.errors import ModelError, OptionError
from headwise.hub import hub_answers
from headwise.planning.shapes import Shape

NAMES = {
    "d_model": ("hidden_size", "n_embd", "d_model", "dim"),
    "num_heads": (
        "num_attention_heads",
        "n_head",
        "n_heads",
        "num_heads",
        "encoder_attention_heads",
    ),
    "num_layers": ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "encoder_layers"),
    "d_key": ("head_dim", "d_kv"),
    "num_kv_heads": ("num_key_value_heads", "num_kv_heads"),
    "context": ("max_position_embeddings", "n_positions", "n_ctx", "max_seq_len"),
}
"""What models call each size, in the order in which they are asked."""

LOOK_BOTH_WAYS = frozenset(
    "albert bert camembert clip clip_text_model clip_vision_model convbert data2vec-text deberta "
    "deberta-v2 deit dinov2 distilbert electra ernie eurobert modernbert mpnet nomic_bert roberta "
    "siglip siglip_vision_model squeezebert vit vit_mae xlm-roberta".split()
)
"""Types whose queries see keys on both sides."""

BIASED = frozenset(
    "albert bart bert bloom camembert clip clip_text_model clip_vision_model data2vec-text deberta "
    "deberta-v2 deit dinov2 distilbert electra ernie gpt2 gpt_bigcode gpt_neox gpt_oss mpnet opt "
    "phi roberta starcoder2 vit vit_mae xlm-roberta".split()
)
"""Types with a bias in all four projections, whatever else their config says."""
BIASED_IN = frozenset(["qwen2", "qwen2_moe"])
"""Types with a bias in Wq, Wk and Wv."""
NORMED = frozenset(["qwen3", "qwen3_moe", "gemma3", "gemma3_text", "olmo2"])
"""Types that normalise each head's queries and keys."""
WITH_SINKS = frozenset(["gpt_oss"])


def shape_from(place: str) -> Shape:
    """The shape of the model in a directory or on a hub."""
    return shape_of_config(read_config(place), place)


def read_config(place: str) -> dict[str, Any]:
    """The config.json of a directory or of a hub's id."""
    path = Path(place)
    if path.is_dir():
        path = path / "config.json"
        if not path.exists():
            raise ModelError(f"{place} has no config.json")
    elif not path.is_file():
        if place.startswith((".", "/", "~")) or place.count("/") > 1:
            raise ModelError(f"{place} is no directory with a config.json")
        path = download(place)
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as err:
        raise ModelError(f"{path} cannot be read as JSON: {err}") from err
    if not isinstance(config, dict):
        raise ModelError(f"{path} is no config: it holds a {type(config).__name__}")
    return config


def download(name: str) -> Path:
    """Where the config of a hub's model is kept, fetched if there is a network."""
    from huggingface_hub import constants, hf_hub_download
    from huggingface_hub.errors import (
        HfHubHTTPError,
        HFValidationError,
        LocalEntryNotFoundError,
        RepositoryNotFoundError,
    )

    is_reached = hub_answers()
    try:
        return Path(hf_hub_download(name, "config.json", local_files_only=not is_reached))
    except (LocalEntryNotFoundError, RepositoryNotFoundError) as err:
        hub = "the hub has no such model" if is_reached else f"{constants.ENDPOINT} does not answer"
        hub = "HF_HUB_OFFLINE is set" if constants.is_offline_mode() else hub
        raise OptionError(
            f"the config of {name} cannot be had: {hub}, and it is no directory; give a known "
            "model, a directory with a config.json, sizes such as 768/12x12, or, with a network, "
            "a hub's id"
        ) from err
    except (HfHubHTTPError, HFValidationError, OSError) as err:
        reason = str(err).strip().splitlines()[0]
        raise OptionError(f"the config of {name} cannot be had: {reason}") from err


def shape_of_config(config: Mapping[str, Any], name: str) -> Shape:
    """The shape that a config describes."""
    for part in ("text_config", "llm_config", "language_config"):
        if isinstance(config.get(part), dict):
            config = {"model_type": config.get("model_type"), **config[part]}
    kind = str(config.get("model_type", ""))
    if config.get("kv_lora_rank"):
        raise ModelError(
            f"{name} ({kind}) compresses its keys and values (kv_lora_rank): its cost follows "
            "other formulas"
        )
    d_model, num_heads = needed(config, "d_model", name), needed(config, "num_heads", name)
    d_key = size(config, "d_key") or d_model // num_heads
    num_layers = needed(config, "num_layers", name)
    window, num_local = locality(config, num_layers)
    has_bias = kind in BIASED or bool(config.get("attention_bias") or config.get("bias"))
    return Shape(
        d_model=d_model,
        num_heads=num_heads,
        num_kv_heads=kv_heads(config, num_heads),
        d_key=d_key,
        d_value=int(config.get("v_head_dim") or d_key),
        num_layers=num_layers,
        is_causal=kind not in LOOK_BOTH_WAYS and not config.get("is_encoder_decoder"),
        window=window,
        num_local=num_local,
        bias_in=has_bias or kind in BIASED_IN,
        bias_out=has_bias,
        has_qk_norm=kind in NORMED,
        has_sinks=kind in WITH_SINKS,
        context=size(config, "context"),
    )


def size(config: Mapping[str, Any], field: str) -> int | None:
    """A size under any of its names; None if the config does not have it."""
    for name in NAMES[field]:
        if isinstance(config.get(name), int) and not isinstance(config[name], bool):
            return int(config[name])
    return None


def needed(config: Mapping[str, Any], field: str, name: str) -> int:
    """A size that there is no shape without."""
    found = size(config, field)
    if found is None:
        for key in NAMES[field]:
            if key in config:
                raise ModelError(f"the config of {name} has {config[key]!r} for {key}: no size")
        raise ModelError(
            f"the config of {name} does not say its {field}: looked for {', '.join(NAMES[field])}"
        )
    if found < 1:
        raise ModelError(f"the config of {name} has a {field} of {found}: it must be at least 1")
    return found


def kv_heads(config: Mapping[str, Any], num_heads: int) -> int:
    """KV heads; as many as heads where nothing is said, one where queries share all."""
    if config.get("model_type") == "falcon" and not config.get("new_decoder_architecture"):
        return 1 if config.get("multi_query", True) else num_heads
    if config.get("multi_query") and size(config, "num_kv_heads") is None:
        return 1
    return size(config, "num_kv_heads") or num_heads


def locality(config: Mapping[str, Any], num_layers: int) -> tuple[int | None, int]:
    """The window of local layers, and how many of them there are."""
    window = config.get("sliding_window") or config.get("local_attention")
    if not isinstance(window, int) or config.get("use_sliding_window") is False:
        return None, 0
    kinds = config.get("layer_types")
    if isinstance(kinds, list):
        return window, sum(kind == "sliding_attention" for kind in kinds[:num_layers])
    if every := config.get("sliding_window_pattern"):  # its last layers are global
        return window, num_layers - num_layers // int(every)
    if every := config.get("global_attn_every_n_layers"):  # its first layers are global
        return window, num_layers - -(-num_layers // int(every))
    return window, num_layers
