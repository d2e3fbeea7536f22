"""Session: a model, what it has read, and the long work beside it; what the server answers from.

In: a subject. Out: answers as JSON can hold them. It knows nothing of requests.
"""

import copy
import shlex
import threading
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from torch import nn

from headwise.errors import HeadwiseError, OptionError
from headwise.explorer.head_panel import finite
from headwise.explorer.jobs import Job
from headwise.explorer.text_analysis import (
    LONGEST,
    AnalysisCache,
    Progress,
    TextAnalysis,
    check_heads_left,
    name_of,
    read,
)
from headwise.explorer.what_if import MOST_TEXTS, BaselineCache
from headwise.heads import HeadId, HeadTable
from headwise.models.loaded import LoadedModel
from headwise.objectives.evaluation import count_heads
from headwise.objectives.losses import Embedding
from headwise.planning.known_models import KNOWN
from headwise.planning.plans import plan
from headwise.pruning.importance.importance import importance
from headwise.pruning.setting import Subject
from headwise.reading.reader import Reader, token_limit
from headwise.roles import ROLES
from headwise.scans.scan import ScanJob, run_scan
from headwise.watching.running import in_evaluation

SHOWN = {
    "normalised_entropy": "How widely it looks: 0 one token, 1 all alike",
    "confidence": "Mean of its largest weight",
    "distance": "Mean distance in tokens",
    "previous": "On the token before",
    "next": "On the token after",
    "self": "On the token itself",
    "first": "On the first token",
    "special": "On special tokens",
    "punctuation": "On punctuation",
    "duplicate": "On earlier copies of the token",
    "text_induction": "On what followed an earlier copy",
    "output_share": "Share of its layer's output",
}
"""Measures that colour the grid, in words."""
OF_JOBS = {
    "scan": {"induction": "On what followed an earlier copy, in repeated random tokens"},
    "importance": {
        "zero": "Loss added when it is silenced, on built-in text",
        "michel": "Michel's gradient score, on built-in text",
    },
}
"""Measures that long work adds, in words."""
IMPORTANCE_TOKENS = 1024
"""Text that importance is measured on here: enough to sort heads by."""
DEFAULTS = {
    "similarity": "The cat sat on the mat because it was warm.",
    "prediction": "The best way to learn a language is to",
}
OTHERS = (
    "A kitten rested on the rug since it felt cosy.",
    "The stock market fell sharply after the announcement.",
)


class TextNotCached(HeadwiseError):
    """A reading that others have taken the place of."""


def default_head(table: HeadTable) -> HeadId:
    """The head that is shown until one is chosen: the sharpest that does not rest on a sink."""
    sharpness = table.df["confidence"].fillna(0) - (table.df["first"] >= 0.5)
    return table.heads[int(sharpness.argmax())]


class Session:
    """One model and everything that pages have asked of it."""

    def __init__(self, subject: Subject) -> None:
        """Look at the model once."""
        if subject.tokenizer is None:
            raise OptionError(f"{subject.name} reads no text: the explorer needs a tokenizer")
        self.subject, self.shelf, self.untouched = subject, AnalysisCache(), BaselineCache()
        reader = Reader(subject.tokenizer, subject.model.config, length=LONGEST)
        inputs = reader.batch(reader.windows(["a b c d"])[:1], subject.device).inputs
        with in_evaluation(subject.model):
            self.counts = count_heads(subject.model, inputs)
        check_heads_left(subject.name, self.counts)
        limit = token_limit(subject.tokenizer, subject.model.config)
        self.is_models_limit = limit is not None and limit <= LONGEST
        """Whether a text that is too long is so for the model, and not for the explorer alone."""
        self.num_heads = {name: heads for name, (heads, _) in self.counts.items()}
        self.jobs = {name: Job(name) for name in OF_JOBS}
        # Made now: later the model may be read or gated just then, and a copy would stay so.
        self.twin = twin_of(subject)
        self._turn = threading.Lock()  # of the twin: it is watched by one piece of work at a time

    @property
    def kind(self) -> str:
        """What the model's output is shown as."""
        return "similarity" if isinstance(self.subject.objective, Embedding) else "prediction"

    @property
    def loads_as(self) -> str | None:
        """What a command is to name the model by; None where it was not loaded by a name."""
        about, revision = self.subject.about, self.subject.about.get("revision")
        which = ["--revision", str(revision)] if revision else []
        return shlex.join([self.subject.name, *which]) if "source" in about else None

    @property
    def scanned(self) -> HeadTable | None:
        """What a scan found, when one is done."""
        found = self.jobs["scan"].result
        return None if found is None else found.table

    def about(self) -> dict[str, Any]:
        """What the page has to know of the model before any text is read."""
        return {
            "name": self.subject.name,
            "loads_as": self.loads_as,
            "kind": self.kind,
            "layers": [
                {"name": name, "heads": heads, "kv_heads": kv_heads}
                for name, (heads, kv_heads) in self.counts.items()
            ],
            "roles": {name: role.meaning for name, role in ROLES.items()},
            "role_colours": {name: role.page_colour for name, role in ROLES.items()},
            "role_letters": {name: role.letter for name, role in ROLES.items()},
            "measures": SHOWN,
            "of_jobs": OF_JOBS,
            "text": DEFAULTS[self.kind],
            "others": OTHERS,
            "most_texts": MOST_TEXTS,
            "jobs": [job.as_json() for job in self.jobs.values()],
        }

    def read(self, text: str, progress: Progress | None = None) -> TextAnalysis:
        """The text as the model has read it, now or before."""
        found = self.shelf.find(name_of(text))
        if found is None:
            found = read(self.subject, text, progress=progress)
            self.shelf.put(found)
        return found

    def reading(self, name: str) -> TextAnalysis:
        """A reading that is still kept."""
        found = self.shelf.find(name)
        if found is None:
            raise TextNotCached("this text is no longer kept: send it again")
        return found

    def summary(self, reading: TextAnalysis) -> dict[str, Any]:
        """What the page draws first: tokens, and figures of every head."""
        first = next(iter(reading.calls))
        labels = reading.labels(first)
        return {
            "name": reading.name,
            "tokens": list(labels.keys),
            "has_words": bool(labels.word_of),
            "has_special": any(labels.is_special),
            "left_out": reading.left_out,
            "is_models_limit": self.is_models_limit,
            "measured": reading.num_measured,
            "heads": self.grid(reading.table, SHOWN),
            "shown_first": str(default_head(reading.table)),
        }

    def grid(self, table: HeadTable, words: Mapping[str, str]) -> dict[str, Any]:
        """Columns of a table, a value a head, with what each means."""
        return {
            "names": list(map(str, table.heads)),
            "roles": [list(roles) for roles in table.df["roles"]],
            "measures": {
                name: [finite(value) for value in table.df[name].astype(float)]
                for name in words
                if name in table.df
            },
            "words": {name: said for name, said in words.items() if name in table.df},
        }

    def start(self, name: str) -> bool:
        """Begin long work, on a twin of the model, so that the page goes on meanwhile.

        Where other work is at the twin, this waits for its end.
        """
        work = {"scan": self._scan, "importance": self._importance}[name]

        def in_turn(job: Job) -> Any:
            with job.turn(self._turn):
                return work(job)

        return self.jobs[name].start(in_turn)

    def found(self, name: str) -> dict[str, Any] | None:
        """What long work alone has found, for the grid; other columns are those of a reading."""
        result = self.jobs[name].result
        if result is None:
            return None
        return self.grid(result.table, OF_JOBS[name])

    @property
    def _loaded_twin(self) -> LoadedModel:
        return LoadedModel(self.twin.name, self.twin.model, self.twin.tokenizer, self.twin.about)

    def _scan(self, job: Job) -> Any:
        """The built-in text and sentences: what a head does over more than one sentence."""
        return run_scan(ScanJob.of(self._loaded_twin), progress=job.progress)

    def _importance(self, job: Job) -> Any:
        """What every head is worth on some of Python's manual."""
        return importance(
            self._loaded_twin,
            objective=self.twin.objective,
            max_tokens=IMPORTANCE_TOKENS,
            progress=job.progress,
        )


def twin_of(subject: Subject) -> Subject:
    """The same model with the same weights in other modules, at rest: it is watched by itself."""
    model = subject.model
    shared: dict[int, Any] = {id(one): one for one in model.parameters()}
    shared |= {id(one): one for one in model.buffers()}
    other: nn.Module = copy.deepcopy(model, shared)
    return replace(subject, model=other.eval())


def known_plans() -> list[dict[str, Any]]:
    """The known models as points of a plot."""
    return [plan(name).to_json() for name in KNOWN]
