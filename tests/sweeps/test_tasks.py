"""Tasks of a sweep: every answer and its position, compared with plain loops."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from headwise.errors import OptionError
from headwise.sweeps.characters import Characters, library_text
from headwise.sweeps.settings import sweep_task
from headwise.sweeps.synthetic_tasks import RELATIONS, Brackets, Recall, Relations
from headwise.sweeps.task import NO_ANSWER, NOWHERE, SweepTask, TaskExamples

Where = Callable[[list[int], int], int | None]
"""Position of the answer at a position of some letters; None if there is none."""


def draw(
    task: SweepTask, count: int = 23, *, seed: int = 3, held_out: bool = False
) -> TaskExamples:
    return task.examples(count, torch.Generator().manual_seed(seed), held_out=held_out)


def last(position: int, is_right: Callable[[int], bool]) -> int | None:
    """The last earlier position for which `is_right` returns True."""
    return next((earlier for earlier in range(position - 1, -1, -1) if is_right(earlier)), None)


def steps_back(steps: int) -> Where:
    return lambda letters, position: position - steps if position >= steps else None


def start(letters: list[int], position: int) -> int | None:
    return 0 if position else None


def of_class(letters: list[int], position: int) -> int | None:
    return last(position, lambda earlier: letters[earlier] % 3 == letters[position] % 3)


def peak(letters: list[int], position: int) -> int | None:
    return last(position, lambda earlier: letters[earlier] == max(letters[:position]))


def after_the_same(letters: list[int], position: int) -> int | None:
    same = last(position, lambda earlier: letters[earlier] == letters[position])
    return None if same is None or same + 1 == position else same + 1


WHERE: dict[str, Where] = {
    "previous": steps_back(1),
    "first": start,
    "class": of_class,
    "second": steps_back(2),
    "largest": peak,
    "third": steps_back(3),
    "followed": after_the_same,
}


def test_relations_equal_those_of_a_loop() -> None:
    task = Relations(relations=7, letters=7, classes=3, length=13)
    assert task.shape.questions == tuple(WHERE) == tuple(RELATIONS)
    examples = draw(task)
    assert examples.symbols.shape == (23, 13, 1)
    assert examples.answers.shape == examples.places.shape == (23, 13, 7)
    for row in range(23):
        letters = examples.symbols[row, :, 0].tolist()
        for position in range(13):
            for number, where in enumerate(WHERE.values()):
                place = where(letters, position)
                expected = (NOWHERE, NO_ANSWER) if place is None else (place, letters[place])
                actual = (
                    examples.places[row, position, number],
                    examples.answers[row, position, number],
                )
                assert tuple(map(int, actual)) == expected, (
                    tuple(WHERE)[number],
                    letters,
                    position,
                )


@pytest.mark.parametrize("relations", range(1, 8))
def test_shortest_sequences_ask_every_relation(relations: int) -> None:
    lengths = {1: 2, 2: 2, 3: 2, 4: 3, 5: 3, 6: 4, 7: 4}
    task = Relations(relations=relations, letters=2, classes=2, length=lengths[relations])
    assert (draw(task).answers != NO_ANSWER).flatten(0, 1).any(0).all()


def test_all_letters_occur_and_no_others() -> None:
    task = Relations(relations=2, letters=7, classes=3, length=13)
    assert set(draw(task).symbols.flatten().tolist()) == set(range(7))
    assert (task.shape.num_symbols, task.shape.num_answers, task.shape.length) == (7, 7, 13)


def test_recall_asks_once_for_the_value_of_every_key() -> None:
    task = Recall(pairs=5, keys=11, values=3)
    examples = draw(task)
    assert (task.shape.num_symbols, task.shape.num_answers, task.shape.length) == (15, 3, 10)
    assert examples.symbols.shape == (23, 10, 2)
    for row in range(23):
        pairs = examples.symbols[row].tolist()
        shown, asked = pairs[:5], pairs[5:]
        assert len({key for key, _ in shown}) == 5
        assert {key for key, _ in shown} == {key for key, _ in asked} <= set(range(11))
        assert [sign for _, sign in asked] == [14] * 5
        value_of = {key: value - 11 for key, value in shown}
        place_of = {key: place for place, (key, _) in enumerate(shown)}
        answers = [NO_ANSWER] * 5 + [value_of[key] for key, _ in asked]
        places = [NOWHERE] * 5 + [place_of[key] for key, _ in asked]
        assert examples.answers[row, :, 0].tolist() == answers
        assert examples.places[row, :, 0].tolist() == places
    values = examples.symbols[:, :5, 1] - 11
    assert set(values.flatten().tolist()) == {0, 1, 2}


def test_recall_asks_for_keys_in_another_order() -> None:
    places = draw(Recall(pairs=5, keys=11, values=3)).places[:, 5:, 0].tolist()
    assert len(set(map(tuple, places))) > 10


def test_brackets_equal_those_of_a_stack() -> None:
    task = Brackets(labels=5, depth=3, length=17)
    examples = draw(task)
    assert (task.shape.num_symbols, task.shape.num_answers, task.shape.length) == (6, 5, 17)
    depths: set[int] = set()
    for row in range(23):
        symbols = examples.symbols[row, :, 0].tolist()
        opened: list[int] = []
        for position, symbol in enumerate(symbols):
            place, answer = NOWHERE, NO_ANSWER
            if symbol == 5:
                place = opened.pop()  # raises if nothing is open
                answer = symbols[place]
            else:
                opened.append(position)
            depths.add(len(opened))
            assert int(examples.places[row, position, 0]) == place, (symbols, position)
            assert int(examples.answers[row, position, 0]) == answer, (symbols, position)
    assert depths == {0, 1, 2, 3}


@pytest.fixture
def book(tmp_path: Path) -> Path:
    """A text of 640 characters; x, y and z fill its last tenth and occur nowhere else."""
    letters = [f"{number:06b}".replace("0", "a").replace("1", "b") for number in range(64)]
    file = tmp_path / "book.txt"
    file.write_text("".join(f"{word}cde" for word in letters) + "xyz" * 21 + "x", encoding="utf-8")
    return file


def by_frequency(text: str, alphabet: int) -> dict[str, int]:
    """Numbers of characters: frequent ones first, equals by their code; the rest is one more."""
    ordered = sorted(set(text), key=lambda character: (-Counter(text)[character], character))
    return {character: min(place, alphabet) for place, character in enumerate(ordered)}


def test_answer_is_the_next_character(book: Path) -> None:
    text = book.read_text(encoding="utf-8")
    numbers = by_frequency(text, 96)
    letter_of = {number: character for character, number in numbers.items()}
    for held_out in (False, True):
        examples = draw(Characters(text=str(book), length=11), held_out=held_out)
        assert examples.symbols.shape == examples.answers.shape == (23, 11, 1)
        assert (examples.places == NOWHERE).all()
        for row in range(23):
            text_part = "".join(
                letter_of[character] for character in examples.symbols[row, :, 0].tolist()
            )
            answers = "".join(
                letter_of[character] for character in examples.answers[row, :, 0].tolist()
            )
            assert answers[:-1] == text_part[1:]
            assert text_part + answers[-1] in text


def test_training_never_uses_the_held_out_end(book: Path) -> None:
    text = book.read_text(encoding="utf-8")
    numbers = by_frequency(text, 96)
    ends = {numbers[character] for character in "xyz"}
    task = Characters(text=str(book), length=11)
    trained, held_out = draw(task, 9000), draw(task, 900, held_out=True)
    for examples, is_end in ((trained, False), (held_out, True)):
        characters = {*examples.symbols.flatten().tolist(), *examples.answers.flatten().tolist()}
        assert characters == ({*numbers.values()} - ends, ends)[is_end]
    windows = {tuple(row) for row in trained.answers[..., 0].tolist()}
    assert tuple(numbers[character] for character in text[576 - 11 : 576]) in windows, (
        "all up to it is used"
    )


def test_best_guess_is_the_most_frequent_held_out_character(book: Path) -> None:
    ends = book.read_text()[-64:]
    expected = max(ends.count(character) for character in set(ends)) / 64
    assert Characters(text=str(book), length=11).best_guess == pytest.approx(expected)
    drawn_evenly = Relations(letters=8, classes=2)
    assert drawn_evenly.best_guess == 1 / drawn_evenly.shape.num_answers


def test_rare_characters_are_one_symbol(book: Path) -> None:
    task = Characters(text=str(book), length=11, alphabet=2)
    assert (task.shape.num_symbols, task.shape.num_answers, task.shape.length) == (3, 3, 11)
    symbols = draw(task).symbols.flatten().tolist()
    assert set(symbols) == {0, 1, 2}
    assert symbols.count(2) == pytest.approx(len(symbols) * 3 / 9, rel=0.2)  # c, d and e of nine


def test_default_text_is_pythons_library() -> None:
    text = library_text()
    assert len(text) == 1_000_000 and "def " in text
    task = Characters(length=7)
    assert task.shape.num_symbols == 97
    assert (draw(task, 5).symbols < 97).all()


def test_text_that_is_too_short_raises_with_the_length_it_needs(tmp_path: Path) -> None:
    file = tmp_path / "short.txt"
    file.write_text("ab" * 109, encoding="utf-8")
    with pytest.raises(OptionError, match=r"short\.txt .*218 .* 221"):
        Characters(text=str(file), length=11)
    with pytest.raises(OptionError, match=r"Python's library.* 1,000,000"):
        Characters(length=60_000)
    enough = tmp_path / "enough.txt"
    enough.write_text("ab" * 111, encoding="utf-8")
    assert len(draw(Characters(text=str(enough), length=11), held_out=True)) == 23


def test_unreadable_file_raises(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"none\.txt .*No such file"):
        Characters(text=str(tmp_path / "none.txt"))
    with pytest.raises(OptionError, match=r"Is a directory"):
        Characters(text=str(tmp_path))
    (tmp_path / "model.bin").write_bytes(b"abc\xff\xfe" * 1000)
    with pytest.raises(OptionError, match=r"model\.bin .*UTF-8.* byte 3"):
        Characters(text=str(tmp_path / "model.bin"))


SMALL: tuple[SweepTask, ...] = (
    Relations(relations=7, letters=7, length=13),
    Recall(pairs=5, keys=11, values=3),
    Brackets(labels=5, depth=3, length=17),
    Characters(length=19),
)


@pytest.mark.parametrize("task", SMALL, ids=lambda task: str(task.name))
def test_same_generator_state_gives_the_same_examples(task: SweepTask) -> None:
    before = torch.get_rng_state()
    first, again, other = draw(task), draw(task), draw(task, seed=4)
    assert torch.equal(first.symbols, again.symbols)
    assert torch.equal(first.answers, again.answers)
    assert torch.equal(first.places, again.places)
    assert not torch.equal(first.symbols, other.symbols)
    assert torch.equal(torch.get_rng_state(), before), "torch's own numbers were used"


@pytest.mark.parametrize("task", SMALL, ids=lambda task: str(task.name))
def test_symbols_answers_and_places_are_in_range(task: SweepTask) -> None:
    examples = draw(task, 200)
    assert examples.symbols.shape[:2] == (200, task.shape.length)
    assert examples.answers.shape == (200, task.shape.length, len(task.shape.questions))
    assert int(examples.symbols.min()) >= 0 and int(examples.symbols.max()) < task.shape.num_symbols
    answers = examples.answers[examples.answers != NO_ANSWER]
    assert int(answers.min()) >= 0 and int(answers.max()) < task.shape.num_answers
    earlier = torch.arange(task.shape.length)[None, :, None]
    assert (examples.places < earlier.clamp(min=NOWHERE + 1)).all(), "an answer is ahead"


def test_slicing_examples_slices_all_three_tensors() -> None:
    examples = draw(SMALL[0])
    part = examples[5:9]
    assert len(part) == 4 and len(examples) == 23
    assert torch.equal(part.symbols, examples.symbols[5:9])
    assert torch.equal(part.answers, examples.answers[5:9])
    assert torch.equal(part.places, examples.places[5:9])


@pytest.mark.parametrize(
    ("name", "options", "facts"),
    [
        ("relations", {"relations": 0}, "relations is 0: .* 1 to 7"),
        ("relations", {"relations": 8}, "relations is 8: .* 1 to 7"),
        ("relations", {"letters": 1}, "letters is 1: .* 2"),
        ("relations", {"classes": 1}, "classes is 1: .* 2"),
        ("relations", {"length": 1}, "length is 1: .* 2"),
        (
            "relations",
            {"relations": 6, "length": 3},
            "length is 3: .* third .* 4",
        ),
        ("relations", {"length": 2}, "length is 2: .* second .* 3"),
        ("recall", {"pairs": 1}, "pairs is 1: .* 2"),
        ("recall", {"values": 1}, "values is 1: .* 2"),
        ("recall", {"keys": 15}, "pairs is 16: .* 15"),
        ("brackets", {"labels": 1}, "labels is 1: .* 2"),
        ("brackets", {"length": 1}, "length is 1: .* 2"),
        ("brackets", {"depth": 0}, "depth is 0: .* 1"),
        ("characters", {"length": 1}, "length is 1: .* 2"),
        ("characters", {"alphabet": 1}, "alphabet is 1: .* 2"),
        ("recall", {"length": 9}, "recall .*length.* pairs, keys, values"),
        ("dyck", {}, "'dyck': .* relations, recall, brackets, characters"),
    ],
)
def test_impossible_setting_raises_and_is_named(
    name: str, options: dict[str, Any], facts: str
) -> None:
    with pytest.raises(OptionError, match=facts):
        sweep_task(name, **options)


def test_none_keeps_the_default_of_a_setting() -> None:
    assert sweep_task("recall", pairs=None, keys=17) == Recall(pairs=16, keys=17)
