"""Pictures of the explorer for the README and these pages, and saved pages for the site.

Takes the pictures from the real page in a headless Chromium: light, 1440 px wide at 1.5 dots per
pixel. The saved pages are those that `headwise explore --export` writes; index.md and explore.md
show them in frames.

    python docs/pictures.py                    # writes docs/images/explore_*.png
    python docs/pictures.py --pages build/site/pages
"""

import argparse
import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlencode

from headwise.explorer.model_facts import BUILTIN_TEXT, OTHER_BUILTIN_TEXT

IMAGES = Path(__file__).parent / "images"
FERRY = "The ferry to Skye was late, so we missed the last ferry to Skye."
NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
WIDTH, SCALE = 1440, 1.5


@dataclass(frozen=True)
class Picture:
    """A picture of the page at an address, or of its top if `height` is smaller than the page."""

    name: str
    model: str
    state: dict[str, str]
    height: int
    waits_for: str


PICTURES = (
    Picture("explore_minilm", "minilm", {}, 968, "#heads .hv-grid"),
    Picture("explore_pair", "minilm", {"swap": OTHER_BUILTIN_TEXT}, 850, ".hv-rank h2"),
    Picture("explore_lesson", "minilm", {"panel": "lesson", "step": "scores"}, 900, "#lesson h2"),
)
PAGES = {"animal": ("minilm", BUILTIN_TEXT), "ferry": ("smollm2", FERRY)}
"""Models and texts of the saved pages; their frames choose the head and the word."""


@contextlib.contextmanager
def explorer(model: str) -> Iterator[str]:
    """Serve the explorer inside the block, and yield its address."""
    command = [sys.executable, "-m", "headwise", "explore", model, "--no-open"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        line = server.stdout.readline()
        yield next(word for word in line.split() if word.startswith("http"))
    finally:
        server.terminate()
        server.wait(20)


def take_pictures(folder: Path) -> None:
    """Take every picture of the page and write it to `folder`."""
    from playwright.sync_api import sync_playwright

    path = os.environ.get("HEADWISE_CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        for model in dict.fromkeys(picture.model for picture in PICTURES):
            with explorer(model) as address:
                for picture in PICTURES:
                    if picture.model == model:
                        size = {"width": WIDTH, "height": picture.height}
                        page = browser.new_page(
                            viewport=size,  # type: ignore[arg-type]
                            device_scale_factor=SCALE,
                            color_scheme="light",
                            reduced_motion="reduce",
                        )
                        page.set_default_timeout(120_000)
                        page.goto(f"{address}#{urlencode(picture.state)}")
                        page.locator(picture.waits_for).first.wait_for()
                        page.locator("body[data-drawn]").wait_for()
                        page.wait_for_timeout(500)
                        file = folder / f"{picture.name}.png"
                        page.screenshot(path=file)
                        print(f"{file.name}: {file.stat().st_size:,} bytes")
                        page.close()
        browser.close()


def write_pages(folder: Path) -> None:
    """Write every saved page to `folder`."""
    from headwise.explorer.api_requests import PageRequest
    from headwise.explorer.save_page import saved_page
    from headwise.explorer.serve import start_session
    from headwise.files import make_folder, write_aside

    make_folder(folder)
    for name, (model, text) in PAGES.items():
        page = saved_page(start_session(model, None, None), PageRequest(text))
        write_aside(folder / f"{name}.html", page)
        print(f"{name}.html: {len(page.encode()):,} bytes")


def main() -> None:
    """Take the pictures, or write the pages."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pages", type=Path, metavar="FOLDER", help="write saved pages instead")
    parser.add_argument("--images", type=Path, default=IMAGES, metavar="FOLDER")
    options = parser.parse_args()
    if options.pages:
        write_pages(options.pages)
    else:
        take_pictures(options.images)


if __name__ == "__main__":
    main()
