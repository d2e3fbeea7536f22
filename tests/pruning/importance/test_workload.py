"""Large models read fewer tokens and leave out slow measures; the rest is the user's choice."""

from dataclasses import replace

import pytest

from headwise.errors import OptionError
from headwise.objectives.evaluation import Evaluation
from headwise.pruning.importance import workload
from headwise.pruning.importance.workload import (
    LEAST_TOKENS,
    MEASURES,
    MOST_WORK,
    ImportanceWork,
    _num_multiplied_weights,
    choose_work,
    default_exact_tokens,
    estimate_seconds,
    limit_tokens,
)
from headwise.watching.gates import silence

from ..tiny_models import model_of, objective_of, padded, plain, task_of


def num_weights(name: str) -> int:
    return _num_multiplied_weights(task_of(name))


def test_tables_of_embeddings_are_not_multiplied_unless_they_make_logits() -> None:
    task = task_of("gpt2")  # its table is also its output layer
    sizes = {name: value.numel() for name, value in task.model.named_parameters()}
    assert num_weights("gpt2") == sum(sizes.values()) - sizes["transformer.wpe.weight"]
    embedding = task_of("embedding").model
    tables = sum(
        value.numel() for name, value in embedding.named_parameters() if "_embeddings." in name
    )
    every = sum(value.numel() for value in embedding.parameters())
    assert num_weights("embedding") == every - tables


def test_default_tokens_follow_from_the_work_of_an_ablation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    task = task_of("gpt2")
    work = len(task.heads) * num_weights("gpt2")
    assert default_exact_tokens(task) == int(MOST_WORK / work)
    monkeypatch.setattr(workload, "MOST_WORK", work)
    assert default_exact_tokens(task) == LEAST_TOKENS


def test_small_models_take_every_measure_on_every_token() -> None:
    task = task_of("gpt2")
    chosen = choose_work(task)
    assert chosen.measures == MEASURES and chosen.exact is task and chosen.left_out == ()


def test_numbers_of_tokens_below_one_raise() -> None:
    with pytest.raises(OptionError, match="exact_tokens is 0"):
        choose_work(task_of("gpt2"), exact_tokens=0)


@pytest.mark.parametrize("name", ["gpt2", "embedding", "bert"])
def test_some_examples_have_the_losses_they_have_among_all(name: str) -> None:
    batches = [padded(name), plain(name)]
    task = Evaluation.of_batches(model_of(name), objective_of(name), batches)
    few = limit_tokens(task, task.num_tokens // 2)
    assert task.num_tokens / 4 < few.num_tokens <= task.num_tokens / 2
    every, some = examples_of(task), examples_of(few)
    assert max(loss for _, loss in some) > 0
    for ids, loss in some:
        assert (ids, pytest.approx(loss)) in every


def examples_of(task: Evaluation) -> list[tuple[tuple[int, ...], float]]:
    """Tokens of each example and its loss without one head, so that no reference is met."""
    with silence(task.model, "L1H2"):
        losses = task.losses().sums.tolist()
    ids = [tuple(row) for one in task.samples for row in one.inputs["input_ids"].tolist()]
    return list(zip(ids, losses, strict=True))


def test_two_examples_are_read_however_few_tokens() -> None:
    assert limit_tokens(task_of("gpt2"), 1).num_examples == 2
    one = {name: value[:1] for name, value in plain("gpt2").items()}
    alone = Evaluation.of_batches(model_of("gpt2"), objective_of("gpt2"), [one])
    assert limit_tokens(alone, 1).num_examples == 1


def test_images_are_counted_by_the_example() -> None:
    few = limit_tokens(task_of("vit"), 2)
    assert few.num_examples == 2 and few.samples[0].inputs["pixel_values"].dim() == 4


def test_estimated_time_grows_with_the_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock stands still but for one second per pass of the model."""
    task = task_of("gpt2")
    clock = 0.0

    def tick(*_: object) -> None:
        nonlocal clock
        clock += 1.0

    monkeypatch.setattr(workload.time, "perf_counter", lambda: clock)
    with task.model.register_forward_hook(tick):
        zero = estimate_seconds(task, ImportanceWork(("zero",), task))
        both = estimate_seconds(task, ImportanceWork(("zero", "mean"), task))
        one_batch = replace(task, samples=task.samples[:1])
        fewer = estimate_seconds(task, ImportanceWork(("zero", "mean"), one_batch))
        slopes = estimate_seconds(task, ImportanceWork(("michel",), task))
    assert zero > 0 and both == 2 * zero
    assert fewer < both
    assert slopes == pytest.approx(task.num_tokens / middle_tokens(task))


def middle_tokens(task: Evaluation) -> int:
    """Tokens of the batch that trial passes read; backward passes take no time here."""
    return sorted(sample.num_tokens for sample in task.samples)[len(task.samples) // 2]


def test_number_of_draws_is_what_the_measures_need() -> None:
    tokens, embedding = task_of("gpt2"), task_of("embedding")
    assert ImportanceWork(("zero", "best_alone"), tokens).draws == 0
    assert ImportanceWork(("michel",), tokens).draws == 1
    assert ImportanceWork(("fisher", "stand_ins"), tokens).draws == workload.DRAWS
    assert ImportanceWork(("michel",), embedding).draws == workload.DRAWS
