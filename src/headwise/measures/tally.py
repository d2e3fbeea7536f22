"""Tally: everything a scan has counted so far; it can be saved, loaded and merged.

In: what single steps of a scan found. Out: sums. How they become a table is another's business.
"""

import io
import json
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from headwise.measures.totals import Key, Totals
from headwise.probes.scoring import RelationScores


@dataclass
class Tally:
    """Sums of a scan."""

    totals: Totals = field(default_factory=Totals)
    num_heads: dict[Key, int] = field(default_factory=dict)
    hsic: dict[str, Tensor] = field(default_factory=dict)
    """By stack: `[heads heads]` over all layers, how alike their outputs are."""
    divergence: dict[Key, Tensor] = field(default_factory=dict)
    """By layer: `[heads heads]` summed divergences, and in a last row how many."""
    relations: dict[str, RelationScores] = field(default_factory=dict)
    """By source and stack, `probe|encoder`: hits on sentences with gold relations."""
    counts: dict[str, int] = field(default_factory=dict)
    """Tokens, windows, sentences ... by name."""
    done: set[str] = field(default_factory=set)
    """Names of the steps that are in."""

    def count(self, name: str, number: int) -> None:
        """Add to a count."""
        self.counts[name] = self.counts.get(name, 0) + number

    def add_to(self, sums: dict[Any, Tensor], key: Any, part: Tensor) -> None:
        """Add a matrix to those of its key."""
        part = part.double().cpu()
        sums[key] = sums[key] + part if key in sums else part

    def merge(self, other: "Tally") -> None:
        """Add what another process has counted."""
        self.totals.merge(other.totals)
        self.num_heads |= other.num_heads
        for stack, part in other.hsic.items():
            self.add_to(self.hsic, stack, part)
        for key, part in other.divergence.items():
            self.add_to(self.divergence, key, part)
        for source, scores in other.relations.items():
            if source in self.relations:
                self.relations[source].merge(scores)
            else:
                self.relations[source] = scores
        for name, number in other.counts.items():
            self.count(name, number)
        self.done |= other.done

    def to_bytes(self) -> bytes:
        """The whole tally as one file's content."""
        arrays: dict[str, Any] = {}
        for name, part in self.totals.state().items():
            arrays[f"total/{name}"] = part
        for stack, matrix in self.hsic.items():
            arrays[f"hsic/{stack}"] = matrix.numpy()
        for (stack, layer), matrix in self.divergence.items():
            arrays[f"divergence/{stack}|{layer}"] = matrix.numpy()
        for source, scores in self.relations.items():
            for name, part in scores.state().items():
                arrays[f"relation/{source}/{name}"] = part
        heads = [[stack, layer, number] for (stack, layer), number in self.num_heads.items()]
        note = {"num_heads": heads, "counts": self.counts, "done": sorted(self.done)}
        arrays["note"] = np.array(json.dumps(note))
        file = io.BytesIO()
        np.savez(file, **arrays)
        return file.getvalue()

    @classmethod
    def from_bytes(cls, content: bytes) -> "Tally":
        """The tally that gave this content."""
        tally, relations = cls(), dict[str, dict[str, Any]]()
        with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
            note = json.loads(str(arrays["note"]))
            totals = []
            for path in arrays.files:
                kind, _, name = path.partition("/")
                if kind == "total":
                    totals.append((name, arrays[path]))
                elif kind == "hsic":
                    tally.hsic[name] = torch.from_numpy(arrays[path])
                elif kind == "divergence":
                    stack, layer = name.split("|")
                    tally.divergence[stack, int(layer)] = torch.from_numpy(arrays[path])
                elif kind == "relation":
                    source, field_name = name.rsplit("/", 1)
                    relations.setdefault(source, {})[field_name] = arrays[path]
        tally.totals = Totals.from_state(totals)
        tally.relations = {
            source: RelationScores.from_state(state) for source, state in relations.items()
        }
        tally.num_heads = {(stack, layer): number for stack, layer, number in note["num_heads"]}
        tally.counts, tally.done = note["counts"], set(note["done"])
        return tally
