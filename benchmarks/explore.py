"""How fast the explorer is in a real browser, and how it handles many requests at once.

Measures the time from pressing Read until all small maps are drawn, from clicking on a head until
its arcs and its map are drawn, and from pointing at a word until the headline follows, for texts
of 300 and 2,048 tokens; the bytes sent; the sizes of saved pages; BertViz's page for 128 tokens, if
it is installed; and response times for twenty clients that send requests for a minute.

    python benchmarks/explore.py smollm2
    python benchmarks/explore.py smollm2 --bertviz FOLDER   # where pip install --target put bertviz
"""

import argparse
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from harness import setting
from playwright.sync_api import Page, sync_playwright

from headwise.models.loading import load_model
from headwise.reading.python_manual import manual_texts

RESULTS = Path(__file__).parent / "results"
LENGTHS = (300, 2048)
SAVED_LENGTHS = (64, 126, 256)
BERTVIZ_TOKENS = 128
CLIENTS, SECONDS = 20, 60
CLICKS = 7
BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
HOVERS = 9
REST = 60
"""Milliseconds that the pointer rests on a word before the word acts."""
HEADLINE = ".hv-headline"
WATCH = """headline => {
  const wait = () => new Promise(done => {
    addEventListener('pointerover', event => {
      if (!event.target.closest('[data-word]')) return;
      const start = performance.now();
      const seen = new MutationObserver(() => {
        seen.disconnect();
        requestAnimationFrame(() => done(performance.now() - start));
      });
      seen.observe(document.querySelector(headline), { childList: true, subtree: true,
        characterData: true });
    }, { once: true, capture: true });
  });
  window.hovered = wait();
}"""
"""Measures, in the page, the time from the pointer's arrival on a word to the next headline."""
QUIET = ("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-sync")


@contextmanager
def explorer(model: str) -> Iterator[tuple[str, int]]:
    """Start the explorer as users do, and yield its address and process ID."""
    command = [sys.executable, "-m", "headwise", "explore", model, "--no-open"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        line = server.stdout.readline()
        yield next(word for word in line.split() if word.startswith("http")), server.pid
    finally:
        server.terminate()
        server.wait(20)


def text_of(tokenizer: Any, tokens: int) -> str:
    """A text of about `tokens` tokens."""
    ids = tokenizer("\n".join(manual_texts()[:200]), verbose=False)["input_ids"]
    return str(tokenizer.decode(ids[200 : 200 + tokens], skip_special_tokens=True))


def until(page: Page, expression: str, seconds: float = 300.0) -> None:
    """Wait until the expression is true in the page."""
    end = time.perf_counter() + seconds
    while not page.evaluate(expression):
        if time.perf_counter() > end:
            raise TimeoutError(expression)
        page.wait_for_timeout(4)


def time_page(page: Page, text: str, heads: list[str]) -> dict[str, Any]:
    """Seconds until the grid is drawn, milliseconds per click and hover, and bytes received."""
    sizes: list[int] = []
    page.on("requestfinished", lambda one: sizes.append(one.sizes()["responseBodySize"]))
    page.click("[data-tool=edit]")
    page.evaluate("text => { document.querySelector('.hv-area').value = text }", text)
    before = page.evaluate("document.body.dataset.drawn")
    start = time.perf_counter()
    page.click(".hv-editor button[type=submit]")
    until(page, f"document.body.dataset.drawn !== '{before}'")
    grid = time.perf_counter() - start
    grid_bytes = sum(sizes)
    clicks = []
    for head in heads:
        page.evaluate("document.body.dataset.head = ''")
        start = time.perf_counter()
        page.click(f"#heads .hv-head[data-head={head}]")
        until(page, f"document.body.dataset.head === '{head}'")
        clicks.append(1000 * (time.perf_counter() - start))
        page.wait_for_timeout(1500)
    hovers = time_hovers(page)
    return {
        "grid_seconds": round(grid, 2),
        "grid_bytes": grid_bytes,
        "map_ms": round(statistics.median(clicks)),
        "map_ms_all": [round(one) for one in clicks],
        "hover_ms": round(statistics.median(hovers)),
        "hover_ms_all": [round(one) for one in hovers],
        "bytes_with_maps": sum(sizes),
    }


def time_hovers(page: Page) -> list[float]:
    """Milliseconds from pointing at a word to the next headline, beyond the specified delay."""
    taken = []
    words = page.locator("#heads [data-word]:visible")
    for at in range(min(HOVERS, words.count())):
        page.mouse.move(2, 2)
        page.wait_for_timeout(600)
        page.evaluate(WATCH, HEADLINE)
        words.nth(at).hover()
        taken.append(page.evaluate("window.hovered") - REST)
    return taken


def in_browser(address: str, model: str, tokenizer: Any) -> list[dict[str, Any]]:
    """Time each length in its own page."""
    named = os.environ.get("HEADWISE_CHROMIUM")
    path = named or shutil.which("chromium-headless-shell") or shutil.which("chromium")
    found = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(QUIET))
        for length in LENGTHS:
            page = browser.new_page()
            page.set_default_timeout(300_000)
            page.goto(address)
            until(page, "document.body.dataset.drawn")
            layers = httpx.get(f"{address}api/model").json()["layers"]
            heads = [f"{layers[at % len(layers)]['name']}H{at % 5}" for at in range(1, 1 + CLICKS)]
            row = time_page(page, text_of(tokenizer, length), heads)
            found.append({"model": model, "tokens": length, **row})
            print(found[-1])
            page.close()
        browser.close()
    return found


def memory(pid: int) -> float:
    """Memory that a process uses, in MiB."""
    for line in Path(f"/proc/{pid}/status").read_text("utf-8").splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    return float("nan")


def load(address: str, pid: int, texts: list[str]) -> dict[str, Any]:
    """Run twenty clients for a minute, each sending the requests that a page sends."""
    taken: list[float] = []
    wrong: list[str] = []
    end = time.perf_counter() + SECONDS
    layers = httpx.get(f"{address}api/model").json()["layers"]

    def client(seed: int) -> None:
        draw = random.Random(seed)
        with httpx.Client(base_url=address, timeout=120) as mine:
            while time.perf_counter() < end:
                try:
                    ask(mine, draw)
                except httpx.HTTPError as error:
                    wrong.append(repr(error))

    def ask(mine: httpx.Client, draw: random.Random) -> None:
        text = draw.choice(texts)
        layer = draw.choice(layers)
        head = f"{layer['name']}H{draw.randrange(layer['heads'])}"
        name = send(mine, "POST", "api/readings", json={"text": text}).json()["name"]
        at = f"api/readings/{name}"
        paths = [
            ("GET", f"{at}/thumbs?layer={layer['name']}", {}),
            ("GET", f"{at}/heads/{head}/map?rows=0:64&keys=0:64", {}),
            ("GET", f"{at}/heads/{head}/row?at=3", {}),
            ("GET", f"{at}/heads/{head}/row?at=3&is_by_word=1", {}),
            ("GET", f"{at}/weights?is_by_word=1", {}),
            ("GET", f"{at}/heads/{head}", {}),
            ("POST", "api/whatif", {"json": {"texts": [text], "gates": {head: 0}}}),
            ("GET", "api/model", {}),
        ]
        for method, path, options in draw.sample(paths, 3):
            send(mine, method, path, **options)

    def send(mine: httpx.Client, method: str, path: str, **options: Any) -> httpx.Response:
        start = time.perf_counter()
        answer = mine.request(method, path, **options)
        taken.append(time.perf_counter() - start)
        if answer.status_code not in (200, 410):  # 410: the server dropped the reading
            wrong.append(f"{path}: {answer.status_code} {answer.text[:80]}")
        return answer

    before = memory(pid)
    threads = [threading.Thread(target=client, args=(seed,)) for seed in range(CLIENTS)]
    peak = before
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        peak = max(peak, memory(pid))
        time.sleep(0.5)
    start = time.perf_counter()
    httpx.get(address).raise_for_status()
    taken.sort()
    return {
        "clients": CLIENTS,
        "requests": len(taken),
        "errors": len(wrong),
        "first_errors": wrong[:3],
        "median_seconds": round(statistics.median(taken), 3),
        "slowest_in_100_seconds": round(taken[int(0.99 * len(taken))], 2),
        "memory_before_mib": round(before),
        "memory_peak_mib": round(peak),
        "memory_after_mib": round(memory(pid)),
        "page_after_seconds": round(time.perf_counter() - start, 3),
    }


def saved_sizes(model: str, tokenizer: Any) -> list[dict[str, Any]]:
    """Sizes of saved pages, and the seconds it takes to read the text and write the page."""
    from headwise.explorer.api_requests import PageRequest
    from headwise.explorer.model_facts import BUILTIN_TEXT, OTHER_BUILTIN_TEXT
    from headwise.explorer.save_page import saved_page
    from headwise.explorer.serve import start_session

    cases = [("minilm", BUILTIN_TEXT, OTHER_BUILTIN_TEXT)]
    cases += [(model, text_of(tokenizer, length), None) for length in SAVED_LENGTHS]
    found = []
    for name, text, swap in cases:
        session = start_session(name, None, None)
        start = time.perf_counter()
        page = saved_page(session, PageRequest(text, swap))
        seconds = time.perf_counter() - start
        tokens = session.read(text).batch.num_tokens
        row = {"model": name, "tokens": tokens, "is_pair": swap is not None}
        found.append(row | {"bytes": len(page.encode()), "seconds": round(seconds, 2)})
        print(found[-1])
    return found


def bertviz(folder: str, model: str) -> dict[str, Any]:
    """The size of BertViz's page with all heads, and the seconds it takes to make."""
    sys.path.insert(0, folder)
    from bertviz import model_view

    loaded = load_model(model)
    text = text_of(loaded.tokenizer, BERTVIZ_TOKENS - 2)
    inputs = loaded.tokenizer(text, return_tensors="pt")
    loaded.model.set_attn_implementation("eager")
    start = time.perf_counter()
    attentions = loaded.model(**inputs, output_attentions=True).attentions
    tokens = loaded.tokenizer.convert_ids_to_tokens(inputs["input_ids"][0])
    page = model_view(attentions, tokens, html_action="return").data
    seconds = time.perf_counter() - start
    return {"tokens": len(tokens), "bytes": len(page.encode()), "seconds": round(seconds, 2)}


def main() -> None:
    """Measure everything, print the results and write them to a file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", nargs="?", default="smollm2")
    parser.add_argument("--bertviz", metavar="FOLDER", help="folder where bertviz is installed")
    given = parser.parse_args()
    tokenizer = load_model(given.model).tokenizer
    record: dict[str, Any] = {"setting": setting(), "model": given.model}
    start = time.perf_counter()
    with explorer(given.model) as (address, pid):
        record["start_seconds"] = round(time.perf_counter() - start, 1)
        record["pages"] = in_browser(address, given.model, tokenizer)
        texts = [text_of(tokenizer, 20 + 10 * number) for number in range(12)]
        record["load"] = load(address, pid, texts)
        print(record["load"])
    record["saved"] = saved_sizes(given.model, tokenizer)
    place = RESULTS / f"explore-{given.model}.json"
    if given.bertviz:
        record["bertviz"] = bertviz(given.bertviz, given.model)
        print(record["bertviz"])
    elif place.is_file():  # the size of its page does not depend on headwise
        record["bertviz"] = json.loads(place.read_text("utf-8")).get("bertviz")
    place.write_text(json.dumps(record, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
