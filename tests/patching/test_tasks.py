import re
from collections import Counter
from typing import Any

import pytest
from tokenizers import AddedToken, Regex, Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from headwise.errors import OptionError
from headwise.patching import task_words
from headwise.patching.alignment import BLANK, align_pairs
from headwise.patching.prompts import PromptPair
from headwise.patching.tasks import FEWEST_PAIRS, TASKS, find_task, task_pairs

from .tiny_prompts import load_encoder, load_tiny

ALL_PAIRS = [
    pytest.param(pairs, id=f"{task.name}-{kind}")
    for task in TASKS.values()
    for kind, pairs in (("causal", task.pairs), ("masked", task.masked))
    if pairs
]


def whole_words(*, leaves_out: str = "", joins_digits: bool = False) -> Any:
    """A tokenizer with one token per word and sign of the tasks; it keeps spaces in tokens."""
    split = r" ?[A-Za-z]+| ?[0-9]+|." if joins_digits else r"\[MASK\]| ?[A-Za-z]+| |[0-9]|."
    pairs = [pair for task in TASKS.values() for pair in (*task.pairs, *task.masked)]
    texts = [text for pair in pairs for text in vars(pair).values()]
    words = dict.fromkeys(word for text in texts for word in re.findall(split, text))
    names = ["[UNK]", "[MASK]", *(word for word in words if word.strip() != leaves_out)]
    vocabulary = {word: number for number, word in enumerate(dict.fromkeys(names))}
    plain = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    plain.pre_tokenizer = pre_tokenizers.Split(Regex(split), "isolated")
    return PreTrainedTokenizerFast(
        tokenizer_object=plain, unk_token="[UNK]", mask_token=AddedToken("[MASK]", lstrip=True)
    )


@pytest.mark.parametrize("name", TASKS)
def test_every_task_has_enough_distinct_pairs(name: str) -> None:
    task = TASKS[name]
    assert task.name == name
    assert len(set(task.pairs)) == len(task.pairs) >= 60
    assert len(set(task.masked)) == len(task.masked) == (len(task.pairs) if task.masked else 0)


def test_agreement_and_pronouns_are_for_masked_models_too() -> None:
    assert [name for name, task in TASKS.items() if task.masked] == ["agreement", "pronoun"]


@pytest.mark.parametrize("pairs", ALL_PAIRS)
def test_prompts_of_a_pair_differ_in_one_word_and_so_do_their_answers(
    pairs: tuple[PromptPair, ...],
) -> None:
    for pair in pairs:
        clean, corrupted = (text.split() for text in (pair.clean, pair.corrupted))
        assert len(clean) == len(corrupted)
        assert sum(map(str.__ne__, clean, corrupted)) == 1
        assert pair.answer != pair.instead


@pytest.mark.parametrize("name", ["agreement", "pronoun"])
def test_each_word_is_as_often_right_as_wrong(name: str) -> None:
    answers = Counter(pair.answer for pair in TASKS[name].pairs)
    assert answers == Counter(pair.instead for pair in TASKS[name].pairs)
    assert set(answers) <= {" is", " are", " was", " were", " she", " he"}


def test_the_giver_comes_first_in_half_of_the_prompts() -> None:
    pairs = TASKS["indirect-object"].pairs
    firsts = [re.search(f"{pair.instead}|{pair.answer}", pair.clean) for pair in pairs]
    givers = [
        mark is not None and mark[0] == pair.instead
        for mark, pair in zip(firsts, pairs, strict=True)
    ]
    assert sum(givers) == len(pairs) / 2
    for pair in pairs:
        assert pair.clean.count(pair.instead) == pair.corrupted.count(pair.answer) == 2
        assert pair.clean.count(pair.answer) == pair.corrupted.count(pair.instead) == 1


def start_digit(prompt: str) -> int:
    """The decade's digit of a prompt's first year, or the start of its range."""
    number = re.findall(r"\d+", prompt)[0]
    return int(number[2] if len(number) == 4 else number)


def test_only_the_answer_is_greater_than_the_clean_start() -> None:
    for pair in TASKS["greater-than"].pairs:
        assert start_digit(pair.corrupted) < int(pair.instead)
        assert int(pair.instead) < start_digit(pair.clean) < int(pair.answer)


def test_induction_answers_what_followed_the_last_word() -> None:
    for pair in TASKS["induction"].pairs:
        words = pair.clean.replace(".", "").split()
        assert words[words.index(words[-1]) + 1] == pair.answer.strip()
        words = pair.corrupted.replace(".", "").split()
        assert words[words.index(words[-1]) + 1] == pair.instead.strip()


def test_capitals_belong_to_their_countries() -> None:
    capitals = dict(pair.split("/") for pair in task_words.CAPITALS.split())
    for pair in TASKS["capitals"].pairs:
        for text, answer in ((pair.clean, pair.answer), (pair.corrupted, pair.instead)):
            (country,) = (name for name in capitals if name in text)
            assert capitals[country] == answer.strip()


@pytest.mark.parametrize("pairs", [task.masked for task in TASKS.values() if task.masked])
def test_masked_prompts_have_one_blank(pairs: tuple[PromptPair, ...]) -> None:
    assert {text.count(BLANK) for pair in pairs for text in (pair.clean, pair.corrupted)} == {1}


@pytest.mark.parametrize("name", TASKS)
def test_all_pairs_align_if_every_word_is_a_token(name: str) -> None:
    loaded = load_tiny("gpt2", whole_words())
    assert task_pairs(name, loaded) == TASKS[name].pairs
    assert align_pairs(loaded, task_pairs(name, loaded))


@pytest.mark.parametrize("name", ["agreement", "pronoun"])
def test_masked_models_get_prompts_with_a_blank(name: str) -> None:
    loaded = load_tiny("bert", whole_words())
    assert task_pairs(name, loaded) == TASKS[name].masked
    assert align_pairs(loaded, task_pairs(name, loaded))


def test_pairs_whose_answer_the_tokenizer_lacks_are_left_out() -> None:
    loaded = load_tiny("gpt2", whole_words(leaves_out="Paris"))
    pairs = task_pairs("capitals", loaded)
    words = {word for pair in pairs for word in (pair.answer, pair.instead)}
    assert " Paris" not in words
    assert len(pairs) == 72


def test_years_are_left_out_if_their_digits_are_one_token() -> None:
    pairs = task_pairs("greater-than", load_tiny("gpt2", whole_words(joins_digits=True)))
    assert len(pairs) == 32
    assert all(pair.clean.endswith("-") for pair in pairs)


@pytest.mark.parametrize(("count", "templates"), [(2, 2), (4, 4), (9, 4)])
def test_a_few_pairs_use_every_template(count: int, templates: int) -> None:
    pairs = task_pairs("pronoun", load_tiny("gpt2", whole_words()), count)
    assert len(pairs) == count
    assert len({pair.clean.split()[-2] + pair.clean.split()[0] for pair in pairs}) == templates


@pytest.mark.parametrize(
    ("name", "advice"), [("capital", "did you mean capitals"), ("xyz", "choose from indirect-obj")]
)
def test_an_unknown_task_is_refused_with_a_suggestion(name: str, advice: str) -> None:
    with pytest.raises(OptionError, match=f"task is '{name}', which is unknown: {advice}"):
        find_task(name)


def test_too_few_pairs_that_align_say_why() -> None:
    facts = f"task is 'pronoun', of which 0 of 64 pairs .*tiny-gpt2, but {FEWEST_PAIRS} .*: pair 1 "
    with pytest.raises(OptionError, match=facts):
        task_pairs("pronoun", load_tiny("gpt2", whole_words(leaves_out="she")))


@pytest.mark.parametrize(
    ("count", "facts"), [(0, "count is 0: it must be at least 1"), (65, "count is 65: .* 64 pairs")]
)
def test_count_is_checked(count: int, facts: str) -> None:
    with pytest.raises(OptionError, match=facts):
        task_pairs("pronoun", load_tiny("gpt2", whole_words()), count)


def test_a_task_without_masked_prompts_names_those_that_have_some() -> None:
    facts = "task is 'induction', .* masked models such as tiny-bert: use agreement or pronoun"
    with pytest.raises(OptionError, match=facts):
        task_pairs("induction", load_tiny("bert", whole_words()))


def test_a_model_that_predicts_no_words_has_no_tasks() -> None:
    with pytest.raises(OptionError, match="tiny-encoder is a BertModel"):
        task_pairs("agreement", load_encoder(whole_words()))
