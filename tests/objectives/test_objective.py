"""Objectives compute what their definitions say, whatever the padding."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from headwise.errors import ModelError, OptionError
from headwise.objectives.evaluation import Evaluation
from headwise.objectives.losses import (
    MASKED_SHARE,
    ComparedEmbedding,
    CustomLoss,
    Divergence,
    Embedding,
    LabelLoss,
    MaskedToken,
    NextToken,
)
from headwise.objectives.objective import Sample
from headwise.reading.batch import NO_LABEL, Inputs

from ..pruning.tiny_models import (
    LENGTHS,
    SPECIAL,
    assert_close,
    counts_of,
    model_of,
    objective_of,
    padded,
    plain,
    split,
    task_of,
)
from ..watching.tiny import ragged, tiny
from ..watching.tiny_configs import VOCABULARY


@torch.no_grad()
def test_padding_does_not_change_next_token_perplexity() -> None:
    model, _ = tiny("gpt2")
    batch, alone = ragged("gpt2", LENGTHS)
    total = 0.0
    for one in alone:
        logs = model(**one).logits[0].log_softmax(-1)
        ids = one["input_ids"][0]
        total -= sum(float(logs[place, ids[place + 1]]) for place in range(len(ids) - 1))
    task = Evaluation.of_batches(model, NextToken(), [batch])
    want = total / sum(length - 1 for length in LENGTHS)
    assert task.loss().value == pytest.approx(want, rel=torch.finfo(torch.float64).eps * 1000)
    assert task.objective.unit == "perplexity"
    assert task.objective.quality(want) == math.exp(want)
    assert task.objective.quality(1e6) == math.exp(700)


@pytest.mark.parametrize("name", ["gpt2", "bert", "embedding", "bart"])
def test_padding_does_not_change_the_loss_of_an_example(name: str) -> None:
    objective, model = objective_of(name), model_of(name)
    family = "bert" if name == "embedding" else name
    batch, alone = ragged(family, LENGTHS)
    sample = objective.prepare(batch, 0)
    with torch.no_grad():
        output = objective.output(model, sample.inputs)
        other = torch.randn_like(output)  # what the output is compared with, where it is
        whole = objective.losses(output, Sample(sample.inputs, sample.targets, other))
        for row, one in enumerate(alone):
            size = one["decoder_input_ids" if name == "bart" else "input_ids"].shape[1]
            ids = sample.inputs["input_ids"][row : row + 1, : one["input_ids"].shape[1]]
            inputs = {**one, "input_ids": ids}
            targets = None if sample.targets is None else sample.targets[row : row + 1, :size]
            goal = other[row : row + 1] if other.dim() == 2 else other[row : row + 1, :size]
            got = objective.losses(objective.output(model, inputs), Sample(inputs, targets, goal))
            assert_close(got.sums, whole.sums[row : row + 1], torch.float64)
            assert torch.equal(got.weights, whole.weights[row : row + 1])


def test_only_ordinary_real_tokens_are_masked_and_become_targets() -> None:
    objective = MaskedToken(4, frozenset(SPECIAL.values()))
    ids = torch.randint(0, VOCABULARY, (60, 50), generator=torch.Generator().manual_seed(1))
    mask = (torch.arange(50) < torch.arange(1, 61)[:, None]).long()
    inputs = {"input_ids": ids, "attention_mask": mask}
    found = objective.prepare(inputs, 5)
    assert found.targets is not None
    is_hidden = found.targets != NO_LABEL
    may_be = (mask == 1) & (ids >= len(SPECIAL))
    assert not (is_hidden & ~may_be).any()
    assert torch.equal(found.targets[is_hidden], ids[is_hidden])
    assert (found.inputs["input_ids"][is_hidden] == 4).all()
    assert torch.equal(found.inputs["input_ids"][~is_hidden], ids[~is_hidden])
    count = int(may_be.sum())
    spread = math.sqrt(MASKED_SHARE * (1 - MASKED_SHARE) / count)
    assert abs(int(is_hidden.sum()) / count - MASKED_SHARE) < 5 * spread
    again, other = objective.prepare(inputs, 5), objective.prepare(inputs, 6)
    assert again.targets is not None and torch.equal(again.targets, found.targets)
    assert other.targets is not None and not torch.equal(other.targets, found.targets)
    free = objective.prepare({"input_ids": ids}, 5)
    assert free.targets is not None and (free.targets != NO_LABEL).sum() > is_hidden.sum()


def test_a_short_text_has_at_least_one_masked_token() -> None:
    objective = MaskedToken(4, frozenset(SPECIAL.values()))
    ids = torch.tensor([[2, 9, 3, 0], [2, 11, 12, 3]])
    inputs = {"input_ids": ids, "attention_mask": (ids != 0).long()}
    counts = []
    for number in range(40):
        found = objective.prepare(inputs, number)
        assert found.targets is not None and found.has_targets
        is_masked = found.targets != NO_LABEL
        assert not (is_masked & (ids < len(SPECIAL))).any()
        counts.append(int(is_masked.sum()))
    assert set(counts) == {1, 2, 3} and counts.count(1) > 20  # of three tokens


def test_samples_know_whether_there_is_something_to_predict() -> None:
    inputs = plain("gpt2")
    nothing = torch.full_like(inputs["input_ids"], NO_LABEL)
    assert Sample(inputs).has_targets and Sample(inputs, inputs["input_ids"]).has_targets
    assert not Sample(inputs, nothing).has_targets


def test_text_without_tokens_to_mask_raises() -> None:
    only_special = {"input_ids": torch.full((2, 5), 2), "attention_mask": torch.ones(2, 5).long()}
    task = Evaluation.of_batches(model_of("bert"), objective_of("bert"), [only_special])
    with pytest.raises(OptionError, match=str(NO_LABEL)):
        task.loss()


def test_evaluation_without_batches_raises() -> None:
    with pytest.raises(OptionError, match="batch"):
        Evaluation.of_batches(model_of("gpt2"), NextToken(), [])


@pytest.mark.parametrize("name", ["embedding", "bart", "vit"])
def test_distance_of_a_model_from_itself_is_zero(name: str) -> None:
    losses = task_of(name).losses()
    assert_close(losses.sums, torch.zeros_like(losses.sums), torch.float64)
    assert (losses.weights > 0).all()


def test_divergence_equals_torch_kl_divergence() -> None:
    output, reference = torch.randn(2, 3, 7, dtype=torch.float64, generator=seeded())
    found = Divergence().losses(output, Sample({"pixel_values": output}, None, reference))
    ours, theirs = torch.distributions.Categorical(logits=output), reference
    goal = torch.distributions.Categorical(logits=theirs)
    assert_close(found.sums, torch.distributions.kl_divergence(goal, ours), torch.float64)
    assert found.weights.tolist() == [1, 1, 1]
    assert objective_of("vit").quality(0.12345) == 0.12345
    assert objective_of("vit").unit == "divergence of logits"


def test_rows_of_logits_in_parts_give_the_same_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    output, reference = torch.randn(2, 3, 11, 7, dtype=torch.float64, generator=seeded())
    targets = torch.zeros(3, 11, dtype=torch.long)
    sample = Sample({"pixel_values": output}, targets, reference)

    def measure() -> tuple[Tensor, Tensor]:
        drawn = NextToken().draw(output, sample, seeded())
        return Divergence().losses(output, sample).sums, drawn

    whole = measure()
    monkeypatch.setattr("headwise.objectives.losses.CACHED_VALUES", 5 * 7)  # 33 rows: 5 at a time
    for actual, expected in zip(measure(), whole, strict=True):
        assert_close(actual, expected, torch.float64)


def seeded() -> torch.Generator:
    return torch.Generator().manual_seed(2)


def test_embedding_pools_the_mean_or_the_first_token() -> None:
    model, inputs = model_of("embedding"), padded("embedding")
    with torch.no_grad():
        states = model(**inputs).last_hidden_state
        got = Embedding("cls").output(model, inputs)
        bare = Embedding().output(model, {"input_ids": inputs["input_ids"]})
        mean = model(input_ids=inputs["input_ids"]).last_hidden_state.mean(1)
    assert_close(got, states[:, 0] / states[:, 0].norm(dim=1, keepdim=True), torch.float64)
    assert_close(bare, mean / mean.norm(dim=1, keepdim=True), torch.float64)
    assert Embedding().quality(0.25) == 0.75 and Embedding().unit == "cosine"


def test_repeated_sample_repeats_inputs_and_targets() -> None:
    task = task_of("bert")
    sample = task.samples[0]
    twice = sample.repeated(2)
    assert len(twice) == 2 * len(sample)
    assert twice.targets is not None and sample.targets is not None
    assert torch.equal(twice.targets, torch.cat([sample.targets] * 2))
    assert all(
        torch.equal(twice.inputs[one], torch.cat([sample.inputs[one]] * 2)) for one in twice.inputs
    )


def test_splitting_a_batch_keeps_mean_and_error() -> None:
    objective, model = NextToken(), model_of("gpt2")
    whole = Evaluation.of_batches(model, objective, [padded("gpt2")]).loss()
    parts = Evaluation.of_batches(model, objective, split(padded("gpt2"), 1, 3)).loss()
    assert parts == pytest.approx(whole, rel=1000 * torch.finfo(torch.float64).eps)


def test_heads_of_an_embedding_model_are_chosen_by_its_similarities() -> None:
    chooser = Embedding("cls").when_choosing()
    assert isinstance(chooser, ComparedEmbedding) and chooser.pooling == "cls"
    reference = torch.randn(5, 7, generator=seeded(), dtype=torch.float64)
    sample = Sample({}, reference=reference)
    output = reference.clone().requires_grad_()
    others, random = set(), seeded()
    for _ in range(40):
        scalars = chooser.draw(output, sample, random)
        (slopes,) = torch.autograd.grad(scalars.sum(), output)
        assert_close(
            slopes.norm(dim=-1), torch.full((5,), 7**0.5, dtype=torch.float64), torch.float64
        )
        centred = torch.nn.functional.normalize(reference - reference.mean(0), dim=-1)
        cosines = slopes @ centred.T / 7**0.5
        partners = cosines.abs().argmax(1)
        assert_close(cosines.abs().amax(1), torch.ones(5).double(), torch.float64)
        assert all(int(partner) != row for row, partner in enumerate(partners))
        others.add(tuple(partners.tolist()))
    assert len(others) == 4, "every other example is drawn"


def test_one_embedding_alone_is_projected_at_random() -> None:
    reference = torch.randn(1, 7, generator=seeded())
    sample = Sample({}, reference=reference)
    drawn = ComparedEmbedding().draw(reference, sample, seeded())
    assert torch.equal(drawn, Embedding().draw(reference, sample, seeded()))


def test_other_objectives_choose_by_themselves() -> None:
    objective = NextToken()
    assert objective.when_choosing() is objective


# Labels that came with the data.


def test_the_loss_on_labels_is_their_negative_log_probability() -> None:
    objective, labels = LabelLoss(), torch.tensor([1, 0, 1, 1])
    sample = objective.prepare({**plain("vit"), "labels": labels}, 0)
    assert sample.inputs.keys() == plain("vit").keys()
    with torch.no_grad():
        output = objective.output(task_of("vit").model, sample.inputs)
        found = objective.losses(output, sample)
    want = -output.log_softmax(-1)[torch.arange(4), labels]
    assert_close(found.sums, want, torch.float64)
    assert found.weights.tolist() == [1, 1, 1, 1]
    assert objective.draw(output, sample, seeded()).shape == (4,)


def test_token_labels_count_only_where_set() -> None:
    objective, batch = LabelLoss(), padded("gpt2")
    labels = batch["input_ids"].masked_fill(batch["attention_mask"] == 0, NO_LABEL)
    sample = objective.prepare({**batch, "labels": labels}, 0)
    with torch.no_grad():
        output = objective.output(task_of("gpt2").model, sample.inputs)
    found = objective.losses(output, sample)
    each = -output.log_softmax(-1).gather(-1, batch["input_ids"][..., None])[..., 0]
    assert_close(found.sums, (each * batch["attention_mask"]).sum(1), torch.float64)
    assert found.weights.tolist() == list(LENGTHS)
    drawn = objective.draw(output, sample, seeded())
    assert (drawn < 0).all()


def test_label_loss_needs_labels() -> None:
    with pytest.raises(OptionError, match=r"labels.* input_ids, attention_mask"):
        LabelLoss().prepare(plain("gpt2"), 0)


# A custom loss.


def own_loss(model: nn.Module, inputs: Inputs) -> Tensor:
    logits: Tensor = model(**inputs).logits
    return logits.square().mean((1, 2))


def test_custom_loss_is_used_unchanged() -> None:
    task = Evaluation.of_batches(model_of("gpt2"), CustomLoss(own_loss), [plain("gpt2")])
    with torch.no_grad():
        want = own_loss(task.model, plain("gpt2")).mean().item()
    assert task.loss().value == pytest.approx(want, rel=100 * torch.finfo(torch.float32).eps)
    assert not counts_of("gpt2").keys() - {"L0", "L1", "L2"}


@pytest.mark.parametrize(
    ("returned", "facts"),
    [
        (torch.zeros(()), r"\[\].* 4 examples"),
        (torch.zeros(3), r"\[3\].* 4 examples"),
        (0.5, "float.* 4 examples"),
    ],
)
def test_custom_loss_of_another_shape_raises(returned: Any, facts: str) -> None:
    def wrong(model: nn.Module, inputs: Inputs) -> Any:
        return returned

    with pytest.raises(OptionError, match=facts):
        Evaluation.of_batches(model_of("gpt2"), CustomLoss(wrong), [plain("gpt2")]).loss()


# Sizes of evaluations, and models that have no such output.


@pytest.mark.parametrize("name", ["gpt2", "bart"])
def test_without_a_mask_every_id_is_a_token(name: str) -> None:
    inputs = {key: value for key, value in plain(name).items() if not key.endswith("mask")}
    task = Evaluation.of_batches(model_of(name), objective_of(name), [inputs])
    ids = inputs.get("decoder_input_ids", inputs["input_ids"])
    assert task.num_tokens == ids.numel() and task.describe_size() == f"{ids.numel()} tokens"


def test_sizes_of_one_are_singular() -> None:
    word = {"input_ids": torch.tensor([[7]])}
    picture = {"pixel_values": torch.zeros(1, 2)}
    amounts = [
        Evaluation(nn.Identity(), NextToken(), (Sample(one),)).describe_size()
        for one in (word, picture)
    ]
    assert amounts == ["1 token", "1 example"]


def test_token_loss_needs_logits() -> None:
    with pytest.raises(ModelError, match=r"BertModel .*logits"):
        Evaluation.of_batches(model_of("embedding"), NextToken(), [plain("bert")]).loss()


def test_embedding_needs_hidden_states() -> None:
    class Blind(nn.Module):
        def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Any:
            return type("Output", (), {"logits": torch.zeros(len(input_ids), 3)})()

    with pytest.raises(ModelError, match=r"Blind .*last_hidden_state"):
        Evaluation.of_batches(Blind(), Embedding(), [plain("bert")])


@pytest.mark.parametrize("labels", [{}, {"labels": torch.zeros(2).long()}])
def test_losses_of_logits_need_more_than_one_logit(labels: Inputs) -> None:
    class Regression(nn.Module):
        def forward(self, input_ids: Tensor) -> Any:
            return type("Output", (), {"logits": torch.zeros(len(input_ids), 1)})()

    inputs = {"input_ids": torch.zeros(2, 3).long(), **labels}
    with pytest.raises(ModelError, match=r"Regression .*one number"):
        Evaluation.of_batches(Regression(), Divergence(), [inputs]).loss()


# Budgets.


def test_budgets_are_in_the_unit_of_the_objective() -> None:
    custom = CustomLoss(lambda model, inputs: torch.zeros(1))
    budgets = {
        NextToken(): ("1% of perplexity", 2 + math.log(1.01)),
        Embedding(): ("0.01 of cosine", 2.01),
        Divergence(): ("0.01 nats", 2.01),
        custom: ("1% of the loss", 2.02),
    }
    for objective, (words, loss) in budgets.items():
        assert objective.describe_budget(0.01) == words
        assert objective.budget(2.0, 0.01) == pytest.approx(loss)
    assert custom.budget(-2.0, 0.01) == pytest.approx(-1.98)
