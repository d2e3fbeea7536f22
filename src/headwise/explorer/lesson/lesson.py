"""The lesson: a warm-up and seven steps on the learner's own sentence and a model's real weights.

In: a model with its objective, and a text. Out: LessonSteps, each with a text, an exercise, a
question and numbers that the browser draws (figures.py). Every number comes from a trace or
from a forward pass that was watched or gated.
"""

from headwise.explorer.lesson.facts import lesson_facts
from headwise.explorer.lesson.many_heads import heads, projections, warm_up, why_many
from headwise.explorer.lesson.quiz import LessonStep
from headwise.explorer.lesson.scores_to_output import mixing, output, scores, spare
from headwise.head_table import HeadTable
from headwise.objectives.scored_model import ScoredModel


def lesson(
    scored: ScoredModel,
    text: str,
    *,
    layer: int | None = None,
    head: int | None = None,
    position: int | None = None,
    table: HeadTable | None = None,
) -> tuple[LessonStep, ...]:
    """The warm-up and the seven steps, on the first tokens of a text.

    By default, they follow the last word in the sharpest of the heads in which it attends mostly
    to one other word. With a scan's `table`, the last step names the heads' roles.
    """
    facts = lesson_facts(scored, text, layer=layer, head=head, position=position, table=table)
    builders = (why_many, projections, heads, scores, mixing, output, spare)
    return (warm_up(), *(build(facts) for build in builders))
