"""The last four steps of the lesson, from scores to the effect of silencing each head.

In: Facts. Out: LessonSteps. many_heads.py has the others.
"""

import math
from itertools import chain

from torch import Tensor

from headwise.explorer.lesson import figures
from headwise.explorer.lesson.facts import Facts
from headwise.explorer.lesson.many_heads import TIE
from headwise.explorer.lesson.quiz import LessonStep, QuizQuestion, choice_question, number_question
from headwise.explorer.lesson.token_text import few, number, percent, power, quote_token, share
from headwise.formats import format_count, join_words, replace_nonfinite
from headwise.roles import ROLES
from headwise.tracing.record import segregation

MAX_OPTIONS = 4
MEASURES = {
    "cosine": "1 minus the cosine between the sentence's embedding without the head and the "
    "untouched one",
    "nats": "divergence of the model's prediction without the head from the untouched one, in nats",
    "loss": "how far the loss moves without the head",
}
"""Description of the effect that the bars show, by unit."""


def scores(facts: Facts) -> LessonStep:
    """The step from products of queries and keys to weights."""
    scoring, top = facts.scoring, facts.by_weight[0]
    if not facts.sees_one:
        effect = " down until another token leads the row"
    elif scoring.sink is None:
        effect = ": alone in its row, it keeps its weight"
    else:
        effect = " and watch what it takes from the sink"
    return LessonStep(
        name="scores",
        title="From scores to shares",
        minutes=1.5,
        paragraphs=[
            _score_paragraph(facts, top),
            _softmax_paragraph(facts, top),
            _raising_sentence(facts),
        ],
        exercise=f"Drag the score of {facts.quote(top)}{effect}.",
        question=_score_question(facts),
        figures=figures.ScoresFigure(
            place=facts.place,
            scores=scoring.scores.tolist(),
            scale=scoring.scale,
            softcap=scoring.softcap,
            added=replace_nonfinite(scoring.added.tolist()),
            sink=scoring.sink,
            weights=facts.row.tolist(),
            dragged=top,
            step=1 / scoring.scale,
        ),
    )


def _score_paragraph(facts: Facts, top: int) -> str:
    scoring, d_key = facts.scoring, facts.call.queries.shape[-1]
    score = float(scoring.scores[top])
    scaled = f"{score * scoring.scale:.2f}"
    if top == facts.position:
        clause = f"matches itself, {facts.name} multiplies its query by its key"
    else:
        clause = (
            f"and {facts.quote(top)} match, {facts.name} multiplies the query of the first by the "
            "key of the second"
        )
    text = f"To see how well {facts.token} {clause}, number by number, and adds up the products: "
    text += f"the score is {score:.2f}. "
    if scoring.scale == 1:
        text += "Many models now scale such sums down; this one takes them as they are."
    elif math.isclose(scoring.scale, 1 / math.sqrt(d_key), rel_tol=1e-6):
        text += f"Sums of {d_key} products grow large, so the model divides them by the square "
        text += f"root of {d_key}, which leaves {scaled}."
    else:
        text += f"The model multiplies it by {number(scoring.scale)}, which makes {scaled}."
    if scoring.softcap is not None:
        bent = float(scoring.bent(scoring.scores[top]))
        text += f" A cap bends it to {bent:.2f}: no score passes {number(scoring.softcap)}."
    if any(value not in (0.0, -math.inf) for value in scoring.added.tolist()):
        text += " This model also adds a number that depends on their distance."
    if scoring.sink is not None:
        text += (
            f" A further score of {scoring.sink:.2f} belongs to no token and takes a share, too."
        )
    return text


def _softmax_paragraph(facts: Facts, top: int) -> str:
    text = "Softmax makes shares of a row of scores: e to the power of each, divided by the sum of "
    text += f"all. Here {facts.quote(top)} gets {share(float(facts.row[top]))}"
    if not facts.sees_one:
        second = facts.by_weight[1]
        weight = share(float(facts.row[second]))
        text += f" and {facts.quote(second)}, next in line, {weight}"
    hidden = len(facts.tokens) - len(facts.by_weight)
    if not hidden:
        return f"{text}."
    gets = "gets" if hidden == 1 else "get"
    return f"{text}. {format_count(hidden, 'token')} cannot be seen from here and {gets} weight 0."


def _raising_sentence(facts: Facts) -> str:
    scoring = facts.scoring
    if facts.sees_one and scoring.sink is None:
        return "Its share is 1 whatever its score is: there is no other token to share with."
    if facts.sees_one:
        return "Raise its score, and the sink loses what it gains."
    text = "Raise one score, and its token takes what it gains from all the others, each in "
    text += "proportion to what it had."
    if scoring.softcap is not None or scoring.sink is not None:
        return text
    return f"Only differences count: add the same to every score, and no weight moves. {text}"


def _score_question(facts: Facts) -> QuizQuestion:
    """Ask for a weight after its score is raised; if none would change, ask for a token count."""
    scoring, step = facts.scoring, 1 / facts.scoring.scale
    best, best_gain, answer = 0, 0.0, 0.0
    for key in facts.by_weight:
        raised = scoring.scores.clone()
        raised[key] += step
        weight = float(scoring.weights(raised)[key])
        gain = weight - float(facts.row[key])
        if gain > best_gain:
            best, best_gain, answer = key, gain, weight
    if best_gain < 0.05:  # the row is all or nothing: a drag of this size would not show
        seen, total = len(facts.by_weight), len(facts.tokens)
        blocked = f"{seen} of {total} tokens: what cannot be seen is blocked before the softmax."
        return number_question(
            f"How many tokens can {facts.token} look at in this row, itself included?",
            seen,
            f"All {total} tokens: none is blocked here." if seen == total else blocked,
        )
    before, old = float(facts.row[best]), float(scoring.scores[best])
    growth = f"so this token's part of the sum grows e = {math.e:.2f} times"
    if scoring.softcap is not None:
        score = scoring.scores[best]
        rise = float(scoring.bent(score + step) - scoring.bent(score))
        growth = (
            f"of which the cap leaves {rise:.2f}, so this token's part of the sum grows "
            f"{math.exp(rise):.2f} times"
        )
    return number_question(
        f"Drag the score of {facts.quote(best)} from {old:.2f} to {old + step:.2f}. Its "
        f"weight was {before:.3f}; what does it become?",
        answer,
        f"After scaling the step is worth 1, {growth} and the whole row is "
        f"shared out anew: {answer:.3f}. Step after step it comes nearer to 1 and never passes it.",
        min(0.02, best_gain / 3),
    )


def mixing(facts: Facts) -> LessonStep:
    """The step that multiplies values by weights."""
    values = facts.steps["values"][facts.kv_head].double()
    mixed = facts.steps["mixed"][facts.head, facts.position].double()
    parts = facts.row[:, None] * values
    top = facts.by_weight[0]
    weight, value = float(facts.row[top]), float(values[top, 0])
    mixture = [
        f"{share(float(facts.row[key]))} of "
        f"{'its own value' if key == facts.position else f'the value of {facts.quote(key)}'}"
        for key in facts.by_weight[:3]
    ]
    seen = len(facts.by_weight)
    if facts.sees_one:
        sum_sentence = "No other token can be seen from here, so nothing is added to it."
    else:
        tokens = "Both" if seen == 2 else f"All {seen}"
        sum_sentence = f"{tokens} tokens together make {float(mixed[0]):.3f}."
    return LessonStep(
        name="mixing",
        title="Mixing the values",
        minutes=1.0,
        paragraphs=[
            "The weights are settled; now something is fetched. Every token that is looked at "
            f"hands over its value, multiplied by its weight. In {facts.name}, {facts.token} takes "
            f"{join_words(mixture)}{', and so on down the row' if seen > 3 else ''}.",
            f"Follow the first number. {facts.quote(top)} has {value:.3f} there and weight "
            f"{weight:.3f}: it brings {weight * value:.3f}. {sum_sentence} "
            f"The same is done with each of the {len(mixed)} numbers: the mixed vector is "
            f"{few(mixed.tolist())}.",
            "Weights only say how much; what is carried is in the values. A large weight on a "
            "small value fetches little.",
        ],
        exercise="Point at a token and see what it brings to each number of the mixed vector.",
        question=_mixing_question(facts, values, parts),
        figures=figures.MixingFigure(
            place=facts.place,
            d_value=len(mixed),
            weights=facts.row.tolist(),
            values=values[:, : figures.SHOWN].tolist(),
            parts=parts[:, : figures.SHOWN].tolist(),
            mixed=mixed[: figures.SHOWN].tolist(),
            lengths=parts.norm(dim=-1).tolist(),
            difference=float((parts.sum(0) - mixed).abs().max()),
        ),
    )


def _mixing_question(facts: Facts, values: Tensor, parts: Tensor) -> QuizQuestion:
    """Ask for the largest product shown, except those of the token with the largest weight."""
    sizes = parts[:, : figures.SHOWN].abs()
    if not facts.sees_one:
        sizes[facts.by_weight[0]] = -1
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
    """The step on concat and Wo: heads are separate before Wo and mixed after it."""
    trace, here = facts.trace, facts.position
    contributions = facts.steps["contributions"][:, here].double()
    mixed = facts.steps["mixed"][:, here].double()
    bias = None if trace.bias is None else trace.bias.double().cpu()
    layer_output = facts.steps["output"][here].double()
    total = contributions.sum(0) + (0 if bias is None else bias)
    difference = float((total - layer_output).abs().max())
    check = (
        "add up to the output: we checked, and the largest difference is "
        f"{power(difference) if difference else 0}, mere rounding."
        if trace.adds_up
        else f"miss the output by {power(difference)}, more than rounding explains."
    )
    before, after = segregation(trace.shares_before.cpu()), segregation(trace.shares_after.cpu())
    d_value = mixed.shape[-1]
    owners = [
        figures.OwnerFigure(
            name=trace.name_of(head),
            columns=[head * d_value, (head + 1) * d_value],
            concat=mixed[head, : figures.SHOWN].tolist(),
            concat_length=float(mixed[head].norm()),
            contribution=contributions[head, : figures.SHOWN].tolist(),
            length=float(contributions[head].norm()),
            share=facts.shares[head],
            touched=int((contributions[head] != 0).sum()),
        )
        for head in range(trace.num_heads)
    ]
    this_head, top_head = owners[facts.head], max(owners, key=lambda owner: owner.share)
    first, last = this_head.columns
    adds = f"{top_head.name} adds most for this token, {percent(top_head.share)}"
    if top_head != this_head:
        adds += f"; {this_head.name} adds {percent(this_head.share)}"
    return LessonStep(
        name="output",
        title="Side by side, then together",
        minutes=1.5,
        paragraphs=[
            f"Laid side by side, the mixed vectors of all heads make the concat: "
            f"{mixed.numel():,} numbers for {facts.token}. So far the heads have not met: columns "
            f"{first:,} to {last - 1:,} are {this_head.name}'s alone.",
            "The output matrix Wo ends that. Each head owns some rows of it, and through them "
            f"adds a vector of full length, {facts.d_model:,} numbers, to the output. These "
            f"vectors{'' if bias is None else ' and a bias'} {check} By length, {adds}.",
            "Segregation is 1 where every column has one owner and 0 where all heads share "
            f"equally. Over your sentence it is {before:.2f} in the concat and {after:.2f} in the "
            f"output{': a lone head has nobody to share with' if trace.num_heads == 1 else ''}.",
        ],
        exercise="Switch between before and after Wo and watch one head's colour spread.",
        question=number_question(
            f"{facts.name} fills {d_value} columns of the concat. How many of the "
            f"{facts.d_model:,} numbers of the output does it change?",
            this_head.touched,
            f"Its {d_value} numbers meet {d_value} rows of Wo, and each row has {facts.d_model:,} "
            f"columns: counted here, {this_head.touched:,} of {facts.d_model:,} output numbers "
            "contain something of it.",
        ),
        figures=figures.OutputFigure(
            place=facts.place,
            d_model=facts.d_model,
            d_value=d_value,
            segregation_concat=before,
            segregation_output=after,
            difference=difference,
            adds_up=trace.adds_up,
            output=layer_output[: figures.SHOWN].tolist(),
            bias=None if bias is None else bias[: figures.SHOWN].tolist(),
            heads=owners,
        ),
    )


def spare(facts: Facts) -> LessonStep:
    """The step on the roles of heads and the effect of silencing each."""
    effects, roles = facts.effects, facts.roles
    return LessonStep(
        name="spare",
        title="What heads learned, and which we can spare",
        minutes=1.5,
        paragraphs=[
            _roles_sentences(facts),
            "A name is no proof of use. So we silence the layer's heads one at a time, run the "
            f"whole model, and see how far its answer moves. {_effect_sentence(effects)}",
            "Read this with care. A head at rest in this sentence may work hard in the next. And "
            "two heads that do the same job both look spare, until both are gone. To cut heads "
            "for good, headwise prune judges them together, on many texts.",
        ],
        exercise="Silence the heads one after the other and see which moves the answer most.",
        question=_spare_question(facts),
        figures=figures.SpareFigure(
            **vars(effects),
            place=facts.place,
            measure=MEASURES[effects.unit],
            has_roles=roles is not None,
            role_words={
                role: ROLES[role].meaning if role in ROLES else "" for role in chain(*roles or [])
            },
        ),
    )


def _roles_sentences(facts: Facts) -> str:
    start = "Nobody assigned these heads their jobs; they emerged in training. "
    if facts.roles is None:
        return (
            f"{start}Some look one token back, some at separators, some from a verb to its "
            "subject. Press Find roles in the Heads panel, and this step will name such roles."
        )
    roles = join_words(facts.roles[facts.head])
    named = f"calls {facts.name} {roles}" if roles else f"finds no role for {facts.name}"
    without = facts.roles.count([])
    return (
        f"{start}The scan, which measures where heads look on many texts, {named}; "
        f"{without} of the {format_count(len(facts.roles), 'head')} of this layer "
        f"{'has' if without == 1 else 'have'} no clear role. Roles can overlap."
    )


def _effect_sentence(effects: figures.Effects) -> str:
    least = effects.heads[-1]
    without = f"Without {least.name}, the one missed least,"
    if effects.next:
        token, probability = effects.next[0].token, effects.next[0].probability
        return (
            f"Untouched, it would go on with {quote_token(token)}, at probability "
            f"{probability:.3f}. {without} it is {least.next[0]:.3f}."
        )
    value = number(least.value)
    return {
        "cosine": f"{without} the sentence's embedding keeps a cosine of {least.value:.4f} to the "
        "untouched one, where 1 is no change.",
        "nats": f"{without} its predictions move by {value} nats, where 0 is no change.",
        "loss": f"{without} its loss is {value}.",
    }[effects.unit]


def _spare_question(facts: Facts) -> QuizQuestion:
    """Ask which of several heads the model misses most; no other option comes close."""
    trace, (most, *others) = facts.trace, facts.effects.heads
    below = [head.name for head in others if most.effect - head.effect > TIE]
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
        if loudest == most.head
        else f"Yet {trace.name_of(loudest)} adds the most to the output of {facts.token}: how much "
        "a head says and how much the model needs it are two different things."
    )
    return choice_question(
        "Which of these heads does the model miss most on your sentence?",
        most.name,
        wrong,
        f"Without {most.name} the output moves furthest: {_most_clause(facts.effects)}. {compared}",
    )


def _most_clause(effects: figures.Effects) -> str:
    most = effects.heads[0]
    size = number(most.effect)
    if effects.next:
        token, probability = effects.next[0].token, effects.next[0].probability
        return (
            f"{quote_token(token)} goes from probability {probability:.3f} to {most.next[0]:.3f}, "
            f"and the whole prediction moves by {size} nats"
        )
    return {
        "cosine": f"the embedding keeps a cosine of only {most.value:.4f}",
        "nats": f"its predictions move by {size} nats",
        "loss": f"its loss changes by {size}",
    }[effects.unit]
