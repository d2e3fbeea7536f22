"""Step 2: the query, key and value of every piece, and one dot product by hand.

In: Facts. Out: a LessonStep.
"""

import math

from torch import Tensor

from headwise.explorer.lesson import figures
from headwise.explorer.lesson.facts import Facts
from headwise.explorer.lesson.prose import Prose, part, prose, term
from headwise.explorer.lesson.quiz import LessonStep, QuizQuestion, number_question
from headwise.explorer.lesson.token_text import TIMES, few, signed

TERMS = 4
"""Number of products that the step writes out."""
TIE = 1e-3
"""Two sums differ if they are further apart than this share of the larger."""


def vectors(facts: Facts) -> LessonStep:
    """The step on queries, keys and values."""
    queries = facts.steps["queries"][facts.head].double()
    keys = facts.steps["keys"][facts.kv_head].double()
    values = facts.steps["values"][facts.kv_head].double()
    chosen = _chosen_key(facts)
    products = queries[facts.position] * keys
    seen = set(facts.by_weight)
    matches = [
        _match(row, queries[facts.position], key, at in seen)
        for at, (row, key) in enumerate(zip(products, keys, strict=True))
    ]
    width = len(facts.steps["input"][0]) if "input" in facts.steps else facts.d_model
    return LessonStep(
        name="vectors",
        title="Queries, keys and values",
        minutes=1.5,
        paragraphs=_opening(facts, width, chosen, len(values[0])),
        exercise=prose("Choose another key in the picture and compare the sums."),
        question=_product_question(facts, matches[chosen], chosen),
        figures=figures.VectorsFigure(
            place=facts.place,
            d_model=width,
            queries=queries.tolist(),
            keys=keys.tolist(),
            values=values.tolist(),
            matches=matches,
            chosen=chosen,
            kv_head=facts.kv_head,
            is_grouped=facts.is_grouped,
        ),
        after=_after(facts, queries, keys, chosen),
    )


def _chosen_key(facts: Facts) -> int:
    """The piece with the largest share, another one than the followed piece if possible."""
    others = [at for at in facts.by_weight if at != facts.position and not facts.is_special[at]]
    return [*others, *facts.by_weight][0]


def _match(products: Tensor, query: Tensor, key: Tensor, is_seen: bool) -> figures.MatchFigure:
    order = products.abs().argsort(descending=True, stable=True)[:TERMS].tolist()
    largest = []
    for at in order:
        left, right = round(float(query[at]), 2), round(float(key[at]), 2)
        largest.append(figures.ProductFigure(at + 1, left, right, round(left * right, 2)))
    score = float(products.sum())
    rest = round(score, 2) - math.fsum(each.product for each in largest)
    return figures.MatchFigure(is_seen, products.tolist(), largest, rest, score)


def _opening(facts: Facts, width: int, chosen: int, d_value: int) -> list[Prose]:
    here, there = facts.piece(facts.position), facts.piece(chosen)
    d_key = facts.call.queries.shape[-1]
    sizes = f"of {d_key} numbers" if d_key == d_value else f"of {d_key} and {d_value} numbers"
    split = [group for group in facts.text.groups if len(group) > 1]
    if facts.text.stage.groups and split:
        word = facts.word(facts.word_of[split[0][0]])
        pieces = prose(" (The model reads ", word, f" as {len(split[0])} ", term("pieces"),
                       ", also called tokens. From here to step 4 you see pieces.)")  # fmt: skip
    elif facts.text.stage.groups:
        pieces = prose(" (The model reads ", term("pieces"), ", also called tokens: words or "
                       "parts of words. Here every word is one piece.)")  # fmt: skip
    else:
        pieces = prose(" (You see the text as the model reads it: in ", term("pieces"),
                       ", also called tokens.)")  # fmt: skip
    if chosen == facts.position:
        match = prose("To see how well ", here, " matches itself, multiply its query by its key, ")
    else:
        match = prose("To see how well ", here, " matches ", there, ", multiply the ",
                      part("query", f"query {facts.position}"), " of ", here, " by the ",
                      part("key", f"key {chosen}"), " of ", there, ", ")  # fmt: skip
    return [
        prose("Where do the shares come from? The layer receives ", here,
              f" as {width:,} numbers. From them, {facts.name} makes three short lists {sizes}. It "
              "does so with three learned tables of numbers, the ", term("matrices"),
              " Wq, Wk and Wv.", pieces),
        prose("The ", term("query"), " says what a piece is looking for. The ", term("key"),
              " says what it can be found by. The ", term("value"),
              " is what it hands over once it is found. Every piece has all three."),
        prose(match, "number by number, and add up the products. The sum is called a ",
              term("dot product"), "."),
    ]  # fmt: skip


def _product_question(facts: Facts, match: figures.MatchFigure, chosen: int) -> QuizQuestion:
    top = match.largest[0]
    left, right, answer = signed(top.query), signed(top.key), top.product
    rough_left, rough_right = round(top.query * 2) / 2, round(top.key * 2) / 2
    return number_question(
        prose(f"By hand: number {top.number} of the query is {left}, and number {top.number} of "
              f"the key is {right}. What is their product?"),
        answer,
        hint=prose(f"Roughly: {few([rough_left])[1:-1]} {TIMES} {few([rough_right])[1:-1]} is "
                   f"{few([rough_left * rough_right])[1:-1]}. Two numbers of the same sign make a "
                   "product above zero."),
        why=prose(f"{left} {TIMES} {right} = {signed(answer)}. All "
                  f"{len(match.products)} products together make the dot product: "
                  f"{signed(match.score)}."),
        tolerance=max(0.02, 0.03 * abs(answer)),
        written=signed(answer),
    )  # fmt: skip


def _after(facts: Facts, queries: Tensor, keys: Tensor, chosen: int) -> list[Prose]:
    here, there = facts.piece(facts.position), facts.piece(chosen)
    forward = float(queries[facts.position] @ keys[chosen])
    back = float(queries[chosen] @ keys[facts.position])
    paragraphs = [
        prose("The sum is large if query and key are large in the same places and with the same "
              "sign. Nobody wrote these numbers: the tables Wq, Wk and Wv were learned in "
              "training.")
    ]  # fmt: skip
    if abs(forward - back) > TIE * max(abs(forward), abs(back), 1.0):
        paragraphs.append(
            prose("Looking has a direction. The query of ", there, " with the key of ", here,
                  f" makes {signed(back)}, not {signed(forward)}. Values play no part in who "
                  "looks where; they come in step 4.")
        )  # fmt: skip
    if facts.is_grouped:
        paragraphs.append(
            prose(f"This model saves memory: {facts.num_heads} heads share "
                  f"{facts.num_kv_heads} sets of keys and values. {facts.name} uses set "
                  f"{facts.kv_head}.")
        )  # fmt: skip
    return paragraphs
