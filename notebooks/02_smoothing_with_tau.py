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
# **You will** build the smooth loss from its definition, find the hard loss and cross-entropy as special cases, check
# Propositions 2, 3 and 4, and see all three in one picture.
#
# **Paper.** Section 3.3, eq. (9); appendix A.2 to A.4.
#
# **Time.** 20 minutes to read, half a minute to run.

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
from smooth_topk.study import figures, measure
from smooth_topk.study.chapters import controls, notebook
from smooth_topk.study.chapters.tau_explorer import TauExplorer

notebook.start(profile)
random = torch.Generator().manual_seed(2)
scores = 3 * torch.randn(samples, classes, generator=random, dtype=torch.float64)
labels = torch.randint(classes, (samples,), generator=random)
others = scores[0, 1:]
rounding = 1e-9  # far above the rounding errors of float64, far below any loss

# %% [markdown]
# ## What τ does
#
# Take one sample, and let the score of its true class move. The hard loss of chapter 1 is a hinge with a corner. The
# smooth loss rounds the corner off, and $\tau$ says how much.
#
# **Figure.** The hard loss and three smooth losses of one sample. With a small $\tau$ the smooth loss follows the
# corner of the hard loss. With a large $\tau$ it stays far above the hard loss. Far to the left all four curves fall
# with the slope $-1/k$.

# %%
taus = [0.1, 0.3, 1.0]
options = {"k": k, "margin": margin}
curves = measure.loss_curve_table(others, taus=taus, cross_entropy=False, **options)
ax = figures.loss_curves(curves)

# %%
# Far to the left the slope is −1/k for every τ.
far = torch.cat([others.min()[None] - 200.0, others]).requires_grad_()
for value in taus:
    loss = smooth_topk_loss(far, torch.tensor(0), tau=value, **options)
    (slope,) = torch.autograd.grad(loss, far)
    assert math.isclose(slope[0], -1 / k, rel_tol=1e-9)

# %% [markdown]
# Move $\tau$, $k$ and the margin. Which of them move the corner of the hard loss, and which one does not?
#
# **Figure.** The hard and the smooth loss for the values of the controls. The larger $\tau$ is, the wider is the bend
# that takes the place of the corner.


# %%
def draw(ax, tau, k, margin):
    options = {"k": k, "margin": margin, "cross_entropy": False}
    figures.loss_curves(measure.loss_curve_table(others, taus=[tau], **options), ax=ax)


controls.explore(draw, tau=tau, k=k, margin=margin)

# %% [markdown]
# ## From a maximum to a sum
#
# Where does the rounded corner come from? Chapter 1 wrote the hard loss as a difference of two maxima over sets of $k$
# classes. A maximum has corners, because a small change of the scores can hand the first place to another set. There is
# a smooth stand-in. For numbers $a_1, \dots, a_m$, the expression $\tau \log \sum_i \exp(a_i/\tau)$ is at least the
# largest number and at most $\tau \log m$ more, and so it tends to the maximum as $\tau \to 0$. Putting this smooth
# maximum in place of both maxima gives eq. (9):
#
# $$\begin{aligned}
# & L_{k,\tau}(\mathbf{s}, y) = \\
# & \quad \tau \log \sum_{\bar{\mathbf{y}}} \exp\frac{\alpha\,\mathbb{1}(y \notin \bar{\mathbf{y}})
#     + \frac1k\sum_{j \in \bar{\mathbf{y}}} s_j}{\tau} \\
# & \quad - \tau \log \sum_{\bar{\mathbf{y}} \ni y} \exp\frac{\sum_{j \in \bar{\mathbf{y}}} s_j}{k\tau}.
# \end{aligned}$$
#
# As in chapter 1, $\bar{\mathbf{y}}$ runs over the sets of $k$ classes, and the second sum takes only the sets that
# contain $y$. With eight classes all sets can be listed, and the definition is a few lines of code.


# %%
def smooth_loss_by_definition(s, y, k, tau, margin):
    sets = list(combinations(range(len(s)), k))
    mean = {members: sum(s[j] for j in members) / k for members in sets}
    every = torch.stack(
        [mean[members] + margin * (y not in members) for members in sets]
    )
    with_y = torch.stack([mean[members] for members in sets if y in members])
    return tau * (every / tau).logsumexp(0) - tau * (with_y / tau).logsumexp(0)


few = scores[0, :8]
for size in (1, 3, 5):
    listed = smooth_loss_by_definition(few, 0, size, tau, margin)
    package = smooth_topk_loss(few, torch.tensor(0), k=size, tau=tau, margin=margin)
    print(f"k = {size}, {math.comb(8, size):2} sets: definition {listed:.12f}")
    print(f"                package    {package:.12f}")
    assert torch.isclose(listed, package, rtol=1e-12)

# %% [markdown]
# With 100 classes and $k = 5$ there would be 75 million sets. Chapters 3 to 6 show how to compute the sums without
# them. This chapter only uses the result.
#
# ## A small τ: the hard loss
#
# **Proposition 2.** As $\tau \to 0$, $L_{k,\tau}$ tends to $l_k$. The paper assumes that certain scores do not tie.
# This assumption is not needed ([errata](../book/errata.md#conditions-that-are-not-needed)). For all scores
#
# $$-\tau \log k \le L_{k,\tau} - l_k \le \tau \log(n - k + 1),$$
#
# and the section *Three propositions in one picture* below derives both bounds.
#
# **Figure.** The difference between smooth and hard loss for 60 samples, one thin line each. The lines stay between the
# two bounds, and both bounds go to zero with $\tau$.

# %%
temperatures = torch.logspace(-3, 0, 25).tolist()
gaps = measure.gap_table(scores[:60], labels[:60], taus=temperatures, **options)
ax = figures.gap_figure(gaps, k=k, classes=classes)

# %%
# Every difference lies between −τ log k and τ log(n − k + 1).
assert (gaps["gap"] <= gaps["tau"] * math.log(classes - k + 1) + rounding).all()
assert (gaps["gap"] >= -gaps["tau"] * math.log(k) - rounding).all()

# %% [markdown]
# Ties change nothing. Here all scores are equal, and the difference still goes to zero with $\tau$.

# %%
tied = torch.zeros(1, classes, dtype=torch.float64)
for value in (1.0, 0.1, 0.01, 0.001):
    gap = measure.gap_table(tied, labels[:1], taus=[value], **options)["gap"].item()
    print(f"τ = {value:<5g}  smooth − hard = {gap:.4f}")
    assert abs(gap) <= value * math.log(classes - k + 1) + rounding

# %% [markdown]
# ## One guess: cross-entropy
#
# With $k = 1$ a set is a single class. With $\tau = 1$ and no margin, eq. (9) is then the logarithm of the sum of all
# exponentials minus the true score, which is cross-entropy.

# %%
plain = smooth_topk_loss(scores, labels, k=1, tau=1.0, margin=0.0, reduction="none")
cross_entropy = F.cross_entropy(scores, labels, reduction="none")
difference = (plain - cross_entropy).abs().max()
print(f"largest of {samples} differences: {difference:.1e}")
assert torch.allclose(plain, cross_entropy, rtol=1e-12)

# %% [markdown]
# With $k = 1$, no margin and another $\tau$, the loss is $\tau$ times the cross-entropy of $\mathbf{s}/\tau$. So the
# smooth loss generalises cross-entropy in three directions: more guesses, another temperature, and a margin.

# %%
# With k = 1 and τ = 0.5 the loss is half the cross-entropy of twice the scores.
cooled = smooth_topk_loss(scores, labels, k=1, tau=0.5, margin=0.0)
assert torch.isclose(cooled, 0.5 * F.cross_entropy(scores / 0.5, labels))

# %% [markdown]
# ## What τ does to the gradient
#
# The gradient says which classes learn from a sample. A negative derivative pulls a score up, a positive one pushes it
# down. Only the true class is pulled up. Every other class is pushed down, and the pushes add up to the pull.
#
# **Figure.** The derivatives of one sample for its true class (hatched) and its 12 largest other scores. The titles
# count those that exceed 2 % of the largest. With $\tau = 0.03$ the push is on the classes around the $k$-th place.
# With a larger $\tau$ it spreads over all classes.

# %%
shown = torch.cat([scores[0, labels[0]][None], others.topk(12).values])
bars = measure.derivative_table(shown, 0, taus=[0.03, 0.3, 3.0], **options)
axes = figures.derivative_bars(bars[bars["loss"] != "cross_entropy"])

# %%
# In every row the derivatives sum to zero, and only that of the label is negative.
found = measure.derivatives(scores, labels, taus=[0.03, 0.3, 3.0], **options)
for name, values in found.items():
    without_label = values.scatter(1, labels[:, None], 0.0)
    assert values.sum(dim=1).abs().max() < rounding
    assert (without_label > -rounding).all(), name

# %% [markdown]
# A class far in front is pushed down only a little. It is a member of nearly every answer that has weight, of the right
# answers and of the wrong ones alike, so lowering its score would hardly change their shares. Cross-entropy, in chapter
# 1, pushes the class in front most. [Chapter 6](06_pivot.ipynb) proves that the derivative of every class other than
# the true one is positive.
#
# Move $\tau$ towards zero, and watch the push gather at the $k$-th place.
#
# **Figure.** The derivatives of the hard and the smooth loss for the values of the controls. The smaller $\tau$ is, the
# more of the push lies on the $k$-th place, where the hard loss has all of it.


# %%
def draw(axes, tau, k, margin):
    table = measure.derivative_table(shown, 0, k=k, taus=[tau], margin=margin)
    figures.derivative_bars(table[table["loss"] != "cross_entropy"], axes=axes)


controls.explore(
    draw,
    panels=(2, 1),
    size=(5.4, 4.0),
    tau=tau,
    k=k,
    margin=margin,
)

# %% [markdown]
# ## Not always above the hard loss
#
# **Proposition 3.** $L_{k,\tau} \ge l_k$ for all scores if and only if $k = 1$.
#
# For $k = 1$ the second sum of eq. (9) has a single term, so only the first maximum is smoothed. A smooth maximum is
# never below the maximum. Therefore the smooth loss is never below the hard loss.

# %%
options_1 = {"k": 1, "margin": margin, "reduction": "none"}
smooth_1 = smooth_topk_loss(scores, labels, tau=tau, **options_1)
hard_1 = hard_topk_loss(scores, labels, **options_1)
print(f"k = 1: smooth − hard is {(smooth_1 - hard_1).min():.3f} or more")
assert (smooth_1 >= hard_1 - rounding).all()

# %% [markdown]
# For $k \ge 2$ the second maximum is smoothed too, and it is subtracted. The proof gives a counter-example. Let $k$
# other classes tie, and let all further classes have the score $-\infty$, which gives them no weight. Then a single set
# of $k$ classes is without $y$, while $k$ sets contain $y$. These $k$ sets have equal values, so their smooth maximum
# exceeds their maximum by $\tau \log k$. Where the hard loss is large, the smooth loss is smaller than the hard loss by
# nearly this much.
#
# **Figure.** Smooth loss minus hard loss in the counter-example, against the value of the hard loss. For $k = 2$ and
# $k = 5$ the difference falls below zero and tends to $-\tau \log k$.

# %%
examples = measure.counterexample_table([1, 2, 5], tau=tau)
ax = figures.counterexample_figure(examples, tau=tau)

# %%
# Where the hard loss is 20 τ, the difference is −τ log k to six digits.
hard_values = torch.tensor([20 * tau], dtype=torch.float64)
for size in (2, 5):
    example, example_label = measure.counterexample(hard_values, k=size, classes=10)
    smooth = smooth_topk_loss(example, example_label, k=size, tau=tau)
    hard = hard_topk_loss(example, example_label, k=size)
    assert torch.isclose(hard, hard_values[0])
    assert math.isclose(smooth - hard, -tau * math.log(size), rel_tol=1e-6)

# %% [markdown]
# Move $\tau$ and $k$. At which $k$ does the curve stop crossing zero?
#
# **Figure.** The counter-example for the values of the controls. For $k \ge 2$ the curve crosses zero where the hard
# loss is $\tau \log \frac{k}{k-1}$; for $k = 1$ it stays above zero.


# %%
def draw(ax, tau, k):
    figures.counterexample_figure(
        measure.counterexample_table([k], tau=tau), tau=tau, ax=ax
    )


controls.explore(draw, tau=tau, k=max(k, 2))

# %% [markdown]
# ## Always above the error, up to a factor
#
# A loss should be large where the answer is wrong, that is, where the top-$k$ error $\Lambda_k$ of chapter 1 is one.
#
# **Proposition 4.** With $\alpha = 1$, $L_{k,\tau} \ge (1 - \tau \log k)\,\Lambda_k$. The proof gives a tighter bound,
# $\tau \log(1 + e^{1/\tau}/k)\,\Lambda_k$, which is positive for every $\tau$. The bound printed in the proposition is
# informative only for $\tau < 1/\log k$, which is $\tau < 0.62$ for $k = 5$.
#
# **Figure.** The smooth loss of 300 samples, with $\alpha = 1$, against the distance of the true class from the $k$-th
# place. Samples on the right of zero are errors, and all of them lie above both bounds.

# %%
near = scores.clone()
kth = near.scatter(1, labels[:, None], -torch.inf).topk(k).values[:, -1]
around_kth = kth + 4 * torch.randn(samples, generator=random)
near[torch.arange(samples), labels] = around_kth
table = measure.smooth_loss_table(near, labels, k=k, tau=0.3)
ax = figures.prediction_bound(table, k=k, tau=0.3)

# %%
# Both bounds hold for τ from 0.01 to 10.
errors = torch.stack(
    [topk_error(row, y, k) for row, y in zip(near, labels, strict=True)]
)
for value in (0.01, 0.1, 0.3, 1.0, 10.0):
    losses = smooth_topk_loss(near, labels, k=k, tau=value, reduction="none")
    assert (losses >= (1 - value * math.log(k)) * errors - rounding).all()
    tighter = value * math.log1p(math.exp(1 / value) / k)
    assert (losses >= tighter * errors - rounding).all()

# %% [markdown]
# Move $\tau$ above $1/\log k$. The printed bound falls below zero, and the tighter bound does not.
#
# **Figure.** The samples and both bounds for the values of the controls. For every $\tau$ and $k$ all errors, on the
# right of zero, lie above both bounds.


# %%
def draw(ax, tau, k):
    table = measure.smooth_loss_table(near, labels, k=k, tau=tau)
    figures.prediction_bound(table, k=k, tau=tau, ax=ax)


controls.explore(draw, tau=controls.tau_slider(0.3, minimum=0.01, maximum=10), k=k)

# %% [markdown]
# ## What the margin does
#
# A margin $\alpha$ has the same effect as lowering the true score by $k\alpha$. The margin raises every set without $y$
# by $\alpha$. Lowering $s_y$ by $k\alpha$ lowers every set with $y$ by $\alpha$, because the true score enters with the
# factor $1/k$. Either way the two kinds of sets move apart by $\alpha$, and the loss depends only on their difference.
#
# **Figure.** The smooth loss (blue) and the hard loss (thin) for three margins. A margin moves a curve to the right and
# does not change its shape.

# %%
curves = measure.margin_curve_table(others, k=k, tau=0.3, margins=[0.0, 1.0, 2.0])
ax = figures.margin_curves(curves)

# %%
# The loss with margin α equals the loss without margin of a true score lowered by kα.
lowered = scores - k * margin * F.one_hot(labels, classes)
same = {"k": k, "tau": tau, "reduction": "none"}
with_margin = smooth_topk_loss(scores, labels, margin=margin, **same)
without_margin = smooth_topk_loss(lowered, labels, margin=0.0, **same)
assert torch.allclose(with_margin, without_margin)

# %% [markdown]
# With margin 0 the hard loss is already zero where the true score ties with the $k$-th largest of the others. The
# smooth loss asks for more, because at such a tie many sets without $y$ still have weight. For the hard loss, margin
# and weight decay are interchangeable (Proposition 8, [chapter 12](12_margin_study.ipynb)), so the paper keeps
# $\alpha = 1$ and tunes the decay.
#
# ## Three propositions in one picture
#
# Let $h = \alpha + (s_{\setminus y,[k]} - s_y)/k$ be the *hard margin*, the number whose positive part is the hard
# loss. The function $\mathrm{softplus}(x) = \log(1 + e^x)$ is a hinge with a rounded corner: it is close to zero on the
# left and close to $x$ on the right. The smooth loss is a softplus of the hard margin,
#
# $$\begin{aligned}
# & L_{k,\tau} = \tau\,\mathrm{softplus}(h/\tau + c), \\
# & -\log k \le c \le \log(n - k).
# \end{aligned}$$
#
# The correction $c$ depends on the other scores and on $\tau$. It stays between the two bounds for all scores and all
# $\tau$. [Chapter 6](06_pivot.ipynb) derives this formula and computes with it.
#
# **Figure.** Smooth losses of 300 samples against their hard margin $h$. Every sample lies in the band between the
# smallest and the largest possible correction. The dotted hinge is the hard loss.

# %%
least, largest = measure.correction_bounds(k, classes)
table = measure.smooth_loss_table(near, labels, k=k, tau=0.3, margin=margin)
ax = figures.correction_band(table, (least, largest), tau=0.3)

# %%
h = measure.hard_margins(near, labels, k=k, margin=margin)
print(f"allowed: c from {least:.2f} to {largest:.2f}")
for value in (0.1, 0.3, 1.0, 10.0):
    losses = smooth_topk_loss(near, labels, tau=value, reduction="none", **options)
    correction = (losses / value).expm1().log() - h / value  # softplus undone
    seen = correction[losses / value > 1e-6]  # below, too few digits are left
    print(f"τ = {value:<4g} c from {seen.min():5.2f} to {seen.max():.2f}")
    assert (seen >= least - 1e-6).all()
    assert (seen <= largest + 1e-6).all()

# %% [markdown]
# The two edges of the band give all three propositions.
#
# - **Proposition 2.** Softplus lies above the hinge, $\mathrm{softplus}(x) \ge \max(x, 0)$. So the lower edge is at
#   least $\max(h - \tau \log k, 0)$, which is at most $\tau \log k$ below the hard loss $\max(h, 0)$. For the upper
#   edge,
#
#   $$1 + (n - k)\,e^{h/\tau} \le (n - k + 1)\,e^{l_k/\tau},$$
#
#   so it is at most $\tau \log(n - k + 1)$ above the hard loss $l_k = \max(h, 0)$. As $\tau \to 0$ the band closes on
#   the hard loss.
# - **Proposition 3.** With $k = 1$ the lower edge is $\tau\,\mathrm{softplus}(h/\tau)$, which is above the hard loss.
#   With $k \ge 2$ the lower edge is below the hard loss for large $h$, by up to $\tau \log k$.
# - **Proposition 4.** An error means that the true score is below the $k$-th largest of the others, so $h > \alpha$.
#   There the lower edge is at least $\tau \log(1 + e^{\alpha/\tau}/k) \ge \alpha - \tau \log k$.
#
# Move the controls. With a large $\tau$ all samples gather on one curve inside the band. (Question 1 asks which curve
# it is.)
#
# **Figure.** Samples, band and hard loss for the values of the controls. The band becomes wider with $\tau$, and no
# sample leaves it.


# %%
def draw(ax, tau, k, margin):
    table = measure.smooth_loss_table(near, labels, k=k, tau=tau, margin=margin)
    bounds = measure.correction_bounds(k, classes)
    figures.correction_band(table, bounds, tau=tau, ax=ax)


controls.explore(
    draw,
    tau=controls.tau_slider(0.3, minimum=0.01, maximum=10),
    k=k,
    margin=margin,
)

# %% [markdown]
# ## Try it yourself
#
# The explorer below has ten classes. Drag a score, $\tau$, $k$ or the margin, and follow the loss, the gradient and the
# probabilities of [chapter 11](11_topk_probabilities.ipynb).

# %%
explorer = TauExplorer(tau=tau, k=k, margin=margin)
explorer

# %%
# The package gives the loss that the explorer starts with.
explored = torch.tensor(explorer.scores, dtype=torch.float64)
explored_label = torch.tensor(explorer.label)
at_start = smooth_topk_loss(explored, explored_label, tau=explorer.tau, **options)
listed = smooth_loss_by_definition(explored, explorer.label, k, explorer.tau, margin)
assert torch.isclose(at_start, listed)

# %% [markdown]
# ## What we saw
#
# - The smooth loss replaces two maxima over sets by two sums. The temperature $\tau$ says how much the sets below the
#   best one count.
# - As $\tau \to 0$ the smooth loss becomes the hard loss, even where scores tie. With $k = 1$, $\tau = 1$ and no margin
#   it is cross-entropy.
# - The smooth loss lies above the hard loss for all scores only if $k = 1$. For every $k$ it lies above a positive
#   multiple of the top-$k$ error. The multiple printed in the paper is positive only for $\tau < 1/\log k$.
# - The smooth loss is a softplus of the hard margin with a bounded correction. This formula gives all three
#   propositions.
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
