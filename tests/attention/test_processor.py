"""A processor that kills a process is detected from another process."""

import stat
import sys
from pathlib import Path

import pytest

from headwise.attention import processor


@pytest.mark.parametrize(("ending", "is_safe"), [("exit 0", True), ("kill -ILL $$", False)])
def test_low_precision_is_safe_when_the_trial_survives(
    ending: str, is_safe: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\n{ending}\n")
    python.chmod(stat.S_IRWXU)
    monkeypatch.setattr(sys, "executable", str(python))
    assert processor.low_precision_is_safe() is is_safe


def test_the_safe_setting_lets_the_trial_survive(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(*processor.SAFE_SETTING)
    assert processor.low_precision_is_safe()


def test_the_remedy_names_the_safe_setting() -> None:
    assert "ONEDNN_MAX_CPU_ISA=AVX512_CORE_FP16" in processor.REMEDY


def test_the_safe_setting_is_added_to_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEPT", "as it is")
    monkeypatch.delenv("ONEDNN_MAX_CPU_ISA", raising=False)
    environment = processor.with_safe_setting()
    assert environment["KEPT"] == "as it is"
    assert environment["ONEDNN_MAX_CPU_ISA"] == "AVX512_CORE_FP16"
