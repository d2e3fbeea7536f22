"""Scan: what every head of a model does on some text and on sentences with gold relations.

In: a model, and texts or tensors. Out: a `HeadTable`. The work is a list of steps, each of which
adds to sums; steps can be done by several processes, and a scan that was stopped goes on with the
steps that are not in yet.
"""

import importlib.metadata
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, partial
from os import PathLike
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import Tensor, nn

from headwise.checks import whole_number
from headwise.errors import OptionError, warn_user
from headwise.formats import join_words
from headwise.heads import HeadTable
from headwise.measures.counter import (
    MEASURES,
    ROWS_LIMIT,
    ROWS_SAMPLED,
    HeadCounter,
    LayerCache,
    RowChoice,
    default_measures,
)
from headwise.measures.progress import Quiet, Reporter
from headwise.models.loaded import Source, open_model
from headwise.probes.builtin import builtin_sentences, check_number
from headwise.probes.sentences import ProbeSentence
from headwise.probes.treebank import sentences_of
from headwise.reading.batch import Batch
from headwise.reading.corpus import TEXTS
from headwise.reading.reader import Reader, Window, as_documents, repeat_windows, token_limit
from headwise.reading.tensors import (
    as_batches,
    batch_from_tensors,
    check_input_names,
    non_text_inputs,
)
from headwise.reading.words import encode
from headwise.scans import tables
from headwise.scans.fingerprint import (
    digest,
    digest_of_config,
    digest_of_inputs,
    digest_of_sentences,
    digest_of_tokenizer,
    digest_of_weights,
)
from headwise.scans.folder import ScanFolder
from headwise.scans.process_group import ProcessGroup
from headwise.scans.steps import EncodedSentence, RelationStep, RepeatStep, TextStep
from headwise.scans.sums import ScanSums
from headwise.watching.running import in_evaluation

REPEATED_WINDOWS = 32
SENTENCES_AT_ONCE, SENTENCE_TOKENS = 32, 1024
"""Sentences of a batch at most, and their tokens, padding included, unless one alone has more."""
SOURCES = ("probe", "treebank")
"""Where sentences with gold relations come from."""
LARGEST_SEED = 2**32 - 1
"""Such a seed times a million, and a document's index, is still a seed for torch."""


@dataclass(frozen=True)
class ScanSettings:
    """What is measured, and on how much."""

    length: int | None = None
    """Longest window in tokens; None = the model's own limit."""
    max_tokens: int | None = None
    rows: int | str = "auto"
    """`all`, a number of random rows of each window, or `auto`: all up to 2,048 tokens."""
    measures: str | tuple[str, ...] = field(default_factory=lambda: tuple(MEASURES))
    """Names, or one name alone."""
    compares: bool = True
    """Whether heads are compared with each other."""
    repeats: bool = True
    """Whether induction is measured on repeated random tokens."""
    probe: bool | None = None
    """Whether the built-in sentences with gold relations are read; None = if nothing is given."""
    per_relation: int = 100
    """Built-in sentences that are read for each relation."""
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse what cannot be measured."""
        object.__setattr__(self, "measures", checked_measures(self.measures))
        for name in ("length", "max_tokens", "per_relation", "seed"):
            value = getattr(self, name)
            if value is not None or name in ("per_relation", "seed"):
                least = 1 if name in ("length", "max_tokens") else None
                object.__setattr__(self, name, whole_number(name, value, least=least))
        if self.rows not in ("all", "auto"):
            if isinstance(self.rows, str):
                raise OptionError(
                    f"rows is {self.rows!r}: give all, auto or a number of rows", option="rows"
                )
            object.__setattr__(self, "rows", whole_number("rows", self.rows))
        if isinstance(self.rows, int) and self.rows < 1:
            raise OptionError(
                f"rows is {self.rows}: give all, auto, or a number from 1", option="rows"
            )
        for name in ("compares", "repeats", "probe"):
            value = getattr(self, name)
            if not isinstance(value, bool) and not (value is None and name == "probe"):
                raise OptionError(f"{name} is {value!r}: give True or False", option=name)
        if not 0 <= self.seed <= LARGEST_SEED:
            raise OptionError(
                f"seed is {self.seed}: it must lie in 0..{LARGEST_SEED}", option="seed"
            )
        check_number(self.per_relation)


def checked_measures(measures: Any) -> tuple[str, ...]:
    """Names of measures; one alone may be given as it is."""
    names = (measures,) if isinstance(measures, str) else measures
    if not isinstance(names, Iterable):
        raise OptionError(
            f"measures is {measures!r}: give names such as entropy", option="measures"
        )
    names = tuple(names)
    unknown = [name for name in names if not isinstance(name, str) or name not in MEASURES]
    if unknown:
        raise OptionError(
            f"there is no measure {unknown[0]!r}: the measures are {', '.join(MEASURES)}"
        )
    return names


@dataclass(frozen=True, eq=False)
class Scan:
    """Everything that a scan found."""

    table: HeadTable
    pairs: pd.DataFrame
    """Every two heads of a stack: `a`, `b`, `cka`, `divergence`."""
    relations: pd.DataFrame
    """Every relation, reading and head; empty if no such sentences were read."""


@dataclass(frozen=True, eq=False)
class ScanBatch:
    """One piece of work with a name of its own; `run_scan` adds its sums to a tally."""

    name: str
    tokens: int
    run: Callable[[ScanSums], None]


@dataclass(frozen=True, eq=False, kw_only=True)
class ScanJob:
    """A model and what it is to read."""

    model: nn.Module
    tokenizer: Any = None
    texts: Sequence[str] | None = None
    inputs: Sequence[Mapping[str, Tensor]] | None = None
    treebank: Sequence[ProbeSentence] | None = None
    settings: ScanSettings = field(default_factory=ScanSettings)
    about: Mapping[str, Any] = field(default_factory=dict)
    kept: LayerCache = field(default_factory=LayerCache, repr=False)

    @property
    def device(self) -> torch.device:
        """Where the model's first weights are."""
        first = next(self.model.parameters(), None)
        return torch.device("cpu") if first is None else first.device

    @property
    def config(self) -> Any:
        """What the model says of itself; None where it says nothing."""
        return getattr(self.model, "config", None)

    def steps(self) -> list[ScanBatch]:
        """All the work, in an order that depends on nothing but the task."""
        found = list(self.text_steps())
        if self.tokenizer is not None and self.settings.repeats:
            beside = {
                name: None
                for one in self.inputs or ()
                for name in non_text_inputs(one, self.tokenizer)
            }
            if beside:
                warn_user(
                    "induction is not measured on repeated random tokens: the model is given "
                    f"{join_words(list(beside))} besides text"
                )
            else:
                found += self.repeat_steps()
        if self.settings.probe:
            sentences = builtin_sentences(self.settings.per_relation, self.settings.seed)
            found += self.relation_steps("probe", sentences)
        if self.treebank is not None:
            found += self.relation_steps("treebank", self.treebank)
        return found

    def reader(self) -> Reader:
        """The tokenizer with the model's limits."""
        if self.tokenizer is None:
            raise OptionError("texts need a tokenizer: give one, or give inputs as tensors")
        length, limit = self.settings.length, token_limit(self.tokenizer, self.config)
        if length is not None and limit is not None and length > limit:
            raise OptionError(
                f"length is {length:,}, and the model takes {limit:,} tokens: give that or less",
                option="length",
            )
        return Reader(self.tokenizer, self.config, length=length)

    def text_steps(self) -> Iterator[ScanBatch]:
        """The measures on texts or tensors."""
        if self.inputs is not None:
            reader = None if self.tokenizer is None else Reader(self.tokenizer, self.config)
            first = 0
            for number, tensors in enumerate(self.inputs):
                batch = batch_from_tensors(tensors, self.config, reader, first)
                size = batch.num_tokens or len(batch.indices)
                yield ScanBatch(
                    f"inputs {number}", size, partial(self.take, reader, tensors, first)
                )
                first += len(batch.indices)
        if self.texts is not None:
            reader = self.reader()
            windows = reader.windows(self.texts, self.settings.max_tokens)
            for number, group in enumerate(reader.batches(windows)):
                tokens = sum(len(window.ids) for window in group)
                yield ScanBatch(f"text {number}", tokens, partial(self.read, reader, group))

    def take(
        self, reader: Reader | None, tensors: Mapping[str, Tensor], first: int, tally: ScanSums
    ) -> None:
        """Measure a batch of tensors; all that is worked out of it is gone afterwards."""
        self.measure(batch_from_tensors(tensors, self.config, reader, first), tally)

    def read(self, reader: Reader, windows: list[Window], tally: ScanSums) -> None:
        """Measure some windows of text."""
        self.measure(reader.batch(windows, self.device), tally)

    def measure(self, batch: Batch, tally: ScanSums) -> None:
        """Measure one batch, whatever is measured beside the baselines of the roles."""
        settings = self.settings
        choice = RowChoice(settings.rows, settings.seed)
        measures = default_measures((*settings.measures, "uniform"))
        count = HeadCounter(tally, measures, choice, compares=settings.compares, kept=self.kept)
        TextStep(count).run(self.model, batch)
        if batch.num_tokens:
            tally.count("tokens", batch.num_tokens)
        tally.count("windows", len(batch.indices))

    def repeat_steps(self) -> Iterator[ScanBatch]:
        """Induction on repeated random tokens."""
        reader = self.reader()
        windows = repeat_windows(reader, count=REPEATED_WINDOWS, seed=self.settings.seed)
        for number, group in enumerate(reader.batches(windows)):
            tokens = sum(len(window.ids) for window in group)
            yield ScanBatch(f"repeats {number}", tokens, partial(self.repeat, reader, group))

    def repeat(self, reader: Reader, windows: list[Window], tally: ScanSums) -> None:
        """Measure induction on some windows of repeated tokens."""
        RepeatStep(tally, self.kept).run(self.model, reader.batch(windows, self.device))
        tally.count("repeated_tokens", sum(len(window.ids) for window in windows))

    def relation_steps(
        self, source: str, sentences: Iterable[ProbeSentence]
    ) -> Iterator[ScanBatch]:
        """Gold relations, sentences of like length together."""
        reader = self.reader()
        usable, unusable = [], 0
        for index, sentence in enumerate(sentences):
            encoded = encode(sentence.words, self.tokenizer)
            if encoded is None or len(encoded.input_ids) > reader.length:
                unusable += 1
            else:
                usable.append(EncodedSentence(index, sentence, encoded))
        if unusable:
            yield ScanBatch(f"{source} unusable", 0, partial(count_unusable, source, unusable))
        for number, group in enumerate(sentence_groups(usable)):
            tokens = sum(len(one.encoded.input_ids) for one in group)
            yield ScanBatch(
                f"{source} {number}", tokens, partial(self.relate, source, reader, group)
            )

    def relate(
        self, source: str, reader: Reader, sentences: list[EncodedSentence], tally: ScanSums
    ) -> None:
        """Hold the heads against the gold relations of some sentences."""
        windows = [Window(one.index, tuple(one.encoded.input_ids)) for one in sentences]
        batch = reader.batch(windows, self.device)
        RelationStep(tally, source).run(self.model, batch, sentences)
        tally.count(f"{source}_sentences", len(sentences))

    @cached_property
    def fingerprint(self) -> dict[str, Any]:
        """What a scan that goes on must agree in with the one that was stopped.

        The model is as it is when this is first asked for.
        """
        tokenizer = self.tokenizer
        made = {
            "model": dict(self.about),
            "weights": digest_of_weights(self.model),
            "config": None if self.config is None else digest_of_config(self.config),
            "tokenizer": None if tokenizer is None else digest_of_tokenizer(tokenizer),
            "texts": None if self.texts is None else digest(self.texts),
            "inputs": None if self.inputs is None else digest_of_inputs(self.inputs),
            "treebank": None if self.treebank is None else digest_of_sentences(self.treebank),
            "settings": asdict(self.settings),
        }
        plain: dict[str, Any] = json.loads(json.dumps({**made, **versions()}))
        return plain


def sentence_groups(sentences: Iterable[EncodedSentence]) -> list[list[EncodedSentence]]:
    """The sentences by length, shortest first, in groups whose full weights fit into memory."""
    groups: list[list[EncodedSentence]] = [[]]
    for one in sorted(sentences, key=lambda one: (len(one.encoded.input_ids), one.index)):
        padded = (len(groups[-1]) + 1) * len(one.encoded.input_ids)
        if groups[-1] and (padded > SENTENCE_TOKENS or len(groups[-1]) == SENTENCES_AT_ONCE):
            groups.append([])
        groups[-1].append(one)
    return [group for group in groups if group]


def count_unusable(source: str, number: int, tally: ScanSums) -> None:
    """Count sentences that are too long, or have a word without a token."""
    tally.count(f"{source}_unusable", number)


def versions() -> dict[str, str]:
    """The packages that the numbers depend on."""
    names = ("headwise", "torch", "transformers", "numpy")
    return {name: importlib.metadata.version(name) for name in names}


def run_scan(
    task: ScanJob,
    *,
    out: Path | None = None,
    force: bool = False,
    report: Reporter | None = None,
    spread: ProcessGroup | None = None,
) -> Scan:
    """Do every step that is not in yet.

    With `out` the sums are kept there as they grow, and the tables at the end. The processes of a
    `spread` share the steps, and each has all that they found; without one, all work is done here.
    """
    report, spread = report or Quiet(), spread or ProcessGroup()
    fingerprint = task.fingerprint  # now, and not after the work: it can refuse what is read
    store = None if out is None else ScanFolder(out, fingerprint, spread, force=force)
    steps = [step for number, step in enumerate(task.steps()) if spread.owns(number)]
    tally = ScanSums() if store is None else store.begin()
    report.start(sum(step.tokens for step in steps))
    try:
        with in_evaluation(task.model):
            for step in steps:
                if step.name not in tally.done:
                    step.run(tally)
                    tally.done.add(step.name)
                    if store is not None:
                        store.save(tally)
                report.advance(step.tokens)
        if store is not None:
            store.save(tally, now=True)  # not after an interrupt: half a step may be in the sums
    finally:
        report.stop()
    found = scan_of(spread.merged(tally), task)
    if store is not None and spread.is_first:
        store.finish(found)
    return found


def scan_of(tally: ScanSums, task: ScanJob) -> Scan:
    """The tables that a finished tally gives."""
    if not tally.num_heads:
        unusable = sum(tally.counts.get(f"{source}_unusable", 0) for source in SOURCES)
        if unusable:
            raise OptionError(
                f"none of the {unusable} sentences can be used: each is too long for the model or "
                "has a word without a token; give shorter ones"
            )
        raise OptionError("nothing was scanned: give texts, inputs or sentences")
    relations = tables.relations(tally)
    made = task.fingerprint
    about = {
        "model": made["model"].get("name", ""),
        "loaded": made["model"],
        "revision": made["model"].get("revision"),
        **{name: tally.counts[name] for name in ("tokens",) if name in tally.counts},
        "counts": dict(sorted(tally.counts.items())),
        "rows": rows_in_words(task.settings),
        **{name: value for name, value in made.items() if name != "model"},
    }
    df = tables.head_table(tally, relations, about).df
    columns = {name: words for name, words in described_columns().items() if name in df}
    table = HeadTable(df, {**about, "columns": columns})
    return Scan(table, tables.pairs(tally), relations)


def described_columns() -> dict[str, str]:
    """What every column of a scan means that is not a role's or a standard error."""
    measured = {name: words for one in MEASURES.values() for name, words in one.columns.items()}
    return measured | tables.DERIVED_COLUMNS


def rows_in_words(settings: ScanSettings) -> str:
    """Which rows of each window were measured."""
    match settings.rows:
        case "all":
            return "every row"
        case "auto":
            return f"every row up to {ROWS_LIMIT:,} tokens, {ROWS_SAMPLED} random rows beyond"
    return f"{settings.rows} random rows of each window"


def scan(  # noqa: PLR0913 - what is read, how, and where it goes
    model: Source = "minilm",
    texts: str | Sequence[str] | None = None,
    *,
    tokenizer: Any = None,
    inputs: Sequence[Mapping[str, Tensor]] | None = None,
    treebank: str | PathLike[str] | Iterable[ProbeSentence] | None = None,
    settings: ScanSettings | None = None,
    out: str | Path | None = None,
    force: bool = False,
    shares_work: bool = False,
) -> HeadTable:
    """What every head of a model does.

    `model` is a transformers model, one with its tokenizer as `headwise.load_model` gives it, or a
    name: `minilm`, `smollm2`, a directory, a hub id. `texts` are documents, read by the tokenizer;
    `inputs` are tensors the model takes, for a model without one; `treebank` is a CoNLL-U file, or
    sentences with gold relations. Left alone, the built-in text and sentences are read. A stopped
    scan goes on in `out`; `force` replaces another scan there. With `shares_work` the processes
    that torchrun started share the steps: all of them must call this, and each gets the table.
    """
    task = make_scan_job(
        model, texts, tokenizer=tokenizer, inputs=inputs, treebank=treebank, settings=settings
    )
    folder, spread = (
        None if out is None else Path(out),
        ProcessGroup.here() if shares_work else None,
    )
    return run_scan(task, out=folder, force=force, spread=spread).table


def make_scan_job(
    model: Source,
    texts: str | Sequence[str] | None = None,
    *,
    tokenizer: Any = None,
    inputs: Sequence[Mapping[str, Tensor]] | None = None,
    treebank: str | PathLike[str] | Iterable[ProbeSentence] | None = None,
    settings: ScanSettings | None = None,
) -> ScanJob:
    """A model and what it is to read; the built-in text and sentences if nothing is given."""
    settings = settings or ScanSettings()
    is_alone = texts is None and inputs is None and treebank is None
    if settings.probe is None:
        settings = replace(settings, probe=is_alone)
    batches = None if inputs is None else as_batches(inputs)
    documents = as_documents(TEXTS if is_alone else texts)
    sentences = None if treebank is None else sentences_of(treebank)
    if tokenizer is not None and not hasattr(tokenizer, "all_special_ids"):
        raise OptionError(
            f"tokenizer is of type {type(tokenizer).__name__}: give the tokenizer itself, as "
            "transformers.AutoTokenizer.from_pretrained gives it"
        )
    loaded = open_model(model)
    for batch in batches or ():
        check_input_names(loaded.model, batch)
    return ScanJob(
        model=loaded.model,
        tokenizer=loaded.tokenizer if tokenizer is None else tokenizer,
        texts=documents,
        inputs=batches,
        treebank=sentences,
        settings=settings,
        about={"name": loaded.name, **loaded.about},
    )
