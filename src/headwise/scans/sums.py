"""ScanSums: everything a scan has counted so far, which can be saved, loaded and merged.

In: counts from a scan's batches. Out: sums. tables.py turns them into tables.
"""

import io
import json
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from headwise.measures.head_sums import HeadSums
from headwise.probes.scoring import RelationScores


@dataclass
class ScanSums:
    """Everything a scan has counted so far."""

    heads: HeadSums = field(default_factory=HeadSums)
    relations: dict[str, RelationScores] = field(default_factory=dict)
    """Scores on sentences with gold relations, by source and stack, such as `probe|encoder`."""
    counts: Counter[str] = field(default_factory=Counter)  # tokens, windows, sentences ...
    left_out: dict[str, str] = field(default_factory=dict)
    """Layers that ran but cannot be measured, with the reason."""
    done: set[str] = field(default_factory=set)  # names of the batches added so far

    def merge(self, other: "ScanSums") -> None:
        """Add the sums of another process."""
        self.heads.merge(other.heads)
        for source, scores in other.relations.items():
            if source in self.relations:
                self.relations[source].merge(scores)
            else:
                self.relations[source] = scores
        self.counts.update(other.counts)
        self.left_out |= other.left_out
        self.done |= other.done

    def to_bytes(self) -> bytes:
        """All sums as the bytes of an .npz file."""
        arrays: dict[str, Any] = {}
        for ((stack, layer), column), sums in self.heads.columns.items():
            arrays[f"column/{stack}|{layer}|{column}"] = sums.numpy()
        for stack, matrix in self.heads.hsic.items():
            arrays[f"hsic/{stack}"] = matrix.numpy()
        for (stack, layer), matrix in self.heads.divergence.items():
            arrays[f"divergence/{stack}|{layer}"] = matrix.numpy()
        for source, scores in self.relations.items():
            for name, part in scores.state().items():
                arrays[f"relation/{source}/{name}"] = part
        heads = [[*key, number] for key, number in self.heads.num_heads.items()]
        note = {"num_heads": heads, "counts": self.counts, "done": sorted(self.done)}
        note["left_out"] = self.left_out
        arrays["note"] = np.array(json.dumps(note))
        file = io.BytesIO()
        np.savez(file, **arrays)
        return file.getvalue()

    @classmethod
    def from_bytes(cls, content: bytes) -> "ScanSums":
        """Restore sums from the bytes that `to_bytes` returned."""
        sums, relations = cls(), dict[str, dict[str, Any]]()
        heads = sums.heads
        with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
            note = json.loads(str(arrays["note"]))
            for path in arrays.files:
                kind, _, name = path.partition("/")
                match kind, *name.split("|", 2):
                    case "column", stack, layer, column:
                        key = (stack, int(layer)), column
                        heads.columns[key] = torch.from_numpy(arrays[path])
                    case "hsic", stack:
                        heads.hsic[stack] = torch.from_numpy(arrays[path])
                    case "divergence", stack, layer:
                        heads.divergence[stack, int(layer)] = torch.from_numpy(arrays[path])
                    case "relation", *_:
                        source, field_name = name.rsplit("/", 1)
                        relations.setdefault(source, {})[field_name] = arrays[path]
        sums.relations = {
            source: RelationScores.from_state(state) for source, state in relations.items()
        }
        heads.num_heads = {(stack, layer): number for stack, layer, number in note["num_heads"]}
        sums.counts, sums.done = Counter(note["counts"]), set(note["done"])
        sums.left_out = note["left_out"]
        return sums
