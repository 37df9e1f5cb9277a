# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 7 · Speed
#
# **Question.** How much time and memory does the smooth top-$k$ loss take, compared with cross-entropy and with the
# paper's algorithms?
#
# **You will** see Tables 3 and 4 of the paper next to our times, the times of the pivot algorithm in plain torch,
# compiled and fused, its memory, how time grows with $n$ and with $k$, the times of other packages, and how much longer
# a whole training step takes.
#
# **Paper.** Section 4, appendix B.3.2 (Tables 3 and 4), Proposition 5.
#
# **Time.** 15 minutes to read, about half a minute to run.

# %% tags=["parameters", "alone"]
profile = "quick"
k = 5
sizes = [100, 1000, 10000]
batch = 256
rounds = 5
sample_seconds = 0.03

# %%
import pandas as pd
import torch
from IPython.display import Markdown

from smooth_topk.study import figures, measure, tables
from smooth_topk.study.chapters import notebook
from smooth_topk.study.experiments.names import network_name
from smooth_topk.study.figures.speed import looks_of_algorithms
from smooth_topk.study.measure.speed import both_call
from smooth_topk.study.records import evidence, paths

notebook.start(profile)

# %% [markdown]
# ## How it is measured
#
# `python scripts/benchmark.py` measures everything on this page, one CSV file per section. This chapter reads the
# published files in `book/results`, and every number in its text is computed from them.
#
# Every time is a median. The functions take turns, round after round, so that a machine that slows down slows all of
# them. The benchmark also watches how busy the whole machine is, and drops the samples during which other processes
# were at work, unless all samples of a row were disturbed.
#
# **The paper's times are those of an Nvidia Titan Xp, ours those of the processor named below.** Compare rows of one
# machine with one another, and not seconds across machines. Files of different dates were recorded under different
# conditions: compare times within one table only.


# %% tags=["hide-input"]
def recorded(section):
    table = pd.read_csv(paths.published_folder() / f"speed_{section}.csv")
    print(f"speed_{section}.csv: {evidence.where_and_when(table)}.")
    if "quiet" in table and (disturbed := (~table["quiet"]).sum()):
        print(f"{disturbed} of {len(table)} rows had disturbed samples only.")
    return table


def ratios(times, above, below):
    """Time of one algorithm divided by that of another, for each number of classes."""
    seconds = times.set_index(["algorithm", "n"])["seconds"]
    return seconds[above].div(seconds[below]).dropna()


def span(values):
    """The range of some ratios in words, two digits each."""
    low, high = (f"{value:.2g}" for value in (values.min(), values.max()))
    return low if low == high else f"{low} to {high}"


def quotients(columns):
    """A row per number of classes, a column per quotient of two algorithms' times."""
    shown = pd.DataFrame(columns).map("{:.2g}".format).replace("nan", "")
    return tables.show(shown.rename(index="{:,}".format).rename_axis("n"))


# %% [markdown]
# ## Table 3: the forward pass
#
# The summation algorithm (SA) walks through the classes one by one. It takes $n$ steps, and no two of them can run at
# the same time. Divide and conquer (DC) multiplies pairs of polynomials. It takes $\log_2 n$ steps with much work in
# each. A GPU works on thousands of numbers at once, so there the number of steps decides. On a CPU with two cores the
# amount of work decides: a step of SA is cheap, and DC pays for its logarithms. The batch has 256 samples, $k = 5$ and
# $\tau = 1$. The times are those of the forward pass alone, without keeping anything for a backward pass.

# %% tags=["hide-input"]
forward = recorded("forward")
tables.show(tables.speed_table(forward, "forward"))

# %% [markdown]
# The next table divides the time of DC by that of SA, in the paper and here. Its last column divides the time of DC by
# that of pivot.

# %% tags=["hide-input"]
paper = ratios(tables.paper_table(3), "DC", "SA")
ours = ratios(forward, "divide_and_conquer", "summation")
pivot = ratios(forward, "divide_and_conquer", "pivot")
columns = {"DC ÷ SA, paper": paper, "DC ÷ SA, ours": ours, "DC ÷ pivot, ours": pivot}
display(quotients(columns))
Markdown(
    f"On the paper's GPU, DC is faster than SA from {paper[paper < 1].index[0]:,} classes "
    f"on. On our processor, SA is {span(ours)} times as fast as DC, and pivot is "
    f"{span(pivot)} times as fast as DC."
)

# %% [markdown]
# ## Table 4: the backward pass
#
# The table compares the paper's custom backward pass (CB, Algorithm 2 of the paper, explained in chapter 5) with
# automatic differentiation (AD) of the same forward pass. The forward pass is done before the clock starts.

# %% tags=["hide-input"]
backward = recorded("backward")
tables.show(tables.speed_table(backward, "backward"))

# %% [markdown]
# How many times as fast as automatic differentiation is the custom backward pass, and how many times as fast is pivot?

# %% tags=["hide-input"]
ad, cb = "divide_and_conquer_autograd", "divide_and_conquer"
paper = ratios(tables.paper_table(4), "DC (AD)", "DC (CB)")
ours, pivot = ratios(backward, ad, cb), ratios(backward, ad, "pivot")
columns = {"AD ÷ CB, paper": paper, "AD ÷ CB, ours": ours, "AD ÷ pivot, ours": pivot}
display(quotients(columns))
Markdown(
    f"On our processor the custom backward pass is {span(ours[ours.index <= 1000])} times "
    f"as fast as AD with up to 1,000 classes, and {ours[100_000]:.2g} times as fast with "
    f"100,000. In the paper's own Table 4 the advantage shrinks as well, from a factor of "
    f"{paper[1000]:.0f} with 1,000 classes to {paper[100_000]:.1f} with 100,000, although "
    "its text speaks of “one to two orders of magnitude”. "
    f"The backward pass of pivot is {span(pivot)} times as fast as AD."
)

# %% [markdown]
# ([Erratum 14](../book/errata.md#14-statements-that-the-papers-own-tables-do-not-support) lists this and two other
# statements that the paper's tables do not support.)
#
# ## A short measurement, here and now
#
# This cell measures forward and backward pass together, because training needs both. The measurement takes seconds, and
# its numbers are rough. They show the order of magnitude on *your* machine. A fast result must also be right: the error
# columns compare every implementation with double precision.

# %% tags=["hide-input"]
contenders, _ = measure.find_contenders()
chosen = [name for name in contenders if not name.endswith(("_compiled", "_autograd"))]
settings = measure.Settings(
    sizes=tuple(sizes),
    taus=(1.0,),
    threads=(torch.get_num_threads(),),
    k=k,
    batch=batch,
    rounds=rounds,
    sample_seconds=sample_seconds,
    budget=3.0,
    algorithms=tuple(name for name in chosen if name != "summation"),
)
live = measure.measure_loss(settings)
# Every implementation of pivot is right to 2e-6, its gradient to 1e-5 of the largest entry.
exact = live[~live["algorithm"].isin(["cross_entropy", "divide_and_conquer"])]
assert exact["loss_error"].max() < 2e-6
assert exact["gradient_error"].max() < 1e-5
unit = "milliseconds (multiple of cross-entropy)"
tables.show(tables.cost_table(live), unit)

# %% [markdown]
# ## Pivot: plain torch, compiled, fused
#
# The pivot algorithm exists in three forms.
#
# - *Eager* is plain torch and runs everywhere.
# - *Compiled* is the same code through `torch.compile`, which needs a C++ compiler on your machine.
# - *Fused* is compiled kernels: Numba on a CPU, Triton on a GPU. Both are optional, and `smooth_topk_loss` uses them
#   where they are installed. `backend=` chooses a form by hand.
#
# In plain torch and with Numba, the forward pass computes loss and gradient together, and the backward pass only
# multiplies the saved gradient by the incoming derivative.
#
# Cross-entropy is the yardstick. Any such loss has to read the scores at least once, and to write a gradient of the
# same size.
#
# **No GPU result yet.** We had no GPU, so the Triton kernels are not timed. On a machine with one,
# `python scripts/gpu_check.py` checks them and `python scripts/benchmark.py --device cuda` times them. The page
# [Fused GPU kernels](../book/fused_kernels.md) says what has been checked without one.

# %% tags=["hide-input"]
loss = recorded("loss")
tables.show(tables.cost_table(loss), unit)

# %% [markdown]
# **Figure.** Recorded time per sample of forward and backward pass (left), and its ratio to cross-entropy (right), with
# all threads and $\tau = 1$. With 100 classes most of the time goes into calling functions. From 1,000 classes on most
# of it goes into arithmetic.

# %%
most = loss[(loss["threads"] == loss["threads"].max()) & (loss["tau"] == 1)]
ax = figures.speed_figure(most, baseline="cross_entropy")

# %% [markdown]
# ## Memory
#
# The peak memory is the largest amount that torch holds at any moment of the forward and backward pass, beyond scores
# and labels. It is found by counting every allocation and release. Cross-entropy keeps the log-probabilities for the
# backward pass. Pivot in plain torch works in blocks of rows that stay in the processor's cache.
#
# **Figure.** Peak memory in multiples of the size of the scores.


# %% tags=["hide-input"]
def curves(table, x, y, xlabel, ylabel):
    """One curve per algorithm; the same name looks the same in every figure."""
    ax = figures.new_axes()
    for name, look in looks_of_algorithms(table["algorithm"].unique()).items():
        part = table[table["algorithm"] == name]
        ax.plot(part[x], part[y], label=tables.algorithm_name(name), **look)
    ax.set(xscale="log", yscale="log", xlabel=xlabel, ylabel=ylabel)
    ax.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=2)


memory = recorded("memory")
size = 4 * memory["batch"] * memory["n"]
multiples = memory.assign(multiple=memory["peak_bytes"] / size)
curves(multiples, "n", "multiple", "number of classes n", "peak memory ÷ scores")

# %% tags=["hide-input"]
share = memory.pivot(index="n", columns="algorithm", values="ratio")
shown = (
    share.T.map("{:.2f}".format).replace("nan", "").rename(index=tables.algorithm_name)
)
shown.columns = [f"n = {n:,}" for n in share.index]
tables.show(shown.rename_axis("peak memory ÷ cross-entropy's"))

# %%
# Here and now, 1,000 classes: pivot allocates at most twice what cross-entropy does.
scores = torch.randn(batch, 1000, requires_grad=True)
labels = torch.randint(1000, (batch,))
peaks = {
    name: measure.peak_bytes(both_call(contenders[name], scores, labels, k, 1.0))
    for name in ("cross_entropy", "pivot")
}
assert peaks["pivot"] <= 2 * peaks["cross_entropy"]

# %% [markdown]
# ## How time grows
#
# Proposition 5 says that the time grows in proportion to $kn$. To check this, a power law is fitted to the times of
# each algorithm. The table shows the exponents of $n$ and of $k$, and the range over which each was fitted. An exponent
# of one means linear growth. If the exponent is below one, part of the time does not depend on the size at all.

# %% tags=["hide-input"]
fits = recorded("exponents")
columns = {}
for variable, part in fits.groupby("variable", sort=False):
    title = f"of {variable}, {part['smallest'].min():,} to {part['largest'].max():,}"
    columns[title] = part.set_index("algorithm")["exponent"].map("{:.2f}".format)
shown = pd.DataFrame(columns).fillna("").rename(index=tables.algorithm_name)
tables.show(shown.rename_axis("exponent"))

# %% [markdown]
# **Figure.** Time per sample against $k$, with 1,000 classes. The steps in the curves are changes of arithmetic: float64
# from $k = 6$, and from $k = 17$ with Numba or $k = 33$ in plain torch the other reference point of
# [chapter 6](06_pivot.ipynb). In plain torch the time then grows faster than $k$, which the one exponent of the table
# hides.

# %% tags=["hide-input"]
sweep = recorded("k_sweep")
per_sample = sweep.assign(time=1e6 * sweep["seconds"] / sweep["batch"])
curves(per_sample, "k", "time", "k", "time per sample (µs)")

# %% tags=["hide-input"]
of_pivot = sweep[sweep["algorithm"] != "cross_entropy"]
worst = of_pivot[["loss_error", "gradient_error"]].max(axis=None)
seconds = sweep.set_index(["algorithm", "k"])["seconds"]["pivot"]
Markdown(
    f"No error of the loss or of the gradient exceeds {worst:.1e}, whatever $k$ is. From "
    f"$k = 100$ to 200 the time of pivot in plain torch grows by a factor of "
    f"{seconds[200] / seconds[100]:.1f}."
)

# %% [markdown]
# ## Other packages
#
# The package `difftopk` contains the paper's public implementation of this very loss. The other rows are different
# losses with a similar purpose, so only their times can be compared. Packages that are not installed are left out of
# the benchmark. `pip install 'smooth-topk[peers]'` installs them.

# %% tags=["hide-input"]
peers = recorded("peers")
tables.show(tables.cost_table(peers), unit)

# %% [markdown]
# ## A training step
#
# A user notices the time of the whole training step: forward pass of the network, loss, backward pass, update. The
# paper reports that training on ImageNet with its loss takes 10 % longer than with cross-entropy, on two GPUs. On our
# processor the extra time is smaller than the difference between two equal steps. For the last column the loss was
# therefore timed alone. The column shows how much longer the smooth loss takes than cross-entropy, divided by the time
# of the whole step.

# %% tags=["hide-input"]
steps = recorded("training_step")
rows = {}
for model, part in steps.groupby("model", sort=False):
    by_loss = part.set_index("loss")
    images, pixels = part[["batch", "pixels"]].iloc[0]
    rows[f"{network_name(model)}, {images} images of {pixels} x {pixels}"] = {
        "cross-entropy": f"{1000 * by_loss.seconds['cross_entropy']:,.0f} ms",
        "smooth loss": f"{1000 * by_loss.seconds['smooth']:,.0f} ms",
        "the loss alone adds": f"{100 * by_loss.extra['smooth']:.2f} %",
    }
assert steps["extra"].max() < 0.01  # less than 1 % of a step
tables.show(pd.DataFrame.from_dict(rows, orient="index").rename_axis("network"))

# %% [markdown]
# ## In short
#
# The table gives the time of forward and backward pass together, as a multiple of the time that cross-entropy takes.
# It is also in the README.

# %% tags=["hide-input"]
display(Markdown(tables.speed_in_short(paths.published_folder())))

# %% [markdown]
# ## What we saw
#
# - The pivot algorithm takes $O(kn)$ operations. For large $k$ a second algorithm takes over, whose time in plain torch
#   grows faster than $k$.
# - With few classes a call is mostly overhead, and the loss takes several times as long as cross-entropy. With 10,000
#   classes or more the fused loss is faster than cross-entropy. The paper's divide and conquer takes more than 70
#   times as long as cross-entropy in every case.
# - The paper's custom backward pass is about as fast as automatic differentiation with 10,000 classes, and slower with
#   100,000.
# - The fused and the compiled loss need a third of the memory of cross-entropy. Plain torch needs about 0.7 times as
#   much with 1,000 classes and half as much with 10,000 or more.
# - In a training step of the three networks that we timed, the loss adds less than 1 %.

# %%
# What the summary says, from the published files.
ratio = most.set_index(["algorithm", "n"])["ratio"]
fused = ratio["fused_numba"]
assert fused[100] > 1.5
assert fused[[10_000, 100_000]].max() < 1
assert ratio["divide_and_conquer"].min() > 70
assert 0.8 < ours[10_000] < 1.25
assert ours[100_000] < 0.8
assert share["fused_numba"].round(2).eq(0.33).all()
assert share["pivot_compiled"].dropna().round(2).eq(0.33).all()
assert round(share.loc[1000, "pivot"], 1) == 0.7
assert share.loc[[10_000, 100_000], "pivot"].round(1).eq(0.5).all()

# %% [markdown]
# ## Questions
#
# 1. Compared with divide and conquer, why does the summation algorithm do so much better on a CPU than in the paper's
#    Table 3?
# 2. Which part of the cost at $n = 100$ would a faster kernel not remove?
# 3. Cross-entropy reads the scores once. Why can the smooth loss, with its $\binom{n}{k}$ terms, do the same?

# %% [markdown]
# <details><summary>Answer 1</summary>
#
# Each of its $n$ steps is one small vector operation over batch and degrees. On a GPU such a step takes about as long
# as starting a kernel, however little it computes. In Table 3, 1,000 steps take 62 ms. A CPU starts a step faster, and
# it has few cores, so it would gain little from running several steps at once.
#
# </details>
#
# <details><summary>Answer 2</summary>
#
# The fixed cost per call: checking arguments, going through autograd, and allocating the results. With 100 classes this
# takes more time than the arithmetic of one batch.
#
# </details>
#
# <details><summary>Answer 3</summary>
#
# The sum depends on the head, which is $k$ numbers, and on the tail only through $k$ numbers: its power sums or its
# first $k$ symmetric polynomials. These can be updated score by score while the scores are read once. The derivative of
# every class of the tail is $u_i$ times one polynomial in $u_i$, so the backward pass needs only $k$ coefficients and
# one more read of the scores.
#
# </details>

# %% [markdown]
# ## Next
#
# [8 · Temperature](08_temperature_study.ipynb) asks which $\tau$ trains a network best.
