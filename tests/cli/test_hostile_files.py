"""Places that cannot be written to, disks that are full, and interrupts.

Each gets one sentence and exit code 2, an interrupt 130; what was there before is still there, no
file is left half written, and the same command goes on, or begins anew, once nothing is wrong.
"""

import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from .hostile import SMALL, write_text
from .running import TELLING, Runner

SWEEP = (
    *("sweep", "relations", "--quick", "--steps", 20, "--seeds", 2, "--rates", "0.01"),
    *("--d-model", 2, "--width", 2, "--processes", 1, "--set", "length=6", "--set", "letters=8"),
    *("--groups", "split", "--out"),
)
COMMANDS: dict[str, tuple[object, ...]] = {
    "scan": ("scan", "MODEL", "--text", "text", "--max-tokens", 600, "--length", 16, "--out"),
    "importance": ("importance", "MODEL", "--text", "text", "--max-tokens", 60, "--out"),
    "prune": ("prune", "MODEL", "--text", "text", "--cut", 6, "--no-curve", *SMALL, "--out"),
    "sweep": SWEEP,
    "report": ("report", "SCAN", "--out"),
    "svg": ("trace", "MODEL", "--text", "w8 w9", "--svg"),
    "html": ("trace", "MODEL", "--text", "w8 w9", "--html"),
}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to be in, with a text, a note and a folder with a note."""
    write_text(tmp_path / "text")
    (tmp_path / "note").write_text("mine", encoding="utf-8")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "note").write_text("mine", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


Command = Callable[..., tuple[object, ...]]


@pytest.fixture
def command(headwise: Runner, llama: Path, here: Path) -> Command:
    """The arguments of a command that writes to a place."""

    def arguments(name: str, *rest: object) -> tuple[object, ...]:
        given = COMMANDS[name]
        if "SCAN" in given and not (here / "scan").exists():
            scanned = headwise("scan", llama, "--text", "text", "--max-tokens", 60, "--out", "scan")
            assert scanned.code == 0, scanned.err
        names = {"MODEL": str(llama), "SCAN": "scan"}
        return (*(names.get(str(one), one) for one in given), *rest)

    return arguments


def contents(folder: Path) -> dict[str, bytes]:
    """Every file below a folder; folders and links as they are."""
    return {
        str(one.relative_to(folder)): one.read_bytes() if one.is_file() else b"no file"
        for one in folder.rglob("*")
    }


def strays(folder: Path) -> list[str]:
    return [name for name in contents(folder) if name.rpartition("/")[2].startswith(".")]


# Places.

TOO_LONG = "x" * 300
PLACES = {
    "note": "note ",
    "note/below": "note",
    "note/below/more": "note",
    "/proc/nowhere": "/proc/nowhere",
    TOO_LONG: "File name too long",
    "loop": "loop",
}
FOLDERS = ("scan", "importance", "prune", "sweep")


@pytest.mark.parametrize(
    ("name", "place"),
    [
        (name, place)
        for name in COMMANDS
        for place in PLACES
        if place != "loop" or name in FOLDERS  # a file takes the place of a link to nothing
    ],
    ids=lambda one: one[:20],
)
def test_a_place_that_cannot_be_is_named_and_nothing_is_written(
    headwise: Runner, command: Command, here: Path, name: str, place: str
) -> None:
    (here / "loop").symlink_to("loop")
    arguments = command(name, place)
    before = contents(here)
    said = headwise.refused(*arguments)
    assert said.startswith("headwise: ") and PLACES[place] in said
    assert contents(here) == before


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("prune", "full holds something other than a model and is not replaced, even by force"),
        ("sweep", "full is not empty and holds no sweep: give another folder"),
        ("scan", "full holds heads.csv and no scan: give another folder, or --force"),
        ("importance", "layers.csv is in full already: choose another folder, or give --force"),
        ("report", "full is a folder: give the name of a file"),
        ("svg", "full is a folder: give the name of a file"),
    ],
)
def test_a_folder_that_holds_something_else_is_left_alone(
    headwise: Runner, command: Command, here: Path, name: str, words: str
) -> None:
    for file in ("heads.csv", "layers.csv"):
        (here / "full" / file).write_text("mine", encoding="utf-8")
    arguments = command(name, "full")
    before = contents(here)
    assert words in headwise.refused(*arguments)
    assert contents(here) == before


@pytest.mark.parametrize(
    ("file", "content", "words"),
    [
        ("settings.json", b"{", "settings.json holds no settings of a scan"),
        ("settings.json", b'{"task": {}}', "settings.json holds no settings of a scan"),
        ("progress-0.npz", b"PK", "progress-0.npz holds no sums of a scan: remove it"),
        ("progress-0.npz", b"", "progress-0.npz holds no sums of a scan: remove it"),
    ],
)
def test_a_scan_whose_files_are_broken_does_not_go_on(
    headwise: Runner, command: Command, here: Path, file: str, content: bytes, words: str
) -> None:
    assert headwise(*command("scan", "out")).code == 0
    (here / "out" / file).write_bytes(content)
    before = contents(here)
    assert words in headwise.refused(*command("scan", "out"))
    assert contents(here) == before
    assert headwise(*command("scan", "out"), "--force").code == 0


def test_the_folder_of_a_scan_is_none_of_a_sweep(
    headwise: Runner, command: Command, here: Path
) -> None:
    assert headwise(*command("scan", "out")).code == 0
    before = contents(here)
    words = "settings.json holds no settings of a sweep: give another folder"
    assert words in headwise.refused(*command("sweep", "out"))
    assert words in headwise.refused(*command("sweep", "out"), "--force")
    assert contents(here) == before


def test_a_folder_that_one_may_not_write_in_is_told_of_before_the_work(
    headwise: Runner, command: Command, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headwise.pruning.export.directories.os.access", lambda *_: False)
    monkeypatch.setattr("headwise.pruning.prune.prepare_setup", None)  # no work is begun
    said = headwise.refused(*command("prune", "out"))
    assert f"out cannot be written: you may not write in {here}" in said


# A disk that is full: no file may grow beyond so many bytes.


@contextmanager
def no_more_than(size: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize(
    ("name", "size"),
    [(name, size) for name in COMMANDS for size in (0, 1500)]
    + [("scan", 4000), ("prune", 30_000), ("sweep", 3000)],
)
def test_a_full_disk_leaves_what_was_there_and_nothing_half_written(
    headwise: Runner, command: Command, here: Path, name: str, size: int
) -> None:
    arguments = command(name, "out")
    before = contents(here)
    with no_more_than(size):
        said = headwise.refused(*arguments)
    assert "cannot be written: " in said and "File too large" in said
    assert strays(here) == []
    after = contents(here)
    assert {file: after.get(file) for file in before} == before
    whole = {file for file in after if file not in before}
    assert all(file == "out" or file.startswith("out/") for file in whole)
    if name in ("scan", "sweep"):  # they go on in a folder that they began
        ran = headwise(*arguments)
        assert ran.code == 0, ran.err


@pytest.mark.parametrize("name", ["report", "svg", "html", "prune", "importance"])
def test_what_is_to_be_replaced_stays_when_the_disk_is_full(
    headwise: Runner, command: Command, here: Path, name: str
) -> None:
    arguments = command(name, "out", "--force")
    assert headwise(*arguments).code == 0
    before = contents(here)
    with no_more_than(1000):
        assert "File too large" in headwise.refused(*arguments)
    assert contents(here) == before


# Ctrl-C.


class Interrupt:
    """Presses Ctrl-C at the n-th call of a function."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, path: str, moment: int) -> None:
        self.calls = 0
        owner, _, name = path.rpartition(".")
        module, _, kind = owner.rpartition(".")
        inside = kind[0].isupper()
        held: Any = __import__(module if inside else owner, fromlist=[kind])
        held = getattr(held, kind) if inside else held
        wrapped = getattr(held, name)

        def pressed(*given: Any, **options: Any) -> Any:
            self.calls += 1
            if self.calls == moment:
                raise KeyboardInterrupt
            return wrapped(*given, **options)

        monkeypatch.setattr(held, name, pressed)


INTERRUPTS = [
    ("scan", "headwise.models.loading.load_model", 1),
    ("scan", "headwise.measures.counter.HeadCounter.add", 2),
    ("scan", "headwise.scans.scan.ScanJob.repeat", 1),
    ("scan", "headwise.heads.HeadTable.write", 1),
    ("scan", "headwise.heads.HeadTable.write", 2),
    ("importance", "headwise.pruning.importance.importance.gradients", 1),
    ("importance", "headwise.heads.HeadTable.write", 2),
    ("prune", "headwise.pruning.prune.prepare_setup", 1),
    ("prune", "headwise.pruning.prune.cut_and_refit", 1),
    ("prune", "headwise.pruning.export.export.model_of", 1),
    ("prune", "headwise.pruning.export.directories.flush", 2),
    ("sweep", "headwise.sweeps.runs.train_run", 1),
    ("sweep", "headwise.sweeps.runs.train_run", 3),
    ("sweep", "headwise.sweeps.results.write_aside", 2),
    ("report", "headwise.report.report.gather", 1),
    ("report", "headwise.cli.report.write_new", 1),
]


@pytest.fixture(scope="module")
def wholes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What commands write that nobody interrupts."""
    return tmp_path_factory.mktemp("wholes")


@pytest.mark.parametrize(("name", "path", "moment"), INTERRUPTS)
def test_after_an_interrupt_the_same_command_ends_as_if_there_had_been_none(
    headwise: Runner,
    command: Command,
    here: Path,
    wholes: Path,
    name: str,
    path: str,
    moment: int,
) -> None:
    if not (wholes / name).exists():
        assert headwise(*command(name, wholes / name)).code == 0
    arguments = command(name, "out")
    before = contents(here)
    with pytest.MonkeyPatch.context() as patched:
        interrupt = Interrupt(patched, path, moment)
        ended = headwise(*arguments)
        assert (ended.code, ended.out) == (130, "")
        goes_on = "; run the same command again to continue" if name in ("scan", "sweep") else ""
        *told, sentence = ended.err.splitlines()
        assert sentence == f"headwise: stopped{goes_on}"
        assert told == [] or name in TELLING
        assert interrupt.calls == moment
    assert strays(here) == []
    after = contents(here)
    assert {file: after.get(file) for file in before} == before
    if name in ("prune", "report"):
        assert after == before
    ran = headwise(*arguments, *(["--force"] if name == "importance" else []))
    assert ran.code == 0, ran.err
    assert_same_files(here / "out", wholes / name)


def assert_same_files(one: Path, other: Path) -> None:
    """The same files, and all tables and weights alike; other files may hold times."""
    if one.is_file():
        assert one.read_bytes() == other.read_bytes()
        return
    found, wanted = contents(one), contents(other)
    assert found.keys() == wanted.keys()
    compared = [name for name in wanted if name.endswith((".csv", ".parquet", ".safetensors"))]
    assert compared
    assert [name for name in compared if found[name] != wanted[name]] == []
