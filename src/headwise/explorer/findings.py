"""Findings: the strongest links of a text, and facts that a scan found in other text.

In: a TextAnalysis, the roles of heads from a scan, and the scan's table. Out: Findings for the
page. "Links" claims only that a share of attention is large.
"""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from headwise.explorer.api_types import Finding, StageWord
from headwise.explorer.maps import MapOptions, map_axes, map_weights
from headwise.explorer.text_analysis import TextAnalysis
from headwise.head_table import HeadTable
from headwise.heads import HeadId
from headwise.reading.batch import query_stack

PRONOUNS = frozenset(
    "he him his himself she her hers herself it its itself they them their theirs themselves"
    " themself".split()
)
"""English personal pronouns that can stand for an earlier word."""
LINKING = ("induction", "duplicate", "coreference", "positional", "syntactic", "semantic")
"""Roles of heads that link one word to another; the others rest or spread their attention."""
MOST_LINKS, MOST_ROLES = 2, 3
STRONG = 0.295
"""Smallest share of a pronoun's link: 30% once rounded."""
LONGEST = 128
"""Number of words whose links are looked at."""


@dataclass(frozen=True)
class Link:
    """A head's share of attention from one word to another."""

    head: HeadId
    source: int
    target: int
    share: float

    def finding(self, role: str | None) -> Finding:
        """The link as the page shows it."""
        return Finding(
            "link",
            head=str(self.head),
            role=role,
            source=self.source,
            target=self.target,
            share=round(self.share, 5),
        )


class TextLinks:
    """Links between the words of a text, or between its pieces if it has no words."""

    def __init__(self, analysis: TextAnalysis) -> None:
        self.analysis, self.options = analysis, MapOptions(is_by_word=bool(analysis.stage.groups))
        self._weights: dict[str, Tensor] = {}

    @cached_property
    def layers(self) -> list[str]:
        """Layers whose rows and columns are both the text's words."""
        size = len(self.analysis.stage.pieces)
        return [
            name
            for name, call in self.analysis.calls.items()
            if call.num_queries == call.num_keys == size and query_stack(call.stack) == call.stack
        ]

    @cached_property
    def words(self) -> tuple[StageWord, ...]:
        """The words that links are looked for between."""
        if not self.layers:
            return ()
        return map_axes(self.analysis, self.layers[0], self.options)[0].words[:LONGEST]

    @cached_property
    def can_link(self) -> Tensor:
        """Whether each word can be an end of a link; marks and resting places cannot."""
        flags = [word.kind == "word" for word in self.words]
        if flags and self.analysis.rests_on_first:
            flags[0] = False
        return torch.tensor(flags, dtype=torch.bool)

    def weights(self, head: HeadId) -> Tensor:
        """The head's shares between words that can be linked; 0 for all others."""
        layer = head.layer_name
        if layer not in self._weights:
            part = slice(0, LONGEST)
            weights = map_weights(self.analysis, layer, self.options, part, part).cpu()
            ends = self.can_link[:, None] & self.can_link
            self._weights[layer] = weights * (ends & ~torch.eye(len(ends), dtype=torch.bool))
        return self._weights[layer][head.head]

    def strongest(self, head: HeadId, source: int | None = None) -> Link | None:
        """The strongest link of a head, or of one word in it; None if there is none."""
        weights = self.weights(head)
        rows = weights if source is None else weights[source : source + 1]
        if not rows.numel() or not rows.max() > 0:
            return None
        row, target = divmod(int(rows.argmax()), weights.shape[1])
        return Link(head, row if source is None else source, target, float(rows.max()))


def text_findings(
    analysis: TextAnalysis, leads: Mapping[HeadId, str], swap: Finding | None = None
) -> list[Finding]:
    """Findings in a text, given the lead role of each head; `swap` comes last.

    Links of pronouns to earlier words and the first pronoun's grammatical partner; if there are
    none, the strongest link of each of the commonest roles.
    """
    links = TextLinks(analysis)
    heads = {head: role for head, role in leads.items() if head.layer_name in links.layers}
    pronouns = _pronoun_links(links, [head for head in heads if heads[head] == "coreference"])
    found = [link.finding("coreference") for link in pronouns]
    if pronouns:
        syntactic = [head for head in heads if heads[head] == "syntactic"]
        partner = _best(links, syntactic, pronouns[0].source)
        found += [partner.finding("syntactic")] if partner else []
    else:
        found = _common_links(links, heads)
    return found + ([swap] if swap else [])


def _pronoun_links(links: TextLinks, heads: Collection[HeadId]) -> list[Link]:
    """The strongest links of personal pronouns to earlier words, one per pronoun."""
    places = [at for at, word in enumerate(links.words) if word.text.lower() in PRONOUNS]
    found: dict[int, Link] = {}
    for head in heads:
        for source in places:
            before = links.weights(head)[source, :source]
            if source and before.max() >= STRONG:
                link = Link(head, source, int(before.argmax()), float(before.max()))
                if source not in found or found[source].share < link.share:
                    found[source] = link
    return sorted(found.values(), key=lambda link: -link.share)[:MOST_LINKS]


def _common_links(links: TextLinks, leads: Mapping[HeadId, str]) -> list[Finding]:
    """The strongest link in each of the commonest roles that link words."""
    counts = Counter(role for role in leads.values() if role in LINKING)
    found = []
    for role, _ in counts.most_common(MOST_ROLES):
        link = _best(links, [head for head in leads if leads[head] == role])
        found += [link.finding(role)] if link else []
    return found


def _best(links: TextLinks, heads: Collection[HeadId], source: int | None = None) -> Link | None:
    candidates = [links.strongest(head, source) for head in heads]
    return max((link for link in candidates if link), key=lambda link: link.share, default=None)


def first_finding(analysis: TextAnalysis, findings: list[Finding], head: HeadId) -> Finding:
    """The finding that the page opens on: the first one, or the strongest link of `head`."""
    if findings and findings[0].kind == "link":
        return findings[0]
    links = TextLinks(analysis)
    link = links.strongest(head) if head.layer_name in links.layers else None
    return link.finding(None) if link else Finding("link", head=str(head))


def scan_findings(table: HeadTable, rests_on: str | None) -> list[Finding]:
    """The best positional head, the strongest sink, and the number of heads without a role.

    `rests_on` is the special token that begins every text; None if texts begin with a word.
    """
    df, found = table.df, []
    if head := _best_of_role(table, "positional"):
        row = table[head]
        offset = Finding("offset", str(head), "positional", share=float(row["positional_score"]))
        found.append(replace(offset, count=int(row["positional_detail"])))
    if head := _best_of_role(table, "sink"):
        row = table[head]
        is_first = row["sink_detail"] == "first"
        word = (rests_on or "the first word") if is_first else "the first four tokens"
        found.append(Finding("sink", str(head), "sink", share=float(row["sink_score"]), word=word))
    unclear = sum(not roles for roles in df["roles"])
    return [*found, Finding("unclear", count=unclear)]


def _best_of_role(table: HeadTable, role: str) -> HeadId | None:
    """The head with the largest score among those that the role leads."""
    scores = [
        (row[f"{role}_score"], head)
        for head, (_, row) in zip(table.heads, table.df.iterrows(), strict=True)
        if row["roles"][:1] == (role,)
    ]
    return max(scores, key=lambda pair: pair[0])[1] if scores else None
