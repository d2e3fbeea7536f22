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

from headwise.errors import OptionError, warn_user
from headwise.formats import join_words
from headwise.models import embedded
from headwise.models.loaded import LoadedModel, Source, as_loaded
from headwise.models.loading import LoadOptions
from headwise.objectives.evaluation import Evaluation, make_evaluation, text_batches
from headwise.objectives.losses import CustomLoss, Divergence, Embedding, LabelLoss
from headwise.objectives.model_objective import objective_for
from headwise.objectives.objective import Objective
from headwise.pruning.importance.ablation import ROOM
from headwise.reading.manual import manual_texts, sentences_of
from headwise.reading.reader import Reader, check_names, checked_batches, checked_texts
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
    own = folder_of(loaded.name)
    folder = own or snapshot_of(loaded)
    if objective is None:
        pooling = pooling_in(folder)
        objective = objective_for(loaded.model, loaded.tokenizer, pooling=pooling)
        is_unsaid = own is None and folder is not None and not (folder / POOLING).is_file()
        if isinstance(objective, Embedding) and is_unsaid:
            warn_user(
                f"the embeddings of {loaded.name} are taken for means over tokens: no {POOLING} in "
                "the cache says otherwise"
            )
    elif not isinstance(objective, Objective):
        objective = CustomLoss(objective)
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
        modes = pooling_modes(json.loads(file.read_text("utf-8")))
    except (OSError, ValueError, AttributeError, TypeError) as error:
        raise OptionError(f"{file} does not say how embeddings are pooled: {error}") from error
    if len(modes) != 1 or modes[0] not in POOLINGS:
        said = join_words(modes) or "nothing that it names"
        raise OptionError(
            f"{file} says that embeddings are pooled by {said}, and only cls and mean are known: "
            "give an objective"
        )
    return POOLINGS[modes[0]]


POOLINGS = {"cls": "cls", "cls_token": "cls", "mean": "mean", "mean_tokens": "mean"}
"""Poolings that are measured, by the names that sentence-transformers has had for them."""


def pooling_modes(facts: Mapping[str, Any]) -> list[str]:
    """The modes that a file names: `pooling_mode` since version 5.4, a flag for each before."""
    mode = facts.get("pooling_mode")
    if mode is not None:
        return [mode] if isinstance(mode, str) else [str(one) for one in mode]
    flags = "pooling_mode_"
    return [
        name.removeprefix(flags)
        for name, is_set in facts.items()
        if name.startswith(flags) and is_set is True
    ]


def calibration(
    subject: Subject,
    texts: str | Sequence[str] | None,
    batches: Iterable[Mapping[str, Tensor]] | None,
    *,
    max_tokens: int | None,
) -> Evaluation:
    """What the model is measured on: batches as they are given, or texts; else Python's manual."""
    if batches is not None:
        if texts is not None:
            raise OptionError("there are texts and batches to measure on: give one of them")
        return batch_task(subject, batches_for(subject, batches))
    return text_task(subject, texts_for(texts), max_tokens=max_tokens)


def texts_for(texts: str | Sequence[str] | None) -> Sequence[str]:
    """Documents as they are given, one alone as it is; Python's manual where none are."""
    given = checked_texts(texts)
    return manual_texts() if given is None else given


def batches_for(subject: Subject, batches: Iterable[Inputs]) -> list[Inputs]:
    """The same batches, if the model could be called with them."""
    found = checked_batches(batches)
    for one in found:
        check_names(subject.model, one)
    return found


def batch_task(subject: Subject, batches: Sequence[Inputs]) -> Evaluation:
    """A task on batches as they are; those with labels measure how well they are predicted."""
    objective = subject.objective
    if isinstance(objective, Divergence) and batches and "labels" in batches[0]:
        objective = LabelLoss()
        is_both = getattr(subject.model.config, "is_encoder_decoder", False)
        if is_both and "decoder_input_ids" not in batches[0]:
            raise OptionError(
                f"{subject.name} has an encoder and a decoder: give decoder_input_ids beside labels"
            )
    return make_evaluation(subject.model, objective, batches)


def text_task(
    subject: Subject,
    texts: Sequence[str],
    *,
    max_tokens: int | None,
    seed: int = 0,
    is_measured: bool = True,
) -> Evaluation:
    """A task on texts: sentences for embedding models, whole windows for all others."""
    if subject.tokenizer is None:
        raise OptionError(
            f"{subject.name} reads no text, or came without a tokenizer: give batches of what it "
            "takes"
        )
    texts = list(texts)
    if isinstance(subject.objective, Embedding):
        texts = list(sentences_of(texts)) or texts
    random.Random(seed).shuffle(texts)  # so that the first of them are not all of one document
    reader = Reader(subject.tokenizer, subject.model.config, length=LENGTH)
    batches = text_batches(
        reader,
        texts,
        max_tokens=max_tokens,
        most_tokens=most_tokens(subject),
        device=subject.device,
    )
    return make_evaluation(subject.model, subject.objective, batches, is_measured=is_measured)


def most_tokens(subject: Subject) -> int:
    """Tokens of a batch whose output, for a loss over the vocabulary, is not too large."""
    config: Any = subject.model.config
    words = getattr(config.get_text_config(), "vocab_size", 1)
    width = 1 if isinstance(subject.objective, Embedding) else words
    return max(LENGTH, ROOM // width)
