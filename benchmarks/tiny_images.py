"""Images and films for a model of any type: one function for each way in which models read them.

In: a model's config. Out: keyword arguments for its forward, some of which it may not accept.
"""

from typing import Any

import torch
from tiny_sizes import BATCH, LENGTH, SPECIAL, Inputs, part, size_of


def vision(config: Any) -> Any:
    """The config of the part that sees."""
    outer = part(config, "vlm_config", "thinker_config", "encoder")
    return part(
        outer, "vision_config", "backbone_config", "encoder", "image_config", "visual_config"
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
    """Images as they are."""
    return {"pixel_values": torch.randn(BATCH, *sides(config))}


def masked_image(config: Any) -> Inputs:
    """Images with masks of their pixels and their sizes."""
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


def tiled_images(config: Any) -> Inputs:
    """An image and its two tiles (LLaVA-NeXT; see `image_grid_pinpoints`)."""
    channels, height, width = sides(config)
    return {
        "pixel_values": torch.randn(BATCH, 3, channels, height, width),
        "image_sizes": torch.tensor([[height, 2 * width]] * BATCH),
    }


def several_images(config: Any) -> Inputs:
    """Two images for each text."""
    channels, height, width = sides(config)
    return {
        "pixel_values": torch.randn(BATCH, 2, channels, height, width),
        "pixel_attention_mask": torch.ones(BATCH, 2, height, width, dtype=torch.bool),
        "image_attention_mask": torch.ones(BATCH, LENGTH, 2, dtype=torch.long),
        "image_sizes": torch.tensor([[height, width]] * BATCH),
    }


def one_image_each(config: Any) -> Inputs:
    """One image for each text, on an axis of its own."""
    channels, height, width = sides(config)
    return {
        "pixel_values": torch.randn(BATCH, 1, channels, height, width),
        "image_sizes": torch.tensor([[height, width]] * BATCH),
        "pixel_attention_mask": torch.ones(BATCH, 1, height, width, dtype=torch.bool),
    }


def tiles(config: Any) -> Inputs:
    """Images in tiles (Mllama)."""
    channels, height, width = sides(config)
    return {
        "pixel_values": torch.randn(BATCH, 1, 4, channels, height, width),
        "aspect_ratio_ids": torch.ones(BATCH, 1, dtype=torch.long),
        "aspect_ratio_mask": torch.ones(BATCH, 1, 4, dtype=torch.long),
        "cross_attention_mask": torch.ones(BATCH, LENGTH, 1, 4, dtype=torch.long),
    }


def movie(config: Any) -> Inputs:
    """Frames of films."""
    channels, height, width = sides(config)
    frames = size_of(vision(config), 4, "num_frames", "frames_per_clip")
    return {"pixel_values": torch.randn(BATCH, frames, channels, height, width)}


def movie_first(config: Any) -> Inputs:
    """Frames of films, under another name."""
    channels, height, width = sides(config)
    frames = size_of(vision(config), 4, "num_frames", "frames_per_clip")
    return {"pixel_values_videos": torch.randn(BATCH, frames, channels, height, width)}


def flattened(config: Any) -> Inputs:
    """Rows of patches that begin with the number of the row and the column (Pix2Struct)."""
    size = size_of(vision(config), 768, "patch_embed_hidden_size")
    places = torch.cartesian_prod(torch.arange(1, 5), torch.arange(1, 5)).float()
    rows = torch.randn(BATCH, 16, size)
    return {"flattened_patches": torch.cat([places.expand(BATCH, 16, 2), rows], -1)}


def seen_objects(config: Any) -> Inputs:
    """Features and places of objects (LXMERT)."""
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
    """Frames of films, and a question for the Q-Former."""
    made = image_with_question(config)
    return made | {"pixel_values": made["pixel_values"][:, None].repeat(1, 2, 1, 1, 1)}


def merged_patches(config: Any) -> Inputs:
    """Like `patches`, with the sizes to merge."""
    made = patches(config)
    return made | {
        "grid_thw": made["image_grid_thw"],
        "merge_sizes": torch.full((BATCH,), 2),
        "image_merge_sizes": torch.full((BATCH,), 2),
    }
