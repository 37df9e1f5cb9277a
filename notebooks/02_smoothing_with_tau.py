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
# # 2 · Smoothing with τ
#
# **Question.** What does the temperature $\tau$ change in the top-$k$ loss, and what does it keep?
#
# **You will** round the corner of the hard loss, build the smooth loss from its definition, find cross-entropy as a
# special case, and read Propositions 2, 3 and 4 off one picture.
#
# **Paper.** Section 3.3, eq. (9); appendix A.2 to A.4.
#
# **Time.** 15 minutes to read, half a minute to run.

# %% tags=["parameters"]
profile = "quick"
k = 5
tau = 1.0
margin = 1.0
classes = 100
samples = 100

# %%
import math
from itertools import combinations

import numpy as np
import torch
from torch.nn import functional as F

from smooth_topk import hard_topk_loss, smooth_topk_loss, topk_error
from smooth_topk.study import figures, measure
from smooth_topk.study.chapters import controls, notebook
from smooth_topk.study.chapters.spider import spider
from smooth_topk.study.chapters.tau_explorer import TauExplorer
from smooth_topk.study.figures.style import BLUE, DARK, look_of_loss

notebook.start(profile)
spider_scores, names, web = spider()
rounding = 1e-9  # far above the rounding errors of float64, far below any loss

# %% [markdown]
# ## What τ does to the loss
#
# Let the score of *web* move, as in chapter 1. The hard loss is a hinge with a corner. The smooth loss of the paper
# approximates the hinge, and $\tau$ says how closely.
#
# **Figure.** The losses of the photograph against the score of *web*, for the values of the controls.

# %% tags=["hide-input"]
others = torch.cat([spider_scores[:web], spider_scores[web + 1 :]])
true_scores = torch.linspace(-4, 24, 141)


def draw_losses(ax, tau, k, margin):
    options = {"k": k, "taus": [tau], "margin": margin}
    table = measure.loss_curve_table(others, true_scores, **options)
    figures.loss_curves(table, ax=ax).set(ylim=(0, 8), xlabel="score of web")


controls.predict(
    "What happens to the corner of the hinge as $\\tau$ grows from 0.01 to 10?",
    [
        "The corner moves to the right.",
        "The corner becomes a bend, which gets wider and wider.",
        "The line to the left of the corner becomes steeper.",
    ],
    right=1,
    then="The bend is several $k\\tau$ wide and stays around the corner. Far to the left "
    "the slope is $-1/k$ for every $\\tau$. The corner itself is moved by $k$ and by the "
    "margin. With $k = 1$, $\\tau = 1$ and $\\alpha = 0$ the smooth loss is cross-entropy.",
)
controls.explore(
    draw_losses,
    tau=tau,
    k=controls.k_slider(k, maximum=6),
    margin=margin,
)

# %%
# Far to the left the slope is −1/k for every τ.
far = torch.cat([others.min()[None] - 1000.0, others]).requires_grad_()
for value in (0.01, 0.1, 1.0, 3.0):
    loss = smooth_topk_loss(far, torch.tensor(0), tau=value, k=k, margin=margin)
    (slope,) = torch.autograd.grad(loss, far)
    assert math.isclose(slope[0], -1 / k, rel_tol=1e-9)

# %% [markdown]
# ## From a maximum to a sum
#
# Where does the bend come from? Chapter 1 wrote the hard loss as a difference of two maxima over answers, the sets of
# $k$ classes. A maximum has corners, because a small change of the scores can hand the first place to another set. Its
# smooth replacement is a *log-sum-exp*. For numbers $a_1, \dots, a_m$,
#
# $$\max_i a_i \;\le\; \tau \log \sum_i \exp(a_i/\tau) \;\le\; \max_i a_i + \tau \log m,$$
#
# because the sum is at least its largest term and at most $m$ times that term. So it tends to the maximum as
# $\tau \to 0$. With this replacement for both maxima, Proposition 1 becomes eq. (9), the smooth top-$k$ loss:
#
# $$\begin{aligned}
# L_{k,\tau}(\mathbf{s}, y) = {} & \tau \log \sum_{\bar{\mathbf{y}}} \exp\frac{\alpha\,\mathbb{1}(y \notin
#     \bar{\mathbf{y}}) + \frac1k\sum_{j \in \bar{\mathbf{y}}} s_j}{\tau} \\
# & - \tau \log \sum_{\bar{\mathbf{y}} \ni y} \exp\frac{\sum_{j \in \bar{\mathbf{y}}} s_j}{k\tau}.
# \end{aligned}$$
#
# The first sum runs over all answers, the second over the right ones. The difference of the two logarithms is the
# logarithm of a ratio, so $L_{k,\tau}$ is $-\tau \log$ of the share of the right answers, as in chapter 0. For the
# spider the definition is a few lines of code.


# %%
def smooth_loss_by_definition(s, y, k, tau, margin):
    sets = list(combinations(range(len(s)), k))
    mean = {members: sum(s[j] for j in members) / k for members in sets}
    every = [mean[members] + margin * (y not in members) for members in sets]
    right = [mean[members] for members in sets if y in members]
    first, second = (torch.stack(terms) / tau for terms in (every, right))
    return tau * first.logsumexp(0) - tau * second.logsumexp(0)


y = torch.tensor(web)
for size in (1, 3, 5):
    listed = smooth_loss_by_definition(spider_scores, web, size, tau, margin)
    package = smooth_topk_loss(spider_scores, y, k=size, tau=tau, margin=margin)
    sets = math.comb(7, size)
    print(
        f"k = {size}, {sets:2} sets: definition {listed:.10f}, package {package:.10f}"
    )
    assert torch.isclose(listed, package, rtol=1e-12)

# %% [markdown]
# With 100 classes and $k = 5$ there would be 75 million sets. Chapters 3 to 6 compute the sums without listing them.
#
# **One guess: cross-entropy.** With $k = 1$ a set is a single class. With $\tau = 1$ and no margin, eq. (9) is the
# logarithm of the sum of all exponentials minus the true score, which is cross-entropy. With another $\tau$ it is
# $\tau$ times the cross-entropy of $\mathbf{s}/\tau$. So the smooth loss generalises cross-entropy in three directions:
# more guesses, another temperature, and a margin. We check this on 100 samples of 100 classes.

# %%
random = torch.Generator().manual_seed(2)
scores = 3 * torch.randn(samples, classes, generator=random, dtype=torch.float64)
labels = torch.randint(classes, (samples,), generator=random)

for value in (1.0, 0.5):
    ours = smooth_topk_loss(scores, labels, k=1, tau=value, margin=0.0)
    cross_entropy = value * F.cross_entropy(scores / value, labels)
    print(f"τ = {value:g}: smooth loss {ours:.12f}, cross-entropy {cross_entropy:.12f}")
    assert torch.isclose(ours, cross_entropy, rtol=1e-12)

# %% [markdown]
# ## What τ does to the gradient
#
# The gradient says which classes learn from a sample. Only the true class is pulled up. Every other class is pushed
# down, and the pushes add up to the pull. Move $\tau$ from 10 down to 0.01. Where does the push gather?
#
# **Figure.** The derivatives of the hard and the smooth loss of the photograph, times $k$; *web* is hatched.


# %% tags=["hide-input"]
def draw_derivatives(axes, tau, k):
    options = {"k": k, "taus": [tau], "names": names, "margin": margin}
    table = measure.derivative_table(spider_scores, web, **options)
    figures.derivative_bars(table[table["loss"] != "cross_entropy"], axes=axes)


three = controls.k_slider(3, maximum=6)
controls.explore(draw_derivatives, panels=(2, 1), size=(5.4, 3.6), tau=tau, k=three)

# %%
# In every row the derivatives sum to zero, and only the label's is negative.
found = measure.derivatives(scores, labels, k=k, taus=[0.03, 0.3, 3.0], margin=margin)
for name, values in found.items():
    without_label = values.scatter(1, labels[:, None], 0.0)
    assert values.sum(dim=1).abs().max() < rounding
    assert (without_label > -rounding).all(), name

# %% [markdown]
# With a large $\tau$ the push spreads over all classes. With a small $\tau$ it gathers at the $k$-th place, where the
# hard loss has all of it. A class far in front is pushed down only a little: it is a member of nearly every answer that
# has weight, of right and of wrong ones alike, so lowering its score would hardly change their shares.
# [Chapter 6](06_pivot.ipynb) proves that the derivative of every class other than the true one is positive.
#
# ## The smooth loss in one formula
#
# Chapter 1 wrote the hard loss as $l_k = \max(h, 0)$ with the shortfall $h = \alpha + (s_{[k]} - s_y)/k$. The function
# $\mathrm{softplus}(x) = \log(1 + e^x)$ is a hinge with a rounded corner: it is close to zero on the left and close to
# $x$ on the right. The smooth loss is a softplus of the shortfall,
#
# $$L_{k,\tau} = \tau\,\mathrm{softplus}(h/\tau + c), \qquad -\log k \;\le\; c \;\le\; \log(n - k).$$
#
# The **correction** $c$ depends on the other scores and on $\tau$. It stays between its two bounds for all scores and
# all $\tau$. [Chapter 6](06_pivot.ipynb) derives the formula and computes with it, and the appendix has the [proof of
# both bounds](../book/proofs.md#the-correction-is-bounded). Here we undo the softplus of the 100 samples and look at
# their corrections. The true scores are moved close to the $k$-th place, where the loss bends.

# %%
kth = scores.scatter(1, labels[:, None], -torch.inf).topk(k).values[:, -1]
near = scores.clone()
near[range(samples), labels] = kth + 4 * torch.randn(samples, generator=random)


def shortfall(scores, labels, k, margin):
    label = labels[:, None]
    kth = scores.scatter(1, label, -torch.inf).topk(k).values[:, -1:]
    return (margin + (kth - scores.gather(1, label)) / k).squeeze(1)


least, largest = -math.log(k), math.log(classes - k)
print(f"bounds:   c from {least:.2f} to {largest:.2f}")
for value in (0.1, 0.3, 1.0, 10.0):
    losses = smooth_topk_loss(near, labels, k=k, tau=value, reduction="none")
    correction = (losses / value).expm1().log() - shortfall(near, labels, k, 1) / value
    seen = correction[losses / value > 1e-6]  # below, too few digits are left
    print(f"τ = {value:<4g}  c from {seen.min():.2f} to {seen.max():.2f}")
    assert least - 1e-6 <= seen.min()
    assert seen.max() <= largest + 1e-6

# %% [markdown]
# Move $\tau$ towards zero. The band between the two bounds closes on the hard loss. With a large $\tau$ all samples
# gather on one curve inside the band. (Question 1 asks which curve it is.) Now move $k$ to 1: where does the lower edge
# of the band lie, compared with the hard loss?
#
# **Figure.** Smooth losses of 100 samples against their shortfall $h$, inside the band of the formula. To the right of
# the vertical line, $h > \alpha$, the answer is wrong.


# %% tags=["hide-input"]
def draw_band(ax, tau, k):
    h = np.linspace(-2, 4, 121)
    bounds = (-math.log(k), math.log(classes - k))
    least, largest = (tau * np.logaddexp(0.0, h / tau + c) for c in bounds)
    look = {"color": BLUE, "linewidth": 0, "alpha": 0.15}
    ax.fill_between(h, least, largest, label="all possible c", **look)
    losses = smooth_topk_loss(
        near, labels, k=k, tau=tau, margin=margin, reduction="none"
    )
    ax.plot(
        shortfall(near, labels, k, margin), losses, ".", color=BLUE, label="samples"
    )
    hard = look_of_loss("hard") | {"marker": ""}
    ax.plot(h, h.clip(min=0), label="hard loss max(h, 0)", **hard)
    ax.axvline(margin, color=DARK, linewidth=0.8)
    bound = margin - tau * math.log(k)
    ax.plot(
        [margin, 4], [bound, bound], color=DARK, linestyle="--", label="α − τ log k"
    )
    ax.set(xlim=(-2, 4), ylim=(-1, 8), xlabel="shortfall h", ylabel="loss")
    ax.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=4, columnspacing=1)


low_tau = controls.tau_slider(0.3, maximum=3)
five = controls.k_slider(k, maximum=max(k, 5))
controls.explore(draw_band, size=(6.4, 3.6), tau=low_tau, k=five)

# %% [markdown]
# The two edges of the band give three propositions of the paper.
#
# **Proposition 2: a small τ gives the hard loss.** $L_{k,\tau} \to l_k$ as $\tau \to 0$. The paper assumes that certain
# scores do not tie, which is [not needed](../book/errata.md#conditions-that-are-not-needed). On the lower edge, softplus
# is at least its argument, so the loss is at least $h - \tau \log k$; it is also positive, and together this gives
# $L_{k,\tau} \ge l_k - \tau \log k$. On the upper edge the loss is $\tau \log(1 + (n-k)\,e^{h/\tau})$. Neither 1 nor
# $e^{h/\tau}$ exceeds $e^{l_k/\tau}$, so $L_{k,\tau} \le \tau \log((n-k+1)\,e^{l_k/\tau})$. For all scores
#
# $$-\tau \log k \;\le\; L_{k,\tau} - l_k \;\le\; \tau \log(n - k + 1).$$
#
# Ties change nothing: the last column has the loss of seven equal scores.

# %%
tied = torch.zeros_like(spider_scores)
for value in (1.0, 0.1, 0.01, 0.001):
    gaps = []
    for row in (spider_scores, tied):
        smooth = smooth_topk_loss(row, y, k=k, tau=value, margin=margin)
        gaps.append(smooth - hard_topk_loss(row, y, k=k, margin=margin))
    print(
        f"τ = {value:<6g} smooth − hard: {gaps[0]:7.4f} (spider) {gaps[1]:7.4f} (ties)"
    )
    for gap in gaps:
        assert -value * math.log(k) - rounding <= gap
        assert gap <= value * math.log(len(names) - k + 1) + rounding

# %% [markdown]
# **Proposition 3: an upper bound on the hard loss only for $k = 1$.** $L_{k,\tau} \ge l_k$ for all scores if and only
# if $k = 1$. With $k = 1$ the lower edge of the band is $\tau\,\mathrm{softplus}(h/\tau)$, which is above the hinge:
# the second sum of eq. (9) has a single term, so only the first maximum is smoothed. For $k \ge 2$ the second maximum
# is smoothed too, and it is subtracted. The lower edge falls below the hinge for large $h$, by up to $\tau \log k$.
#
# The edge is attained by the counter-example of the paper's proof. Let $k$ other classes tie, and let all further
# classes have the score $-\infty$, which gives them no weight. Then a single set of $k$ classes is without $y$, while
# $k$ sets contain $y$. These $k$ sets have equal values, so their smooth maximum exceeds their maximum by
# $\tau \log k$, and $L_{k,\tau} = \tau \log(1 + e^{h/\tau}/k)$.

# %%
for size, value in ((1, 0.1), (2, 0.1), (5, 1.0)):
    h = 20 * value
    example = torch.full((10,), -torch.inf, dtype=torch.float64)
    example[0] = 0.0
    example[1 : size + 1] = size * (h - 1)
    smooth = smooth_topk_loss(example, torch.tensor(0), k=size, tau=value)
    hard = hard_topk_loss(example, torch.tensor(0), k=size)
    limit = value * math.log(1 / size)
    print(
        f"k = {size}, τ = {value:g}: smooth − hard {smooth - hard:.4f}, limit {limit:.4f}"
    )
    assert math.isclose(smooth, value * math.log1p(math.exp(h / value) / size))
    assert math.isclose(smooth - hard, limit, abs_tol=1e-6)

# %%
# The spider is an example too: with k = 2 and τ = 0.1 the smooth loss is the smaller.
# With k = 1 it is never below the hard loss.
smooth = smooth_topk_loss(spider_scores, y, k=2, tau=0.1)
hard = hard_topk_loss(spider_scores, y, k=2)
assert smooth < hard
one_guess = smooth_topk_loss(near, labels, k=1, tau=tau, reduction="none")
assert (one_guess >= hard_topk_loss(near, labels, k=1, reduction="none")).all()

# %% [markdown]
# **Proposition 4: an upper bound on the error, up to a factor.** With $\alpha = 1$,
# $L_{k,\tau} \ge (1 - \tau \log k)\,\Lambda_k$. An error means that $s_y$ is below $s_{[k]}$, so $h > \alpha$. There the
# lower edge of the band is at least $\tau \log(1 + e^{\alpha/\tau}/k) \ge \alpha - \tau \log k$, the dashed line of the
# figure. The printed bound is informative only for $\tau < 1/\log k$, which is $\tau < 0.62$ for $k = 5$. The larger
# one, $\tau \log(1 + e^{\alpha/\tau}/k)$, is positive for every $\tau$.

# %%
# Both bounds hold for τ from 0.01 to 10, and the second is positive.
pairs = zip(near, labels, strict=True)
errors = torch.stack([topk_error(row, label, k) for row, label in pairs])
for value in (0.01, 0.1, 0.3, 1.0, 10.0):
    losses = smooth_topk_loss(near, labels, k=k, tau=value, reduction="none")
    tighter = value * math.log1p(math.exp(1 / value) / k)
    assert (losses >= (1 - value * math.log(k)) * errors - rounding).all()
    assert (losses >= tighter * errors - rounding).all()
    assert tighter > 0

# %% [markdown]
# ## What the margin does
#
# A margin $\alpha$ has the same effect as lowering the true score by $k\alpha$: it moves every curve to the right and
# does not change its shape. The margin raises every set without $y$ by $\alpha$. Lowering $s_y$ by $k\alpha$ lowers
# every set with $y$ by $\alpha$, because the true score enters with the factor $1/k$. Either way the two kinds of sets
# move apart by $\alpha$, and the loss depends only on their difference.

# %%
# The loss with margin α equals the loss without margin of a true score lowered by kα.
lowered = scores - k * margin * F.one_hot(labels, classes)
same = {"k": k, "tau": tau, "reduction": "none"}
with_margin = smooth_topk_loss(scores, labels, margin=margin, **same)
without_margin = smooth_topk_loss(lowered, labels, margin=0.0, **same)
assert torch.allclose(with_margin, without_margin)

# %% [markdown]
# With margin 0 the hard loss is already zero where the true score ties with $s_{[k]}$. The smooth loss is still
# positive there, because many sets without $y$ have weight. For the hard loss, margin and weight decay are
# interchangeable (Proposition 8, [chapter 12](12_margin_study.ipynb)), so the paper keeps $\alpha = 1$ and tunes the
# weight decay.
#
# ## Try it yourself
#
# The explorer has ten classes. Drag a score, $\tau$, $k$ or the margin, and follow the loss, the gradient and the
# probabilities of [chapter 11](11_topk_probabilities.ipynb).

# %%
explorer = TauExplorer(tau=tau, k=k, margin=margin)
explorer

# %%
# The package gives the loss that the explorer starts with.
explored = torch.tensor(explorer.scores, dtype=torch.float64)
at_start = {"k": k, "tau": explorer.tau, "margin": margin}
package = smooth_topk_loss(explored, torch.tensor(explorer.label), **at_start)
listed = smooth_loss_by_definition(explored, explorer.label, **at_start)
assert torch.isclose(package, listed)

# %% [markdown]
# ## What we saw
#
# - The smooth loss replaces two maxima over sets by two sums. The temperature $\tau$ says how much the sets below the
#   best one count.
# - As $\tau \to 0$ the smooth loss becomes the hard loss, even where scores tie. With $k = 1$, $\tau = 1$ and no margin
#   it is cross-entropy.
# - The smooth loss is a softplus of the shortfall with a bounded correction. This formula gives three propositions.
# - The smooth loss lies above the hard loss for all scores only if $k = 1$. For every $k$ it lies above a positive
#   multiple of the top-$k$ error. The multiple printed in the paper is positive only for $\tau < 1/\log k$.
#
# ## Questions
#
# 1. All scores are equal. What is the correction $c$, and does it depend on $\tau$?
# 2. The gradient reaches all classes for every $\tau > 0$. Why is it nevertheless called sparse for $\tau = 10^{-3}$?
# 3. You double all scores. With which $\tau$ and which margin is the new loss exactly twice the old one?

# %% [markdown]
# <details><summary>Answer 1</summary>
#
# With equal scores all sets have equal means, so only the numbers of sets count. There are $\binom{n-1}{k}$ sets
# without $y$ and $\binom{n-1}{k-1}$ sets with $y$. Their ratio is $(n-k)/k$, and a set without $y$ has the additional
# factor $e^{\alpha/\tau} = e^{h/\tau}$. So $L_{k,\tau} = \tau \log\big(1 + \frac{n-k}{k} e^{h/\tau}\big)$, and
# $c = \log\frac{n-k}{k}$. The correction does not depend on $\tau$. For $n = 100$ and $k = 5$ it is $\log 19 = 2.94$. A
# large $\tau$ makes all scores count as nearly equal, and so all samples gather on the curve with this $c$.
#
# </details>
#
# <details><summary>Answer 2</summary>
#
# The derivative of a class $i$ below the $k$-th place contains the factor $\exp((s_i - s_{[k]})/(k\tau))$. With $\tau =
# 10^{-3}$ and $k = 5$, a class that is one unit below the $k$-th place has the factor $e^{-200}$. This number is
# positive, but float32 rounds it to zero. The paper calls such gradients numerically sparse.
#
# </details>
#
# <details><summary>Answer 3</summary>
#
# With twice the $\tau$ and twice the margin. Every exponent in eq. (9) is a sum of scores and margin, divided by
# $\tau$. Scores, margin and $\tau$ are all doubled, so the exponents stay as they were. The factor $\tau$ in front of
# the logarithms doubles the loss.
#
# </details>

# %% [markdown]
# ## Next
#
# [3 · From subsets to polynomials](03_subsets_to_polynomials.ipynb) computes the sums without listing a single set.
