"""A scan in a few sentences, as the first section of the report.

In: `Findings`. Out: HTML. It measures nothing; it picks what a reader should not miss.
"""

from collections import Counter
from collections.abc import Iterator

from headwise.drawing.html import Html, bullets, join_html, section, tag
from headwise.formats import format_count, format_number, join_words
from headwise.heads import HeadTable
from headwise.report.data import ReportData
from headwise.report.relations_section import alike
from headwise.report.roles_section import in_words
from headwise.views.heads import strongest_of


def summary(found: ReportData) -> Html:
    """The scan in words."""
    table = found.table
    num_roles = len(table) - len(table.without_role)
    read = [f"{format_count(found.tokens, 'token')} of text"] if found.tokens else []
    sentences = sum(count for name, count in found.counts.items() if name.endswith("_sentences"))
    read += [f"{format_count(sentences, 'sentence')} with known relations"] if sentences else []
    measured = f" They were measured on {join_words(read)}." if read else ""
    return section(
        "summary",
        "In short",
        tag(
            "p",
            f"{found.model} has {format_count(len(table), 'attention head')} in "
            f"{format_count(table.num_layers, 'layer')}.{measured} "
            f"{with_a_role(num_roles, len(table))}",
        ),
        tag("p", role_counts(table)),
        bullets(stands_out(found)),
        tag(
            "p",
            "A role says where a head looks. It does not prove what the model does with what is "
            "found there, that no other head does the same, or that the head is needed.",
            class_="limit",
        ),
    )


def with_a_role(count: int, total: int) -> str:
    """How many heads have a role, and what it means that others have none.

    >>> with_a_role(12, 12)
    'Every one of them passes the bar of at least one role.'
    """
    if count == total:
        return "Every one of them passes the bar of at least one role."
    useless = "which does not make them useless."
    if not count:
        return f"None of them passes the bar of any role, {useless}"
    others = "one does" if total - count == 1 else f"{total - count} do"
    return (
        f"{count} of them {'passes' if count == 1 else 'pass'} the bar of at least one role; the "
        f"other {others} nothing that this scan has a name for, {useless}"
    )


def role_counts(table: HeadTable) -> Html:
    """How many heads each role has."""
    held = table.held_roles
    parts = [f"{role} {len(table.with_role(role))}" for role in held]
    none = len(table.without_role)
    missing, untested = table.missed_roles, table.untested_roles
    said = f"Heads of each role, some with several: {', '.join([*parts, f'no role {none}'])}."
    none_is = f"No head is {join_words(missing, 'or')}." if missing else ""
    left = f"Not tested, because nothing was read that could decide them: {', '.join(untested)}."
    return join_html([said, none_is, left if untested else ""], " ")


def stands_out(found: ReportData) -> Iterator[object]:
    """Sentences about what a reader should not miss."""
    table = found.table
    for role in ("positional", "sink", "induction", "syntactic", "coreference"):
        if role in table.held_roles:
            yield in_words(strongest_of(table, role, 1)[0], role)
    busiest = Counter(head.layer_name for head in table.without_role).most_common(2)
    if busiest and (len(busiest) == 1 or busiest[0][1] > busiest[1][1]):
        layer, count = busiest[0]
        yield f"{layer} has the most heads without a role: {count} of its {in_layer(table, layer)}."
    best = alike(found.pairs).head(1)
    for row in best.itertuples():
        yield f"{row.a} and {row.b} give the most alike outputs: CKA {row.cka:.2f} of 1."
    if found.worth is not None and found.worth.table.df["zero"].notna().any():
        worth = found.worth.table.top("zero", len(table))
        first, last = worth.iloc[0], worth.iloc[-1]
        yield (
            f"Silencing {first['name']} costs most ({first['zero']:.2g} of loss), silencing "
            f"{last['name']} least ({last['zero']:.2g})."
        )
    if found.cut is not None:
        yield cut_in_words(found)


def in_layer(table: HeadTable, layer: str) -> int:
    """How many heads a layer has."""
    return sum(head.layer_name == layer for head in table.heads)


def cut_in_words(found: ReportData) -> str:
    """What a cut took and what it cost, in a sentence."""
    assert found.cut is not None
    cut = found.cut
    after = cut.qualities.get("refitted", cut.qualities.get("cut", (None, None)))[1]
    chance = cut.qualities.get("random_mean", (None, None))[1]
    scores = f"; {cut.unit} is then {format_number(after)}" if after is not None else ""
    beside = (
        f", and {format_number(chance)} with as many cut at random" if chance is not None else ""
    )
    was = "was" if len(cut.heads) == 1 else "were"
    return f"{format_count(len(cut.heads), 'head')} {was} cut{scores}{beside}."
