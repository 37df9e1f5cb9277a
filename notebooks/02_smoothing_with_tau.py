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
# # 2 · Smoothing with tau
#
# **Question.** What does the temperature $\tau$ change in the top-$k$ loss, and what does it keep?
#
# **You will** build the smooth loss from its definition, find the hard loss and cross-entropy at its two ends, check
# Propositions 2, 3 and 4, and see all three in one picture.
#
# **Paper.** Section 3.3, eq. (9); appendix A.2 to A.4.
#
# **Time.** 20 minutes to read, seconds to run.

# %% tags=["parameters"]
profile = "quick"
k = 5
tau = 1.0
margin = 1.0
classes = 100
samples = 300

# %%
import math
from itertools import combinations

import torch
from torch.nn import functional as F

from smooth_topk import hard_topk_loss, smooth_topk_loss, topk_error
from smooth_topk.study import controls, figures, notebook
from smooth_topk.study.tau_explorer import TauExplorer

notebook.start(profile)
random = torch.Generator().manual_seed(2)
scores = 3 * torch.randn(samples, classes, generator=random, dtype=torch.float64)
labels = torch.randint(classes, (samples,), generator=random)
others = scores[0, 1:]

# %% [markdown]
# ## From a maximum to a sum
#
# Chapter 1 wrote the hard loss as a difference of two maxima over sets of $k$ classes. The maximum of some numbers is
# the limit of $\tau \log \sum \exp(\cdot/\tau)$ as $\tau \to 0$. Putting that in place of both maxima is eq. (9):
#
# $$L_{k,\tau}(\mathbf{s}, y) =
#   \tau \log \sum_{\bar{\mathbf{y}}} \exp\frac{\alpha\,\mathbb{1}(y \notin \bar{\mathbf{y}})
#     + \frac1k\sum_{j \in \bar{\mathbf{y}}} s_j}{\tau}
#   - \tau \log \sum_{\bar{\mathbf{y}} \ni y} \exp\frac{\sum_{j \in \bar{\mathbf{y}}} s_j}{k\tau}.$$
#
# With eight classes all sets can be listed, and the definition is a few lines.


# %%
def smooth_loss_by_definition(s, y, k, tau, margin):
    sets = list(combinations(range(len(s)), k))
    every = torch.stack([sum(s[j] for j in members) / k + margin * (y not in members) for members in sets])
    with_y = torch.stack([sum(s[j] for j in members) / k for members in sets if y in members])
    return tau * (every / tau).logsumexp(0) - tau * (with_y / tau).logsumexp(0)


few = scores[0, :8]
for size in (1, 3, 5):
    listed = smooth_loss_by_definition(few, 0, size, tau, margin)
    package = smooth_topk_loss(few, torch.tensor(0), k=size, tau=tau, margin=margin)
    print(f"k = {size}: {math.comb(8, size):2} sets, definition {listed:.12f}, package {package:.12f}")
    assert torch.isclose(listed, package, rtol=1e-12)

# %% [markdown]
# With 100 classes and $k = 5$ there would be 75 million sets. Chapters 3 to 6 show how the package avoids them; here we
# only use it.
#
# ## What tau does
#
# The loss of one sample while its true score moves. A small $\tau$ follows the corner of the hard loss, a large one
# leaves it far behind. The slope on the left is $-1/k$ for all of them.

# %%
taus = [0.1, 0.3, 1.0]
ax = figures.loss_curves(figures.loss_curve_table(others, k=k, taus=taus, margin=margin, cross_entropy=False))

# %%
far = torch.cat([others.new_full((1,), others.min() - 200.0), others]).requires_grad_()
for value in taus:
    (slope,) = torch.autograd.grad(smooth_topk_loss(far, torch.tensor(0), k=k, tau=value, margin=margin), far)
    assert math.isclose(slope[0], -1 / k, rel_tol=1e-9)

# %%
controls.explore(
    lambda ax, tau, k, margin: figures.loss_curves(
        figures.loss_curve_table(others, k=k, taus=[tau], margin=margin, cross_entropy=False), ax=ax
    ),
    tau=tau,
    k=k,
    margin=margin,
)

# %% [markdown]
# ## One end: the hard loss
#
# **Proposition 2.** As $\tau \to 0$, $L_{k,\tau}$ tends to $l_k$. The paper assumes that scores do not tie. That is not
# needed: for all scores
#
# $$-\tau \log k \;\le\; L_{k,\tau} - l_k \;\le\; \tau \log(n - k + 1),$$
#
# which the last section of this chapter reads off a picture. Each thin line is one sample; the funnel closes.

# %%
gaps = figures.gap_table(scores[:60], labels[:60], k=k, taus=torch.logspace(-3, 0, 25).tolist(), margin=margin)
ax = figures.gap_figure(gaps, k=k, classes=classes)

# %%
rounding = 1e-9
assert (gaps["gap"] <= gaps["tau"] * math.log(classes - k + 1) + rounding).all()
assert (gaps["gap"] >= -gaps["tau"] * math.log(k) - rounding).all()

# %% [markdown]
# Ties change nothing. If all scores are equal, every gap still goes to zero with $\tau$.

# %%
tied = torch.zeros(1, classes, dtype=torch.float64)
for value in (1.0, 0.1, 0.01, 0.001):
    gap = figures.gap_table(tied, labels[:1], k=k, taus=[value], margin=margin)["gap"].item()
    print(f"τ = {value:<5g}  smooth − hard = {gap:.4f}")
    assert abs(gap) <= value * math.log(classes - k + 1) + rounding

# %% [markdown]
# ## The other end: cross-entropy
#
# With $k = 1$ the sets are the classes. With $\tau = 1$ and no margin, eq. (9) is the logarithm of the sum of all
# exponentials minus the true score: cross-entropy.

# %%
plain = smooth_topk_loss(scores, labels, k=1, tau=1.0, margin=0.0, reduction="none")
cross_entropy = F.cross_entropy(scores, labels, reduction="none")
print(f"largest difference over {samples} samples: {(plain - cross_entropy).abs().max():.1e}")
assert torch.allclose(plain, cross_entropy, rtol=1e-12)

# %% [markdown]
# With $k = 1$ and another $\tau$ it is cross-entropy of the scores divided by $\tau$, times $\tau$. So the smooth loss
# generalises cross-entropy in three directions: more guesses, another temperature, a margin.

# %%
cooled = smooth_topk_loss(scores, labels, k=1, tau=0.5, margin=0.0)
assert torch.isclose(cooled, 0.5 * F.cross_entropy(scores / 0.5, labels))

# %% [markdown]
# ## What tau does to the gradient
#
# The gradient says which classes learn from a sample. It sums to zero: what the true class gains, the others lose.
# Below are the 12 largest scores of a sample and its true class, hatched.

# %%
shown = torch.cat([scores[0, labels[0]][None], others.topk(12).values])
bars = figures.derivative_table(shown, 0, k=k, taus=[0.03, 0.3, 3.0], margin=margin)
axes = figures.derivative_bars(bars[bars["loss"] != "cross_entropy"])

# %%
for name, found in figures.derivatives(scores, labels, k=k, taus=[0.03, 0.3, 3.0], margin=margin).items():
    without_label = found.scatter(1, labels[:, None], 0.0)
    assert found.sum(dim=1).abs().max() < rounding
    assert (without_label >= 0).all(), name

# %% [markdown]
# With a small $\tau$ the push is on the class in the $k$-th place. With a larger one it spreads, first to the classes
# around that place. A class far in front is pushed little: it is in nearly every likely set of $k - 1$ classes already,
# so one place more or less changes nothing for it. Cross-entropy, in chapter 1, pushes the class in front most. Move
# $\tau$:


# %%
def draw(axes, tau, k, margin):
    table = figures.derivative_table(shown, 0, k=k, taus=[tau], margin=margin)
    figures.derivative_bars(table[table["loss"] != "cross_entropy"], axes=axes)


controls.explore(
    draw,
    panels=(2, 1),
    size=(6.4, 4.2),
    tau=tau,
    k=k,
    margin=margin,
)

# %% [markdown]
# ## Not always above the hard loss
#
# **Proposition 3.** $L_{k,\tau} \ge l_k$ for all scores if and only if $k = 1$. For $k = 1$ it is the logarithm of a
# sum against its largest term:

# %%
smooth_1 = smooth_topk_loss(scores, labels, k=1, tau=tau, margin=margin, reduction="none")
hard_1 = hard_topk_loss(scores, labels, k=1, margin=margin, reduction="none")
print(f"k = 1: the smooth loss is above the hard one by at least {(smooth_1 - hard_1).min():.1e}")
assert (smooth_1 >= hard_1 - rounding).all()

# %% [markdown]
# For $k \ge 2$ the proof has a counter-example: $k$ other classes tie, the rest is at $-\infty$. One set of $k$ classes
# is without $y$, but $k$ sets are with it, and the second sum of eq. (9) counts them all. The difference goes to
# $-\tau \log k$ as the hard loss grows.

# %%
ax = figures.counterexample_figure(ks=[1, 2, 5], tau=tau)

# %%
hard_values = torch.tensor([20 * tau], dtype=torch.float64)
for size in (2, 5):
    example, example_label = figures.counterexample(hard_values, k=size, classes=10)
    smooth = smooth_topk_loss(example, example_label, k=size, tau=tau)
    assert torch.isclose(hard_topk_loss(example, example_label, k=size), hard_values[0])
    assert math.isclose(smooth - hard_values[0], -tau * math.log(size), rel_tol=1e-6)

# %%
controls.explore(
    lambda ax, tau, k: figures.counterexample_figure(ks=[k], tau=tau, classes=12, ax=ax), tau=tau, k=max(k, 2)
)

# %% [markdown]
# ## Always above the error, up to a factor
#
# A surrogate should be large where the answer is wrong.
#
# **Proposition 4.** $L_{k,\tau} \ge (1 - \tau \log k)\,\Lambda_k$ with $\alpha = 1$. Its proof passes a better bound on
# the way, $\tau \log(1 + e^{\alpha/\tau}/k)$, which is positive for every $\tau$. The last one is only useful for
# $\tau < 1/\log k$, which is 0.62 for $k = 5$. Each point is a sample; those on the right are errors.

# %%
near = scores.clone()
kth = near.scatter(1, labels[:, None], -torch.inf).topk(k).values[:, -1]
near[torch.arange(samples), labels] = kth + 4 * torch.randn(samples, generator=random)  # around the edge
ax = figures.prediction_bound(near, labels, k=k, tau=0.3, margin=1.0)

# %%
for value in (0.01, 0.1, 0.3, 1.0, 10.0):
    losses = smooth_topk_loss(near, labels, k=k, tau=value, reduction="none")
    errors = torch.stack([topk_error(row, y, k) for row, y in zip(near, labels, strict=True)])
    assert (losses >= (1 - value * math.log(k)) * errors - rounding).all()
    assert (losses >= value * math.log1p(math.exp(1 / value) / k) * errors - rounding).all()

# %%
controls.explore(
    lambda ax, tau, k: figures.prediction_bound(near, labels, k=k, tau=tau, ax=ax),
    tau=controls.tau_slider(0.3, minimum=0.01, maximum=10),
    k=k,
)

# %% [markdown]
# ## What the margin does
#
# A set without the true class gets the bonus $\alpha$. The true score appears in every set with $y$, divided by $k$.
# So a margin $\alpha$ is the same as lowering the true score by $k\alpha$: it asks for more, and changes no shape.

# %%
lowered = scores.clone()
lowered[torch.arange(samples), labels] -= k * margin
with_margin = smooth_topk_loss(scores, labels, k=k, tau=tau, margin=margin, reduction="none")
assert torch.allclose(with_margin, smooth_topk_loss(lowered, labels, k=k, tau=tau, margin=0.0, reduction="none"))

# %%
ax = figures.margin_curves(others, k=k, tau=0.3, margins=[0.0, 1.0, 2.0])

# %% [markdown]
# With margin 0 the hard loss is content with a tie. The smooth loss still asks for more, since a tie leaves many sets
# without $y$ in the sum. For the hard loss the margin and the weight decay are interchangeable (Proposition 8,
# chapter 12), so the paper keeps $\alpha = 1$ and tunes the decay.
#
# ## All of it in one picture
#
# Let $h = \alpha + (s_{\setminus y,[k]} - s_y)/k$, the number whose positive part is the hard loss. The smooth loss is
#
# $$L_{k,\tau} = \tau\,\mathrm{softplus}(h/\tau + c), \qquad -\log k \le c \le \log(n - k),$$
#
# where $c$ depends on the other scores and on $\tau$, but is bounded whatever they are. Chapter 6 derives it and
# computes with it. Every sample lies in the band:

# %%
ax = figures.correction_band(near, labels, k=k, tau=0.3, margin=margin)

# %%
least, largest = figures.correction_bounds(k, classes)
h = figures.hard_margins(near, labels, k=k, margin=margin)
for value in (0.1, 0.3, 1.0, 10.0):
    losses = smooth_topk_loss(near, labels, k=k, tau=value, margin=margin, reduction="none")
    correction = (losses / value).expm1().log() - h / value  # softplus undone
    seen = correction[losses / value > 1e-6]  # below, the logarithm of a difference has no digits left
    print(f"τ = {value:<4g}  c from {seen.min():.2f} to {seen.max():.2f}, allowed {least:.2f} to {largest:.2f}")
    assert (seen >= least - 1e-6).all()
    assert (seen <= largest + 1e-6).all()

# %% [markdown]
# The three propositions are the two edges of the band.
#
# - As $\tau \to 0$ the band, whose height is at most $\tau \log(n - k + 1) + \tau \log k$, closes on the hard loss
#   (Proposition 2).
# - With $k = 1$ the lower edge is $\tau\,\mathrm{softplus}(h/\tau)$, above the hard loss. With $k \ge 2$ it is lower by
#   up to $\tau \log k$ (Proposition 3).
# - An error means $h \ge \alpha$. The lower edge is then at least
#   $\tau \log(1 + e^{\alpha/\tau}/k) \ge \alpha - \tau \log k$ (Proposition 4).

# %%
controls.explore(
    lambda ax, tau, k, margin: figures.correction_band(near, labels, k=k, tau=tau, margin=margin, ax=ax),
    tau=controls.tau_slider(0.3, minimum=0.01, maximum=10),
    k=k,
    margin=margin,
)

# %% [markdown]
# ## Take it in your hands
#
# Ten classes. Drag a score, $\tau$, $k$ or the margin, and follow the loss, the gradient and the probabilities of
# chapter 11. The same explorer is in the book, where it needs no kernel.

# %%
explorer = TauExplorer(tau=tau, k=k, margin=margin)
explorer

# %%
explored = torch.tensor(explorer.scores, dtype=torch.float64)
at_the_sliders = smooth_topk_loss(explored, torch.tensor(explorer.label), k=explorer.k, tau=explorer.tau)
print(f"the package's loss of these scores: {at_the_sliders:.4f}")

# %% [markdown]
# ## What we saw
#
# - The smooth loss replaces two maxima over sets by two sums; $\tau$ says how much the sets below the best one count.
# - As $\tau \to 0$ it becomes the hard loss, with ties too. With $k = 1$, $\tau = 1$ and no margin it is cross-entropy.
# - It bounds the hard loss only for $k = 1$, and the top-$k$ error up to a factor that needs $\tau < 1/\log k$.
# - It is a softplus of the hard margin with a bounded correction, and that gives all three bounds.
#
# ## Questions
#
# 1. All scores are equal. What is the correction $c$, and does it depend on $\tau$?
# 2. Why does the gradient reach all classes for every $\tau > 0$, and yet count as sparse for $\tau = 10^{-3}$?
# 3. You double all scores. Which $\tau$ and which margin give twice the loss you had?
#
# ## Next
#
# [3 · From subsets to polynomials](03_subsets_to_polynomials.ipynb) computes the sums without listing a single set.
