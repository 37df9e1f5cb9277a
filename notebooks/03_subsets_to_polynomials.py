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
# **Question.** The loss is a sum over all sets of $k$ classes. For ImageNet and $k = 5$ there are $8 \cdot 10^{12}$ of
# them. How can the sum cost only a multiple of $kn$ operations?
#
# **You will** write the sum out, find elementary symmetric polynomials in it, compute them in three ways, watch the two
# fast ways at work on eight numbers, and count their operations.
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
from fractions import Fraction
from functools import reduce
from itertools import combinations
from math import ceil, comb, exp, log, log2, prod
from operator import mul
from timeit import repeat

import ipywidgets as widgets
import numpy as np
import pandas as pd
import torch

from smooth_topk import log_symmetric_polynomials, smooth_topk_loss
from smooth_topk.study import figures, measure, tables
from smooth_topk.study.chapters import controls, notebook

notebook.start(profile)

# %% [markdown]
# ## The sum, written out
#
# Take six classes, of which class 2 is the true one, and sets of $k = 3$. Eq. (9), the loss of chapter 2, has two sums.
# The first runs over all sets of $k$ classes, and a set without the true class gets the margin $\alpha$ on top. The
# second runs over the sets that contain the true class.

# %%
scores = torch.tensor([2.0, 1.0, 0.5, 0.2, -1.0, -0.5], dtype=torch.float64)
label = 2
subsets = list(combinations(range(len(scores)), k))
with_label = [subset for subset in subsets if label in subset]
mean = {subset: scores[list(subset)].mean().item() for subset in subsets}

first = sum(exp((mean[s] + margin * (label not in s)) / tau) for s in subsets)
second = sum(exp(mean[s] / tau) for s in with_label)
loss = tau * log(first) - tau * log(second)
print(f"{len(subsets)} sets, {len(with_label)} with the true class")
print(f"loss {loss:.6f}")

# %%
# The sum over sets is the loss of the package.
target = torch.tensor(label)
package = smooth_topk_loss(scores, target, k=k, tau=tau, margin=margin).item()
assert abs(loss - package) < 1e-12

# %% [markdown]
# **Figure.** The share of each set in the first sum. The loss is $-\tau \log$ of the blue share, so the loss is small
# when sets with the true class hold most of the weight.

# %%
table = measure.subset_table(scores, label, k=k, tau=tau, margin=margin)
ax = figures.subset_shares(table)

# %%
# The loss is −τ log of the blue share.
blue = table["share"][table["with_label"]].sum()
assert abs(-tau * log(blue) - loss) < 1e-12

# %% [markdown]
# Move $\tau$. For a small $\tau$ a single set has nearly all of the weight, and both sums become maxima: this is the
# hard loss. Move the margin. The margin multiplies the weight of every hatched set by the same factor
# $\exp(\alpha/\tau)$.
#
# **Figure.** The shares for the values of the controls. With a small $\tau$ one bar has nearly all of the weight; a
# larger margin moves weight from the blue bars to the hatched ones.


# %%
def draw(ax, tau, margin):
    table = measure.subset_table(scores, label, k=k, tau=tau, margin=margin)
    figures.subset_shares(table, ax=ax)


controls.explore(draw, tau=tau, margin=margin)

# %% [markdown]
# ## Too many sets
#
# With $n$ classes there are $\binom{n}{k}$ sets, and $\binom{n-1}{k-1}$ of them contain the true class. (The paper
# prints $\binom{n}{k-1}$ for the second number: [correction
# 2](../book/errata.md#2-the-number-of-subsets-that-contain-the-label).)

# %%
cases = [(6, 3), (100, 5), (1000, 5)]
sizes = {f"n = {n:,}, k = {k}": f"{comb(n, k):,}" for n, k in cases}
tables.show(pd.DataFrame({"sets": sizes}))

# %%
# Of six classes, C(6, k) sets have size k and C(5, k − 1) of them contain the label.
assert len(subsets) == comb(6, k)
assert len(with_label) == comb(5, k - 1) != comb(6, k - 1)

# %% [markdown]
# ## Products instead of sets
#
# The exponential of a sum is a product. Write $e_i = \exp(s_i / (k\tau))$. Then the weight of a set, without the
# margin, is the product of its $e_i$.
#
# Now split the sets by the true class $y$. A set with $y$ consists of $y$ and $k-1$ *other* classes. A set without $y$
# consists of $k$ other classes. So we need sums of products. For a list of numbers, let $\sigma_j$ be the sum of the
# products of all choices of $j$ numbers from the list. For three numbers, $\sigma_2(a, b, c) = ab + ac + bc$. This sum
# is the **elementary symmetric polynomial** of degree $j$, and $\sigma_0 = 1$. With $\mathbf{e}$ for the numbers $e_i$
# of the other classes, eq. (10) says
#
# $$\begin{aligned}
# L_{k,\tau} = {} & \tau \log \left[ e_y \sigma_{k-1}(\mathbf{e}) + \exp(\alpha/\tau)\,\sigma_k(\mathbf{e}) \right] \\
#              & - \tau \log \left[ e_y \sigma_{k-1}(\mathbf{e}) \right].
# \end{aligned}$$


# %%
def enumeration(e, k):
    """The definition: sigma_k is the sum of all products of k different elements."""
    return sum(reduce(mul, subset) for subset in combinations(e, k))


# %%
e = torch.exp(scores / (k * tau)).tolist()
e_label, others = e[label], e[:label] + e[label + 1 :]
upper, lower = enumeration(others, k), enumeration(others, k - 1)

both = e_label * lower + exp(margin / tau) * upper
equation_10 = tau * log(both) - tau * log(e_label * lower)
subscripts = "₀₁₂₃₄₅₆₇₈₉"
print(f"σ{subscripts[k]} = {upper:.4f}, σ{subscripts[k - 1]} = {lower:.4f}")
print(f"loss {equation_10:.6f}")
assert abs(equation_10 - loss) < 1e-12

# %% [markdown]
# The loss needs two numbers, $\sigma_{k-1}$ and $\sigma_k$. The rest of this chapter computes them without the sets.
#
# ## The sums are coefficients of a polynomial
#
# From here on, $n$ is the number of elements of the list. Multiply $(1 + e_1 X)(1 + e_2 X) \cdots (1 + e_n X)$ out.
# Each bracket contributes either its 1 or its $e_i X$. A term with $X^j$ arises when exactly $j$ brackets contribute
# their $e_i X$, and every choice of $j$ brackets occurs once. So the coefficient of $X^j$ is $\sigma_j$.
#
# The paper writes $P = (X + e_1) \cdots (X + e_n)$, eq. (11). The coefficients of $P$ are the same numbers in reverse
# order (Vieta's formula, eq. 12). NumPy can expand such a product.

# %%
e = [1, 2, 1, 3, 2, 1, 4, 2]
coefficients = np.poly([-value for value in e])  # X^n, ..., X^0 of Π (X + e_i)
sigmas = [1] + [enumeration(e, j) for j in range(1, len(e) + 1)]
print("σ₀ to σ₈:")
print(*sigmas, sep=", ")
assert np.allclose(coefficients, sigmas)

# %% [markdown]
# ## One element at a time: the summation algorithm
#
# Suppose that $\sigma_0, \dots, \sigma_k$ of the first $i-1$ elements are known, and element $e_i$ arrives. A set of
# $j$ elements either leaves the new element out, or it consists of the new element and $j-1$ older ones:
#
# $$\begin{aligned}
# \sigma_j(e_1, \ldots, e_i) = {} & \sigma_j(e_1, \ldots, e_{i-1}) \\
#   & + e_i \, \sigma_{j-1}(e_1, \ldots, e_{i-1}).
# \end{aligned}$$
#
# This is Algorithm 3. Its inner loop runs over $j$, where the paper prints $i$
# ([correction 4](../book/errata.md#4-indices-of-the-three-algorithms)). We let $j$ run downwards, from $k$ to 1. Then
# $\sigma_{j-1}$ still has its old value when $\sigma_j$ needs it, and one list is enough.


# %%
def summation(e, k):
    """Algorithm 3: sigma_0..sigma_k."""
    sigma = [1] + [0] * k
    for i, value in enumerate(e, 1):
        for j in range(min(i, k), 0, -1):
            sigma[j] = sigma[j] + value * sigma[j - 1]
    return sigma


assert summation(e, k) == sigmas[: k + 1]

# %% [markdown]
# **Figure.** Algorithm 3 on eight numbers. Each column is the list after one more element. A cell is its left neighbour
# plus $e_i$ times the cell below that neighbour, as the arrows show for the last cell.

# %%
ax = figures.summation_grid(e, k)

# %% [markdown]
# Move the step to watch the table fill.
#
# **Figure.** The table after the step of the control. Each step fills one column from the column to its left.

# %%
controls.explore(
    lambda ax, step: figures.summation_grid(e, k, step=step, ax=ax),
    size=(8, 2.6),
    step=widgets.IntSlider(description="step i", value=4, min=0, max=len(e)),
)

# %% [markdown]
# Each column needs the column before it. So there are $n$ steps, and no two of them can run at the same time. A
# graphics card works best with few steps and much work in each of them.
#
# ## Pairs of pairs: divide and conquer
#
# The brackets may be multiplied in any order. Algorithm 1 multiplies neighbours, then the results of neighbours, and so
# on. This gives a tree with $\log_2 n$ levels, and all products of one level are independent. Coefficients above degree
# $k$ are never needed, so every product stops there.


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
        pairs = zip(polynomials[::2], polynomials[1::2], strict=True)
        polynomials = [multiply(p, q, k) for p, q in pairs]
    return polynomials[0]


assert divide_and_conquer(e, k) == sigmas[: k + 1]

# %% [markdown]
# **Figure.** The tree of our eight numbers, up to degree $k = 3$. Dots stand for terms that were dropped. The root
# holds $\sigma_0$ to $\sigma_3$.

# %%
ax = figures.product_tree(e, k)

# %% [markdown]
# Climb the tree level by level, and change $k$. With $k = 8$ nothing is dropped, and the root has all nine
# coefficients.
#
# **Figure.** The tree up to the level of the control, truncated at degree $k$. With $k = 3$ the first terms are dropped
# at level 2, where polynomials of degree 4 would arise.

# %%
controls.explore(
    lambda ax, level, k: figures.product_tree(e, k, levels=level, ax=ax),
    size=(8.4, 4.0),
    level=widgets.IntSlider(description="level", value=1, min=0, max=3),
    k=controls.k_slider(k, maximum=8),
)

# %% [markdown]
# When a level has an odd number of polynomials, the polynomial 1 is added, which changes no product. The paper updates
# the number of polynomials by $p \leftarrow (p-1)//2$ (integer division), which would drop factors: of eight leaves,
# only three products would remain ([correction 4](../book/errata.md#4-indices-of-the-three-algorithms)).
#
# **Figure.** The tree of seven numbers. The leaf on the right is the polynomial 1, so its neighbour $1 + 4X$ reaches
# level 1 unchanged.

# %%
ax = figures.product_tree(e[:7], k)

# %%
# With one to eight elements the tree gives the polynomials of the summation algorithm.
for n in range(1, 9):
    assert divide_and_conquer(e[:n], n)[: n + 1] == summation(e[:n], n)

# %% [markdown]
# ## No inversion, no rescaling
#
# The paper arrives at the same tree by a detour. It says that $P$ would need nearly all of its coefficients, so it
# expands $\prod_i (X + 1/e_i)$ instead and multiplies the result by $\prod_i e_i$, eq. (13). The detour is not needed,
# for two reasons. Moving each $e_i$ into its own bracket turns $e_i (X + 1/e_i)$ into $1 + e_i X$ ([correction
# 5](../book/errata.md#5-the-inversion-is-not-needed)). And $P$ itself needs only its $k+1$ *leading* coefficients
# ([correction 12](../book/errata.md#12-the-first-polynomial-of-section-42-would-do-as-well)).

# %%
# The inverted and rescaled product has the same coefficients.
brackets = [[1 / value, 1] for value in e]
inverted = reduce(lambda p, q: multiply(p, q, len(e)), brackets)
rescaled = [prod(e) * coefficient for coefficient in inverted]
assert np.allclose(rescaled, sigmas)

# %% [markdown]
# The detour takes longer, and it has two more drawbacks. It cannot handle an element of zero, and a class with the
# score $-\infty$ has exactly this element. And the product of a thousand elements overflows long before $\sigma_k$
# does.

# %%
thousand = [2.5] * 1000
print(f"product of 1,000 elements 2.5: {prod(thousand)}")
print(f"σ₅ of the same elements: {summation(thousand, 5)[5]:.3e}")
assert prod(thousand) == float("inf")
assert divide_and_conquer([0, 2, 3], 2) == [1, 5, 6]

# %% [markdown]
# ## The cost, counted
#
# A stopwatch measures the machine as much as the algorithm. Here the functions above run on numbers that count their
# own multiplications.

# %%
algorithms = {
    "enumeration": enumeration,
    "summation": summation,
    "divide_and_conquer": divide_and_conquer,
}
rows = [
    (name, n, measure.count_multiplications(algorithm, n, k))
    for name, algorithm in algorithms.items()
    for n in counted_sizes
    if name != "enumeration" or n <= 32
]
counts = pd.DataFrame(rows, columns=["algorithm", "n", "multiplications"])

# %% tags=["hide-input"]
counted = counts.pivot(index="n", columns="algorithm", values="multiplications")
counted = counted[list(algorithms)].rename(columns=lambda name: name.replace("_", " "))
counted = counted.rename(index="{:,}".format).rename_axis("multiplications", axis=1)
tables.show(counted.map(lambda n: "not counted" if pd.isna(n) else f"{n:,.0f}"))

# %% [markdown]
# Enumeration multiplies $k-1$ times per set. Summation makes $\sum_i \min(i, k)$ multiplications, a little fewer than
# $kn$.

# %%
# Enumeration makes (k − 1) C(n, k) multiplications, summation kn − k(k − 1)/2.
found = counts.set_index(["algorithm", "n"])["multiplications"]
small = [n for n in counted_sizes if n <= 32]
assert all(found["enumeration", n] == (k - 1) * comb(n, k) for n in small)
assert all(found["summation", n] == k * n - k * (k - 1) // 2 for n in counted_sizes)

# %% [markdown]
# **Figure.** Multiplications against the number of elements, for $k = 3$. Enumeration grows like $n^k$, and it was
# counted up to 32 elements only. Both other algorithms grow in proportion to $kn$.

# %%
ax = figures.operation_counts(counts, k=k)

# %% [markdown]
# ## Proposition 5: why the tree costs a multiple of kn
#
# **Proposition 5** says that divide and conquer takes $\mathcal{O}(kn)$ operations. Here is why. Let $n$ be a power of
# two. A tree for $n$ elements consists of two trees for $n/2$ elements and one product of their roots. Each root has at
# most the degree $\min(k, n/2)$. A product of two polynomials of degree $d$ takes about $d^2$ multiplications, one per
# pair of coefficients. (This is right up to a constant factor, which is all that $\mathcal{O}$ asks for.) So the number
# of multiplications $T(n)$ obeys the recurrence
#
# $$T(n) = 2\,T(n/2) + \min(k, n/2)^2 .$$
#
# Insert the recurrence into itself, level by level. Counted from the root, $j = 0$, level $j$ has $2^j$ products of
# polynomials with $n/2^{j+1}$ elements each, and
#
# $$T(n) = \sum_{j \ge 0} 2^j \min\!\big(k, n/2^{j+1}\big)^2 .$$
#
# - Near the root, where $n/2^{j+1} \ge k$, the polynomials are full: they have degree $k$. Level $j$ costs $2^j k^2$,
#   twice as much as the level above it. The lowest full level has $2^j \le n/(2k)$ products and costs at most $kn/2$.
#   All full levels together cost less than twice that, $kn$.
# - Further down, where $n/2^{j+1} < k$, the polynomials are short. Level $j$ costs $2^j (n/2^{j+1})^2 = n^2/2^{j+2}$,
#   half as much as the level above it. The highest short level costs less than $kn/2$. All short levels together cost
#   less than twice that, $kn$.
#
# Both parts are geometric series, and together they stay below $2kn$. (The paper's proof has a slip in the second sum:
# [correction 10](../book/errata.md#10-the-second-sum-in-the-proof-of-proposition-5).)
#
# **Figure.** The multiplications of each level for 4,096 elements, divided by $kn$. The leaves are on the left and the
# root is on the right. Costs rise up to the level where the polynomials become full, at $m = k$ to $m = 2k$ elements
# per product, and fall from there to the root.

# %%
levels = measure.level_cost_table(4096, [2, 16, 128])
ax = figures.level_costs(levels, n=4096)

# %%
# The levels add up to what the algorithm was seen to multiply.
for n in counted_sizes:
    by_level = measure.level_cost_table(n, [k])["multiplications"].sum()
    assert by_level == found["divide_and_conquer", n]

# %% [markdown]
# The count divided by $kn$ stays below 2 for every size and every $k$ that we counted. (The 2.000 in the table is
# rounded.)


# %%
def ratio_to_kn(n, degree):
    return measure.count_multiplications(divide_and_conquer, n, degree) / (degree * n)


columns = {
    f"k = {d}": {f"{n:,}": ratio_to_kn(n, d) for n in counted_sizes}
    for d in (1, 2, 5, 16)
}
ratio = pd.DataFrame(columns).rename_axis("n")
assert ratio.to_numpy().max() < 2
tables.show(ratio.map("{:.3f}".format))

# %% [markdown]
# So the tree does *more* arithmetic than summation, up to twice as much. What it saves is waiting: only $\log_2 n$
# steps (rounded up) have to run one after the other, instead of $n$.

# %% tags=["hide-input"]
halvings = [(n - 1).bit_length() for n in counted_sizes]
columns = {"summation": counted_sizes, "divide and conquer": halvings}
steps = pd.DataFrame(columns, index=ratio.index).map("{:,}".format)
tables.show(steps.rename_axis("steps one after the other", axis=1))

# %% [markdown]
# ## Why the fast Fourier transform does not help
#
# Polynomials of degree $k$ can be multiplied in $\mathcal{O}(k \log k)$ operations by the fast Fourier transform (FFT).
# The paper notes that the whole tree would then cost $\mathcal{O}(n \log^2 k)$. There are two reasons not to do it.
#
# The first is the size of $k$. A truncated product takes $(k+1)(k+2)/2$ multiplications. The FFT needs three transforms
# of a length above $2k$. Transforms work with complex numbers, and one complex multiplication takes four real ones. A
# transform of real numbers takes about half of that, because half of its result is the mirror image of the other half.

# %%
rows = {}
for degree in (5, 16, 64, 256, 512, 1024):
    length = 2 ** ceil(log2(2 * degree + 1))
    complex_products = 3 * (length // 2) * ceil(log2(length)) + length
    rows[f"k = {degree:,}"] = {
        "directly": (degree + 1) * (degree + 2) // 2,
        "by FFT of real numbers": 4 * complex_products // 2,
    }
products = pd.DataFrame.from_dict(rows, orient="index")
tables.show(products.map("{:,}".format).rename_axis("real multiplications"))

# %%
# For k = 5 the FFT takes 11 times as many multiplications, at k = 64 three times as
# many, at 256 equally many and at 512 about half.
cost = products["by FFT of real numbers"] / products["directly"]
sizes = ["k = 5", "k = 64", "k = 256", "k = 512"]
assert cost[sizes].round(1).tolist() == [10.7, 3.1, 1.0, 0.5]

# %% [markdown]
# The second reason is accuracy. A transform adds and subtracts coefficients of all sizes, so every result carries a
# rounding error in proportion to the *largest* coefficient. Here two polynomials of eight elements each are multiplied
# in float32. The scores are normal with standard deviation 3, and $\tau = 0.1$.

# %%
drawn = 3 * torch.randn(16, generator=torch.Generator().manual_seed(16))
weights = torch.exp(drawn / (5 * 0.1)).tolist()
halves = [
    torch.tensor(summation(weights[:8], 5)),
    torch.tensor(summation(weights[8:], 5)),
]

fractions = [[Fraction(value.item()) for value in half] for half in halves]
exact = [float(value) for value in multiply(*fractions, 5)]
transforms = [torch.fft.rfft(half, 16) for half in halves]
by_fft = torch.fft.irfft(transforms[0] * transforms[1], 16)[:6]
directly = torch.stack(multiply(*[list(half) for half in halves], 5))
print(f"coefficients from {exact[0]:g} to {exact[5]:.0e}")

# %% tags=["hide-input"]
found = {"directly": directly, "by FFT": by_fft}
truth = torch.tensor(exact, dtype=torch.float64)
relative = {name: (v.double() / truth - 1).abs() for name, v in found.items()}
accuracy = pd.DataFrame(relative, index=[f"σ{subscripts[j]}" for j in range(6)])
shown = accuracy.map(lambda error: f"{error:.0e}" if error else "0")
tables.show(shown.rename_axis("relative error"))

# %%
# Sums of products are accurate to rounding; by FFT σ₀ to σ₃ have no right digit.
assert accuracy["directly"].max() < 1e-6
assert accuracy["by FFT"].iloc[:4].min() > 0.5

# %% [markdown]
# With the FFT the small coefficients are lost, and the next products in the tree need all of them. Logarithms, the
# remedy of the next chapter, do not help: a transform subtracts, and its intermediate results may be negative. The
# direct product only adds and multiplies positive numbers.
#
# ## A first timing
#
# This small timing takes the package's versions on one thread of this machine's processor, with 32 rows at a time.
# Summation takes one step per element. The tree works in logarithms, which chapter 4 explains and which make each
# operation more expensive. *Pivot* is the algorithm of chapter 6. [Chapter 7](07_speed.ipynb) measures with care.


# %%
def milliseconds(algorithm, n):
    x = torch.randn(32, n, generator=torch.Generator().manual_seed(0))
    times = repeat(
        lambda: log_symmetric_polynomials(x, 5, algorithm=algorithm), number=1, repeat=9
    )
    return 1e3 * min(times)


names = ["summation", "divide_and_conquer", "pivot"]
times = {
    name.replace("_", " "): {f"{n:,}": milliseconds(name, n) for n in timed_sizes}
    for name in names
}
times = pd.DataFrame(times).rename_axis("n").rename_axis("milliseconds", axis=1)
tables.show(times.map("{:.2f}".format))

# %%
# All algorithms give the same polynomials as enumeration.
x = torch.randn(4, 20, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
truth = log_symmetric_polynomials(x, 5, algorithm="enumeration")
for name in names:
    result = log_symmetric_polynomials(x, 5, algorithm=name)
    assert torch.allclose(result, truth, rtol=1e-12)

# %% [markdown]
# ## What we saw
#
# - The loss is $-\tau \log$ of the share of the weight that lies on sets with the true class.
# - The loss needs only $\sigma_{k-1}$ and $\sigma_k$ of the other classes, eq. (10). These are two coefficients of the
#   polynomial $\prod_i (1 + e_i X)$.
# - Summation makes $kn - k(k-1)/2$ multiplications in $n$ dependent steps. Divide and conquer makes fewer than $2kn$ in
#   $\log_2 n$ dependent steps.
# - The paper's inversion and rescaling are not needed. The FFT would take more multiplications for $k$ below about
#   256, and it would lose the small coefficients.
#
# ## Questions
#
# 1. Every product in the tree stops at degree $k$. Why does that not change the coefficients up to $k$?
# 2. How would you compute $\sigma_j$ of all elements *except* element $i$, for every $i$? Chapter 5 needs these
#    numbers.
# 3. With $k = n/2$, which part of the tree does most of the work?

# %% [markdown]
# <details><summary>Answer 1</summary>
#
# The coefficient of $X^j$ in a product is $\sum_i p_i q_{j-i}$. It uses coefficients of degree $j$ and below. A
# coefficient above degree $k$ can therefore only reach coefficients above degree $k$.
#
# </details>
#
# <details><summary>Answer 2</summary>
#
# Leaving each element out in turn takes $n$ times the work. A cheaper way divides the whole polynomial by
# $(1 + e_i X)$: $\sigma_j(\text{without } i) = \sigma_j - e_i\,\sigma_{j-1}(\text{without } i)$. This is Algorithm 2 of
# the paper, and chapter 5 shows when its subtraction fails. Another way keeps, for every $i$, the polynomial of all
# elements before $i$ and the polynomial of all elements after $i$, and multiplies these two.
#
# </details>
#
# <details><summary>Answer 3</summary>
#
# The root. With $k = n/2$ the polynomials become full only at the root, where $m = 2k = n$. So costs rise all the way
# up. Every level costs about twice as much as the level below it, and the product at the root alone costs about half of
# the total.
#
# </details>

# %% [markdown]
# ## Next
#
# [4 · Staying in log space](04_staying_in_log_space.ipynb): for a small $\tau$ the numbers $e_i = \exp(s_i/(k\tau))$
# overflow.
