"""The embedded causal model: loaded from its package once, watched, traced and taught."""

import pytest
import torch

from headwise import LoadOptions, load_model, trace, watch
from headwise.explorer.lesson.lesson import Lesson
from headwise.models import embedded
from headwise.models.loaded import LoadedModel
from headwise.objectives.scored_model import open_scored_model
from headwise.patching.alignment import align_pairs
from headwise.patching.tasks import TASKS, task_pairs
from headwise.watching.sites import find_sites

from .explorer.lesson_cases import assert_is_a_lesson, figures_of
from .reading.test_reader import assert_marks
from .watching.helpers import run

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def smollm2() -> LoadedModel:
    return load_model("smollm2", LoadOptions(dtype="bfloat16", keeps_head=True))


def test_smollm2_loads_from_its_package_and_can_be_watched(
    smollm2: LoadedModel, capfd: pytest.CaptureFixture[str]
) -> None:
    assert type(smollm2.model).__name__ == "LlamaForCausalLM"
    assert {parameter.dtype for parameter in smollm2.model.parameters()} == {torch.bfloat16}
    assert smollm2.about["sha256"] == embedded.MODELS["smollm2"].sha256
    assert len(find_sites(smollm2.model)) == 30
    assert_marks(
        smollm2, "Well, yes ( no ) ... \u00e9 \u65e5\u672c", [",", " (", " )", " ..."], special=0
    )
    inputs = smollm2.tokenizer("The cat sleeps.", return_tensors="pt")
    with watch(smollm2.model) as watched:
        said = run(smollm2.model, inputs).logits
    assert said.isfinite().all()
    call = watched.calls[-1]
    assert (call.layer, call.num_heads, call.keys.shape[1]) == (29, 9, 3)
    assert "".join(capfd.readouterr()) == ""


def test_pieces_of_one_long_word_are_one_word(smollm2: LoadedModel) -> None:
    found = trace(smollm2, "Unbelievable")
    assert len(found.labels.word_of) > 1 and set(found.labels.word_of) == {0}


def test_lines_and_words_of_a_real_tokenizer(smollm2: LoadedModel) -> None:
    found = trace(smollm2, "One line\nTwo lines (catamarans)\n\nwell-known")
    words = found.maps(words=True).labels.keys
    assert "Two" in words and "catamarans" in words and "known" in words


def test_a_lesson_on_a_real_causal_model(smollm2: LoadedModel) -> None:
    lesson = Lesson(open_scored_model(smollm2), "The capital of France is")
    assert_is_a_lesson(lesson)
    figure = figures_of(lesson, "spare")
    assert figure["next"][0]["token"] == "Paris"
    assert figure["together"][-1]["likeliest"]["token"] != "Paris"
    slices = figures_of(lesson, "heads")["heads"]
    assert [each["kv_head"] for each in slices] == [0, 0, 0, 1, 1, 1, 2, 2, 2]


@pytest.mark.parametrize("name", TASKS)
def test_smollm2_solves_the_built_in_prompt_tasks(smollm2: LoadedModel, name: str) -> None:
    assert len(task_pairs(name, smollm2)) >= 60
    is_right = []
    for batch in align_pairs(smollm2, task_pairs(name, smollm2, 16)):
        logits = run(smollm2.model, batch.clean).logits
        rows = logits[torch.arange(len(batch.position)), batch.position]
        assert batch.answer is not None and batch.instead is not None
        answer, instead = (rows.gather(1, ids[:, None]) for ids in (batch.answer, batch.instead))
        is_right.extend((answer > instead)[:, 0].tolist())
    assert sum(is_right) >= 15
