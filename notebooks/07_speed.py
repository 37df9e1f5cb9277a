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
# **You will** see Tables 3 and 4 of the paper with our times beside them, the times of the pivot algorithm in plain
# torch, compiled and fused, its memory, how time grows with $n$ and with $k$, the times of other packages, and how much
# longer a whole training step takes.
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
from smooth_topk.study.records import evidence, paths

notebook.start(profile)

# %% [markdown]
# ## How it is measured
#
# `python scripts/benchmark.py` measures everything on this page and writes one CSV file per section to `book/results`.
# This chapter reads these files. Where a file is missing, the chapter says "not recorded".
#
# Every time is a median. The functions take turns, round after round, so that a machine that slows down slows all of
# them. Other processes can still disturb a sample. The benchmark therefore watches how busy the whole machine is, and
# drops the samples during which other processes were at work. Where all samples of a row were disturbed, the row keeps
# them.
#
# **The paper's times are those of an Nvidia Titan Xp, ours those of the processor named below.** Compare rows of one
# machine with one another, and not seconds across machines. Files of different dates were recorded under different
# conditions: compare times within one table only.


# %% tags=["hide-input"]
def recorded(section):
    path = paths.published_folder() / f"speed_{section}.csv"
    if not path.exists():
        print(f"{path.name}: not recorded")
        return pd.DataFrame(columns=["algorithm", "direction", "n", "seconds"])
    table = pd.read_csv(path)
    print(f"{path.name}: {evidence.where_and_when(table)}.")
    if "quiet" in table:
        dropped, counted = table["dropped"].sum(), table["samples"].sum()
        print(f"{dropped} of {dropped + counted} samples were dropped.")
        if disturbed := (~table["quiet"]).sum():
            print(f"{disturbed} of {len(table)} rows had disturbed samples only.")
    return table


def seconds_of(table):
    return table.set_index(["algorithm", "n"])["seconds"]


def quotients(columns):
    """A row per number of classes; a column divides two algorithms' times."""
    shown = {
        title: times[above].div(times[below]).dropna().map("{:.2g}".format)
        for title, (times, above, below) in columns.items()
    }
    return pd.DataFrame(shown).rename(index="{:,}".format).rename_axis("n")


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
# On the paper's GPU, DC is faster than SA from 1,000 classes on. On our processor, SA is 1.8 to 2.6 times as fast as
# DC. The next table divides the time of DC by that of SA, in the paper and here. Its last column divides the time of DC
# by that of pivot: pivot is 3.6 to 95 times as fast.

# %% tags=["hide-input"]
if len(forward):
    ours = seconds_of(forward)
    columns = {
        "DC ÷ SA, paper": (seconds_of(tables.paper_table(3)), "DC", "SA"),
        "DC ÷ SA, ours": (ours, "divide_and_conquer", "summation"),
        "DC ÷ pivot, ours": (ours, "divide_and_conquer", "pivot"),
    }
    display(tables.show(quotients(columns)))

# %% [markdown]
# ## Table 4: the backward pass
#
# The table compares the paper's custom backward pass (CB, Algorithm 2 of the paper, explained in chapter 5) with
# automatic differentiation (AD) of the same forward pass. The forward pass is done before the clock starts. The
# backward pass of pivot needs one polynomial per sample and one pass over the scores.

# %% tags=["hide-input"]
backward = recorded("backward")
tables.show(tables.speed_table(backward, "backward"))

# %% [markdown]
# How many times as fast as automatic differentiation is the custom backward pass? On our processor it is nearly twice
# as fast with up to 1,000 classes. With 10,000 classes the two take the same time, and with 100,000 the custom backward
# pass takes 1.5 times as long. In the paper's own Table 4 the advantage shrinks as well, from a factor of 23 with 1,000
# classes to 1.7 with 100,000, although its text speaks of "one to two orders of magnitude" ([erratum
# 14](../book/errata.md#14-statements-that-the-papers-own-tables-do-not-support)). The last column compares automatic
# differentiation with pivot, whose backward pass is 8.9 to 51 times as fast.

# %% tags=["hide-input"]
if len(backward):
    ours = seconds_of(backward)
    columns = {
        "AD ÷ CB, paper": (seconds_of(tables.paper_table(4)), "DC (AD)", "DC (CB)"),
        "AD ÷ CB, ours": (ours, "divide_and_conquer_autograd", "divide_and_conquer"),
        "AD ÷ pivot, ours": (ours, "divide_and_conquer_autograd", "pivot"),
    }
    display(tables.show(quotients(columns)))

# %% [markdown]
# ## A short measurement, here and now
#
# This cell measures forward and backward pass together, because training needs both. The measurement takes seconds, and
# its numbers are rough. They show the order of magnitude on *your* machine.

# %% tags=["hide-input"]
settings = measure.Settings(
    sizes=tuple(sizes),
    taus=(1.0,),
    threads=(torch.get_num_threads(),),
    k=k,
    batch=batch,
    rounds=rounds,
    sample_seconds=sample_seconds,
    budget=3.0,
    algorithms=(
        "cross_entropy",
        "pivot",
        "fused_numba",
        "fused_triton",
        "divide_and_conquer",
    ),
)
live = measure.measure_loss(settings)
dropped, disturbed = live["dropped"].sum(), (~live["quiet"]).sum()
print(f"{rounds} rounds of {1000 * sample_seconds:.0f} ms, {dropped} samples dropped.")
if disturbed:
    print(f"{disturbed} of {len(live)} rows had disturbed samples only.")
unit = "milliseconds (multiple of cross-entropy)"
tables.show(tables.cost_table(live), unit)

# %% [markdown]
# **Figure.** The same measurement: time per sample (left), and time divided by that of cross-entropy (right), against
# the number of classes. Rows with disturbed samples only are drawn too.

# %%
rough = live.drop(columns="quiet")
ax = figures.speed_figure(rough, baseline="cross_entropy")

# %% [markdown]
# A fast result must also be right. The error columns of the table compare every path with its value in double
# precision. The tests compare double precision itself with 60 digits.

# %%
# On every path the loss is right to 2e-6, the gradient to 1e-5 of its largest entry.
ours = live[live["algorithm"].isin(["pivot", "fused_numba", "fused_triton"])]
assert ours["loss_error"].max() < 2e-6
assert ours["gradient_error"].max() < 1e-5

# %% [markdown]
# ## Pivot: plain torch, compiled, fused
#
# The pivot algorithm exists in three forms.
#
# - *Eager* is plain torch and runs everywhere.
# - *Compiled* is the same code through `torch.compile`, which needs a C++ compiler on your machine.
# - *Fused* is one kernel per direction: Numba on a CPU, Triton on a GPU. Both are optional, and `smooth_topk_loss`
#   takes them where they are installed.
#
# Cross-entropy is the yardstick. Any such loss has to read the scores at least once in the forward pass, and to read
# them and write a gradient of the same size in the backward pass. We had no GPU, so the Triton kernels are not timed.
# `python scripts/benchmark.py --device cuda` times them.

# %% tags=["hide-input"]
loss = recorded("loss")
tables.show(tables.cost_table(loss), unit)

# %% [markdown]
# **Figure.** Recorded time per sample of forward and backward pass, and its ratio to cross-entropy, with all threads
# and $\tau = 1$. With 100 classes most of the time goes into calling functions. From 1,000 classes on most of it goes
# into arithmetic.

# %%
most = loss
if len(loss):
    most = loss[(loss["threads"] == loss["threads"].max()) & (loss["tau"] == 1)]
    ax = figures.speed_figure(most, baseline="cross_entropy")

# %% [markdown]
# ## Memory
#
# The peak memory is the largest amount that torch holds at any moment of the forward and backward pass, beyond scores
# and labels. It is found by counting every allocation and release. Cross-entropy keeps the log-probabilities for the
# backward pass, which makes two more tensors of the same size. Pivot keeps $O(k)$ numbers per sample and works in
# blocks of rows that stay in the processor's cache.

# %% tags=["hide-input"]
memory = recorded("memory")
tables.show(tables.memory_table(memory))

# %% [markdown]
# **Figure.** Peak memory in multiples of the size of the scores. In plain torch, pivot needs as much as cross-entropy
# with 1,000 classes and less than half as much with 10,000 or more. The fused kernels need about a third of the memory
# of cross-entropy from 1,000 classes on.

# %%
if len(memory):
    ax = figures.memory_figure(memory)

# %%
# Here and now, 1,000 classes: pivot allocates at most twice what cross-entropy does.
contenders, _ = measure.find_contenders()
scores = torch.randn(batch, 1000, requires_grad=True)
labels = torch.randint(1000, (batch,))
peaks = {}
for name in ("cross_entropy", "pivot"):
    value = contenders[name]
    peaks[name] = measure.peak_bytes(
        lambda value=value: torch.autograd.grad(
            value(scores, labels, k=k, tau=1.0), scores
        )
    )
assert peaks["pivot"] <= 2 * peaks["cross_entropy"]

# %% [markdown]
# ## How time grows
#
# Proposition 5 says that the time grows in proportion to $kn$. To check this, a power law is fitted to the times of
# each algorithm. The table shows the exponents of $n$ and of $k$, and the range over which each was fitted. An exponent
# of one means linear growth. If the exponent is below one, part of the time does not depend on the size at all.

# %% tags=["hide-input"]
exponents = recorded("exponents")
tables.show(tables.exponent_table(exponents))

# %% [markdown]
# **Figure.** Time per sample against $k$, with 1,000 classes. The steps in the curves are changes of arithmetic. Up to
# $k = 5$ float32 is accurate enough for the coefficients, and then float64 is. From $k = 17$ with Numba and from
# $k = 33$ in plain torch, a second algorithm takes over: it measures the scores from another point than the pivot
# (chapter 6), and stays accurate to rounding for every $k$. In plain torch its time grows faster than $k$, which the
# one exponent of the table hides.

# %%
sweep = recorded("k_sweep")
if len(sweep):
    ax = figures.k_sweep_figure(sweep)

# %% [markdown]
# No error of the loss or of the gradient exceeds $6.5 \cdot 10^{-8}$, whatever $k$ is:

# %% tags=["hide-input"]
if len(sweep):
    by_k = sweep[sweep["algorithm"] != "cross_entropy"].groupby(["algorithm", "k"])
    errors = by_k[["loss_error", "gradient_error"]].max()
    columns = {"loss_error": "loss", "gradient_error": "gradient"}
    shown = errors.rename(columns=columns).map("{:.0e}".format).unstack("algorithm")
    titles = [f"{tables.algorithm_name(name)}, {what}" for what, name in shown]
    display(tables.show(shown.set_axis(titles, axis="columns")))
else:
    print("not recorded")

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
# processor the extra time is smaller than the difference between two equal steps, and the ratios even come out below
# one. For the last column the loss was therefore timed alone. The column shows how much longer the smooth loss takes
# than cross-entropy, divided by the time of the whole step.

# %% tags=["hide-input"]
steps = recorded("training_step")
tables.show(tables.training_step_table(steps))

# %%
# Where it is recorded, the loss adds less than 1 % to a training step.
if len(steps):
    assert steps["extra"].max() < 0.01

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
# - The pivot algorithm takes one pass over the scores per direction, with $O(kn)$ operations. For large $k$ a second
#   algorithm takes over, whose time in plain torch grows faster than $k$ (3.0 times from $k = 100$ to 200).
# - With few classes a call is mostly overhead, and the loss takes several times as long as cross-entropy. With 10,000
#   classes or more the fused loss is faster than cross-entropy. The paper's divide and conquer takes more than 70
#   times as long as cross-entropy in every case.
# - The paper's custom backward pass is as fast as automatic differentiation with 10,000 classes, and slower with
#   100,000.
# - In plain torch the loss needs as much memory as cross-entropy with 1,000 classes and less than half with 10,000 or
#   more.
# - In a training step of the three networks that we timed, the loss adds less than 1 %.
#
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
