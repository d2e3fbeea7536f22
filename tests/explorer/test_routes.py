"""The server answers with the library's numbers, and rejects bad requests in one sentence."""

import functools
import json
import math
import posixpath
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from starlette.testclient import TestClient

import headwise
from headwise.explorer.guard import HEADERS, LARGEST_BODY
from headwise.explorer.maps import (
    OVERVIEW,
    STEPS,
    TILE,
    MapOptions,
    map_weights,
    reduce_maps,
    stack_weights,
)
from headwise.explorer.routes import Explorer
from headwise.explorer.session import Session, default_head
from headwise.head_table import HeadTable
from headwise.objectives.scored_model import open_scored_model
from headwise.pruning.selection.cut_plan import CutPlan

from ..pruning.tiny_models import model_of, words_tokenizer
from .sessions import ANIMAL, CAT, WORDS, cat, fresh_session, minilm, tiny_session

STATIC = Path(headwise.__file__).parent / "explorer/static"
HOSTILE = {
    "empty": "",
    "spaces": " \n\t ",
    "nothing but zeros": "\0\0",
    "control characters": "one \x00\x07\x1b[31m two \u2028 three \u200b\ufeff four",
    "right to left": "שלום עולם, the rest \u202e is turned around",
    "emoji": "🙂🙃 👩‍👩‍👧‍👦 is a family 🏳️‍🌈",
    "markup": "<script>alert('x')</script> <img src=x onerror=y>",
    "half a character": "two \ud800 halves \udfff here",
    "100,000 characters": "word and another, " * 5556,
    "one long word": "x" * 100_000,
    "too long": "a " * 150_000,
    "a number": 7,
    "nothing": None,
    "a list": ["a"],
}


@functools.cache
def client(name: str = "minilm") -> TestClient:
    session = minilm() if name == "minilm" else tiny_session(name)
    return TestClient(Explorer(session).app(), base_url="http://127.0.0.1:8123")


def read(text: Any = CAT) -> dict[str, Any]:
    answer = client().post("/api/readings", json={"text": text})
    assert answer.status_code == 200, answer.text
    return answer.json()


def at(what: str, **query: Any) -> Any:
    return client().get(f"/api/readings/{read()['name']}/{what}", params=query)


def assert_refused(answer: Any, status: int, message: str = "") -> None:
    assert answer.status_code == status, answer.text
    body = answer.json()
    assert set(body) == {"error"} and re.search(message, body["error"]), body
    assert "\n" not in body["error"] and len(body["error"]) < 400


def test_the_page_comes_with_all_its_files_and_no_inline_script() -> None:
    page = client().get("/").text
    names = re.findall(r'(?:src|href)="(/static/[^"]+)"', page)
    assert names
    for name in names:  # grows while modules import others
        text = client().get(name).text if name.endswith(".js") else ""
        imports = re.findall(r'^(?:import|\}) [^"@]*from "(\.[^"]+)"', text, re.MULTILINE)
        paths = [posixpath.normpath(f"{posixpath.dirname(name)}/{file}") for file in imports]
        names += [path for path in dict.fromkeys(paths) if path not in names]
    assert len(names) > 10
    for name in names:
        answer = client().get(name)
        assert answer.status_code == 200, name
        assert answer.headers["content-type"].startswith(("text/javascript", "text/css"))
    assert "<script>" not in page and " style=" not in page and "onclick=" not in page
    assert "http://" not in page and "https://" not in page


def test_lines_of_the_page_have_at_most_100_characters() -> None:
    files = [file for file in STATIC.rglob("*") if file.suffix in (".js", ".css", ".html")]
    assert len(files) > 10
    lines = [(file.name, line) for file in files for line in file.read_text("utf-8").splitlines()]
    assert [(name, line) for name, line in lines if len(line) > 100] == []


def test_scripts_of_the_page_have_no_untyped_values() -> None:
    types = [
        (file.name, match)
        for file in STATIC.rglob("*.js")
        for match in re.findall(r"[{<|,(:]\s*any\b(?=\s*[}>|,)\[])", file.read_text("utf-8"))
    ]
    assert types == []


def test_the_model_is_described() -> None:
    about = client().get("/api/model").json()
    assert about["name"] == "minilm" and about["kind"] == "similarity"
    assert about["layers"] == [{"name": f"L{n}", "heads": 12, "kv_heads": 12} for n in range(6)]
    assert client("llama").get("/api/model").json()["kind"] == "prediction"


def test_a_reading_has_words_and_figures_of_every_head() -> None:
    reading = read()
    axes = reading["stacks"][""]
    assert [word["text"] for word in axes["words"]["rows"]][:3] == ["[CLS]", "The", "cat"]
    assert [word["text"] for word in axes["pieces"]["rows"]][:3] == ["[CLS]", "the", "cat"]
    assert axes["words"]["columns"] is None and reading["text"] == CAT
    assert (reading["tokens"], reading["is_small"]) == (len(axes["pieces"]["rows"]), True)
    assert reading["why_no_words"] is None and not reading["rests_on_first"]
    heads = reading["heads"]
    assert len(heads["names"]) == len(heads["roles"]) == 72
    table = cat().table
    want = table.df["normalised_entropy"].tolist()
    assert heads["measures"]["normalised_entropy"] == pytest.approx(want)
    assert read() == reading, "the same text is read once"


def test_a_causal_model_rests_on_its_first_token() -> None:
    reading = client("llama").post("/api/readings", json={"text": WORDS}).json()
    assert reading["rests_on_first"]


def test_the_default_head_is_sharp_and_not_a_sink() -> None:
    table = cat().table
    columns = {"confidence": [0.9, math.nan, 0.6, 0.7], "first": [0.8, 0.1, 0.2, 0.3]}
    four = HeadTable(table.df.iloc[:4].assign(**columns), table.about)
    assert str(default_head(four)) == "L0H3"
    sinks = HeadTable(four.df.assign(first=0.9), table.about)
    assert str(default_head(sinks)) == "L0H0"


def test_maps_are_the_weights_in_two_bytes() -> None:
    want = map_weights(cat(), "L3", MapOptions(), slice(2, 9), slice(0, 5))[1]
    cells = numbers(at("heads/L3H1/map", rows="2:9", keys="0:5")) / STEPS
    assert np.abs(cells - want.numpy()).max() <= 0.51 / STEPS
    valued = numbers(at("heads/L3H1/map", rows="2:9", keys="0:5", is_valued=1)) / STEPS
    want = map_weights(cat(), "L3", MapOptions(is_valued=True), slice(2, 9), slice(0, 5))[1]
    assert np.abs(valued - want.numpy()).max() <= 0.51 / STEPS


def numbers(answer: Any, kind: str = "<u2") -> np.ndarray:
    """The numbers in an answer of bytes, in its shape."""
    assert answer.status_code == 200, answer.text
    shape = [int(size) for size in answer.headers["x-shape"].split(",")]
    return np.frombuffer(answer.content, kind).reshape(shape)


@pytest.mark.parametrize("options", [{}, {"is_by_word": 1}, {"drops_sink": 1}, {"is_valued": 1}])
def test_weights_of_all_heads_come_in_one_answer(options: dict[str, int]) -> None:
    got = numbers(at("weights", **options)) / STEPS
    chosen = MapOptions(**{name: True for name in options})
    assert np.abs(got - stack_weights(cat(), "", chosen).numpy()).max() <= 0.51 / STEPS
    if "drops_sink" not in options:
        assert np.abs(got.sum(-1) - 1).max() < len(got[0]) / STEPS


@pytest.mark.parametrize("by", [0, 1])
def test_rows_columns_and_bars_are_sent(by: int) -> None:
    every = slice(0, 99)
    want = map_weights(cat(), "L3", MapOptions(is_by_word=True), every, every)
    line = want[:, :, 4] if by else want[:, 4]
    got = numbers(at("heads/L3H1/row", at=4, by=by, is_by_word=1)) / STEPS
    assert np.abs(got - line[1].numpy()).max() <= 0.51 / STEPS
    bars = numbers(at("bars", at=4, by=by, is_by_word=1), "u1") / 255
    assert np.abs(bars[36:48] - line.numpy()).max() <= 0.51 / 255


def test_a_pair_aligns_its_words() -> None:
    body = {"text": ANIMAL, "other": ANIMAL.replace("too tired", "wide")}
    pair = client().post("/api/pair", json=body).json()
    assert pair["first"]["text"] == ANIMAL and pair["second"]["name"] != pair["first"]["name"]
    words = pair["aligned"]["words"]
    assert words[:10] == [[place, place] for place in range(10)]
    assert words[10:] == [[10, 10], [11, None], [12, 11], [13, 12]]
    assert pair["aligned"]["pieces"][3:5] == [[3, 3], [4, 4]]


def test_thumbs_are_reduced_maps() -> None:
    want = reduce_maps(cat(), "L3", MapOptions(), 8)
    answer = at("thumbs", layer="L3", size=8)
    shape = [int(size) for size in answer.headers["x-shape"].split(",")]
    small = np.frombuffer(answer.content, "u1").reshape(shape) / 255
    assert np.abs(small - want.sqrt().numpy()).max() <= 0.51 / 255


def test_stacks_have_axes_of_their_own() -> None:
    stacks = client("bart").post("/api/readings", json={"text": WORDS}).json()["stacks"]
    assert set(stacks) == {"encoder", "decoder", "cross"}
    assert stacks["encoder"]["pieces"]["columns"] is None
    assert stacks["cross"]["pieces"]["columns"] == stacks["encoder"]["pieces"]["rows"]


def test_a_head_is_described() -> None:
    panel = at("heads/L3H1").json()
    assert panel["head"] == "L3H1" and panel["stack"] == "" and panel["is_scanned"]
    held = [each["role"] for each in panel["roles"] if each["is_held"]]
    assert set(held) == {"coreference", "syntactic"}


def test_a_map_too_large_to_send_is_reduced() -> None:
    reading = minilm().read("a word here " * 120)
    cells = numbers(client().get(f"/api/readings/{reading.name}/heads/L3H1/map")) / STEPS
    want = reduce_maps(reading, "L3", MapOptions(), OVERVIEW, head=1)[0].numpy()
    assert np.abs(cells - want).max() <= 0.51 / STEPS
    assert reading.batch.num_tokens > TILE


def test_changes_and_plans() -> None:
    body = {"texts": [CAT, "Stocks fell."], "gates": {"L0H0": 0, "L3H1": 0.5}}
    outcome = client().post("/api/whatif", json=body).json()
    assert outcome["similarity"] and outcome["heads_off"] == 1 and outcome["savings"]["saved"] > 0
    answer = client().post("/api/cutplan", json={"heads": ["L3H1", "L0H0"]})
    assert 'filename="plan.json"' in answer.headers["content-disposition"]
    held = json.loads(answer.text)
    assert held["model"] == "minilm" and str(CutPlan.parse("L0H0 L3H1")) == "L0H0 L3H1"
    prediction = client("llama").post("/api/whatif", json={"texts": [WORDS], "gates": {"L0H0": 0}})
    assert prediction.json()["prediction"] and not prediction.json()["similarity"]


def test_a_plan_that_cannot_be_cut_gets_the_same_reason_as_the_savings() -> None:
    llama = client("llama")
    outcome = llama.post("/api/whatif", json={"texts": [WORDS], "gates": {"L0H1": 0}}).json()
    refused = llama.post("/api/cutplan", json={"heads": ["L0H1"]})
    assert_refused(refused, 422, re.escape(outcome["savings"]["cannot_cut"]))
    group = llama.post("/api/cutplan", json={"heads": ["L0H0", "L0H1", "L0H2"]})
    assert group.status_code == 200 and json.loads(group.text)["model"] == "llama"


def test_a_command_names_only_a_model_that_was_loaded_by_name(tmp_path: Path) -> None:
    assert client().get("/api/model").json()["loads_as"] == "minilm"
    assert client("llama").get("/api/model").json()["loads_as"] is None
    folder = tmp_path / "my model; rm -r ~"
    model_of("llama").save_pretrained(folder)
    words_tokenizer().save_pretrained(folder)
    assert Session(open_scored_model(str(folder))).about().loads_as == f"'{folder}'"
    scored = replace(minilm().scored, name="a/b", about={"source": "a/b", "revision": "v 2"})
    assert Session(scored).about().loads_as == "a/b --revision 'v 2'"


def test_the_last_result_of_a_job_is_sent_in_any_state() -> None:
    session = fresh_session("bert")
    here = TestClient(Explorer(session).app(), base_url="http://localhost")
    assert here.get("/api/jobs/scan").json()["found"] is None
    session.jobs["scan"].result = SimpleNamespace(table=session.read(WORDS).table)
    name = session.read(WORDS).name
    for state in ("done", "running", "stopped", "failed"):
        session.jobs["scan"].state = state
        assert len(here.get("/api/jobs/scan").json()["found"]["names"]) == 15
        assert here.get(f"/api/readings/{name}/heads/L0H0").json()["is_scanned"]


def test_the_answer_says_whether_the_models_limit_left_tokens_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert client("bert").post("/api/readings", json={"text": WORDS}).json()["is_models_limit"]
    monkeypatch.setattr("headwise.explorer.session.LONGEST", 7)
    assert not fresh_session("bert").is_models_limit


def test_the_planner_answers() -> None:
    query = {"d_model": 768, "heads": 12, "layers": 12, "length": 1024}
    costs = client().get("/api/plan", params=query).json()
    assert costs["parameters_attention"] == 12 * 4 * 768 * 768
    known = client().get("/api/plan/known").json()
    assert {"gpt2", "smollm2"} <= {model["name"] for model in known}
    choices = client().get("/api/plan/heads", params={"d_model": 12}).json()
    assert [choice["heads"] for choice in choices] == [1, 2, 3, 4, 6, 12]
    assert [choice["d_key"] for choice in choices] == [12, 6, 4, 3, 2, 1]
    odd = client().get("/api/plan", params={"d_model": 100, "heads": 7})
    assert_refused(odd, 422, "7.*100|100.*7")


def test_the_lesson_is_sent_without_answers_and_checked_here() -> None:
    first = client().post("/api/lesson", json={"text": CAT}).json()
    names = [step["name"] for step in first["steps"]]
    assert len(set(names)) == 8, "seven steps and an exercise by hand"
    second = client().post("/api/lesson", json={"text": CAT, "step": names[1]}).json()["step"]
    assert second["name"] == names[1] and "right" not in second["question"]
    body = {"text": CAT, "step": names[1], "answer": 0}
    verdict = client().post("/api/lesson/check", json=body).json()
    assert set(verdict) >= {"is_right", "why"} and verdict["right"] is None
    for wrong in ("no", [], None):
        refused = client().post("/api/lesson/check", json={**body, "step": wrong})
        assert_refused(refused, 422, "step")


def test_progress_jobs_and_documentation() -> None:
    assert client().get("/api/progress").json()["waiting"] == 0
    assert client().get("/api/jobs/scan").json()["state"] in ("idle", "done")
    assert_refused(client().get("/api/jobs/other"), 404)
    routes = client().get("/api/").json()["routes"]
    assert {"/api/model", "/api/readings/{name}/heads/{head}"} <= {
        route["path"] for route in routes
    }
    assert all(
        route["about"].endswith(".") and route["path"].startswith("/api/") for route in routes
    )


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_texts_are_read_or_get_one_sentence(name: str) -> None:
    content = json.dumps({"text": HOSTILE[name]})
    json_kind = {"Content-Type": "application/json"}
    answer = client().post("/api/readings", content=content, headers=json_kind)
    if answer.status_code != 200:
        assert_refused(answer, 422)
    else:
        reading = answer.json()
        assert 1 <= reading["tokens"] <= 512
        for axis in filter(None, reading["stacks"][""].values()):
            assert all(word["text"] for word in axis["rows"])
        head = client().get(f"/api/readings/{reading['name']}/heads/L0H0")
        assert head.status_code == 200
    texts = client().post(
        "/api/whatif", content=json.dumps({"texts": [HOSTILE[name]]}), headers=json_kind
    )
    assert texts.status_code in (200, 422)


@pytest.mark.parametrize(
    ("what", "query", "message"),
    [
        ("heads/L99H0", {}, "L99H0"),
        ("heads/L0H99", {}, r"L0H99.*0\.\.11"),
        ("heads/L0H0; drop", {}, "L0H0; drop"),
        ("heads/" + "x" * 200, {}, "head.*L3H11"),
        ("heads/L0H" + "9" * 60, {}, "L0H9"),
        ("heads/L0H0/map", {"keys": "0:9"}, "rows is ''.* 0:256"),
        ("heads/L0H0/map", {"rows": "0:9", "keys": "9:0"}, "keys is 9:0.* 256"),
        ("heads/L0H0/map", {"rows": "0:9", "keys": "0:1000"}, "keys is 0:1000.* 256"),
        ("heads/L0H0/map", {"rows": "-1:9", "keys": "0:9"}, "rows is '-1:9'"),
        ("heads/L0H0/map", {"is_valued": "yes"}, "is_valued.*yes.*0.*1"),
        ("thumbs", {}, "layer"),
        ("thumbs", {"layer": "../../etc/passwd"}, "layer.*passwd"),
        ("thumbs", {"layer": "L0", "size": "1e9"}, "size.*1,000,000,000.* 8.*64"),
        ("thumbs", {"layer": "L0", "size": "100000"}, "size.*100,000.* 8.*64"),
        ("heads/L0H0/row", {}, "at is missing"),
        ("heads/L0H0/row", {"at": "99"}, r"at is 99.* 0\.\."),
        ("heads/L0H0/row", {"at": "-1"}, "at is -1.* 0"),
        ("bars", {"at": "0", "size": "1000"}, "size.*1,000.* 8.*64"),
        ("weights", {"stack": "decoder"}, "stack is 'decoder'"),
    ],
)
def test_wrong_requests_get_one_sentence(what: str, query: dict[str, str], message: str) -> None:
    assert_refused(at(what, **query), 422, message)


def test_rows_beyond_the_text_are_empty_not_an_error() -> None:
    assert numbers(at("heads/L0H0/map", rows="200:210", keys="0:9")).shape == (0, 9)


@pytest.mark.parametrize(
    ("path", "body", "message"),
    [
        ("whatif", {"texts": []}, "texts.* 0 .* 8"),
        ("whatif", {"texts": ["a b"] * 9}, "texts.* 9 .* 8"),
        ("whatif", {"texts": [CAT], "gates": {"L0H0": -1}}, "L0H0.* -1.* 4"),
        ("whatif", {"texts": [CAT], "gates": {"L0H0": "off"}}, "L0H0.*'off'"),
        ("whatif", {"texts": [CAT], "gates": {"L0H0": True}}, "L0H0.* True"),
        ("whatif", {"texts": [CAT], "gates": {"L0H0": 10**400}}, "L0H0.* 10+"),
        ("whatif", {"texts": [CAT], "gates": {"L9H0": 0}}, "L9H0"),
        ("whatif", {"texts": [CAT], "gates": ["L0H0"]}, "gates is .'L0H0'"),
        ("cutplan", {"heads": "L0H0"}, "heads.*'L0H0'.*list"),
        ("cutplan", {"heads": ["L9H0"]}, "L9H0"),
        ("lesson", {"text": "   "}, "text.*empty"),
        ("readings", {"words": "a"}, "text"),
        ("pair", {"text": "a b"}, "other is missing"),
        ("pair", {"text": "a b", "other": " "}, "text is empty"),
    ],
)
def test_wrong_bodies_get_one_sentence(path: str, body: Any, message: str) -> None:
    assert_refused(client().post(f"/api/{path}", json=body), 422, message)


def test_broken_json_and_other_media_types_get_one_sentence() -> None:
    json_kind = {"Content-Type": "application/json"}
    for content in ("{", "[1]", "NaN", "[" * 100_000, "\ud800".encode("utf-8", "surrogatepass")):
        answer = client().post("/api/readings", content=content, headers=json_kind)
        assert_refused(answer, 422, "JSON")
    plain = client().post("/api/readings", content="text=a", headers={"Content-Type": "text/plain"})
    assert_refused(plain, 415, "application/json")
    large = client().post("/api/readings", content=b"a" * (LARGEST_BODY + 1), headers=json_kind)
    assert_refused(large, 413, "bytes")

    def pieces() -> Any:
        for _ in range(20):
            yield b'"' + b"a" * 100_000

    unsaid = client().post("/api/readings", content=pieces(), headers=json_kind)
    assert_refused(unsaid, 413)


def test_only_requests_from_this_machine_are_answered() -> None:
    for host in ("evil.example", "127.0.0.1.evil.example:8123", "", "[::2]:80", "localhost.evil"):
        answer = client().get("/api/model", headers={"Host": host})
        assert_refused(answer, 421, "127.0.0.1 and localhost")
    for host in ("localhost", "127.0.0.1:1", "[::1]:8123"):
        assert client().get("/api/model", headers={"Host": host}).status_code == 200
    for origin in ("http://evil.example", "null", "http://localhost:9", "http://["):
        answer = client().post("/api/readings", json={"text": CAT}, headers={"Origin": origin})
        assert_refused(answer, 403, "its own page")
    elsewhere = {"Sec-Fetch-Site": "cross-site"}
    assert_refused(client().get("/api/model", headers=elsewhere), 403, "its own page")
    assert client().get("/", headers=elsewhere).status_code == 200, "a link to the page is followed"
    for site in ("same-origin", "none"):
        answer = client().get("/api/model", headers={"Sec-Fetch-Site": site})
        assert answer.status_code == 200
    own = {"Origin": "http://127.0.0.1:8123"}
    assert client().post("/api/readings", json={"text": CAT}, headers=own).status_code == 200


def test_every_answer_has_the_security_headers() -> None:
    for path in ("/", "/static/style.css", "/api/model", "/nowhere", "/api/readings/x/heads/L0H0"):
        headers = client().get(path).headers
        for name, value in HEADERS.items():
            assert headers[name] == value or name == "Cache-Control", (path, name)
        assert "access-control-allow-origin" not in headers
    policy = HEADERS["Content-Security-Policy"]
    assert "unsafe" not in policy and "default-src 'none'" in policy


def test_no_path_reaches_the_file_system() -> None:
    for path in (
        "/static/..%2f..%2fsession.py",
        "/static/session.py",
        "/static/%2e%2e/run.py",
        "/static/stage/../../serve.py",
        "/static//etc/passwd",
        "/static/types.d.ts",
        "/static/stage",
        "/static/",
    ):
        assert_refused(client().get(path), 404, "address")
    assert_refused(client().get("/api/readings/../../x/map"), 404)
    gone = client().get("/api/readings/0123456789abcdef/heads/L0H0")
    assert_refused(gone, 410, "send it again")
    assert_refused(client().put("/api/readings", json={}), 405)


def test_only_a_dropped_text_gets_status_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    session = tiny_session("bert")
    monkeypatch.setattr(session, "about", lambda: {}["nothing"])
    calm = TestClient(
        Explorer(session).app(), base_url="http://localhost", raise_server_exceptions=False
    )
    assert_refused(calm.get("/api/model"), 500, "headwise itself")
    special = calm.post("/api/whatif", json={"texts": ["[CLS] [SEP] [CLS]"]})
    assert_refused(special, 422, "special")


def test_an_internal_error_is_answered_without_a_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    session = minilm()
    monkeypatch.setattr(session, "about", lambda: 1 / 0)
    calm = TestClient(
        Explorer(session).app(), base_url="http://localhost", raise_server_exceptions=False
    )
    answer = calm.get("/api/model")
    assert_refused(answer, 500, "headwise itself")
    assert all(answer.headers[name] == value for name, value in HEADERS.items())
