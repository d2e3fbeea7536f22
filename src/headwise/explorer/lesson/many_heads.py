"""The warm-up and the first three steps of the lesson, from one row of weights to many heads.

In: Facts. Out: LessonSteps. scores_to_output.py has the other four.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from headwise.attention.worked_example import cat_sleeps
from headwise.explorer.lesson import figures
from headwise.explorer.lesson.facts import MAX_TOKENS, Facts
from headwise.explorer.lesson.quiz import LessonStep, QuizQuestion, choice_question, number_question
from headwise.explorer.lesson.token_text import few, number, quote_token, share
from headwise.formats import format_count, join_words
from headwise.planning.plans import head_choices
from headwise.planning.shapes import divisors
from headwise.tracing.blur import ComparedRows
from headwise.tracing.layer_trace import trace_layer

TIE = 1e-3
"""The right option's number must differ from the others by more than this."""
WARM_UP_STEPS = ("input", "queries", "scores", "scaled", "weights", "mixed", "concat", "output")


def warm_up() -> LessonStep:
    """The warm-up: two tokens and two heads, small enough to follow by hand."""
    layer, tokens, x = cat_sleeps()
    trace = trace_layer(layer, x, tokens=tokens)
    steps = {name: step.values[0] for name, step in trace.steps.items() if step.axes[0] == "batch"}
    score, scaled = float(steps["scores"][0, 0, 0]), float(steps["scaled"][0, 0, 0])
    cat, sleeps = (row.tolist() for row in steps["weights"][0])
    products = " + ".join(f"{number(value)} x {number(value)}" for value in x[0, :2].tolist())
    mirror = float(steps["weights"][1, 1, 1])
    before, after = (steps[name][0].tolist() for name in ("concat", "output"))
    return LessonStep(
        name="warm-up",
        title="Two words, two heads, by hand",
        minutes=1.0,
        paragraphs=[
            f'Take the sentence "Cat sleeps". Each word is {len(x[0])} numbers: Cat '
            f"{_vector(x[0].tolist())}, sleeps {_vector(x[1].tolist())}. Head 0 reads the first "
            "two columns, head 1 the last two.",
            "A score says how well two words match: multiply their numbers in pairs and add up "
            f"the products. In head 0, Cat with itself scores {products} = "
            f"{number(score)}, with sleeps {number(float(steps['scores'][0, 0, 1]))}. Divided "
            f"by the square root of {steps['queries'].shape[-1]}, {number(score)} becomes "
            f"{scaled:.2f}. Softmax turns scores into shares that add up to one: Cat gives itself "
            f"{share(cat[0])} and sleeps {share(cat[1])}. Sleeps, all zeros in these columns, "
            f"shares evenly: {share(sleeps[0])} and {share(sleeps[1])}.",
            "Head 1 is the mirror image. Side by side, the heads' results for Cat are "
            f"{_vector(before)}; the matrix Wo mixes them into {_vector(after)}.",
        ],
        exercise="Switch between head 0 and head 1 and watch which word stays sharp.",
        question=number_question(
            "In head 1, how much of its attention does sleeps give itself?",
            mirror,
            f"Head 1 reads the columns that hold the numbers of sleeps. Its score with itself is "
            f"{number(float(steps['scores'][1, 1, 1]))} and with Cat "
            f"{number(float(steps['scores'][1, 1, 0]))}: the same two numbers that Cat has in "
            f"head 0, hence the same share, {mirror:.4f}.",
            0.015,
        ),
        figures=figures.WarmUpFigure(
            tokens=list(tokens),
            Wo=trace["Wo"].values.tolist(),
            **{name: steps[name].tolist() for name in WARM_UP_STEPS},
        ),
    )


def _vector(numbers: list[float]) -> str:
    return f"[{', '.join(f'{value:.2f}'.removesuffix('.00') for value in numbers)}]"


def why_many(facts: Facts) -> LessonStep:
    """The step on why one row of weights cannot be sharp on several tokens."""
    rows = facts.compared
    heads = [
        _row_figure(facts.trace.name_of(head), weights, rows, resting)
        for head, (weights, resting) in enumerate(zip(rows.weights, rows.resting, strict=True))
    ]
    single = _row_figure("one row", rows.weights.mean(0), rows, 0.0)
    entropy = math.fsum(row.entropy for row in heads) / len(heads)
    largest = math.fsum(row.largest for row in heads) / len(heads)
    cut = f" Only your first {MAX_TOKENS} tokens are followed." if facts.is_cut else ""
    return LessonStep(
        name="why-many",
        title="Why one head is not enough",
        minutes=1.5,
        paragraphs=[
            "A head gives every token (a word or a piece of one) a row of weights: shares, adding "
            f"up to {'one' if facts.scoring.sink is None else 'less than one'}, of what it takes "
            f"from each. In layer {facts.call.layer}, {facts.token} has "
            f"{format_count(len(heads), 'row')}: {_rows_sentence(facts, heads)}.{cut}",
            *_left_out_paragraph(facts),
            *_blur_paragraphs(facts, single, entropy, largest),
        ],
        exercise="Step through the heads and compare each row with the average row below them.",
        question=_blur_question(facts, heads[facts.head], len(heads)),
        figures=figures.WhyManyFigure(
            place=facts.place,
            keys=list(rows.keys),
            heads=heads,
            single=single,
            mean_entropy=entropy,
            mean_largest=largest,
        ),
    )


def _row_figure(
    name: str, weights: Float[Tensor, " key"], rows: ComparedRows, resting: float
) -> figures.RowFigure:
    return figures.RowFigure(
        name=name,
        weights=weights.tolist(),
        entropy=float(torch.special.entr(weights).sum()),
        largest=float(weights.max()),
        largest_key=rows.keys[int(weights.argmax())],
        resting=resting,
    )


def _rows_sentence(facts: Facts, heads: list[figures.RowFigure]) -> str:
    weights = facts.steps["weights"][:, facts.position]
    tops = [row.largest_key for row in heads]

    def look(head: int) -> str:
        is_self = tops[head] == facts.position
        where = "the token itself" if is_self else facts.quote(tops[head])
        return f"{share(float(weights[head, tops[head]]))} on {where}"

    sentence = f"{facts.name} puts {look(facts.head)}"
    others = [head for head, top in enumerate(tops) if top != tops[facts.head]]
    if not others:
        return sentence
    other = max(others, key=lambda head: float(weights[head, tops[head]]))
    return f"{sentence}, {heads[other].name} {look(other)}"


def _left_out_paragraph(facts: Facts) -> tuple[str, ...]:
    is_special = facts.trace.labels.is_special
    left_out = [key for key in range(len(facts.tokens)) if key not in facts.compared.keys]
    if not left_out:
        return ()
    names = [
        quote_token(facts.tokens[key]) if is_special[key] else facts.quote(key) for key in left_out
    ]
    resting = math.fsum(facts.compared.resting) / len(facts.compared.resting)
    return (
        f"On average, {share(resting)} of each row goes to special tokens or the first. "
        f"{join_words(list(dict.fromkeys(names)))} {'are' if len(left_out) > 1 else 'is'} left out "
        "below, with each row scaled up to one.",
    )


def _blur_paragraphs(
    facts: Facts, single: figures.RowFigure, entropy: float, largest: float
) -> tuple[str, str]:
    if facts.sees_one:
        return (
            "From here only one token can be seen, so every row lies on it alone: the heads cannot "
            "differ, and their average is as sharp as they are.",
            "Choose a later token in the next step and come back: then the heads look at different "
            "tokens, and you see why one row for all of them would be too little.",
        )
    if facts.trace.num_heads == 1:
        return (
            "This layer has only one head, so its single row has to serve every purpose, and what "
            "it gives one token it takes from another. Look at one token sharply, and all others "
            f"fade; look at several, and each gets little. Its largest weight is {share(largest)}.",
            f"Entropy measures how blurred a row is. This one has {entropy:.2f} nats, like an even "
            f"look at {math.exp(single.entropy):.1f} tokens.",
        )
    return (
        "With one head, a single row must serve every purpose. The row that looks "
        "wherever these heads look is their average, and blurred: its largest weight is "
        f"{share(single.largest)}, against a mean of {share(largest)} in the heads.",
        f"Entropy measures blur. The heads' rows average {entropy:.2f} nats, like an even look at "
        f"{math.exp(entropy):.1f} tokens; the single row has {single.entropy:.2f}, like "
        f"{math.exp(single.entropy):.1f}.",
    )


def _blur_question(facts: Facts, row: figures.RowFigure, num_heads: int) -> QuizQuestion:
    if num_heads == 1 or facts.sees_one:
        return number_question(
            f"This layer has {format_count(num_heads, 'head')}. How many rows of weights does each "
            "token have in it?",
            num_heads,
            f"One row for each head: {num_heads}.",
        )
    answer = row.largest / num_heads
    scaled = ", scaled up," if row.resting else ""
    return number_question(
        f"{facts.name}{scaled} puts {row.largest:.3f} on {facts.quote(row.largest_key)}. If the "
        f"other {format_count(num_heads - 1, 'head')} ignored that token, how much weight would "
        f"the average of all {num_heads} rows put on it?",
        answer,
        f"The others bring nothing, so the average is {row.largest:.3f} / {num_heads} = "
        f"{number(answer)}. What one head sees clearly, a single row for all can hardly show.",
        0.05 * answer,
    )


def projections(facts: Facts) -> LessonStep:
    """The step on the query, key and value of one token."""
    query = facts.steps["queries"][facts.head, facts.position].tolist()
    key = facts.steps["keys"][facts.kv_head, facts.position].tolist()
    value = facts.steps["values"][facts.kv_head, facts.position].tolist()
    inputs = facts.steps["input"][facts.position].tolist() if "input" in facts.steps else None
    width = facts.d_model if inputs is None else len(inputs)
    many = "as many" if len(value) == len(query) else str(len(value))
    served = f" (its keys and values come from KV head {facts.kv_head})"
    return LessonStep(
        name="projections",
        title="A query, a key and a value",
        minutes=1.5,
        paragraphs=[
            f"The layer receives {facts.token} as {width:,} numbers. From them it makes three "
            "vectors for every head: a query, what this token is looking for; a key, "
            "what it can be found by; a value, what it hands over when it is found. Each comes "
            "from a matrix, Wq, Wk or Wv, whose numbers were learned in training.",
            f"In {facts.name}{served if _is_grouped(facts) else ''} the query of {facts.token} is "
            f"{few(query)}, its key {few(key)}, its value {few(value)}. "
            f"Query and key both have {len(query)} numbers, since they will be compared; the value "
            f"has {many}. These are the very numbers the model works with, after any bias or "
            "rotation by position.",
        ],
        exercise="Pick another token and watch its query, key and value change.",
        question=_projection_question(facts),
        figures=figures.ProjectionsFigure(
            place=facts.place,
            input=inputs,
            query=query,
            key=key,
            value=value,
            kv_head=facts.kv_head,
            is_grouped=_is_grouped(facts),
            shapes=[
                figures.ShapeFigure(name, facts.trace[name].formula, facts.trace[name].shape)
                for name in ("input", "queries", "keys", "values")
                if name in facts.trace.steps
            ],
        ),
    )


def _is_grouped(facts: Facts) -> bool:
    return facts.num_kv_heads < facts.trace.num_heads


def _projection_question(facts: Facts) -> QuizQuestion:
    """Ask which query and key are multiplied; the right pair's product is the score."""
    queries = facts.steps["queries"][facts.head].double()
    keys = facts.steps["keys"][facts.kv_head].double()
    here = facts.position
    for other in facts.by_weight:
        if facts.tokens[other] == facts.tokens[here]:
            continue
        score = float(facts.scoring.scores[other])
        forward, back = float(queries[here] @ keys[other]), float(queries[other] @ keys[here])
        if abs(forward - back) <= TIE * max(1.0, abs(score)):
            continue
        assert abs(forward - score) < abs(back - score)
        name = facts.quote(other)
        return choice_question(
            f"Which two vectors decide how much {facts.token} looks at {name}?",
            f"the query of {facts.token} and the key of {name}",
            (
                f"the query of {name} and the key of {facts.token}",
                f"the value of {facts.token} and the value of {name}",
            ),
            f"The one that looks brings the query, the one that is looked at brings the key. In "
            f"{facts.name} their product is {score:.2f}, the score that later steps use; the other "
            f"way round it would be {back:.2f}. Values play no part in who looks where.",
        )
    d_key, count = len(queries[here]), facts.num_kv_heads
    return number_question(
        "How many numbers do all the keys of this one token have together, over the whole layer?",
        count * d_key,
        f"{format_count(count, 'key')} of {d_key} numbers: {count * d_key:,}.",
    )


def heads(facts: Facts) -> LessonStep:
    """The step on how the width is divided among heads."""
    num_heads, d_key = facts.trace.num_heads, facts.call.queries.shape[-1]
    d_model, width = facts.d_model, num_heads * d_key
    first, last = facts.head * d_key, (facts.head + 1) * d_key - 1
    groups = [
        [head for head, served in enumerate(facts.trace.kv_head_of) if served == kv_head]
        for kv_head in range(facts.num_kv_heads)
    ]
    if _is_grouped(facts):
        kin = [facts.trace.name_of(head) for head in groups[facts.kv_head]]
        last_words = (
            f"Keys and values are fewer here: {format_count(facts.num_kv_heads, 'KV head')} for "
            f"{num_heads} heads, which saves memory. {join_words(kin)} read KV head "
            f"{facts.kv_head}, each with queries of its own."
        )
    else:
        last_words = "In this model every head has keys and values of its own."
    return LessonStep(
        name="heads",
        title="One wide vector, many heads",
        minutes=1.5,
        paragraphs=[
            f"One large matrix makes the queries of all heads at once: {width:,} numbers for each "
            f"token, cut into {format_count(num_heads, 'piece')} of {d_key}. {facts.name} works on "
            f"numbers {first:,} to {last:,}, counted from 0, and never sees the others.",
            "More heads mean more patterns, each from shorter vectors. Look down the table: "
            f"where heads share out a width of {d_model:,}, heads times numbers per head is the "
            "same in every row, and so is the number of multiplications that scoring takes. What "
            "differs is what can be seen: one head has one pattern, and a head of very few numbers "
            "can tell little apart.",
            last_words,
        ],
        exercise="Pick another row of the table and watch the pieces get longer or shorter.",
        question=_heads_question(facts),
        figures=figures.HeadsFigure(
            place=facts.place,
            d_model=d_model,
            num_heads=num_heads,
            num_tokens=len(facts.tokens),
            columns=[first, last + 1],
            groups=groups,
            table=_head_count_table(facts),
        ),
    )


def _head_count_table(facts: Facts) -> list[figures.HeadCountFigure]:
    """A row for every head count that divides the width, and for the model's own."""
    own, num_tokens = (facts.trace.num_heads, facts.call.queries.shape[-1]), len(facts.tokens)
    choices = {
        (choice.num_heads, choice.d_key): list(choice.remarks)
        for choice in head_choices(facts.d_model, length=num_tokens)
    }
    choices.setdefault(own, ["heads do not share out d_model here"])
    return [
        figures.HeadCountFigure(
            num_heads=count,
            d_key=size,
            numbers=count * size,
            scores=count * num_tokens**2,
            multiply_adds=count * size * num_tokens**2,
            remarks=remarks,
            is_own=(count, size) == own,
        )
        for (count, size), remarks in sorted(choices.items())
    ]


def _heads_question(facts: Facts) -> QuizQuestion:
    num_heads, kv_head_of = facts.trace.num_heads, facts.trace.kv_head_of
    others = [head for head in range(num_heads) if kv_head_of[head] != facts.kv_head]
    if others and _is_grouped(facts):
        head = others[len(others) // 2]
        group = num_heads // facts.num_kv_heads
        return number_question(
            f"{num_heads} heads share {facts.num_kv_heads} KV heads, in order. Which KV head, "
            f"counted from 0, serves {facts.trace.name_of(head)}?",
            kv_head_of[head],
            f"Every KV head serves {group} heads that follow one another: {head} / {group}, "
            f"rounded down, is {kv_head_of[head]}.",
        )
    counts = set(divisors(facts.d_model)) - {num_heads}
    count = min(sorted(counts), key=lambda count: abs(math.log(count / (2 * num_heads))))
    answer = facts.d_model // count
    return number_question(
        f"If {format_count(count, 'head')} shared out the width of {facts.d_model:,}, how many "
        "numbers would each have?",
        answer,
        f"{facts.d_model:,} / {count} = {answer:,}. The width stays; only the cuts move.",
    )
