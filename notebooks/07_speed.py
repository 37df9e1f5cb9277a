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
# **Question.** What does the smooth top-$k$ loss cost, beside cross-entropy and beside the paper's algorithms?
#
# **You will** see Tables 3 and 4 of the paper with our times beside them, the pivot algorithm in plain torch, compiled
# and fused, its memory, how time grows with $n$ and with $k$, other packages, and what a whole training step pays.
#
# **Paper.** Section 4, appendix C.2 (Tables 3 and 4), Proposition 5.
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

from smooth_topk.study import benchmarks, evidence, figures, notebook, tables

notebook.start(profile)

# %% [markdown]
# ## How it is measured
#
# A time is a median. The functions take turns, round after round, so that a machine that slows down slows all of them.
# Each sample also asks how busy the whole machine was: what it did beyond this process, others did, and the sample is
# dropped. `python scripts/benchmark.py` measures everything on this page and writes one CSV file a section to
# `book/results`; this chapter reads these files. A file that is not there is "not recorded".
#
# **The paper's times are of an Nvidia Titan Xp, ours of the processor named below.** Compare rows of one machine with
# one another, not seconds across machines.


# %%
def recorded(section):
    path = notebook.recorded_folder() / f"speed_{section}.csv"
    table = pd.read_csv(path) if path.exists() else pd.DataFrame(columns=["algorithm", "direction", "n", "seconds"])
    where = evidence.where_and_when(table) if len(table) else "not recorded"
    if len(table) and "quiet" in table:
        dropped, counted = table["dropped"].sum(), table["samples"].sum()
        where += f". {dropped} of {dropped + counted} samples dropped."
        where += "" if table["quiet"].all() else " The machine was busy: some rows count disturbed samples."
    print(f"{path.name}: {where}")
    return table


# %% [markdown]
# ## Table 3: the forward pass
#
# The summation algorithm (SA) walks through the classes one by one: $n$ steps that nothing can share out. Divide and
# conquer (DC) multiplies pairs of polynomials, so $\log_2 n$ steps remain, each with much to do at once. On a GPU that
# decides. On a CPU with two cores each step of SA is cheap, and the same work costs the same wherever it stands in
# the tree. Batch 256, $k = 5$, $\tau = 1$; no graph for the backward pass is kept.

# %%
forward = recorded("forward")
tables.show(tables.speed_table(forward, "forward"))

# %% [markdown]
# ## Table 4: the backward pass
#
# The paper's custom backward pass (Algorithm 2, CB) against automatic differentiation of the same forward pass (AD).
# The graph exists before the clock starts. Pivot needs one polynomial a sample and one pass over the scores.

# %%
backward = recorded("backward")
tables.show(tables.speed_table(backward, "backward"))

# %% [markdown]
# ## A short measurement, here and now
#
# Forward and backward pass together, as training pays them. This cell takes seconds and its numbers are rough: they
# show the order of magnitude on *your* machine.

# %%
settings = benchmarks.Settings(
    sizes=tuple(sizes), taus=(1.0,), threads=(torch.get_num_threads(),), k=k, batch=batch, rounds=rounds,
    sample_seconds=sample_seconds, budget=3.0,
    algorithms=("cross_entropy", "pivot", "fused_numba", "fused_triton", "divide_and_conquer"),
)  # fmt: skip
live = benchmarks.measure_loss(settings)
print(f"Short: {rounds} rounds of {1000 * sample_seconds:.0f} ms, {live['dropped'].sum()} disturbed samples dropped.")
tables.show(tables.cost_table(live))

# %%
ax = figures.speed_figure(live, baseline="cross_entropy")

# %% [markdown]
# Whatever the speed, the results must be right. The error columns hold every path to its value in double precision,
# and double precision itself is held to 60 digits by the tests.

# %%
ours = live[live["algorithm"].isin(["pivot", "fused_numba", "fused_triton"])]
assert ours["loss_error"].max() < 2e-6
assert ours["gradient_error"].max() < 1e-5

# %% [markdown]
# ## Pivot: plain torch, compiled, fused
#
# *Eager* is plain torch. *Compiled* is the same code through `torch.compile`, which needs a C++ compiler on your
# machine. *Fused* is one kernel each way: Numba on a CPU, Triton on a GPU, both optional; `smooth_topk_loss` takes them
# where they are installed. The limit is cross-entropy itself: one read of the scores forward, one read and one write
# backward. The Triton kernels were not timed by us, for want of a GPU: `python scripts/benchmark.py --device cuda`.

# %%
loss = recorded("loss")
tables.show(tables.cost_table(loss))

# %% [markdown]
# Time against the number of classes, and divided by that of cross-entropy, with all threads and $\tau = 1$. With 100
# classes most of the time is the cost of calling functions; from 1,000 on the work counts.

# %%
if len(loss):
    most = loss[(loss["threads"] == loss["threads"].max()) & (loss["tau"] == 1)]
    ax = figures.speed_figure(most, baseline="cross_entropy")

# %% [markdown]
# ## Memory
#
# The most that torch holds at once during forward and backward pass, beyond scores and labels: every allocation and
# release of its allocator is counted. Cross-entropy keeps the log-probabilities and makes two more tensors of that size
# on the way back. Pivot keeps $O(k)$ numbers a sample and works in blocks that stay in cache.

# %%
memory = recorded("memory")
tables.show(tables.memory_table(memory))

# %%
if len(memory):
    ax = figures.memory_figure(memory)

# %% [markdown]
# The smallest case can be checked at once: what does one forward and backward pass allocate here?

# %%
found, _ = benchmarks.find_contenders()
scores, labels = torch.randn(batch, 1000, requires_grad=True), torch.randint(1000, (batch,))


def both_passes(loss):
    return torch.autograd.grad(loss(scores, labels, k=k, tau=1.0), scores)


names = ["cross_entropy", "pivot", "divide_and_conquer"]
peaks = {name: benchmarks.peak_bytes(lambda loss=found[name]: both_passes(loss)) for name in names}
print({name: f"{peak / scores.nbytes:.2f} times the scores" for name, peak in peaks.items()})
assert peaks["pivot"] <= 2 * peaks["cross_entropy"]

# %% [markdown]
# ## How time grows
#
# Proposition 5: $O(kn)$. A power law fitted to the times of each algorithm gives its exponent in $n$ (from 1,000
# classes on) and in $k$. One is linear; below one, part of the time does not depend on the size at all.

# %%
exponents = recorded("exponents")
tables.show(tables.exponent_table(exponents))

# %%
sweep = recorded("k_sweep")
if len(sweep):
    ax = figures.k_sweep_figure(sweep)

# %% [markdown]
# Up to $k = 8$ float32 is exact enough for the coefficients, up to $k = 32$ float64 is; beyond, only sums of positive
# numbers are, and they take more memory traffic. The steps in the curve are these changes. The errors stay small:

# %%
if len(sweep):
    by_k = sweep[sweep["algorithm"] != "cross_entropy"].groupby(["algorithm", "k"])[["loss_error", "gradient_error"]]
    print(by_k.max().to_string(float_format="{:.0e}".format))
else:
    print("not recorded")

# %% [markdown]
# ## Other packages
#
# `difftopk` carries the paper's public implementation of this very loss. The others are different losses with a similar
# purpose, so only their time can be compared. Those that are not installed are left out: `pip install
# 'smooth-topk[peers]'`.

# %%
peers = recorded("peers")
tables.show(tables.cost_table(peers))

# %% [markdown]
# ## A training step
#
# What a user notices is the whole step: forward pass of the network, loss, backward pass, update. The paper reports
# 10 % more time on a GPU. Two steps of the same kind differ by more than what the loss adds, so the last column times
# the loss alone, and divides what it takes beyond cross-entropy by the length of the step.

# %%
steps = recorded("training_step")
tables.show(tables.training_step_table(steps))

# %% [markdown]
# ## What we saw
#
# - The loss is $O(kn)$, and the pivot algorithm reaches that with one pass over the scores each way.
# - On a CPU it costs a small multiple of cross-entropy, the paper's algorithms a large one; the tables above say how
#   large on the machine that recorded them.
# - It allocates less memory than cross-entropy from 1,000 classes on.
# - In a training step of a real network the difference between the losses is lost among the convolutions.
#
# ## Questions
#
# 1. Why does the summation algorithm fare so much better on a CPU than in the paper's Table 3?
# 2. Which part of the cost at $n = 100$ would a faster kernel not remove?
# 3. Cross-entropy reads the scores once. Why can the smooth loss, with its $\binom{n}{k}$ terms, do the same?
#
# ## Next
#
# [8 · Temperature](08_temperature_study.ipynb) asks which $\tau$ trains a network.
