"""Processors: turn sound and pictures into a model's inputs, with the model's own processor.

In: a loaded model, and files. Out: one batch of tensors per file. A decoder that reads no text of
the user's reads what the model itself writes.
"""

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoFeatureExtractor, AutoImageProcessor, AutoProcessor
from transformers.modeling_outputs import BaseModelOutput

from headwise.errors import HeadwiseError, OptionError, warn_user
from headwise.models.load_errors import one_sentence, quiet
from headwise.models.loaded import LoadedModel
from headwise.models.modalities import other_kinds
from headwise.reading.batch import has_decoder
from headwise.reading.media_files import read_image, read_wav

WRITTEN = 32
"""Maximum number of tokens that a decoder writes if the user gives no text."""
PROMPT = {"image": "What is in this picture?", "audio": "What is said here?"}
"""Text beside a picture or a sound if the user gives none and the model reads both."""
KINDS = {"image": "images", "audio": "sound"}
LOADERS = {"image": AutoImageProcessor, "audio": AutoFeatureExtractor}

Inputs = dict[str, Tensor]


def media_inputs(
    loaded: LoadedModel,
    *,
    images: Sequence[Path] = (),
    sounds: Sequence[Path] = (),
    texts: Sequence[str] | None = None,
) -> list[Inputs]:
    """A batch of inputs for each picture and each sound.

    `texts` has one text for each of them, or one for all: a prompt, or what a speech model's
    decoder reads.
    """
    files = [("image", file) for file in images] + [("audio", file) for file in sounds]
    texts = texts or [""]
    if len(texts) not in (1, len(files)):
        raise OptionError(
            f"there are {len(texts)} texts for {len(files)} files: give one text for each, or one "
            "for all"
        )
    texts = texts if len(texts) == len(files) else list(texts) * len(files)
    readers = {kind: MediaReader.of(loaded, kind) for kind, _ in files}
    return [readers[kind].read(file, text) for (kind, file), text in zip(files, texts, strict=True)]


@dataclass(frozen=True, eq=False)
class MediaReader:
    """A model with its processor for pictures or sound."""

    loaded: LoadedModel
    kind: str
    """`image` or `audio`."""
    processor: Any
    part: Any
    """The part of the processor that reads this kind of file alone."""

    @classmethod
    def of(cls, loaded: LoadedModel, kind: str) -> "MediaReader":
        """Load the processor from the model's files; raises OptionError if there is none."""
        kinds = other_kinds(loaded.model)
        if KINDS[kind] not in kinds:
            raise OptionError(
                f"{loaded.name} reads no {KINDS[kind]}: leave out --{kind}"
                + (f", or give it {kinds[0]}" if kinds else "")
            )
        source = loaded.name if loaded.is_from_hub else loaded.folder
        processor = part = None
        for loader in (AutoProcessor, LOADERS[kind]):
            try:
                with quiet():
                    processor = loader.from_pretrained(source)
            except Exception:  # transformers raises many kinds of error for a missing processor
                continue
            name = "image_processor" if kind == "image" else "feature_extractor"
            part = getattr(processor, name, None)
            if part is None and hasattr(processor, "model_input_names"):
                part = None if hasattr(processor, "all_special_ids") else processor
            if part is not None:
                return cls(loaded, kind, processor, part)
        raise OptionError(
            f"{loaded.name} has no processor for {KINDS[kind]}: save one beside it with "
            "processor.save_pretrained, or pass tensors in Python"
        )

    @property
    def reads_text(self) -> bool:
        """Whether the model reads a text beside the file, through the same processor."""
        return "input_ids" in inspect.signature(self.loaded.model.forward).parameters

    def read(self, file: Path, text: str) -> Inputs:
        """The model's inputs for one file."""
        media = read_image(file) if self.kind == "image" else self._read_sound(file)
        try:
            inputs = self._process(media, text)
            return self._with_decoder(inputs, text)
        except HeadwiseError:
            raise
        except Exception as error:  # processors fail in many ways
            raise OptionError(
                f"the processor of {self.loaded.name} cannot read {file} ({one_sentence(error)}): "
                "pass tensors in Python"
            ) from error

    def _read_sound(self, file: Path) -> Any:
        rate = int(getattr(self.part, "sampling_rate", 16_000))
        samples, limit = read_wav(file, rate), getattr(self.part, "n_samples", None)
        if limit is not None and len(samples) > limit:
            warn_user(
                f"{file} is {len(samples) / rate:.1f} s long: {self.loaded.name} reads the first "
                f"{limit / rate:.0f} s"
            )
        return samples

    def _process(self, media: Any, text: str) -> Inputs:
        """Run the processor, and keep the tensors that the model's forward takes."""
        options: dict[str, Any] = {"return_tensors": "pt"}
        if self.kind == "audio":
            options["sampling_rate"] = int(getattr(self.part, "sampling_rate", 16_000))
        with quiet():
            if self.reads_text and self.processor is not self.part:
                prompt = self._prompt(text or PROMPT[self.kind])
                named = {"images": [media]} if self.kind == "image" else {"audio": media}
                processed = self.processor(text=[prompt], **named, **options)
            else:
                processed = self.part([media] if self.kind == "image" else media, **options)
        return self._fitting(processed)

    def _fitting(self, processed: Mapping[str, Any]) -> Inputs:
        """The tensors that the model takes, on its device and in its dtype."""
        model: Any = self.loaded.model
        parameters = inspect.signature(model.forward).parameters
        weight = next(model.parameters())
        tensors = {
            name: value
            for name, value in processed.items()
            if isinstance(value, Tensor) and name in parameters
        }
        return {
            name: value.to(weight.device, weight.dtype)
            if value.is_floating_point()
            else value.to(weight.device)
            for name, value in tensors.items()
        }

    def _prompt(self, text: str) -> str:
        """The text with the tokens that stand for the file, as the model's template puts them."""
        if getattr(self.processor, "chat_template", None):
            content = [{"type": self.kind}, {"type": "text", "text": text}]
            return str(self.processor.apply_chat_template([{"role": "user", "content": content}]))
        owners = (self.processor, getattr(self.processor, "tokenizer", None))
        tokens = (getattr(owner, f"{self.kind}_token", None) for owner in owners)
        token = next((token for token in tokens if isinstance(token, str)), "")
        return text if token in text else token + text

    def _with_decoder(self, inputs: Inputs, text: str) -> Inputs:
        """Add what the decoder reads, if the model has one that reads no `input_ids`."""
        model: Any = self.loaded.model
        config = getattr(model, "config", None)
        if self.reads_text or not has_decoder(config):
            if text and not self.reads_text:
                raise OptionError(f"{self.loaded.name} reads no text: leave out --text")
            return inputs
        if text and self.loaded.tokenizer is None:
            raise OptionError(
                f"{self.loaded.name} has no tokenizer for the text: save one beside it, or leave "
                "out --text for what the model itself writes"
            )
        device = next(iter(inputs.values())).device
        if text:
            ids = self.loaded.tokenizer(text, return_tensors="pt")["input_ids"].to(device)
        else:
            ids = write_tokens(model, inputs)
        return {**inputs, "decoder_input_ids": ids}


@dataclass
class EncodedSound(BaseModelOutput):  # type: ignore[misc]
    """An encoder's states, as decoders take them."""

    attention_mask: Tensor | None = None
    """Moonshine's decoder reads it."""


@torch.no_grad()
def write_tokens(model: Any, inputs: Inputs, most: int = WRITTEN) -> Tensor:
    """The most likely tokens `[1 position]` that a decoder writes, from its start token on.

    Only the start token if the model was loaded without its prediction head.
    """
    config = model.config
    choices = (
        getattr(config, f"{name}_token_id", None) for name in ("decoder_start", "bos", "eos")
    )
    start = next((token for token in choices if isinstance(token, int)), 0)
    device = next(iter(inputs.values())).device
    ids = torch.tensor([[start]], device=device)
    encoded: dict[str, Any] = {}
    limit = min(most, getattr(config, "max_target_positions", None) or most)
    while ids.shape[1] < limit:
        output = model(**inputs, **encoded, decoder_input_ids=ids)
        states = getattr(output, "encoder_last_hidden_state", None)
        if not isinstance(getattr(output, "logits", None), Tensor) or states is None:
            break
        encoded = {"encoder_outputs": EncodedSound(last_hidden_state=states)}
        token = output.logits[:, -1:].argmax(-1)
        if int(token) == getattr(config, "eos_token_id", None):
            break
        ids = torch.cat([ids, token], 1)
    return ids
