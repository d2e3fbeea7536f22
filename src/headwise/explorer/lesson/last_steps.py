"""The last four steps of the lesson, from scores to the effect of silencing each head.

In: Facts. Out: LessonSteps. first_steps.py has the others.
"""

import math

from headwise.explorer.lesson.facts import Effects, Facts, Scoring
from headwise.explorer.lesson.figures import (
    SHOWN,
    DragFigure,
    MixingFigure,
    NextFigure,
    OutputFigure,
    OwnerFigure,
    ScoresFigure,
    SpareFigure,
    SpareHeadFigure,
)
from headwise.explorer.lesson.first_steps import TIE
from headwise.explorer.lesson.quiz import (
    MINUTES,
    LessonStep,
    QuizQuestion,
    choice_question,
    number_question,
)
from headwise.explorer.lesson.token_text import few, number, percent, power, quote_token, share
from headwise.formats import format_count, join_words
from headwise.roles import ROLES
from headwise.tracing.record import nested_lists, segregation

MAX_OPTIONS = 4


def scores(facts: Facts) -> LessonStep:
    """From products of queries and keys to weights."""
    scoring, top = facts.scoring, facts.by_weight[0]
    score = float(scoring.scores[top])
    return LessonStep(
        name="scores",
        title="From scores to shares",
        minutes=MINUTES["scores"],
        paragraphs=(
            f"{_product_clause(facts, top)}, number by number, and adds up the products: the score "
            f"is {score:.2f}. {_scaling_sentence(facts, score)}{_extras_sentences(facts, top)}",
            "Softmax makes shares of a row of scores: e to the power of each, divided by the sum "
            f"of all. Here {facts.quote(top)} gets {share(float(facts.row[top]))}"
            f"{_second_clause(facts)}.{_hidden_sentence(facts)}",
            _raising_sentence(facts),
        ),
        exercise=_drag_exercise(facts, top),
        question=_score_question(facts),
        figures=ScoresFigure(
            place=facts.place,
            scores=nested_lists(scoring.scores),
            scale=scoring.scale,
            softcap=scoring.softcap,
            added=nested_lists(scoring.added),
            sink=scoring.sink,
            scaled=nested_lists(facts.step("scaled")[facts.head, facts.position].double()),
            weights=nested_lists(facts.row),
            drag=DragFigure(top, score, float(facts.row[top])),
            step=1 / scoring.scale,
        ),
    )


def _product_clause(facts: Facts, top: int) -> str:
    start = f"To see how well {facts.token}"
    if top == facts.position:
        return f"{start} matches itself, {facts.name} multiplies its query by its key"
    both = f"{start} and {facts.quote(top)} match, {facts.name} multiplies"
    return f"{both} the query of the first by the key of the second"


def _scaling_sentence(facts: Facts, score: float) -> str:
    scale, d_key = facts.scoring.scale, facts.call.queries.shape[-1]
    if scale == 1:
        return "Many models now scale such sums down; this one takes them as they are."
    if math.isclose(scale, 1 / math.sqrt(d_key), rel_tol=1e-6):
        return (
            f"Sums of {d_key} products grow large, so the model divides them by the square root of "
            f"{d_key}, which leaves {score * scale:.2f}."
        )
    return f"The model multiplies it by {number(scale)}, which makes {score * scale:.2f}."


def _extras_sentences(facts: Facts, top: int) -> str:
    scoring = facts.scoring
    sentences = ""
    if scoring.softcap is not None:
        bent = float(scoring.bent(scoring.scores[top]))
        sentences += f" A cap bends it to {bent:.2f}: no score passes {number(scoring.softcap)}."
    if any(value not in (0.0, -math.inf) for value in scoring.added.tolist()):
        sentences += " This model also adds a number that depends on their distance."
    if scoring.sink is not None:
        sentences += (
            f" A further score of {scoring.sink:.2f} belongs to no token and takes a share, too."
        )
    return sentences


def _raising_sentence(facts: Facts) -> str:
    scoring = facts.scoring
    if facts.sees_one and scoring.sink is None:
        return "Its share is 1 whatever its score is: there is no other token to share with."
    if facts.sees_one:
        return "Raise its score, and the sink loses what it gains."
    start = "Only differences count: add the same to every score, and no weight moves. "
    return (
        f"{start if scoring.softcap is None and scoring.sink is None else ''}Raise one score, and "
        "its token takes what it gains from all the others, each in proportion to what it had."
    )


def _drag_exercise(facts: Facts, top: int) -> str:
    drag = f"Drag the score of {facts.quote(top)}"
    if not facts.sees_one:
        return f"{drag} down until another token leads the row."
    if facts.scoring.sink is None:
        return f"{drag}: alone in its row, it keeps its weight."
    return f"{drag} and watch what it takes from the sink."


def _hidden_sentence(facts: Facts) -> str:
    hidden = len(facts.tokens) - len(facts.by_weight)
    if not hidden:
        return ""
    gets = "gets" if hidden == 1 else "get"
    return f" {format_count(hidden, 'token')} cannot be seen from here and {gets} weight 0."


def _second_clause(facts: Facts) -> str:
    if len(facts.by_weight) < 2:
        return ""
    second = facts.by_weight[1]
    return f" and {facts.quote(second)}, next in line, {share(float(facts.row[second]))}"


def _score_question(facts: Facts) -> QuizQuestion:
    """The weight after its score is raised; or, if no score matters, the number of tokens seen."""
    scoring, step = facts.scoring, 1 / facts.scoring.scale
    best, best_gain, answer = 0, 0.0, 0.0
    for key in facts.by_weight:
        raised = scoring.scores.clone()
        raised[key] += step
        weight = float(scoring.weights(raised)[key])
        gain = weight - float(facts.row[key])
        if gain > best_gain:
            best, best_gain, answer = key, gain, weight
    if best_gain < 0.05:  # the row is all or nothing, and no drag of this size shows
        return _sight_question(facts)
    before, old = float(facts.row[best]), float(scoring.scores[best])
    return number_question(
        f"Drag the score of {facts.quote(best)} from {old:.2f} to {old + step:.2f}. Its "
        f"weight was {before:.3f}; what does it become?",
        answer,
        f"After scaling the step is worth 1, {_growth_clause(scoring, best)} and the whole row is "
        f"shared out anew: {answer:.3f}. Step after step it comes nearer to 1 and never passes it.",
        min(0.02, best_gain / 3),
    )


def _growth_clause(scoring: Scoring, key: int) -> str:
    if scoring.softcap is None:
        return f"so this token's part of the sum grows e = {math.e:.2f} times"
    old = scoring.scores[key]
    step = float(scoring.bent(old + 1 / scoring.scale) - scoring.bent(old))
    return (
        f"of which the cap leaves {step:.2f}, so this token's part of the sum grows "
        f"{math.exp(step):.2f} times"
    )


def _sight_question(facts: Facts) -> QuizQuestion:
    seen, whole = len(facts.by_weight), len(facts.tokens)
    return number_question(
        f"How many tokens can {facts.token} look at in this row, itself included?",
        seen,
        f"All {whole} tokens: none is blocked here."
        if seen == whole
        else f"{seen} of {whole} tokens: what cannot be seen is blocked before the softmax.",
    )


def mixing(facts: Facts) -> LessonStep:
    """Weights times values."""
    values = facts.step("values")[facts.kv_head].double()
    mixed = facts.step("mixed")[facts.head, facts.position].double()
    parts = facts.row[:, None] * values
    top = facts.by_weight[0]
    weight, value = float(facts.row[top]), float(values[top, 0])
    taken = [
        f"{share(float(facts.row[key]))} of "
        f"{'its own value' if key == facts.position else f'the value of {facts.quote(key)}'}"
        for key in facts.by_weight[:3]
    ]
    return LessonStep(
        name="mixing",
        title="Mixing the values",
        minutes=MINUTES["mixing"],
        paragraphs=(
            "The weights are settled; now something is fetched. Every token that is looked at "
            f"hands over its value, multiplied by its weight. In {facts.name}, {facts.token} takes "
            f"{join_words(taken)}{', and so on down the row' if len(facts.by_weight) > 3 else ''}.",
            f"Follow the first number. {facts.quote(top)} has {value:.3f} there and weight "
            f"{weight:.3f}: it brings {weight * value:.3f}. "
            f"{_sum_sentence(facts, float(mixed[0]))} "
            f"The same is done with each of the {len(mixed)} numbers: the mixed vector is "
            f"{few(mixed.tolist())}.",
            "Weights only say how much; what is carried is in the values. A large weight on a "
            "small value fetches little.",
        ),
        exercise="Point at a token and see what it brings to each number of the mixed vector.",
        question=_mixing_question(facts, top),
        figures=MixingFigure(
            place=facts.place,
            d_value=len(mixed),
            weights=nested_lists(facts.row),
            values=nested_lists(values[:, :SHOWN]),
            parts=nested_lists(parts[:, :SHOWN]),
            mixed=nested_lists(mixed[:SHOWN]),
            lengths=nested_lists(parts.norm(dim=-1)),
            difference=float((parts.sum(0) - mixed).abs().max()),
        ),
    )


def _sum_sentence(facts: Facts, whole: float) -> str:
    if facts.sees_one:
        return "No other token can be seen from here, so nothing is added to it."
    seen = len(facts.by_weight)
    return f"{'Both' if seen == 2 else f'All {seen}'} tokens together make {whole:.3f}."


def _mixing_question(facts: Facts, top: int) -> QuizQuestion:
    """One product: the largest that another token brings to a number that is shown."""
    values = facts.step("values")[facts.kv_head].double()[:, :SHOWN]
    parts = facts.row[:, None] * values
    sizes = parts.abs().clone()
    if len(facts.by_weight) > 1:
        sizes[top] = -1
    key, column = divmod(int(sizes.argmax()), sizes.shape[1])
    answer, weight, value = (
        float(each) for each in (parts[key, column], facts.row[key], values[key, column])
    )
    return number_question(
        f"{facts.quote(key)} has weight {number(weight)}, and number {column + 1} of its value is "
        f"{number(value)}. How much does it bring to number {column + 1} of the mixed vector?",
        answer,
        f"Weight times value: {number(weight)} x {number(value)} = {number(answer)}. The mixed "
        "vector adds up one such product for every token.",
        0.03 * abs(answer),
    )


def output(facts: Facts) -> LessonStep:
    """Concat and Wo: segregated before, shared after."""
    trace, here = facts.trace, facts.position
    contributions = facts.step("contributions")[:, here].double()
    mixed = facts.step("mixed")[:, here].double()
    bias = None if trace.bias is None else trace.bias.double().cpu()
    whole = contributions.sum(0) if bias is None else contributions.sum(0) + bias
    layer_output = facts.step("output")[here].double()
    difference = float((whole - layer_output).abs().max())
    before, after = segregation(trace.shares_before.cpu()), segregation(trace.shares_after.cpu())
    width, d_value = facts.step("concat").shape[-1], mixed.shape[-1]
    first, last = facts.head * d_value, (facts.head + 1) * d_value - 1
    most = max(range(trace.num_heads), key=lambda head: facts.shares[head])
    adds = f"{trace.name_of(most)} adds most for this token, {percent(facts.shares[most])}"
    if most != facts.head:
        adds += f"; {facts.name} adds {percent(facts.shares[facts.head])}"
    return LessonStep(
        name="output",
        title="Side by side, then together",
        minutes=MINUTES["output"],
        paragraphs=(
            f"Laid side by side, the mixed vectors of all heads make the concat: {width:,} "
            f"numbers for {facts.token}. So far the heads have not met: columns {first:,} to "
            f"{last:,} are {facts.name}'s alone.",
            "The output matrix Wo ends that. Each head owns some rows of it, and through them "
            f"adds a vector of full length, {facts.d_model:,} numbers, to the output. These "
            f"vectors{'' if bias is None else ' and a bias'} "
            f"{_check_sentence(trace.adds_up, difference)} By length, {adds}.",
            "Segregation is 1 where every column has one owner and 0 where all heads share "
            f"equally. Over your sentence it is {before:.2f} in the concat and {after:.2f} in the "
            f"output{': a lone head has nobody to share with' if trace.num_heads == 1 else ''}.",
        ),
        exercise="Switch between before and after Wo and watch one head's colour spread.",
        question=_output_question(facts, d_value),
        figures=OutputFigure(
            place=facts.place,
            d_model=facts.d_model,
            d_value=d_value,
            segregation_concat=before,
            segregation_output=after,
            difference=difference,
            adds_up=trace.adds_up,
            output=nested_lists(layer_output[:SHOWN]),
            bias=None if bias is None else nested_lists(bias[:SHOWN]),
            heads=[
                OwnerFigure(
                    name=trace.name_of(head),
                    columns=[head * d_value, (head + 1) * d_value],
                    concat=nested_lists(mixed[head, :SHOWN]),
                    concat_length=float(mixed[head].norm()),
                    contribution=nested_lists(contributions[head, :SHOWN]),
                    length=float(contributions[head].norm()),
                    share=facts.shares[head],
                    touched=int((contributions[head] != 0).sum()),
                )
                for head in range(trace.num_heads)
            ],
        ),
    )


def _check_sentence(adds_up: bool, difference: float) -> str:
    if not adds_up:
        return f"miss the output by {power(difference)}, more than rounding explains."
    return (
        "add up to the output: we checked, and the largest difference is "
        f"{power(difference) if difference else 0}, mere rounding."
    )


def _output_question(facts: Facts, d_value: int) -> QuizQuestion:
    added = facts.step("contributions")[facts.head, facts.position]
    touched = int((added != 0).sum())
    return number_question(
        f"{facts.name} fills {d_value} columns of the concat. How many of the {facts.d_model:,} "
        "numbers of the output does it change?",
        touched,
        f"Its {d_value} numbers meet {d_value} rows of Wo, and each row has {facts.d_model:,} "
        f"columns: counted here, {touched:,} of {facts.d_model:,} output numbers contain "
        "something of it.",
    )


MEASURES = {
    "cosine": "1 minus the cosine between the sentence's embedding without the head and the "
    "untouched one",
    "nats": "divergence of the model's prediction without the head from the untouched one, in nats",
    "loss": "how far the loss moves without the head",
}
"""The distance that bars show, for each unit."""


def spare(facts: Facts) -> LessonStep:
    """Roles of heads, and the effect of silencing each."""
    effects, trace = facts.effects, facts.trace
    ranked = effects.ranked
    first, last = (trace.name_of(head) for head in (ranked[0], ranked[-1]))
    return LessonStep(
        name="spare",
        title="What heads learned, and which we can spare",
        minutes=MINUTES["spare"],
        paragraphs=(
            _roles_sentences(facts),
            "A name is no proof of use. So we silence the layer's heads one at a time, run the "
            f"whole model, and see how far its answer moves. {_effect_sentence(facts, last)}",
            "Read this with care. A head at rest in this sentence may work hard in the next. And "
            "two heads that do the same job both look spare, until both are gone. To cut heads "
            "for good, headwise prune judges them together, on many texts.",
        ),
        exercise="Silence the heads one after the other and see which moves the answer most.",
        question=_spare_question(facts, first),
        figures=SpareFigure(
            place=facts.place,
            unit=effects.unit,
            measure=MEASURES[effects.unit],
            has_roles=facts.roles is not None,
            role_words={
                role: ROLES[role].meaning if role in ROLES else ""
                for role in dict.fromkeys(role for roles in facts.roles or [] for role in roles)
            },
            next=[NextFigure(each.token, each.probability) for each in effects.next],
            heads=[
                SpareHeadFigure(
                    name=trace.name_of(head),
                    head=head,
                    rank=rank,
                    value=effects.values[head],
                    effect=effects.sizes[head],
                    share=facts.shares[head],
                    roles=None if facts.roles is None else facts.roles[head],
                    next=[each.without[head] for each in effects.next],
                )
                for rank, head in enumerate(ranked, start=1)
            ],
        ),
    )


def _roles_sentences(facts: Facts) -> str:
    start = "Nobody assigned these heads their jobs; they emerged in training. "
    if facts.roles is None:
        return (
            f"{start}Some look one token back, some at separators, some from a verb to its "
            "subject. Press Find roles in the Heads panel, and this step will name such roles."
        )
    own_roles = facts.roles[facts.head]
    named = (
        f"calls {facts.name} {join_words(own_roles)}"
        if own_roles
        else f"finds no role for {facts.name}"
    )
    without = facts.roles.count([])
    return (
        f"{start}The scan, which measures where heads look on many texts, {named}; "
        f"{without} of the {format_count(len(facts.roles), 'head')} of this layer "
        f"{'has' if without == 1 else 'have'} no clear role. Roles can overlap."
    )


def _effect_sentence(facts: Facts, least: str) -> str:
    effects = facts.effects
    head = effects.ranked[-1]
    value = effects.values[head]
    if effects.next:
        word = effects.next[0]
        return (
            f"Untouched, it would go on with {quote_token(word.token)}, at probability "
            f"{word.probability:.3f}. Without {least}, the one missed least, it is "
            f"{word.without[head]:.3f}."
        )
    if effects.unit == "cosine":
        return (
            f"Without {least}, the one missed least, the sentence's embedding keeps a cosine of "
            f"{value:.4f} to the untouched one, where 1 is no change."
        )
    if effects.unit == "nats":
        return (
            f"Without {least}, the one missed least, its predictions move by {number(value)} nats, "
            "where 0 is no change."
        )
    return f"Without {least}, the one missed least, its loss is {number(value)}."


def _spare_question(facts: Facts, most: str) -> QuizQuestion:
    """Which of some heads is missed most, none of them tied with it."""
    effects, trace = facts.effects, facts.trace
    ranked = effects.ranked
    largest = effects.sizes[ranked[0]]
    below = [head for head in ranked[1:] if largest - effects.sizes[head] > TIE]
    if not below:
        return number_question(
            "No head stands out on this sentence. How many runs with one silent head did it take "
            "to find that out?",
            trace.num_heads,
            f"One for each head of the layer: {trace.num_heads}. They were run as one batch, each "
            "on its own copy of your sentence.",
        )
    steps = max(1, len(below) // (MAX_OPTIONS - 1))
    wrong = below[::-1][::steps][: MAX_OPTIONS - 1]
    loudest = max(range(trace.num_heads), key=lambda head: facts.shares[head])
    compared = (
        f"It also adds the most to the output of {facts.token}."
        if loudest == ranked[0]
        else f"Yet {trace.name_of(loudest)} adds the most to the output of {facts.token}: how much "
        "a head says and how much the model needs it are two different things."
    )
    return choice_question(
        "Which of these heads does the model miss most on your sentence?",
        most,
        [trace.name_of(head) for head in wrong],
        f"Without {most} the output moves furthest: {_most_clause(effects)}. {compared}",
    )


def _most_clause(effects: Effects) -> str:
    head = effects.ranked[0]
    size, value = effects.sizes[head], effects.values[head]
    if effects.next:
        word = effects.next[0]
        return (
            f"{quote_token(word.token)} goes from probability {word.probability:.3f} to "
            f"{word.without[head]:.3f}, and the whole prediction moves by {number(size)} nats"
        )
    if effects.unit == "cosine":
        return f"the embedding keeps a cosine of only {value:.4f}"
    return (
        f"its predictions move by {number(size)} nats"
        if effects.unit == "nats"
        else f"its loss changes by {number(size)}"
    )
