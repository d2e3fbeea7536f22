"""One model, the texts that it has read, and its background jobs.

In: a ScoredModel. Out: answers for routes.py. Knows nothing about HTTP.
"""

import copy
import shlex
import threading
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

from torch import Tensor

from headwise.errors import HeadwiseError, OptionError
from headwise.explorer import api_types as api
from headwise.explorer.jobs import Job
from headwise.explorer.maps import view_labels
from headwise.explorer.text_analysis import (
    LONGEST,
    ROWS_MEASURED,
    AnalysisCache,
    TextAnalysis,
    analyse_text,
    check_heads_left,
    text_name,
)
from headwise.formats import replace_nonfinite
from headwise.head_table import HeadTable
from headwise.heads import HeadId
from headwise.objectives.evaluation import count_heads
from headwise.objectives.losses import Embedding
from headwise.objectives.scored_model import ScoredModel
from headwise.progress import Progress, no_progress
from headwise.pruning.importance.importance import importance
from headwise.reading.reader import Reader, token_limit
from headwise.roles import ROLES
from headwise.scans.scan import ScanJob, run_scan
from headwise.watching.running import in_evaluation

MEASURES = {
    "normalised_entropy": "How widely it looks: 0 at one token, 1 at all equally",
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
"""Measures that can colour the grid, with their meanings."""
JOB_MEASURES = {
    "scan": {"induction": "On what followed an earlier copy, in repeated random tokens"},
    "importance": {
        "zero": "Loss added when it is silenced, on built-in text",
        "michel": "Michel's gradient score, on built-in text",
    },
}
"""Measures that each job adds, with their meanings."""
IMPORTANCE_TOKENS = 1024
"""Number of tokens to measure importance on: enough to rank heads."""
SAMPLE_TEXTS = {
    "similarity": "The cat sat on the mat because it was warm.",
    "prediction": "The best way to learn a language is to",
}
OTHER_TEXTS = (
    "A kitten rested on the rug since it felt cosy.",
    "The stock market fell sharply after the announcement.",
)


class TextNotCached(HeadwiseError):
    """The text's analysis has been dropped from memory."""


def default_head(table: HeadTable) -> HeadId:
    """The head to show first: the sharpest that does not mostly attend to the first token."""
    sharpness = table.df["confidence"].fillna(0) - (table.df["first"] >= 0.5)
    return table.heads[int(sharpness.argmax())]


class Session:
    """One model and its cached answers."""

    def __init__(self, scored: ScoredModel) -> None:
        """Count the model's heads by running it on a short text."""
        if scored.tokenizer is None:
            raise OptionError(
                f"{scored.name} has no tokenizer, which the explorer needs to read text: pass one"
            )
        self.scored, self.analyses = scored, AnalysisCache()
        self.baselines: dict[tuple[str, ...], Tensor] = {}
        """Outputs of the unchanged model, for compare_gated."""
        reader = Reader(scored.tokenizer, scored.model.config, length=LONGEST)
        inputs = reader.batch(reader.windows(["a b c d"])[:1], scored.device).inputs
        with in_evaluation(scored.model):
            self.counts = count_heads(scored.model, inputs)
        check_heads_left(scored.name, self.counts)
        limit = token_limit(scored.tokenizer, scored.model.config)
        self.is_models_limit = limit is not None and limit <= LONGEST
        """Whether the model, not the explorer, limits the length of a text."""
        self.num_heads = {name: heads for name, (heads, _) in self.counts.items()}
        self.jobs = {name: Job(name) for name in JOB_MEASURES}
        # Copied now: later, a request's hooks may be on the model and would be copied with it.
        tensors = (*scored.model.parameters(), *scored.model.buffers())
        copied = copy.deepcopy(scored.model, {id(tensor): tensor for tensor in tensors})
        self.job_model = replace(scored, model=copied.eval())
        self._job_lock = threading.Lock()  # only one job at a time may watch the copy

    @property
    def scan_table(self) -> HeadTable | None:
        """The head table of the last finished scan; None before that."""
        scan = self.jobs["scan"].result
        return None if scan is None else scan.table

    def about(self) -> api.ModelAnswer:
        """Everything about the model that the page needs before it reads a text."""
        name, revision = self.scored.name, self.scored.about.get("revision")
        arguments = shlex.join([name, "--revision", revision] if revision else [name])
        is_embedding = isinstance(self.scored.objective, Embedding)
        kind: Literal["similarity", "prediction"] = "similarity" if is_embedding else "prediction"
        return api.ModelAnswer(
            name=name,
            loads_as=arguments if "source" in self.scored.about else None,
            kind=kind,
            layers=[api.LayerFacts(name, *counts) for name, counts in self.counts.items()],
            roles={
                name: api.RoleFacts(role.meaning, role.letter, role.page_colour)
                for name, role in ROLES.items()
            },
            measures=MEASURES,
            job_measures=JOB_MEASURES,
            text=SAMPLE_TEXTS[kind],
            other_texts=list(OTHER_TEXTS),
            max_texts=api.MAX_TEXTS,
            jobs=[job.answer() for job in self.jobs.values()],
        )

    def read(self, text: str, progress: Progress = no_progress) -> TextAnalysis:
        """The analysis of a text, from the cache if possible."""
        analysis = self.analyses.get(text_name(text))
        if analysis is None:
            analysis = analyse_text(self.scored, text, progress=progress)
            self.analyses.put(analysis)
        return analysis

    def analysis(self, name: str) -> TextAnalysis:
        """The analysis of the text called `name`; raises TextNotCached if it was dropped."""
        analysis = self.analyses.get(name)
        if analysis is None:
            raise TextNotCached(f"the text {name} is no longer in memory: send it again")
        return analysis

    def text_answer(self, text: str, progress: Progress = no_progress) -> api.TextAnswer:
        """Tokens, map labels and every head's measures on a text."""
        analysis = self.read(text, progress)
        layer_of_stack = {call.stack: layer for layer, call in analysis.calls.items()}
        labels = analysis.labels(next(iter(analysis.calls)))
        return api.TextAnswer(
            name=analysis.name,
            tokens=list(labels.keys),
            labels={
                stack: view_labels(analysis.labels(layer))
                for stack, layer in layer_of_stack.items()
            },
            has_words=bool(labels.word_of),
            has_special=any(labels.is_special),
            left_out=analysis.left_out,
            is_models_limit=self.is_models_limit,
            measured=min(analysis.batch.num_tokens, ROWS_MEASURED),
            heads=_grid(analysis.table, MEASURES),
            default_head=str(default_head(analysis.table)),
        )

    def start(self, name: str) -> None:
        """Start a job on the copy of the model; it waits until other jobs have finished."""

        def work(job: Job) -> Any:
            with job.hold(self._job_lock):
                if name == "scan":
                    return run_scan(ScanJob.of(self.job_model), progress=job.progress)
                return importance(
                    self.job_model,
                    objective=self.job_model.objective,
                    max_tokens=IMPORTANCE_TOKENS,
                    measures=JOB_MEASURES["importance"],
                    progress=job.progress,
                )

        self.jobs[name].start(work)

    def job_answer(self, name: str) -> api.JobAnswer:
        """A job's state, with the columns that its last finished run added to the grid."""
        job = self.jobs[name]
        return job.answer(job.result and _grid(job.result.table, JOB_MEASURES[name]))


def _grid(table: HeadTable, meanings: Mapping[str, str]) -> api.HeadGrid:
    columns = [name for name in meanings if name in table.df]
    return api.HeadGrid(
        names=[str(head) for head in table.heads],
        roles=[list(roles) for roles in table.df["roles"]],
        measures={
            name: replace_nonfinite(table.df[name].astype(float).tolist()) for name in columns
        },
        words={name: meanings[name] for name in columns},
    )
