"""Sound: which parts of a model's sound inputs are silence.

In: tensors of sound, as samples or as a spectrogram. Out: True for each silent position of a layer
whose positions divide the sound evenly.
"""

from collections.abc import Mapping

import torch
from jaxtyping import Bool, Float
from torch import Tensor

SOUND_INPUTS = ("input_features", "input_values")
"""Names under which transformers models take sound."""
QUIET = 0.1
"""A frame is silent if its loudness is in this lowest share of the sound's own range. Padding is
the quietest that a sound can be, so it always counts."""


def find_silence(inputs: Mapping[str, Tensor], size: int) -> Bool[Tensor, "batch position"] | None:
    """True for each of `size` positions that is silence; None without sound or without silence.

    A position is silent if all frames in its part of the sound are.
    """
    loudness = _loudness(inputs)
    if loudness is None or loudness.shape[1] < size:
        return None
    loudest, quietest = loudness.amax(1, keepdim=True), loudness.amin(1, keepdim=True)
    limit = quietest + QUIET * (loudest - quietest)
    frames = torch.nn.functional.adaptive_max_pool1d(loudness[:, None], size)[:, 0]
    return frames <= limit


def _loudness(inputs: Mapping[str, Tensor]) -> Float[Tensor, "batch frame"] | None:
    """A number for each frame or sample that is larger if it is louder."""
    sound = next((inputs[name] for name in SOUND_INPUTS if name in inputs), None)
    if sound is None or not isinstance(sound, Tensor) or not sound.is_floating_point():
        return None
    sound = sound.detach().float().cpu()
    if sound.dim() == 2:  # samples; the padding of a normalised sound is zero or its mean
        return (sound - sound.median(1, keepdim=True).values).abs()
    if sound.dim() != 3:
        return None
    mask = inputs.get("attention_mask")
    frames_last = mask is None or mask.shape[-1] != sound.shape[1]
    is_long = sound.shape[2] >= sound.shape[1]
    return sound.mean(1) if frames_last and is_long else sound.mean(2)
