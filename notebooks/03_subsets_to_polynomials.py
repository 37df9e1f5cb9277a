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
# # 3 · From subsets to polynomials
#
# **Question.** The loss is a sum over all sets of $k$ classes, $8 \cdot 10^{12}$ of them for ImageNet. How can it
# cost only a multiple of $kn$ operations?
#
# **You will** write the sum out, find elementary symmetric polynomials in it, compute them in three ways, watch the
# two fast ones at work on eight numbers, and count their operations.
#
# **Paper.** Sections 4.1 and 4.2, eq. (9) to (14), Algorithms 1 and 3, Proposition 5.
#
# **Time.** 25 minutes to read, seconds to run.

# %% tags=["parameters"]
profile = "quick"
k = 3
tau = 1.0
margin = 1.0
counted_sizes = [8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096]
timed_sizes = [64, 256, 1024]

# %%
from functools import reduce
from itertools import combinations
from math import comb, exp, log, prod
from operator import mul
from timeit import repeat

import ipywidgets as widgets
import numpy as np
import pandas as pd
import torch

from smooth_topk import log_symmetric_polynomials, smooth_topk_loss
from smooth_topk.study import controls, figures, notebook, tables
from smooth_topk.study.operations import count_multiplications

notebook.start(profile)

# %% [markdown]
# ## The sum, written out
#
# Six classes, of which number 2 is the true one. Eq. (9) has two sums: one over all sets of $k$ classes, in which a
# set without the true class gets the margin $\alpha$ on top, and one over the sets that contain the true class.

# %%
scores, label = torch.tensor([2.0, 1.0, 0.5, 0.2, -1.0, -0.5], dtype=torch.float64), 2
subsets = list(combinations(range(len(scores)), k))
mean = {subset: scores[list(subset)].mean().item() for subset in subsets}
everything = sum(exp((mean[subset] + margin * (label not in subset)) / tau) for subset in subsets)
with_label = sum(exp(mean[subset] / tau) for subset in subsets if label in subset)
loss = tau * log(everything) - tau * log(with_label)
print(f"{len(subsets)} sets, {sum(label in subset for subset in subsets)} with the true class, loss {loss:.6f}")

# %%
package_loss = smooth_topk_loss(scores, torch.tensor(label), k=k, tau=tau, margin=margin).item()
assert abs(loss - package_loss) < 1e-12

# %% [markdown]
# Each bar below is the share of one set in the first sum. The loss compares the blue bars with all bars: it is $-\tau
# \log$ of the blue share. The smooth loss is small when sets with the true class hold most of the weight.

# %%
table = figures.subset_table(scores, label, k=k, tau=tau, margin=margin)
ax = figures.subset_shares(table)

# %%
blue = table["share"][table["with_label"]].sum()
assert abs(-tau * log(blue) - loss) < 1e-12

# %% [markdown]
# Move $\tau$. For a small one, a single set has all the weight and the sums become maxima: the hard loss. Move the
# margin: it raises every hatched bar by the same factor.

# %%
controls.explore(
    lambda ax, tau, margin: figures.subset_shares(
        figures.subset_table(scores, label, k=k, tau=tau, margin=margin), ax=ax
    ),
    tau=tau,
    margin=margin,
)

# %% [markdown]
# ## Too many sets
#
# With $n$ classes there are $\binom{n}{k}$ sets, and $\binom{n-1}{k-1}$ of them contain the true class. (The paper
# prints $\binom{n}{k-1}$ for the second number: correction 2 of the errata.)

# %%
assert len(subsets) == comb(6, k)
assert sum(label in subset for subset in subsets) == comb(5, k - 1) != comb(6, k - 1)
sizes = pd.DataFrame({"sets": {f"n = {n:,}, k = {k}": f"{comb(n, k):,}" for n, k in [(6, 3), (100, 5), (1000, 5)]}})
tables.show(sizes)

# %% [markdown]
# ## Products instead of sets
#
# The exponential of a sum is a product. Write $e_i = \exp(s_i / (k\tau))$: the weight of a set is the product of its
# $e_i$. Now split the sets by the true class $y$. A set with $y$ is $e_y$ times a set of $k-1$ *other* classes. A set
# without $y$ is a set of $k$ other classes. Call $\sigma_j$ the sum of all products of $j$ different numbers, the
# **elementary symmetric polynomial** of degree $j$. With $\mathbf{e}$ the numbers of the other classes, eq. (10) says
#
# $$L_{k,\tau} = \tau \log \left[ e_y \, \sigma_{k-1}(\mathbf{e}) + \exp(\alpha/\tau) \, \sigma_k(\mathbf{e}) \right]
#              - \tau \log \left[ e_y \, \sigma_{k-1}(\mathbf{e}) \right].$$


# %%
def enumeration(e, k):
    """Algorithm 0: the definition. sigma_k is the sum of all products of k different elements."""
    return sum(reduce(mul, subset) for subset in combinations(e, k))


# %%
e = torch.exp(scores / (k * tau)).tolist()
e_label, others = e[label], e[:label] + e[label + 1 :]
upper, lower = enumeration(others, k), enumeration(others, k - 1)
equation_10 = tau * log(e_label * lower + exp(margin / tau) * upper) - tau * log(e_label * lower)
assert abs(equation_10 - loss) < 1e-12
print(f"σ_{k} = {upper:.4f}, σ_{k - 1} = {lower:.4f}, loss {equation_10:.6f}, the same number")

# %% [markdown]
# The loss needs two numbers, $\sigma_{k-1}$ and $\sigma_k$. The rest of the chapter computes them without the sets.
#
# ## Polynomials know them
#
# Multiply $(1 + e_1 X)(1 + e_2 X) \cdots (1 + e_n X)$ out. From each bracket you take the 1 or the $e_i X$. The terms
# with $X^j$ are those where $e_i X$ was taken $j$ times: every set of $j$ elements once. The coefficient of $X^j$ is
# $\sigma_j$. The paper writes $P = (X + e_1) \cdots (X + e_n)$, eq. (11), whose coefficients are the same in reverse
# order: Vieta's formula, eq. (12). NumPy expands such a product.

# %%
e = [1, 2, 1, 3, 2, 1, 4, 2]
coefficients = np.poly([-value for value in e])  # of X^n, ..., X^0 in the product of all (X + e_i)
sigmas = [1] + [enumeration(e, j) for j in range(1, len(e) + 1)]
assert np.allclose(coefficients, sigmas)
print("σ_0, ..., σ_8 =", sigmas)

# %% [markdown]
# ## One element at a time: the summation algorithm
#
# Multiply a polynomial by one more bracket $(1 + e_i X)$. A set of $j$ elements either leaves the new element out or
# takes it with $j-1$ older ones:
#
# $$\sigma_j(e_1, \ldots, e_i) = \sigma_j(e_1, \ldots, e_{i-1}) + e_i \, \sigma_{j-1}(e_1, \ldots, e_{i-1}).$$
#
# That is Algorithm 3. The inner loop runs over $j$, where the paper prints $i$ (correction 4), and downwards, so that
# one list is enough.


# %%
def summation(e, k):
    """Algorithm 3: sigma_0..sigma_k."""
    sigma = [1] + [0] * k
    for i, value in enumerate(e, 1):
        for j in range(min(i, k), 0, -1):
            sigma[j] = sigma[j] + value * sigma[j - 1]
    return sigma


# %%
assert summation(e, k) == sigmas[: k + 1]
ax = figures.summation_grid(e, k)

# %% [markdown]
# Each column is the list after one more element. The number at an arrow's end is its left neighbour plus $e_i$ times
# the number below that. Move the step to watch the table fill.

# %%
controls.explore(
    lambda ax, step: figures.summation_grid(e, k, step=step, ax=ax),
    size=(8, 2.6),
    step=widgets.IntSlider(description="step i", value=4, min=0, max=len(e)),
)

# %% [markdown]
# The steps wait for each other: $n$ of them, one after the other. A graphics card likes few steps with much work
# each.
#
# ## Pairs of pairs: divide and conquer
#
# The brackets may be multiplied in any order. Algorithm 1 multiplies neighbours, then the results, and so on: a tree
# with $\log_2 n$ levels, and within a level all products are independent. Coefficients above degree $k$ are never
# needed, so every product stops there.


# %%
def multiply(p, q, k):
    """Coefficients 0..k of the product of two polynomials."""
    product = [0] * (min(k, len(p) + len(q) - 2) + 1)
    for i, a in enumerate(p):
        for j, b in enumerate(q[: k + 1 - i]):
            product[i + j] = product[i + j] + a * b
    return product


# %%
def divide_and_conquer(e, k):
    """Algorithm 1: sigma_0..sigma_k."""
    polynomials = [[1, value] for value in e]
    while len(polynomials) > 1:
        if len(polynomials) % 2:
            polynomials.append([1])
        polynomials = [multiply(p, q, k) for p, q in zip(polynomials[::2], polynomials[1::2], strict=True)]
    return polynomials[0]


# %% [markdown]
# The tree for our eight numbers, up to degree $k$. Dots are terms that were dropped.

# %%
assert divide_and_conquer(e, k) == sigmas[: k + 1]
ax = figures.product_tree(e, k)

# %% [markdown]
# Climb the tree level by level, and change $k$. With $k=8$ nothing is dropped, and the root has all nine
# coefficients.

# %%
controls.explore(
    lambda ax, level, k: figures.product_tree(e, k, levels=level, ax=ax),
    size=(9.6, 4.2),
    level=widgets.IntSlider(description="level", value=1, min=0, max=3),
    k=controls.k_slider(k, maximum=8),
)

# %% [markdown]
# When a level has an odd number of polynomials, the polynomial 1 is added. The paper's update of their number, $p
# \leftarrow (p-1)//2$, would drop factors instead (correction 4): of eight leaves it would go on with three.

# %%
for n in range(1, 9):
    assert divide_and_conquer(e[:n], n)[: n + 1] == summation(e[:n], n)
ax = figures.product_tree(e[:7], k)

# %% [markdown]
# ## No inversion, no rescaling
#
# The paper arrives at the same tree by a detour. It notes that $P$ would need its *high* coefficients, so it expands
# $\prod_i (X + 1/e_i)$ and multiplies the result by $\prod_i e_i$, eq. (13). Take each $e_i$ into its own bracket and
# the detour is gone: $e_i (X + 1/e_i) = 1 + e_i X$ (correction 5).

# %%
inverted = reduce(lambda p, q: multiply(p, q, len(e)), [[1 / value, 1] for value in e])
assert np.allclose([prod(e) * coefficient for coefficient in inverted], sigmas)
print("the same coefficients")

# %% [markdown]
# The detour is not only longer. It cannot take an element that is zero, such as a class with the score $-\infty$; and
# the product of a thousand elements leaves the range of floating point numbers long before $\sigma_k$ does.

# %%
assert divide_and_conquer([0, 2, 3], 2) == [1, 5, 6]
thousand = [2.5] * 1000
assert prod(thousand) == float("inf")
print(f"product of 1,000 elements 2.5: {prod(thousand)}; σ_5 of them: {summation(thousand, 5)[5]:.3e}")

# %% [markdown]
# ## The cost, counted
#
# A stopwatch measures the machine as much as the algorithm. Here the functions above run on numbers that count their
# own multiplications.

# %%
algorithms = {"enumeration": enumeration, "summation": summation, "divide_and_conquer": divide_and_conquer}
counts = pd.DataFrame(
    [(name, n, count_multiplications(algorithm, n, k)) for name, algorithm in algorithms.items()
     for n in counted_sizes if name != "enumeration" or n <= 32],
    columns=["algorithm", "n", "multiplications"],
)  # fmt: skip
counted = counts.pivot(index="n", columns="algorithm", values="multiplications")[list(algorithms)]
tables.show(counted.map(lambda count: "not counted" if pd.isna(count) else f"{count:,.0f}"))

# %% [markdown]
# Enumeration multiplies $k-1$ times for each set. Summation makes $\sum_i \min(i, k)$ multiplications, a little below
# $kn$. Both numbers are exact, so they can be asserted exactly.

# %%
found = counts.set_index(["algorithm", "n"])["multiplications"]
assert all(found["enumeration", n] == (k - 1) * comb(n, k) for n in counted_sizes if n <= 32)
assert all(found["summation", n] == k * n - k * (k - 1) // 2 for n in counted_sizes)

# %%
ax = figures.operation_counts(counts, k=k)

# %% [markdown]
# **Proposition 5** says that divide and conquer takes $\mathcal{O}(kn)$ operations too. Low levels have many small
# polynomials, high levels few polynomials with at most $k+1$ coefficients; the sum over all levels is a multiple of
# $kn$. "A multiple" means one constant for all $n$ and $k$: below, the count divided by $kn$.

# %%
ratio = pd.DataFrame({
    f"k = {degree}": {n: count_multiplications(divide_and_conquer, n, degree) / (degree * n) for n in counted_sizes}
    for degree in (1, 2, 5, 16)
}).rename_axis("n")  # fmt: skip
assert ratio.to_numpy().max() < 2
tables.show(ratio.map("{:.3f}".format))

# %% [markdown]
# So the tree does *more* arithmetic than summation, up to twice as much. What it saves is waiting: its longest chain
# of dependent steps has $\log_2 n$ links instead of $n$.

# %%
steps = pd.DataFrame({"summation": counted_sizes, "divide and conquer": [(n - 1).bit_length() for n in counted_sizes]})
steps.index = pd.Index(counted_sizes, name="n")
tables.show(steps.rename_axis("steps one after the other", axis=1))

# %% [markdown]
# A small timing of the package's versions, on this machine's processor, one thread, 32 rows at a time. Summation
# takes a step for each element; the tree works in logarithms, which chapter 4 explains and which costs more for each
# operation. Chapter 7 measures with care.


# %%
def milliseconds(algorithm, n):
    x = torch.randn(32, n, generator=torch.Generator().manual_seed(0))
    return 1e3 * min(repeat(lambda: log_symmetric_polynomials(x, 5, algorithm=algorithm), number=1, repeat=3))


names = ["summation", "divide_and_conquer", "pivot"]
times = pd.DataFrame({f"{name} (ms)": {n: milliseconds(name, n) for n in timed_sizes} for name in names})
tables.show(times.rename_axis("n").map("{:.2f}".format))

# %% [markdown]
# All of them give the same polynomials.

# %%
x = torch.randn(4, 20, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
truth = log_symmetric_polynomials(x, 5, algorithm="enumeration")
for name in names:
    assert torch.allclose(log_symmetric_polynomials(x, 5, algorithm=name), truth, rtol=1e-12)

# %% [markdown]
# ## What we saw
#
# - The loss is $-\tau \log$ of the share of the sets that contain the true class.
# - It needs $\sigma_{k-1}$ and $\sigma_k$ of the other classes, eq. (10): two coefficients of $\prod_i (1 + e_i X)$.
# - Summation makes $kn - k(k-1)/2$ multiplications in $n$ steps; divide and conquer less than $2kn$ in $\log_2 n$
#   steps.
# - The paper's inversion and rescaling are not needed.
#
# ## Questions
#
# 1. Why may every product in the tree stop at degree $k$ without changing the coefficients up to $k$?
# 2. How would you compute $\sigma_k$ for all sets of classes *without* class $i$, for every $i$? Chapter 5 needs it.
# 3. With $k = n/2$, which part of the tree does most of the work?
#
# ## Next
#
# [4 · Staying in log space](04_staying_in_log_space.ipynb): $e_i = \exp(s_i/(k\tau))$ does not fit into a number when
# $\tau$ is small.
