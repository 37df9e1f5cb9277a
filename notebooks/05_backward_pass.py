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
# # 5 · The backward pass
#
# **Question.** The paper computes all derivatives from the results of the forward pass, by repeated subtraction. When
# does the subtraction lose its digits, what does the paper do then, and how accurate is the result?
#
# **You will** write Algorithm 2, watch it lose its digits, meet the series that replaces it, check the exact error of
# the series, and map the error of the gradient over temperatures and scores.
#
# **Paper.** Section 4.3, appendix B.2.2, Algorithm 2, eq. (15) to (18) and (60), Observation 1, Proposition 6.
#
# **Time.** 25 minutes to read, half a minute to run.

# %% tags=["parameters"]
profile = "quick"
k = 5
series_order = 1
points = 41
taus = [10.0, 1.0, 0.1, 0.01, 0.001, 0.0001]
scales = [0.1, 1.0, 10.0, 100.0]
samples = 4
classes = 40

# %%
from fractions import Fraction
from functools import partial

import ipywidgets as widgets
import numpy as np
import pandas as pd
import torch

from smooth_topk import log_symmetric_polynomials, smooth_topk_loss
from smooth_topk.polynomials import (
    backward,
    divide_and_conquer,
    without_label,
)
from smooth_topk.study import figures, measure, tables
from smooth_topk.study.chapters import controls, notebook
from smooth_topk.study.chapters.spider import spider

notebook.start(profile)
generator = torch.Generator().manual_seed(0)

# %% [markdown]
# ## What a derivative is
#
# $\sigma_j$ is linear in each $e_i$, because no product contains $e_i$ twice. The terms with $e_i$ are $e_i$ times all
# products of $j-1$ other elements. So the derivative of $\sigma_j$ with respect to $e_i$ is the sum of those products,
# eq. (16):
#
# $$\delta_{j,i} = \frac{\partial \sigma_j(\mathbf{e})}{\partial e_i} = \sigma_{j-1}(\mathbf{e} \text{ without } e_i).$$
#
# Here are $\delta_{5,i}$ of the six other classes of the spider in its web, at $\tau = 1$:


# %%
def summation(e, k):
    """sigma_0..sigma_k, Algorithm 3 of chapter 3."""
    sigma = [1] + [0] * k
    for value in e:
        sigma = [1] + [sigma[j] + value * sigma[j - 1] for j in range(1, k + 1)]
    return sigma


# %%
scores, names, label = spider()
others = torch.cat([scores[:label], scores[label + 1 :]])
names = names[:label] + names[label + 1 :]
e = torch.exp(others / (k * 1.0)).requires_grad_()
(by_autograd,) = torch.autograd.grad(summation(e, k)[k], e)
left_out = [summation([*e[:i], *e[i + 1 :]], k - 1)[k - 1] for i in range(len(e))]
left_out = torch.stack(left_out).detach()
assert torch.allclose(by_autograd, left_out, rtol=1e-14)
shown = pd.DataFrame({"e": e.detach(), "δ₅": left_out}, index=names)
tables.show(shown.T.map("{:,.2f}".format))

# %% [markdown]
# ## Algorithm 2
#
# Leaving each element out in turn would take $n$ forward passes. The paper computes $\delta_{j,i}$ from what is already
# known. Split $\sigma_{j-1}(\mathbf{e})$, the sum of all products of $j-1$ elements, into two parts. The products with
# $e_i$ add up to $e_i \, \delta_{j-1,i}$, and those without $e_i$ add up to $\delta_{j,i}$. Solving for $\delta_{j,i}$
# gives eq. (18). The recursion starts from $\delta_{1,i} = 1$, and for $j = 2, \ldots, k$
#
# $$\delta_{j,i} = \sigma_{j-1}(\mathbf{e}) - e_i \, \delta_{j-1,i} .$$
#
# (The paper's loop starts at $j = 1$ and reads a $\delta_{0,i}$ that does not exist:
# [erratum 4](../book/errata.md#4-indices-of-the-three-algorithms).)


# %%
def recursion(value, sigma, k):
    """Algorithm 2: delta_1..delta_k of one element from sigma_0..sigma_{k-1}."""
    delta = [value**0]
    for j in range(2, k + 1):
        delta.append(sigma[j - 1] - value * delta[-1])
    return delta


# %%
# With fractions, which never round, Algorithm 2 is exact for every element and degree.
numbers = [Fraction(round(10 * value), 10) for value in e.tolist()]
sigma = summation(numbers, 6)
for i, value in enumerate(numbers):
    rest = numbers[:i] + numbers[i + 1 :]
    assert recursion(value, sigma, 6) == summation(rest, 5)

# %% [markdown]
# Algorithm 2 also needs little memory. Automatic differentiation keeps every buffer of the tree for the backward pass,
# while Algorithm 2 keeps only $\mathbf{e}$ and the $\sigma_j$. The table counts the numbers kept for one row of 1,000
# classes. The advantage in time is smaller, as [chapter 7](07_speed.ipynb) shows.


# %% tags=["hide-input"]
def numbers_kept(algorithm):
    x, kept = torch.zeros(1, 1000, requires_grad=True), {}

    def pack(tensor):
        kept[tensor.data_ptr()] = tensor.numel()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        log_symmetric_polynomials(x, 5, algorithm=algorithm)
    return sum(kept.values())


memory = {
    "automatic differentiation": numbers_kept("divide_and_conquer_autograd"),
    "Algorithm 2": numbers_kept("divide_and_conquer"),
}
assert memory["Algorithm 2"] < memory["automatic differentiation"] / 10
kept = pd.DataFrame({"numbers kept for the backward pass": memory})
tables.show(kept.map("{:,}".format))

# %% [markdown]
# ## Where it breaks
#
# As $\tau$ falls, the elements of the spider move apart. At $\tau = 0.1$ the largest, *gold*, is 9,000 times as large as
# the smallest. The table shows the relative errors of the derivatives for *gold* by Algorithm 2 in single precision
# (float32).


# %%
def exactly(value):
    """The same number as a fraction; sums and products of fractions do not round."""
    return Fraction(value.item())


def recursion_errors(e, k):
    """Relative errors of delta_2..delta_k of the first element by Algorithm 2 in float32."""
    e = e.float()
    exact = summation([exactly(value) for value in e[1:]], k - 1)
    found = recursion(e[0], summation(e, k), k)
    ratios = [found[j - 1].item() / float(exact[j - 1]) for j in range(2, k + 1)]
    return [abs(ratio - 1) for ratio in ratios]


elements = {value: torch.exp(others / (k * value)) for value in (1.0, 0.3, 0.1, 0.08)}
errors = {f"τ = {tau:g}": recursion_errors(e, k) for tau, e in elements.items()}
assert 0.4 < errors["τ = 0.1"][-1] < 0.5
assert errors["τ = 0.08"][-1] > 100
assert round((elements[0.1].max() / elements[0.1].min()).item(), -3) == 9000
shown = pd.DataFrame(errors, index=["δ₂", "δ₃", "δ₄", "δ₅"]).T
tables.show(shown.map("{:.0e}".format))

# %% [markdown]
# At $\tau = 0.1$ the last derivative, $\delta_5$, is off by 40 %, and at $\tau = 0.08$ by a factor of more than 100. Why?
# Nearly all of $\sigma_{j-1}$ consists of products with
# *gold*, which is $e_i \, \delta_{j-1,i}$. The recursion subtracts two numbers that are nearly equal, and what remains
# consists largely of their rounding errors. The next step multiplies the error by $e_i$ again.
#
# To see the law, let one element $e_i$ grow among ten others that are near one.
#
# **Figure.** Relative errors of $\delta_{2,i}$ to $\delta_{5,i}$ by Algorithm 2 in float32, compared with exact
# fractions. On these log scales the slopes are 1, 2, 3 and 4: each step multiplies the error by $e_i$. Where the error
# exceeds one, no digit is right, and the sign may be wrong too.

# %% tags=["hide-input"]
near_one = torch.exp(0.3 * torch.randn(10, generator=generator))


def with_large(value, factor=1.0):
    return factor * torch.cat([torch.tensor([value]), near_one]).float()


values = np.logspace(-2, 8, points)
rows = [
    (value, rf"$\delta_{{{j}}}$", error)
    for value in values
    for j, error in enumerate(recursion_errors(with_large(value), k), 2)
]
broken = pd.DataFrame(rows, columns=["e", "derivative", "error"])

ax = figures.error_curves(broken, x="e", curves="derivative")

# %% [markdown]
# This is **Observation 1** of the paper. Let $u$ be the machine precision, the relative size of a rounding error, which
# is about $10^{-7}$ in float32. The rounding error of the first subtraction is about $e_i u$. Each of the $k-2$ further
# steps multiplies it by $e_i$. So the error of $\delta_{k,i}$ grows like $e_i^{\,k-1} u$. (The paper starts from an
# error $\epsilon$ of the first subtraction and ends with $e_i^{\,k-1} \epsilon$, one power more than necessary:
# [erratum 11](../book/errata.md#11-the-exponent-of-observation-1-is-loose).)
#
# The observation names two conditions: $e_i$ is far above one, and $e_i$ is far above the other elements. Only the
# second condition matters, because multiplying all elements by a constant does not change a relative error.

# %%
# At e_i = 1 the recursion is right to five digits; at 1e5 δ_5 has none; from 1e5 to 1e7
# the errors of δ_3, δ_4 and δ_5 grow by about 100², 100³ and 100⁴.
assert max(recursion_errors(with_large(1.0), k)) < 1e-5
before, after = (recursion_errors(with_large(value), k) for value in (1e5, 1e7))
assert before[-1] > 1
growth = {j: after[j - 2] / before[j - 2] for j in (3, 4, 5)}
assert all(0.1 < ratio / 100 ** (j - 1) < 10 for j, ratio in growth.items())
# Scaled down by a million, δ_5 of the same elements has no right digit either; elements
# of equal size give five right digits, even if all of them are a million.
assert recursion_errors(with_large(1e5, 2.0**-20), k)[-1] > 1
assert max(recursion_errors(with_large(1.0, 2.0**20), k)) < 1e-5

# %% [markdown]
# ## The series
#
# Read the recursion backwards: $\delta_{j-1,i} = (\sigma_{j-1} - \delta_{j,i}) / e_i$. In this direction every step
# *divides* the error by $e_i$. That suggests a plan: pretend that $\delta_{k+p+1,i}$, which is $p+1$ degrees higher, is
# zero, and come down from there to $\delta_{k,i}$. The first step down gives $\sigma_{k+p}/e_i$, the second gives
# $\sigma_{k+p-1}/e_i - \sigma_{k+p}/e_i^2$, and after $p + 1$ steps we have
#
# $$\tilde\delta_{k,i}^{(p)} = \sum_{j=0}^{p} (-1)^j \, \frac{\sigma_{k+j}(\mathbf{e})}{e_i^{\,j+1}}.$$
#
# The number $p$ is the *order* of the series. The paper's eq. (60) prints the exponent $j$ instead of $j+1$
# ([erratum 1](../book/errata.md#1-the-series-misses-a-factor)).
#
# The value that we replaced by zero is $\delta_{k+p+1,i} = \sigma_{k+p}(\mathbf{e} \text{ without } e_i)$, and each of
# the $p + 1$ steps divides it by $e_i$. So the error is exactly $\sigma_{k+p}(\mathbf{e} \text{ without } e_i) /
# e_i^{\,p+1}$. This is **Proposition 6**. Fractions do not round, so the equality can be checked exactly, here for
# $\delta_2$ of *gold*:


# %%
def series(value, sigma, k, p, shift=1):
    """The p-th order approximation of delta_k; shift=0 is the exponent as printed."""
    return sum((-1) ** j * sigma[k + j] / value ** (j + shift) for j in range(p + 1))


# %%
n, degree = len(numbers), 2
gold, rest = numbers[0], summation(numbers[1:], n)
sigma = summation(numbers, n)
for p in range(n - degree + 1):
    error = abs(rest[degree - 1] - series(gold, sigma, degree, p))
    print(f"p = {p}: exact {float(rest[degree - 1]):.1f}, error {float(error):.4f}")
    assert error == rest[degree + p] / gold ** (p + 1)

# %%
# The complete series is exact; with the printed exponent it is wrong by the factor e_i.
complete = n - degree  # no term is left out
assert series(gold, sigma, degree, complete) == rest[degree - 1]
printed = series(gold, sigma, degree, complete, shift=0)
assert printed == gold * rest[degree - 1]

# %% [markdown]
# ## When to use which
#
# The recursion is accurate for small elements, and the series is accurate for large ones.
#
# **Figure.** Relative errors of $\delta_{k,i}$ in float32 for one element $e_i$ among ten others near one. To the left
# of the point where the two curves cross, the recursion is better. To the right, the series is better. Move the order
# $p$, then $k$: for $k = 1$ the recursion has no error.


# %% tags=["hide-input"]
controls.predict(
    r"Neither method is good where the two curves cross. What happens at the crossing "
    r"when the order $p$ of the series grows?",
    ["The error there becomes smaller.", "It stays: only the place moves."],
    right=0,
    then=r"With a larger $p$ the crossing moves to the left, where the recursion has lost "
    r"fewer digits. But even with $p = 4$ the better method is off by more than a rounding.",
)


def compared(k, p):
    """Errors of the recursion and of the series of order p over e_i."""
    exact = float(summation([exactly(value) for value in near_one], k - 1)[-1])
    rows = []
    for value in values:
        e = with_large(value)
        sigma = summation(e, k + p)
        found = {"recursion": recursion(e[0], sigma, k)[-1]}
        found[f"series, p = {p}"] = series(e[0], sigma, k, p)
        rows += [(value, m, abs(float(r) / exact - 1)) for m, r in found.items()]
    return pd.DataFrame(rows, columns=["e", "method", "error"])


def draw(ax, k, p):
    options = {"x": "e", "curves": "method", "limits": (1e-9, 1e9)}
    figures.error_curves(compared(k, p), ax=ax, **options)


controls.explore(
    draw,
    size=(5.4, 4.2),
    p=widgets.IntSlider(description="order p", value=series_order, min=0, max=4),
    k=controls.k_slider(k, maximum=6),
)

# %% [markdown]
# The paper's rule of thumb is $p \approx 0.2 k$, which is $p = 1$ for $k = 5$. How good is the better of the two
# methods then, and how good is it with $p = 4$?

# %%
best = {p: compared(k, p).groupby("e")["error"].min().max() for p in (1, 4)}
print(
    f"at the crossing the better method is off by {best[1]:.0e}; p = 4: {best[4]:.0e}"
)
assert backward.default_series_order(5) == 1
assert best[1] > best[4] > 1e-7

# %% [markdown]
# ## Knowing which is which
#
# A program has to choose between recursion and series without knowing their errors. The exact error of the series
# contains $\sigma_{k+p}$ without $e_i$, which is as hard to compute as the derivative itself. The paper says so: "the
# approximation error is not controlled at runtime". Instead the paper looks at the subtraction, and uses the series
# where the two terms "have a very small relative difference".
#
# What is very small? The paper gives no number. We compare four rules.
#
# - *Never* use the series.
# - *Each step alone:* use the series if one step subtracts terms whose relative difference is below $\sqrt{u}$. Then
#   half of the digits are lost in that step.
# - *Product of all steps*, the rule of the package: a step hands its error on to the next one, so the relative
#   differences of all steps so far are multiplied. The series is used if the product is below $\sqrt{u}$, or below the
#   rounding error of the logarithms.
# - *Parts agree*, the rule of the authors' public code: written out, the recursion is a sum with alternating signs. Let
#   $P$ be the sum of its positive terms and $N$ the sum of its negative ones. The series is used where
#   $(\log P - \log N) / (|\log N| + 10^{-5}) < 10^{-5}$.
#
# The table tests the four rules on normal random numbers $x_i = \log e_i$ of four scales. The error is that of
# $\partial \log \sigma_k / \partial x_i$, a number between 0 and 1; "inf" means that a derivative was not finite.


# %% tags=["hide-input"]
def by_parts(x, log_sigma, j):
    """d log sigma_j / dx as the public code sums it, and where its rule rejects it."""
    powers = torch.arange(j)
    terms = log_sigma[:, j - 1 - powers, None] + powers[:, None] * x[:, None]
    positive, negative = terms[:, ::2].logsumexp(1), terms[:, 1::2].logsumexp(1)
    log_delta = positive + torch.log(-torch.expm1(negative - positive))
    agree = (positive - negative) / (negative.abs() + 1e-5) < 1e-5
    return torch.exp(x + log_delta - log_sigma[:, j, None]), agree


def with_rules(x):
    """Derivatives of log sigma_k by x for four rules of taking the series."""
    log_sigma = divide_and_conquer.log_sigma(x, k + series_order)
    by_series = backward.series(x, log_sigma, k, series_order)[:, -1]
    log_delta, product_is_small = backward.recursion(x, log_sigma, k)
    value = torch.exp(x + log_delta[:, -1] - log_sigma[:, k, None])
    differences = torch.exp(log_delta[:, 1:] - log_sigma[:, 1:k, None])
    step_is_small = ~(differences > torch.finfo(x.dtype).eps ** 0.5)
    rules = {
        "never": (value, torch.zeros_like(step_is_small[:, 0])),
        "each step alone, √u": (value, step_is_small.any(1)),
        "product of all steps, √u (package)": (value, product_is_small[:, -1]),
        "parts agree, 1e-5 (public code)": by_parts(x, log_sigma, k),
    }
    return {name: torch.where(use, by_series, v) for name, (v, use) in rules.items()}


derivative = torch.func.jacrev(lambda row: log_symmetric_polynomials(row, k)[k])
normal = torch.randn(64, classes, generator=generator)
columns = {}
for scale in (1, 10, 100, 1000):
    x = scale * normal
    truth = torch.stack([derivative(row) for row in x.double()])
    found = {n: (v - truth).abs().max().item() for n, v in with_rules(x).items()}
    columns[f"scale {scale:,}"] = pd.Series(found).fillna(np.inf)
rules = pd.DataFrame(columns)
# Without the series, or with steps judged alone, errors exceed the largest derivative;
# with the package's rule they stay below a fifth, with the public code's below 0.02.
assert (rules.max(axis=1).iloc[:2] > 1).all()
assert rules.loc["product of all steps, √u (package)"].max() < 0.2
assert rules.loc["parts agree, 1e-5 (public code)"].max() < 0.02
tables.show(rules.map("{:.0e}".format).rename_axis("largest error of a derivative"))

# %% [markdown]
# Judging each step alone is not enough. With the product of all steps, errors of up to a tenth remain, and with the
# rule of the public code errors of up to a hundredth. A rule can only choose between recursion and series, and there
# are elements for which neither is good.
#
# ## What is lost
#
# So far we looked at single derivatives. What remains in the gradient of the loss, which training uses?
#
# **Figure.** The error of the whole gradient of the loss, relative to its largest entry, over the temperature and the
# scale of the scores, in float32. In crossed cells the gradient is not finite. Where $\tau$ is large compared with the
# scores, all elements are alike and Algorithm 2 is accurate. Elsewhere Algorithm 2 alone fails. With the series an
# error of about a thousandth remains in most cells. The error is larger where $\tau$ is smallest and the scores are
# largest. Both statements hold for the rule of the package and for that of the public code.


# %% tags=["hide-input"]
def loss_with(slopes, scores, labels, *, k, tau):
    """The smooth loss; slopes(x, log_sigma, j) gives the derivatives of log sigma_j."""
    x = scores / (k * tau)
    others, true_x = without_label(x, labels), x.gather(1, labels[:, None])[:, 0]
    fixed = others.detach()
    log_sigma = divide_and_conquer.log_sigma(fixed, k + series_order)
    lower, upper = (
        log_sigma[:, j] + (slopes(fixed, log_sigma, j) * (others - fixed)).sum(1)
        for j in (k - 1, k)  # the value, with the slopes as its derivatives
    )
    return tau * torch.nn.functional.softplus(1 / tau - true_x + upper - lower)


def alone(x, log_sigma, j):
    log_delta, _ = backward.recursion(x, log_sigma, j)
    return torch.exp(x + log_delta[:, -1] - log_sigma[:, j, None])


def public_rule(x, log_sigma, j):
    value, agree = by_parts(x, log_sigma, j)
    return torch.where(
        agree, backward.series(x, log_sigma, j, series_order)[:, -1], value
    )


package = partial(smooth_topk_loss, algorithm="divide_and_conquer", reduction="none")
losses = {
    "Algorithm 2 alone": partial(loss_with, alone),
    "series p = 1, package": partial(package, series_order=1),
    "series p = 1, public rule": partial(loss_with, public_rule),
    "series p = 4, package": partial(package, series_order=4),
}
drawn = measure.random_scores(samples, classes)
errors = measure.error_table(losses, *drawn, k=k, taus=taus, scales=scales)

shown = errors[errors["algorithm"] != "series p = 4, package"]
axes = figures.error_maps(shown, error="gradient_error")

# %% tags=["hide-input"]
gradient_error = errors.groupby("algorithm", sort=False)["gradient_error"]
summary = gradient_error.agg(["median", "max"])
# Algorithm 2 alone is not finite somewhere; with the series errors above 0.001 remain.
assert np.isinf(summary.loc["Algorithm 2 alone", "max"])
assert summary["max"].iloc[1:].between(1e-3, 1).all()
summary = summary.rename(columns={"max": "largest"})
tables.show(summary.map("{:.1e}".format).rename_axis("error of the gradient, float32"))

# %% [markdown]
# In the corner of small $\tau$ and large scores the logarithms reach a million, where neighbouring float32 numbers are
# about 0.1 apart. Recursion and series take exponentials of differences of such logarithms, so no rule and no order $p$
# helps there: the gradient is off by a fifth.
#
# Would float64 help? The errors are smaller, but the series stays an approximation, and its error is far above the
# rounding error of float64. Automatic differentiation of the tree needs no series. It costs memory and, in float32, the
# digits that it lost in chapter 4. The last row of the table is the pivot algorithm of chapter 6.

# %% tags=["hide-input"]
algorithms = ["divide_and_conquer", "divide_and_conquer_autograd", "pivot"]
each = {"reduction": "none"}
losses = {n: partial(smooth_topk_loss, algorithm=n, **each) for n in algorithms}
both = {"dtypes": [torch.float32, torch.float64], "taus": taus, "scales": scales}
found = measure.error_table(losses, *drawn, k=k, **both)
by_dtype = {"index": "algorithm", "columns": "dtype", "aggfunc": "max", "sort": False}
summary = found.pivot_table("gradient_error", **by_dtype)
# The series leaves an error in float64 too; pivot is accurate to rounding in both.
assert summary["float64"]["divide_and_conquer"] > 1e-8
assert summary["float32"]["pivot"] < 1e-6
assert summary["float64"]["pivot"] < 1e-14
shown = summary.rename(index=tables.algorithm_name).rename_axis(columns=None)
tables.show(shown.map("{:.1e}".format).rename_axis("largest error of the gradient"))

# %% [markdown]
# ## What we saw
#
# - The derivative of $\sigma_j$ with respect to an element is $\sigma_{j-1}$ without that element. Algorithm 2 computes
#   it by subtraction, with little memory.
# - Algorithm 2 fails for an element far above the others. Its error grows like $e_i^{\,k-1}$.
# - The series is accurate for such an element. The error of the series is a single term, which is as hard to compute as
#   the derivative.
# - For elements of intermediate size neither is good. In float32 the gradient is off by about a thousandth in the part
#   of the map where the series is needed, and by a fifth in its worst corner.
# - A program has to choose between recursion and series without knowing their errors. Judging each step alone leaves
#   derivatives that are wrong by orders of magnitude. The rules of the package and of the public code leave errors of
#   about a thousandth in the gradient.
# - The pivot algorithm needs no series. Chapter 6 derives it.
#
# ## Questions
#
# 1. The derivatives of $\log \sigma_k$ with respect to the $x_i$ lie between 0 and 1 and sum to $k$. Why? What do they
#    say about the sets?
# 2. Two elements are equal and far above the others. Which terms of the series for one of them are large?
# 3. The recursion is accurate for small elements. How could one make *every* element small?

# %% [markdown]
# <details><summary>Answer 1</summary>
#
# $\partial \log \sigma_k / \partial x_i = e_i\,\delta_{k,i}/\sigma_k$ is the share of the weight that lies on sets with
# class $i$: the probability that a random set, drawn by weight, contains $i$. Every set has $k$ members, so these
# probabilities sum to $k$. Chapter 11 uses them for prediction.
#
# </details>
#
# <details><summary>Answer 2</summary>
#
# Let both be $E$, and let *rest* be the other elements. The first term, $\sigma_k / E$, is about
# $E\,\sigma_{k-2}(\text{rest})$. The second, $\sigma_{k+1}/E^2$, is about $\sigma_{k-1}(\text{rest})$, smaller by a
# factor of the order of $E$, and so on. Only the first term is large. A second large element does no harm. Elements of
# intermediate size do.
#
# </details>
#
# <details><summary>Answer 3</summary>
#
# Not every element, but all except $k$. Dividing all elements by a constant does not change a relative error, so divide
# by the $k$-th largest element. Then all elements below the $k$ largest are at most one, and none of them is far above
# the others, because $k$ elements are at least as large. The $k$ largest need another treatment. This is the idea of
# chapter 6.
#
# </details>

# %% [markdown]
# ## Next
#
# [6 · Pivot](06_pivot.ipynb): derivatives that are accurate to rounding, without logarithms and without a series.
