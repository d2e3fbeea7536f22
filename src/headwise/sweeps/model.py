"""Model: the small transformer of a sweep, built on headwise's own layer.

In: symbols. Out: what it would answer to each question at each position. All models of a sweep have
the same embeddings, norms, feed-forward parts and readout; the attention of a `Variant` is the one
thing that differs.
"""

from collections.abc import Callable

from jaxtyping import Float, Int
from torch import Tensor, nn

from headwise.attention.layer import MultiHeadAttention
from headwise.sweeps.task import SweepTask
from headwise.sweeps.variants import Variant

WIDER = 2
"""How much wider than d_model the feed-forward parts are."""

MakeAttention = Callable[[int, Variant], nn.Module]


def own_attention(d_model: int, variant: Variant) -> nn.Module:
    """headwise's layer in the shape of a variant."""
    return MultiHeadAttention(
        d_model, variant.num_heads, d_key=variant.d_key, d_value=variant.d_value, is_causal=True
    )


class SweepBlock(nn.Module):
    """Attention, then a feed-forward part, each beside what it is given."""

    def __init__(self, d_model: int, attention: nn.Module) -> None:
        """Fresh weights around an attention."""
        super().__init__()
        self.before, self.attention = nn.LayerNorm(d_model), attention
        self.between = nn.LayerNorm(d_model)
        self.up, self.down = (
            nn.Linear(d_model, WIDER * d_model),
            nn.Linear(WIDER * d_model, d_model),
        )

    def forward(self, x: Float[Tensor, "batch position d_model"]) -> Tensor:
        """What follows from each position."""
        x = x + self.attention(self.before(x))
        added: Tensor = self.down(nn.functional.gelu(self.up(self.between(x))))
        return x + added


class SweepModel(nn.Module):
    """Embeddings, layers, and an answer to every question at every position."""

    def __init__(
        self, task: SweepTask, variant: Variant, *, d_model: int, layers: int,
        attention: MakeAttention = own_attention,
    ) -> None:  # fmt: skip
        """Fresh weights from torch's own random numbers."""
        super().__init__()
        self.task, self.variant = task, variant
        self.symbols = nn.Embedding(task.num_symbols, d_model)
        self.places = nn.Embedding(task.positions, d_model)
        self.layers = nn.Sequential(
            *(SweepBlock(d_model, attention(d_model, variant)) for _ in range(layers))
        )
        self.norm = nn.LayerNorm(d_model)
        self.readout = nn.Linear(d_model, len(task.questions) * task.num_answers)
        for table in (self.symbols, self.places):
            nn.init.normal_(table.weight, std=d_model**-0.5)

    def forward(
        self, symbols: Int[Tensor, "batch position symbol"]
    ) -> Float[Tensor, "batch position question answer"]:
        """Logits of every answer."""
        said: Tensor = self.readout(self.norm(self.states(symbols)))
        found: Tensor = said.unflatten(-1, (len(self.task.questions), -1))
        return found

    def states(self, symbols: Int[Tensor, "batch position symbol"]) -> Tensor:
        """What the last layer gives."""
        x = self.symbols(symbols).sum(2) + self.places.weight[: symbols.shape[1]]
        found: Tensor = self.layers(x)
        return found


def count_parameters(model: nn.Module) -> int:
    """All weights of a model."""
    return sum(one.numel() for one in model.parameters())


def accuracy_of(
    said: Float[Tensor, "batch position question answer"],
    answers: Int[Tensor, "batch position question"],
) -> Float[Tensor, " question"]:
    """Share of right answers to each question, where it is asked; NaN if it never is."""
    is_asked = answers >= 0
    is_right = (said.argmax(-1) == answers) & is_asked
    return is_right.sum((0, 1)) / is_asked.sum((0, 1))


def loss_of(
    said: Float[Tensor, "batch position question answer"],
    answers: Int[Tensor, "batch position question"],
) -> Float[Tensor, ""]:
    """Mean cross-entropy, in nats, of all answers that are asked for."""
    return nn.functional.cross_entropy(said.flatten(0, 2), answers.flatten())
