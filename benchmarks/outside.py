"""Do headwise's claims about a model hold on text that headwise has never seen?

Reads public data sets from a folder, in their usual formats (see outside_data.py), and prints one
table: the claim, the figure on our own text, the figure on that text, and the baseline there.
With `--cut` it checks cuts instead of roles: on sentence pairs for embedding models, on whole
documents for causal models, in one table per file.

    python benchmarks/outside.py --data FOLDER
    python benchmarks/outside.py smollm2 --data FOLDER --json outside.json
    python benchmarks/outside.py minilm --data FOLDER --cut 25% 50% 75%
    python benchmarks/outside.py smollm2 --data FOLDER --cut 20% 33% 50% --max-tokens 16384
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
from outside_cuts import CutCheck, run_cuts
from outside_measures import spearman
from transfer import parse_share

import headwise
from headwise.drawing.table import Table
from headwise.errors import HeadwiseError, OptionError
from headwise.files import write_aside
from headwise.formats import replace_nonfinite
from headwise.views.terminal import quiet_console, say, show_table


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


def check_folder(model: str, folder: Path, table: headwise.HeadTable) -> Iterator[Check]:
    """Every check that the files in a folder allow."""
    for path in sorted(filter(Path.is_file, folder.iterdir())):
        coreference: list[headwise.ProbeSentence] = []
        if path.suffix == ".conllu":
            yield from role_checks(table, "syntactic", path.name, relations_of(model, str(path)))
            coreference = outside_data.read_entities(path)
        elif outside_data.TABULAR & set(path.suffixes):
            coreference = outside_data.read_gap(path) or outside_data.read_bracketed(path)
            if pairs := outside_data.read_pairs(path):
                score = spearman(headwise.load(model, keeps_head=False), pairs)
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


def run_roles(model: str, folder: Path) -> list[Check]:
    """Scan the model on headwise's own text, check its roles on a folder, print the table."""
    checks = list(check_folder(model, folder, headwise.scan(model)))
    if not checks:
        raise OptionError(f"{folder} has no file in a known format")
    console = quiet_console()
    show_table(console, as_table(checks))
    for line in summary(checks):
        say(console, line)
    return checks


def main(arguments: Sequence[str] | None = None) -> None:
    """Check roles or cuts, and write the checks to a file if one is given."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model", nargs="?", default="minilm")
    parser.add_argument("--data", type=Path, required=True, help="folder with public data sets")
    parser.add_argument("--json", type=Path, help="also write the checks to this file")
    parser.add_argument(
        "--cut",
        nargs="+",
        type=parse_share,
        help="check cuts of these shares of the heads, such as 25%% 50%%, instead of roles",
    )
    parser.add_argument(
        "--max-tokens",
        type=int,
        default=16_384,
        help="with --cut: tokens per file of documents, spread over all of them (%(default)s)",
    )
    given = parser.parse_args(arguments)
    if not given.data.is_dir():
        parser.error(f"{given.data} is not a folder")
    if given.json and not given.json.parent.is_dir():
        parser.error(f"{given.json.parent} is not a folder")
    try:
        checks: Sequence[Check | CutCheck] = (
            run_cuts(given.model, given.data, given.cut, given.max_tokens)
            if given.cut
            else run_roles(given.model, given.data)
        )
        if given.json:
            values = replace_nonfinite([asdict(check) for check in checks])
            write_aside(given.json, json.dumps(values, indent=1))
    except HeadwiseError as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
