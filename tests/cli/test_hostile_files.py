"""Folders that cannot be written to, full disks, and interrupts.

Each gets one sentence and exit code 2, an interrupt 130; existing files stay, no file is left
half written, and the same command resumes, or starts again, once the cause is gone.
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
    "patch": (
        *("patch", "MODEL", "--clean", "w8 w9 w5", "--corrupted", "w8 w7 w5", "--answer", "w9"),
        *("--instead", "w7", "--no-exact", "--out"),
    ),
    "compare": (
        *("compare", "MODEL", "MODEL", "--text", "text", "--registers", "captions"),
        *("--max-tokens", 60, "--no-speed", "--out"),
    ),
    "sweep": SWEEP,
    "report": ("report", "SCAN", "--out"),
    "svg": ("trace", "MODEL", "--text", "w8 w9", "--svg"),
    "html": ("trace", "MODEL", "--text", "w8 w9", "--html"),
}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with a text, a note and a folder with a note."""
    write_text(tmp_path / "text")
    (tmp_path / "note").write_text("mine", encoding="utf-8")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "note").write_text("mine", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


Command = Callable[..., tuple[object, ...]]


@pytest.fixture
def command(headwise: Runner, llama: Path, here: Path) -> Command:
    """Arguments of a command that writes to a path."""

    def arguments(name: str, *rest: object) -> tuple[object, ...]:
        given = COMMANDS[name]
        if "SCAN" in given and not (here / "scan").exists():
            scanned = headwise("scan", llama, "--text", "text", "--max-tokens", 60, "--out", "scan")
            assert scanned.code == 0, scanned.err
        names = {"MODEL": str(llama), "SCAN": "scan"}
        return (*(names.get(str(one), one) for one in given), *rest)

    return arguments


def contents(folder: Path) -> dict[str, bytes]:
    """Content of every file below a folder; folders and links by name."""
    return {
        str(one.relative_to(folder)): one.read_bytes() if one.is_file() else b"no file"
        for one in folder.rglob("*")
    }


def strays(folder: Path) -> list[str]:
    return [name for name in contents(folder) if name.rpartition("/")[2].startswith(".")]


# Output paths.

TOO_LONG = "x" * 300
PLACES = {
    "note": "note ",
    "note/below": "note",
    "note/below/more": "note",
    "/proc/nowhere": "/proc/nowhere",
    TOO_LONG: "File name too long",
    "loop": "loop",
}
FOLDERS = ("scan", "importance", "patch", "prune", "compare", "sweep")


@pytest.mark.parametrize(
    ("name", "place"),
    [
        (name, place)
        for name in COMMANDS
        for place in PLACES
        if place != "loop" or name in FOLDERS  # a file replaces a dangling link
    ],
    ids=lambda one: one[:20],
)
def test_impossible_output_path_is_named_and_nothing_is_written(
    headwise: Runner, command: Command, here: Path, name: str, place: str
) -> None:
    (here / "loop").symlink_to("loop")
    arguments = command(name, place)
    before = contents(here)
    error = headwise.refused(*arguments)
    assert error.startswith("headwise: ") and PLACES[place] in error
    assert contents(here) == before


@pytest.mark.parametrize(
    ("name", "facts"),
    [
        ("prune", "full "),
        ("sweep", "full "),
        ("scan", "heads.csv"),
        ("importance", "layers.csv"),
        ("patch", "heads.csv"),
        ("compare", "compare.json"),
        ("report", "full is a folder"),
        ("svg", "full is a folder"),
    ],
)
def test_folder_with_other_files_stays_unchanged(
    headwise: Runner, command: Command, here: Path, name: str, facts: str
) -> None:
    for file in ("heads.csv", "layers.csv", "compare.json"):
        (here / "full" / file).write_text("mine", encoding="utf-8")
    arguments = command(name, "full")
    before = contents(here)
    assert facts in headwise.refused(*arguments)
    assert contents(here) == before


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("settings.json", b"{"),
        ("settings.json", b'{"task": {}}'),
        ("progress-0.npz", b"PK"),
        ("progress-0.npz", b""),
    ],
)
def test_scan_with_damaged_files_does_not_resume(
    headwise: Runner, command: Command, here: Path, file: str, content: bytes
) -> None:
    assert headwise(*command("scan", "out")).code == 0
    (here / "out" / file).write_bytes(content)
    before = contents(here)
    assert file in headwise.refused(*command("scan", "out"))
    assert contents(here) == before
    assert headwise(*command("scan", "out"), "--force").code == 0


def test_sweep_rejects_a_scan_folder_even_with_force(
    headwise: Runner, command: Command, here: Path
) -> None:
    assert headwise(*command("scan", "out")).code == 0
    before = contents(here)
    for force in ((), ("--force",)):
        error = headwise.refused(*command("sweep", "out"), *force)
        assert "settings.json" in error and "sweep" in error
    assert contents(here) == before


def test_read_only_folder_raises_before_the_work(
    headwise: Runner, command: Command, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headwise.pruning.export.directories.os.access", lambda *_: False)
    monkeypatch.setattr("headwise.pruning.prune.prepare_setup", None)  # no work is begun
    error = headwise.refused(*command("prune", "out"))
    assert "out " in error and str(here) in error


# A full disk: no file can grow beyond a limit.


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
def test_full_disk_leaves_old_files_and_no_partial_ones(
    headwise: Runner, command: Command, here: Path, name: str, size: int
) -> None:
    arguments = command(name, "out")
    before = contents(here)
    with no_more_than(size):
        error = headwise.refused(*arguments)
    assert "File too large" in error
    assert strays(here) == []
    after = contents(here)
    assert {file: after.get(file) for file in before} == before
    whole = {file for file in after if file not in before}
    assert all(file == "out" or file.startswith("out/") for file in whole)
    if name in ("scan", "sweep", "patch"):  # they resume
        ran = headwise(*arguments)
        assert ran.code == 0, ran.err


@pytest.mark.parametrize("name", ["report", "svg", "html", "prune", "importance", "compare"])
def test_full_disk_keeps_the_output_that_would_be_replaced(
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
    ("scan", "headwise.scans.scan.ScanJob._count_induction", 1),
    ("scan", "headwise.head_table.HeadTable.write", 1),
    ("scan", "headwise.head_table.HeadTable.write", 2),
    ("importance", "headwise.pruning.importance.importance.gradients", 1),
    ("importance", "headwise.head_table.HeadTable.write", 2),
    ("prune", "headwise.pruning.prune.prepare_setup", 1),
    ("prune", "headwise.pruning.prune.cut_and_refit", 1),
    ("prune", "headwise.pruning.export.export.check_copy", 1),
    ("prune", "headwise.pruning.export.directories.flush", 2),
    ("compare", "headwise.comparing.compare.run_both", 2),
    ("compare", "headwise.comparing.comparison.write_aside", 1),
    ("sweep", "headwise.sweeps.runs.train_run", 1),
    ("sweep", "headwise.sweeps.runs.train_run", 3),
    ("sweep", "headwise.sweeps.results.write_aside", 2),
    ("report", "headwise.report.report.report_page", 1),
    ("report", "headwise.views.terminal.write_new", 1),
]


@pytest.fixture(scope="module")
def wholes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Outputs of commands that run without an interrupt."""
    return tmp_path_factory.mktemp("wholes")


@pytest.mark.parametrize(("name", "path", "moment"), INTERRUPTS)
def test_interrupted_command_run_again_ends_as_if_uninterrupted(
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


def assert_same_files(resumed: Path, uninterrupted: Path) -> None:
    """Assert the same files, tables and weights; other files may contain times."""
    if resumed.is_file():
        assert resumed.read_bytes() == uninterrupted.read_bytes()
        return
    actual, expected = contents(resumed), contents(uninterrupted)
    assert actual.keys() == expected.keys()
    endings = (".csv", ".parquet", ".safetensors", "compare.json")
    compared = [name for name in expected if name.endswith(endings)]
    assert compared
    assert [name for name in compared if actual[name] != expected[name]] == []
