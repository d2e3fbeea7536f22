"""Tiny models, texts and a tokenizer of single words, for measuring heads.

In: the name of a tiny family. Out: evaluations, and their results computed the long way: heads
silenced one run at a time, derivatives by finite differences. No checkpoint is loaded.
"""

import functools
import random
from collections.abc import Sequence

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from torch import Tensor, nn
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from headwise.heads import HeadCounts, HeadId
from headwise.objectives.evaluation import Evaluation, count_heads
from headwise.objectives.losses import CustomLoss, Divergence, Embedding, MaskedToken, NextToken
from headwise.objectives.objective import Objective, Sample
from headwise.pruning.surgery.cut import head_counts
from headwise.reading.batch import Inputs
from headwise.watching.gates import MeanOutputs, gate, silence

from ..attention.tolerance import assert_same
from ..watching.helpers import ROUNDINGS
from ..watching.tiny import ragged, tiny
from ..watching.tiny_configs import VOCABULARY

SPECIAL = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4}
WORDS = tuple(f"w{number}" for number in range(len(SPECIAL), VOCABULARY))
LENGTHS = (7, 13, 5, 11)
OBJECTIVES: dict[str, Objective] = {
    "bert": MaskedToken(SPECIAL["[MASK]"], frozenset(SPECIAL.values())),
    "gpt2": NextToken(),
    "llama": NextToken(),
    "clip": CustomLoss(lambda model, inputs: model(**inputs).text_embeds.square().sum(1)),
}
"""Objectives by family; all other families use the divergence from the uncut model."""

UNPADDED = {"vit", "clip", "gemma2"}
"""Families that read pictures, or whose padded rows are NaN in float64: see `Family.softmax_in`."""


def words_tokenizer() -> PreTrainedTokenizerFast:
    """A tokenizer whose tokens are words between spaces, with a mask token."""
    plain = Tokenizer(
        models.WordLevel(
            SPECIAL | {word: len(SPECIAL) + place for place, word in enumerate(WORDS)},
            unk_token="[UNK]",
        )
    )
    plain.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    names = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
    return PreTrainedTokenizerFast(
        tokenizer_object=plain, **{f"{name}_token": token for name, token in names.items()}
    )


def texts(count: int = 24, *, seed: int = 3) -> list[str]:
    """Documents of random words, 9 to 30 of them."""
    generator = random.Random(seed)
    return [" ".join(generator.choices(WORDS, k=generator.randrange(9, 31))) for _ in range(count)]


def model_of(name: str) -> nn.Module:
    """A fresh tiny model; "embedding" is a BERT without its prediction head."""
    if name == "embedding":
        model: nn.Module = tiny("bert")[0].base_model
        return model
    return tiny(name)[0]


@torch.no_grad()
def model_of_similar_tokens(name: str) -> nn.Module:
    """A model without its prediction head, whose heads output nearly the same for every token."""
    model: nn.Module = tiny(name)[0].base_model
    model.get_input_embeddings().weight.add_(2)
    return model


def objective_of(name: str) -> Objective:
    """The objective of the family in these tests."""
    return Embedding() if name == "embedding" else OBJECTIVES.get(name, Divergence())


def padded(name: str) -> Inputs:
    """A batch of four sequences of different lengths, padded on the right."""
    return ragged("bert" if name == "embedding" else name, LENGTHS)[0]


def plain(name: str) -> Inputs:
    """A batch without padding."""
    return tiny("bert" if name == "embedding" else name)[1]


@functools.cache
def task_of(name: str) -> Evaluation:
    """An evaluation on a padded batch and one without; for some families only the second."""
    batches = [plain(name)] if name in UNPADDED else [padded(name), plain(name)]
    return Evaluation.of_batches(model_of(name), objective_of(name), batches)


@functools.cache
def counts_of(name: str) -> HeadCounts:
    """Heads of the family's model by layer."""
    task = task_of(name)
    return count_heads(task.model, task.samples[0].inputs)


def split(inputs: Inputs, *sizes: int) -> list[Inputs]:
    """A batch as several, of these sizes."""
    parts = {name: value.split(list(sizes)) for name, value in inputs.items()}
    return [{name: parts[name][place] for name in parts} for place in range(len(sizes))]


def added_by_hand(
    task: Evaluation, heads: Sequence[HeadId], means: MeanOutputs | None = None
) -> float:
    """Loss with `heads` silenced, minus the loss."""
    with silence(task.model, heads, means=means):
        silent = task.loss().value
    return silent - task.loss().value


STEP = 2.0**-17
"""About the cube root of float64's eps: a central difference's rounding and truncation balance."""


@torch.no_grad()
def differences(task: Evaluation, sample: Sample, heads: Sequence[HeadId]) -> Tensor:
    """Derivatives of the output by every head's gate, `[heads batch ...]`, by differences."""
    slopes = []
    for head in heads:
        ends = [gated_output(task, sample, {head: 1 + sign * STEP}) for sign in (1, -1)]
        slopes.append((ends[0] - ends[1]) / (2 * STEP))
    return torch.stack(slopes)


@torch.no_grad()
def gated_output(task: Evaluation, sample: Sample, factors: dict[HeadId, float]) -> Tensor:
    """The measured output of the model with its heads multiplied by these factors."""
    gates: dict[str, Tensor] = {}
    for head, factor in factors.items():
        layer = str(head).rpartition("H")[0]
        gates.setdefault(layer, torch.ones(heads_in(task.model)[layer], dtype=torch.float64))
        gates[layer][head.head] = factor
    with gate(task.model, gates):
        return task.objective.output(task.model, sample.inputs)


@functools.cache
def heads_in(model: nn.Module) -> dict[str, int]:
    """Number of heads by layer, from the weights."""
    return {layer: num_heads for layer, (num_heads, _) in head_counts(model).items()}


def assert_close(got: Tensor, want: Tensor, dtype: torch.dtype, name: str = "result") -> None:
    """Equal except for the rounding of a pass through a tiny model."""
    assert_same(got, want, roundings=ROUNDINGS, dtype=dtype, name=name)


def state_of(model: nn.Module) -> dict[str, Tensor]:
    """A copy of the model's state."""
    return {name: value.clone() for name, value in model.state_dict().items()}


def assert_unchanged(model: nn.Module, before: dict[str, Tensor]) -> None:
    """Every bit of the model is the same, and its modules have no hooks and their own forward."""
    now = model.state_dict()
    assert now.keys() == before.keys()
    assert all(torch.equal(now[name], before[name]) for name in before)
    assert not any("forward" in vars(module) for module in model.modules())
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def head_size(model: PreTrainedModel) -> int:
    """Number of values that one head outputs."""
    config = model.config
    return getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
