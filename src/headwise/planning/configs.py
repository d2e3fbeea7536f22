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
from headwise.wording import listed

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
    "d_value": ("v_head_dim",),
    "context": ("max_position_embeddings", "n_positions", "n_ctx", "max_seq_len"),
}
"""What models call each size, in the order in which they are asked."""

LOOK_BOTH_WAYS = frozenset(
    "albert bert camembert clip_vision_model convbert data2vec-text deberta deberta-v2 deit dinov2 "
    "distilbert electra ernie eurobert modernbert mpnet nomic_bert roberta siglip siglip2 "
    "siglip2_text_model siglip2_vision_model siglip_text_model siglip_vision_model squeezebert vit "
    "vit_mae xlm-roberta".split()
)
"""Types whose queries see keys on both sides."""

BIASED = frozenset(
    "albert bart bert biogpt bloom camembert clip clip_text_model clip_vision_model data2vec-text "
    "deberta deberta-v2 deit dinov2 distilbert electra ernie gpt2 gpt_bigcode gpt_neox gpt_oss "
    "marian mbart mpnet opt pegasus phi roberta siglip siglip2 siglip2_text_model "
    "siglip2_vision_model siglip_text_model siglip_vision_model starcoder2 vit vit_mae "
    "xlm-roberta".split()
)
"""Types with a bias in all four projections, whatever else their config says."""
BIASED_IN = frozenset(["qwen2", "qwen2_5_vl_text", "qwen2_moe", "qwen2_vl_text"])
"""Types with a bias in Wq, Wk and Wv."""
NORMED = frozenset(["qwen3", "qwen3_moe", "qwen3_vl_text", "gemma3", "gemma3_text"])
"""Types that normalise each head's queries and keys."""
NORMED_WHOLE = frozenset(["olmo2", "olmo3", "olmoe"])
"""Types that normalise the queries of all heads together, and the keys."""
WITH_SINKS = frozenset(["gpt_oss"])
PLAIN = frozenset(
    "arcee codegen cohere cohere2 ernie4_5 falcon gemma gemma2 gptj granite helium llama "
    "ministral3 mistral mistral3 mixtral mpt olmo phi3 smollm3 stablelm t5".split()
)
"""Types of which nothing but their config need be known."""
KNOWN_TYPES = LOOK_BOTH_WAYS | BIASED | BIASED_IN | NORMED | NORMED_WHOLE | WITH_SINKS | PLAIN
LAYER_TYPES = ("full_attention", "sliding_attention")
"""Kinds of layers whose cost is counted."""


def shape_from(place: str) -> Shape:
    """The shape of the model in a directory or on a hub."""
    return shape_of_config(read_config(place), place)


def shape_and_note(place: str) -> tuple[Shape, str]:
    """The same, and what had to be assumed; "" where the type of the model is known."""
    config = read_config(place)
    return shape_of_config(config, place), note_of_config(config)


def note_of_config(config: Mapping[str, Any]) -> str:
    """What is assumed of a model whose type is not known."""
    kind = type_of(config_of_text(config))
    if kind in KNOWN_TYPES:
        return ""
    sees = "its encoder as looking both ways" if config.get("is_encoder_decoder") else "as causal"
    said = f"its type, {kind}, is not known" if kind else "its config names no type"
    return f"{said}: taken {sees} and without norms, with a bias only where the config has one"


def config_of_text(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The part of a config that describes the language model, where there are several."""
    for part in ("text_config", "llm_config", "language_config"):
        if isinstance(config.get(part), dict):
            config = {"model_type": config.get("model_type"), **config[part]}
    return config


def type_of(config: Mapping[str, Any]) -> str:
    """The type that a config names; "" for none."""
    return str(config.get("model_type") or "")


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
        GatedRepoError,
        HfHubHTTPError,
        HFValidationError,
        LocalEntryNotFoundError,
        RepositoryNotFoundError,
    )

    is_reached = hub_answers()
    try:
        return Path(hf_hub_download(name, "config.json", local_files_only=not is_reached))
    except GatedRepoError as err:
        raise OptionError(
            f"the config of {name} cannot be had: {constants.ENDPOINT} gives it only to those who "
            "were let in; ask there and log in, or give sizes such as 768/12x12"
        ) from err
    except (LocalEntryNotFoundError, RepositoryNotFoundError) as err:
        hub = "the hub has no such model, or none that you may read"
        hub = hub if is_reached else f"{constants.ENDPOINT} does not answer"
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
    config = config_of_text(config)
    kind = type_of(config)
    if config.get("kv_lora_rank"):
        raise ModelError(
            f"{name} ({kind}) compresses its keys and values (kv_lora_rank): its cost follows "
            "other formulas"
        )
    d_model, num_heads = needed(config, "d_model", name), needed(config, "num_heads", name)
    d_key = size(config, "d_key", name) or d_model // num_heads
    num_layers = needed(config, "num_layers", name)
    window, num_local = locality(config, num_layers, name)
    has_bias = kind in BIASED or bool(config.get("attention_bias") or config.get("bias"))
    return Shape(
        d_model=d_model,
        num_heads=num_heads,
        num_kv_heads=kv_heads(config, num_heads, name),
        d_key=d_key,
        d_value=size(config, "d_value", name) or d_key,
        num_layers=num_layers,
        is_causal=kind not in LOOK_BOTH_WAYS and not config.get("is_encoder_decoder"),
        window=window,
        num_local=num_local,
        bias_in=has_bias or kind in BIASED_IN,
        bias_out=has_bias,
        has_qk_norm=kind in NORMED | NORMED_WHOLE,
        norms_span_heads=kind in NORMED_WHOLE,
        has_sinks=kind in WITH_SINKS,
        context=size(config, "context", name),
    )


def size(config: Mapping[str, Any], field: str, name: str) -> int | None:
    """A size under any of its names; None if the config does not have it."""
    for key in NAMES[field]:
        if config.get(key) not in (None, -1):  # some write -1 for a limit that they do not have
            return whole(config, key, name)
    return None


def whole(config: Mapping[str, Any], key: str, name: str) -> int:
    """A number of a config that counts something."""
    value = config[key]
    if not isinstance(value, int) or isinstance(value, bool):
        raise ModelError(f"the config of {name} has {value!r} for {key}: no size")
    if value < 1:
        raise ModelError(f"the config of {name} has a {key} of {value}: it must be at least 1")
    return value


def needed(config: Mapping[str, Any], field: str, name: str) -> int:
    """A size that there is no shape without."""
    found = size(config, field, name)
    if found is None:
        raise ModelError(
            f"the config of {name} does not say its {field}: looked for {', '.join(NAMES[field])}"
        )
    return found


def kv_heads(config: Mapping[str, Any], num_heads: int, name: str) -> int:
    """KV heads; as many as heads where nothing is said, one where queries share all."""
    if config.get("model_type") == "falcon" and not config.get("new_decoder_architecture"):
        return 1 if config.get("multi_query", True) else num_heads
    found = size(config, "num_kv_heads", name)
    return found or (1 if config.get("multi_query") else num_heads)


def locality(config: Mapping[str, Any], num_layers: int, name: str) -> tuple[int | None, int]:
    """The window of local layers, and how many of them there are."""
    kinds = config.get("layer_types")
    kinds = kinds[:num_layers] if isinstance(kinds, list) else None
    for kind in kinds or ():
        if kind not in LAYER_TYPES:
            raise ModelError(
                f"{name} ({type_of(config)}) has layers of {kind}: their cost follows other "
                f"formulas than that of {listed(LAYER_TYPES)}"
            )
    key = next((key for key in ("sliding_window", "local_attention") if config.get(key)), None)
    if key is None or config.get("use_sliding_window") is False:
        return None, 0
    window = whole(config, key, name)
    if kinds is not None:
        return window, kinds.count("sliding_attention")
    if config.get("sliding_window_pattern"):  # its last layers are global
        return window, num_layers - num_layers // whole(config, "sliding_window_pattern", name)
    if config.get("global_attn_every_n_layers"):  # its first layers are global
        every = whole(config, "global_attn_every_n_layers", name)
        return window, num_layers - -(-num_layers // every)
    return window, num_layers
