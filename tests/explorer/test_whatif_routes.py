"""Routes of What if and Plan: random heads, the search, generated text, the loaded model."""

import functools
from typing import Any

import pytest
from starlette.testclient import TestClient
from transformers import BertConfig, BertModel

from headwise.explorer.find_heads import find_heads
from headwise.explorer.generate import generate
from headwise.explorer.loaded_plan import loaded_plan
from headwise.explorer.random_heads import compare_random
from headwise.explorer.routes import Explorer
from headwise.heads import HeadId
from headwise.models.loaded import LoadedModel

from .sessions import WORDS, minilm, tiny_session


@functools.cache
def client(name: str = "llama") -> TestClient:
    session = minilm() if name == "minilm" else tiny_session(name)
    return TestClient(Explorer(session).app(), base_url="http://127.0.0.1:8123")


def post(path: str, **body: Any) -> dict[str, Any]:
    answer = client().post(path, json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_random_heads_the_search_and_text_are_those_of_python() -> None:
    session, chosen = tiny_session("llama"), {HeadId(1, 2): 0.0}
    scored, heads = session.scored, session.num_heads
    random = post("/api/whatif/random", texts=[WORDS], gates={"L1H2": 0}, draws=3)
    expected = compare_random(scored, [WORDS], chosen, heads, draws=3)
    assert random["heads"] == expected.heads and random["names"] == expected.names
    assert random["values"] == expected.values and random["likeliest"] == expected.likeliest
    found = post("/api/whatif/search", text=WORDS)
    assert found["heads"] == find_heads(scored, WORDS, heads).heads
    written = post("/api/generate", text=WORDS, gates={"L1H2": 0}, tokens=4)
    line = generate(scored, WORDS, chosen, heads, max_tokens=4).after
    assert written["after"] == {
        "text": line.text, "added": line.added, "tokens": line.tokens, "end": line.end,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("path", "body", "message"),
    [
        ("whatif/random", {"texts": [WORDS]}, "gates is empty"),
        ("whatif/random", {"texts": [WORDS], "gates": {"L0H1": 0}, "draws": 0}, "draws"),
        ("whatif/random", {"texts": [WORDS], "gates": {"L0H1": 0}, "draws": 21}, "draws"),
        ("whatif/random", {"texts": [], "gates": {"L0H1": 0}}, "texts"),
        ("whatif/search", {"text": "  "}, "text is empty"),
        ("generate", {"text": WORDS, "tokens": 0}, "tokens"),
        ("generate", {"text": WORDS, "tokens": 10_000}, "tokens"),
        ("generate", {"text": WORDS, "gates": {"L0H1": "off"}}, "'off'"),
        ("generate", {"text": ""}, "text is empty"),
    ],
)
def test_bad_requests_are_answered_in_one_sentence(
    path: str, body: dict[str, Any], message: str
) -> None:
    answer = client().post(f"/api/{path}", json=body)
    assert answer.status_code == 422 and message in answer.json()["error"]


def test_models_that_cannot_do_it_say_so() -> None:
    for path in ("generate", "whatif/search"):
        answer = client("minilm").post(f"/api/{path}", json={"text": WORDS})
        assert answer.status_code == 422 and "minilm" in answer.json()["error"]


def test_the_loaded_models_plan_is_that_of_its_config() -> None:
    plan = client("minilm").get("/api/plan/loaded").json()
    assert plan["why"] is None
    sizes = [plan["plan"][name] for name in ("d_model", "num_heads", "d_key", "num_layers")]
    assert sizes == [384, 12, 32, 6] and plan["plan"]["is_causal"] is False
    assert plan["plan"]["parameters_attention"] == 3_548_160
    query = "d_model=384&heads=12&layers=6&length=512&is_causal=0"
    own = client("minilm").get(f"/api/plan?{query}").json()
    assert own["cache_bytes"] == 0 and own["parameters_layer"] == 4 * 384 * 384


def test_a_model_whose_config_is_unknown_has_a_reason_and_no_plan() -> None:
    sizes = {"hidden_size": 20, "num_hidden_layers": 1, "num_attention_heads": 2}
    model = BertModel(BertConfig(vocab_size=101, intermediate_size=8, **sizes))
    model.config.kv_lora_rank = 4
    answer = loaded_plan(LoadedModel("odd", model, None))
    assert answer.plan is None and answer.why is not None and "odd" in answer.why
