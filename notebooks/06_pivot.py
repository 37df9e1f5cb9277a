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
# # 6 · Pivot
#
# **Question.** Can the loss and its gradient be exact in float32, at any temperature, without logarithms and without
# an approximation?
#
# **You will** derive the algorithm that the package uses, write it in 20 lines of torch, find the hard loss inside
# the smooth one, see all derivatives lie on one curve, and map its errors beside those of the paper's algorithms.
#
# **Paper.** Not in the paper. It replaces its section 4.2 (forward) and 4.3 (backward).
#
# **Time.** 30 minutes to read, half a minute to run.

# %% tags=["parameters"]
profile = "quick"
k = 5
tau = 0.3
margin = 1.0
classes = 40
samples = 4
taus = [10.0, 1.0, 0.1, 0.01, 0.001, 0.0001]
scales = [0.1, 1.0, 10.0, 100.0]
newton_degrees = [2, 4, 6, 8, 10, 12, 16, 20, 24]

# %%
from functools import partial
from itertools import product
from math import comb, log
from unittest.mock import patch

import numpy as np
import pandas as pd
import torch
from torch.nn.functional import logsigmoid

from smooth_topk import eager, hard_topk_loss, log_symmetric_polynomials, smooth_topk_loss
from smooth_topk.study import controls, figures, notebook, tables
from smooth_topk.study.exact import exact_loss
from smooth_topk.symmetric_polynomials import pivot

notebook.start(profile)

# %% [markdown]
# ## Divide by the largest term
#
# Chapters 4 and 5 fought with numbers that are huge for one reason: $\sigma_j$ is about as large as its largest term,
# the product of the $j$ largest $e_i$. So divide by it. With $x = s/(k\tau)$ and $x_{[1]} \ge x_{[2]} \ge \ldots$ let
#
# $$S_j = \frac{\sigma_j(\exp \mathbf{x})}{\exp(x_{[1]} + \cdots + x_{[j]})}.$$
#
# One term of $S_j$ is exactly 1 and the others are at most 1. There are $\binom{n}{j}$ terms. Therefore $1 \le S_j
# \le \binom{n}{j}$, whatever $\tau$ is.

# %%
generator = torch.Generator().manual_seed(0)
scores = 3 * torch.randn(samples, classes, generator=generator, dtype=torch.float64)
labels = torch.randint(classes, (samples,), generator=generator)
x = scores[0] / k
ordered = x.sort(descending=True).values
log_sigma = log_symmetric_polynomials(x, k, algorithm="divide_and_conquer")
S = torch.stack([torch.exp(log_sigma[j] - ordered[:j].sum()) for j in range(k + 1)])
print("S_0, ..., S_5 at τ = 1:", [round(value, 3) for value in S.tolist()])

# %%
assert torch.allclose(pivot.scaled_sigmas(x[None], k)[0][:, 0], S)
for value in taus:
    found, _ = pivot.scaled_sigmas(scores, k, 1 / (k * value))
    assert all(1 <= S_j <= comb(classes, j) for j, row in enumerate(found) for S_j in row)
print("1 ≤ S_j ≤ C(n, j) at every τ")

# %% [markdown]
# What underflows in such a sum is below $10^{-38}$ beside a one: negligible, truly. And the upper bound fits: for
# ImageNet and $k = 5$ it is $8 \cdot 10^{12}$. (Where $\binom{n}{k}$ itself exceeds the largest float32, the package
# adds in float64, and beyond that in logarithms; $n$ and $k$ alone decide.) What remains is to compute $S_j$ without
# passing through $\sigma_j$.
#
# ## Head, pivot, tail
#
# The $k$ largest classes are the **head**. Its last member is the **pivot**: its score $s_{[k]}$ is the score that
# the hard loss looks at. All other classes are the **tail**. Measure everything from the pivot:
#
# - head: $t_j = x_{[j]} - x_{[k]} \ge 0$, so $t_k = 0$;
# - tail: $u_i = \exp(x_i - x_{[k]}) \le 1$.

# %%
ax = figures.head_and_tail(scores[0], k=k, tau=tau)

# %% [markdown]
# Move $\tau$. A large $\tau$ makes the whole tail equal to one, a small $\tau$ makes it vanish. It never leaves $[0,
# 1]$.

# %%
controls.explore(
    lambda axes, tau, k: figures.head_and_tail(scores[0], k=k, tau=tau, axes=axes),
    panels=(1, 2),
    size=(9.6, 3.4),
    tau=tau,
    k=k,
)

# %% [markdown]
# ## Tail first, then the head
#
# The polynomials of the tail, $\varepsilon_m = \sigma_m(\mathbf{u})$, are sums of products of numbers up to one.
# Algorithm 3 or a tree gives them in plain arithmetic.

# %%
head = (ordered[:k] - ordered[k - 1]) / tau
u = torch.exp((ordered[k:] - ordered[k - 1]) / tau)
S = torch.tensor([1.0] + [0.0] * k, dtype=torch.float64)
for value in u:
    S[1:] = S[1:] + value * S[:-1].clone()
print("ε_0, ..., ε_5 =", [f"{value:.3g}" for value in S.tolist()])

# %%
assert torch.allclose(S, log_symmetric_polynomials(u.log(), k, algorithm="divide_and_conquer").exp())

# %% [markdown]
# Now the classes of the head join, the pivot first and the largest last. When class $i$ joins,
# $\sigma_j \leftarrow \sigma_j + e^{t_i} \sigma_{j-1}$ as always. But the largest term changes too: before, it was
# $\exp(t_{i+1} + \cdots + t_{i+j})$, and now it is $\exp(t_i + \cdots + t_{i+j-1})$ (beyond the head, $t = 0$). Divide
# each side by its own:
#
# $$S_j \leftarrow e^{\,t_{i+j} - t_i} \, S_j + S_{j-1}.$$
#
# The factor is at most one. All $e^{t_i}$ are gone.

# %%
t = torch.cat([head, torch.zeros(k, dtype=torch.float64)])
for i in reversed(range(k)):
    decay = torch.exp(t[i + 1 : i + 1 + k] - t[i])
    assert decay.max() <= 1
    S[1:] = decay * S[1:] + S[:-1].clone()
print("S_0, ..., S_5 =", [f"{value:.4g}" for value in S.tolist()])

# %%
assert torch.allclose(S, pivot.scaled_sigmas(scores[:1], k, 1 / (k * tau))[0][:, 0])

# %% [markdown]
# ## The hard loss inside the smooth loss
#
# Eq. (10) is $L = \tau \, \mathrm{softplus}(\alpha/\tau - x_y + \log \sigma_k - \log \sigma_{k-1})$ with the
# polynomials of the other classes. The largest terms of $\sigma_k$ and $\sigma_{k-1}$ differ by one factor,
# $\exp(x_{[k]})$: the pivot. So
#
# $$L_{k,\tau} = \tau \, \mathrm{softplus} \left( \frac{1}{\tau} \left[ \alpha + \frac{s_{[k]} - s_y}{k} \right]
#              + \log \frac{S_k}{S_{k-1}} \right).$$
#
# In the bracket stands the hard loss before its $\max(\cdot, 0)$. The rest is a correction. The whole loss and its
# gradient in plain torch:


# %%
def pivot_loss(scores, labels, *, k, tau, margin=1.0):
    """The smooth top-k loss of each sample, in linear space."""
    others = scores.scatter(1, labels[:, None], -torch.inf)
    head, index = others.topk(k)
    kth_score = head[:, -1:].detach()
    head = (head - kth_score) / (k * tau)
    tail = torch.exp((others.scatter(1, index, -torch.inf) - kth_score) / (k * tau))

    one = torch.ones_like(kth_score)
    S = torch.cat([one, torch.zeros_like(head)], 1)  # (N, k + 1)
    for u in tail.split(1, dim=1):
        S = torch.cat([one, S[:, 1:] + u * S[:, :-1]], 1)

    t = torch.cat([head, torch.zeros_like(head)], 1).detach()  # the normalisers are constants
    for i in reversed(range(k)):
        decay = torch.exp(t[:, i + 1 : i + 1 + k] - t[:, i : i + 1])
        join = torch.exp(head[:, i : i + 1] - t[:, i : i + 1])  # it is one, and carries the derivative
        S = torch.cat([one, decay * S[:, 1:] + join * S[:, :-1]], 1)

    true_score = scores.gather(1, labels[:, None])
    hard = margin + (kth_score - true_score) / k
    z = hard[:, 0] / tau + torch.log(S[:, k] / S[:, k - 1])
    return -tau * logsigmoid(-z)


# %%
def value_and_gradient(loss, scores):
    scores = scores.clone().requires_grad_()
    losses = loss(scores, labels, k=k, tau=tau)
    return losses.detach(), torch.autograd.grad(losses.sum(), scores)[0]


# %%
package = partial(smooth_topk_loss, reduction="none")
for dtype, tolerance in ((torch.float64, 1e-12), (torch.float32, 1e-5)):
    for ours, theirs in zip(*(value_and_gradient(f, scores.to(dtype)) for f in (pivot_loss, package)), strict=True):
        assert torch.allclose(ours, theirs, rtol=tolerance, atol=tolerance)
print("losses and gradients equal those of the package")

# %% [markdown]
# ## The correction is bounded
#
# How large can $\log(S_k/S_{k-1})$ be with $n$ classes?
#
# - From a set of $k$ other classes remove its smallest member, at most the pivot. A set of $k-1$ classes is reached
#   from at most $n-k$ sets in this way. So $S_k \le (n-k) \, S_{k-1}$.
# - Lemma 3 of the paper, for a class as good as the pivot, says $S_{k-1} \le k \, S_k$.
#
# So $-\log k \le \log(S_k/S_{k-1}) \le \log(n-k)$ at every temperature. As $\tau \to 0$, $\tau$ times a bounded
# number vanishes and the hard loss is left: Proposition 2, read off a formula, and with a rate.


# %%
def corrections(k):
    """log(S_k / S_{k-1}) of each sample over a grid of temperatures."""
    grid = np.logspace(-4, 2, 25)
    others = scores.scatter(1, labels[:, None], -torch.inf)
    S, _ = pivot.scaled_sigmas(torch.cat([others / (k * value) for value in grid]), k)
    correction = torch.log(S[k] / S[k - 1])
    return pd.DataFrame(
        {"tau": grid.repeat(samples), "sample": [*range(samples)] * len(grid), "correction": correction}
    )


# %%
table = corrections(k)
assert table["correction"].between(-log(k), log(classes - k)).all()
ax = figures.correction_curve(table, k=k, classes=classes)

# %% [markdown]
# Both bounds are attained. All head classes tied and no tail gives $1/k$. A head with $k-1$ classes far above and all
# other classes tied gives $n-k$. Here $n = 9$ and $k = 3$, the label is class 0:

# %%
tied = torch.tensor([[0.0, 5.0, 5.0, 5.0] + [-1e4] * 5], dtype=torch.float64)
apart = torch.tensor([[0.0, 1e4, 1e4] + [5.0] * 6], dtype=torch.float64)
for row, bound in ((tied, 1 / 3), (apart, 9 - 3)):
    S = pivot.scaled_sigmas(row[:, 1:], 3, 1 / 3)[0]
    assert abs(S[3, 0] / S[2, 0] - bound) < 1e-12

# %%
for value in taus:
    gap = package(scores, labels, k=k, tau=value) - hard_topk_loss(scores, labels, k=k, reduction="none")
    assert gap.abs().max() <= value * (log(2) + max(log(k), log(classes - k)))
print("|smooth − hard| ≤ τ (log 2 + max(log k, log(n − k))) at every τ")

# %% [markdown]
# Move $k$: the band widens below and narrows above.

# %%
controls.explore(
    lambda ax, k: figures.correction_curve(corrections(k), k=k, classes=classes, ax=ax),
    k=k,
)

# %% [markdown]
# ## The gradient of the tail: one polynomial
#
# By the chain rule $\partial L/\partial s_i = w \, (q_i^{(k)} - q_i^{(k-1)})$ with $w = \mathrm{sigmoid}(z)/k$, where
# $q_i^{(j)} = \partial \log \sigma_j / \partial x_i$ is the share of the sets of size $j$ that contain $i$. Algorithm
# 2 of chapter 5, written as one sum, is
#
# $$\sigma_{j-1}(\text{without } i) = \sum_m (-u_i)^m \, \sigma_{j-1-m}.$$
#
# It broke for elements far above the others. But no class of the tail is above the others: $u_i \le 1$, and $k$
# classes are at least as large. So it is safe here, and it says that the derivative of *every* class of the tail is
# $u_i$ times the same polynomial of degree $k-1$, taken at $u_i$.


# %%
def tail_polynomial(others, k, tau):
    """Coefficients of the polynomial, from the scaled polynomials of the classes other than the true one."""
    S, log_terms = pivot.scaled_sigmas((others - others.topk(k).values[-1])[None], k, 1 / (k * tau))
    sigma = S[:, 0] * torch.exp(log_terms[:, 0] - log_terms[k, 0])  # σ_0..σ_k in units of the largest term of σ_k
    upper = sigma.flip(0)[1:] / sigma[k]
    lower = torch.cat([sigma.flip(0)[2:], sigma.new_zeros(1)]) / sigma[k - 1]
    return (-1) ** torch.arange(k) * (upper - lower)


# %% [markdown]
# The points are $q_i^{(k)} - q_i^{(k-1)}$ of the classes of the tail by automatic differentiation, the line is the
# polynomial.

# %%
others = torch.cat([scores[0][: labels[0]], scores[0][labels[0] + 1 :]])
points = figures.tail_table(others, k=k, tau=tau)
ax = figures.tail_derivatives(points, tail_polynomial(others, k, tau))

# %%
u, derivative = torch.tensor(points.to_numpy()).T
polynomial = sum(coefficient * u**m for m, coefficient in enumerate(tail_polynomial(others, k, tau)))
assert torch.allclose(u * polynomial, derivative, rtol=1e-10, atol=1e-15)

# %% [markdown]
# Times $w$, these are the derivatives of the loss.

# %%
_, gradient = value_and_gradient(package, scores)
w = -gradient[0, labels[0]]
order = scores[0].argsort(descending=True)
tail = order[order != labels[0]][k:]
assert torch.allclose(gradient[0, tail], w * derivative, rtol=1e-10, atol=1e-15)

# %% [markdown]
# One pass over the scores, $k$ multiplications and additions for each class, no memory but $k$ coefficients for each
# sample. Move $\tau$ and $k$: the curve bends, the points stay on it.

# %%
controls.explore(
    lambda ax, tau, k: figures.tail_derivatives(
        figures.tail_table(others, k=k, tau=tau), tail_polynomial(others, k, tau), ax=ax
    ),
    tau=tau,
    k=k,
)

# %% [markdown]
# ## The gradient of the head: reverse mode
#
# The $k$ classes of the head *are* above the others, and there the sum with alternating signs would break. Their
# derivatives are the reverse mode of the recursion $S_j \leftarrow e^{\,t_{i+j}-t_i} S_j + S_{j-1}$: again products
# and sums of positive numbers, $k$ steps of $k$ numbers. Automatic differentiation does exactly this in `pivot_loss`;
# the package writes it out. Against 50 digits, in float32:

# %%
truth = exact_loss(scores.float(), labels, k=k, tau=tau)
for name, loss in (("20 lines", pivot_loss), ("package", package)):
    error = tables.errors_of(loss, scores.float(), labels, truth, k=k, tau=tau)
    assert error["gradient_error"] < 1e-5
    print(f"{name}: loss {error['loss_error']:.1e}, gradient {error['gradient_error']:.1e}")

# %% [markdown]
# The package is a little more accurate than the 20 lines because numbers of which there are only $k$ for each sample
# are in float64. That costs nothing: there are $n$ scores for each $k$ of them.
#
# ## Newton's identities, and when they are safe
#
# The loop over the tail takes $n$ steps one after the other. In plain torch the package takes one pass instead
# (`eager.py`): it sums the powers $p_m = \sum_i u_i^m$ and gets the polynomials from $m \, \varepsilon_m =
# \sum_{r=1}^{m} (-1)^{r-1} \varepsilon_{m-r} \, p_r$.


# %%
def newton(u, k):
    """epsilon_0..epsilon_k of the tail from its power sums."""
    power_sums = [(u**m).sum() for m in range(1, k + 1)]
    epsilon = [torch.ones((), dtype=u.dtype)]
    for m in range(1, k + 1):
        epsilon.append(sum((-1) ** (r - 1) * epsilon[m - r] * power_sums[r - 1] for r in range(1, m + 1)) / m)
    return torch.stack(epsilon)


# %%
assert torch.allclose(newton(u, k), log_symmetric_polynomials(u.log(), k, algorithm="divide_and_conquer").exp())

# %% [markdown]
# The signs alternate, so digits are lost. How many? We force the arithmetic and measure the gradient, for few classes
# ($n = k+2$, the worst case: nearly all classes are in the head) and for many.


# %%
def forced_error(k, extra, dtype):
    """Largest error of the gradient when the tail is computed in `dtype`, whatever k is."""
    few = torch.randn(samples, k + extra, generator=torch.Generator().manual_seed(k)).to(dtype)
    zero, ones = torch.zeros(samples, dtype=torch.long), torch.ones(samples, dtype=torch.float64)
    with patch.object(eager, "working_dtype", return_value=dtype):
        _, *state = eager.forward(few, zero, k, 10.0, margin)
        gradient = eager.backward(few, eager.RowState(*state), ones, k, 10.0)
    return tables.largest_relative_error(gradient, exact_loss(few, zero, k=k, tau=10.0, margin=margin)[1])


# %%
cases = {"float32, n = k + 2": (2, torch.float32), "float32, n = 5 k": (None, torch.float32)}
cases["float64, n = k + 2"] = (2, torch.float64)
rows = [
    (degree, name, forced_error(degree, extra or 4 * degree, dtype))
    for degree, (name, (extra, dtype)) in product(newton_degrees, cases.items())
]
rows += [(degree, "2^k × float32 rounding", 2**degree * 2.0**-24) for degree in newton_degrees]
lost = pd.DataFrame(rows, columns=["k", "arithmetic", "gradient_error"])
ax = figures.error_curves(lost, x="k", error="gradient_error", curves="arithmetic")

# %% [markdown]
# In the worst case the error grows like $2^k$; with many classes it hardly grows. `eager.py` does not look at the
# data to decide. It chooses by $k$ alone: plain float32 up to $k = 8$, float64 for the tail up to $k = 32$, and
# beyond that the tree of positive numbers.

# %%
assert eager.working_dtype(torch.float32, 8) == torch.float32
assert eager.working_dtype(torch.float32, 9) == torch.float64
assert eager.working_dtype(torch.float32, 33) is None
few = lost[lost["arithmetic"] == "float32, n = k + 2"].set_index("k")["gradient_error"]
assert all(few[degree] < 1e-5 for degree in newton_degrees if degree <= 8)
assert all(few[degree] < 2**degree * 2.0**-23 for degree in newton_degrees)

# %% [markdown]
# ## The map
#
# The error of the gradient over temperature and scale in float32: the paper's algorithms and this one, on one colour
# scale.

# %%
losses = {"summation": partial(package, algorithm="summation")}
losses["log tree + series"] = partial(package, algorithm="divide_and_conquer")
losses["log tree + autograd"] = partial(package, algorithm="divide_and_conquer_autograd")
losses["pivot"] = package
errors = tables.error_table(losses, taus=taus, scales=scales, k=k, classes=classes, samples=samples)
axes = figures.error_maps(errors, error="gradient_error")

# %%
worst = errors.groupby("algorithm", sort=False)[["loss_error", "gradient_error"]].max()
assert worst.loc["pivot"].max() < 1e-6
assert worst.loc["log tree + autograd", "gradient_error"] > 100 * worst.loc["pivot", "gradient_error"]
tables.show(worst.map("{:.1e}".format).rename_axis("largest error over the map, float32"))

# %% [markdown]
# Ties, deleted classes and a label with the largest score are in the package's tests (`tests/symmetric_polynomials`),
# with the same result.
#
# ## What we saw
#
# - Each $\sigma_j$, divided by its own largest term, lies between 1 and $\binom{n}{j}$: no overflow, no logarithm.
# - The smooth loss is a softplus of the hard margin plus a correction between $-\log k$ and $\log(n-k)$.
# - The derivatives of all classes of the tail lie on one polynomial; those of the head are a short reverse mode.
# - The only alternating sums are over numbers up to one. They lose $2^k$ in the worst case, and $k$ alone decides the
#   arithmetic.
# - The error is that of rounding once, at every temperature and scale of the map.
#
# ## Questions
#
# 1. Which step would fail if the pivot were the largest score instead of the $k$-th largest?
# 2. For $k = 1$, what are head, tail and correction? Find cross-entropy in the formula.
# 3. All scores of a sample are equal. What is the correction, and what is the loss?
#
# ## Next
#
# [7 · Speed](07_speed.ipynb): what this costs.
