"""Measures the training demo of the book in Chromium: where its trainings end, and its frames per second.

    python scripts/measure_training_demo.py           into book/results: training_demo.csv, training_demo_speed.csv
    python scripts/measure_training_demo.py --speed   the second table alone

The code of the page trains both losses for every weight decay of its slider, several data sets, k and noise levels.
Then a page is opened as a reader opens it, and its frames are counted while it trains. Needs playwright and Debian's
chromium.
"""

import os
import shutil
import sys
import tempfile
from datetime import datetime
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
import pandas as pd

from smooth_topk.study.chapters.training_demo import JAVASCRIPT, TrainingDemo
from smooth_topk.study.records.files import write_whole
from smooth_topk.study.records.machine import describe_machine

RESULTS = Path(__file__).parents[1] / "book/results"
SEEDS = range(1, 11)
NOISE = (0.0, 0.6)
SIZES = (2, 3)  # k
TRAIN = """
async ([source, settings]) => {
  const { Race, DECAYS, STEPS } = await import(URL.createObjectURL(new Blob([source], {type: "text/javascript"})));
  return DECAYS.flatMap((decay) => {
    const race = new Race({ ...settings, decay });
    while (race.steps < STEPS) race.step();
    const ends = race.measure();
    return ["cross", "smooth"].map((loss) => {
      const { share, top1, topk } = ends[loss];
      return { ...race.settings, loss, memorised: share, top1, topk };
    });
  });
}
"""
COUNT_FRAMES = """
() => new Promise((done) => {
  const demo = document.querySelector(".training-demo");
  const times = [];
  const watch = (time) => {
    times.push(time);
    if (demo.dataset.steps < 600) return requestAnimationFrame(watch);
    const gaps = times.slice(1).map((time, i) => time - times[i]).sort((a, b) => a - b);
    done({ frames_per_second: 1000 * gaps.length / (times.at(-1) - times[0]), median_ms: gaps[gaps.length >> 1],
           slowest_of_100_ms: gaps[Math.floor(0.99 * gaps.length)] });
  };
  [...demo.querySelectorAll("button")].find((button) => button.textContent === "Train").click();
  requestAnimationFrame(watch);
})
"""


def outcomes(browser) -> pd.DataFrame:
    """Where the trainings end: share of wrong labels memorised, accuracies on new points."""
    page, rows = browser.new_page(), []
    for seed in SEEDS:
        for noise in NOISE:
            for k in SIZES:
                rows += page.evaluate(
                    TRAIN, [JAVASCRIPT, {"seed": seed, "noise": noise, "k": k, "tau": 1, "margin": 1}]
                )
    return pd.DataFrame(rows).round(4)


def speeds(browser) -> pd.DataFrame:
    """Frames per second of a page opened from its folder, on a laptop's screen and on a phone's."""
    html = f'<!doctype html><meta charset="utf-8">{TrainingDemo().html()}<script type="module">{JAVASCRIPT}</script>'
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "demo.html").write_text(html, encoding="utf-8")
        rows = []
        for width, height in ((1280, 900), (390, 844)):
            page = browser.new_page(viewport={"width": width, "height": height})
            page.goto((Path(folder) / "demo.html").as_uri())
            page.wait_for_selector(".training-demo[data-steps]")
            rows.append({"width": width, "height": height, **page.evaluate(COUNT_FRAMES)})
            page.close()
    return pd.DataFrame(rows).round(1)


def main() -> int:
    """Measures and writes both tables; returns the exit code."""
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium")
    if chromium is None:
        print("!! Chromium is missing: on Debian, apt-get install chromium.", file=sys.stderr)
        return 2
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        real_time = os.sched_getscheduler(0) in (os.SCHED_FIFO, os.SCHED_RR)
        busy = {"load": round(os.getloadavg()[0], 1), "priority": "real-time" if real_time else "normal"}
        tables = {"training_demo_speed": speeds(browser).assign(**busy)}
        if "--speed" not in sys.argv:
            tables["training_demo"] = outcomes(browser)
        found = describe_machine()
        origin = {name: found[name] for name in ("cpu", "machine", "commit")}
        origin |= {"browser": f"Chromium {browser.version}", "date": f"{datetime.now():%Y-%m-%d}"}
        browser.close()
    for name, table in tables.items():
        write_whole(RESULTS / f"{name}.csv", table.assign(**origin).to_csv(index=False).encode())
        print(f"{table.to_string(index=False, max_rows=12)}\n{RESULTS / name}.csv")
    return 0


if __name__ == "__main__":
    sys.exit(main())
