"""Configs: a shape from the config.json of a transformers model.

In: a directory, or the id of a model on a hub. Out: a shape, and what had to be assumed. The file
is read as it is, without transformers; what it leaves unsaid is looked up in `families`, and a
config that lacks what is needed is refused, with what it lacks.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headwise.errors import ModelError, OptionError
from headwise.formats import join_words
from headwise.hub import hub_answers
from headwise.planning import config_facts
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
    "num_kv_heads": ("num_key_value_heads", "num_kv_heads", "kv_n_heads"),
    "d_value": ("v_head_dim",),
    "context": ("max_position_embeddings", "n_positions", "n_ctx", "max_seq_len"),
}
"""What models call each size, in the order in which they are asked."""

LAYER_TYPES = ("full_attention", "sliding_attention")
"""Kinds of layers whose cost is counted."""
WINDOW_KEYS = ("sliding_window", "local_attention")
"""What configs call how many keys a query of a local layer sees."""
LAYER_KEYS = (*config_facts.PATTERN_KEYS, "global_attn_every_n_layers", "max_window_layers")
"""What configs without `layer_types` say of which layers are local."""


def shape_and_note(place: str) -> tuple[Shape, str]:
    """The shape of the model in a directory or on a hub, and what its reader must know, or ""."""
    config = read_config(place)
    return shape_of_config(config, place), note_of_config(config)


def note_of_config(config: Mapping[str, Any]) -> str:
    """What was assumed of a model, and what is not as usual in it; "" if nothing."""
    config = with_defaults(config)
    notes = (encoder_note, type_note, window_note, sharing_note)
    return "; ".join(filter(None, (note(config) for note in notes)))


def encoder_note(config: Mapping[str, Any]) -> str:
    """That a decoder is left out, where there is one beside an encoder."""
    return "its encoder alone is counted" if config.get("is_encoder_decoder") else ""


def type_note(config: Mapping[str, Any]) -> str:
    """What is assumed of a model whose type is not known; "" for one that is."""
    kind = type_of(config)
    if kind in config_facts.KNOWN_TYPES:
        return ""
    sees = "as causal" if is_causal(config) else "as bidirectional"
    said = f"its type, {kind}, is not known" if kind else "its config names no type"
    shared = ", with a KV head for every head" if said_kv_heads(config, "") is None else ""
    return (
        f"{said}: taken {sees} and without norms{shared}, with a bias only where the config has one"
    )


def window_note(config: Mapping[str, Any]) -> str:
    """What is assumed where a config has a window and nothing says which layers it is for."""
    key = window_key(config)
    is_said = any(config.get(one) is not None for one in ("layer_types", *LAYER_KEYS))
    if key is None or is_said or type_of(config) in config_facts.ALL_LOCAL:
        return ""
    return f"its config has a {key} and does not say which layers it is for: taken as for all"


def sharing_note(config: Mapping[str, Any]) -> str:
    """That layers share their weights, where they do."""
    if not config.get("num_hidden_groups"):
        return ""
    return "its layers share weights: parameters of all layers count each set of weights once"


def with_defaults(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The part of a config that is counted, with what its type means where it says nothing."""
    config = config_of_text(config)
    nested = config.get("attn_config")
    if isinstance(nested, dict) and "kv_n_heads" in nested:
        config = {**config, "kv_n_heads": nested["kv_n_heads"]}
    return {**config_facts.CONFIG_DEFAULTS.get(type_of(config), {}), **config}


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
        raise ModelError(f"{path} is no config: it holds a value of type {type(config).__name__}")
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
    config = with_defaults(config)
    kind = type_of(config)
    check_formulas(config, name)
    d_model, num_heads = needed(config, "d_model", name), needed(config, "num_heads", name)
    d_key = size(config, "d_key", name) or d_model // num_heads
    num_layers, num_distinct = layers(config, name)
    window, num_local = locality(config, num_layers, name)
    has_norm = kind in config_facts.NORMED or bool(config.get(config_facts.NORM_KEYS.get(kind, "")))
    return Shape(
        d_model=d_model,
        num_heads=num_heads,
        num_kv_heads=kv_heads(config, num_heads, name),
        d_key=d_key,
        d_value=size(config, "d_value", name) or d_key,
        num_layers=num_layers,
        num_distinct=num_distinct,
        is_causal=is_causal(config),
        window=window,
        num_local=num_local,
        **biases(config),
        has_qk_norm=has_norm,
        norms_span_heads=has_norm and kind in config_facts.NORMED_WHOLE,
        norms_shift=has_norm and kind in config_facts.NORMED_SHIFTED,
        has_sinks=kind in config_facts.WITH_SINKS,
        context=size(config, "context", name),
    )


def check_formulas(config: Mapping[str, Any], name: str) -> None:
    """Raise where layers cost other than what is counted here."""
    for key, what in config_facts.OTHER_FORMULAS.items():
        if config.get(key):
            raise ModelError(
                f"{name} ({type_of(config)}) {what} ({key}): its cost follows other formulas"
            )


def is_causal(config: Mapping[str, Any]) -> bool:
    """Whether queries see no key after their own."""
    if config.get("is_encoder_decoder"):
        return False
    if config.get("use_bidirectional_attention") in (True, "all"):  # "vision" is of images alone
        return False
    kind = type_of(config)
    if kind in config_facts.BACK_AS_DECODERS and config.get("is_decoder"):
        return True
    return kind not in config_facts.LOOK_BOTH_WAYS


def biases(config: Mapping[str, Any]) -> dict[str, bool]:
    """Which projections have a bias, under the names that a shape has for them."""
    kind = type_of(config)
    everywhere = kind in config_facts.BIASED or any(map(config.get, config_facts.BIAS_KEYS))
    inwards = kind in config_facts.BIASED_IN or any(map(config.get, config_facts.BIAS_IN_KEYS))
    outwards = kind in config_facts.BIASED_OUT or everywhere
    return {
        "bias_in": everywhere or inwards,
        "bias_out": outwards and kind not in config_facts.UNBIASED_OUT,
    }


def layers(config: Mapping[str, Any], name: str) -> tuple[int, int | None]:
    """Layers, and how many have weights of their own; None = all of them."""
    num_layers = needed(config, "num_layers", name)
    if not config.get("num_hidden_groups"):
        return num_layers, None
    inner = whole(config, "inner_group_num", name) if config.get("inner_group_num") else 1
    return num_layers * inner, whole(config, "num_hidden_groups", name) * inner


def size(config: Mapping[str, Any], field: str, name: str) -> int | None:
    """A size under any of its names; None if the config does not have it."""
    for key in NAMES[field]:
        if config.get(key) not in (None, -1):  # some write -1 for a limit that they do not have
            return whole(config, key, name)
    return None


def whole(config: Mapping[str, Any], key: str, name: str, *, least: int = 1) -> int:
    """A number of a config that counts something."""
    value = config[key]
    if not isinstance(value, int) or isinstance(value, bool):
        raise ModelError(f"the config of {name} has {value!r} for {key}: no size")
    if value < least:
        raise ModelError(
            f"the config of {name} has a {key} of {value}: it must be at least {least}"
        )
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
    return said_kv_heads(config, name) or num_heads


def said_kv_heads(config: Mapping[str, Any], name: str) -> int | None:
    """KV heads that the config tells of; None if it does not."""
    if config.get("multi_query_attention"):
        return whole({"multi_query_group_num": 1, **config}, "multi_query_group_num", name)
    return size(config, "num_kv_heads", name) or (1 if config.get("multi_query") else None)


def window_key(config: Mapping[str, Any]) -> str | None:
    """What a config calls the window of its local layers; None if it has or uses none."""
    if config.get("use_sliding_window") is False:
        return None
    return next((key for key in WINDOW_KEYS if config.get(key)), None)


def layer_kinds(config: Mapping[str, Any], num_layers: int, name: str) -> list[str] | None:
    """The kind of every layer; None where the config does not list them."""
    kinds = config.get("layer_types")
    if not isinstance(kinds, list):
        return None
    for kind in kinds[:num_layers]:
        if kind not in LAYER_TYPES:
            raise ModelError(
                f"{name} ({type_of(config)}) has layers of {kind}: their cost follows other "
                f"formulas than that of {join_words(LAYER_TYPES)}"
            )
    return kinds[:num_layers]


def locality(config: Mapping[str, Any], num_layers: int, name: str) -> tuple[int | None, int]:
    """The window of local layers, and how many of them there are."""
    kinds, key = layer_kinds(config, num_layers, name), window_key(config)
    if key is None:
        return None, 0
    window = whole(config, key, name)
    if kinds is not None:
        num_local = kinds.count("sliding_attention")
    else:
        num_local = unlisted_local(config, num_layers, name)
    return (window, num_local) if num_local else (None, 0)


def unlisted_local(config: Mapping[str, Any], num_layers: int, name: str) -> int:
    """How many layers are local where the config does not list them; all if nothing is said."""
    if type_of(config) in config_facts.ALL_LOCAL:  # which heed none of the keys below
        return num_layers
    least = {"max_window_layers": 0}
    said = {
        key: whole(config, key, name, least=least.get(key, 1))
        for key in LAYER_KEYS
        if config.get(key) is not None
    }
    if every := said.get("global_attn_every_n_layers"):  # the first of each is global
        return num_layers - -(-num_layers // every)
    limit = min(num_layers, said.get("max_window_layers", num_layers))
    if every := next((said[key] for key in config_facts.PATTERN_KEYS if key in said), None):
        return limit - limit // every  # the last of each is global
    return num_layers - limit if "max_window_layers" in said else num_layers
