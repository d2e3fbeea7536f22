"""Inputs for a model of any type, from its forward's signature and its config.

In: a model. Out: several sets of keyword arguments, the richest first; the first that the model
reads is the one to use.
"""

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

Inputs = dict[str, Any]
BATCH, LENGTH = 2, 13
SPECIAL = 5


def candidate_inputs(model: nn.Module) -> Iterator[Inputs]:
    """Sets of inputs that the model may read, the richest first."""
    parameters = inspect.signature(model.forward).parameters
    config = model.config
    torch.manual_seed(7)
    text = text_inputs(config, parameters)
    seen: list[Inputs] = []
    required = {
        name
        for name, one in parameters.items()
        if one.default is inspect.Parameter.empty
        and one.kind not in (one.VAR_KEYWORD, one.VAR_POSITIONAL)
    }
    for media in media_inputs(model, config, parameters):
        for words in with_places(model, config, text, media) if media else [text]:
            for whole in (words | media, media):
                whole = fill_required(
                    mark_media(whole, config, parameters), required, parameters, config
                )
                if whole is not None and not any(same(whole, other) for other in seen):
                    seen.append(whole)
                    yield whole


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


def media_inputs(model: nn.Module, config: Any, parameters: Any) -> Iterator[Inputs]:
    """Sets of images, sounds and series that the model may read; the empty set is last."""
    for name, makers in MAKERS.items():
        if name == "input_ids":
            yield {}
        if name in parameters:
            for maker in makers:
                try:
                    made = maker(config)
                except Exception:
                    continue
                yield {key: value for key, value in made.items() if key in parameters}
    yield {}


def fill_required(whole: Inputs, required: set[str], parameters: Any, config: Any) -> Inputs | None:
    """The inputs with the arguments that the forward insists on; None if one is unknown."""
    whole = dict(whole)
    for name in required - whole.keys():
        maker = OTHERS.get(name)
        if maker is None:
            return None
        try:
            whole[name] = maker(config)
        except Exception:
            return None
    return whole or None


def with_places(model: nn.Module, config: Any, text: Inputs, media: Inputs) -> Iterator[Inputs]:
    """The token ids with as many places for images or sounds as the model makes features."""
    if "input_ids" not in text:
        yield text
        return
    for name, kind in (
        ("pixel_values", "image"),
        ("input_features", "audio"),
        ("input_values", "audio"),
        ("pixel_values_videos", "video"),
    ):
        token = place_token(config, kind)
        if name in media and token is not None:
            count = count_features(model, kind, media)
            if count and count % BATCH == 0:
                yield placed(text, token, count // BATCH, config)
                return
    yield text


def mark_media(whole: Inputs, config: Any, parameters: Any) -> Inputs:
    """The inputs with the kind of each token: 0 for text, 1 for a place of an image."""
    for name in ("mm_token_type_ids", "token_type_ids"):
        token = place_token(config, "image")
        if name in parameters and "input_ids" in whole and token is not None:
            whole = whole | {name: (whole["input_ids"] == token).long()}
    return whole


def place_token(config: Any, kind: str) -> int | None:
    """The token that stands for a piece of an image or a sound."""
    for owner in (config, text_config(config)):
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


def part(config: Any, *names: str) -> Any:
    """The first of these sub-configs that the config has, or the config."""
    for name in names:
        if (found := getattr(config, name, None)) is not None and not isinstance(found, int):
            return found
    return config


def size_of(config: Any, default: Any, *names: str) -> Any:
    """The first of these sizes that the config has."""
    for name in names:
        if (found := getattr(config, name, None)) is not None:
            return found
    return default


def vision(config: Any) -> Any:
    return part(
        config,
        "vision_config",
        "backbone_config",
        "encoder",
        "image_config",
        "visual_config",
        "thinker_config",
    )


def sides(config: Any) -> tuple[int, int, int]:
    """Channels, height and width of an image."""
    one = vision(config)
    side = size_of(one, None, "image_size", "img_size", "input_size")
    if side is None:
        side = size_of(config, 64, "image_size", "img_size")
    height, width = (side, side) if isinstance(side, int) else tuple(side)[:2]
    channels = size_of(one, 3, "num_channels", "in_channels", "in_chans", "num_input_channels")
    return (channels if channels <= 4 else 3), height, width


def image(config: Any) -> Inputs:
    return {"pixel_values": torch.randn(BATCH, *sides(config))}


def masked_image(config: Any) -> Inputs:
    channels, height, width = sides(config)
    return {
        "pixel_values": torch.randn(BATCH, channels, height, width),
        "pixel_mask": torch.ones(BATCH, height, width, dtype=torch.long),
        "pixel_attention_mask": torch.ones(BATCH, 1, height, width, dtype=torch.bool),
        "image_sizes": torch.tensor([[height, width]] * BATCH),
    }


def patches(config: Any) -> Inputs:
    """Images as rows of flattened patches, and their grids (Qwen-VL and its kin)."""
    one = vision(config)
    patch = size_of(one, 8, "patch_size")
    time = size_of(one, 1, "temporal_patch_size", "patch_temporal")
    merge = size_of(one, 2, "spatial_merge_size", "merge_size")
    merge = merge if isinstance(merge, int) else merge[0]
    rows = 2 * merge
    channels = size_of(one, 3, "in_channels", "num_channels", "in_chans")
    return {
        "pixel_values": torch.randn(BATCH * rows * rows, channels * time * patch * patch),
        "image_grid_thw": torch.tensor([[1, rows, rows]] * BATCH),
    }


def square_patches(config: Any) -> Inputs:
    """Like `patches`, with each patch as a square."""
    made = patches(config)
    patch = size_of(vision(config), 8, "patch_size")
    squares = made["pixel_values"].reshape(len(made["pixel_values"]), -1, patch, patch)
    grid = made["image_grid_thw"]
    return {"pixel_values": squares, "grid_thw": grid, "image_grid_thw": grid}


def patches_in_row(config: Any) -> Inputs:
    """Like `square_patches`, with an axis in front (PaddleOCR-VL)."""
    made = square_patches(config)
    return made | {"pixel_values": made["pixel_values"][None]}


def patches_by_image(config: Any) -> Inputs:
    """Like `patches`, with an axis for the images."""
    made = patches(config)
    return made | {"pixel_values": made["pixel_values"].unflatten(0, (BATCH, -1))}


def image_in_sizes(config: Any) -> Inputs:
    """Images with the numbers of their patches (MiniCPM-V)."""
    patch = size_of(vision(config), 8, "patch_size")
    grid = torch.tensor([[4, 4]] * BATCH)
    return {
        "pixel_values": torch.randn(1, 3, patch, BATCH * 16 * patch),
        "target_sizes": grid,
        "tgt_sizes": grid,
    }


def bare_patches(config: Any) -> Inputs:
    """Like `patches`, for vision towers whose argument is the rows themselves."""
    made = patches(config)
    grid = made["image_grid_thw"]
    rows = made["pixel_values"]
    return {
        "hidden_states": rows,
        "grid_thw": grid,
        "pixel_values": rows,
        "pixel_values_patches": rows,
        "image_grid_thw": grid,
    }


def unfolded(config: Any) -> Inputs:
    """Images as rows of patches with their positions (SigLIP 2, LFM2-VL)."""
    one = vision(config)
    patch = size_of(one, 8, "patch_size")
    channels = size_of(one, 3, "num_channels")
    count = 16
    return {
        "pixel_values": torch.randn(BATCH, count, channels * patch * patch),
        "pixel_attention_mask": torch.ones(BATCH, count, dtype=torch.long),
        "pixel_mask": torch.ones(BATCH, count, dtype=torch.long),
        "spatial_shapes": torch.tensor([[4, 4]] * BATCH),
        "pixel_position_ids": torch.stack(
            torch.meshgrid(torch.arange(4), torch.arange(4), indexing="ij"), -1
        )
        .reshape(1, 16, 2)
        .expand(BATCH, 16, 2),
        "image_position_ids": torch.stack(
            torch.meshgrid(torch.arange(4), torch.arange(4), indexing="ij"), -1
        )
        .reshape(1, 16, 2)
        .expand(BATCH, 16, 2),
    }


def several_images(config: Any) -> Inputs:
    channels, height, width = sides(config)
    return {
        "pixel_values": torch.randn(BATCH, 2, channels, height, width),
        "pixel_attention_mask": torch.ones(BATCH, 2, height, width, dtype=torch.bool),
        "image_attention_mask": torch.ones(BATCH, LENGTH, 2, dtype=torch.long),
        "image_sizes": torch.tensor([[height, width]] * BATCH),
    }


def one_image_each(config: Any) -> Inputs:
    channels, height, width = sides(config)
    return {
        "pixel_values": torch.randn(BATCH, 1, channels, height, width),
        "image_sizes": torch.tensor([[height, width]] * BATCH),
        "pixel_attention_mask": torch.ones(BATCH, 1, height, width, dtype=torch.bool),
    }


def tiles(config: Any) -> Inputs:
    channels, height, width = sides(config)
    return {
        "pixel_values": torch.randn(BATCH, 1, 4, channels, height, width),
        "aspect_ratio_ids": torch.ones(BATCH, 1, dtype=torch.long),
        "aspect_ratio_mask": torch.ones(BATCH, 1, 4, dtype=torch.long),
        "cross_attention_mask": torch.ones(BATCH, LENGTH, 1, 4, dtype=torch.long),
    }


def movie(config: Any) -> Inputs:
    channels, height, width = sides(config)
    frames = size_of(vision(config), 4, "num_frames", "frames_per_clip")
    return {"pixel_values": torch.randn(BATCH, frames, channels, height, width)}


def movie_first(config: Any) -> Inputs:
    channels, height, width = sides(config)
    frames = size_of(vision(config), 4, "num_frames", "frames_per_clip")
    return {"pixel_values_videos": torch.randn(BATCH, frames, channels, height, width)}


def audio(config: Any) -> Any:
    return part(
        config, "audio_config", "audio_encoder_config", "encoder_config", "speech_config", "encoder"
    )


def frames_of(config: Any) -> tuple[int, int]:
    """Mel bins and frames of a sound."""
    one = audio(config)
    bins = size_of(
        one,
        80,
        "num_mel_bins",
        "input_feat_size",
        "input_feat_per_channel",
        "feature_size",
        "n_mels",
        "mel_dim",
        "input_dim",
        "num_mel_features",
    )
    longest = size_of(one, None, "max_source_positions")
    return bins, (2 * longest if longest and longest <= 64 else 64)


def spectrum(config: Any) -> Inputs:
    bins, frames = frames_of(config)
    return {
        "input_features": torch.randn(BATCH, bins, frames),
        "feature_attention_mask": torch.ones(BATCH, frames, dtype=torch.long),
        "input_features_mask": torch.ones(BATCH, frames, dtype=torch.long),
        "audio_feature_lengths": torch.full((BATCH,), frames),
    }


def spectrum_of_rows(config: Any) -> Inputs:
    made = spectrum(config)
    made["input_features"] = made["input_features"].mT.contiguous()
    made["input_features_mask"] = made["input_features_mask"].bool()
    return made


def only_spectrum(config: Any) -> Inputs:
    return {"input_features": spectrum(config)["input_features"]}


def only_rows(config: Any) -> Inputs:
    return {"input_features": spectrum_of_rows(config)["input_features"]}


def wide_rows(config: Any) -> Inputs:
    return {"input_features": torch.randn(BATCH, 50, 160)}


def widest_rows(config: Any) -> Inputs:
    return {"input_features": torch.randn(BATCH, 50, 560)}


def wider_rows(config: Any) -> Inputs:
    return {"input_features": torch.randn(BATCH, 50, 320)}


def joined_spectra(config: Any) -> Inputs:
    """Sounds one after the other, and their lengths (Qwen-Omni's audio encoders)."""
    bins, frames = frames_of(config)
    lengths = torch.full((BATCH,), frames)
    return {
        "input_features": torch.randn(bins, BATCH * frames),
        "feature_lens": lengths,
        "aftercnn_lens": (lengths - 1) // 2 + 1,
    }


def flattened(config: Any) -> Inputs:
    """Rows of patches that begin with the number of the row and the column (Pix2Struct)."""
    size = size_of(vision(config), 768, "patch_embed_hidden_size")
    places = torch.cartesian_prod(torch.arange(1, 5), torch.arange(1, 5)).float()
    rows = torch.randn(BATCH, 16, size)
    return {"flattened_patches": torch.cat([places.expand(BATCH, 16, 2), rows], -1)}


def seen_objects(config: Any) -> Inputs:
    return {
        "visual_feats": torch.randn(BATCH, 7, config.visual_feat_dim),
        "visual_pos": torch.rand(BATCH, 7, config.visual_pos_dim),
    }


def placed_image(config: Any) -> Inputs:
    """Text with places for the latent queries of an image (Kosmos-2)."""
    count = config.latent_query_num
    ids = torch.randint(SPECIAL, 90, (BATCH, count + LENGTH))
    mask = torch.zeros_like(ids)
    mask[:, 1 : 1 + count] = 1
    return image(config) | {
        "input_ids": ids,
        "attention_mask": torch.ones_like(ids),
        "image_embeds_position_mask": mask,
    }


def image_with_question(config: Any) -> Inputs:
    """Images, and a question for the Q-Former (InstructBLIP)."""
    made = image(config)
    ids = torch.randint(SPECIAL, 90, (BATCH, LENGTH))
    return made | {"qformer_input_ids": ids, "qformer_attention_mask": torch.ones_like(ids)}


def movie_with_question(config: Any) -> Inputs:
    made = image_with_question(config)
    return made | {"pixel_values": made["pixel_values"][:, None].repeat(1, 2, 1, 1, 1)}


def merged_patches(config: Any) -> Inputs:
    made = patches(config)
    return made | {
        "grid_thw": made["image_grid_thw"],
        "merge_sizes": torch.full((BATCH,), 2),
        "image_merge_sizes": torch.full((BATCH,), 2),
    }


def outer_states(config: Any) -> Inputs:
    """Hidden states of another model, as a decoder without an encoder reads them."""
    size = size_of(config, 64, "encoder_hidden_size", "cross_attention_hidden_size", "hidden_size")
    return {"encoder_hidden_states": torch.randn(BATCH, LENGTH + 3, size)}


def hidden_rows(config: Any) -> Inputs:
    return {"input_features": torch.randn(BATCH, 32, size_of(config, 64, "hidden_size"))}


def lone_features(config: Any) -> Inputs:
    bins, _ = frames_of(config)
    return {
        "input_features": torch.randn(BATCH, 1, 64, bins),
        "is_longer": torch.zeros(BATCH, 1, dtype=torch.bool),
    }


def clap_features(config: Any) -> Inputs:
    bins, _ = frames_of(config)
    return {
        "input_features": torch.randn(BATCH, 4, 1001, bins),
        "is_longer": torch.ones(BATCH, 1, dtype=torch.bool),
    }


def sound(config: Any) -> Inputs:
    return {"input_values": torch.randn(BATCH, 3200)}


def sound_channel(config: Any) -> Inputs:
    channels = size_of(config, 1, "audio_channels")
    return {
        "input_values": torch.randn(BATCH, channels, 3200),
        "audio_values": torch.randn(BATCH, 1, 3200),
    }


def sound_rows(config: Any) -> Inputs:
    bins = size_of(config, 80, "num_mel_bins")
    return {"input_values": torch.randn(BATCH, size_of(config, 64, "max_length"), bins)}


def sound_ids(config: Any) -> Inputs:
    return {
        "input_ids": torch.randint(5, 30, (BATCH, LENGTH)),
        "input_values": torch.randn(BATCH, 24, 80),
    }


def codes(config: Any) -> Inputs:
    count = size_of(
        config, 4, "num_codebooks", "num_quantizers", "n_codebooks", "in_channels", "num_channels"
    )
    return {"input_ids": torch.randint(5, 30, (BATCH, LENGTH, count))}


def rows_of_codes(config: Any) -> Inputs:
    count = size_of(part(config, "decoder"), 4, "num_codebooks")
    ids = torch.randint(5, 30, (BATCH * count, LENGTH))
    return {"decoder_input_ids": ids} if hasattr(config, "decoder") else {"input_ids": ids}


def series(config: Any) -> Inputs:
    """Past and future values of time series with their features."""
    length = size_of(config, 32, "context_length")
    lags = max(size_of(config, [0], "lags_sequence") or [0])
    ahead = size_of(config, 8, "prediction_length") or 8
    features = size_of(config, 0, "num_time_features") + size_of(
        config, 0, "num_dynamic_real_features"
    )
    targets = size_of(config, 1, "input_size")
    shape = (BATCH, length + lags) if targets == 1 else (BATCH, length + lags, targets)
    ahead_shape = (BATCH, ahead) if targets == 1 else (BATCH, ahead, targets)
    return {
        "past_values": torch.randn(shape),
        "past_time_features": torch.randn(BATCH, length + lags, features),
        "past_observed_mask": torch.ones(shape),
        "static_categorical_features": torch.zeros(
            BATCH, max(1, size_of(config, 1, "num_static_categorical_features")), dtype=torch.long
        ),
        "static_real_features": torch.randn(BATCH, size_of(config, 0, "num_static_real_features")),
        "future_values": torch.randn(ahead_shape),
        "future_time_features": torch.randn(BATCH, ahead, features),
    }


def patched_series(config: Any) -> Inputs:
    length = size_of(config, 32, "context_length")
    return {"past_values": torch.randn(BATCH, length, size_of(config, 1, "num_input_channels"))}


def plain_series(config: Any) -> Inputs:
    return {"past_values": torch.randn(BATCH, 64)}


def listed_series(config: Any) -> Inputs:
    return {"past_values": [torch.randn(64) for _ in range(BATCH)], "freq": [0] * BATCH}


def ids_only(config: Any) -> Inputs:
    return {"input_ids": torch.randint(SPECIAL, 90, (BATCH, LENGTH))}


def hidden(config: Any) -> Tensor:
    return torch.randn(BATCH, LENGTH, size_of(config, 64, "hidden_size", "d_model"))


MAKERS: dict[str, tuple[Callable[[Any], Inputs], ...]] = {
    "qformer_input_ids": (image_with_question, movie_with_question),
    "image_embeds_position_mask": (placed_image,),
    "merge_sizes": (merged_patches,),
    "image_merge_sizes": (merged_patches,),
    "image_grid_thw": (patches, square_patches, patches_in_row, patches_by_image),
    "grid_thw": (bare_patches, square_patches, patches_in_row),
    "target_sizes": (image_in_sizes,),
    "tgt_sizes": (image_in_sizes,),
    "spatial_shapes": (unfolded,),
    "aspect_ratio_ids": (tiles,),
    "pixel_position_ids": (unfolded,),
    "image_position_ids": (unfolded,),
    "pixel_values": (image, masked_image, one_image_each, several_images, movie, unfolded),
    "pixel_values_videos": (movie_first,),
    "flattened_patches": (flattened,),
    "feature_lens": (joined_spectra,),
    "visual_feats": (seen_objects,),
    "input_features": (
        spectrum, spectrum_of_rows, only_spectrum, only_rows, wide_rows, lone_features,
        clap_features, hidden_rows,
    ),
    "input_values": (sound, sound_channel, sound_rows, sound_ids),
    "audio_values": (sound_channel,),
    "past_values": (series, patched_series, plain_series, listed_series),
    "input_ids": (codes, rows_of_codes),
    "encoder_hidden_states": (outer_states,),
}  # fmt: skip
"""Makers of inputs by the argument that calls for them."""

OTHERS: dict[str, Callable[[Any], Any]] = {
    "hidden_states": hidden,
    "inputs_embeds": hidden,
    "encoder_hidden_states": hidden,
    "attention_mask": lambda config: torch.ones(BATCH, LENGTH, dtype=torch.long),
    "timestep": lambda config: torch.rand(BATCH),
    "input_ids": lambda config: ids_only(config)["input_ids"],
    "pixel_values": lambda config: image(config)["pixel_values"],
    "query_embeds": hidden,
    "image": lambda config: image(config)["pixel_values"],
    "image_mask": lambda config: torch.ones(BATCH, *sides(config)[1:], dtype=torch.long),
    "context": hidden,
    "qformer_input_ids": lambda config: ids_only(config)["input_ids"],
    "states": lambda config: torch.randn(BATCH, LENGTH, config.state_dim),
    "actions": lambda config: torch.randn(BATCH, LENGTH, config.act_dim),
    "visual_feats": lambda config: torch.randn(BATCH, 7, config.visual_feat_dim),
    "visual_pos": lambda config: torch.rand(BATCH, 7, config.visual_pos_dim),
    "labels": lambda config: torch.randint(0, 5, (BATCH, 80, 80)),
}
"""Arguments that some forwards insist on."""


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
