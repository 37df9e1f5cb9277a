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
# **Question.** Can the loss and its gradient be accurate to rounding in float32, at any temperature, without logarithms
# and without an approximation?
#
# **You will** measure all scores from one of them, follow the package's algorithm step by step, write it in 25 lines of
# torch, find the hard loss inside the smooth loss, and compare the errors with those of the paper's algorithms.
#
# **Paper.** The algorithm is not in the paper. It replaces sections 4.2 (forward) and 4.3 (backward). The longer proofs
# are on the page [Proofs](../book/proofs.md).
#
# **Time.** 25 minutes to read, half a minute to run.

# %% tags=["parameters"]
profile = "quick"
k = 3
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

import ipywidgets as widgets
import numpy as np
import pandas as pd
import torch
from torch.nn.functional import logsigmoid

from smooth_topk import hard_topk_loss, log_symmetric_polynomials, smooth_topk_loss
from smooth_topk.study import figures, measure, tables
from smooth_topk.study.chapters import controls, notebook
from smooth_topk.study.chapters.spider import spider
from smooth_topk.study.figures.style import BLUE, BROWN, DARK, GREY

notebook.start(profile)
tree = partial(log_symmetric_polynomials, algorithm="divide_and_conquer")
package = partial(smooth_topk_loss, reduction="none")
SUBSCRIPTS = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")

# %% [markdown]
# ## Head, pivot, tail
#
# The numbers of chapters 4 and 5 caused trouble because their sizes differ so much. This chapter measures all scores
# from one of them, and chooses this reference with care.
#
# Take the scores of the *other* classes, that is, of all classes except the true one. The $k$ largest are the **head**.
# The smallest of the head is the **pivot**. Its score $s_{[k]}$ is the one that the hard loss looks at. All remaining
# classes are the **tail**. For the spider in its web and $k = 3$:

# %%
scores, names, label = spider()
others = torch.cat([scores[:label], scores[label + 1 :]])
names = names[:label] + names[label + 1 :]
parts = ["head"] * (k - 1) + ["head: the pivot"] + ["tail"] * (len(others) - k)
example = pd.DataFrame({"score": others, "part": parts}, index=names)
tables.show(example.T.rename_axis(columns=None))

# %% [markdown]
# With $x = s/(k\tau)$ as before, measure everything from the pivot:
#
# - For the $j$-th class of the head, $t_j = x_{[j]} - x_{[k]} \ge 0$. For the pivot itself, $t_k = 0$.
# - For a class $i$ of the tail, $u_i = \exp(x_i - x_{[k]}) \le 1$.
#
# **Figure.** The distances of the scores to the pivot (left) and the weights $u$ of the tail (right). Move $\tau$: the
# weights change, and never leave the interval from 0 to 1.


# %% tags=["hide-input"]
def draw(axes, tau, k):
    left, right = axes
    places, distance = np.arange(len(others)), (others - others[k - 1]).numpy()
    left.vlines(places[:k], 0, distance[:k], color=BLUE, linewidth=9, label="head")
    left.vlines(places[k:], 0, distance[k:], color=GREY, linewidth=9, label="tail")
    left.plot(k - 1, 0, "D", color=BROWN, label="pivot")
    left.legend(loc="upper right")
    left.set(ylabel="score − score of the pivot", ylim=(-5, 5))
    right.vlines(
        places[k:], 0, np.exp(distance[k:] / (k * tau)), color=GREY, linewidth=9
    )
    right.axhline(1, color=BROWN, linewidth=1)
    right.set(ylabel="weight u of the tail", ylim=(0, 1.08))
    for ax in axes:
        ax.set_xticks(places, names, rotation=40, ha="right")
        ax.set(xlim=(-0.6, len(others) - 0.4))


k_slider = partial(controls.k_slider, maximum=len(others) - 1)
controls.explore(draw, panels=(1, 2), size=(7.6, 3.0), tau=tau, k=k_slider(k))

# %% [markdown]
# ## Divide by the largest term
#
# The numbers of chapters 4 and 5 are huge for one reason: $\sigma_j$ is at least as large as its largest term, the
# product of the $j$ largest $e_i$. So divide $\sigma_j$ by this term:
#
# $$S_j = \frac{\sigma_j(\exp \mathbf{x})}{\exp(x_{[1]} + \cdots + x_{[j]})}.$$
#
# One term of $S_j$ is exactly 1, and the others are at most 1. With $m$ elements there are $\binom{m}{j}$ terms, so
# that $1 \le S_j \le \binom{m}{j}$ for every $\tau$. The six other classes of the spider give:

# %%
rows = {}
for value in taus:
    x = others / (k * value)
    rows[f"τ = {value:g}"] = torch.exp(tree(x, k)[1:] - x[:k].cumsum(0)).tolist()
    assert all(1 <= S <= comb(6, j) for j, S in enumerate(rows[f"τ = {value:g}"], 1))
bounds = {"upper bound": [comb(6, j) for j in range(1, k + 1)]}
S_table = pd.DataFrame(
    {**rows, **bounds}, index=[f"S{j}".translate(SUBSCRIPTS) for j in range(1, k + 1)]
)
tables.show(S_table.T.map("{:.3f}".format))

# %% [markdown]
# A term that underflows is below $10^{-38}$ and is added to at least 1, so it cannot change the result. The upper bound
# is no problem either: for ImageNet and $k = 5$ it is $8 \cdot 10^{12}$, which fits into float32. It remains to compute
# $S_j$ without passing through $\sigma_j$.
#
# ## Tail first, then the head
#
# Begin with the tail alone. Its polynomials $\varepsilon_m = \sigma_m(\mathbf{u})$ are sums of products of numbers that
# are at most one, and Algorithm 3 of chapter 3 computes them without logarithms.
#
# Then the classes of the head join one by one, from the pivot, $i = k$, up to the largest class, $i = 1$. When class
# $i$ joins, Algorithm 3 says $\sigma_j \leftarrow \sigma_j + e^{t_i} \sigma_{j-1}$. We want the same step for the
# $S_j$. These are the divisors, with $t_j = 0$ for $j > k$:
#
# | quantity | its $j$ largest classes | divided by |
# |---|---|---|
# | $\sigma_j$ before the step | $i+1$ to $i+j$ | $\exp(t_{i+1} + \cdots + t_{i+j})$ |
# | $\sigma_{j-1}$ before the step | $i+1$ to $i+j-1$ | $\exp(t_{i+1} + \cdots + t_{i+j-1})$ |
# | $\sigma_j$ after the step | $i$ to $i+j-1$ | $\exp(t_i + \cdots + t_{i+j-1})$ |
#
# Write each $\sigma$ in the step as its $S$ times its divisor, and divide by the third divisor. Nearly everything
# cancels:
#
# $$S_j \leftarrow e^{\,t_{i+j} - t_i} \, S_j + S_{j-1}.$$
#
# The factor is at most one, because the $t_j$ are sorted. All the large numbers $e^{t_i}$ are gone.


# %%
def tail_then_head(others, k, tau):
    """S_0..S_k of the tail alone, then after each class of the head, with the factors."""
    x = others.sort(descending=True).values / (k * tau)
    S = torch.tensor([1.0] + [0.0] * k, dtype=x.dtype)
    for u in torch.exp(x[k:] - x[k - 1]):
        S[1:] = S[1:] + u * S[:-1].clone()
    steps = [(S, None)]
    t = torch.cat([x[:k] - x[k - 1], torch.zeros(k)])
    for i in reversed(range(k)):
        factor = torch.exp(t[i + 1 : i + 1 + k] - t[i])
        S = torch.cat([S[:1], factor * S[1:] + S[:-1]])
        steps.append((S, factor))
    return steps


# %%
# The last step gives S_1 to S_3 of the table above; at τ = 1e-4 all are zero or one.
for value in taus:
    S = tail_then_head(others, k, value)[-1][0]
    expected = torch.tensor(rows[f"τ = {value:g}"], dtype=torch.float64)
    assert torch.allclose(S[1:], expected, rtol=1e-9)
small = torch.cat([S for S, _ in tail_then_head(others, k, 1e-4)])
assert torch.allclose(small, small.round())  # zeros and ones

# %% [markdown]
# **Figure.** The algorithm on the spider's six other classes. Above: the tail, the classes of the head that still wait,
# and those that have joined. Below: the table of $S_j$, one column per step, and how the newest column was made. Move
# the step, then $\tau$.

# %% tags=["hide-input"]
controls.predict(
    r"At $\tau = 0.0001$, $\sigma_3$ exceeds $10^{33{,}000}$. Which numbers does the "
    "table of this figure hold at that temperature?",
    ["Large ones too, but with fewer digits.", "Zeros and ones.", "Only ones."],
    right=1,
    then="Every column is divided by its own largest terms. A factor or a weight of the "
    "tail vanishes, and what is left is the one largest term, divided by itself.",
)


def draw(axes, step, tau):
    distance = (others - others[k - 1]).tolist()
    steps = tail_then_head(others, k, tau)
    figures.pivot_steps(names, distance, steps, step=step, axes=axes)


step_slider = widgets.IntSlider(description="step", value=1, min=0, max=k)
tau_slider = controls.tau_slider(tau, minimum=1e-4)
controls.explore(draw, panels=(2, 1), size=(4.4, 5.6), step=step_slider, tau=tau_slider)

# %% [markdown]
# ## The hard loss inside the smooth loss
#
# Chapter 4 wrote the loss as $L_{k,\tau} = \tau \, \mathrm{softplus}(z)$ with $z = \alpha/\tau - x_y + \log \sigma_k -
# \log \sigma_{k-1}$ and the polynomials of the other classes. The largest terms of $\sigma_k$ and $\sigma_{k-1}$ differ
# by one factor, $\exp(x_{[k]})$, which belongs to the pivot. So $\log \sigma_k - \log \sigma_{k-1} = x_{[k]} +
# \log(S_k/S_{k-1})$, and with $x = s/(k\tau)$
#
# $$\begin{aligned}
# L_{k,\tau} &= \tau \, \mathrm{softplus}(z), \\
# z &= \frac{1}{\tau} \left[ \alpha + \frac{s_{[k]} - s_y}{k} \right] + \log \frac{S_k}{S_{k-1}} .
# \end{aligned}$$
#
# The square bracket is the shortfall $h$ of chapter 2: the hard loss before its $\max(\cdot, 0)$. The logarithm is the
# correction $c$ of chapter 2. Here is the whole loss for a batch. Automatic differentiation provides its gradient.


# %%
def one_by_one(u, k):
    """sigma_0..sigma_k of each row of u, by Algorithm 3."""
    S = torch.eye(1, k + 1, dtype=u.dtype).expand(len(u), -1)  # (N, k + 1)
    for value in u.split(1, dim=1):
        S = torch.cat([S[:, :1], S[:, 1:] + value * S[:, :-1]], 1)
    return S


def pivot_loss(scores, labels, *, k, tau, margin=1.0, tail_sigmas=one_by_one):
    """The smooth top-k loss of each sample, in linear space."""
    others = scores.scatter(1, labels[:, None], -torch.inf)
    head, index = others.topk(k)
    kth_score = head[:, -1:].detach()
    head = (head - kth_score) / (k * tau)
    rest = others.scatter(1, index, -torch.inf)
    S = tail_sigmas(torch.exp((rest - kth_score) / (k * tau)), k)

    # The terms we divide by are constants for the derivative.
    t = torch.cat([head, torch.zeros_like(head)], 1).detach()
    for i in reversed(range(k)):
        factor = torch.exp(t[:, i + 1 : i + 1 + k] - t[:, i : i + 1])
        join = torch.exp(head[:, i : i + 1] - t[:, i : i + 1])  # one, with a derivative
        S = torch.cat([S[:, :1], factor * S[:, 1:] + join * S[:, :-1]], 1)

    true_score = scores.gather(1, labels[:, None])
    shortfall = margin + (kth_score - true_score) / k
    z = shortfall[:, 0] / tau + torch.log(S[:, k] / S[:, k - 1])
    return -tau * logsigmoid(-z)


# %%
# The loss of the spider, and losses and gradients of a random batch, equal the package's.
batch, labels = measure.random_scores(samples, classes)
web = scores[None], torch.tensor([label])
assert torch.allclose(pivot_loss(*web, k=k, tau=tau), package(*web, k=k, tau=tau))
for dtype, tolerance in ((torch.float64, 1e-12), (torch.float32, 1e-5)):
    row = batch.to(dtype).requires_grad_()
    found = [loss(row, labels, k=k, tau=tau) for loss in (pivot_loss, package)]
    assert torch.allclose(*found, rtol=tolerance)
    slopes = [torch.autograd.grad(losses.sum(), row)[0] for losses in found]
    assert torch.allclose(*slopes, rtol=tolerance, atol=tolerance)

# %% [markdown]
# ## The correction is bounded
#
# With $n$ classes the correction $c = \log(S_k/S_{k-1})$ lies between $-\log k$ and $\log(n-k)$ at every temperature. The
# [proof](../book/proofs.md#the-correction-is-bounded) takes a set of $k-1$ other classes and adds a class of the head
# for the first bound, and takes a class out of a set of $k$ for the second. The first bound is also a short proof of
# Lemma 3 of the paper. As $\tau \to 0$, $\tau$ times a bounded number vanishes, and only the hard loss is left. This is Proposition 2,
# with a rate and without conditions on ties.
#
# **Figure.** The correction of the spider against $\tau$, and its two bounds, which can be approached arbitrarily
# closely with other scores. For large $\tau$ all $S_j$ are counts of sets, and the correction tends to $\log
# \frac{n-k}{k}$.


# %% tags=["hide-input"]
def corrections(others, k, taus):
    """log(S_k / S_{k-1}) for each temperature."""
    last = [tail_then_head(others, k, value)[-1][0] for value in taus]
    return np.array([log(S[k] / S[k - 1]) for S in last])


grid = np.logspace(-4, 2, 61)


def draw(ax, k):
    n = len(scores)
    ax.plot(grid, corrections(others, k, grid), color=BLUE)
    for bound, name in ((-log(k), f"−log {k}"), (log(n - k), f"log({n} − {k})")):
        ax.axhline(bound, color=DARK, linestyle="--", linewidth=1.2)
        ax.annotate(name, (1e-4, bound), (2, 4), textcoords="offset points")
    ax.plot(1e2, log((n - k) / k), "o", color=DARK, markerfacecolor="white")
    ax.set(xscale="log", xlabel="τ", ylabel="correction c", ylim=(-2, 2.3))


controls.explore(draw, k=k_slider(k))

# %%
# The corrections lie within the bounds, and smooth − hard between −τ log k and
# τ log(n − k + 1), on the random batch too.
for degree in range(1, len(others)):
    found = corrections(others, degree, grid)
    assert (-log(degree) - 1e-12 <= found).all()
    assert (found <= log(len(scores) - degree) + 1e-12).all()
hard = hard_topk_loss(batch.double(), labels, k=k, reduction="none")
for value in taus:
    gap = package(batch.double(), labels, k=k, tau=value) - hard
    assert gap.max() <= value * log(classes - k + 1) + 1e-12
    assert gap.min() >= -value * log(k) - 1e-12

# %% [markdown]
# ## Every other class is pushed down
#
# Chapter 2 showed that only the derivative of the true class is negative. Here is the reason. The loss is
# $\tau\,\mathrm{softplus}(z)$ with $z = \alpha/\tau - x_y + \log \sigma_k - \log \sigma_{k-1}$. By the chain rule, the
# derivative for another class $i$ is
#
# $$\frac{\partial L}{\partial s_i} = w \, \big( q_i^{(k)} - q_i^{(k-1)} \big), \qquad
# w = \frac{\mathrm{sigmoid}(z)}{k}, \qquad q_i^{(j)} = \frac{\partial \log \sigma_j}{\partial x_i},$$
#
# and the derivative for the true class is $-w$. The number $q_i^{(j)}$ is the probability that a random set of size
# $j$, drawn by weight, contains class $i$. It is plausible that a random set of $k$ classes contains class $i$ more
# often than a random set of $k-1$ classes. To prove it, let $T_j$ be $\sigma_j$ of the other classes without $i$. Then
# $\sigma_j = T_j + e_i T_{j-1}$ and $q_i^{(j)} = e_i T_{j-1}/\sigma_j$, so that
#
# $$q_i^{(k)} - q_i^{(k-1)} = \frac{e_i \, \big( T_{k-1}\,\sigma_{k-1} - T_{k-2}\,\sigma_k \big)}{\sigma_k \,
# \sigma_{k-1}} = \frac{e_i \, \big( T_{k-1}^2 - T_{k-2}\,T_k \big)}{\sigma_k \, \sigma_{k-1}} .$$
#
# The last bracket is positive: this is a weak form of Newton's inequality for symmetric polynomials. The page
# [Proofs](../book/proofs.md#every-class-except-the-true-one-is-pushed-down) proves it by counting, and also shows that
# the second product is at most $1 - \frac1k$ of the first. So the subtraction increases a relative error by a factor of
# about $2k$ at most and never destroys all digits.

# %%
# At every temperature, and for the spider too, only the true class is pulled up.
for value, (inputs, true) in product(taus, [(batch.double(), labels), web]):
    row = inputs.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(package(row, true, k=k, tau=value).sum(), row)
    assert (gradient.scatter(1, true[:, None], 0.0) >= -1e-15).all()
    assert (gradient.gather(1, true[:, None]) <= 0).all()

# %% [markdown]
# ## The gradient of the tail: one polynomial
#
# Algorithm 2 of chapter 5, written as one sum, is
#
# $$\sigma_{j-1}(\text{without } i) = \sum_{m=0}^{j-1} (-u_i)^m \, \sigma_{j-1-m}.$$
#
# Algorithm 2 failed for elements far above the others. No class of the tail is far above the others, because $k$
# classes are at least as large. So the sum is safe for the tail, as long as $k$ is not too large (see below). The sum
# also shows that the derivative of *every* class of the tail is $u_i$ times the same polynomial of degree $k-1$,
# evaluated at $u_i$. Each sample needs only the $k$ coefficients of this polynomial.


# %%
def tail_polynomial(others, k, tau):
    """Coefficients of the polynomial, from the scores of the other classes."""
    log_sigma = tree((others - others.topk(k).values[-1]) / (k * tau), k)
    upper = torch.exp(log_sigma.flip(0)[1:] - log_sigma[k])
    lower = torch.exp(log_sigma.flip(0)[2:] - log_sigma[k - 1])
    return (-1) ** torch.arange(k) * (upper - torch.cat([lower, torch.zeros(1)]))


def tail_derivatives(others, k, tau):
    """u and q^(k) - q^(k-1) of the classes of the tail, by automatic differentiation."""
    x = (others / (k * tau)).sort(descending=True).values.requires_grad_()
    log_sigma = tree(x, k, algorithm="divide_and_conquer_autograd")
    (derivative,) = torch.autograd.grad(log_sigma[k] - log_sigma[k - 1], x)
    return torch.exp(x - x[k - 1]).detach()[k:], derivative[k:]


# %% [markdown]
# **Figure.** The derivatives of the tail of 40 random scores (points), by automatic differentiation, and $u$ times the
# polynomial (line). Move $\tau$ and $k$: the line bends, and the points stay on it.

# %% tags=["hide-input"]
many = 3 * measure.random_scores(1, classes)[0][0].double()
line = torch.linspace(0, 1, 101, dtype=torch.float64)


def draw(ax, tau, k):
    powers = line[:, None] ** torch.arange(1, k + 1)
    curve = powers @ tail_polynomial(many, k, tau)
    ax.plot(line, curve, color=DARK, linewidth=1, label="u × one polynomial in u")
    ax.plot(
        *tail_derivatives(many, k, tau), "o", color=BLUE, label="classes of the tail"
    )
    ax.set(xlabel="u = exp((s − pivot) / (kτ))", ylabel="$q^{(k)} - q^{(k-1)}$")
    ax.set(xlim=(-0.02, 1.02), ylim=(-0.02, 0.55))
    ax.legend(loc="upper left")


controls.explore(draw, tau=tau, k=k)

# %%
# The polynomial gives all derivatives of the tail.
for degree, value in product((1, k, 10), (10.0, 0.3, 0.01)):
    u, derivative = tail_derivatives(many, degree, value)
    coefficients = tail_polynomial(many, degree, value)
    polynomial = u[:, None] ** torch.arange(1, degree + 1) @ coefficients
    assert torch.allclose(polynomial, derivative, rtol=1e-6, atol=1e-12)

# %% [markdown]
# So the gradient of the tail takes one pass over the scores, with $k$ multiplications and additions per class.
#
# ## The gradient of the head: reverse mode
#
# The $k$ classes of the head *are* above the others, so for them the sum with alternating signs would fail. Their
# derivatives come from differentiating the recursion $S_j \leftarrow e^{\,t_{i+j}-t_i} S_j + S_{j-1}$ backwards, in $k$
# steps of $k$ numbers. Automatic differentiation does exactly this in `pivot_loss`.
#
# The backward recursion starts from the derivatives of $\log S_k - \log S_{k-1}$, which are $1/S_k$ and $-1/S_{k-1}$,
# and multiplies by positive numbers. The results are differences $q_i^{(k)} - q_i^{(k-1)}$ of numbers between 0 and 1,
# and each carries the rounding error of a number of size one. For a class far in front, whose derivative is tiny, this
# error may exceed the derivative itself. Relative to the largest entry of the gradient, which belongs to the true
# class, the error is one rounding. The package computes these $k$ numbers per sample in float64, which costs next to
# nothing because most of the work is on the $n$ scores per sample.

# %%
both = {"25 lines": pivot_loss, "package": package}
errors = measure.error_table(both, 3 * batch, labels, k=k, taus=[tau])
shown = errors.set_index("algorithm")[["loss_error", "gradient_error"]]
assert shown.max(axis=None) < 1e-5
shown.columns = ["error of the loss", "error of the gradient"]
tables.show(shown.map("{:.1e}".format).rename_axis("float32, against 50 digits"))

# %% [markdown]
# The package reaches the same $S_k$ and $S_{k-1}$ by one product. Let $w_j = e^{-t_j} \le 1$ be the inverse weights of
# the head, so that $\eta_c = \sigma_c(\mathbf{w})$ sums over all ways to leave $c$ classes of the head out. A set of $j$
# classes that takes $m$ of the tail leaves $k - j + m$ of the head out, and therefore
#
# $$S_j = \sum_m \eta_{k-j+m} \, \varepsilon_m \qquad \text{for } j = k-1 \text{ and } j = k.$$
#
# All numbers are positive and none is large, as before. The gradient of the head is again the derivative of these
# products, computed backwards.

# %%
# The product of head and tail gives the S_2 and S_3 of the spider.
(tail_alone, _), *_, (S, _) = tail_then_head(others, k, tau)
eta = one_by_one(torch.exp((others[k - 1] - others[:k]) / (k * tau))[None], k)[0]
assert torch.isclose(eta @ tail_alone, S[k])
assert torch.isclose(eta[1:] @ tail_alone[:-1], S[k - 1])

# %% [markdown]
# ## Newton's identities, and when they are safe
#
# The loop over the tail takes about $n$ steps one after the other. In plain torch the package avoids this loop: it
# computes the power sums $p_m = \sum_i u_i^m$ in one pass over the scores, and gets the polynomials of the tail from
# Newton's identities, $m \, \varepsilon_m = \sum_{r=1}^{m} (-1)^{r-1} \varepsilon_{m-r} \, p_r$.


# %%
def newton(u, k):
    """sigma_0..sigma_k of each row of u, from power sums."""
    power_sums = [(u**m).sum(1) for m in range(k + 1)]
    sigma = [torch.ones_like(power_sums[0])]
    for m in range(1, k + 1):
        terms = [sigma[m - r] * power_sums[r] for r in range(1, m + 1)]
        sigma.append((sum(terms[::2]) - sum(terms[1::2])) / m)
    return torch.stack(sigma, 1)


# %%
# Newton's identities give the polynomials of the tail.
u = torch.rand(samples, 20, dtype=torch.float64)
assert torch.allclose(newton(u, 5), one_by_one(u, 5))

# %% [markdown]
# The signs alternate, so digits are lost. The next figure measures how many, for few classes ($n = k+2$) and for many
# ($n = 5k$). Few classes are the worst case, because nearly all of them are in the head.


# %% [markdown]
# **Figure.** Error of the gradient against $k$ when the polynomials of the tail come from Newton's identities. In the
# worst case the error grows like $2^k$. With many classes it hardly grows.


# %% tags=["hide-input"]
def newton_error(k, n, dtype):
    """Largest error of a gradient whose tail is computed by Newton in dtype."""
    sigmas = {"tail_sigmas": lambda u, k: newton(u.to(dtype), k)}
    loss = {"newton": partial(pivot_loss, **sigmas)}
    found = measure.error_table(
        loss, *measure.random_scores(samples, n), k=k, taus=[10]
    )
    return found["gradient_error"].item()


cases = {
    "float32, n = k + 2": (lambda k: k + 2, torch.float32),
    "float32, n = 5 k": (lambda k: 5 * k, torch.float32),
    "float64, n = k + 2": (lambda k: k + 2, torch.float64),
}
lost = pd.DataFrame(
    [
        (degree, name, newton_error(degree, size(degree), dtype))
        for degree, (name, (size, dtype)) in product(newton_degrees, cases.items())
    ]
    + [(d, "$2^k$ × float32 rounding", 2**d * 2.0**-24) for d in newton_degrees],
    columns=["k", "arithmetic", "gradient_error"],
)
options = {"x": "k", "error": "gradient_error", "curves": "arithmetic"}
ax = figures.error_curves(lost, **options)

# %% [markdown]
# The package does not look at the scores to decide: for float32 scores it chooses by $k$ alone. Up to $k = 5$ the tail
# is computed in float32, and up to $k = 32$ in float64. For larger $k$ the package measures the scores from another
# point than the pivot, from which the same identities stay accurate to rounding. The page
# [Proofs](../book/proofs.md#beyond-k-32) explains the choice of this point and proves why it works.

# %%
# Up to k = 5 float32 is enough, in the worst case the error stays below 2^k roundings,
# and for k = 40 of 60 classes the package is accurate to rounding too.
worst = lost[lost["arithmetic"] == "float32, n = k + 2"].set_index("k")[
    "gradient_error"
]
assert all(worst[degree] < 1e-6 for degree in newton_degrees if degree <= 5)
assert all(worst[degree] < 2**degree * 2.0**-22 for degree in newton_degrees)
large = {"package": partial(package, backend="torch")}
large_k = measure.error_table(large, *measure.random_scores(2, 60), k=40, taus=[tau])
assert large_k["gradient_error"].max() < 1e-6

# %% [markdown]
# ## The map
#
# How accurate is each algorithm over the whole range of temperatures and scores?
#
# **Figure.** The error of the gradient in float32, for 40 classes and $k = 5$: the paper's algorithms and pivot on one
# colour scale. The log tree is divide and conquer with logarithms (chapter 4). Its gradient comes from Algorithm 2 and
# the series (chapter 5), or from automatic differentiation. In crossed cells the gradient is not finite. Pivot is
# accurate to rounding in every cell.

# %% tags=["hide-input"]
losses = {
    "summation": partial(package, algorithm="summation"),
    "log tree + series": partial(package, algorithm="divide_and_conquer"),
    "log tree + autograd": partial(package, algorithm="divide_and_conquer_autograd"),
    "pivot": package,
}
errors = measure.error_table(losses, batch, labels, k=5, taus=taus, scales=scales)
axes = figures.error_maps(errors, error="gradient_error")

# %% tags=["hide-input"]
worst = errors.groupby("algorithm", sort=False)[["loss_error", "gradient_error"]].max()
# Pivot is accurate to rounding; the tree with autograd loses over 100 times as much.
assert worst.loc["pivot"].max() < 1e-6
others_error = worst.loc["log tree + autograd", "gradient_error"]
assert others_error > 100 * worst.loc["pivot", "gradient_error"]
worst.columns = ["loss", "gradient"]
tables.show(
    worst.map("{:.1e}".format).rename_axis("largest error over the map, float32")
)

# %% [markdown]
# The package's tests repeat this with ties, with deleted classes, and with a true class that has the largest score.
#
# ## What we saw
#
# - Each $\sigma_j$, divided by its own largest term, lies between 1 and the number of its terms. Nothing overflows, and
#   the sums need no logarithms.
# - The smooth loss is $\tau\,\mathrm{softplus}(h/\tau + c)$: the shortfall $h$ of the hard loss, and a correction $c$
#   between $-\log k$ and $\log(n-k)$.
# - The derivative of every class except the true one is positive.
# - The derivatives of all classes of the tail lie on one curve, $u$ times a polynomial. The derivatives of the head
#   come from differentiating the recursion of the $S_j$ backwards.
# - The sums with alternating signs run over numbers up to one. In the worst case they increase the rounding error by a
#   factor of $2^k$. The package chooses the arithmetic by $k$ alone.
# - The gradient of the pivot algorithm is accurate to rounding at every temperature and scale of the map.
#
# ## Questions
#
# 1. Which step would fail if the pivot were the largest score instead of the $k$-th largest?
# 2. For $k = 1$, what are head, tail and correction? Find cross-entropy in the formula.
# 3. All scores of a sample are equal. What is the correction, and what is the loss?

# %% [markdown]
# <details><summary>Answer 1</summary>
#
# All weights would be at most one, and nothing would overflow. But the largest term of $\sigma_k$ would be
# $\exp(-\sum_{j \le k}(x_{[1]} - x_{[j]}))$, which may underflow to zero. Then $\log \sigma_k$ is lost, and with it the
# loss. The gradient of the tail would suffer too. The tail would now begin with the second largest class, which may be
# far above all but one of the others, and for such a class the alternating sum loses its digits.
#
# </details>
#
# <details><summary>Answer 2</summary>
#
# The head is the largest other class, which is also the pivot. The tail is the rest. $S_0 = 1$ and $S_1$ is the sum of
# $\exp((s_i - s_{[1]})/\tau)$ over all other classes. For $\tau = 1$ and $\alpha = 0$ the argument of the softplus is
# $s_{[1]} - s_y + \log \sum_{i \ne y} \exp(s_i - s_{[1]}) = \log \sum_{i \ne y} e^{s_i} - s_y$, and the softplus adds
# the true class to the sum: this is cross-entropy, computed with the largest score taken out.
#
# </details>
#
# <details><summary>Answer 3</summary>
#
# The correction is $\log \frac{\binom{n-1}{k}}{\binom{n-1}{k-1}} = \log \frac{n-k}{k}$, and $h = \alpha$. So the loss
# is $\tau\,\mathrm{softplus}\big(\frac{\alpha}{\tau} + \log\frac{n-k}{k}\big) = \tau \log\big(1 + \frac{n-k}{k}
# e^{\alpha/\tau}\big)$.
#
# </details>

# %% [markdown]
# ## Next
#
# [7 · Speed](07_speed.ipynb): how long the loss takes, and how much memory.
