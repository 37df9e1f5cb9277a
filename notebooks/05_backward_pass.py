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
# **Question.** The paper computes all derivatives from the results of the forward pass by one subtraction each. When
# does that break, what does the paper do then, and what is lost?
#
# **You will** write Algorithm 2, watch it lose its digits, meet the series that replaces it, check its exact error,
# and map the error of the gradient over temperatures and scores.
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
from smooth_topk.study import controls, figures, notebook, tables
from smooth_topk.symmetric_polynomials import backward, divide_and_conquer, without_label

notebook.start(profile)

# %% [markdown]
# ## What a derivative is
#
# $\sigma_j$ is linear in each $e_i$: the terms with $e_i$ are $e_i$ times all products of $j-1$ other elements. Its
# derivative is the sum of those products, eq. (16):
#
# $$\delta_{j,i} = \frac{\partial \sigma_j(\mathbf{e})}{\partial e_i} = \sigma_{j-1}(\mathbf{e} \text{ without } e_i).$$


# %%
def summation(e, k):
    """sigma_0..sigma_k, Algorithm 3 of chapter 3."""
    sigma = [1] + [0] * k
    for value in e:
        sigma = [1] + [sigma[j] + value * sigma[j - 1] for j in range(1, k + 1)]
    return sigma


# %%
e = torch.tensor([1.0, 2.0, 0.5, 3.0, 1.5, 4.0], dtype=torch.float64, requires_grad=True)
(by_autograd,) = torch.autograd.grad(summation(e, 3)[3], e)
left_out = torch.stack([summation([*e[:i], *e[i + 1 :]], 2)[2] for i in range(len(e))])
assert torch.allclose(by_autograd, left_out, rtol=1e-14)
print("δ_3,i =", left_out.tolist())

# %% [markdown]
# ## Algorithm 2
#
# Leaving each element out in turn would take $n$ forward passes. The paper finds $\delta_{j,i}$ in what is already
# known: of the products of $j-1$ elements, those with $e_i$ are $e_i \, \delta_{j-1,i}$, and the others are
# $\delta_{j,i}$, eq. (18):
#
# $$\delta_{1,i} = 1, \qquad
#   \delta_{j,i} = \sigma_{j-1}(\mathbf{e}) - e_i \, \delta_{j-1,i} \quad \text{for } j = 2, \ldots, k.$$
#
# (The paper's loop starts at $j = 1$, which reads a $\delta_{0,i}$ that does not exist: correction 4.)


# %%
def recursion(value, sigma, k):
    """Algorithm 2: delta_1..delta_k of one element from sigma_0..sigma_{k-1}."""
    delta = [value**0]
    for j in range(2, k + 1):
        delta.append(sigma[j - 1] - value * delta[-1])
    return delta


# %% [markdown]
# With fractions, which never round, it is exact.

# %%
numbers = [Fraction(1), Fraction(2), Fraction(1, 2), Fraction(3), Fraction(3, 2), Fraction(4)]
sigma = summation(numbers, 6)
for i, value in enumerate(numbers):
    others = numbers[:i] + numbers[i + 1 :]
    assert recursion(value, sigma, 6) == summation(others, 5)
print("exact for every element and every degree")

# %% [markdown]
# And it is frugal. Automatic differentiation keeps every buffer of the tree for the backward pass; Algorithm 2 keeps
# $\mathbf{e}$ and the $\sigma_j$. Here are the numbers kept for one row of 1,000 classes.


# %%
def numbers_kept(algorithm):
    x, kept = torch.zeros(1, 1000, requires_grad=True), {}
    hooks = torch.autograd.graph.saved_tensors_hooks(lambda t: kept.update({t.data_ptr(): t.numel()}) or t, lambda t: t)
    with hooks:
        log_symmetric_polynomials(x, 5, algorithm=algorithm)
    return sum(kept.values())


# %%
memory = {name: numbers_kept(name) for name in ("divide_and_conquer_autograd", "divide_and_conquer")}
assert memory["divide_and_conquer"] < memory["divide_and_conquer_autograd"] / 10
tables.show(pd.DataFrame({"numbers kept for the backward pass": memory}).map("{:,}".format))

# %% [markdown]
# ## Where it breaks
#
# Let one element be large and the others near one. Then nearly all of $\sigma_{j-1}$ is $e_i \, \delta_{j-1,i}$, and
# the subtraction leaves the rounding errors. In single precision, with $e_i = 10^5$:

# %%
generator = torch.Generator().manual_seed(0)
others = torch.exp(0.3 * torch.randn(10, generator=generator))
e = torch.cat([torch.tensor([1e5]), others])
total = e.sum()
print(f"σ_1 = {total:.2f}, minus e_i = {total - e[0]:.4f}, exact {others.double().sum():.4f}")


# %% [markdown]
# Half of the digits of $\delta_{2,i}$ are gone, and the next step multiplies that error by $e_i$. The relative error
# of every $\delta_{j,i}$, against exact fractions, while $e_i$ grows:


# %%
def recursion_errors(value, others, k):
    """Relative errors of delta_2..delta_k by Algorithm 2 in float32."""
    e = torch.cat([torch.tensor([value]), others]).float()
    exact = summation([Fraction(number.item()) for number in e[1:]], k - 1)
    found = recursion(e[0], summation(e, k), k)
    return [abs(found[j - 1].item() / float(exact[j - 1]) - 1) for j in range(2, k + 1)]


# %%
values = np.logspace(-2, 8, points)
rows = [
    (value, rf"$\delta_{{{j}}}$", error)
    for value in values
    for j, error in enumerate(recursion_errors(value, others, k), 2)
]
broken = pd.DataFrame(rows, columns=["e", "derivative", "error"])
ax = figures.error_curves(broken, x="e", curves="derivative")

# %% [markdown]
# This is **Observation 1**. On the log scales the curves are straight lines of slope 1, 2, 3, 4: each step multiplies
# the error by $e_i$. Beyond an error of one not a single digit is right, nor the sign.

# %%
assert max(recursion_errors(1.0, others, k)) < 1e-5
assert recursion_errors(1e5, others, k)[-1] > 1
growth = [recursion_errors(1e7, others, k)[j - 2] / recursion_errors(1e5, others, k)[j - 2] for j in (3, 4, 5)]
assert all(0.1 < ratio / 100 ** (j - 1) < 10 for j, ratio in enumerate(growth, 3))
print("error at 1e7 ÷ error at 1e5 for δ_3, δ_4, δ_5:", [f"{ratio:.0e}" for ratio in growth])

# %% [markdown]
# The observation asks for $e_i \gg 1$ and $e_i \gg$ the others. Only the second matters: multiplying all elements by
# a constant changes no relative error.

# %%
factor = 2.0**-20
assert recursion_errors(1e5 * factor, others * factor, k)[-1] > 1
assert max(recursion_errors(1.0 / factor, others / factor, k)) < 1e-5

# %% [markdown]
# ## The series
#
# Read the recursion backwards: $\delta_{j-1,i} = (\sigma_{j-1} - \delta_{j,i}) / e_i$. Now a large $e_i$ *divides*
# the error. Go up $p$ steps to $\delta_{k+p+1,i}$, drop it, and come back:
#
# $$\tilde\delta_{k,i}^{(p)} = \sum_{j=0}^{p} (-1)^j \, \frac{\sigma_{k+j}(\mathbf{e})}{e_i^{\,j+1}}.$$
#
# The paper's eq. (60) prints the exponent $j$ instead of $j+1$ (correction 1). **Proposition 6** gives the error: it
# is the dropped term, $\sigma_{k+p}(\mathbf{e} \text{ without } e_i) / e_i^{\,p+1}$, exactly. With fractions,
# "exactly" can be asserted.


# %%
def series(value, sigma, k, p, shift=1):
    """The p-th order approximation of delta_k; shift=0 is the exponent as printed."""
    return sum((-1) ** j * sigma[k + j] / value ** (j + shift) for j in range(p + 1))


# %%
n, i, degree = len(numbers), 5, 2
rest = summation(numbers[:i] + numbers[i + 1 :], n)
for p in range(n - degree + 1):
    error = abs(rest[degree - 1] - series(numbers[i], sigma, degree, p))
    assert error == rest[degree + p] / numbers[i] ** (p + 1)
    print(f"p = {p}: error {error} = {float(error):.4f}")

# %%
complete = n - degree  # no term is left out
assert series(numbers[i], sigma, degree, complete) == rest[degree - 1]
assert series(numbers[i], sigma, degree, complete, shift=0) == numbers[i] * rest[degree - 1]
print("as printed, the complete series is off by the factor", numbers[i])

# %% [markdown]
# ## When to use which
#
# The recursion is good for small elements, the series for large ones. Both on the same element, in single precision:


# %%
def compared(k, orders):
    """Errors of the recursion and of series of several orders over e_i."""
    rows = []
    for value in values:
        e = torch.cat([torch.tensor([value]), others]).float()
        exact = float(summation([Fraction(number.item()) for number in others], k - 1)[-1])
        sigma = summation(e, k + max(orders))
        found = {"recursion": recursion(e[0], sigma, k)[-1]}
        found |= {f"series, p = {p}": series(e[0], sigma, k, p) for p in orders}
        rows += [(value, name, abs(result.item() / exact - 1)) for name, result in found.items()]
    return pd.DataFrame(rows, columns=["e", "method", "error"])


# %%
both = compared(k, orders=[0, 1, 2, 4])
ax = figures.error_curves(both, x="e", curves="method", limits=(1e-9, 1e9))
# %% [markdown]
# The curves cross. To the left of the crossing the recursion is better, to the right the series, and *at* the
# crossing neither is good. A larger $p$ moves the crossing down. The paper's rule of thumb is $p \approx 0.2 k$.

# %%
best = both[both["method"].isin(["recursion", "series, p = 1"])].groupby("e")["error"].min()
assert backward.default_series_order(5) == 1
assert best.max() > 1e-5
print(f"with p = 1, at e_i = {best.idxmax():.0f} the better of the two is off by {best.max():.1e}")

# %%
controls.explore(
    lambda ax, k, p: figures.error_curves(compared(k, [p]), x="e", curves="method", ax=ax, limits=(1e-9, 1e9)),
    size=(7.4, 3.8),
    k=controls.k_slider(k, maximum=6),
    p=widgets.IntSlider(description="order p", value=series_order, min=0, max=4),
)

# %% [markdown]
# ## Knowing which is which
#
# The exact error of the series contains $\sigma_{k+p}$ without $e_i$, which is as hard to get as the derivative. The
# paper says so: "the approximation error is not controlled at runtime". Instead it looks at the subtraction, and
# switches to the series where the two terms "have a very small relative difference". It gives no number. The package
# multiplies the relative differences of all steps so far, since a step hands its error to the next, and switches when
# the product is below $\sqrt{\varepsilon}$, when half of the digits are gone.
#
# Does the product matter? Compare it with judging each step alone, on normal random scores.

# %%
x = 10 * torch.randn(64, classes, generator=generator)
log_sigma = divide_and_conquer.log_sigma(x, k + series_order)
log_delta, unstable = backward.recursion(x, log_sigma, k)
difference = torch.exp(log_delta[:, 1:] - log_sigma[:, 1:k, None])
each_step = (~(difference > torch.finfo(x.dtype).eps ** 0.5)).cummax(1).values[:, -1]

# %%
truth = torch.func.jacrev(lambda row: log_symmetric_polynomials(row, k)[k])
truth = torch.stack([truth(row) for row in x.double()])
by_recursion = torch.exp(x + log_delta[:, -1] - log_sigma[:, k, None])
by_series = backward.series(x, log_sigma, k, series_order)[:, -1]


def largest_error(use_series):
    error = (torch.where(use_series, by_series, by_recursion) - truth).abs()
    return torch.where(error.isnan(), torch.inf, error).max().item()


# %%
rules = {"each step alone": each_step, "product of all steps": unstable[:, -1], "never": torch.zeros_like(each_step)}
worst = {name: largest_error(use_series) for name, use_series in rules.items()}
tables.show(pd.DataFrame({"largest error of a derivative (they lie between 0 and 1)": worst}).map("{:.1e}".format))

# %%
assert worst["product of all steps"] < worst["each step alone"] / 10
assert worst["never"] > 1
print(f"elements that get the series: {unstable[:, -1].float().mean():.0%}")

# %% [markdown]
# ## What is lost
#
# The error of the whole gradient of the loss, relative to its largest entry, over the temperature and the scale of
# the scores. Algorithm 2 alone first; a crossed cell is not finite.


# %%
def loss_by_recursion(scores, labels, *, k, tau):
    """The smooth loss with the derivatives of Algorithm 2 and no series."""
    x = scores / (k * tau)
    others, true_x = without_label(x, labels), x.gather(1, labels[:, None])[:, 0]
    log_sigma = divide_and_conquer.log_sigma(others.detach(), k)
    log_delta, _ = backward.recursion(others.detach(), log_sigma, k)
    slope = torch.exp(others.detach()[:, None] + log_delta - log_sigma[:, 1:, None])
    linear = log_sigma[:, 1:] + (slope * (others - others.detach())[:, None]).sum(2)  # value and slope, nothing else
    return tau * torch.nn.functional.softplus(1 / tau - true_x + linear[:, -1] - linear[:, -2])


# %%
with_series = partial(smooth_topk_loss, algorithm="divide_and_conquer", reduction="none")
losses = {"Algorithm 2 alone": loss_by_recursion}
losses |= {f"with the series, p = {p}": partial(with_series, series_order=p) for p in (1, 4)}
errors = tables.error_table(losses, taus=taus, scales=scales, k=k, classes=classes, samples=samples)
axes = figures.error_maps(errors, error="gradient_error")

# %% [markdown]
# Three regions. Where $\tau$ is large compared with the scores, all elements are alike and the recursion is exact.
# Where it is small, the recursion is lost and the series takes over. Between them the error is what the series
# leaves, often a thousandth of the gradient, and a larger $p$ helps. Where the logarithms are large they have few
# digits left (chapter 4), and no $p$ helps.

# %%
lost = errors.groupby("algorithm", sort=False)["gradient_error"]
assert np.isinf(lost.max()["Algorithm 2 alone"])
assert 1e-3 < lost.max()["with the series, p = 1"] < 1
summary = lost.agg(["median", "max"])
tables.show(summary.map("{:.1e}".format).rename_axis("error of the gradient, float32"))

# %% [markdown]
# Would float64 help? It delays the breakdown, but the series stays an approximation: the error is far above the
# rounding of float64. Automatic differentiation of the tree needs no series; it pays with memory, and in float32 with
# the digits of chapter 4.

# %%
names = ["divide_and_conquer", "divide_and_conquer_autograd", "pivot"]
losses = {name: partial(smooth_topk_loss, algorithm=name, reduction="none") for name in names}
summary = {}
for dtype in (torch.float32, torch.float64):
    found = tables.error_table(losses, taus=taus, scales=scales, k=k, classes=classes, samples=samples, dtype=dtype)
    summary[str(dtype).removeprefix("torch.")] = found.groupby("algorithm", sort=False)["gradient_error"].max()
tables.show(pd.DataFrame(summary).map("{:.1e}".format).rename_axis("largest error of the gradient"))

# %%
assert summary["float64"]["divide_and_conquer"] > 1e-8
assert summary["float32"]["pivot"] < 1e-6
assert summary["float64"]["pivot"] < 1e-14

# %% [markdown]
# ## What we saw
#
# - A derivative of $\sigma_j$ is $\sigma_{j-1}$ without the element. Algorithm 2 gets it by subtraction, with hardly
#   any memory.
# - An element far above the others destroys it: the error grows like $e_i^{\,k-1}$.
# - The series is good exactly there. Its error is one known term, which nobody can afford to compute.
# - Between the two lies a region where neither is good, and where logarithms are large the series has no digits to
#   work with. In float32 the gradient is off by a thousandth in most of the map and by a fifth in its worst corner.
# - The last row of the last table needs no series. Chapter 6 derives it.
#
# ## Questions
#
# 1. The derivatives of $\log \sigma_k$ by the scores lie between 0 and 1 and sum to $k$. Why? What does that say
#    about the sets?
# 2. Two elements are equal and far above the others. Which terms of the series are large?
# 3. The recursion is exact for small elements. How could one make *every* element small?
#
# ## Next
#
# [6 · Pivot](06_pivot.ipynb): exact derivatives without logarithms and without a series.
