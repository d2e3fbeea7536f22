"""Files that cannot be read raise one sentence; written files are moved into place."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from headwise.errors import OptionError, OutputError
from headwise.files import cache_folder, lock_folder, read_bytes, read_text, write_aside


def test_a_file_that_cannot_be_read_raises_one_sentence(tmp_path: Path) -> None:
    latin = tmp_path / "latin.txt"
    latin.write_bytes("café".encode("latin-1"))
    with pytest.raises(OptionError, match=r"^\S+latin\.txt .*UTF-8.* 3$"):
        read_text(latin)
    for read in (read_text, read_bytes):
        with pytest.raises(OptionError, match=rf"^\S+ .*{os.strerror(errno.EISDIR)}$"):
            read(tmp_path)
        with pytest.raises(OptionError, match=rf"^\S+none .*{os.strerror(errno.ENOENT)}$"):
            read(tmp_path / "none")


def test_a_link_stays_a_link_and_its_target_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "shelf").mkdir()
    target, link = tmp_path / "shelf/page.html", tmp_path / "link.html"
    target.write_text("old")
    link.symlink_to(target)
    write_aside(link, "new")
    assert link.is_symlink() and target.read_text() == "new"
    assert [one.name for one in (tmp_path / "shelf").iterdir()] == ["page.html"]


def test_a_device_is_written_to_directly(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    try:
        write_aside(Path(f"/dev/fd/{writer}"), "text")
        os.close(writer)
        assert os.read(reader, 100) == b"text"
    finally:
        os.close(reader)


def test_links_in_a_loop_raise(tmp_path: Path) -> None:
    for name, other in (("one", "two"), ("two", "one")):
        (tmp_path / name).symlink_to(tmp_path / other)
    with pytest.raises(OutputError, match="one"):
        write_aside(tmp_path / "one", "text")
    assert sorted(one.name for one in tmp_path.iterdir()) == ["one", "two"]


def test_standard_output_is_appended_to_even_if_it_is_a_file(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("precious\n")
    with log.open("a") as opened:
        write_aside(Path(f"/dev/fd/{opened.fileno()}"), "text")
    assert log.read_text() == "precious\ntext"


def test_a_locked_folder_cannot_be_locked_again_until_it_is_released(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    with lock_folder(folder):
        with pytest.raises(OutputError, match="model"), lock_folder(tmp_path / "." / "model"):
            pass
        folder.rename(tmp_path / "moved")  # the lock is beside the folder, not in it
    with lock_folder(folder):
        pass
    assert [file.name for file in tmp_path.iterdir()] == ["moved"]


def test_another_process_cannot_lock_a_locked_folder(tmp_path: Path) -> None:
    lines = "from headwise.files import lock_folder", "with lock_folder(Path('.')): pass"
    code = "\n".join(("from pathlib import Path", *lines))
    with lock_folder(tmp_path):
        locked = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, stderr=subprocess.PIPE)
    free = subprocess.run([sys.executable, "-c", code], cwd=tmp_path)
    assert (locked.returncode, free.returncode) == (1, 0)
    assert b"OutputError: another process is writing" in locked.stderr


def test_a_folder_that_cannot_be_locked_is_used_without_a_lock(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with lock_folder(tmp_path / "file/folder"):
        pass
    assert [file.name for file in tmp_path.iterdir()] == ["file"]


def test_cache_folder_follows_the_environment_and_then_the_system(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HEADWISE_CACHE", "~/own")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("HOME", "/home/ada")
    assert cache_folder() == Path("/home/ada/own")
    monkeypatch.delenv("HEADWISE_CACHE")
    assert cache_folder() == tmp_path / "headwise"
    monkeypatch.setenv("XDG_CACHE_HOME", "not/absolute")
    monkeypatch.setattr(sys, "platform", "linux")
    assert cache_folder() == Path("/home/ada/.cache/headwise")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder() == Path("/home/ada/.cache/headwise")
    monkeypatch.setattr(sys, "platform", "darwin")
    assert cache_folder() == Path("/home/ada/Library/Caches/headwise")
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / "Local"))
    assert cache_folder() == tmp_path / "Local/headwise"


def test_user_without_a_home_has_no_cache_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless(path: Path) -> Path:
        raise RuntimeError("no home")

    monkeypatch.delenv("HEADWISE_CACHE")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "expanduser", homeless)
    assert cache_folder() is None
