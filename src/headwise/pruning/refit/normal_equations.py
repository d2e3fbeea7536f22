"""Normal equations: least squares from sums that grow batch by batch.

In: rows of what a linear layer reads and of what it should give more than it does. Out: the
correction of its weights that helps most, for any ridge, and how well it does on other rows. Memory
is that of a matrix as wide as the layer, however many rows there are.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Correction:
    """What is added to a linear layer's weights and bias."""

    weight: Float[Tensor, "input output"]
    bias: Float[Tensor, " output"]


class NormalEquations:
    """Sums of products of inputs X and of the errors R that a correction is to take away."""

    def __init__(self, width: int, outputs: int, *, has_bias: bool) -> None:
        """No rows yet; without a bias the fitted plane goes through the origin."""
        self.has_bias = has_bias
        self.rows = 0
        self.gram = torch.zeros(width, width, dtype=torch.float64)
        self.cross = torch.zeros(width, outputs, dtype=torch.float64)
        self.input_sum = torch.zeros(width, dtype=torch.float64)
        self.error_sum = torch.zeros(outputs, dtype=torch.float64)
        self.squares = 0.0

    def add(self, inputs: Float[Tensor, "row input"], errors: Float[Tensor, "row output"]) -> None:
        """More rows."""
        inputs, errors = inputs.float(), errors.float()
        self.rows += len(inputs)
        self.gram += (inputs.T @ inputs).double().cpu()
        self.cross += (inputs.T @ errors).double().cpu()
        self.input_sum += inputs.sum(0).double().cpu()
        self.error_sum += errors.sum(0).double().cpu()
        self.squares += float((errors.double() ** 2).sum())

    def solve(self, ridge: float) -> Correction:
        """The correction that leaves the smallest error, shrunk towards none.

        `ridge` is in units of the mean of the inputs' variances (or squares, without a bias).
        """
        gram, cross, mean, level = self.gram, self.cross, self.input_sum, self.error_sum
        if self.has_bias:
            gram = gram - torch.outer(mean, mean) / self.rows
            cross = cross - torch.outer(mean, level) / self.rows
        size = gram.diagonal().mean()
        if size > 0:
            penalty = ridge * size
            weight = torch.linalg.solve(gram + penalty * torch.eye(len(gram)).to(gram), cross)
        else:  # no inputs, or inputs that are the same in every row
            weight = torch.zeros_like(cross)
        return Correction(weight, self.bias_for(weight))

    def solve_scales(self, weight: Tensor, num_heads: int) -> Correction:
        """The best factor for each head's rows of the weight, nothing else changed."""
        if not num_heads:
            return Correction(torch.zeros_like(self.cross), self.bias_for(self.cross * 0))
        weight = weight.detach().double().cpu()
        products = summed_by_head(self.gram * (weight @ weight.T), num_heads)
        target = (weight * self.cross).unflatten(0, (num_heads, -1)).sum((1, 2))
        factors = torch.linalg.lstsq(products, target[:, None]).solution[:, 0]
        found = factors.repeat_interleave(len(weight) // num_heads)[:, None] * weight
        return Correction(found, torch.zeros_like(self.error_sum))

    def solve_bias(self) -> Correction:
        """The best change of the bias alone."""
        none = torch.zeros_like(self.cross)
        return Correction(none, self.bias_for(none))

    def bias_for(self, weight: Tensor) -> Float[Tensor, " output"]:
        """The intercept that goes with a correction of the weights; 0 without a bias."""
        if not self.has_bias or not self.rows:
            return torch.zeros_like(self.error_sum)
        return (self.error_sum - self.input_sum @ weight) / self.rows

    def error_left(self, found: Correction) -> float:
        """Mean over rows of the squared error that a correction leaves on these rows."""
        weight, bias = found.weight, found.bias
        total = (
            self.squares
            - 2 * float((weight * self.cross).sum())
            - 2 * float(bias @ self.error_sum)
            + float((weight * (self.gram @ weight)).sum())
            + 2 * float((self.input_sum @ weight) @ bias)
            + self.rows * float(bias @ bias)
        )
        return total / max(self.rows, 1)


def summed_by_head(
    matrix: Float[Tensor, "input input"], num_heads: int
) -> Float[Tensor, "heads heads"]:
    """A matrix of inputs, added up over the inputs of every two heads."""
    apart = matrix.unflatten(0, (num_heads, -1)).unflatten(2, (num_heads, -1))
    found: Tensor = apart.sum((1, 3))
    return found
