"""An exercise: two words and two heads, with every number.

In: nothing. Out: a LessonStep.
"""

from collections.abc import Mapping

from torch import Tensor

from headwise.attention.worked_example import cat_sleeps
from headwise.explorer.lesson import figures
from headwise.explorer.lesson.prose import Prose, prose
from headwise.explorer.lesson.quiz import LessonStep, number_question
from headwise.explorer.lesson.token_text import TIMES, few, number
from headwise.tracing.layer_trace import trace_layer

STEPS = ("input", "queries", "scores", "scaled", "weights", "mixed", "concat", "output")


def by_hand() -> LessonStep:
    """Two words and two heads, small enough to follow by hand."""
    layer, tokens, x = cat_sleeps()
    trace = trace_layer(layer, x, tokens=tokens)
    steps = {name: step.values[0] for name, step in trace.steps.items() if step.axes[0] == "batch"}
    mirror = float(steps["weights"][1, 1, 1])

    def product(key: int) -> str:
        return number(float(steps["scores"][1, 1, key]))

    def score(key: int) -> str:
        return f"{float(steps['scaled'][1, 1, key]):.2f}".removesuffix(".00")

    return LessonStep(
        name="by-hand",
        title="By hand: Cat sleeps",
        minutes=2.0,
        paragraphs=_paragraphs(x, steps),
        exercise=prose("Work out a table, then click or tap it. Which word has a sharp row in head "
                       "1?"),
        question=number_question(
            prose("In head 1, how much of its attention does sleeps give itself? Two decimals are "
                  "enough."),
            mirror,
            hint=prose("Work it out as for Cat in head 0: the dot product, divided by the square "
                       "root, then softmax. Only the columns differ."),
            why=prose("Head 1 gets the columns that hold the numbers of sleeps. With itself, its "
                      f"dot product is {product(1)}, score {score(1)}; with Cat, its dot product "
                      f"is {product(0)}, score {score(0)}: the same numbers that Cat has in head "
                      f"0, hence the same share, {mirror:.2f}."),
            tolerance=0.015,
            written=f"{mirror:.2f}",
        ),
        figures=figures.ByHandFigure(
            tokens=list(tokens),
            Wo=trace["Wo"].values.tolist(),
            **{name: steps[name].tolist() for name in STEPS},
        ),
        after=[
            _outputs(steps),
            prose("In head 0 only Cat has a sharp row, in head 1 only sleeps. Each "
                  "head works with its own columns.")
        ],
    )  # fmt: skip


def _paragraphs(x: Tensor, steps: Mapping[str, Tensor]) -> list[Prose]:
    score, scaled = float(steps["scores"][0, 0, 0]), float(steps["scaled"][0, 0, 0])
    cat = steps["weights"][0, 0].tolist()
    products = " + ".join(f"{number(value)} {TIMES} {number(value)}" for value in x[0, :2].tolist())
    d_key = steps["queries"].shape[-1]
    return [
        prose(f"Two words, two heads, every number. Each word is {len(x[0])} numbers: Cat is "
              f"{few(x[0].tolist())}, sleeps is {few(x[1].tolist())}. To keep the numbers small, "
              "the matrices here simply pick columns: head 0 gets the first two, head 1 the last "
              "two. In a real model every head uses all columns. Query, key and value are the same "
              "here."),
        prose(f"In head 0, Cat with itself makes {products} = {number(score)}; with sleeps, "
              f"{number(float(steps['scores'][0, 0, 1]))}. Divided by √{d_key}, the "
              f"{number(score)} becomes {scaled:.2f}. Softmax makes shares of a row: Cat gives "
              f"itself {cat[0]:.2f} and sleeps {cat[1]:.2f}."),
        prose("The tables are covered. Work each one out from the one before, then click or "
              "tap it to see whether you were right. Head 1 reads the other two columns."),
    ]  # fmt: skip


def _outputs(steps: Mapping[str, Tensor]) -> Prose:
    before, after = (steps[name][0].tolist() for name in ("concat", "output"))
    sleeps = steps["weights"][0, 1].tolist()
    return prose("Sleeps has only zeros in the columns of head 0, so it shares evenly there: "
                 f"{sleeps[0]:.2f} and {sleeps[1]:.2f}. Side by side, the heads make the concat of "
                 f"Cat, {few(before)}. The matrix Wo mixes it into {few(after)}.")  # fmt: skip
