"""Inputs for a model of any type, from its forward's signature and its config.

In: a model. Out: several sets of keyword arguments, the richest first; the first that the model
reads is the one to use. `tiny_images.py` and `tiny_sounds.py` make what is not text.
"""

import inspect
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import product
from typing import Any

import tiny_images as images
import tiny_sounds as sounds
import torch
from tiny_sizes import BATCH, LENGTH, SPECIAL, Inputs
from torch import Tensor, nn

Maker = Callable[[Any], Inputs]
IMAGES: dict[str, tuple[Maker, ...]] = {
    "qformer_input_ids": (images.image_with_question, images.movie_with_question),
    "image_embeds_position_mask": (images.placed_image,),
    "merge_sizes": (images.merged_patches,),
    "image_merge_sizes": (images.merged_patches,),
    "image_grid_thw": (
        images.patches,
        images.square_patches,
        images.patches_in_row,
        images.patches_by_image,
    ),
    "grid_thw": (images.bare_patches, images.square_patches, images.patches_in_row),
    "target_sizes": (images.image_in_sizes,),
    "tgt_sizes": (images.image_in_sizes,),
    "spatial_shapes": (images.unfolded,),
    "aspect_ratio_ids": (images.tiles,),
    "pixel_position_ids": (images.unfolded,),
    "image_position_ids": (images.unfolded,),
    "pixel_values": (
        images.image,
        images.masked_image,
        images.tiled_images,
        images.one_image_each,
        images.several_images,
        images.movie,
        images.unfolded,
    ),
    "pixel_values_videos": (images.movie_first,),
    "flattened_patches": (images.flattened,),
    "visual_feats": (images.seen_objects,),
}
"""Makers of images by the argument that calls for them."""

SOUNDS: dict[str, tuple[Maker, ...]] = {
    "feature_lens": (sounds.joined_spectra,),
    "input_features": (
        sounds.spectrum,
        sounds.spectrum_of_rows,
        sounds.only_spectrum,
        sounds.only_rows,
        *map(sounds.stacked_rows, (128, 160, 320, 560)),
        sounds.lone_features,
        sounds.clap_features,
        sounds.hidden_rows,
    ),
    "input_values": (sounds.sound, sounds.sound_channel, sounds.sound_rows, sounds.sound_ids),
    "audio_values": (sounds.sound_channel,),
    "past_values": (
        sounds.series,
        sounds.patched_series,
        sounds.plain_series,
        sounds.listed_series,
    ),
}
"""Makers of sounds and time series."""

LAST: dict[str, tuple[Maker, ...]] = {
    "input_ids": (sounds.codes, sounds.rows_of_codes),
    "encoder_hidden_states": (sounds.outer_states,),
}
"""Makers for models that cannot read plain text."""

REQUIRED: dict[str, Callable[[Any], Any]] = {
    "hidden_states": sounds.hidden,
    "inputs_embeds": sounds.hidden,
    "encoder_hidden_states": sounds.hidden,
    "query_embeds": sounds.hidden,
    "context": sounds.hidden,
    "attention_mask": lambda config: torch.ones(BATCH, LENGTH, dtype=torch.long),
    "timestep": lambda config: torch.rand(BATCH),
    "input_ids": lambda config: sounds.ids_only(config)["input_ids"],
    "qformer_input_ids": lambda config: sounds.ids_only(config)["input_ids"],
    "pixel_values": lambda config: images.image(config)["pixel_values"],
    "image": lambda config: images.image(config)["pixel_values"],
    "image_mask": lambda config: torch.ones(BATCH, *images.sides(config)[1:], dtype=torch.long),
    "states": lambda config: torch.randn(BATCH, LENGTH, config.state_dim),
    "actions": lambda config: torch.randn(BATCH, LENGTH, config.act_dim),
    "labels": lambda config: torch.randint(0, 5, (BATCH, 80, 80)),
}
"""Arguments that some forwards insist on."""

PLACES = (
    ("pixel_values", "image"),
    ("input_features", "audio"),
    ("input_values", "audio"),
    ("pixel_values_videos", "video"),
)
"""Arguments for images and sounds, and the kind of token that stands for them in a text."""


def candidate_inputs(model: nn.Module) -> Iterator[Inputs]:
    """Sets of inputs that the model may read, the richest first."""
    parameters = inspect.signature(model.forward).parameters
    config = model.config
    torch.manual_seed(7)
    text = text_inputs(config, parameters)
    seen: list[Inputs] = []
    for media in media_inputs(config, parameters):
        for whole in (with_places(model, config, text, media) | media, media):
            whole = mark_media(whole, config, parameters)
            filled = fill_required(whole, parameters, config)
            if filled and not any(same(filled, other) for other in seen):
                seen.append(filled)
                yield filled


def same(one: Inputs, other: Inputs) -> bool:
    """Whether two sets of inputs have the same names and shapes and ids."""
    return one.keys() == other.keys() and all(
        isinstance(one[name], Tensor)
        and isinstance(other[name], Tensor)
        and one[name].shape == other[name].shape
        and (one[name].is_floating_point() or torch.equal(one[name], other[name]))
        for name in one
    )


def text_inputs(config: Any, parameters: Any) -> Inputs:
    """Token ids for every argument that takes them."""
    made: Inputs = {}
    for name in ("input_ids", "decoder_input_ids"):
        if name in parameters:
            size = vocabulary(config, decoder=name.startswith("decoder"))
            length = LENGTH if name == "input_ids" else LENGTH - 2
            made[name] = torch.randint(min(SPECIAL, size - 1), min(size, 100), (BATCH, length))
    if "input_ids" in made and "attention_mask" in parameters:
        made["attention_mask"] = torch.ones_like(made["input_ids"])
    eos = getattr(text_config(config), "eos_token_id", None)
    if "input_ids" in made and isinstance(eos, int) and "clip" in config.model_type:
        made["input_ids"][:, -1] = eos
    if "bbox" in parameters:
        corners = torch.randint(0, 50, (BATCH, LENGTH, 4)).sort(-1).values
        made["bbox"] = corners[..., [0, 1, 2, 3]]
    return made


def text_config(config: Any, *, decoder: bool | None = None) -> Any:
    """The config of the part that reads text; of the decoder if there are two."""
    try:
        return config.get_text_config(decoder=decoder)
    except ValueError:
        return config.decoder


def vocabulary(config: Any, *, decoder: bool = False) -> int:
    """Number of tokens that the text part knows."""
    for owner in (text_config(config, decoder=decoder), config):
        for name in ("vocab_size", "text_vocab_size", "n_token", "src_vocab_size"):
            if isinstance(size := getattr(owner, name, None), int):
                return size
    return 100


def media_inputs(config: Any, parameters: Any) -> Iterator[Inputs]:
    """Sets of images, sounds and series that the model may read; first those of two kinds."""
    seen, heard, last = (
        list(made_by(makers, config, parameters)) for makers in (IMAGES, SOUNDS, LAST)
    )
    yield from (one | other for one, other in product(seen, heard))
    yield from (*seen, *heard, {}, *last)


def made_by(makers: dict[str, tuple[Maker, ...]], config: Any, parameters: Any) -> Iterator[Inputs]:
    """What the makers that the forward calls for make of the config."""
    for name, choices in makers.items():
        for maker in choices if name in parameters else ():
            with suppress(Exception):  # a maker whose sizes the config lacks is not for this model
                yield {key: value for key, value in maker(config).items() if key in parameters}


def fill_required(whole: Inputs, parameters: Any, config: Any) -> Inputs | None:
    """The inputs with the arguments that the forward insists on; None if one is unknown."""
    made = dict(whole)
    for name, one in parameters.items():
        is_named = one.kind not in (one.VAR_KEYWORD, one.VAR_POSITIONAL)
        if is_named and one.default is one.empty and name not in made:
            try:
                made[name] = REQUIRED[name](config)
            except Exception:
                return None
    return made


def with_places(model: nn.Module, config: Any, text: Inputs, media: Inputs) -> Inputs:
    """The token ids with as many places for images or sounds as the model makes features."""
    for name, kind in PLACES:
        token = place_token(config, kind)
        if "input_ids" in text and name in media and token is not None:
            count = count_features(model, kind, media) or read_count(model, text | media)
            if count and count % BATCH == 0:
                text = placed(text, token, count // BATCH, config)
    return text


@torch.no_grad()
def read_count(model: nn.Module, inputs: Inputs) -> int | None:
    """Number of features that the model complains to have no places for."""
    try:
        model(**inputs)
    except Exception as error:
        found = re.search(r"features:? (\d+)", str(error))
        return int(found[1]) if found else None
    return None


def mark_media(whole: Inputs, config: Any, parameters: Any) -> Inputs:
    """The inputs with the kind of each token: 0 for text, 1 for a place of an image."""
    for name in ("mm_token_type_ids", "token_type_ids"):
        token = place_token(config, "image")
        if name in parameters and "input_ids" in whole and token is not None:
            whole = whole | {name: (whole["input_ids"] == token).long()}
    return whole


def place_token(config: Any, kind: str) -> int | None:
    """The token that stands for a piece of an image or a sound."""
    parts = (getattr(config, name, None) for name in ("vlm_config", "thinker_config"))
    for owner in (config, text_config(config), *filter(None, parts)):
        for name in (f"{kind}_token_id", f"{kind}_token_index"):
            if isinstance(token := getattr(owner, name, None), int):
                return token
    return None


def placed(text: Inputs, token: int, count: int, config: Any) -> Inputs:
    """The text after the places, with a start token before them if the config has one."""
    ids = text["input_ids"]
    start = getattr(config, "vision_start_token_id", None)
    parts = [] if start is None else [torch.full((BATCH, 1), start)]
    ids = torch.cat([*parts, torch.full((BATCH, count), token), ids], 1)
    made = text | {"input_ids": ids}
    if "attention_mask" in text:
        made["attention_mask"] = torch.ones_like(ids)
    return made


@torch.no_grad()
def count_features(model: nn.Module, kind: str, media: Inputs) -> int | None:
    """Number of rows that the model makes of the images or sounds."""
    for owner in (model, getattr(model, "model", None), getattr(model, "base_model", None)):
        maker = getattr(owner, f"get_{kind}_features", None)
        if maker is None:
            continue
        names = inspect.signature(maker).parameters
        try:
            made = maker(**{name: value for name, value in media.items() if name in names})
        except Exception:
            continue
        made = getattr(made, "pooler_output", made)
        if isinstance(made, tuple | list):
            return sum(one.shape[:-1].numel() for one in made)
        if isinstance(made, Tensor):
            return made.shape[:-1].numel()
    return None


def in_float64(inputs: Inputs) -> Inputs:
    """The inputs with numbers that are not whole in float64."""
    return {
        name: value.double() if isinstance(value, Tensor) and value.is_floating_point() else value
        for name, value in inputs.items()
    }


def pad_last_row(inputs: Inputs, by: int = 4) -> Inputs | None:
    """The inputs with padding at the end of the last sequence; None if they have no mask."""
    mask = inputs.get("attention_mask")
    if mask is None or "input_ids" not in inputs or mask.shape[1] <= by:
        return None
    mask = mask.clone()
    mask[-1, -by:] = 0
    return inputs | {"attention_mask": mask}
