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
# **You will** follow the algorithm of the package step by step, write it in 25 lines of torch, find the hard loss
# inside the smooth loss, prove that every class except the true one is pushed down, see the derivatives lie on one
# curve, and map the errors beside those of the paper's algorithms.
#
# **Paper.** The algorithm is not in the paper. It replaces section 4.2 (forward) and 4.3 (backward). Lemma 3 of
# appendix A.4 gets a short proof.
#
# **Time.** 35 minutes to read, half a minute to run.

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
from fractions import Fraction
from functools import partial
from itertools import combinations, product
from math import comb, log, prod
from unittest.mock import patch

import ipywidgets as widgets
import numpy as np
import pandas as pd
import torch
from torch.nn.functional import logsigmoid

from smooth_topk import hard_topk_loss, log_symmetric_polynomials, smooth_topk_loss
from smooth_topk.pivot import torch_backend
from smooth_topk.study import figures, measure, tables
from smooth_topk.study.chapters import controls, notebook
from smooth_topk.study.measure.exact import exact_loss
from smooth_topk.symmetric_polynomials import pivot

notebook.start(profile)
generator = torch.Generator().manual_seed(0)
scores = 3 * torch.randn(samples, classes, generator=generator, dtype=torch.float64)
labels = torch.randint(classes, (samples,), generator=generator)
tree = partial(log_symmetric_polynomials, algorithm="divide_and_conquer")

# %% [markdown]
# ## Head, pivot, tail
#
# The trouble of chapters 4 and 5 came from numbers of very different sizes. The idea of this chapter is to measure all
# scores relative to one of them, and to choose this reference well.
#
# Sort the scores of the other classes, that is, of all classes except the true one. The $k$ largest are the **head**.
# The last of the head is the **pivot**: its score $s_{[k]}$ is the one that the hard loss looks at. All further classes
# are the **tail**. With $x = s/(k\tau)$ as before, measure everything from the pivot:
#
# - For the $j$-th class of the head, $t_j = x_{[j]} - x_{[k]} \ge 0$. For the pivot itself, $t_k = 0$.
# - For a class $i$ of the tail, $u_i = \exp(x_i - x_{[k]}) \le 1$.
#
# The example takes 40 random scores as those of the other classes.
#
# **Figure.** The 20 largest scores as distances to the pivot (left), and the weights $u$ of the tail (right). No weight
# of the tail exceeds one.

# %%
table = measure.head_and_tail_table(scores[0], k=k, tau=tau)
ax = figures.head_and_tail(table, k=k, tau=tau)

# %% [markdown]
# Move $\tau$. A large $\tau$ brings all weights of the tail close to one, and a small $\tau$ brings them close to zero.
# They never leave the interval from 0 to 1.
#
# **Figure.** Head, pivot and tail for the values of the controls. $\tau$ changes the weights on the right and leaves
# the distances on the left as they are.


# %%
def draw(axes, tau, k):
    table = measure.head_and_tail_table(scores[0], k=k, tau=tau)
    figures.head_and_tail(table, k=k, tau=tau, axes=axes)


controls.explore(draw, panels=(1, 2), size=(9.6, 3.4), tau=tau, k=k)

# %% [markdown]
# ## Divide by the largest term
#
# The numbers of chapters 4 and 5 are huge for one reason: $\sigma_j$ is at least as large as its largest term, the
# product of the $j$ largest $e_i$. So divide $\sigma_j$ by this term:
#
# $$S_j = \frac{\sigma_j(\exp \mathbf{x})}{\exp(x_{[1]} + \cdots + x_{[j]})}.$$
#
# One term of $S_j$ is exactly 1, and the others are at most 1. With $n$ elements there are $\binom{n}{j}$ terms.
# Therefore $1 \le S_j \le \binom{n}{j}$ for every $\tau$.

# %%
x = scores[0] / k
ordered = x.sort(descending=True).values
log_sigma = tree(x, k)
S = [torch.exp(log_sigma[j] - ordered[:j].sum()) for j in range(k + 1)]
print("S_0, ..., S_5 at τ = 1:", ", ".join(f"{value:,.1f}" for value in S))

# %%
# The package computes these S_j, and 1 ≤ S_j ≤ C(n, j) at every τ.
assert torch.allclose(pivot.scaled_sigmas(x[None], k)[0][:, 0], torch.stack(S))
for value in taus:
    found, _ = pivot.scaled_sigmas(scores, k, 1 / (k * value))
    assert all(1 <= s <= comb(classes, j) for j, row in enumerate(found) for s in row)

# %% [markdown]
# A term that underflows is below $10^{-38}$ next to a sum of at least 1, so it cannot change the result. The upper
# bound is no problem either: for ImageNet and $k = 5$ it is $8 \cdot 10^{12}$, which fits into float32. It remains to
# compute $S_j$ without passing through $\sigma_j$.
#
# ## Tail first, then the head
#
# Begin with the tail alone. Its polynomials $\varepsilon_m = \sigma_m(\mathbf{u})$ are sums of products of numbers that
# are at most one. Algorithm 3 of chapter 3 computes them, without logarithms.

# %%
head = (ordered[:k] - ordered[k - 1]) / tau
u = torch.exp((ordered[k:] - ordered[k - 1]) / tau)
S = torch.tensor([1.0] + [0.0] * k, dtype=torch.float64)
for value in u:
    S[1:] = S[1:] + value * S[:-1].clone()
print("ε_0, ..., ε_5 =", ", ".join(f"{value:.3g}" for value in S.tolist()))

# %%
# The tree of chapter 4 gives the same polynomials of the tail.
assert torch.allclose(S, tree(u.log(), k).exp())

# %% [markdown]
# Now the classes of the head join one by one, from the pivot, $i = k$, to the largest class, $i = 1$. When class $i$
# joins, Algorithm 3 says $\sigma_j \leftarrow \sigma_j + e^{t_i} \sigma_{j-1}$. We want the same step for the $S_j$.
# The numbers to divide by are these, where $t_j$ counts as zero for $j > k$:
#
# - Before the step, the $j$ largest are classes $i+1$ to $i+j$, and $\sigma_j$ was divided by
#   $\exp(t_{i+1} + \cdots + t_{i+j})$.
# - Likewise $\sigma_{j-1}$ was divided by $\exp(t_{i+1} + \cdots + t_{i+j-1})$.
# - After the step, the $j$ largest are classes $i$ to $i+j-1$, and $\sigma_j$ is to be divided by
#   $\exp(t_i + \cdots + t_{i+j-1})$.
#
# Insert $\sigma_j = S_j \exp(t_{i+1} + \cdots + t_{i+j})$ and $\sigma_{j-1} = S_{j-1} \exp(t_{i+1} + \cdots +
# t_{i+j-1})$ into the step, and divide by the new term. Nearly everything cancels:
#
# $$S_j \leftarrow e^{\,t_{i+j} - t_i} \, S_j + S_{j-1}.$$
#
# The factor is at most one, because the $t_j$ are sorted. All the large numbers $e^{t_i}$ are gone. The
# recursion starts from the tail alone, $S_j = \varepsilon_j$, for which the number to divide by is $e^0 = 1$.

# %%
t = torch.cat([head, torch.zeros(k, dtype=torch.float64)])
for i in reversed(range(k)):
    decay = torch.exp(t[i + 1 : i + 1 + k] - t[i])
    assert decay.max() <= 1
    S[1:] = decay * S[1:] + S[:-1].clone()
print("S_0, ..., S_5 =", ", ".join(f"{value:.4g}" for value in S.tolist()))

# %%
# These are the scaled polynomials of all classes.
assert torch.allclose(S, pivot.scaled_sigmas(scores[:1], k, 1 / (k * tau))[0][:, 0])

# %% [markdown]
# Here is the whole algorithm on nine other classes with $k = 3$. Move the step. First there is the tail alone. Then the
# pivot joins, then the second largest class, then the largest. Below each new number stands what it is made of: a
# factor up to one times its left neighbour, plus the number below that neighbour. Move $\tau$ as well: even at
# $\tau = 10^{-4}$ no number in the table is large.
#
# **Figure.** The pivot algorithm. The upper panel shows the classes by rank: the tail, the classes of the head that
# still wait, the class that joins in this step, and those that joined before. The lower panel is the table of $S_j$,
# one column per step.

# %%
few = torch.tensor([3.4, 2.2, 1.0, 0.6, 0.3, -0.2, -0.9, -1.3, -2.0])


def draw(axes, step, tau):
    by_rank = measure.head_and_tail_table(few, k=3, tau=tau)
    joined = measure.joining_table(few, k=3, tau=tau)
    figures.pivot_steps(by_rank, joined, step=step, axes=axes)


controls.explore(
    draw,
    panels=(2, 1),
    size=(7.2, 5.4),
    step=widgets.IntSlider(description="step", value=2, min=0, max=3),
    tau=tau,
)

# %%
# The last column is S_0 to S_3 of the nine classes, at every τ.
for value in taus:
    joined = measure.joining_table(few, k=3, tau=value)
    last = torch.tensor(joined[joined["step"] == 3]["value"].to_numpy())
    truth = pivot.scaled_sigmas(few[None], 3, 1 / (3 * value))[0][:, 0]
    assert torch.allclose(last, truth)

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
# The square bracket is the hard loss before its $\max(\cdot, 0)$, the *hard margin* of chapter 2. The logarithm is the
# *correction*, called $c$ there. Here are the loss and, through automatic differentiation, its gradient in plain torch:


# %%
def pivot_loss(scores, labels, *, k, tau, margin=1.0):
    """The smooth top-k loss of each sample, in linear space."""
    others = scores.scatter(1, labels[:, None], -torch.inf)
    head, index = others.topk(k)
    kth_score = head[:, -1:].detach()
    head = (head - kth_score) / (k * tau)
    rest = others.scatter(1, index, -torch.inf)
    tail = torch.exp((rest - kth_score) / (k * tau))

    one = torch.ones_like(kth_score)
    S = torch.cat([one, torch.zeros_like(head)], 1)  # (N, k + 1)
    for u in tail.split(1, dim=1):
        S = torch.cat([one, S[:, 1:] + u * S[:, :-1]], 1)

    # The terms we divide by are constants for the derivative.
    t = torch.cat([head, torch.zeros_like(head)], 1).detach()
    for i in reversed(range(k)):
        decay = torch.exp(t[:, i + 1 : i + 1 + k] - t[:, i : i + 1])
        join = torch.exp(head[:, i : i + 1] - t[:, i : i + 1])  # one, with a derivative
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
# Losses and gradients equal those of the package, in float64 and in float32.
package = partial(smooth_topk_loss, reduction="none")
for dtype, tolerance in ((torch.float64, 1e-12), (torch.float32, 1e-5)):
    ours = value_and_gradient(pivot_loss, scores.to(dtype))
    theirs = value_and_gradient(package, scores.to(dtype))
    for mine, its in zip(ours, theirs, strict=True):
        assert torch.allclose(mine, its, rtol=tolerance, atol=tolerance)

# %% [markdown]
# ## The correction is bounded
#
# How large can the correction $\log(S_k/S_{k-1})$ be with $n$ classes? There are $n-1$ other classes, with weights
# $e_i$. Let $e_{[k]}$ be the weight of the pivot. Then $S_k/S_{k-1} = \sigma_k / (e_{[k]}\,\sigma_{k-1})$, and we
# compare $\sigma_k$ with $e_{[k]}\,\sigma_{k-1}$. The weight of a set is the product of the weights of its members. So
# $\sigma_{k-1}$ is the total weight of all sets of $k-1$ other classes, and $\sigma_k$ that of all sets of $k$.
#
# **From below.** We show $e_{[k]}\,\sigma_{k-1} \le k\,\sigma_k$. Take any set $B$ of $k-1$ other classes. It misses at
# least one of the $k$ classes of the head. Let $h$ be the largest class of the head that it misses, and send $B$ to the
# set $B \cup \{h\}$ of $k$ classes. The weight of the image is $e_h \ge e_{[k]}$ times the weight of $B$. How many sets
# $B$ can have the same image? At most $k$, because each of them is the image without one of its $k$ members. So if we
# add up the weights of the images of all $B$, every set of $k$ classes is counted at most $k$ times:
#
# $$e_{[k]}\,\sigma_{k-1} \le \sum_B \text{weight}(B \cup \{h\}) \le k\,\sigma_k .$$
#
# This contains Lemma 3 of the paper, $e_y\,\sigma_{k-1} \le k\,\sigma_k$ where the answer is wrong, because there
# $e_y \le e_{[k]}$. (The paper's own proof works with random sets and has a gap: [erratum
# 8](../book/errata.md#8-the-sets-in-the-proof-of-lemma-3-are-no-partition).)
#
# **From above.** We show $\sigma_k \le (n-k)\,e_{[k]}\,\sigma_{k-1}$. Take any set of $k$ other classes and remove its
# smallest class. That class weighs at most $e_{[k]}$. The same set of $k-1$ classes can remain from at most
# $n-1-(k-1) = n-k$ different sets, one for each class that may have been removed.
#
# Together, $-\log k \le \log(S_k/S_{k-1}) \le \log(n-k)$ at every temperature. As $\tau \to 0$, $\tau$ times a bounded
# number vanishes, and only the hard loss is left. This is Proposition 2, with a rate and without conditions on ties.
#
# With seven classes and $k = 3$ there are 15 sets $B$ of two other classes. The table lists the images of all of them.
# The other classes are numbered by weight, so that classes 1, 2 and 3 are the head. No image belongs to more than
# three sets.

# %%
# The image of every set B weighs at least as much as B times the weight of the pivot.
e = [Fraction(n, 3) for n in (20, 9, 7, 4, 4, 1)]  # of the other classes, descending
preimages = {}
for members in combinations(range(6), 2):  # k = 3, so B has two members
    missing = min({0, 1, 2} - set(members))  # the largest class of the head
    image = tuple(sorted((*members, missing)))
    preimages.setdefault(image, []).append(members)
    weight, grown = prod(e[i] for i in members), prod(e[i] for i in image)
    assert grown >= e[2] * weight


# %% tags=["hide-input"]
def in_words(members):
    return "{" + ", ".join(str(place + 1) for place in members) + "}"


images = [in_words(image) for image in preimages]
sets = [", ".join(map(in_words, found)) for found in preimages.values()]
index = pd.Index(images, name="image")
tables.show(pd.DataFrame({"sets B with this image": sets}, index))

# %%
# No 3-set has more than 3 preimages, and both inequalities hold in exact arithmetic.
sigma_2 = sum(prod(pair) for pair in combinations(e, 2))
sigma_3 = sum(prod(triple) for triple in combinations(e, 3))
assert max(len(found) for found in preimages.values()) <= 3
assert e[2] * sigma_2 <= 3 * sigma_3
assert sigma_3 <= (7 - 3) * e[2] * sigma_2


# %% tags=["hide-input"]
def corrections(k):
    """log(S_k / S_{k-1}) of each sample over a grid of temperatures."""
    grid = np.logspace(-4, 2, 25)
    others = scores.scatter(1, labels[:, None], -torch.inf)
    scaled = torch.cat([others / (k * value) for value in grid])
    S, _ = pivot.scaled_sigmas(scaled, k)
    columns = {"tau": grid.repeat(samples), "sample": [*range(samples)] * len(grid)}
    return pd.DataFrame(columns | {"correction": torch.log(S[k] / S[k - 1])})


# %% [markdown]
# **Figure.** The correction of four samples against $\tau$. The correction stays between its two bounds. For large
# $\tau$ it tends to $\log \frac{n-k}{k}$ for all samples.

# %%
table = corrections(k)
ax = figures.correction_curve(table, measure.correction_bounds(k, classes))

# %%
# The correction lies within its bounds, and smooth − hard within −τ log k and
# τ log(n − k + 1).
assert table["correction"].between(-log(k), log(classes - k)).all()
hard = hard_topk_loss(scores, labels, k=k, reduction="none")
for value in taus:
    gap = package(scores, labels, k=k, tau=value) - hard
    assert gap.max() <= value * log(classes - k + 1) + 1e-12
    assert gap.min() >= -value * log(k) - 1e-12

# %% [markdown]
# Finite scores can come as close to both bounds as one likes. The ratio $S_k/S_{k-1}$ tends to $1/k$ when all classes
# of the head tie and the tail falls away. It tends to $n - k$ when $k-1$ classes run ahead and all other classes tie.
# With finite scores the lower bound is attained only for $n = k + 1$, where there is no tail, and the upper bound only
# for $k = 1$. In the example $n = 9$ and $k = 3$, so there are eight other classes, and the bounds of the ratio are 1/3
# and 6. The distance is that between the tied classes and the others:

# %%
for distance in (1.0, 10.0, 100.0):
    tied = torch.tensor([[5.0] * 3 + [5.0 - distance] * 5], dtype=torch.float64)
    ahead = torch.tensor([[5.0 + distance] * 2 + [5.0] * 6], dtype=torch.float64)
    below, above = (pivot.scaled_sigmas(row, 3, 1 / 3)[0] for row in (tied, ahead))
    ratios = (below[3] / below[2]).item(), (above[3] / above[2]).item()
    print(f"distance {distance:3g}: {ratios[0]:.4f} and {ratios[1]:.4f}")
    assert ratios[0] >= 1 / 3
    assert ratios[1] <= 9 - 3

# %% [markdown]
# Move $k$. With a larger $k$ the lower bound falls, and so does the upper bound.
#
# **Figure.** The correction and its bounds for the $k$ of the control. All curves stay between the bounds.


# %%
def draw(ax, k):
    bounds = measure.correction_bounds(k, classes)
    figures.correction_curve(corrections(k), bounds, ax=ax)


controls.explore(draw, k=k)

# %% [markdown]
# ## Every other class is pushed down
#
# Chapter 2 saw that only the derivative of the true class is negative. Here is the reason. The loss is
# $\tau\,\mathrm{softplus}(z)$ with $z = \alpha/\tau - x_y + \log \sigma_k - \log \sigma_{k-1}$. By the chain rule, the
# derivative of another class $i$ is
#
# $$\frac{\partial L}{\partial s_i} = w \, \big( q_i^{(k)} - q_i^{(k-1)} \big)$$
#
# with
#
# $$w = \frac{\mathrm{sigmoid}(z)}{k}, \qquad q_i^{(j)} = \frac{\partial \log \sigma_j}{\partial x_i},$$
#
# and that of the true class is $-w$. The number $q_i^{(j)}$ is the share of the weight of all sets of size $j$ that
# lies on sets with class $i$. In other words, it is the probability that a random set of size $j$, drawn by weight,
# contains class $i$. It is plausible that a class is more often in a random set of $k$ classes than in one of $k-1$.
# Here is a proof. Let $T_j$ be $\sigma_j$ of the other classes without $i$. Then $\sigma_j = T_j + e_i T_{j-1}$ and
# $q_i^{(j)} = e_i T_{j-1}/\sigma_j$, so that
#
# $$\begin{aligned}
# q_i^{(k)} - q_i^{(k-1)} &= \frac{e_i \, \big( T_{k-1}\,\sigma_{k-1} - T_{k-2}\,\sigma_k \big)}
#   {\sigma_k \, \sigma_{k-1}} \\
# &= \frac{e_i \, \big( T_{k-1}^2 - T_{k-2}\,T_k \big)}{\sigma_k \, \sigma_{k-1}} .
# \end{aligned}$$
#
# The second line follows because $T_{k-1}\,\sigma_{k-1}$ and $T_{k-2}\,\sigma_k$ both contain $e_i T_{k-1} T_{k-2}$,
# which cancels. It remains to show that the bracket is positive, and for this we count. Multiply both products in the
# bracket out, and look at one monomial. The classes of some set $C$ occur in it twice, and $2r$ further classes occur
# once.
#
# - In $T_{k-1} \cdot T_{k-1}$ both factors contain $C$, and each takes $r$ of the $2r$ further classes. There are
#   $\binom{2r}{r}$ ways to deal them out.
# - In $T_{k-2} \cdot T_k$ the first factor takes only $r - 1$ of the further classes. There are $\binom{2r}{r-1}$ ways.
#
# The first number is larger. The difference, $\binom{2r}{r} - \binom{2r}{r-1} = \frac{1}{r+1}\binom{2r}{r}$, is the
# $r$-th Catalan number: $1, 1, 2, 5, 14, \dots$ for $r = 0, 1, 2, 3, 4, \dots$ So the bracket is a sum of positive
# terms, and **the derivative of every class except the true one is positive**. (The inequality $T_{k-1}^2 \ge T_{k-2}
# T_k$ is a weak form of Newton's inequality for symmetric polynomials.)
#
# The count says more. A monomial has $r \le k - 1$, so $\binom{2r}{r-1}/\binom{2r}{r} = \frac{r}{r+1} \le
# \frac{k-1}{k}$, and the second product is at most $1 - \frac1k$ of the first. The difference is therefore at least
# $\frac1k$ of the first product: the subtraction makes a relative error larger by a factor of about $2k$ at most, and
# never destroys all digits.


# %%
def sigma(e, j):
    return sum(prod(subset) for subset in combinations(e, j)) if j >= 0 else 0


without = e[1:]  # five classes; the class that is left out is e[0]
T = {j: sigma(without, j) for j in (1, 2, 3)}
counted = 0
for r, catalan in enumerate((1, 1, 2)):  # k = 3
    for twice in combinations(range(5), 2 - r):
        rest = [value for place, value in enumerate(without) if place not in twice]
        squares = prod(without[place] ** 2 for place in twice)
        counted += catalan * squares * sigma(rest, 2 * r)
print(f"T_2² − T_1 T_3 = {T[2] ** 2 - T[1] * T[3]}; the count gives {counted}")
assert T[2] ** 2 - T[1] * T[3] == counted > 0
assert T[1] * T[3] <= Fraction(2, 3) * T[2] ** 2

# %%
# For every sample and temperature, only the label has a negative derivative (float64).
for value in taus:
    row = scores.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(package(row, labels, k=k, tau=value).sum(), row)
    off_label = gradient.scatter(1, labels[:, None], 0.0)
    assert (off_label >= -1e-15).all()
    assert (gradient.gather(1, labels[:, None]) <= 0).all()

# %% [markdown]
# ## The gradient of the tail: one polynomial
#
# Algorithm 2 of chapter 5, written as one sum, is
#
# $$\sigma_{j-1}(\text{without } i) = \sum_{m=0}^{j-1} (-u_i)^m \, \sigma_{j-1-m}.$$
#
# Algorithm 2 failed for elements far above the others. No class of the tail is far above the others, because $k$
# classes are at least as large. So the sum is safe for the tail, as long as $k$ is not too large (we come back to this
# below). The sum also shows that the derivative of *every* class of the tail is $u_i$ times the same polynomial of
# degree $k-1$, taken at $u_i$. Only the $k$ coefficients of this polynomial are needed per sample.


# %%
def tail_polynomial(others, k, tau):
    """Coefficients of the polynomial, from the scores of the other classes."""
    distances = (others - others.topk(k).values[-1])[None]
    S, log_terms = pivot.scaled_sigmas(distances, k, 1 / (k * tau))
    sigma = S[:, 0] * torch.exp(log_terms[:, 0] - log_terms[k, 0])  # in one unit
    upper = sigma.flip(0)[1:] / sigma[k]
    lower = torch.cat([sigma.flip(0)[2:], sigma.new_zeros(1)]) / sigma[k - 1]
    return (-1) ** torch.arange(k) * (upper - lower)


# %% [markdown]
# **Figure.** The points are $q_i^{(k)} - q_i^{(k-1)}$ of the classes of the tail, by automatic differentiation. The
# line is $u$ times the polynomial. All classes lie on the line.

# %%
label = labels[0]
others = torch.cat([scores[0][:label], scores[0][label + 1 :]])
points = measure.tail_table(others, k=k, tau=tau)
ax = figures.tail_derivatives(points, tail_polynomial(others, k, tau))

# %%
# The polynomial gives the derivatives of the tail and, times w, those of the loss.
u, derivative = torch.tensor(points.to_numpy()).T
coefficients = tail_polynomial(others, k, tau)
polynomial = sum(c * u**m for m, c in enumerate(coefficients))
assert torch.allclose(u * polynomial, derivative, rtol=1e-10, atol=1e-15)
gradient = value_and_gradient(package, scores)[1][0]
order = scores[0].argsort(descending=True)
tail = order[order != label][k:]
assert torch.allclose(gradient[tail], -gradient[label] * derivative, rtol=1e-10)

# %% [markdown]
# The gradient of the tail takes one pass over the scores, with $k$ multiplications and additions per class. Move $\tau$
# and $k$: the curve bends, and the points stay on it.
#
# **Figure.** Derivatives of the tail for the values of the controls. The points stay on the curve for every $\tau$ and
# $k$.


# %%
def draw(ax, tau, k):
    points = measure.tail_table(others, k=k, tau=tau)
    figures.tail_derivatives(points, tail_polynomial(others, k, tau), ax=ax)


controls.explore(draw, tau=tau, k=k)

# %% [markdown]
# ## The gradient of the head: reverse mode
#
# The $k$ classes of the head *are* above the others, and for them the sum with alternating signs would fail. Their
# derivatives come from differentiating the recursion $S_j \leftarrow e^{\,t_{i+j}-t_i} S_j + S_{j-1}$ backwards, in $k$
# steps of $k$ numbers. Automatic differentiation does exactly this in `pivot_loss`, and the package writes it out.
#
# Does this lose digits? The backward recursion starts from the derivatives of $\log S_k - \log S_{k-1}$, which are
# $1/S_k$ and $-1/S_{k-1}$. The steps multiply by positive numbers, but the two starting values have opposite signs. So
# the results are differences $q_i^{(k)} - q_i^{(k-1)}$ of numbers between 0 and 1, and each carries the rounding error
# of a number of size one. For a class far in front, whose derivative is tiny, this error may exceed the derivative
# itself. Compared with the largest entry of the gradient, which is that of the true class, the error is that of one
# rounding. The package computes these $k$ numbers per sample in float64, so their error is far below what float32 can
# show. Here are the errors against 50 digits:

# %%
both = {"25 lines": pivot_loss, "package": package}
errors = measure.error_table(both, scores.float(), labels, k=k, taus=[tau])
for row in errors.itertuples():
    print(
        f"{row.algorithm}: loss {row.loss_error:.1e}, gradient {row.gradient_error:.1e}"
    )
    assert row.gradient_error < 1e-5

# %% [markdown]
# The 25 lines compute everything in float32. The package uses float64 where there are only about $k$ numbers per
# sample, and is a little more accurate. This costs nearly nothing, because most of the work is on the $n$ scores per
# sample.
#
# ## Newton's identities, and when they are safe
#
# The loop over the tail takes about $n$ steps one after the other. In plain torch the package avoids the loop
# (`pivot/torch_backend.py`). It computes the power sums $p_m = \sum_i u_i^m$, in one pass over the scores, and gets the
# polynomials of the tail from Newton's identities,
#
# $$m \, \varepsilon_m = \sum_{r=1}^{m} (-1)^{r-1} \varepsilon_{m-r} \, p_r .$$


# %%
def newton(u, k):
    """epsilon_0..epsilon_k of the tail from its power sums."""
    power_sums = [(u**m).sum() for m in range(1, k + 1)]
    epsilon = [torch.ones((), dtype=u.dtype)]
    for m in range(1, k + 1):
        terms = [epsilon[m - r] * power_sums[r - 1] for r in range(1, m + 1)]
        epsilon.append((sum(terms[::2]) - sum(terms[1::2])) / m)
    return torch.stack(epsilon)


# %%
# Newton's identities give the polynomials of the tail.
assert torch.allclose(newton(u, k), tree(u.log(), k).exp())

# %% [markdown]
# The signs alternate, so digits are lost. How many? We make the package use float32 or float64 for the tail, and
# measure the error of the gradient. We do so for few classes, $n = k+2$, and for many, $n = 5k$. Few classes are the
# worst case, because nearly all of them are in the head.


# %% tags=["hide-input"]
def forced_error(k, extra, dtype):
    """Largest error of the gradient when the tail is computed in `dtype`."""
    random = torch.Generator().manual_seed(k)
    few = torch.randn(samples, k + extra, generator=random).to(dtype)
    zero = torch.zeros(samples, dtype=torch.long)
    ones = torch.ones(samples, dtype=torch.float64)
    with patch.object(torch_backend, "working_dtype", return_value=dtype):
        _, *state = torch_backend.forward(few, zero, k, 10.0, margin)
        state = torch_backend.RowState(*state)
        gradient = torch_backend.backward(few, state, ones, k, 10.0)
    truth = exact_loss(few, zero, k=k, tau=10.0, margin=margin)[1]
    return measure.largest_relative_error(gradient, truth)


cases = {
    "float32, n = k + 2": (2, torch.float32),
    "float32, n = 5 k": (None, torch.float32),
    "float64, n = k + 2": (2, torch.float64),
}
rows = [
    (degree, name, forced_error(degree, extra or 4 * degree, dtype))
    for degree, (name, (extra, dtype)) in product(newton_degrees, cases.items())
]
rows += [(d, "$2^k$ × float32 rounding", 2**d * 2.0**-24) for d in newton_degrees]
lost = pd.DataFrame(rows, columns=["k", "arithmetic", "gradient_error"])

# %% [markdown]
# **Figure.** Error of the gradient against $k$ when the tail's polynomials come from Newton's identities. In the worst
# case the error grows like $2^k$. With many classes it hardly grows.

# %%
options = {"x": "k", "error": "gradient_error", "curves": "arithmetic"}
ax = figures.error_curves(lost, **options)

# %% [markdown]
# The package does not look at the scores to decide. For float32 scores it chooses by $k$ alone. Up to $k = 5$ the tail
# is computed in float32, and up to $k = 32$ in float64.
#
# Beyond $k = 32$ the package measures the scores from another point $b$ than the pivot (`pivot/torch_large_k.py`).
# Imagine that every other class is drawn or not drawn by chance, independently, with the odds $v_i = \exp((s_i -
# b)/(k\tau))$ of being drawn. The probability that exactly $j$ classes are drawn is $\sigma_j(\mathbf{v})$ times a
# constant. Choose $b$ such that $k - \frac12$ classes are drawn on average. Then $k-1$ and $k$ are the two most likely
# numbers of drawn classes, so the two results that we need are not small beside the terms that they are made of. For a
# class with $v_i > 1$ the package works with the odds $1/v_i$ of *not* being drawn, so that all powers are powers of
# numbers up to one. Measured from $b$, the same identities stay accurate to rounding for any $k$ up to $n - 1$; with
# $k = 40$ of 60 classes the error is below $10^{-6}$.

# %%
# The arithmetic changes at k = 6 and at k = 33. Up to k = 5 float32 has errors below
# 1e-6, and at k = 40 of 60 classes so has the package.
assert torch_backend.working_dtype(torch.float32, 5) == torch.float32
assert torch_backend.working_dtype(torch.float32, 6) == torch.float64
assert torch_backend.working_dtype(torch.float32, 33) is None
few_classes = lost[lost["arithmetic"] == "float32, n = k + 2"]
found = few_classes.set_index("k")["gradient_error"]
assert all(found[degree] < 1e-6 for degree in newton_degrees if degree <= 5)
assert all(found[degree] < 2**degree * 2.0**-23 for degree in newton_degrees)
large = {"package": partial(package, algorithm="pivot")}
large_k = measure.error_table(large, *measure.random_scores(2, 60), k=40, taus=[tau])
assert large_k["gradient_error"].max() < 1e-6

# %% [markdown]
# ## The map
#
# How accurate is each algorithm over the whole range of temperatures and scores?
#
# **Figure.** The error of the gradient over the temperature and the scale of the scores in float32: the paper's
# algorithms and pivot, on one colour scale. The log tree is divide and conquer with logarithms (chapter 4). Its gradient
# comes from Algorithm 2 and the series (chapter 5), or from automatic differentiation. In crossed cells the gradient is
# not finite. Pivot is accurate to rounding in every cell.

# %% tags=["hide-input"]
losses = {
    "summation": partial(package, algorithm="summation"),
    "log tree + series": partial(package, algorithm="divide_and_conquer"),
    "log tree + autograd": partial(package, algorithm="divide_and_conquer_autograd"),
    "pivot": package,
}
drawn = measure.random_scores(samples, classes)
errors = measure.error_table(losses, *drawn, k=k, taus=taus, scales=scales)

# %%
axes = figures.error_maps(errors, error="gradient_error")

# %% tags=["hide-input"]
worst = errors.groupby("algorithm", sort=False)[["loss_error", "gradient_error"]].max()
names = {"loss_error": "loss", "gradient_error": "gradient"}
shown = worst.rename(columns=names).map("{:.1e}".format)
tables.show(shown.rename_axis("largest error over the map, float32"))

# %%
# Pivot is accurate to rounding; the tree with autograd loses over 100 times as much.
assert worst.loc["pivot"].max() < 1e-6
others_error = worst.loc["log tree + autograd", "gradient_error"]
assert others_error > 100 * worst.loc["pivot", "gradient_error"]

# %% [markdown]
# The package's tests (`tests/symmetric_polynomials`, `tests/pivot`) repeat this with ties, with deleted classes, and
# with a label that has the largest score.
#
# ## What we saw
#
# - Each $\sigma_j$, divided by its own largest term, lies between 1 and $\binom{n}{j}$. Nothing overflows, and the sums
#   need no logarithms.
# - The smooth loss is a softplus of the hard margin plus a correction between $-\log k$ and $\log(n-k)$. Both bounds
#   have short proofs. The lower bound contains Lemma 3 of the paper.
# - The derivative of every class except the true one is positive, because $T_{k-1}^2 - T_{k-2} T_k$ is a sum of Catalan
#   numbers times products of weights.
# - The derivatives of all classes of the tail lie on one curve, $u$ times a polynomial. Those of the head come from
#   differentiating the recursion of the $S_j$ backwards.
# - The sums with alternating signs are sums over numbers up to one. In the worst case they make the rounding error
#   larger by $2^k$. The package chooses the arithmetic by $k$ alone.
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
# The head is the largest other class, and it is also the pivot. The tail is the rest. $S_0 = 1$ and $S_1$ is the sum of
# $\exp((s_i - s_{[1]})/\tau)$ over all other classes. For $\tau = 1$ and $\alpha = 0$ the argument of the softplus is
# $s_{[1]} - s_y + \log \sum_{i \ne y} \exp(s_i - s_{[1]}) = \log \sum_{i \ne y} e^{s_i} - s_y$, and the softplus adds
# the true class to the sum: this is cross-entropy, computed with the largest score taken out.
#
# </details>
#
# <details><summary>Answer 3</summary>
#
# The correction is $\log \frac{\binom{n-1}{k}}{\binom{n-1}{k-1}} = \log \frac{n-k}{k}$. The hard margin is $\alpha$, so
# the loss is $\tau\,\mathrm{softplus}\big(\frac{\alpha}{\tau} + \log\frac{n-k}{k}\big) = \tau \log\big(1 +
# \frac{n-k}{k} e^{\alpha/\tau}\big)$.
#
# </details>

# %% [markdown]
# ## Next
#
# [7 · Speed](07_speed.ipynb): how long the loss takes, and how much memory.
