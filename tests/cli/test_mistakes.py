"""A mistake in how a command is called is one sentence, as every other mistake is."""

import pytest

from .running import Runner

MISTAKES = {
    "scna": "there is no command 'scna': did you mean 'scan'?",
    "xyzzy": "there is no command 'xyzzy': headwise --help says what it takes",
    "--verson": "headwise has no option --verson: did you mean --version?",
    "scan minilm smollm2": "headwise scan has no use for smollm2: headwise scan --help says what",
    "scan --length x": "invalid value for '--length': give a whole number",
    "scan --length": "option '--length' requires an argument: headwise --help says what it takes",
    "plan heads abc": "invalid value for 'width': give a whole number",
    "plan compare": "missing argument 'models': headwise plan compare --help says what it takes",
    "sweep --task chess": "headwise sweep has no option --task: headwise sweep --help lists those",
    "sweep chess": "there is no task 'chess': the tasks are relations",
    "prune --keeep 0.7": "headwise prune has no option --keeep: did you mean --keep?",
    "trace --example dog": "invalid value for '--example': 'dog' is not one of 'cat-sleeps', 'dim",
}


@pytest.mark.parametrize("typed", MISTAKES)
def test_a_command_that_cannot_be_read_gets_one_sentence(headwise: Runner, typed: str) -> None:
    assert headwise.refused(*typed.split()).startswith(f"headwise: {MISTAKES[typed]}")
