"""The server answers what it is asked, in numbers that were checked, and refuses in a sentence."""

import functools
import json
import math
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from starlette.testclient import TestClient

from headwise.explorer.guard import HEADERS, LARGEST_BODY
from headwise.explorer.head_panel import links
from headwise.explorer.maps import STEPS, MapOptions, thinned, weights_between
from headwise.explorer.server import Explorer
from headwise.explorer.session import Session, default_head
from headwise.heads import HeadId, HeadTable
from headwise.pruning.selection.cut_plan import CutPlan
from headwise.pruning.setting import make_subject

from ..pruning.subjects import model_of, words_tokenizer
from .sessions import CAT, WORDS, cat, fresh_session, minilm, tiny_session

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


def numbers(answer: Any, kind: str) -> np.ndarray:
    shape = [int(one) for one in answer.headers["x-shape"].split(",")]
    return np.frombuffer(answer.content, kind).reshape(shape)


def assert_refused(answer: Any, status: int, message: str = "") -> None:
    assert answer.status_code == status, answer.text
    said = answer.json()
    assert set(said) == {"error"} and re.search(message, said["error"]), said
    assert "\n" not in said["error"] and len(said["error"]) < 400


def test_the_page_comes_with_all_its_files_and_no_inline_script() -> None:
    page = client().get("/").text
    names = re.findall(r'(?:src|href)="(/static/[^"]+)"', page)
    assert names
    modules = [name for name in names if name.endswith(".js")]
    for name in modules:
        text = client().get(name).text
        modules += [f"/static/{one}" for one in re.findall(r'from "\./([^"]+)"', text)]
    for name in {*names, *modules}:
        answer = client().get(name)
        assert answer.status_code == 200, name
        assert answer.headers["content-type"].startswith(("text/javascript", "text/css"))
    assert "<script>" not in page and " style=" not in page and "onclick=" not in page
    assert "http://" not in page and "https://" not in page


def test_the_model_is_described() -> None:
    about = client().get("/api/model").json()
    assert about["name"] == "minilm" and about["kind"] == "similarity"
    assert about["layers"] == [{"name": f"L{n}", "heads": 12, "kv_heads": 12} for n in range(6)]
    assert client("llama").get("/api/model").json()["kind"] == "prediction"


def test_a_reading_has_tokens_and_figures_of_every_head() -> None:
    found = read()
    assert found["tokens"][:3] == ["[CLS]", "the", "cat"]
    heads = found["heads"]
    assert len(heads["names"]) == len(heads["roles"]) == 72
    table = cat().table
    want = table.df["normalised_entropy"].tolist()
    assert heads["measures"]["normalised_entropy"] == pytest.approx(want)
    assert found["shown_first"] == "L0H2"
    assert read() == found, "the same text is read once"


def test_the_head_that_is_shown_first_is_sharp_and_no_sink() -> None:
    table = cat().table
    columns = {"confidence": [0.9, math.nan, 0.6, 0.7], "first": [0.8, 0.1, 0.2, 0.3]}
    four = HeadTable(table.df.iloc[:4].assign(**columns), table.about)
    assert str(default_head(four)) == "L0H3"
    sinks = HeadTable(four.df.assign(first=0.9), table.about)
    assert str(default_head(sinks)) == "L0H0"


def test_maps_are_the_weights_in_two_bytes() -> None:
    want = weights_between(cat(), "L3", MapOptions(), slice(2, 9), slice(0, 5))[1]
    got = numbers(at("map", head="L3H1", rows="2:9", keys="0:5"), "<u2")
    assert np.abs(got / STEPS - want.numpy()).max() <= 0.51 / STEPS
    valued = at("map", head="L3H1", rows="2:9", keys="0:5", is_valued=1)
    largest = float(valued.headers["x-largest"])
    want = weights_between(cat(), "L3", MapOptions(is_valued=True), slice(2, 9), slice(0, 5))[1]
    assert np.abs(numbers(valued, "<u2") / STEPS * largest - want.numpy()).max() < 1e-4 * largest


def test_overviews_and_thumbs_are_thinned_maps() -> None:
    got = numbers(at("overview", head="L3H1", size=8), "<u2") / STEPS
    want = thinned(cat(), "L3", MapOptions(), 8)
    assert np.abs(got - want[1].numpy()).max() <= 0.51 / STEPS
    small = numbers(at("thumbs", layer="L3", size=8), "u1") / 255
    assert np.abs(small - want.sqrt().numpy()).max() <= 0.51 / 255


def test_axes_say_what_rows_and_keys_are() -> None:
    assert at("axes", head="L0H0").json()["rows"] == read()["tokens"]
    assert "unbelievably" in at("axes", head="L0H0", is_by_word=1).json()["keys"]


def test_figures_and_images_are_sent() -> None:
    found = at("head", head="L3H1").json()
    assert found["head"] == "L3H1" and not found["is_scanned"]
    want = links(cat(), HeadId(3, 1), MapOptions(), slice(2, 5))
    assert at("links", head="L3H1", rows="2:5").json() == want
    image = at("image.svg", head="L3H1", is_by_word=1)
    assert image.headers["content-type"].startswith("image/svg+xml")
    assert "L3H1" in image.text and "unbelievably" in image.text
    hostile = client().post("/api/readings", json={"text": HOSTILE["markup"]}).json()["name"]
    svg = client().get(f"/api/readings/{hostile}/image.svg", params={"head": "L0H0"}).text
    assert "<script" not in svg and "&lt;" in svg


def test_changes_and_plans() -> None:
    body = {"texts": [CAT, "Stocks fell."], "gates": {"L0H0": 0, "L3H1": 0.5}}
    found = client().post("/api/whatif", json=body).json()
    assert found["kind"] == "similarity" and found["heads_off"] == 1 and found["saved"] > 0
    answer = client().post("/api/cutplan", json={"heads": ["L3H1", "L0H0"]})
    assert 'filename="plan.json"' in answer.headers["content-disposition"]
    held = json.loads(answer.text)
    assert held["model"] == "minilm" and str(CutPlan.parse("L0H0 L3H1")) == "L0H0 L3H1"
    told = client("llama").post("/api/whatif", json={"texts": [WORDS], "gates": {"L0H0": 0}})
    assert told.json()["kind"] == "prediction"


def test_a_plan_that_cannot_be_cut_is_refused_with_the_reason_that_is_shown() -> None:
    llama = client("llama")
    told = llama.post("/api/whatif", json={"texts": [WORDS], "gates": {"L0H1": 0}}).json()
    refused = llama.post("/api/cutplan", json={"heads": ["L0H1"]})
    assert_refused(refused, 422, re.escape(told["cannot_cut"]))
    group = llama.post("/api/cutplan", json={"heads": ["L0H0", "L0H1", "L0H2"]})
    assert group.status_code == 200 and json.loads(group.text)["model"] == "llama"


def test_a_command_names_only_a_model_that_was_loaded_by_name(tmp_path: Path) -> None:
    assert client().get("/api/model").json()["loads_as"] == "minilm"
    assert client("llama").get("/api/model").json()["loads_as"] is None
    folder = tmp_path / "my model; rm -r ~"
    model_of("llama").save_pretrained(folder)
    words_tokenizer().save_pretrained(folder)
    assert Session(make_subject(str(folder))).loads_as == f"'{folder}'"
    subject = replace(minilm().subject, name="a/b", about={"source": "a/b", "revision": "v 2"})
    assert Session(subject).loads_as == "a/b --revision 'v 2'"


def test_what_was_found_is_sent_in_any_state_of_the_work() -> None:
    session = fresh_session("bert")
    here = TestClient(Explorer(session).app(), base_url="http://localhost")
    assert "found" not in here.get("/api/jobs/scan").json()
    session.jobs["scan"].result = SimpleNamespace(table=session.read(WORDS).table)
    name = session.read(WORDS).name
    for state in ("done", "running", "stopped", "failed"):
        session.jobs["scan"].state = state
        assert len(here.get("/api/jobs/scan").json()["found"]["names"]) == 15
        assert here.get(f"/api/readings/{name}/head?head=L0H0").json()["is_scanned"]


def test_which_limit_left_tokens_out_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    assert client("bert").post("/api/readings", json={"text": WORDS}).json()["is_models_limit"]
    monkeypatch.setattr("headwise.explorer.session.LONGEST", 7)
    assert not fresh_session("bert").is_models_limit


def test_the_planner_answers() -> None:
    query = {"d_model": 768, "heads": 12, "layers": 12, "length": 1024}
    found = client().get("/api/plan", params=query).json()
    assert found["parameters_attention"] == 12 * 4 * 768 * 768
    known = client().get("/api/plan/known").json()
    assert {"gpt2", "smollm2"} <= {one["name"] for one in known}
    choices = client().get("/api/plan/heads", params={"d_model": 12}).json()
    assert [one["heads"] for one in choices] == [1, 2, 3, 4, 6, 12]
    assert len({(one["parameters"], one["multiply_adds"]) for one in choices}) == 1
    odd = client().get("/api/plan", params={"d_model": 100, "heads": 7})
    assert_refused(odd, 422, "cannot share a d_model of 100 evenly")


def test_the_lesson_is_sent_without_answers_and_checked_here() -> None:
    steps = client().post("/api/lesson", json={"text": CAT}).json()
    assert len(steps) == 8
    assert all("answer" not in step["question"] for step in steps)
    body = {"text": CAT, "step": steps[1]["name"], "answer": 0}
    assert set(client().post("/api/lesson/check", json=body).json()) >= {"is_right", "why"}
    for wrong in ("no", [], None):
        refused = client().post("/api/lesson/check", json={**body, "step": wrong})
        assert_refused(refused, 422, f"step must be one of {steps[0]['name']}, ")


def test_progress_jobs_and_documentation() -> None:
    assert client().get("/api/progress").json()["waiting"] == 0
    assert client().get("/api/jobs/scan").json()["state"] in ("idle", "done")
    assert_refused(client().get("/api/jobs/other"), 404)
    routes = client().get("/api/").json()["routes"]
    assert {"/api/model", "/api/readings/{name}/map"} <= {one["path"] for one in routes}
    assert all(one["about"].endswith(".") and one["path"].startswith("/api/") for one in routes)


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_texts_are_read_or_refused_in_a_sentence(name: str) -> None:
    content = json.dumps({"text": HOSTILE[name]})
    json_kind = {"Content-Type": "application/json"}
    answer = client().post("/api/readings", content=content, headers=json_kind)
    if answer.status_code != 200:
        assert_refused(answer, 422)
    else:
        found = answer.json()
        assert 1 <= len(found["tokens"]) <= 512
        head = client().get(f"/api/readings/{found['name']}/head", params={"head": "L0H0"})
        assert head.status_code == 200
    texts = client().post(
        "/api/whatif", content=json.dumps({"texts": [HOSTILE[name]]}), headers=json_kind
    )
    assert texts.status_code in (200, 422)


@pytest.mark.parametrize(
    ("what", "query", "message"),
    [
        ("head", {}, "must name a head"),
        ("head", {"head": "L99H0"}, "L99H0 is not in this model"),
        ("head", {"head": "L0H99"}, "L0 has heads 0..11"),
        ("head", {"head": "L0H0; drop"}, "is not a head"),
        ("head", {"head": "x" * 200}, "must name a head"),
        ("head", {"head": "L0H" + "9" * 60}, "is not in this model|is not a head"),
        ("map", {"head": "L0H0"}, "must be a range"),
        ("map", {"head": "L0H0", "rows": "0:9", "keys": "9:0"}, "from 1 to 256"),
        ("map", {"head": "L0H0", "rows": "0:9", "keys": "0:1000"}, "from 1 to 256"),
        ("map", {"head": "L0H0", "rows": "-1:9", "keys": "0:9"}, "must be a range"),
        ("map", {"head": "L0H0", "rows": "0:9", "keys": "0:9", "is_valued": "yes"}, "0 or 1"),
        ("overview", {"head": "L0H0", "size": "100000"}, "from 8 to 512"),
        ("thumbs", {"layer": "../../etc/passwd"}, "there is no layer"),
        ("thumbs", {"layer": "L0", "size": "1e9"}, "whole number"),
        ("image.svg", {"head": ""}, "is not a head"),
        ("links", {"head": "L0H0"}, "must be a range"),
        ("links", {"head": "L0H0", "rows": "0:1000"}, "from 1 to 256"),
    ],
)
def test_wrong_requests_are_refused_in_a_sentence(
    what: str, query: dict[str, str], message: str
) -> None:
    assert_refused(at(what, **query), 422, message)


def test_rows_beyond_the_text_are_empty_and_no_error() -> None:
    assert at("map", head="L0H0", rows="200:210", keys="0:9").headers["x-shape"] == "0,9"


@pytest.mark.parametrize(
    ("path", "body", "message"),
    [
        ("whatif", {"texts": []}, "one text or more"),
        ("whatif", {"texts": ["a b"] * 9}, "at most 8"),
        ("whatif", {"texts": [CAT], "gates": {"L0H0": -1}}, "from 0 to 4"),
        ("whatif", {"texts": [CAT], "gates": {"L0H0": "off"}}, "from 0 to 4"),
        ("whatif", {"texts": [CAT], "gates": {"L0H0": True}}, "from 0 to 4"),
        ("whatif", {"texts": [CAT], "gates": {"L0H0": 10**400}}, "from 0 to 4"),
        ("whatif", {"texts": [CAT], "gates": {"L9H0": 0}}, "L9H0 is not in this model"),
        ("whatif", {"texts": [CAT], "gates": ["L0H0"]}, "an object of heads"),
        ("cutplan", {"heads": "L0H0"}, "a list of heads"),
        ("cutplan", {"heads": ["L9H0"]}, "L9H0 is not in this model"),
        ("lesson", {"text": "   "}, "is empty"),
        ("readings", {"words": "a"}, "must be a text"),
    ],
)
def test_wrong_bodies_are_refused_in_a_sentence(path: str, body: Any, message: str) -> None:
    assert_refused(client().post(f"/api/{path}", json=body), 422, message)


def test_broken_json_and_other_kinds_of_bodies_are_refused() -> None:
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


def test_only_this_machine_is_answered() -> None:
    for host in ("evil.example", "127.0.0.1.evil.example:8123", "", "[::2]:80", "localhost.evil"):
        answer = client().get("/api/model", headers={"Host": host})
        assert_refused(answer, 421, "127.0.0.1 and localhost alone")
    for host in ("localhost", "127.0.0.1:1", "[::1]:8123"):
        assert client().get("/api/model", headers={"Host": host}).status_code == 200
    for origin in ("http://evil.example", "null", "http://localhost:9", "http://["):
        answer = client().post("/api/readings", json={"text": CAT}, headers={"Origin": origin})
        assert_refused(answer, 403, "other pages")
    elsewhere = {"Sec-Fetch-Site": "cross-site"}
    assert_refused(client().get("/api/model", headers=elsewhere), 403, "other pages")
    assert client().get("/", headers=elsewhere).status_code == 200, "a link to the page is followed"
    for site in ("same-origin", "none"):
        answer = client().get("/api/model", headers={"Sec-Fetch-Site": site})
        assert answer.status_code == 200
    own = {"Origin": "http://127.0.0.1:8123"}
    assert client().post("/api/readings", json={"text": CAT}, headers=own).status_code == 200


def test_every_answer_forbids_what_a_page_does_not_need() -> None:
    for path in ("/", "/static/style.css", "/api/model", "/nowhere", "/api/readings/x/axes"):
        headers = client().get(path).headers
        for name, value in HEADERS.items():
            assert headers[name] == value or name == "Cache-Control", (path, name)
        assert "access-control-allow-origin" not in headers
    policy = HEADERS["Content-Security-Policy"]
    assert "unsafe" not in policy and "default-src 'none'" in policy


def test_no_path_reaches_the_file_system() -> None:
    for path in ("/static/..%2f..%2fsession.py", "/static/session.py", "/static/%2e%2e/run.py"):
        assert_refused(client().get(path), 404, "nothing at this address")
    assert_refused(client().get("/api/readings/../../x/map"), 404)
    gone = client().get("/api/readings/0123456789abcdef/axes", params={"head": "L0H0"})
    assert_refused(gone, 410, "send it again")
    assert_refused(client().put("/api/readings", json={}), 405)


def test_only_a_reading_that_is_not_kept_is_said_to_be_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    session = tiny_session("bert")
    monkeypatch.setattr(session, "about", lambda: {}["nothing"])
    calm = TestClient(
        Explorer(session).app(), base_url="http://localhost", raise_server_exceptions=False
    )
    assert_refused(calm.get("/api/model"), 500, "headwise itself")
    special = calm.post("/api/whatif", json={"texts": ["[CLS] [SEP] [CLS]"]})
    assert_refused(special, 422, "no word to mask")


def test_a_fault_of_our_own_is_said_without_a_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    session = minilm()
    monkeypatch.setattr(session, "about", lambda: 1 / 0)
    calm = TestClient(
        Explorer(session).app(), base_url="http://localhost", raise_server_exceptions=False
    )
    answer = calm.get("/api/model")
    assert_refused(answer, 500, "headwise itself")
    assert all(answer.headers[name] == value for name, value in HEADERS.items())
