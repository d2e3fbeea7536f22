"""Setting: a model with all that measuring and cutting it takes.

In: a name, a loaded model or a module. Out: a `Subject`, and tasks on its own or on built-in text.
"""

import json
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import try_to_load_from_cache
from huggingface_hub.errors import HFValidationError
from torch import Tensor, nn

from headwise.errors import OptionError
from headwise.measures.reading import Reader
from headwise.probes.manual import manual_texts, sentences_of
from headwise.pruning.ablation import ROOM
from headwise.pruning.objective import (
    Divergence,
    Embedding,
    Given,
    LabelLoss,
    Objective,
    objective_for,
)
from headwise.pruning.task import Task, make_task, text_batches
from headwise.watching import embedded
from headwise.watching.loading import LoadOptions
from headwise.watching.models import LoadedModel, Source, as_loaded
from headwise.watching.remarks import remark
from headwise.watching.running import Inputs

LENGTH = 256
"""Longest window in tokens of texts that heads are judged on: shorter ones are more examples."""


@dataclass(frozen=True, eq=False)
class Subject:
    """A model, its tokenizer, what it is measured by, and where it came from."""

    name: str
    model: nn.Module
    tokenizer: Any
    objective: Objective
    folder: Path | None = None
    """Where its files are, if that is known."""
    about: dict[str, Any] = field(default_factory=dict)

    @property
    def device(self) -> torch.device:
        """Where its weights are."""
        return next(self.model.parameters()).device


def make_subject(
    source: Source,
    tokenizer: Any = None,
    objective: Objective | Callable[[nn.Module, Inputs], Tensor] | None = None,
    *,
    options: LoadOptions | None = None,
) -> Subject:
    """The model of a name, with what it predicts with; or one that is loaded already."""
    loaded = as_loaded(source, tokenizer, options=options or LoadOptions(keeps_head=True))
    folder = folder_of(loaded.name)
    if objective is None:
        snapshot = snapshot_of(loaded) if folder is None else None
        pooling = pooling_in(folder or snapshot)
        objective = objective_for(loaded.model, loaded.tokenizer, pooling=pooling)
        if isinstance(objective, Embedding) and snapshot and not (snapshot / POOLING).is_file():
            remark(
                f"the embeddings of {loaded.name} are taken for means over tokens: no {POOLING} in "
                "the cache says otherwise"
            )
    elif not isinstance(objective, Objective):
        objective = Given(objective)
    about = {"model": loaded.name, **loaded.about}
    return Subject(loaded.name, loaded.model, loaded.tokenizer, objective, folder, about)


def folder_of(name: str) -> Path | None:
    """The directory that a model's files are in; None if it came from elsewhere."""
    if name in embedded.MODELS:
        found = embedded.find(name)
        return None if found is None else found.parent
    folder = Path(name).expanduser()
    return folder if folder.is_dir() else None


def snapshot_of(loaded: LoadedModel) -> Path | None:
    """Where the hub's cache keeps a model that was loaded by its id; no network is asked."""
    if loaded.about.get("source") != loaded.name:
        return None
    revision = loaded.about.get("revision")
    try:
        found = try_to_load_from_cache(loaded.name, "config.json", revision=revision)
    except HFValidationError:  # no id, whatever it is
        return None
    return Path(found).parent if isinstance(found, str) else None


POOLING = "1_Pooling/config.json"
"""The file of a sentence-transformers model that says how it pools."""


def pooling_in(folder: Path | None) -> str:
    """How a sentence-transformers model pools: `cls` or `mean`."""
    file = None if folder is None else folder / POOLING
    if file is None or not file.is_file():
        return "mean"
    try:
        facts = json.loads(file.read_text("utf-8"))
        modes = [name for name, is_set in facts.items() if name.startswith(MODE) and is_set is True]
    except (OSError, ValueError, AttributeError) as error:
        raise OptionError(f"{file} does not say how embeddings are pooled: {error}") from error
    known = {f"{MODE}cls_token": "cls", f"{MODE}mean_tokens": "mean"}
    if len(modes) > 1 or any(mode not in known for mode in modes):
        said = ", ".join(mode.removeprefix(MODE) for mode in modes)
        raise OptionError(f"embeddings pooled by {said} are not measured: give an objective")
    return known[modes[0]] if modes else "mean"


MODE = "pooling_mode_"
"""What names of poolings begin with in sentence-transformers' files."""


def calibration(
    subject: Subject,
    texts: str | Sequence[str] | None,
    batches: Iterable[Mapping[str, Tensor]] | None,
    *,
    max_tokens: int | None,
) -> Task:
    """What the model is measured on: batches as they are given, or texts; else Python's manual."""
    if batches is not None:
        if texts is not None:
            raise OptionError("there are texts and batches to measure on: give one of them")
        return batch_task(subject, list(batches))
    given = manual_texts() if texts is None else documents(texts)
    return text_task(subject, given, max_tokens=max_tokens)


def documents(texts: str | Sequence[str]) -> list[str]:
    """Texts as a list; a single one may be given as it is."""
    return [texts] if isinstance(texts, str) else list(texts)


def batch_task(subject: Subject, batches: Sequence[Inputs]) -> Task:
    """A task on batches as they are; those with labels measure how well they are predicted."""
    objective = subject.objective
    if isinstance(objective, Divergence) and batches and "labels" in batches[0]:
        objective = LabelLoss()
        is_both = getattr(subject.model.config, "is_encoder_decoder", False)
        if is_both and "decoder_input_ids" not in batches[0]:
            raise OptionError(
                f"{subject.name} has an encoder and a decoder: give decoder_input_ids beside labels"
            )
    return make_task(subject.model, objective, batches)


def text_task(
    subject: Subject,
    texts: Sequence[str],
    *,
    max_tokens: int | None,
    seed: int = 0,
    is_measured: bool = True,
) -> Task:
    """A task on texts: sentences for embedding models, whole windows for all others."""
    if subject.tokenizer is None:
        raise OptionError(
            f"{subject.name} reads no text, or came without a tokenizer: give batches of what it "
            "takes"
        )
    texts = list(texts)
    if isinstance(subject.objective, Embedding):
        texts = list(sentences_of(texts)) or texts
    random.Random(seed).shuffle(texts)  # so that a part of them is a part of every document
    reader = Reader(subject.tokenizer, subject.model.config, length=LENGTH)
    batches = text_batches(
        reader,
        texts,
        max_tokens=max_tokens,
        most_tokens=most_tokens(subject),
        device=subject.device,
    )
    return make_task(subject.model, subject.objective, batches, is_measured=is_measured)


def most_tokens(subject: Subject) -> int:
    """Tokens of a batch whose output, for a loss over the vocabulary, is not too large."""
    config: Any = subject.model.config
    words = getattr(config.get_text_config(), "vocab_size", 1)
    width = 1 if isinstance(subject.objective, Embedding) else words
    return max(LENGTH, ROOM // width)
