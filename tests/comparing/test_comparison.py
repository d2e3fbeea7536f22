"""The conclusions of a comparison: plain words with rounded figures, and when to warn."""

import math

import pytest

from headwise.comparing.comparison import Comparison

from .comparisons import causal, comparison_of, embedding, text_of


def test_the_last_line_names_the_worst_register() -> None:
    assert causal().conclusions() == [
        "worst register: captions, 1.8% higher perplexity (± 0.4)",
    ]
    assert embedding().conclusions() == [
        "worst register: news, cosine 0.938 to small (± 0.002)",
    ]


@pytest.mark.parametrize(
    ("comparison", "added", "error", "words"),
    [
        (causal(), -0.02, 0.004, "2.0% lower perplexity (± 0.4)"),
        (causal(), 1.5, 0.25, "348% higher perplexity (± 112)"),
        (causal(), 0.5, math.inf, "64.9% higher perplexity"),
        (causal(), 0.0, 0.0, "no difference from small"),
        (embedding(), 0.0, 0.0, "no difference from small"),
        (comparison_of(objective="custom loss", unit="custom loss"), -0.5, 0.25,
         "loss lower by 0.5 (± 0.2)"),
        (comparison_of(objective="custom loss", unit="custom loss"), 0.5, math.inf,
         "loss higher by 0.5000"),
    ],
)  # fmt: skip
def test_change_is_described_with_its_error(
    comparison: Comparison, added: float, error: float, words: str
) -> None:
    before = None if comparison.unit == "cosine" else 2.0
    assert comparison.describe_change(text_of("x", added, error, before=before)) == words


def test_divergence_is_described_in_nats() -> None:
    comparison = comparison_of(objective="divergence of logits", unit="divergence of logits")
    text = text_of("x", 0.0125, 0.002, before=None)
    assert comparison.describe_change(text) == "divergence of logits 0.013 nats (± 0.002)"


def test_equal_models_get_one_line_without_figures() -> None:
    same = (text_of("news", 0, 0), text_of("law", 0, 0))
    comparison = causal(registers=same, all_registers=text_of("all registers", 0, 0))
    assert comparison.conclusions() == ["every register: no difference from small"]


def test_without_registers_only_the_given_text_is_described() -> None:
    comparison = causal((0.25, 0.03), registers=(), all_registers=None)
    assert comparison.worst is None
    assert comparison.conclusions() == ["your text: 28% higher perplexity (± 4)"]


@pytest.mark.parametrize(
    ("comparison", "words"),
    [
        (causal((0.01, 0.002)), ""),
        (causal((0.06, 0.002)), ""),
        (causal((0.07, 0.002)), "your text suffers much more than other text (all registers: 1.3%"),
        (
            causal((-0.05, 0.002)),
            "other text suffers much more than your text (all registers: 1.3%",
        ),
        (causal((0.07, 0.03)), ""),
        (causal((0.07, math.inf)), ""),
        (embedding((0.03, 0.002)), ""),
        (
            embedding((0.02, 0.002)),
            "other text suffers much more than your text (all registers: co",
        ),
        (embedding((0.07, 0.002)), "your text suffers much more than other text"),
    ],
)
def test_a_large_and_certain_gap_between_your_text_and_other_text_warns(
    comparison: Comparison, words: str
) -> None:
    own, *warnings, worst = comparison.conclusions()
    assert own.startswith("your text: ") and worst.startswith("worst register: ")
    assert len(warnings) == bool(words)
    assert all(line.startswith("warning: ") and words in line for line in warnings)


def test_a_custom_loss_is_judged_on_its_own_scale() -> None:
    def warns(scale: float, gap: float = 0.6) -> bool:
        parts = {
            name: text_of(name, added * scale, 0.001 * scale, before=10 * scale)
            for name, added in (("your text", 0), ("news", gap), ("all registers", gap))
        }
        own, register, whole = parts.values()
        comparison = comparison_of(
            objective="custom loss",
            unit="custom loss",
            own_text=own,
            registers=(register,),
            all_registers=whole,
        )
        return len(comparison.conclusions()) == 3

    assert warns(1) and warns(1000) and warns(0.001)
    assert not any(warns(scale, gap=0.4) for scale in (1, 1000, 0.001))


def test_texts_start_with_the_given_one_and_end_with_all_registers() -> None:
    names = [text.name for text in causal((0.1, 0.01)).texts]
    assert names == ["your text", "news", "captions", "all registers"]
