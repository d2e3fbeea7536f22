"""Every family cut, exported, and loaded in a fresh process that cannot import headwise.

In: names of tiny families and a directory. Out: how each is exported, and its faults.
`python -m tests.pruning.shipping` prints one line per family and plan.
"""

import copy
import json
import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import PreTrainedModel
from transformers.utils import logging

from headwise.errors import ModelError
from headwise.heads import parse_heads
from headwise.objectives.objective import Sample
from headwise.pruning.export.export import export
from headwise.pruning.refit.mean_correction import add_mean_outputs
from headwise.pruning.surgery.cut import cut, head_counts

from ..attention.tolerance import rounding
from ..watching.helpers import ROUNDINGS
from ..watching.tiny import Inputs, output_of
from ..watching.tiny_configs import Family
from .differences import ALL, mixed_plan, names_in, tiny_of

ELSEWHERE = """
import json, sys, warnings
from pathlib import Path
sys.modules["headwise"] = None  # importing it is an error from now on
warnings.simplefilter("ignore")
import torch, transformers
from safetensors.torch import load_file, save_file

root, autos = Path(sys.argv[1]), json.loads(sys.argv[2])
report = {}

def output(model, name):
    with torch.no_grad():
        found = model(**load_file(root / f"{name}.inputs"))
    if "logits" in found:
        return found.logits.contiguous()
    return torch.stack([found.text_embeds, found.image_embeds], dim=1)

for name, (auto, options) in autos.items():
    auto, folder = getattr(transformers, auto), root / name
    said = report[name] = {}
    try:
        plain = auto.from_pretrained(folder, dtype="auto")
        said["without trust"] = type(plain).__module__.split(".")[0]
    except RuntimeError as error:
        said["without trust"] = str(error)
    model = auto.from_pretrained(
        folder, dtype="auto", trust_remote_code=True, **options)
    save_file({"trusted": output(model, name)}, root / f"{name}.trusted")
    said["class"] = type(model).__module__.split(".")[0]
    bare, notes = transformers.AutoModel.from_pretrained(
        folder, trust_remote_code=True, output_loading_info=True)
    made_anew = ("pooler", "embed_positions")  # the head's own, and sines
    missing = notes["missing_keys"]
    said["random"] = [key for key in missing if not any(one in key for one in made_anew)]
    if hasattr(model.config, "headwise"):
        config = model.config
        del config.headwise
        native = getattr(transformers, type(model).__name__)
        built = [of(config).state_dict().items() for of in (native, type(model))]
        shapes = [{key: one.shape for key, one in items} for items in built]
        said["is plain without a block"] = shapes[0] == shapes[1]

assert not any(key.startswith("headwise.") for key in sys.modules)
del sys.modules["headwise"]
from headwise.models.loading import load
for name, (_, options) in autos.items():
    model = load(root / name).model
    for option, value in options.items():
        getattr(model, f"set_{option}")(value)
    save_file({"loaded": output(model, name)}, root / f"{name}.loaded")
(root / "report.json").write_text(json.dumps(report))
"""


@dataclass(frozen=True)
class Shipped:
    """One model after export and loading."""

    is_plain: bool
    """Whether it is a plain checkpoint, without code."""
    trusted: float
    """Largest difference of outputs where headwise cannot be imported."""
    loaded: float
    """Largest difference of outputs when headwise loads it."""
    rounding: float
    """The largest difference that rounding explains."""
    faults: tuple[str, ...]


def even_plan(model: PreTrainedModel) -> list[str]:
    """The first group of every layer; if a layer has one group, its first head."""
    return [
        name
        for layer, (num_heads, num_kv_heads) in head_counts(model).items()
        for name in names_in(layer, range(num_heads // num_kv_heads if num_kv_heads > 1 else 1))
    ]


PLANS = {
    "mixed": mixed_plan,
    "emptied": lambda model: mixed_plan(model, empties=True),
    "even": even_plan,
}


def ship(
    cuts: Iterable[tuple[str, str]], root: Path, *, corrects: bool = False
) -> dict[str, Shipped]:
    """Cut and export families, each by a plan, here; load all of them elsewhere.

    With `corrects`, the mean output of the cut heads is added to the biases of every model.
    """
    autos, plain = {}, {}
    for family, plan in cuts:
        name = f"{family} {plan}"
        model, given = loaded_from_disk(ALL[family], root / f"{name}.uncut")
        if corrects:
            cut_and_correct(model, PLANS[plan](model), given)
        else:
            cut(model, PLANS[plan](model))
        plain[name] = export(model, root / name, inputs=given).is_plain
        autos[name] = ALL[family].auto, dict(ALL[family].options)
        save_file(given, root / f"{name}.inputs")
        with torch.no_grad():
            save_file({"wanted": output_of(model(**given))}, root / f"{name}.wanted")
    python(ELSEWHERE, root, json.dumps(autos), cache=root / "cache")
    report = json.loads((root / "report.json").read_text())
    return {name: how_it_came_back(root, name, plain[name], report[name]) for name in autos}


def cut_and_correct(model: PreTrainedModel, plan: list[str], given: Inputs) -> None:
    """Cut heads and add their mean output on these inputs to the biases, in place."""
    uncut = copy.deepcopy(model)
    cut(model, plan)
    add_mean_outputs(model, uncut, parse_heads(plan), [Sample(given)])


def loaded_from_disk(family: Family, folder: Path) -> tuple[PreTrainedModel, Inputs]:
    """A tiny model loaded from files, so that buffers in no file were computed while loading."""
    model, given = tiny_of(family)
    model.save_pretrained(folder)
    auto = getattr(transformers, family.auto)
    return auto.from_pretrained(folder, dtype=model.dtype, **family.options), given


def python(text: str, *arguments: Any, cache: Path) -> str:
    """Output of a fresh process; raises its errors here."""
    command = [sys.executable, "-c", text, *map(str, arguments)]
    mine = os.environ | {"HF_MODULES_CACHE": str(cache)}
    done = subprocess.run(command, env=mine, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def how_it_came_back(root: Path, name: str, is_plain: bool, said: dict[str, Any]) -> Shipped:
    """Differences and faults of one model."""

    def kept(kind: str) -> Tensor:
        return load_file(root / f"{name}.{kind}")[kind]

    wanted = kept("wanted")
    trusted, loaded = ((kept(kind) - wanted).abs().max().item() for kind in ("trusted", "loaded"))
    allowed = rounding(wanted, dtype=ALL[name.split()[0]].softmax_in, roundings=ROUNDINGS)
    config = json.loads((root / name / "config.json").read_text())
    has_code = (root / name / "modeling_headwise.py").exists()
    right = {
        "weights are random": said["random"] == [],
        "code and block do not go together": {has_code, "headwise" in config, "auto_map" in config}
        == {not is_plain},
    }
    if is_plain:
        right["code ran"] = said["without trust"] == said["class"] == "transformers"
    else:
        right["it loads without trust"] = "ignore_mismatched_sizes" in said["without trust"]
        right["no code ran"] = said["class"] == "transformers_modules"
        right["its class cuts without a block"] = said["is plain without a block"]
    faults = tuple(fault for fault, is_right in right.items() if not is_right)
    return Shipped(is_plain, trusted, loaded, allowed, faults)


def main() -> None:
    """Print one line per family and plan."""
    warnings.simplefilter("ignore")
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    for name in ALL:
        with tempfile.TemporaryDirectory() as folder:
            try:
                found = ship([(name, plan) for plan in PLANS], Path(folder))
            except ModelError as error:
                print(f"{name:32} {error}")
                continue
        for row, shipped in found.items():
            kind = "plain" if shipped.is_plain else "with code"
            faults = "; ".join(shipped.faults)
            print(f"{row:32} {kind:10} {shipped.trusted:.1e} {shipped.loaded:.1e} {faults}")


if __name__ == "__main__":
    main()
