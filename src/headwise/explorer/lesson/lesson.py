"""The lesson: seven steps on the learner's own sentence, and an exercise by hand.

In: a model with its objective, and a text. Out: LessonSteps, each with a text, a question and
numbers that the browser draws (figures.py). Every number comes from a trace or from a forward pass
that was watched or gated.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from headwise.errors import OptionError
from headwise.explorer.api_types import BuiltinPair
from headwise.explorer.lesson.by_hand import by_hand
from headwise.explorer.lesson.choice import Choice, is_pronoun
from headwise.explorer.lesson.facts import Facts, lesson_facts
from headwise.explorer.lesson.figures import LessonAnswer, StepTitle
from headwise.explorer.lesson.heads import heads
from headwise.explorer.lesson.mixing import mixing
from headwise.explorer.lesson.output import output
from headwise.explorer.lesson.prose import Prose, ProseRun, prose
from headwise.explorer.lesson.quiz import LessonStep, step_answer
from headwise.explorer.lesson.scores import scores
from headwise.explorer.lesson.silencing import measure_baseline, measure_silencing
from headwise.explorer.lesson.spare import spare, spare_outline
from headwise.explorer.lesson.swaps import Swap, read_pair, read_swap
from headwise.explorer.lesson.token_text import shown
from headwise.explorer.lesson.vectors import vectors
from headwise.explorer.lesson.why_many import why_many
from headwise.head_table import HeadTable
from headwise.objectives.scored_model import ScoredModel
from headwise.progress import Progress, no_progress

TITLES = (
    StepTitle("why-many", "Why one head is not enough", 2.0),
    StepTitle("vectors", "Queries, keys and values", 1.5),
    StepTitle("scores", "From scores to shares", 2.0),
    StepTitle("mixing", "Mixing the values", 1.5),
    StepTitle("heads", "Many heads at once", 1.5),
    StepTitle("output", "Wo mixes the heads", 1.5),
    StepTitle("spare", "What heads learned, and which we can spare", 2.0),
    StepTitle("by-hand", "By hand: Cat sleeps", 2.0),
)
"""The steps in order; the last is an exercise outside the numbered seven."""
MAX_LESSONS = 8
"""Number of texts whose lessons the server keeps."""
NAMES = tuple(title.name for title in TITLES)
BUILDERS: Mapping[str, Callable[[Facts], LessonStep]] = MappingProxyType(
    {"vectors": vectors, "scores": scores, "mixing": mixing, "heads": heads, "output": output}
)


class Lesson:
    """One text's lesson; the last step, which runs the model often, is measured when asked for."""

    def __init__(
        self,
        scored: ScoredModel,
        text: str,
        *,
        choice: Choice | None = None,
        other: str | None = None,
        pair: BuiltinPair | None = None,
        table: HeadTable | None = None,
    ) -> None:
        """Read the text.

        By default the lesson follows a pronoun, or the last word, in a head that is easy to read.
        `other` is the text with one word changed. `pair` is a second pair of sentences, in which a
        swap moves a head's link clearly. With a scan's `table`, heads have roles.
        """
        self.facts = lesson_facts(scored, text, choice or Choice(), table)
        self.swap: Swap | None = None if other is None else read_swap(self.facts, other)
        self.pair = None if pair is None else read_pair(scored, pair, table)
        self._steps: dict[str, LessonStep] = {}

    def step(self, name: str, progress: Progress = no_progress) -> LessonStep:
        """One step, made when it is first asked for."""
        if name not in NAMES:
            raise OptionError(
                f"step is {name[:40]!r}: choose one of {', '.join(NAMES)}", option="step"
            )
        if name not in self._steps:
            self._steps[name] = self._make(name, progress)
        return self._steps[name]

    def _make(self, name: str, progress: Progress) -> LessonStep:
        if name == "by-hand":
            return by_hand()
        if name == "why-many":
            return why_many(self.facts, self.swap, self.pair)
        if name == "spare":
            return spare(self.facts, measure_silencing(self.facts, progress))
        return BUILDERS[name](self.facts)

    def answer(
        self, name: str, progress: Progress = no_progress, *, is_outline: bool = False
    ) -> LessonAnswer:
        """A step as the browser receives it, with the titles of all steps.

        `is_outline` leaves out what takes long to measure, unless it has been measured.
        """
        name = name or NAMES[0]
        if is_outline and name == "spare" and name not in self._steps:
            step = spare_outline(self.facts, measure_baseline(self.facts))
        else:
            step = step_answer(self.step(name, progress))
        return LessonAnswer(self.heading, list(TITLES), step)

    @property
    def heading(self) -> Prose:
        """The question that the lesson is about."""
        facts = self.facts
        word = ProseRun(shown(facts.words[facts.here].text), "word")
        if is_pronoun(facts.text.stage, facts.position):
            return prose("What does ", word, " mean?")
        return prose("Where does ", word, " look?")
