"""Measures the figures of a built book that move: size of their frames, and time from a moved slider to its picture.

    python scripts/measure_live_figures.py                    the book in book/_build/html, into book/results

It opens every chapter from its folder in Chromium, as a reader does, moves every control of every figure to a sample of
positions, and waits until the browser has drawn. A move that changes no picture does not count. Needs playwright and
Debian's chromium, as the browser tests do.
"""

import argparse
import os
import shutil
import sys
from datetime import datetime
from pathlib import Path
from statistics import median

import pandas as pd

from smooth_topk.study.records.files import write_whole
from smooth_topk.study.records.machine import describe_machine
from smooth_topk.study.records.paths import path_option, project_root

POSITIONS = 7  # of each control
IN_TIME = 50  # milliseconds from a move to its picture, beyond which a slider feels slow
# A message posted in the frame that shows the picture arrives after the browser has laid it out and painted it.
TIME_ONE_MOVE = """
([number, control, place]) => new Promise((done) => {
  const figure = document.querySelectorAll(".live-figure")[number];
  const input = figure.querySelectorAll(".control input, .control select")[control];
  const before = figure.dataset.shown;
  input.value = place;
  const channel = new MessageChannel();
  const start = performance.now();
  input.dispatchEvent(new Event(input.tagName === "SELECT" ? "change" : "input"));
  const script = performance.now() - start;
  channel.port1.onmessage = () => {
    const drawn = performance.now() - start;
    done(figure.dataset.shown === before ? null : [script, drawn]);
  };
  requestAnimationFrame(() => channel.port2.postMessage(null));
})
"""
PLACES = """
(figure) => [...document.querySelectorAll(".live-figure")[figure].querySelectorAll(".control input, .control select")]
  .map((input) => input.tagName === "SELECT" ? input.options.length : Number(input.max) + 1)
"""


def measure_book(book: Path, executable: str) -> pd.DataFrame:
    """Returns one row per figure: chapter, figure, kilobytes, positions, frames, moves, and times in milliseconds.

    `moves_in_time` counts those drawn within 50 ms. `script_ms` is the median time of the page's own code; `median_ms`
    and `slowest_ms` are from the move until the browser has drawn, which waits for the next frame of the screen, 17 ms
    at most.

    Args:
        book: folder of the built book.
        executable: the browser.
    """
    from playwright.sync_api import sync_playwright  # of the extra for tests

    rows = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        for path in sorted((book / "chapters").glob("*.html")):
            page.goto(path.as_uri())
            for number, figure in enumerate(page.locator(".live-figure").all()):
                figure.scroll_into_view_if_needed()
                page.wait_for_function(
                    "(n) => 'shown' in document.querySelectorAll('.live-figure')[n].dataset", arg=number
                )
                name = f"{path.stem}-{number + 1}"
                file = book / "_static" / "frames" / f"{name}.js"
                row = {"chapter": path.stem, "figure": number + 1, "kilobytes": round(file.stat().st_size / 1000, 1)}
                rows.append(row | _times(page, number) | {"browser": f"Chromium {browser.version}"})
        browser.close()
    return pd.DataFrame(rows)


def _times(page, figure: int) -> dict:
    """How many positions and frames a figure has, and how long a move takes."""
    places, times = page.evaluate(PLACES, figure), []
    for control, count in enumerate(places):
        chosen = sorted({round(step * (count - 1) / (POSITIONS - 1)) for step in range(POSITIONS)})
        times += [page.evaluate(TIME_ONE_MOVE, [figure, control, place]) for place in chosen]
    frames = 1
    for count in places:
        frames *= count
    times = [found for found in times if found is not None]
    described = {"positions": " x ".join(map(str, places)), "frames": frames, "moves": len(times)}
    scripts, drawn = zip(*times, strict=True)
    found = {"script_ms": median(scripts), "median_ms": median(drawn), "slowest_ms": max(drawn)}
    in_time = {"moves_in_time": sum(milliseconds <= IN_TIME for milliseconds in drawn)}
    return described | in_time | {name: round(value, 1) for name, value in found.items()}


def described(table: pd.DataFrame) -> str:
    """Returns the measurement in the sentences of the page on the rooms."""
    first, moves, in_time = table.iloc[0], table["moves"].sum(), table["moves_in_time"].sum()
    moved = f"All {moves} moves" if in_time == moves else f"{in_time} of {moves} moves"
    busy = f"with {first['priority']} beside a load of {first['load']:.0f}"
    return (
        f"The book has {len(table)} figures that move, in {table['chapter'].nunique()} chapters. "
        f"Their {table['frames'].sum():,} frames take {table['kilobytes'].sum() / 1000:.1f} MB. {moved} of a control "
        f"showed the new frame within {IN_TIME} ms. The median of a figure was {table['median_ms'].min():.0f} to "
        f"{table['median_ms'].max():.0f} ms, the slowest move took "
        f"{table['slowest_ms'].max():.0f} ms, and the code of the page took {table['script_ms'].max():.1f} ms at most "
        f"in the median. Measured in {first['browser']} on {first['cpu']} ({first['machine']}), {first['date']}, "
        f"{'on an otherwise idle machine' if first['load'] < 0.5 else busy}."
    )


def _priority() -> str:
    """How the system schedules the browser against other processes: on a busy machine, times depend on it."""
    real_time = os.sched_getscheduler(0) in (os.SCHED_FIFO, os.SCHED_RR)
    return "real-time priority" if real_time else f"niceness {os.nice(0)}"


def main(arguments: list[str] | None = None) -> int:
    root = project_root()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--book", type=path_option, default=root / "book/_build/html", help="folder of the built book")
    parser.add_argument("--output", type=path_option, default=root / "book/results/live_figures.csv", help="the table")
    options = parser.parse_args(arguments)
    chromium = shutil.which("chromium")
    if chromium is None:
        print("!! Chromium is missing: on Debian, apt-get install chromium.", file=sys.stderr)
        return 2
    if not (options.book / "_static" / "frames").is_dir():
        print(f"!! {options.book} holds no figure that moves: run bash scripts/study.sh first.", file=sys.stderr)
        return 2
    table = measure_book(options.book.resolve(), chromium)
    found = describe_machine()
    origin = {name: found[name] for name in ("cpu", "machine", "python", "commit")}
    busy = {"load": round(os.getloadavg()[0], 1), "priority": _priority()}
    table = table.assign(**origin, **busy, date=f"{datetime.now():%Y-%m-%d}")
    write_whole(options.output, table.to_csv(index=False).encode())
    print(table.drop(columns=["browser", "date", *busy, *origin]).to_string(index=False))
    print(f"{described(table)}\n{options.output}")
    return 0
