"""Do headwise's claims about a model hold on text that headwise has never seen?

Reads public data sets from a folder, in their usual formats (see outside_data.py), and prints one
table: the claim, the figure on our own text, the figure on that text, and the baseline there.

    python benchmarks/outside.py --data FOLDER
    python benchmarks/outside.py smollm2 --data FOLDER --json outside.json
"""

import argparse
import json
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import outside_data
import pandas as pd
import torch
from rich.console import Console

import headwise
from headwise.drawing.table import Table
from headwise.formats import replace_nonfinite


@dataclass(frozen=True)
class Check:
    """One claim, and how it does on text from outside."""

    claim: str
    data: str
    own: float
    """The figure on headwise's own text; NaN if there is none."""
    outside: float
    baseline: float
    holds: bool | None
    """None for figures that are not a claim."""


def relations_of(model: str, sentences: str | Sequence[headwise.ProbeSentence]) -> pd.DataFrame:
    """How often each head finds the relations in these sentences."""
    settings = headwise.ScanSettings(measures="entropy", compares=False, repeats=False)
    with tempfile.TemporaryDirectory() as folder:
        headwise.scan(model, treebank=sentences, settings=settings, out=folder)
        return headwise.Scan.read(folder).relations


def role_checks(
    table: headwise.HeadTable, role: str, data: str, relations: pd.DataFrame
) -> Iterator[Check]:
    """Each head with the role: does it beat the best baseline, in the same relation and reading?"""
    by_key = relations.set_index(["relation", "reading", "name"])
    heads = sorted(table.with_role(role), key=lambda head: -table[head][f"{role}_score"])
    for head in heads:
        row = table[head]
        key = (row[f"{role}_relation"], row[f"{role}_reading"], str(head))
        if key in by_key.index:
            found = by_key.loc[key]
            accuracy, baseline = float(found["accuracy"]), float(found["baseline_accuracy"])
            claim = f"{head} {row[f'{role}_detail']}"
            score = float(row[f"{role}_score"])
            yield Check(claim, data, score, accuracy, baseline, accuracy > baseline)


def best_coreference(data: str, relations: pd.DataFrame) -> Check:
    """The best head on this text, whatever headwise calls it."""
    best = relations.sort_values("accuracy").iloc[-1]
    claim = f"(best head here: {best['name']}, {best['reading']})"
    return Check(claim, data, float("nan"), best["accuracy"], best["baseline_accuracy"], None)


def spearman(model: str, pairs: list[outside_data.ScoredPair]) -> float:
    """Rank correlation of people's scores with the cosine of mean-pooled embeddings."""
    loaded = headwise.load(model, keeps_head=False)
    texts = [text for pair in pairs for text in (pair.first, pair.second)]
    order = sorted(range(len(texts)), key=lambda index: len(texts[index]))
    pooled = torch.empty(len(texts), loaded.model.config.hidden_size)
    with torch.inference_mode():
        for start in range(0, len(order), 64):
            batch = order[start : start + 64]
            inputs = loaded.tokenizer(
                [texts[index] for index in batch],
                padding=True,
                truncation=True,
                return_tensors="pt",
            )
            states = loaded.model(**inputs).last_hidden_state
            mask = inputs["attention_mask"][..., None].to(states)
            pooled[batch] = (states * mask).sum(1) / mask.sum(1)
    cosines = torch.nn.functional.cosine_similarity(pooled[::2], pooled[1::2]).numpy()
    scores = np.array([pair.score for pair in pairs])
    ranks = [pd.Series(values).rank().to_numpy() for values in (cosines, scores)]
    return float(np.corrcoef(*ranks)[0, 1])


def check_folder(model: str, folder: Path, table: headwise.HeadTable) -> Iterator[Check]:
    """Every check that the files in a folder allow."""
    for path in sorted(folder.iterdir()):
        coreference: list[headwise.ProbeSentence] = []
        if path.suffix == ".conllu":
            yield from role_checks(table, "syntactic", path.name, relations_of(model, str(path)))
            coreference = outside_data.read_entities(path)
        elif {".tsv", ".txt", ".csv"} & set(path.suffixes):
            coreference = outside_data.read_gap(path) or outside_data.read_bracketed(path)
            if pairs := outside_data.read_pairs(path):
                score = spearman(model, pairs)
                nan = float("nan")
                yield Check(f"similarity of {len(pairs):,} pairs", path.name, nan, score, nan, None)
        if coreference:
            relations = relations_of(model, coreference)
            yield from role_checks(table, "coreference", path.name, relations)
            yield best_coreference(path.name, relations)


def as_table(checks: Sequence[Check]) -> Table:
    """The checks, one row each."""

    def number(value: float) -> str:
        return "" if np.isnan(value) else f"{value:.3f}"

    rows = [
        (
            *(check.data, check.claim, number(check.own), number(check.outside)),
            *(number(check.baseline), {None: "", True: "yes", False: "no"}[check.holds]),
        )
        for check in checks
    ]
    columns = ("data", "claim", "on our text", "on that text", "baseline", "holds")
    return Table("", columns, rows, columns[2:5])


def summary(checks: Sequence[Check]) -> list[str]:
    """How many claims of each kind hold in each file."""
    lines = []
    for data in dict.fromkeys(check.data for check in checks):
        claims = [check for check in checks if check.data == data and check.holds is not None]
        kinds = {"syntactic": [], "coreference": []}
        for check in claims:
            kinds["coreference" if " coreference (" in check.claim else "syntactic"].append(check)
        for kind, part in kinds.items():
            if part:
                held = sum(bool(check.holds) for check in part)
                lines.append(f"{data}: {held} of {len(part)} {kind} heads beat the best baseline")
    return lines


def main() -> None:
    """Scan the model on headwise's own text, check its claims on a folder, print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model", nargs="?", default="minilm")
    parser.add_argument("--data", type=Path, required=True, help="folder with public data sets")
    parser.add_argument("--json", type=Path, help="also write the checks to this file")
    given = parser.parse_args()
    if not given.data.is_dir():
        parser.error(f"{given.data} is not a folder")
    checks = list(check_folder(given.model, given.data, headwise.scan(given.model)))
    if not checks:
        parser.error(f"{given.data} has no file in a known format")
    console = Console(highlight=False)
    console.print(as_table(checks).to_rich())
    for line in summary(checks):
        console.print(line)
    if given.json:
        values = replace_nonfinite([asdict(check) for check in checks])
        given.json.write_text(json.dumps(values, indent=1))


if __name__ == "__main__":
    main()
