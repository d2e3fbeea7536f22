"""Hand-made results for tests of the report, and a reader that checks every tag of a page."""

import json
import math
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import pandas as pd

from headwise.drawing.heatmap import HeatMap
from headwise.head_table import HeadTable
from headwise.heads import parse_heads
from headwise.objectives.evaluation import Estimate
from headwise.pruning.export.sizes import Speed
from headwise.pruning.importance.importance_tables import Importance
from headwise.pruning.importance.redundancy import RedundantHeads
from headwise.pruning.record import ModelFacts, PruneRecord
from headwise.pruning.selection.curve import Curve
from headwise.report.data import AttentionMaps, ReportData
from headwise.scans.folder import Scan

from ..comparing.comparisons import embedding
from ..pruning.records import QUALITY, cut_scores, prune_record, score

VOID = {"meta", "link", "br", "hr", "img", "input"}
TOKENS = ("[CLS]", "red", "pens", ".", "[SEP]")
ROLES_BY_PLACE: dict[tuple[int, int], list[str]] = {
    (0, 0): ["positional"],
    (0, 1): ["delimiter", "sink"],
    (0, 2): ["syntactic", "semantic", "coreference"],
    (1, 0): ["induction"],
    (1, 2): ["duplicate"],
    (2, 1): ["broad"],
    (2, 4): ["positional"],
}


class Page(HTMLParser):
    """A page that was read: its elements in order, its text, and every tag that does not match."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.texts: list[str] = []
        self.faults: list[str] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()
        self.faults += [f"<{name}> is never closed" for name in self.open]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        if len(set(names)) < len(names):
            self.faults.append(f"<{tag}> has an attribute twice")
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.faults.append(f"</{tag}> closes nothing, or the wrong element")

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.texts.append(data)

    @property
    def text(self) -> str:
        """The visible text, in order."""
        return " ".join(" ".join(self.texts).split())

    def all(self, *tags: str) -> list[dict[str, str]]:
        """Attributes of all elements of some kinds."""
        return [attributes for tag, attributes in self.elements if tag in tags]


def table_of(roles: dict[tuple[int, int], list[str]] | None = None, **about: Any) -> HeadTable:
    """Three layers of five heads, of which the second has only three."""
    roles = ROLES_BY_PLACE if roles is None else roles
    places = [(layer, head) for layer in range(3) for head in range(3 if layer == 1 else 5)]
    df = pd.DataFrame(places, columns=["layer", "head"]).assign(stack="")
    df["roles"] = [roles.get(place, []) for place in places]
    df["normalised_entropy"] = [0.05 * number for number in range(len(places))]
    df["distance"] = 2.5
    for name in dict.fromkeys(role for names in roles.values() for role in names):
        df[f"{name}_score"] = [
            0.6 + 0.01 * number if name in names else math.nan
            for number, names in enumerate(df["roles"])
        ]
        df[f"{name}_threshold"], df[f"{name}_baseline"] = 0.5, 0.125
        df[f"{name}_detail"] = {
            "positional": "-1",
            "syntactic": "obj (verb -> object)",
        }.get(name, "")
    made = {"model": "small", "tokens": 1234, "counts": {"natural_sentences": 37}, **about}
    return HeadTable(df, made)


def drawn_of(table: HeadTable, tokens: tuple[str, ...] = TOKENS) -> AttentionMaps:
    """Maps of all heads in which every token looks at the one before it."""

    def maps(labels: tuple[str, ...]) -> dict[str, HeatMap]:
        size = range(len(labels))
        values = [[float(key == max(query - 1, 0)) for key in size] for query in size]
        names = map(str, table.heads)
        return {name: HeatMap(name, values, labels, labels) for name in names}

    return AttentionMaps("red pens.", maps(tokens), maps(tokens[1:-1]))


def relations_of(table: HeadTable, relation: str = "obj") -> pd.DataFrame:
    """Every head on one relation; L0H2 finds 75%, the others 10%."""
    rows = []
    for number, head in enumerate(table.heads):
        share = 0.75 if str(head) == "L0H2" else 0.1
        halves = {f"{half}_accuracy": share for half in ("half0", "half1")}
        halves |= {f"{half}_baseline": 0.25 for half in ("half0", "half1")}
        rows.append(
            {
                "source": "natural",
                "relation": relation,
                "reading": "governor",
                "name": str(head),
                "head": number,
                "accuracy": share,
                "low": share - 0.05,
                "high": share + 0.05,
                "arcs": 41,
                "baseline": "offset +1",
                "baseline_accuracy": 0.25,
                "p_value": 0.001,
                "counts": share > 0.5,
                **halves,
            }
        )
    return pd.DataFrame(rows)


def pairs_of() -> pd.DataFrame:
    """Three pairs, the most alike in the middle."""
    rows = [
        ("L0H0", "L0H1", 0.11, 0.3),
        ("L0H2", "L2H4", 0.87, math.nan),
        ("L1H0", "L1H1", 0.4, 0.1),
    ]
    return pd.DataFrame(rows, columns=["a", "b", "cka", "divergence"])


def importance_of(table: HeadTable) -> Importance:
    """Costs that grow from head to head; L0H0 and L0H1 stand in for each other."""
    names = [str(head) for head in table.heads]
    df = table.df[["stack", "layer", "head"]].copy()
    df["zero"] = [0.001 * (number - 1) for number in range(len(df))]
    df["zero_se"] = 0.0005
    df["expected"] = [{"L0H0": 0.07, "L0H1": 0.16}.get(name, 0.0) for name in names]
    others = {"L0H0": "L0H1", "L0H1": "L0H0"}
    df["stand_ins"] = [others.get(name, "") for name in names]
    matrix = pd.DataFrame(0.0, index=names, columns=names)
    for head, other, cost in (("L0H0", "L0H0", 0.2), ("L0H1", "L0H1", 0.4), ("L0H0", "L0H1", 0.1)):
        matrix.loc[head, other] = matrix.loc[other, head] = cost
    layers = pd.DataFrame(
        [
            {
                "layer": "L0",
                "heads": 5,
                "best": "L0H3",
                "added": 0.25,
                "added_se": 0.03,
                "shown": "0.7500",
            }
        ]
    )
    about = {"model": "small", "objective": "distance", "unit": "cosine", "examples": 29}
    group = RedundantHeads(parse_heads("L0H0 L0H1"), 0.9, 0.8, 0.23, 0.33)
    return Importance(HeadTable(df, about), matrix, (group,), layers)


def curve_of() -> Curve:
    """Two methods at three cuts of thirteen heads."""
    losses = {"rounds": (0.0, 0.02, 0.5), "random": (0.0, 0.2, 0.5)}
    rows = [
        {"method": method, "cut": cut, "share": cut / 13, "loss": loss, "loss_se": 0.01,
         "quality": 1 - loss, "low": 0.9 - loss, "high": 1 - loss}
        for method, values in losses.items()
        for cut, loss in zip((0, 5, 13), values, strict=True)
    ]  # fmt: skip
    ends = Estimate(0.0, 0.01), Estimate(0.5, 0.01)
    return Curve(pd.DataFrame(rows), ends[0], ends[1], "rounds", "cosine", 13)


def record_of(model: str = "small") -> dict[str, Any]:
    """The values of a prune.json: a cut of two heads."""
    record: dict[str, Any] = json.loads(prune_record(model=ModelFacts(model)).to_json())
    return record


def cut_of(model: str = "small") -> PruneRecord:
    """A cut of two heads, one of them without a role, whose corrections were dropped."""
    scores = cut_scores(0.0, 0.25, 0.25)
    return prune_record(
        model=ModelFacts(model),
        heads_cut=parse_heads("L0H0 L0H3"),
        quality=replace(
            QUALITY,
            scores=scores,
            registers={"given": scores},
            other=cut_scores(0.0, 0.375, 0.375),
            other_registers={"news": scores, "law": cut_scores(0.0, 0.5, 0.5)},
            random=(score(0.35), score(0.4), score(0.45)),
            random_lead=0.01,
            correction="none",
            is_dropped=True,
            floor=None,
        ),
        speed=(Speed(batch=16, positions=512, before=2.0, after=1.0, ratio=2.0, spread=0.1),),
    )


def data_of(
    table: HeadTable,
    pairs: pd.DataFrame | None = None,
    relations: pd.DataFrame | None = None,
    **parts: Any,
) -> ReportData:
    """The data of a report on a scan, with more parts as given."""
    frames = [pd.DataFrame() if frame is None else frame for frame in (pairs, relations)]
    return ReportData(scan=Scan(table, *frames), **parts)


def everything() -> ReportData:
    """Everything that a report can show."""
    table = table_of()
    return data_of(
        table,
        pairs_of(),
        relations_of(table),
        importance=importance_of(table),
        cut=cut_of(),
        curve=curve_of(),
        comparison=embedding((0.0, 0.002)),
        maps=drawn_of(table),
    )
