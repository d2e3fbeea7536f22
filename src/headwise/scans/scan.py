"""scan(): measure every head of a model on texts and on sentences with gold relations.

In: a model, and texts or tensors. Out: a `Scan`. The work is a list of batches, each of which adds
to the sums. Processes can share the batches, and a stopped scan resumes with the remaining ones.
"""

import importlib.metadata
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, field, replace
from functools import cached_property, partial
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from headwise.errors import OptionError, warn_user
from headwise.formats import join_words
from headwise.head_table import HeadTable
from headwise.measures.counter import (
    HeadCounter,
    LayerCache,
    RowChoice,
    make_measures,
    sequence_views,
    tokens_of,
)
from headwise.measures.measure import measure_rows
from headwise.measures.repeats import Repeats
from headwise.measures.uniform import Uniform
from headwise.models import fingerprint
from headwise.models.loaded import Source, open_model
from headwise.models.loading import LoadOptions
from headwise.models.modalities import check_reads_text
from headwise.probes.builtin import builtin_sentences
from headwise.probes.natural import balanced_sentences, natural_sentences
from headwise.probes.scoring import RelationScores
from headwise.probes.sentences import ProbeSentence
from headwise.probes.treebank import as_sentences
from headwise.progress import Progress, no_progress
from headwise.reading.batch import Batch, TokenKinds
from headwise.reading.corpus import scan_texts
from headwise.reading.reader import Reader, Window, as_documents, repeat_windows, token_limit
from headwise.reading.tensors import (
    as_batches,
    batch_from_tensors,
    check_input_names,
    non_text_inputs,
)
from headwise.reading.words import merge_pieces
from headwise.scans.examples import find_examples
from headwise.scans.folder import Scan, ScanFolder
from headwise.scans.gold_sentences import GoldSentences
from headwise.scans.left_out import find_left_out
from headwise.scans.process_group import ProcessGroup
from headwise.scans.settings import ScanSettings
from headwise.scans.suitability import why_unsuited
from headwise.scans.sums import ScanSums
from headwise.scans.tables import column_meanings, head_pairs, head_table, relation_table
from headwise.watching.calls import Call
from headwise.watching.failures import explain_failures
from headwise.watching.running import forward_batch, in_evaluation
from headwise.watching.watch import watch

STAGE = "reading tokens"
"""Name of a scan's only progress stage, which counts tokens."""
REPEATED_WINDOWS = 32
SENTENCE_TOKENS = 1024
"""Maximum tokens in a batch of sentences, including padding: its full weights stay in memory."""
VERSIONS = ("headwise", "torch", "transformers", "numpy")  # packages that affect the results
ON_REPEATS = {
    "text_induction": "induction",
    "value_text_induction": "value_induction",
    "uniform_duplicate": "uniform_induction",
}
"""Columns measured on repeated random tokens, and the names they get in the table."""
BatchCounter = Callable[[Batch, ScanSums], None]
"""Function that runs the model on a batch and adds its counts to the sums."""


def scan(  # noqa: PLR0913 - what to read, how, and where to save
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
    """Measure every head of a model and return a table with one row per head.

    `model` is a name (`minilm`, `smollm2`, a directory, a hub id), a transformers model, or a
    `LoadedModel`. `texts` are documents for the tokenizer; `inputs` are tensors, for a model
    without a tokenizer; `treebank` is a CoNLL-U file, or sentences with gold relations. If all
    three are None, the scan reads the built-in text and sentences. Results are saved in the folder
    `out`, where a stopped scan resumes; `force` replaces another scan there. With `shares_work`,
    processes started by torchrun share the batches: each must call `scan`, and gets the table.
    """
    job = ScanJob.of(
        model, texts, tokenizer=tokenizer, inputs=inputs, treebank=treebank, settings=settings
    )
    group = ProcessGroup.from_environment() if shares_work else ProcessGroup()
    return run_scan(job, out=None if out is None else Path(out), force=force, group=group).table


def run_scan(
    job: "ScanJob",
    *,
    out: Path | None = None,
    force: bool = False,
    progress: Progress = no_progress,
    group: ProcessGroup = ProcessGroup(),  # noqa: B008 - frozen
) -> Scan:
    """Count every batch that is not yet in the sums, then build the tables.

    The sums are saved in `out` as they grow, and the tables at the end. The processes in `group`
    share the batches, and each returns the whole scan.
    """
    settings = job.fingerprint  # comes first, because it rejects unreadable inputs
    folder = None if out is None else ScanFolder(out, settings, group, force=force)
    batches = job.batches()[group.rank :: group.world]
    sums = ScanSums() if folder is None else folder.begin()
    done, total = 0, sum(batch.tokens for batch in batches)
    progress(STAGE, done, total)
    with in_evaluation(job.model):
        for batch in batches:
            if batch.name not in sums.done:
                batch.count(batch.build(), sums)
                sums.done.add(batch.name)
                if folder is not None:
                    folder.save(sums)
            done += batch.tokens
            progress(STAGE, done, total)
    if folder is None:
        return job.build_tables(group.gather(sums))
    folder.save(sums, now=True)  # not after an interrupt: the sums may include half a batch
    result = replace(job.build_tables(group.gather(sums)), was_complete=folder.was_complete)
    if group.is_first:
        result.write(folder.run.folder, force=True)
    return result


@dataclass(frozen=True, eq=False)
class ScanBatch:
    """A batch that `run_scan` builds and then counts."""

    name: str
    tokens: int
    build: Callable[[], Batch]
    count: BatchCounter


@dataclass(frozen=True, eq=False, kw_only=True)
class ScanJob:
    """A model, its inputs and the settings of a scan."""

    model: nn.Module
    tokenizer: Any = None
    texts: Sequence[str] | None = None
    inputs: Sequence[Mapping[str, Tensor]] | None = None
    treebank: Sequence[ProbeSentence] | None = None
    settings: ScanSettings = field(default_factory=ScanSettings)
    has_default_text: bool = False
    """Whether the user gave no text, inputs or sentences."""
    about: Mapping[str, Any] = field(default_factory=dict)
    cache: LayerCache = field(default_factory=LayerCache, repr=False)

    @classmethod
    def of(
        cls,
        model: Source,
        texts: str | Sequence[str] | None = None,
        *,
        tokenizer: Any = None,
        inputs: Sequence[Mapping[str, Tensor]] | None = None,
        treebank: str | PathLike[str] | Iterable[ProbeSentence] | None = None,
        settings: ScanSettings | None = None,
    ) -> "ScanJob":
        """Open the model and check its inputs; see `scan` for the arguments."""
        settings = settings or ScanSettings()
        is_alone = texts is None and inputs is None and treebank is None
        batches = None if inputs is None else as_batches(inputs)
        documents = as_documents(scan_texts() if is_alone else texts)
        sentences = None if treebank is None else as_sentences(treebank)
        if tokenizer is not None and not hasattr(tokenizer, "all_special_ids"):
            raise OptionError(
                f"tokenizer is a {type(tokenizer).__name__}: pass the tokenizer itself, such as "
                "the result of transformers.AutoTokenizer.from_pretrained"
            )
        needs_tokenizer = inputs is None and tokenizer is None
        loaded = open_model(model, tokenizer, options=LoadOptions(needs_tokenizer=needs_tokenizer))
        if batches is None:
            check_reads_text(loaded)
        for batch in batches or ():
            check_input_names(loaded.model, batch)
        return cls(
            model=loaded.model,
            tokenizer=loaded.tokenizer,
            texts=documents,
            inputs=batches,
            treebank=sentences,
            settings=settings,
            has_default_text=is_alone,
            about={"name": loaded.name, **loaded.about},
        )

    @property
    def config(self) -> Any:
        """The model's config; None if it has none."""
        return getattr(self.model, "config", None)

    @cached_property
    def fingerprint(self) -> dict[str, Any]:
        """Everything that must be the same when a stopped scan resumes, as JSON values."""
        tokenizer, treebank = self.tokenizer, self.treebank
        facts = {
            "model": dict(self.about),
            "weights": fingerprint.digest_weights(self.model),
            "config": None if self.config is None else fingerprint.digest_config(self.config),
            "tokenizer": None if tokenizer is None else fingerprint.digest_tokenizer(tokenizer),
            "texts": None if self.texts is None else fingerprint.digest_texts(self.texts),
            "inputs": None if self.inputs is None else fingerprint.digest_inputs(self.inputs),
            "treebank": None
            if treebank is None
            else fingerprint.digest_texts(json.dumps(astuple(sentence)) for sentence in treebank),
            "settings": self.settings.to_json(),
            **{name: importlib.metadata.version(name) for name in VERSIONS},
        }
        plain: dict[str, Any] = json.loads(json.dumps(facts))
        return plain

    def batches(self) -> list[ScanBatch]:
        """All batches of the scan, in an order that depends only on the job."""
        kinds = None if self.tokenizer is None else TokenKinds(self.tokenizer)
        batches, num_sequences = list[ScanBatch](), 0
        for number, tensors in enumerate(self.inputs or ()):
            build = partial(batch_from_tensors, tensors, self.config, kinds, num_sequences)
            batch = build()
            size = batch.num_tokens or len(batch.indices)
            batches.append(ScanBatch(f"inputs {number}", size, build, self._count_measures))
            num_sequences += len(batch.indices)
        if self.texts is not None:
            windows = self._reader.windows(self.texts, self.settings.max_tokens)
            groups = self._reader.batches(windows)
            batches += self._window_batches("text", groups, self._count_measures)
        if self.tokenizer is not None and self.settings.repeats:
            others = [non_text_inputs(tensors, self.tokenizer) for tensors in self.inputs or ()]
            if names := list(dict.fromkeys(name for part in others for name in part)):
                warn_user(
                    "induction is not measured on repeated random tokens: the model also reads "
                    f"{join_words(names)}"
                )
            else:
                seed = self.settings.seed
                windows = repeat_windows(self._reader, count=REPEATED_WINDOWS, seed=seed)
                groups = self._reader.batches(windows)
                batches += self._window_batches("repeats", groups, self._count_induction)
        for source, gold in self._gold.items():
            groups = self._reader.batches(gold.windows(), SENTENCE_TOKENS)
            batches += self._window_batches(source, groups, partial(self._count_relations, source))
        return batches

    def _window_batches(
        self, name: str, groups: list[list[Window]], count: BatchCounter
    ) -> Iterator[ScanBatch]:
        weight = next(self.model.parameters(), None)
        device = "cpu" if weight is None else weight.device
        for number, group in enumerate(groups):
            tokens = sum(len(window.ids) for window in group)
            build = partial(self._reader.batch, group, device)
            yield ScanBatch(f"{name} {number}", tokens, build, count)

    @cached_property
    def _reader(self) -> Reader:
        if self.tokenizer is None:
            raise OptionError("texts need a tokenizer: pass a tokenizer, or tensors as inputs")
        length, limit = self.settings.length, token_limit(self.tokenizer, self.config)
        if length is not None and limit is not None and length > limit:
            raise OptionError(
                f"length is {length:,}: the model reads at most {limit:,} tokens; reduce length",
                option="length",
            )
        return Reader(self.tokenizer, self.config, length=length)

    @cached_property
    def _gold(self) -> dict[str, GoldSentences]:
        """Sentences with gold relations, by source."""
        gold = {}
        if self.reads_builtin_sentences:
            count, seed = self.settings.per_relation, self.settings.seed
            gold["natural"] = self._natural
            gold["controlled"] = GoldSentences.of(builtin_sentences(count, seed), self._reader)
        if self.settings.probe:  # these give no role, so they are read only on request
            gold["balanced"] = GoldSentences.of(self._some(balanced_sentences()), self._reader)
        if self.treebank is not None:
            gold["treebank"] = GoldSentences.of(self.treebank, self._reader)
        return gold

    @cached_property
    def _natural(self) -> GoldSentences:
        return GoldSentences.of(self._some(natural_sentences()), self._reader)

    def _some(self, sentences: Sequence[ProbeSentence]) -> Sequence[ProbeSentence]:
        """At most `max_sentences` of the sentences, evenly distributed."""
        most = self.settings.max_sentences
        if most is None or most >= len(sentences):
            return sentences
        return [sentences[number * len(sentences) // most] for number in range(most)]

    @cached_property
    def unsuited(self) -> str:
        """The reason not to read the built-in sentences by default; "" if there is none."""
        is_undecided = self.settings.probe is None and self.has_default_text
        return why_unsuited(self.model, self._reader, self._natural) if is_undecided else ""

    @property
    def reads_builtin_sentences(self) -> bool:
        """Whether to read the built-in sentences: on request, or by default if they suit."""
        return bool(self.settings.probe) or (
            self.settings.probe is None and self.has_default_text and not self.unsuited
        )

    def _count_measures(self, batch: Batch, sums: ScanSums) -> None:
        settings = self.settings
        counter = HeadCounter(
            sums.heads,
            make_measures((*settings.measure_choices, "uniform")),  # baseline for roles
            RowChoice(settings.rows, settings.seed),
            compares=settings.compares,
            cache=self.cache,
        )
        sums.left_out |= count_batch(self.model, batch, counter)
        if batch.num_tokens:
            sums.counts["tokens"] += batch.num_tokens
        sums.counts["windows"] += len(batch.indices)

    def _count_induction(self, batch: Batch, sums: ScanSums) -> None:
        """Measure induction on a batch of repeated random tokens, in columns of its own."""
        measures = [Repeats(), Uniform()]

        def add(call: Call) -> None:
            for _, _, view in sequence_views(call, batch, RowChoice("all"), self.cache):
                columns = measure_rows(view, measures)
                for name, renamed in ON_REPEATS.items():
                    if name in columns:
                        key = (call.stack, call.layer)
                        sums.heads.add_columns(key, {renamed: columns[name]}, 1.0)

        _read_batch(self.model, batch, add, needs_lse=True)
        self.cache.warn_of_indirect_outputs()
        sums.counts["repeated_tokens"] += batch.num_tokens

    def _count_relations(self, source: str, batch: Batch, sums: ScanSums) -> None:
        """Count how often each head finds the gold partner of a word."""
        gold = self._gold[source]
        sentences = [(gold.sentences[index], gold.encoded[index]) for index in batch.indices]
        between_words: dict[str, list[list[Tensor]]] = {}  # by stack, sentence and layer
        is_causal: dict[str, bool] = {}
        unreadable: set[str] = set()
        layers_read: set[tuple[str, int]] = set()

        def add(call: Call) -> None:
            key = (call.stack, call.layer)
            if call.stack == "cross" or key in layers_read:  # only the first of a layer's calls
                return
            layers_read.add(key)
            sums.heads.num_heads[key] = call.num_heads
            if None in tokens_of(call, batch):  # as in windows, or where tokens are joined
                unreadable.add(call.stack)
                return
            weights = call.weights()
            if call.stack not in between_words:
                between_words[call.stack] = [[] for _ in sentences]
                is_causal[call.stack] = not weights[0].triu(1).any()
            of_stack = between_words[call.stack]
            for (_, encoded), padded, layers in zip(sentences, weights, of_stack, strict=True):
                word_of = encoded.word_of_token
                real = padded[:, : len(word_of), : len(word_of)].float()
                layers.append(merge_pieces(real, word_of).cpu())

        _read_batch(self.model, batch, add)
        for stack, of_stack in between_words.items():
            if stack in unreadable:  # heads are numbered within the stack, so none is counted
                continue
            weights = [torch.cat(layers) for layers in of_stack]
            empty = RelationScores(len(weights[0]), is_causal=is_causal[stack])
            scores = sums.relations.setdefault(f"{source}|{stack}", empty)
            parts = zip(batch.indices, sentences, weights, strict=True)
            for index, (sentence, encoded), part in parts:
                scores.add(index, sentence, part, encoded.pieces)
        sums.counts[f"{source}_sentences"] += len(sentences)

    def build_tables(self, sums: ScanSums) -> Scan:
        """Build the tables from the sums of all batches."""
        unusable = {
            source: gold.num_unusable for source, gold in self._gold.items() if gold.num_unusable
        }
        if not sums.heads.num_heads:
            if unusable:
                raise OptionError(
                    f"none of the {sum(unusable.values())} sentences can be used: each is too long "
                    "for the model or has a word without a token; use shorter ones"
                )
            raise OptionError("nothing was scanned: pass texts, inputs or sentences")
        counts = {**sums.counts, **{f"{source}_unusable": n for source, n in unusable.items()}}
        facts = self.fingerprint
        about = {
            "model": facts["model"].get("name", ""),
            "loaded": facts["model"],
            "revision": facts["model"].get("revision"),
            **({"tokens": counts["tokens"]} if "tokens" in counts else {}),
            "counts": dict(sorted(counts.items())),
            "rows": self.settings.describe_rows(),
            **({"unmeasured": self.unsuited} if self.unsuited else {}),
            **({"left_out": left_out} if (left_out := find_left_out(self.model, sums)) else {}),
            **{name: value for name, value in facts.items() if name != "model"},
        }
        halves = {source: gold.halves for source, gold in self._gold.items()}
        relations = relation_table(sums, halves)
        table = head_table(sums.heads, about, relations)
        if examples := find_examples(table.df, sums.relations, self._gold):
            table.about["examples"] = examples
        meanings = column_meanings(self.settings.measure_choices).items()
        table.about["columns"] = {name: words for name, words in meanings if name in table.df}
        return Scan(table, head_pairs(sums.heads), relations)


def count_batch(model: nn.Module, batch: Batch, counter: HeadCounter) -> dict[str, str]:
    """Run the model on one batch and count every attention call.

    Returns the layers whose weights cannot be read, with the reason.
    """
    left_out = _read_batch(model, batch, lambda call: counter.add(call, batch), needs_lse=True)
    counter.finish()
    counter.cache.warn_of_indirect_outputs()
    return left_out


def _read_batch(
    model: nn.Module, batch: Batch, add: Callable[[Call], None], *, needs_lse: bool = False
) -> dict[str, str]:
    """Run the model on a batch, pass every attention call to `add`, and explain bad inputs.

    Returns the layers whose weights cannot be read, with the reason.
    """
    with (
        torch.inference_mode(),
        watch(model, add, needs_lse=needs_lse) as watched,
        explain_failures(model, batch.inputs),
    ):
        forward_batch(model, batch.inputs)
    return watched.left_out
