"""A GPT-2 with weights set by hand, in which every head does one known thing.

In: nothing. Out: the model and a tokenizer of single words. Tokens and positions are one-hot, in
blocks of their own; a head's queries and keys pick blocks, and a large factor makes them sharp.
"""

import random

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from torch import Tensor
from transformers import GPT2Config, GPT2Model, PreTrainedTokenizerFast

from headwise.probes.sentences import Arc, ProbeSentence

SIZE = 64  # of a block: positions, tokens, the token before, nothing
POSITION, TOKEN, BEFORE = (slice(SIZE * block, SIZE * (block + 1)) for block in range(3))
MARKS = (".", ",")
WORDS = tuple(f"w{number}" for number in range(SIZE - len(MARKS) - 1))
VOCABULARY = {word: number for number, word in enumerate(("[UNK]", *MARKS, *WORDS))}
PLANTED = {
    (0, 0): "positional",
    (0, 1): "sink",
    (0, 2): "delimiter",
    (1, 0): "induction",
    (2, 0): "syntactic",
}
TWINS = {
    (0, 3): "positional",
    (1, 3): "sink",
    (1, 2): "delimiter",
    (1, 1): "induction",
    (2, 1): "syntactic",
}
"""Copies of these heads whose keys mix up positions or tokens."""


def tokenizer() -> PreTrainedTokenizerFast:
    plain = Tokenizer(models.WordLevel(VOCABULARY | {"a": 3}, unk_token="[UNK]"))
    plain.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=plain, unk_token="[UNK]", pad_token="[UNK]")


def texts(count: int = 6, length: int = 50) -> list[str]:
    """Random words, every third one a mark."""
    generator = random.Random(5)
    return [
        " ".join(generator.choice(MARKS if place % 3 == 1 else WORDS) for place in range(length))
        for _ in range(count)
    ]


VERB_OF = {f"w{number}": f"w{number + 20}" for number in range(1, 20)}
"""Nineteen nouns, each with a verb of its own (the tokenizer gives w0 the number of "a")."""


def sentences(count: int = 60) -> list[ProbeSentence]:
    """A noun, its verb some way after it, and other nouns before, between and behind."""
    generator, examples = random.Random(7), []
    for _ in range(count):
        noun, *others = generator.sample(list(VERB_OF), 4)
        fill = [*others, *generator.choices(WORDS[40:], k=8)]
        generator.shuffle(fill)
        start = generator.randrange(0, 4)
        gap = generator.randrange(1, 7)
        words = [*fill[:start], noun, *fill[start : start + gap], VERB_OF[noun]]
        words += fill[start + gap :]
        arc = Arc("nsubj", dependent=start, governor=start + gap + 1)
        examples.append(ProbeSentence(tuple(words), (arc,)))
    return examples


def mixed_up() -> Tensor:
    return torch.eye(SIZE)[torch.randperm(SIZE, generator=torch.Generator().manual_seed(2))]


@torch.no_grad()
def model() -> GPT2Model:
    config = GPT2Config(
        vocab_size=SIZE, n_positions=SIZE, n_embd=4 * SIZE, n_head=4, n_layer=3, n_inner=3,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
    )  # fmt: skip
    gpt2 = GPT2Model(config).eval()
    for name, parameter in gpt2.named_parameters():
        parameter.fill_(1.0 if "ln_" in name and name.endswith("weight") else 0.0)
    gpt2.wte.weight[:, TOKEN] = torch.eye(SIZE)
    gpt2.wpe.weight[:, POSITION] = torch.eye(SIZE)
    one_back = torch.eye(SIZE).roll(-1, 1)  # position q to position q - 1
    one_back[0] = 0
    plant(gpt2, 0, 0, one_back, POSITION, torch.eye(SIZE), POSITION)
    plant(gpt2, 0, 3, one_back, POSITION, mixed_up(), POSITION)
    everywhere_first = torch.zeros(SIZE, SIZE)
    everywhere_first[:, 0] = 1
    plant(gpt2, 0, 1, everywhere_first, POSITION, torch.eye(SIZE), POSITION)
    at_marks = torch.zeros(SIZE, SIZE)
    at_marks[:, [VOCABULARY[mark] for mark in MARKS]] = 1
    plant(gpt2, 0, 2, at_marks, POSITION, torch.eye(SIZE), TOKEN)
    plant(gpt2, 1, 2, at_marks, POSITION, mixed_up(), TOKEN)
    carry(gpt2, 0, 0, TOKEN, BEFORE)
    plant(gpt2, 1, 0, torch.eye(SIZE), TOKEN, torch.eye(SIZE), BEFORE)
    plant(gpt2, 1, 1, torch.eye(SIZE), TOKEN, mixed_up(), BEFORE)
    plant(gpt2, 1, 3, everywhere_first, POSITION, mixed_up(), POSITION)
    verb_to_noun = torch.zeros(SIZE, SIZE)
    for noun, verb in VERB_OF.items():
        verb_to_noun[VOCABULARY[verb], VOCABULARY[noun]] = 1
    plant(gpt2, 2, 0, verb_to_noun, TOKEN, torch.eye(SIZE), TOKEN)
    plant(gpt2, 2, 1, verb_to_noun, TOKEN, mixed_up(), TOKEN)
    return gpt2


def plant(  # the two blocks that meet, and how
    gpt2: GPT2Model, layer: int, head: int, asks: Tensor, of: slice, tells: Tensor, about: slice
) -> None:
    """Queries are the block `of` through `asks`, keys the block `about` through `tells`."""
    weight, width = gpt2.h[layer].attn.c_attn.weight, 4 * SIZE
    start = head * SIZE
    weight[of, start : start + SIZE] = asks
    weight[about, width + start : width + start + SIZE] = tells


def carry(gpt2: GPT2Model, layer: int, head: int, source: slice, target: slice) -> None:
    """The head's output is the block `source` of what it looks at, put into `target`."""
    attention, start = gpt2.h[layer].attn, head * SIZE
    attention.c_attn.weight[source, 8 * SIZE + start : 8 * SIZE + start + SIZE] = torch.eye(SIZE)
    attention.c_proj.weight[start : start + SIZE, target] = torch.eye(SIZE)
