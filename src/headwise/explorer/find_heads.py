"""Finding heads that change a prediction: a greedy search on one text.

In: a text. Out: a few heads whose silencing makes another prediction likeliest, or makes the
likeliest much less likely. Heads found on one text say nothing about other texts.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from headwise.errors import OptionError
from headwise.explorer.api_types import FoundHeadsAnswer
from headwise.explorer.what_if import Baselines, Prompt, gated_outputs, unchanged_output
from headwise.heads import HeadId
from headwise.objectives.scored_model import ScoredModel
from headwise.progress import Progress, no_progress

SHORTLIST = 40
"""Heads to add from: those that lower the probability most when silenced alone."""
MOST = 4
"""Most heads to switch off."""


@torch.inference_mode()
def find_heads(
    scored: ScoredModel,
    text: str,
    num_heads: Mapping[str, int],
    baselines: Baselines | None = None,
    progress: Progress = no_progress,
) -> FoundHeadsAnswer:
    """Add the head that lowers the likeliest prediction most, until another one is likeliest."""
    prompt = Prompt.read(scored, [text])
    if prompt.position is None:
        raise OptionError(f"{scored.name} predicts no words: choose heads by hand")
    before = unchanged_output(scored, prompt, baselines)
    target = int(before.argmax())
    heads = [
        HeadId.parse(f"{layer}H{number}")
        for layer, count in num_heads.items()
        for number in range(count)
    ]
    found: list[HeadId] = []
    candidates, tried = heads, 0
    after: Tensor = before
    while len(found) < min(MOST, len(heads)) and int(after.argmax()) == target:
        changes = [dict.fromkeys((*found, head), 0.0) for head in candidates]
        stage = f"Searching for head {len(found) + 1}"
        outputs = gated_outputs(scored, prompt, changes, num_heads, progress, stage)
        tried += len(outputs)
        logs = torch.stack([output[target] for output in outputs])
        best = int(logs.argmin())
        if found and logs[best] >= after[target]:
            break
        after = outputs[best]
        found.append(candidates[best])
        order = logs.argsort()[: SHORTLIST + 1].tolist() if len(found) == 1 else None
        shortlist = candidates if order is None else [candidates[place] for place in order]
        candidates = [head for head in shortlist if head not in found]
        if not candidates:
            break
    return FoundHeadsAnswer([str(head) for head in sorted(found)], tried)
