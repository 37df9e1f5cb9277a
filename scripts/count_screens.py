"""Counts the screens of each chapter of a built book, folded parts closed: python scripts/count_screens.py [FOLDER]

A screen is 1280 x 900 pixels. Needs playwright and Debian's chromium, as the browser tests do.
"""

import argparse
import shutil
from pathlib import Path

from playwright.sync_api import sync_playwright

WIDTH, HEIGHT = 1280, 900
BOOK = Path(__file__).parents[1] / "book/_build/html"
FLAGS = ["--no-sandbox", "--disable-gpu"]


def count_screens(book: Path, executable: str) -> dict[str, float]:
    """Returns the height of every chapter in screens, by its name."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=FLAGS)
        page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
        found = {}
        for path in sorted((book / "chapters").glob("*.html")):
            page.goto(path.resolve().as_uri())
            page.wait_for_function("() => !window.MathJax || MathJax.startup.promise.then(() => true)")
            found[path.stem] = page.evaluate("() => document.documentElement.scrollHeight") / HEIGHT
        browser.close()
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("book", type=Path, nargs="?", default=BOOK, help="folder of the built book")
    screens = count_screens(parser.parse_args().book, shutil.which("chromium") or "/usr/bin/chromium")
    for name, count in screens.items():
        print(f"{count:6.1f}  {name}")
    print(f"{sum(screens.values()):6.1f}  all chapters")
