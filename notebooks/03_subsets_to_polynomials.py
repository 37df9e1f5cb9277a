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
# **You will** find elementary symmetric polynomials in the sum, compute them in three ways, watch the two fast ways at
# work on the spider, and count their operations.
#
# **Paper.** Sections 4.1 and 4.2, eq. (9) to (14), Algorithms 1 and 3, Proposition 5.
#
# **Time.** 15 minutes to read, seconds to run.

# %% tags=["parameters"]
profile = "quick"
k = 3
tau = 1.0
margin = 1.0
counted_sizes = [8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096]

# %%
from functools import reduce
from itertools import combinations
from math import comb, exp, isclose, log
from operator import mul

import ipywidgets as widgets
import numpy as np
import torch

from smooth_topk import log_symmetric_polynomials, smooth_topk_loss
from smooth_topk.study import figures
from smooth_topk.study.chapters import controls, notebook
from smooth_topk.study.chapters.spider import spider
from smooth_topk.study.figures.speed import looks_of_algorithms
from smooth_topk.study.figures.style import DARK

notebook.start(profile)

# %% [markdown]
# ## Too many sets
#
# Eq. (9), the loss of chapter 2, has two sums: one over all sets of $k$ classes, and one over the sets that contain the
# true class. For the seven names of the spider and $k = 3$ they are short.

# %%
scores, names, web = spider()
subsets = list(combinations(range(len(scores)), k))
with_web = [subset for subset in subsets if web in subset]
mean = {subset: scores[list(subset)].mean().item() for subset in subsets}

first = sum(exp((mean[s] + margin * (web not in s)) / tau) for s in subsets)
second = sum(exp(mean[s] / tau) for s in with_web)
loss = tau * log(first) - tau * log(second)
print(f"{len(subsets)} sets, {len(with_web)} with the label: loss {loss:.6f}")

# %%
# The sum over sets is the loss of the package, and these are C(n, k) and C(n−1, k−1).
package = smooth_topk_loss(scores, torch.tensor(web), k=k, tau=tau, margin=margin)
assert isclose(loss, package, rel_tol=1e-12)
assert len(subsets) == comb(7, k)
assert len(with_web) == comb(6, k - 1)

# %% [markdown]
# With $n$ classes there are $\binom{n}{k}$ sets, and $\binom{n-1}{k-1}$ of them contain the true class. (The paper
# prints $\binom{n}{k-1}$ for the second number, see [erratum
# 2](../book/errata.md#2-the-number-of-subsets-that-contain-the-label).) Nobody can list them for many classes:

# %%
for n, size in [(7, 3), (100, 5), (1000, 5)]:
    print(f"n = {n:5,}, k = {size}: {comb(n, size):17,} sets")

# %% [markdown]
# ## Products instead of sets
#
# The exponential of a sum is a product. Write $e_i = \exp(s_i / (k\tau))$. Then the weight of a set, without the
# margin, is the product of the $e_i$ of its members.
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


e = torch.exp(scores / (k * tau)).tolist()
e_web = e.pop(web)  # e keeps the other six
upper, lower = enumeration(e, k), enumeration(e, k - 1)
both = e_web * lower + exp(margin / tau) * upper
equation_10 = tau * log(both) - tau * log(e_web * lower)

print("e of the other six:", ", ".join(f"{value:.1f}" for value in e))
print(f"σ_{k} = {upper:,.1f}, σ_{k - 1} = {lower:,.1f}, loss {equation_10:.6f}")
assert isclose(equation_10, loss, rel_tol=1e-12)

# %% [markdown]
# The loss needs two numbers, $\sigma_{k-1}$ and $\sigma_k$. The rest of this chapter computes them without the sets.
#
# ## The sums are coefficients of a polynomial
#
# From here on, $n$ is the number of elements of the list. Multiply $(1 + e_1 X)(1 + e_2 X) \cdots (1 + e_n X)$ out.
# Each bracket contributes either its 1 or its $e_i X$. A term with $X^j$ arises when exactly $j$ brackets contribute
# their $e_i X$, and every choice of $j$ brackets occurs once. So the coefficient of $X^j$ is $\sigma_j$.
#
# The paper writes $P = (X + e_1) \cdots (X + e_n)$, eq. (11). Its coefficients are the same numbers in reverse order
# (Vieta's formula, eq. 12). NumPy can expand such a product.

# %%
coefficients = np.poly([-value for value in e])  # X^n, ..., X^0 of Π (X + e_i)
sigmas = [1] + [enumeration(e, j) for j in range(1, len(e) + 1)]
print("σ_0 to σ_6:", ", ".join(f"{value:,.1f}" for value in sigmas))
assert np.allclose(coefficients, sigmas)

# %% [markdown]
# The paper then takes a detour: it inverts all elements and rescales the result, eq. (13), to compute only few
# coefficients. Neither step is needed, because $e_i (X + 1/e_i) = 1 + e_i X$
# ([proof](../book/proofs.md#the-polynomial-needs-no-inversion)).
#
# ## One element at a time: the summation algorithm
#
# Suppose that $\sigma_0, \dots, \sigma_k$ of the first $i-1$ elements are known, and element $e_i$ arrives. A set of
# $j$ elements either leaves the new element out, or it consists of the new element and $j-1$ older ones:
#
# $$\sigma_j(e_1, \ldots, e_i) = \sigma_j(e_1, \ldots, e_{i-1}) + e_i \, \sigma_{j-1}(e_1, \ldots, e_{i-1}).$$
#
# This is Algorithm 3. Its inner loop runs over $j$, where the paper prints $i$
# ([erratum 4](../book/errata.md#4-indices-of-the-three-algorithms)). We let $j$ run downwards, from $k$ to 1. Then
# $\sigma_{j-1}$ still has its old value when $\sigma_j$ needs it, and one list is enough.


# %%
def summation(e, k):
    """Algorithm 3: sigma_0..sigma_k."""
    sigma = [1] + [0] * k
    for i, value in enumerate(e, 1):
        for j in range(min(i, k), 0, -1):
            sigma[j] = sigma[j] + value * sigma[j - 1]
    return sigma


assert np.allclose(summation(e, k), sigmas[: k + 1])

# %% [markdown]
# Move the step to watch the table fill.
#
# **Figure.** Algorithm 3 on the spider. Each column is the list after one more element. A cell is its left neighbour
# plus $e_i$ times the cell below that neighbour, as the arrows show.

# %% tags=["hide-input"]
controls.explore(
    lambda ax, step: figures.summation_grid(e, k, step=step, ax=ax),
    size=(7, 2.6),
    step=widgets.IntSlider(description="step i", value=4, min=0, max=len(e)),
)

# %% [markdown]
# Each column needs the column before it. So there are $n$ steps, and no two of them can run at the same time. A
# graphics card works best with few steps and much work in each of them.
#
# ## Pairs of pairs: divide and conquer
#
# The brackets may be multiplied in any order. Algorithm 1 multiplies neighbours, then the results of neighbours, and so
# on. This gives a tree with $\log_2 n$ levels (rounded up), and all products of one level are independent. If a level
# has an odd number of polynomials, the polynomial 1 is added, which changes no product. Coefficients above degree $k$
# are never needed, so every product stops there.


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


assert np.allclose(divide_and_conquer(e, k), sigmas[: k + 1])

# %% [markdown]
# Climb the tree level by level, and change $k$. With $k = 6$ nothing is dropped, and the root has all coefficients.
#
# **Figure.** The tree of the spider, truncated at degree $k$. Dots mark terms that were dropped. The root holds
# $\sigma_0$ to $\sigma_k$.

# %% tags=["hide-input"]
controls.explore(
    lambda ax, level, k: figures.product_tree(e, k, levels=level, ax=ax),
    size=(7.4, 3.8),
    level=widgets.IntSlider(description="level", value=3, min=0, max=3),
    k=controls.k_slider(k, maximum=6),
)

# %%
# With one to six elements, and an element of zero, both algorithms agree.
for n in range(1, 7):
    assert np.allclose(divide_and_conquer(e[:n], n)[: n + 1], summation(e[:n], n))
assert divide_and_conquer([0, 2, 3], 2) == summation([0, 2, 3], 2) == [1, 5, 6]

# %% [markdown]
# The paper updates the number of polynomials by $p \leftarrow (p-1)//2$ (integer division), which would drop factors:
# of our six leaves, only two products would remain, and two names would be lost ([erratum
# 4](../book/errata.md#4-indices-of-the-three-algorithms)).
#
# ## The cost, counted
#
# A stopwatch measures the machine as much as the algorithm. Here the functions above run on numbers that count their
# own multiplications.


# %%
class CountedNumber:
    """A number that adds every multiplication it takes part in to `tally`."""

    tally = 0

    def __mul__(self, other):
        CountedNumber.tally += 1
        return self

    def __add__(self, other):
        return self

    __rmul__, __radd__ = __mul__, __add__


def multiplications(algorithm, n, k):
    CountedNumber.tally = 0
    algorithm([CountedNumber() for _ in range(n)], k)
    return CountedNumber.tally


algorithms = (enumeration, summation, divide_and_conquer)
counts = {
    algorithm.__name__: {
        n: multiplications(algorithm, n, k)
        for n in counted_sizes
        if algorithm is not enumeration or n <= 32
    }
    for algorithm in algorithms
}

# %% [markdown]
# **Figure.** Multiplications of the three algorithms against the number of elements $n$, for $k = 3$. Enumeration was
# counted up to 32 elements only.

# %% tags=["hide-input"]
controls.predict(
    "Summation visits one element after the other, the tree multiplies pairs of pairs. "
    "Which of the two makes fewer multiplications?",
    [
        "Summation, by a factor of less than two.",
        "The tree, because it has only $\\log_2 n$ levels.",
        "They make exactly the same number.",
    ],
    right=0,
    then="Enumeration grows like $n^k$. Summation stays below $kn$ and the tree below "
    "$2kn$. What the tree saves is waiting: of its steps only $\\log_2 n$ must run one "
    "after the other, 12 instead of 4,096 for the largest $n$ here.",
)
ax = figures.new_axes(figsize=(5.4, 3.4))
for name, look in looks_of_algorithms(list(counts)).items():
    ax.plot(
        *zip(*counts[name].items(), strict=True), label=name.replace("_", " "), **look
    )
n = np.array(counted_sizes)
ax.plot(n, k * n, color=DARK, linewidth=1, label="kn")
ax.set(xscale="log", yscale="log", xlabel="elements n", ylabel="multiplications")
legend = ax.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=4, columnspacing=1)

# %%
# Enumeration makes (k − 1) C(n, k) multiplications, summation kn − k(k − 1)/2, the
# tree fewer than 2kn for every k that we tried.
assert all(c == (k - 1) * comb(n, k) for n, c in counts["enumeration"].items())
assert all(c == k * n - k * (k - 1) // 2 for n, c in counts["summation"].items())
for n in counted_sizes:
    for degree in (1, 2, 5, 16):
        assert multiplications(divide_and_conquer, n, degree) < 2 * degree * n

# %% [markdown]
# **Proposition 5: the tree costs a multiple of $kn$.** A product of two polynomials of degree $d$ takes about $d^2$
# multiplications, one per pair of coefficients. Let $n$ be a power of two. A tree for $n$ elements consists of two
# trees for $n/2$ elements and one product of their roots, and no degree exceeds $k$. So the number of multiplications
# obeys
#
# $$T(n) = 2\,T(n/2) + \min(k, n/2)^2 .$$
#
# Follow the cost from level to level. Near the leaves the polynomials are short: each level costs twice as much as the
# level below it, because half as many products have factors of twice the degree. Near the root the polynomials are cut
# at degree $k$: each level costs half as much as the level below it, because half as many products have factors of the
# same degree. The most expensive level is in the middle, where the factors reach degree $k$, and costs at most $kn/2$.
# Both sides are geometric series, each less than twice its largest term, so each is below $kn$ and together they are
# below $2kn$. The [proof](../book/proofs.md#proposition-5-the-tree-costs-less-than-2kn) has the sums. The paper charges
# the product at the root $\min(k, n)^2$, which gives $4kn$ and the same order ([erratum
# 10](../book/errata.md#10-the-second-sum-in-the-proof-of-proposition-5)).
#
# The paper also mentions the fast Fourier transform for the products of the tree. It does not help: for $k = 5$ it
# takes eleven times as many multiplications, and it loses the small coefficients
# ([appendix](../book/proofs.md#why-the-fast-fourier-transform-does-not-help)).
#
# The package has all of these algorithms, in logarithms, which the next chapter explains. [Chapter 7](07_speed.ipynb)
# measures their times.

# %%
# The algorithms of the package give the polynomials of this chapter.
x = scores[[j for j in range(7) if j != web]] / (k * tau)
for name in ("enumeration", "summation", "divide_and_conquer", "pivot"):
    log_sigma = log_symmetric_polynomials(x, k, algorithm=name)
    assert np.allclose(log_sigma.exp(), sigmas[: k + 1], rtol=1e-12)

# %% [markdown]
# ## What we saw
#
# - The loss needs only $\sigma_{k-1}$ and $\sigma_k$ of the other classes, eq. (10). These are two coefficients of the
#   polynomial $\prod_i (1 + e_i X)$.
# - Summation makes $kn - k(k-1)/2$ multiplications in $n$ sequential steps. Divide and conquer makes fewer than $2kn$
#   in $\log_2 n$ sequential steps.
# - The paper's inversion and rescaling are not needed, and the fast Fourier transform does not help.
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
# The root. With $k = n/2$ the polynomials reach degree $k$ only at the root. So costs rise all the way up. Every level
# costs about twice as much as the level below it, and the product at the root alone costs about half of the total.
#
# </details>

# %% [markdown]
# ## Next
#
# [4 · Staying in log space](04_staying_in_log_space.ipynb): for a small $\tau$ the numbers $e_i = \exp(s_i/(k\tau))$
# overflow.
