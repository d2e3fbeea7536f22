"""One model, the texts that it has read, and its background jobs.

In: a ScoredModel. Out: answers for routes.py. Knows nothing about HTTP.
"""

import copy
import shlex
import threading
from contextlib import nullcontext
from dataclasses import replace
from functools import cached_property
from importlib.metadata import version
from typing import Any

from torch import Tensor

from headwise.errors import HeadwiseError
from headwise.explorer import api_types as api
from headwise.explorer.api_requests import MAX_TEXTS
from headwise.explorer.findings import first_finding, text_findings
from headwise.explorer.jobs import Job
from headwise.explorer.maps import fits_at_once, stack_axes
from headwise.explorer.model_facts import (
    BUILTIN_SWAP,
    BUILTIN_TEXT,
    JOB_MEASURES,
    LESSON_PAIR,
    MEASURE_GROUPS,
    MEASURES,
    OTHER_BUILTIN_TEXT,
    OTHER_TEXTS,
    PAIR_HEADS,
    PRONOUN,
    SWAPPED,
    describe_scan,
    make_grid,
    model_title,
    role_facts,
)
from headwise.explorer.pair_carriers import Carriers, pair_carriers
from headwise.explorer.pairs import align_words
from headwise.explorer.shipped_scans import shipped_scan
from headwise.explorer.stage_words import Tokens, read_stage_text
from headwise.explorer.text_analysis import (
    LONGEST,
    ROWS_MEASURED,
    AnalysisCache,
    TextAnalysis,
    analyse_text,
    check_heads_left,
    text_name,
)
from headwise.explorer.text_models import check_explorable, check_same_length, reading_text
from headwise.head_table import HeadTable
from headwise.heads import HeadId
from headwise.objectives.evaluation import count_heads
from headwise.objectives.losses import Embedding, NextToken
from headwise.objectives.scored_model import ScoredModel
from headwise.progress import Progress, no_progress
from headwise.pruning.importance.importance import importance
from headwise.reading.reader import Reader, token_limit
from headwise.scans.scan import ScanJob, run_scan
from headwise.watching.output_check import skip_check
from headwise.watching.running import in_evaluation

IMPORTANCE_TOKENS = 1024
"""Number of tokens to measure importance on: enough to rank heads."""
MOST_FOUND = 16
"""Number of texts whose findings are kept, and of pairs whose carriers are."""


class TextNotCached(HeadwiseError):
    """The text's analysis has been dropped from memory."""


def default_head(table: HeadTable) -> HeadId:
    """The head to show first: the sharpest that does not mostly attend to the first token."""
    sharpness = table.df["confidence"].fillna(0) - (table.df["first"] >= 0.5)
    return table.heads[int(sharpness.argmax())]


class Session:
    """One model and its cached answers."""

    def __init__(self, scored: ScoredModel, *, is_fresh: bool = False) -> None:
        """Count the model's heads by running it on a short text.

        `is_fresh` says that the model was just loaded from its file.
        """
        check_explorable(scored)
        self.scored, self.analyses = scored, AnalysisCache()
        self.baselines: dict[tuple[str, ...], Tensor] = {}
        """Outputs of the unchanged model, for compare_gated."""
        self._reader = Reader(scored.tokenizer, scored.model.config, length=LONGEST)
        inputs = self._reader.batch(self._reader.windows(["a b c d"])[:1], scored.device).inputs
        with in_evaluation(scored.model), reading_text(scored):
            self.counts = count_heads(scored.model, inputs)
            check_same_length(scored, inputs)
        check_heads_left(scored.name, self.counts)
        limit = token_limit(scored.tokenizer, scored.model.config)
        self.is_models_limit = limit is not None and limit <= LONGEST
        """Whether the model, not the explorer, limits the length of a text."""
        self.num_heads = {name: heads for name, (heads, _) in self.counts.items()}
        self.jobs = {name: Job(name) for name in JOB_MEASURES}
        self._shipped_scan = shipped_scan(scored, is_fresh=is_fresh)
        self._has_read = False
        self._found: dict[tuple[str, int], list[api.Finding]] = {}
        self._carriers: dict[tuple[str, str], Carriers] = {}
        # Copied now: later, a request's hooks may be on the model and would be copied with it.
        tensors = (*scored.model.parameters(), *scored.model.buffers())
        copied = copy.deepcopy(scored.model, {id(tensor): tensor for tensor in tensors})
        self.job_model = replace(scored, model=copied.eval())
        self._job_lock = threading.Lock()  # only one job at a time may watch the copy

    @property
    def scan_table(self) -> HeadTable | None:
        """The head table of the last finished scan, or the shipped one; None without either."""
        scan = self.jobs["scan"].result
        return self._shipped_scan if scan is None else scan.table

    @property
    def lead_roles(self) -> dict[HeadId, str]:
        """The lead role of every head that has a role; empty before a scan."""
        if self.scan_table is None:
            return {}
        pairs = zip(self.scan_table.heads, self.scan_table.df["roles"], strict=True)
        return {head: roles[0] for head, roles in pairs if roles}

    @cached_property
    def first_token(self) -> str | None:
        """The special token that begins every text; None if a word does."""
        first = self._reader.around[0][:1]
        return self.scored.tokenizer.convert_ids_to_tokens(first[0]) if first else None

    def about(self) -> api.ModelAnswer:
        """Everything about the model that the page needs before it reads a text."""
        name, revision = self.scored.name, self.scored.about.get("revision")
        arguments = shlex.join([name, "--revision", revision] if revision else [name])
        is_embedding = isinstance(self.scored.objective, Embedding)
        return api.ModelAnswer(
            name=name,
            title=model_title(name),
            version=version("headwise"),
            loads_as=arguments if "source" in self.scored.about else None,
            kind="similarity" if is_embedding else "prediction",
            layers=[api.LayerFacts(name, *counts) for name, counts in self.counts.items()],
            roles=role_facts(),
            measures=MEASURES,
            job_measures=JOB_MEASURES,
            measure_groups=MEASURE_GROUPS,
            text=BUILTIN_TEXT,
            pair=self.builtin_pair,
            lesson_pair=LESSON_PAIR if self._shipped_scan and name == "minilm" else None,
            other_texts=list(OTHER_TEXTS),
            max_texts=MAX_TEXTS,
            jobs=[job.answer() for job in self.jobs.values()],
            scan=self.scan_facts(),
        )

    def scan_facts(self) -> api.ScanFacts | None:
        """Roles and findings of the scan; None before a scan."""
        table = self.scan_table
        return None if table is None else describe_scan(table, self.first_token)

    @cached_property
    def builtin_pair(self) -> api.BuiltinPair:
        """The built-in sentence with a word swapped, and the word whose attention moves.

        In a causal model, only words from the swapped one on can change.
        """
        window = self._reader.windows([BUILTIN_TEXT])[0]
        stage = read_stage_text(BUILTIN_TEXT, Tokens.of_window(self._reader, window))
        texts = [word.text for word in stage.words or stage.pieces]
        word = SWAPPED if isinstance(self.scored.objective, NextToken) else PRONOUN
        source = texts.index(word) if word in texts else 0
        head = PAIR_HEADS.get(self.scored.name) if self._shipped_scan else None
        return api.BuiltinPair(BUILTIN_TEXT, OTHER_BUILTIN_TEXT, head, source)

    def read(self, text: str, progress: Progress = no_progress) -> TextAnalysis:
        """The analysis of a text, from the cache if possible."""
        analysis = self.analyses.get(text_name(text))
        if analysis is None:
            # Checking a longer text runs the model twice more. An embedded model passed the check
            # when its shipped scan was made, and again on the first text of this session.
            is_known = self._has_read and self._shipped_scan is not None
            with skip_check() if is_known else nullcontext():
                analysis = analyse_text(self.scored, text, progress=progress)
            self._has_read = True
            self.analyses.put(analysis)
        return analysis

    def analysis(self, name: str) -> TextAnalysis:
        """The analysis of the text called `name`; raises TextNotCached if it was dropped."""
        analysis = self.analyses.get(name)
        if analysis is None:
            raise TextNotCached(f"the text {name} is no longer in memory: send it again")
        return analysis

    def text_answer(self, text: str, progress: Progress = no_progress) -> api.TextAnswer:
        """Words of a text, every head's measures on it, and its findings."""
        analysis = self.read(text, progress)
        layer_of_stack = {call.stack: layer for layer, call in analysis.calls.items()}
        findings = self._findings(analysis)
        return api.TextAnswer(
            name=analysis.name,
            text=text,
            stacks={stack: stack_axes(analysis, layer) for stack, layer in layer_of_stack.items()},
            why_no_words=analysis.stage.why_no_words,
            rests_on_first=analysis.rests_on_first,
            is_unknown=analysis.stage.is_unknown,
            is_small=fits_at_once(analysis),
            tokens=analysis.batch.num_tokens,
            left_out=analysis.left_out,
            is_models_limit=self.is_models_limit,
            measured=min(analysis.batch.num_tokens, ROWS_MEASURED),
            heads=self._text_grid(analysis.table),
            start=first_finding(analysis, findings, default_head(analysis.table)),
            findings=findings,
        )

    def _findings(self, analysis: TextAnalysis) -> list[api.Finding]:
        """Findings on a text; kept, because Back and Pair ask for them again."""
        key = analysis.name, id(self.scan_table)
        if key not in self._found:
            is_builtin = analysis.text == BUILTIN_TEXT
            # In a causal model, the words before the swapped one cannot see it.
            is_causal = isinstance(self.scored.objective, NextToken)
            swap = BUILTIN_SWAP if is_builtin and not is_causal else None
            self._found[key] = (
                [] if analysis.stage.is_unknown else text_findings(analysis, self.lead_roles, swap)
            )
            if len(self._found) > MOST_FOUND:
                del self._found[next(iter(self._found))]  # the oldest
        return self._found[key]

    def _text_grid(self, table: HeadTable) -> api.HeadGrid:
        """Every head's measures on a text, with its roles from the scan if there is one."""
        grid, scan = make_grid(table, MEASURES), self.scan_table
        by_name = (
            {} if scan is None else dict(zip(map(str, scan.heads), scan.df["roles"], strict=True))
        )
        return replace(grid, roles=[list(by_name.get(name, ())) for name in grid.names])

    def pair_answer(
        self, text: str, other: str, progress: Progress = no_progress
    ) -> api.PairAnswer:
        """Two texts, which words of the one are also in the other, and what heads carry."""
        first, second = (self.text_answer(each, progress) for each in (text, other))
        axes = [next(iter(answer.stacks.values())) for answer in (first, second)]
        pieces = align_words(*(stack.pieces.rows for stack in axes))
        words = [stack.words.rows for stack in axes if stack.words]
        aligned = api.Aligned(align_words(*words) if len(words) == 2 else [], pieces)
        carriers = self._pair_carriers(text, other)
        return api.PairAnswer(first, second, aligned, carriers.shares, carriers.why_none)

    def _pair_carriers(self, text: str, other: str) -> Carriers:
        """Share of a pair's difference per head; kept, because Back and Save need it again."""
        key = text_name(text), text_name(other)
        if key not in self._carriers:
            self._carriers[key] = pair_carriers(self.scored, self.read(text), self.read(other))
            if len(self._carriers) > MOST_FOUND:
                del self._carriers[next(iter(self._carriers))]  # the oldest
        return self._carriers[key]

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
        return job.answer(job.result and make_grid(job.result.table, JOB_MEASURES[name]))
