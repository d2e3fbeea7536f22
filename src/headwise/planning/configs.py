"""The config.json of a transformers model, local or on a hub -> Shape, and a note on assumptions.

Values that the file leaves out are looked up in `config_facts`; a missing size raises ModelError.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headwise.checks import whole_number
from headwise.errors import ModelError, OptionError
from headwise.formats import join_words
from headwise.hub import hub_answers, why_download_failed
from headwise.planning import config_facts
from headwise.planning.shapes import Shape

Config = Mapping[str, Any]

SIZE_KEYS = {
    "d_model": "hidden_size n_embd d_model dim",
    "num_heads": "num_attention_heads n_head n_heads num_heads encoder_attention_heads",
    "num_layers": "num_hidden_layers n_layer n_layers num_layers encoder_layers",
    "d_key": "head_dim d_kv",
    "num_kv_heads": "num_key_value_heads num_kv_heads kv_n_heads",
    "d_value": "v_head_dim",
    "context": "max_position_embeddings n_positions n_ctx max_seq_len",
}
"""Config keys for each size; the first one that the config has is used."""

LAYER_TYPES = ("full_attention", "sliding_attention")
"""Kinds of layers whose cost is counted."""
WINDOW_KEYS = ("sliding_window", "local_attention")
"""Config keys for the window: the number of keys that a query sees in a local layer."""
LAYER_KEYS = (*config_facts.PATTERN_KEYS, "global_attn_every_n_layers", "max_window_layers")
"""Config keys that determine which layers are local if there is no `layer_types`."""


def read_shape(place: str) -> tuple[Shape, str]:
    """Shape of a model in a directory or on a hub, and a note on assumptions, or ""."""
    path = Path(place)
    if path.is_dir():
        path = path / "config.json"
        if not path.exists():
            raise ModelError(f"{place} has no config.json: give a model's directory")
    elif not path.is_file():
        if place.startswith((".", "/", "~")) or place.count("/") > 1:
            raise ModelError(f"{place} is not a directory with a config.json")
        path = _download(place)
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as err:
        raise ModelError(f"{path} cannot be read as JSON: {err}") from err
    if not isinstance(config, dict):
        raise ModelError(f"{path} is not a config: it contains a {type(config).__name__}")
    return shape_of_config(config, place), _note_of_config(config)


def _download(name: str) -> Path:
    from huggingface_hub import hf_hub_download

    try:
        return Path(hf_hub_download(name, "config.json", local_files_only=not hub_answers()))
    except (OSError, ValueError) as err:  # every hub error is one of these
        reason = why_download_failed(err) or str(err).strip().splitlines()[0]
        raise OptionError(
            f"cannot get the config of {name}: {reason}; give a known model, a directory with a "
            "config.json, sizes such as 768/12x12 or, if you are online, a hub id"
        ) from err


def shape_of_config(config: Config, name: str) -> Shape:
    """The shape that a config describes; `name` is the model's name for error messages."""
    config = _with_defaults(config)
    model_type = config["model_type"]
    for meaning, keys in config_facts.OTHER_FORMULAS.items():
        for key in filter(config.get, keys.split()):
            raise ModelError(f"{name} ({model_type}) {meaning} ({key}): plan cannot count these")
    d_model = _need_size(config, "d_model", name)
    num_heads = _need_size(config, "num_heads", name)
    d_key = _size(config, "d_key", name) or d_model // num_heads
    num_layers, num_distinct = _need_size(config, "num_layers", name), None
    if config.get("num_hidden_groups"):
        inner = _count(config, "inner_group_num", name) if config.get("inner_group_num") else 1
        num_layers *= inner
        num_distinct = _count(config, "num_hidden_groups", name) * inner
    window, num_local = _local_layers(config, num_layers, name)
    norm_key = config_facts.NORM_KEYS.get(model_type, "")
    has_norm = model_type in config_facts.NORMED or bool(config.get(norm_key))
    in_all = model_type in config_facts.BIASED or any(map(config.get, config_facts.BIAS_KEYS))
    in_qkv = any(map(config.get, config_facts.BIAS_QKV_KEYS))
    in_output = in_all or model_type in config_facts.BIASED_WO
    return Shape(
        d_model=d_model,
        num_heads=num_heads,
        num_kv_heads=_kv_heads(config, name) or num_heads,
        d_key=d_key,
        d_value=_size(config, "d_value", name) or d_key,
        num_layers=num_layers,
        num_distinct=num_distinct,
        is_causal=_is_causal(config),
        window=window,
        num_local=num_local,
        bias_in=in_all or in_qkv or model_type in config_facts.BIASED_QKV,
        bias_out=in_output and model_type not in config_facts.UNBIASED_WO,
        has_qk_norm=has_norm,
        norms_span_heads=has_norm and model_type in config_facts.NORMED_ACROSS_HEADS,
        norms_shift=has_norm and model_type in config_facts.NORMED_WITH_SHIFT,
        has_sinks=model_type in config_facts.WITH_SINKS,
        context=_size(config, "context", name),
    )


def _note_of_config(config: Config) -> str:
    """Note on assumptions about a model and on unusual features; "" if it has neither."""
    config = _with_defaults(config)
    model_type, notes = config["model_type"], []
    if config.get("is_encoder_decoder"):
        notes.append("only the encoder is counted")
    if model_type not in config_facts.KNOWN_TYPES:
        opening = f"unknown model type {model_type}" if model_type else "the config names no type"
        direction = "causal" if _is_causal(config) else "bidirectional"
        shared = "" if _kv_heads(config, "") else ", with a KV head for every head"
        notes.append(
            f"{opening}: assumed to be {direction}, without norms{shared}, and with a bias only "
            "if the config has one"
        )
    key = _window_key(config)
    names_layers = any(config.get(name) is not None for name in ("layer_types", *LAYER_KEYS))
    if key is not None and not names_layers and model_type not in config_facts.ALL_LOCAL:
        notes.append(f"the config has a {key} but does not say for which layers: applied to all")
    if config.get("num_hidden_groups"):
        notes.append("layers share weights: the parameters of all layers count each set once")
    return "; ".join(notes)


def _with_defaults(config: Config) -> Config:
    """The language model's part of a config, with its type's defaults for missing keys."""
    for part in ("text_config", "llm_config", "language_config"):
        if isinstance(config.get(part), dict):
            config = {"model_type": config.get("model_type"), **config[part]}
    nested = config.get("attn_config")
    if isinstance(nested, dict) and "kv_n_heads" in nested:
        config = {**config, "kv_n_heads": nested["kv_n_heads"]}
    model_type = str(config.get("model_type") or "")
    defaults = config_facts.CONFIG_DEFAULTS.get(model_type, {})
    return {**defaults, **config, "model_type": model_type}


def _is_causal(config: Config) -> bool:
    if config.get("is_encoder_decoder"):
        return False
    if config.get("use_bidirectional_attention") in (True, "all"):  # "vision" is only for images
        return False
    if config["model_type"] in config_facts.CAUSAL_AS_DECODERS and config.get("is_decoder"):
        return True
    return config["model_type"] not in config_facts.BIDIRECTIONAL


def _size(config: Config, field: str, name: str) -> int | None:
    """A size, under any of its keys; None if the config does not state it."""
    for key in SIZE_KEYS[field].split():
        if config.get(key) not in (None, -1):  # some configs write -1 for "no limit"
            return _count(config, key, name)
    return None


def _need_size(config: Config, field: str, name: str) -> int:
    size = _size(config, field, name)
    if size is None:
        keys = join_words(SIZE_KEYS[field].split(), "or")
        raise ModelError(f"the config of {name} does not state {field}: it needs {keys}")
    return size


def _count(config: Config, key: str, name: str, *, least: int = 1) -> int:
    try:
        return whole_number(key, config[key], least=least)
    except OptionError as err:
        raise ModelError(f"cannot use the config of {name}: {err}") from err


def _kv_heads(config: Config, name: str) -> int | None:
    """Number of KV heads in the config; None if it is not stated or every head has its own."""
    if config["model_type"] == "falcon" and not config.get("new_decoder_architecture"):
        return 1 if config.get("multi_query", True) else None
    if config.get("multi_query_attention"):
        return _count({"multi_query_group_num": 1, **config}, "multi_query_group_num", name)
    return _size(config, "num_kv_heads", name) or (1 if config.get("multi_query") else None)


def _window_key(config: Config) -> str | None:
    """The config key for the window; None if there is no window or it is not used."""
    if config.get("use_sliding_window") is False:
        return None
    return next(filter(config.get, WINDOW_KEYS), None)


def _local_layers(config: Config, num_layers: int, name: str) -> tuple[int | None, int]:
    """The window of the local layers, and their number; None and 0 if there are none."""
    model_type, layer_types = config["model_type"], config.get("layer_types")
    layer_types = layer_types[:num_layers] if isinstance(layer_types, list) else None
    if unknown := [kind for kind in layer_types or () if kind not in LAYER_TYPES]:
        raise ModelError(
            f"{name} ({model_type}) has layers of type {unknown[0]}: plan counts only "
            f"{join_words(LAYER_TYPES)}"
        )
    key = _window_key(config)
    if key is None:
        return None, 0
    window = _count(config, key, name)
    if layer_types is not None:
        num_local = layer_types.count("sliding_attention")
    elif model_type in config_facts.ALL_LOCAL:  # these types ignore the keys of other types
        num_local = num_layers
    else:
        num_local = _count_local_layers(config, num_layers, name)
    return (window, num_local) if num_local else (None, 0)


def _count_local_layers(config: Config, num_layers: int, name: str) -> int:
    """Number of local layers according to `LAYER_KEYS`; all layers if none of these is set."""
    numbers = {
        key: _count(config, key, name, least=0 if key == "max_window_layers" else 1)
        for key in LAYER_KEYS
        if config.get(key) is not None
    }
    if every := numbers.get("global_attn_every_n_layers"):  # the first of each group is global
        return num_layers - -(-num_layers // every)
    limit = min(num_layers, numbers.get("max_window_layers", num_layers))
    if every := next((numbers[key] for key in config_facts.PATTERN_KEYS if key in numbers), None):
        return limit - limit // every  # the last of each group is global
    return num_layers - limit if "max_window_layers" in numbers else num_layers
