"""Writes the numbers of README.md and of the book's first page from book/results, and draws the pictures of both.

    python scripts/numbers.py            writes them
    python scripts/numbers.py --check    says what differs, and writes nothing

A block of generated text stands between `<!-- numbers: NAME -->` and `<!-- end of numbers -->`.
"""

import argparse
import re
import sys
import textwrap
from collections.abc import Callable

import pandas as pd

from smooth_topk.study import tables
from smooth_topk.study.book.cost import paper_hours
from smooth_topk.study.book.pictures import draw_pictures
from smooth_topk.study.experiments import further_runs, registry
from smooth_topk.study.records import evidence
from smooth_topk.study.records.paths import project_root
from smooth_topk.study.tables import findings
from smooth_topk.study.tables.differences import signed
from smooth_topk.study.tables.speed_in_short import speed_in_short

ROOT = project_root()
RESULTS = ROOT / "book/results"
PAGES = (ROOT / "README.md", ROOT / "book/index.md")
BLOCK = re.compile(r"(<!-- numbers: (?P<name>\w+) -->\n).*?(<!-- end of numbers -->)", re.DOTALL)
LEVEL = 0.8  # share of the labels redrawn


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing, fail if a number differs")
    options = parser.parse_args(arguments)
    stale = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        if (new := with_numbers(text)) != text:
            stale.append(page.name)
            if not options.check:
                page.write_text(new, encoding="utf-8")
    if not options.check:
        draw_pictures(RESULTS)
    for name in stale:
        print(f"{name}: {'run python scripts/numbers.py' if options.check else 'numbers written'}", file=sys.stderr)
    return 1 if stale and options.check else 0


def with_numbers(text: str) -> str:
    """Returns a page with its blocks of generated text as the recorded results give them."""
    return BLOCK.sub(lambda block: f"{block[1]}{BLOCKS[block['name']]()}\n{block[3]}", text)


def when_it_pays() -> str:
    """What was found for each case, and what we would do."""
    records = findings.Records()
    tuned = tables.of_grouping(_recorded(records.noise("tuned")), "superclass")
    few = _recorded(records.runs(registry.table_2_small_data("quick", seeds=findings.RECORDED_SEEDS)))
    top5, top1 = findings.gains(tuned), findings.gains(tuned, metric="test_top1")
    lead = two_by_two()
    rows = [
        ["your metric is top-1", f"{signed(top1[0.0])} points of top-1 without label noise", "cross-entropy"],
        ["clean labels, top-*k*", f"{signed(top5[0.0], 2)} points of top-5", "cross-entropy"],
        ["few images: 22 per class",
         f"{signed(findings.gains(few, 'train_images', 'L_{5,0.1}').iloc[0])} points of top-5 at τ = 0.1", "try both"],
        ["labels confused within small groups",
         f"{signed(lead['tuned', 'tuned'])} points of top-5 with {100 * LEVEL:.0f} % of the labels redrawn",
         "tune the weight decay of cross-entropy, then try the smooth loss"],
    ]  # fmt: skip
    return _markdown(pd.DataFrame(rows, columns=["your case", "smooth loss minus cross-entropy", "what we would use"]))


def hyper_parameters() -> str:
    """Whose hyper-parameters: the lead of the smooth loss for each choice, as a table."""
    lead = two_by_two()
    names = {"paper": "the paper's", "tuned": "tuned"}
    rows = [[f"smooth loss: {names[smooth]}", *(signed(lead[smooth, plain]) for plain in names)] for smooth in names]
    return _markdown(pd.DataFrame(rows, columns=["points of top-5", *(f"cross-entropy: {names[n]}" for n in names)]))


def two_by_two() -> dict[tuple[str, str], float]:
    """Returns smooth loss minus cross-entropy in points, by the hyper-parameters of either, within superclasses."""
    records, accuracy = findings.Records(), {}
    for name, scale in (("paper", "papers_pair"), ("tuned", "tuned")):
        runs = tables.of_grouping(_recorded(records.noise(scale)), "superclass")
        accuracy[name] = 100 * runs[runs["noise_level"] == LEVEL].groupby("loss")["test_top5"].mean()
    return {(a, b): accuracy[a]["smooth"] - accuracy[b]["cross_entropy"] for a in accuracy for b in accuracy}


def claims() -> str:
    """The paper's main claims with one number of ours each."""
    return _markdown(tables.readme_table()).replace("L_{5,0.1}", "L<sub>5,0.1</sub>")


def beyond_the_paper() -> str:
    """What the comparison of losses and the trainings on few images found."""
    family = tables.family_differences(evidence.published(further_runs.family_comparison()))
    by_setting = family.set_index(["setting", "loss"])["mean"]
    near, blocks = (by_setting[f"p = 0.8, {grouping}"] for grouping in ("superclasses", "index blocks"))
    searched = registry.small_data_on_images()
    trials = tables.with_best_decay(evidence.published((*searched, *registry.larger_decays_on_images())))
    first, best = (_lead_by_size(runs) for runs in (evidence.published(searched), trials))
    means = [found["mean"][size] for found in (first, best) for size in (6_400, 12_800)]
    unsure = "" if best["low"][6_400] > 0 else f" (the interval of the {means[2]:.1f} contains zero)"
    return (
        f"Chapter 15 compares {family['loss'].nunique() + 1} losses in {family['setting'].nunique()} settings. With "
        f"{100 * LEVEL:.0f} % of the labels redrawn, {near.idxmax()} leads cross-entropy most within superclasses, by "
        f"{near.max():.1f} points, and {blocks.idxmax()} within index blocks, by {blocks.max():.1f}; "
        f"L_{{5,0.1}} leads by {near['L_{5,0.1}']:.1f} and {blocks['L_{5,0.1}']:.1f}. On images (three seeds) "
        f"the smooth loss leads by {means[0]:.1f} points with 64 images per class and by {means[1]:.1f} with 128, "
        f"and by {means[2]:.1f} and {means[3]:.1f} against the best of several weight decays{unsure}. {hours()}"
    ).replace("L_{5,0.1}", "L<sub>5,0.1</sub>")


def speed() -> str:
    """The recorded times for k = 5; chapter 7 has the others."""
    table, _, sentences = speed_in_short(RESULTS).strip().partition("\n\n")
    rows = [row for row in table.splitlines() if row.split("|")[2].strip() in ("k", "5") or "--" in row]
    return "\n".join([*rows, "", sentences])


def hours() -> str:
    """What the paper's own settings would cost."""
    cost = f"{paper_hours():,.0f} hours on one GPU of the paper's kind"
    return f"The paper's own settings were not run: an estimated {cost}."


BLOCKS: dict[str, Callable[[], str]] = {
    "when": when_it_pays,
    "hyper_parameters": hyper_parameters,
    "claims": claims,
    "beyond": lambda: textwrap.fill(beyond_the_paper(), 120, break_on_hyphens=False),
    "speed": speed,
}


def _lead_by_size(runs: pd.DataFrame) -> pd.DataFrame:
    found = tables.intervals(tables.differences_by_seed(runs, by="train_images"), ["loss", "train_images"])
    return found[found["loss"] == "L_{5,1}"].set_index("train_images")


def _recorded(runs: pd.DataFrame | None) -> pd.DataFrame:
    if runs is None:
        raise ValueError(f"{RESULTS} lacks runs that README quotes.")
    return runs


def _markdown(table: pd.DataFrame) -> str:
    return table.to_markdown(index=False, disable_numparse=True, tablefmt="github")
