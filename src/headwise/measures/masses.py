"""Masses: how much attention goes to kinds of tokens: the first ones, separators, punctuation."""

from typing import ClassVar

import torch
from torch import Tensor

from headwise.measures.measure import Measure, RowValues
from headwise.measures.row_layout import RowLayout
from headwise.measures.sequence_view import SequenceView, Sums


class Masses(Measure):
    """`sum_k A[q,k]` over a class of keys, and the same weighted by the lengths of the values.

    Value-weighted: `A[q,k] |v_k Wo|` over its sum in the row (https://arxiv.org/abs/2004.10102).
    """

    columns: ClassVar[dict[str, str]] = {
        "first": "Mean weight on the first token, over the rows after it, 0 to 1.",
        "first4": "Mean weight on the first four tokens, over the rows after them, 0 to 1.",
        "special": "Mean weight on special tokens such as [CLS], [SEP] or BOS, 0 to 1.",
        "punctuation": "Mean weight on punctuation, 0 to 1.",
    }
    columns |= {
        f"value_{name}": words.replace("Mean weight", "Share of the value-weighted attention")
        for name, words in columns.items()
    }

    def classes(self, layout: RowLayout) -> dict[str, Tensor]:
        """Which keys are of each class."""

        def find() -> dict[str, Tensor]:
            position = torch.arange(layout.num_keys, device=layout.rows.device)
            found = {"first": position < 1, "first4": position < 4}
            if layout.tokens is not None:
                kinds = {
                    "special": layout.tokens.is_special,
                    "punctuation": layout.tokens.is_punctuation,
                }
                found |= {name: keys for name, keys in kinds.items() if keys is not None}
            return found

        return layout.once("classes", find)

    def features(self, view: SequenceView) -> dict[str, Tensor]:
        """Each class, and each class times the lengths of the values."""
        classes = self.classes(view.layout)
        features = {name: keys[None] for name, keys in classes.items()}
        if view.value_norms is not None:
            features["value_norm"] = view.value_norms
            for name, keys in classes.items():
                features[f"value_{name}"] = keys * view.value_norms
        return features

    def rows(self, layout: RowLayout) -> dict[str, Tensor]:
        """Which rows a class is about, where not all: those among the first cannot look back."""
        if layout.is_cross:
            return {}
        return layout.once(
            "rows of classes", lambda: {"first": layout.places >= 1, "first4": layout.places >= 4}
        )

    def finish(self, view: SequenceView, sums: Sums) -> dict[str, RowValues]:
        """Sums, and shares of the row's whole value-weighted attention."""
        rows, columns = self.rows(view.layout), {}
        for name in self.classes(view.layout):
            columns[name] = RowValues(sums[name], rows.get(name))
            if view.value_norms is not None:
                columns[f"value_{name}"] = RowValues(sums.value_share(name), rows.get(name))
        return columns
