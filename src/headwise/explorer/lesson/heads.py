"""Step 5: many heads, each with its own slice.

In: Facts. Out: a LessonStep, with the slices of a long query and where each head looks.
"""

from collections import Counter

import torch

from headwise.explorer.lesson import figures
from headwise.explorer.lesson.facts import Facts
from headwise.explorer.lesson.prose import Prose, join_runs, prose
from headwise.explorer.lesson.quiz import LessonStep, QuizQuestion, choice_question
from headwise.explorer.lesson.token_text import percent, shown
from headwise.formats import format_count, join_words

SHAPES = ("input", "queries", "scores", "mixed", "concat", "output")
MAX_OPTIONS = 4
MAX_NAMED = 3
"""Number of other heads that the text names and the picture shows."""
RESTING = 0.5
"""A head rests if it gives special words, and a causal model's first word, more than this."""
LEAST = 0.15
"""Least share of a head's best word for the head to be named."""


def heads(facts: Facts) -> LessonStep:
    """The step on how the heads of a layer divide one long query."""
    d_key, num_heads = facts.call.queries.shape[-1], facts.num_heads
    slices = [
        figures.SliceFigure(
            head=facts.lesson_head(head),
            columns=[head * d_key, (head + 1) * d_key],
            weights=facts.word_rows[head, facts.here].tolist(),
            largest_word=int(facts.word_rows[head, facts.here].argmax()),
            kv_head=facts.trace.kv_head_of[head],
        )
        for head in range(num_heads)
    ]
    query = facts.steps["queries"][:, facts.position].double().flatten().tolist()
    return LessonStep(
        name="heads",
        title="Many heads at once",
        minutes=1.5,
        paragraphs=_opening(facts, num_heads * d_key),
        exercise=prose("Choose slices to see where their heads look, up to four at a time."),
        question=_agreement_question(facts) or _slice_question(facts, d_key),
        figures=figures.HeadsFigure(
            place=facts.place,
            d_model=facts.d_model,
            d_key=d_key,
            query=query,
            heads=slices,
            shown=sorted([facts.head, *(head for head, _, _ in _others(facts))]),
            num_kv_heads=facts.num_kv_heads,
            shapes=[
                figures.ShapeFigure(
                    name, list(facts.steps[name].shape), list(facts.trace[name].axes[1:])
                )
                for name in SHAPES
                if name in facts.steps
            ],
        ),
        after=_after(facts, d_key),
    )


def _opening(facts: Facts, width: int) -> list[Prose]:
    here, num_heads = facts.word(facts.here), facts.num_heads
    row = facts.word_rows[facts.head, facts.here]
    top = int(row.argmax())
    spent = prose("You have followed one head. From ", here, f", {facts.name} gives "
                  f"{percent(float(row[top]))} to ", facts.word(top), ".")  # fmt: skip
    others = (
        f" The {num_heads - 1} other heads of layer {facts.call.layer} read the same sentence at "
        "the same time, and none of them knows what the others do."
        if num_heads > 1
        else " It is the only head of its layer."
    )
    return [
        prose(spent, others),
        prose("How is that possible? The layer makes one long query for ", here,
              f", {width:,} numbers, and cuts it into {format_count(num_heads, 'slice')}: one for "
              f"each head. {_seen_slice(facts)}{_cut_keys(facts)}"),
    ]  # fmt: skip


def _seen_slice(facts: Facts) -> str:
    return f"Step 2 showed only the slice of {facts.name}. " if facts.num_heads > 1 else ""


def _cut_keys(facts: Facts) -> str:
    if not facts.is_grouped:
        return "Keys and values are cut the same way."
    if facts.num_kv_heads == 1:
        return "Keys and values are not cut: all heads share one key and one value per piece."
    group = facts.num_heads // facts.num_kv_heads
    return (
        f"Keys and values are cut into only {facts.num_kv_heads}, each shared by "
        f"{format_count(group, 'head')}."
    )


def _agreement_question(facts: Facts) -> QuizQuestion | None:
    """How many heads of the layer look at the same word; None if they have no choice."""
    best = facts.word_rows[:, facts.here].argmax(-1).tolist()
    mine = best[facts.head]
    others = {head: word for head, word in enumerate(best) if head != facts.head}
    if not others or facts.sees_one:
        return None
    total, count = len(others), list(others.values()).count(mine)
    wrong = [guess for guess in (0, total, total // 2, 1, 2) if guess != count and guess <= total]
    example = next((head for head, word in others.items() if word != mine), next(iter(others)))
    words = Counter(others.values()).most_common(MAX_NAMED)
    listed = [prose(facts.word(word), f" ({number:,})") for word, number in words]
    if rest := total - sum(number for _, number in words):
        listed.append(prose(f"elsewhere ({rest:,})"))
    here, layer = facts.word(facts.here), facts.call.layer
    return choice_question(
        prose("From ", here, f", {facts.name} gives its largest share to ", facts.word(mine),
              f". How many of the other {format_count(total, 'head')} of layer {layer} do, too?"),
        f"{count:,}",
        [f"{guess:,}" for guess in dict.fromkeys(wrong)][: MAX_OPTIONS - 1],
        hint=prose("Each head has its own slice, so it can look for something else. "
                   f"{facts.trace.name_of(example)} gives its largest share to ",
                   facts.word(others[example]), "."),
        why=prose(f"The largest share of the other {format_count(total, 'head')} goes to ",
                  join_runs(listed), "."),
    )  # fmt: skip


def _slice_question(facts: Facts, d_key: int) -> QuizQuestion:
    num_heads = facts.num_heads
    width = num_heads * d_key
    wrong = [width, width * num_heads, num_heads, 2 * d_key, d_key + 1]
    options = [f"{value:,}" for value in dict.fromkeys(wrong) if value != d_key][:3]
    return choice_question(
        prose(f"{format_count(num_heads, 'head')} divide {width:,} numbers evenly. How many "
              "numbers does each head's query have?"),
        f"{d_key:,}",
        options,
        hint=prose(f"Divide {width:,} by {num_heads}."),
        why=prose(f"{width:,} / {num_heads} = {d_key:,}. More heads would mean shorter slices, not "
                  "more numbers."),
    )  # fmt: skip


def _after(facts: Facts, d_key: int) -> list[Prose]:
    here = facts.word(facts.here)
    paragraphs = []
    if facts.num_heads > 1 and not facts.sees_one:
        looks = [
            prose(f"{facts.trace.name_of(head)}{' at' if turn else ' looks most at'} ",
                  facts.word(word), f" ({percent(share)})")
            for turn, (head, word, share) in enumerate(_others(facts))
        ]  # fmt: skip
        found = prose("From ", here, ", ", join_runs(looks), f". {_not_counted(facts)}")
        paragraphs.append(
            prose("Each slice makes its own scores and its own shares. ", *(found if looks else ()),
                  " " if looks else "", _resting(facts))
        )  # fmt: skip
    if facts.is_grouped:
        group = facts.num_heads // facts.num_kv_heads
        paragraphs.append(
            prose(f"In this model, {format_count(group, 'head')} always share one key and one "
                  f"value per piece: there are {format_count(facts.num_kv_heads, 'KV head')} (K "
                  f"for key, V for value) for {facts.num_heads} heads. That saves memory.")
        )  # fmt: skip
    if facts.num_heads > 1:
        paragraphs.append(
            prose(f"A single head with all {facts.num_heads * d_key:,} numbers would cost at least "
                  "as many multiplications, but it would have only one row of shares. Several "
                  "heads buy several rows at no higher price.")
        )  # fmt: skip
    return paragraphs


def _not_counted(facts: Facts) -> str:
    """The columns that `ordinary_words` leaves out."""
    names = ["the word itself"]
    if facts.is_causal and facts.words[0].kind != "special":
        names.append("the first word")
    names += dict.fromkeys(shown(word.text) for word in facts.words if word.kind == "special")
    if any(word.kind == "mark" for word in facts.words):
        names.append("punctuation")
    return f"(Not counting {join_words(names)}.)"


def _resting(facts: Facts) -> str:
    """How many of the other heads rest on special words, or on a causal model's first word."""
    rests = [
        word.kind == "special" or (at == 0 and facts.is_causal)
        for at, word in enumerate(facts.words)
    ]
    parts = facts.word_rows[:, facts.here][:, torch.tensor(rests)].sum(-1).tolist()
    others = [part for head, part in enumerate(parts) if head != facts.head]
    count = sum(part > RESTING for part in others)
    where = list(
        dict.fromkeys(shown(facts.words[at].text) for at in range(len(rests)) if rests[at])
    )
    if not where or len(where) > 2:
        return f"The shares of all {facts.num_heads} heads are in the picture: choose any slice."
    number = f"{count} of the {len(others)} other heads give"
    if count == 0:
        number = f"None of the {len(others)} other heads gives"
    elif count == 1:
        number = f"One of the {len(others)} other heads gives"
    if len(others) == 1:
        number = "The other head gives" if count else "The other head does not give"
    return f"{number} more than half to {' and '.join(where)}."


def _others(facts: Facts) -> list[tuple[int, int, float]]:
    """Other heads of the layer and the words that they look at most, each word only once."""
    named: dict[int, tuple[int, float]] = {}
    for head in range(facts.num_heads):
        row = facts.word_rows[head, facts.here]
        words = facts.ordinary_words(row)
        if head == facts.head or not words:
            continue
        word, share = words[0], float(row[words[0]])
        if share >= LEAST and share > named.get(word, (0, 0.0))[1]:
            named[word] = head, share
    mine = facts.ordinary_words(facts.word_rows[facts.head, facts.here])[:1]
    found = [(head, word, share) for word, (head, share) in named.items() if [word] != mine]
    found.sort(key=lambda each: -each[2])
    return found[:MAX_NAMED]
