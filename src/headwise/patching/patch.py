"""Patch: which heads make a model answer this rather than that.

In: a model, and pairs of a clean and a corrupted prompt. Out: a `PatchResult`: for every head, the
share of the difference between both runs that it carries, exactly and estimated, and its direct
effect on the logits.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from importlib.metadata import version
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Any
from uuid import uuid4

import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor, nn

from headwise.errors import ModelError, OptionError, warn_user
from headwise.files import lock_folder, make_folder
from headwise.formats import format_count
from headwise.head_table import HeadTable
from headwise.heads import HeadId
from headwise.models.fingerprint import digest_weights
from headwise.models.loaded import LoadedModel, Source, open_model
from headwise.models.loading import LoadOptions
from headwise.patching.alignment import align_pairs
from headwise.patching.attribution import attribute_heads, attribute_with_drops
from headwise.patching.direct_effect import direct_effects
from headwise.patching.exact import patch_layers
from headwise.patching.metrics import (
    Metric,
)
from headwise.patching.paths import INPUTS, earlier_heads, patch_paths
from headwise.patching.prompts import PromptPair
from headwise.patching.requests import choose_metric, choose_pairs
from headwise.patching.result import (
    PatchResult,
    agreement,
    bootstrap_shares,
    estimate_columns,
)
from headwise.patching.runs import PairRuns, run_pairs
from headwise.patching.settings import PatchSettings
from headwise.patching.store import EffectStore
from headwise.progress import Progress, no_progress
from headwise.reading.batch import Inputs
from headwise.watching.running import in_evaluation

SMALLEST_DIFFERENCE = 1e-6
"""If the metric differs less between both runs, there is nothing to explain."""


def patch(  # noqa: PLR0913 - all but the first three are keyword-only
    source: Source,
    clean: str | Sequence[str] | None = None,
    corrupted: str | Sequence[str] | None = None,
    *,
    answer: str | Sequence[str] = "",
    instead: str | Sequence[str] = "",
    pairs: str | Path | Iterable[PromptPair] | None = None,
    task: str | None = None,
    count: int | None = None,
    metric: str | Callable[[nn.Module, Inputs], Tensor] | None = None,
    settings: PatchSettings | None = None,
    tokenizer: Any = None,
    out: str | Path | None = None,
    force: bool = False,
    progress: Progress = no_progress,
) -> PatchResult:
    """Measure which heads carry the difference between clean and corrupted prompts.

    Pass two prompts with as many tokens each (or lists of them), `pairs` (or a CSV or JSON lines
    file of them), or the name of a built-in `task`. `count` limits the number of pairs. `metric` is
    logit-difference (the default with answers), probability, kl, cosine (the default for embedding
    models), or a function that maps model and inputs to one number per example. With `out`, results
    are written to that folder, and a stopped run resumes there.

    headwise.patch("smollm2", task="indirect-object").strongest(5)
    """
    settings = settings or PatchSettings()
    loaded = open_model(source, tokenizer, options=LoadOptions(keeps_head=True))
    chosen = choose_pairs(
        loaded,
        clean,
        corrupted,
        answer=answer,
        instead=instead,
        pairs=pairs,
        task=task,
        count=count,
    )
    measure = choose_metric(loaded, metric, has_answers=bool(chosen[0].answer))
    run = _PatchRun(loaded, chosen, measure, settings, progress)
    with in_evaluation(loaded.model):
        run.check()
        if out is None:
            return run.result(EffectStore())
    folder = Path(out).expanduser()
    about: dict[str, Any] = {
        "settings": settings.to_json(),
        # A function cannot be compared with that of an earlier run, so its runs do not resume.
        "metric": str(uuid4()) if callable(metric) else measure.name,
        "pairs": [asdict(pair) for pair in chosen],
        "weights": digest_weights(loaded.model),
        "headwise": version("headwise"),
    }
    make_folder(folder)
    with lock_folder(folder), in_evaluation(loaded.model):
        store = EffectStore.open(folder, about, force=force)
        result = run.result(store)
        store.save()
        result.write(folder, force=True)
        return result


@dataclass(frozen=True, eq=False)
class _PatchRun:
    """One call of `patch`: everything that is measured, batch by batch."""

    loaded: LoadedModel
    pairs: tuple[PromptPair, ...]
    metric: Metric
    settings: PatchSettings
    progress: Progress

    @cached_property
    def runs(self) -> list[PairRuns]:
        """Both runs of every batch of pairs."""
        runs = []
        for batch in align_pairs(self.loaded, self.pairs):
            runs.append(run_pairs(self.loaded.model, batch, self.metric))
            for before in runs[:-1]:
                before.forget_calls()
        return runs

    def each_run(self, batches: Sequence[PairRuns] | None = None) -> Iterator[PairRuns]:
        """Both runs of one batch after the other; only one keeps its attention in memory."""
        for runs in self.runs if batches is None else batches:
            for other in self.runs:
                if other is not runs:
                    other.forget_calls()
            yield runs

    @cached_property
    def heads(self) -> tuple[HeadId, ...]:
        """Every head of the model, layer by layer."""
        called = self.runs[0].calls["noise"]
        return tuple(
            HeadId(call.layer, head, call.stack)
            for call in called
            for head in range(call.num_heads)
        )

    @cached_property
    def differences(self) -> Float[Tensor, " pairs"]:
        """How much larger the metric is in the clean run than in the corrupted one."""
        return self._in_order([(runs.clean - runs.corrupted)[None] for runs in self.runs])[0]

    def check(self) -> None:
        """Run the model on all pairs; raise OptionError if the settings do not suit them."""
        for runs in self.runs:
            runs.is_patched(self.settings.positions)
        settings = self.settings
        is_flat = self.metric.is_largest_when_clean and settings.directions[0] == "noise"
        has_none = settings.exact is not True and not settings.steps
        if is_flat and (settings.grad_drop or has_none):
            raise OptionError(
                f"the metric {self.metric.name} has no gradient in the clean run, so noising "
                "cannot be estimated with it: denoise first, or patch every head exactly",
                option="metric",
            )
        if (receiver := self.settings.receiver) is not None:
            assert isinstance(receiver, HeadId)
            earlier_heads(receiver, self.heads)
        mean = float(self.differences.mean())
        if not abs(mean) > SMALLEST_DIFFERENCE:
            raise OptionError(
                f"the {self.metric.name} is the same in both runs, on average over "
                f"{format_count(len(self.pairs), 'pair')} (difference {mean:.2g}): choose prompts "
                "that the model answers differently"
            )

    def result(self, store: EffectStore) -> PatchResult:
        """Measure everything that the settings ask for; `store` has the changes known so far."""
        settings, first = self.settings, self.settings.directions[0]
        mean, estimates = float(self.differences.mean()), dict[str, Tensor]()
        is_flat = self.metric.is_largest_when_clean and first == "noise"
        if settings.attribution and not is_flat:
            estimates["attribution"] = self._attribution(first, steps=0)
        if settings.steps:
            estimates["attribution_steps"] = self._attribution(first, steps=settings.steps)
        patched = self._heads_to_patch(estimates.get("attribution"))
        exact: dict[str, Tensor] = {}
        for direction in settings.directions if patched else ():
            changes = self._in_order(self._exact(store, direction, self.runs, patched))
            exact[f"patch_{direction}"] = self._in_all_rows(patched, changes)
        columns: dict[str, list[float]] = {}
        for name, changes in (exact | estimates).items():
            columns |= self._columns(name, changes)
        means = {name: changes.mean(1) / mean for name, changes in (exact | estimates).items()}
        if settings.grad_drop:
            means["attribution_drops"] = self._drops(first)
            columns["attribution_drops"] = means["attribution_drops"].tolist()
        about = self._about(mean)
        if patched and settings.control:
            about["control"], columns["control"] = self._control(
                store, first, means[f"patch_{first}"]
            )
        shares = {name: means[name] for name in means if name not in exact}
        if len(patched) == len(self.heads) and shares:
            about["agreement"] = agreement(shares, means[f"patch_{first}"])
        direct = self._direct()
        if direct is not None:
            rows = bootstrap_shares(direct, None, resamples=settings.resamples, seed=settings.seed)
            columns |= estimate_columns("direct_logit", rows)
        places = {
            name: [getattr(head, name) for head in self.heads]
            for name in ("stack", "layer", "head")
        }
        table = HeadTable(pd.DataFrame({**places, **columns}), about)
        return PatchResult(table, self._paths(first))

    def _heads_to_patch(self, estimates: Float[Tensor, "heads pairs"] | None) -> tuple[HeadId, ...]:
        """Heads to patch exactly, in the order of `heads`."""
        exact = self.settings.exact
        if isinstance(exact, bool):
            return self.heads if exact else ()
        assert estimates is not None
        count = min(exact, len(self.heads))
        rows = estimates.mean(1).abs().topk(count).indices.tolist()
        return tuple(self.heads[row] for row in sorted(rows))

    def _in_all_rows(
        self, heads: Sequence[HeadId], changes: Float[Tensor, "some pairs"]
    ) -> Float[Tensor, "heads pairs"]:
        """The changes of some heads in a row per head of the model, NaN for the others."""
        rows = torch.full((len(self.heads), changes.shape[1]), torch.nan, dtype=changes.dtype)
        rows[[self.heads.index(head) for head in heads]] = changes
        return rows

    def _about(self, mean: float) -> dict[str, Any]:
        clean, corrupted = (
            float(self._in_order([getattr(runs, name)[None] for runs in self.runs]).mean())
            for name in ("clean", "corrupted")
        )
        return {
            "model": self.loaded.name,
            **self.loaded.about,
            "metric": self.metric.name,
            "unit": self.metric.unit,
            "pairs": len(self.pairs),
            "tokens": sum(runs.batch.clean["input_ids"].numel() for runs in self.runs),
            "clean": clean,
            "corrupted": corrupted,
            "difference": mean,
            "part": self.settings.part,
            "positions": self.settings.positions and list(self.settings.positions),
            "direction": self.settings.directions[0],
            "examples": [asdict(pair) for pair in self.pairs[:3]],
        }

    def _columns(self, name: str, changes: Float[Tensor, "heads pairs"]) -> dict[str, list[float]]:
        settings = self.settings
        rows = bootstrap_shares(
            changes, self.differences, resamples=settings.resamples, seed=settings.seed
        )
        return estimate_columns(name, rows)

    def _in_order(self, parts: Sequence[Float[Tensor, "rows _"]]) -> Float[Tensor, "rows pairs"]:
        """Columns of all batches, in the order of the pairs."""
        indices = [index for runs in self.runs for index in runs.batch.indices]
        joined = torch.cat([part.cpu() for part in parts], 1)
        return joined[:, torch.tensor(indices).argsort()]

    def _sign(self, direction: str) -> float:
        """Noising takes away what a head carries, so its changes count with the opposite sign."""
        return 1.0 if direction == "denoise" else -1.0

    def _exact(
        self,
        store: EffectStore,
        direction: str,
        batches: Sequence[PairRuns],
        heads: Sequence[HeadId],
        *,
        is_control: bool = False,
    ) -> list[Float[Tensor, "heads _"]]:
        """Change of the metric for each head and pair, towards what the head carries, by batch.

        As a control, each pair of a batch gets the outputs of the next one.
        """
        settings, parts = self.settings, []
        stage = f"{'control, ' if is_control else ''}{direction[:-1]}ing"
        layers = {name: tuple(some) for name, some in groupby(heads, attrgetter("layer_name"))}
        for number, runs in enumerate(self.each_run(batches)):
            pairs = len(runs.batch.indices)
            outputs = runs.replacements(
                direction,
                part=settings.part,
                positions=settings.positions,
                order=[(pair + 1) % pairs for pair in range(pairs)] if is_control else None,
            )
            start = f"{'control-' if is_control else ''}{direction}-{number}-"
            keys = {name: start + " ".join(map(str, some)) for name, some in layers.items()}
            known = {name: store.get(keys[name], len(layers[name]), pairs) for name in layers}
            missing = [head for name in layers if known[name] is None for head in layers[name]]
            done, total = (number + 1) * len(heads) - len(missing), len(heads) * len(batches)
            self.progress(stage, done, total)
            for name, changes in patch_layers(runs, direction, outputs, missing):
                known[name] = changes
                store.put(keys[name], changes)
                done += len(changes)
                self.progress(stage, done, total)
            found = torch.cat([changes for changes in known.values() if changes is not None])
            parts.append(self._sign(direction) * found)
        return parts

    def _attribution(self, direction: str, *, steps: int) -> Float[Tensor, "heads pairs"]:
        parts = []
        for number, runs in enumerate(self.each_run()):
            self.progress("attribution", number, len(self.runs))
            outputs = runs.replacements(
                direction, part=self.settings.part, positions=self.settings.positions
            )
            parts.append(attribute_heads(runs, direction, outputs, self.heads, steps=steps))
        return self._sign(direction) * self._in_order(parts)

    def _drops(self, direction: str) -> Float[Tensor, " heads"]:
        """Mean over blocks of the size of the estimates without the gradient through each."""
        parts = []
        for number, runs in enumerate(self.each_run()):
            self.progress("attribution without single blocks", number, len(self.runs))
            outputs = runs.replacements(
                direction, part=self.settings.part, positions=self.settings.positions
            )
            parts.append(attribute_with_drops(runs, direction, outputs, self.heads))
        by_block = torch.cat(parts, 2).mean(2)
        blocks = len(by_block)
        sizes: Tensor = by_block.abs().sum(0) / (blocks - 1) / abs(self.differences.mean())
        return sizes

    def _control(
        self, store: EffectStore, direction: str, exact: Float[Tensor, " heads"]
    ) -> tuple[dict[str, Any], list[float]]:
        """Effects of the strongest heads if their outputs come from other pairs of equal length."""
        column = [float("nan")] * len(self.heads)
        batches = [runs for runs in self.runs if len(runs.batch.indices) > 1]
        if not batches:
            return {}, column
        difference = float(torch.cat([runs.clean - runs.corrupted for runs in batches]).mean())
        if not abs(difference) > SMALLEST_DIFFERENCE:
            return {}, column
        count = min(self.settings.control, int((~exact.isnan()).sum()))
        rows = sorted(exact.abs().nan_to_num(-1).topk(count).indices.tolist())
        heads = [self.heads[row] for row in rows]
        changes = torch.cat(self._exact(store, direction, batches, heads, is_control=True), 1)
        shares = changes.mean(1) / difference
        for row, share in zip(rows, shares.tolist(), strict=True):
            column[row] = share
        largest = float(shares.abs().max())
        return {"heads": count, "pairs": changes.shape[1], "largest": largest}, column

    def _direct(self) -> Float[Tensor, "heads pairs"] | None:
        """Direct effects on the logit difference; None if they are unknown or not wanted."""
        wanted = self.settings.direct
        is_possible = self.metric.needs_answers
        if wanted is False or (wanted is None and not is_possible):
            return None
        if not is_possible:
            raise OptionError(
                f"direct is True, but the metric is {self.metric.name}: direct effects are parts "
                "of a logit difference, so give answer and instead",
                option="direct",
            )
        try:
            parts = [direct_effects(runs, self.heads).heads for runs in self.each_run()]
        except ModelError as error:
            if wanted:
                raise
            warn_user(f"direct effects are left out: {error}")
            return None
        return self._in_order(parts)

    def _paths(self, direction: str) -> pd.DataFrame | None:
        receiver = self.settings.receiver
        if receiver is None:
            return None
        assert isinstance(receiver, HeadId)
        senders = earlier_heads(receiver, self.heads)
        parts: dict[str, list[Tensor]] = {name: [] for name in INPUTS}
        for number, runs in enumerate(self.each_run()):
            outputs = runs.replacements(
                direction, part=self.settings.part, positions=self.settings.positions
            )

            def report(done: int, number: int = number) -> None:
                total = len(self.runs) * len(senders)
                self.progress(f"paths to {receiver}", number * len(senders) + done, total)

            changes = patch_paths(runs, direction, outputs, receiver, senders, report)
            for name in INPUTS:
                parts[name].append(self._sign(direction) * changes[name])
        columns: dict[str, list[Any]] = {
            "sender": list(map(str, senders)),
            "receiver": [str(receiver)] * len(senders),
        }
        for name in INPUTS:
            columns |= self._columns(name, self._in_order(parts[name]))
        return pd.DataFrame(columns)
