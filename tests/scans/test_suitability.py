"""Models that do not know English are noticed, and their relations are not measured."""

import torch
from transformers import BertConfig, BertModel, LlamaConfig, LlamaForCausalLM, LlamaModel

from headwise.models.loading import load_model
from headwise.probes.natural import natural_sentences
from headwise.reading.reader import Reader
from headwise.scans.gold_sentences import GoldSentences
from headwise.scans.scan import ScanJob, scan
from headwise.scans.settings import ScanSettings
from headwise.scans.suitability import why_unsuited
from headwise.views.heads import summary_lines

from .test_untrained import fine_tokenizer, letters_tokenizer, unknowing_tokenizer

SIZES = {"hidden_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2}
SENTENCES = natural_sentences()[::23]


def reason(model: torch.nn.Module, tokenizer: object) -> str:
    reader = Reader(tokenizer, model.config)
    return why_unsuited(model, reader, GoldSentences.of(SENTENCES, reader))


def encoder() -> BertModel:
    torch.manual_seed(0)
    return BertModel(BertConfig(vocab_size=300, intermediate_size=48, **SIZES))


def test_the_embedded_models_know_english() -> None:
    for name in ("minilm", "smollm2"):
        loaded = load_model(name)
        assert reason(loaded.model, loaded.tokenizer) == ""


def test_unknown_words_are_a_reason() -> None:
    assert "unknown to the tokenizer" in reason(encoder(), unknowing_tokenizer())


def test_words_split_into_letters_are_a_reason() -> None:
    assert "into characters" in reason(encoder(), letters_tokenizer())
    assert reason(encoder(), fine_tokenizer()) == ""


def test_a_model_that_predicts_no_better_than_frequencies_is_noticed() -> None:
    torch.manual_seed(0)
    config = LlamaConfig(vocab_size=300, intermediate_size=48, tie_word_embeddings=True, **SIZES)
    for model in (LlamaForCausalLM(config), LlamaModel(config)):
        assert "word frequencies" in reason(model.eval(), fine_tokenizer())


def test_relations_are_not_measured_if_the_sentences_do_not_suit() -> None:
    model, tokenizer = encoder(), letters_tokenizer()
    settings = ScanSettings(measures="entropy", compares=False, repeats=False, max_sentences=40)
    table = scan(model, tokenizer=tokenizer, settings=settings)
    assert "syntactic" in table.untested_roles
    (line,) = [line for line in summary_lines(table) if "not measured" in line]
    assert line.startswith("syntactic, semantic and coreference roles are not measured: ")
    assert "into characters" in line


def test_sentences_are_read_if_the_user_asks_for_them() -> None:
    job = ScanJob.of(encoder(), tokenizer=letters_tokenizer(), settings=ScanSettings(probe=True))
    assert job.reads_builtin_sentences
    assert job.unsuited == ""
