"""Normal equations: least squares from sums accumulated batch by batch.

In: rows of a linear layer's inputs and of its output errors. Out: for any ridge, the correction to
the weights that leaves the least error, and the error that it leaves on other rows. Memory depends
on the layer's width, not on the number of rows.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Correction:
    """Values to add to a linear layer's weights and bias."""

    weight: Float[Tensor, "input output"]
    bias: Float[Tensor, " output"]


class NormalEquations:
    """Sums, over rows, of the products of inputs and errors."""

    def __init__(self, width: int, outputs: int, *, has_bias: bool) -> None:
        """Start with no rows. Without a bias, the fitted plane passes through the origin."""
        self.has_bias = has_bias
        self.rows = 0
        self.gram = torch.zeros(width, width, dtype=torch.float64)
        self.cross = torch.zeros(width, outputs, dtype=torch.float64)
        self.input_sum = torch.zeros(width, dtype=torch.float64)
        self.error_sum = torch.zeros(outputs, dtype=torch.float64)
        self.squares = 0.0

    def add(self, inputs: Float[Tensor, "row input"], errors: Float[Tensor, "row output"]) -> None:
        """Add rows."""
        inputs, errors = inputs.float(), errors.float()
        self.rows += len(inputs)
        self.gram += (inputs.T @ inputs).double().cpu()
        self.cross += (inputs.T @ errors).double().cpu()
        self.input_sum += inputs.sum(0).double().cpu()
        self.error_sum += errors.sum(0).double().cpu()
        self.squares += float((errors.double() ** 2).sum())

    def solve(self, ridge: float | None) -> Correction:
        """The least-squares correction, shrunk towards zero by `ridge`.

        `ridge` is in units of the inputs' mean variance, or of their mean square if there is no
        bias. None corrects only the bias.
        """
        gram, cross, weight = self.gram, self.cross, torch.zeros_like(self.cross)
        if self.has_bias:
            gram = gram - torch.outer(self.input_sum, self.input_sum) / self.rows
            cross = cross - torch.outer(self.input_sum, self.error_sum) / self.rows
        size = gram.diagonal().mean()
        if ridge is not None and size > 0:  # otherwise there are no inputs, or all rows are equal
            weight = torch.linalg.solve(gram + ridge * size * torch.eye(len(gram)).to(gram), cross)
        bias = torch.zeros_like(self.error_sum)
        if self.has_bias:
            bias = (self.error_sum - self.input_sum @ weight) / self.rows
        return Correction(weight, bias)

    @property
    def mean_square(self) -> float:
        """Mean squared error per row without a correction."""
        return self.squares / max(self.rows, 1)

    def error_left(self, correction: Correction) -> float:
        """Mean squared error per row that remains on these rows after a correction."""
        weight, bias = correction.weight, correction.bias
        total = (
            self.squares
            - 2 * float((weight * self.cross).sum())
            - 2 * float(bias @ self.error_sum)
            + float((weight * (self.gram @ weight)).sum())
            + 2 * float((self.input_sum @ weight) @ bias)
            + self.rows * float(bias @ bias)
        )
        return total / max(self.rows, 1)
