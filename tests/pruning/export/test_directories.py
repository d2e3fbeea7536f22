"""A model's directory is never half written, and only a model is ever replaced."""

import json
import signal
from contextlib import nullcontext
from pathlib import Path

import pytest

from headwise.errors import ModelError, OptionError, OutputError
from headwise.files import lock_folder
from headwise.models.loading import load
from headwise.pruning.export.directories import (
    OLD,
    PART,
    check_destination,
    replace_directory,
)
from headwise.pruning.export.export import export
from headwise.pruning.surgery.cut import cut
from processes import ended, start

from ...watching.helpers import allow_weights, assert_close, run
from ...watching.tiny import output_of
from .test_export import cut_tiny, hooked_up

pytestmark = allow_weights


def test_export_rejects_unusable_destinations(tmp_path: Path) -> None:
    model, _ = cut_tiny("bert")
    file, folder = tmp_path / "file", tmp_path / "folder"
    file.write_text("a letter")
    folder.mkdir()
    (folder / "letter").write_text("dear")
    with pytest.raises(OutputError, match=r"file .*directory"):
        export(model, file, force=True)
    with pytest.raises(OptionError, match=r"model .*nowhere"):
        export(model, tmp_path / "nowhere/model")
    for force in (False, True):
        with pytest.raises(OutputError, match=r"folder .*model"):
            export(model, folder, force=force)
    with pytest.raises(OutputError, match=r"/proc/model .*No such file"):
        export(model, Path("/proc/model"))
    assert {one.name for one in tmp_path.rglob("*")} == {"file", "folder", "letter"}


def test_only_a_model_is_replaced_and_only_by_force(tmp_path: Path) -> None:
    out = tmp_path / "model"
    out.mkdir()  # an empty directory is as good as none
    model, inputs = cut_tiny("bert")
    export(model, out)
    (out / "old.json").write_text("of the old one")
    cut(model, "L1H0")
    with pytest.raises(OutputError, match=r"model .*--force"):
        export(model, out)
    assert (out / "old.json").exists()
    export(model, out, force=True)
    assert not (out / "old.json").exists()
    assert [one.name for one in tmp_path.iterdir()] == ["model"]
    assert_close("bert", output_of(run(load(out).model, inputs)), output_of(run(model, inputs)))


def test_a_failed_replacement_leaves_the_old_model(tmp_path: Path) -> None:
    model, inputs = cut_tiny("bert")
    export(model, tmp_path / "model")
    hooked_up(model)
    with pytest.raises(ModelError, match=r"logits .* 1"):
        export(model, tmp_path / "model", inputs=inputs, force=True)
    assert [one.name for one in tmp_path.iterdir()] == ["model"]
    load(tmp_path / "model")


def test_check_destination_moves_back_the_model_of_a_killed_process(
    tmp_path: Path,
) -> None:
    place = tmp_path / "model"
    export(cut_tiny("bert")[0], place)
    place.rename(tmp_path / f".model.1.{OLD}")
    with pytest.raises(OutputError, match=r"model .*--force"):
        check_destination(place, force=False)
    assert [one.name for one in tmp_path.iterdir()] == ["model"]
    check_destination(place, force=True)


def test_two_processes_do_not_write_to_one_place(tmp_path: Path) -> None:
    part = tmp_path / f".model.1.{PART}"
    part.mkdir()
    out = tmp_path / "model"
    with lock_folder(out):
        for write in (check_destination, replace_directory):
            with pytest.raises(OutputError, match=r"another process .*model"):
                with write(out, force=True) or nullcontext():
                    pass
        assert part.exists()
    check_destination(out, force=False)  # the other process was killed
    assert not any(tmp_path.iterdir())


KILLED = """
import hashlib, json, os, shutil, signal, sys
from pathlib import Path
from transformers import LlamaConfig, LlamaForCausalLM
from headwise.errors import OutputError
from headwise.pruning.export.export import export
from headwise.pruning.surgery.cut import cut

root = Path(sys.argv[1])
model = LlamaForCausalLM(LlamaConfig(
    vocab_size=7, hidden_size=12, intermediate_size=5, num_hidden_layers=2, num_attention_heads=3,
    num_key_value_heads=3, max_position_embeddings=11))

def content(folder):
    files = [one for one in sorted(folder.rglob("*")) if one.is_file()]
    return [(one.name, hashlib.sha256(one.read_bytes()).hexdigest()) for one in files]

def die_at(moment, folder):
    steps = []
    def step(event, arguments):
        if event.startswith(("open", "os.", "shutil.")) and str(folder) in str(arguments[0]):
            steps.append(event)
            if len(steps) == moment:
                os.kill(os.getpid(), signal.SIGKILL)
    sys.addaudithook(step)
    export(model, folder / "model", force=True)
    (root / "steps").write_text(json.dumps(steps))

def child(moment, folder):
    shutil.copytree(old, folder / "model")
    process = os.fork()
    if not process:
        try:
            die_at(moment, folder)
        finally:
            os._exit(0)
    return os.waitpid(process, 0)[1]

old = export(model, root / "old").path
cut(model, "L0H1")
new = export(model, root / "new").path
names = {str(content(old)): "old", str(content(new)): "new", "[]": "nothing"}
assert child(0, root / "whole") == 0
steps = json.loads((root / "steps").read_text())
renames = [number for number, event in enumerate(steps, 1) if event == "os.rename"]
moments = {1, len(steps) // 3, renames[0] - 3, *renames, *(number + 1 for number in renames)}
outcomes = []
for moment in sorted(moments):
    folder = root / f"at {moment}"
    status, place = child(moment, folder), folder / "model"
    found = names.get(str(content(place)), "half")
    try:
        after = export(model, place)
    except OutputError:
        after = names.get(str(content(place)), "half")
    export(model, place, force=True)
    is_clean = [one.name for one in folder.iterdir()] == ["model"]
    outcomes.append([status, found, after, is_clean, names[str(content(place))]])
print(json.dumps(outcomes))
"""


@pytest.mark.slow
def test_a_killed_export_leaves_the_old_model_the_new_one_or_none(tmp_path: Path) -> None:
    says = tmp_path / "says"
    outcomes = json.loads(ended(start(KILLED, tmp_path, says=says), says=[says]).splitlines()[-1])
    assert len(outcomes) >= 8
    for status, found, after, is_clean, at_last in outcomes:
        assert status == signal.SIGKILL
        assert found in ("old", "nothing", "new")
        # What the killed process had moved away is put back before anything else.
        assert after == (found if found != "nothing" else "old")
        assert (is_clean, at_last) == (True, "new")
    assert {found for _, found, *_ in outcomes} == {"old", "nothing", "new"}


# Loading a directory of another kind.


def test_extras_are_written_beside_the_model_and_replace_no_file(tmp_path: Path) -> None:
    model, _ = cut_tiny("bert")
    export(model, tmp_path / "model", extras={"prune.json": "{}"})
    assert (tmp_path / "model/prune.json").read_text() == "{}"
    for name in ("config.json", "../out.json"):
        with pytest.raises(OptionError, match=name):
            export(model, tmp_path / "other", extras={name: ""})
    assert [one.name for one in tmp_path.iterdir()] == ["model"]


def test_leftovers_of_another_place_are_left_alone(tmp_path: Path) -> None:
    other = tmp_path / f".model.v2.999.{OLD}"
    other.mkdir()
    with replace_directory(tmp_path / "model", force=False) as part:
        (part / "config.json").write_text("{}")
    assert other.exists()


@pytest.mark.parametrize("name", [".git/HEAD", "checkpoints/a.bin", "notes.txt", "thesis.tex"])
def test_export_keeps_directories_with_foreign_files(name: str, tmp_path: Path) -> None:
    model, _ = cut_tiny("bert")
    place = export(model, tmp_path / "model").path
    export(model, place, force=True)
    mine = place / name
    mine.parent.mkdir(exist_ok=True)
    mine.write_text("mine")
    other = name.partition("/")[0]
    with pytest.raises(OutputError, match=f"model .*{other}"):
        export(model, place, force=True)
    assert mine.read_text() == "mine"
