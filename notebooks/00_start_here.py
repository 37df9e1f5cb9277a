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
# # 0 · Start here
#
# **Question.** A classifier may answer with $k$ labels instead of one. Which loss should train it?
#
# **You will** see the smooth top-$k$ loss in one picture, call it in three lines, find your way through the chapters,
# check your installation, and learn how to run everything again.
#
# **Paper.** Berrada, Zisserman and Kumar, *Smooth Loss Functions for Deep Top-k Classification*, ICLR 2018.
#
# **Time.** 5 minutes to read, seconds to run.

# %% tags=["parameters"]
profile = "quick"
k = 5
tau = 1.0
margin = 1.0

# %%
import math

import torch
from torch.nn import functional as F

from smooth_topk import hard_topk_loss, smooth_topk_loss
from smooth_topk.study import figures, measure
from smooth_topk.study.chapters import controls, notebook

notebook.start(profile)

# %% [markdown]
# ## The loss in one picture
#
# A classifier gives every class a score. Suppose that there are five classes, that class 2 is the true one, and that
# the answer may name $k = 2$ of them. There are ten possible answers, the ten pairs of classes. An answer is right if
# it contains the true class.
#
# Each pair gets a weight. A pair with high scores weighs more: its weight is $\exp(m/\tau)$, where $m$ is the mean of
# its two scores. The number $\tau > 0$ is the *temperature*, which you choose: the smaller $\tau$ is, the more of the
# weight goes to the best pair. A pair that is wrong gets the additional factor $\exp(\alpha/\tau)$, where $\alpha$ is
# the *margin*, which you choose too.
#
# The smooth top-$k$ loss is $-\tau \log$ of the share of the weight that lies on right pairs. The loss is small when
# nearly all of the weight is on answers that are right.
#
# **Figure.** The ten pairs of five classes with the scores 2, 1.4, 0.9, 0.1 and −0.6, and their shares of the weight at
# $\tau = 1$ and $\alpha = 1$. The four pairs with class 2 are blue, and the loss is $-\tau \log$ of their share.

# %%
five, true_class = torch.tensor([2.0, 1.4, 0.9, 0.1, -0.6]), 2
pairs = measure.subset_table(five, true_class, k=2, tau=tau, margin=margin)
ax = figures.subset_shares(pairs)

# %%
# The loss of the package is −τ log of the blue share.
blue_share = pairs["share"][pairs["with_label"]].sum()
package = smooth_topk_loss(five, torch.tensor(true_class), k=2, tau=tau, margin=margin)
assert math.isclose(-tau * math.log(blue_share), package, rel_tol=1e-6)

# %% [markdown]
# ## The loss in three lines
#
# With 100 classes and $k = 5$ there are 75 million answers. The package sums their weights without listing them. The
# function is called like cross-entropy:

# %%
random = torch.Generator().manual_seed(0)
scores = torch.randn(4, 100, generator=random).requires_grad_()
labels = torch.tensor([3, 14, 15, 92])

loss = smooth_topk_loss(scores, labels, k=k, tau=tau, margin=margin)
loss.backward()

print(f"loss {loss.item():.4f}")
print(f"derivatives that are not zero: {100 * (scores.grad != 0).float().mean():.0f} %")

# %% [markdown]
# The smooth loss has two well-known relatives. With $k = 1$, $\tau = 1$ and no margin the smooth loss *is*
# cross-entropy. As $\tau$ goes to zero the smooth loss becomes the hard top-$k$ loss, a hinge. The hard loss has at
# most two non-zero derivatives per sample, and [chapter 1](01_topk_error_and_hard_loss.ipynb) shows a network that
# learns slowly from it.

# %%
# With k = 1, τ = 1 and no margin the loss is cross-entropy; at τ = 0.0001 it is the
# hard loss to three decimals, and the hard loss moves two scores per sample at most.
cross_entropy = F.cross_entropy(scores, labels)
one_guess = smooth_topk_loss(scores, labels, k=1, tau=1.0, margin=0.0)
assert torch.allclose(one_guess, cross_entropy)
nearly_hard = smooth_topk_loss(scores, labels, k=k, tau=1e-4, margin=margin)
hard = hard_topk_loss(scores, labels, k=k, margin=margin)
assert torch.allclose(nearly_hard, hard, atol=1e-3)
(derivatives,) = torch.autograd.grad(hard, scores)
assert (derivatives != 0).sum(dim=1).max() <= 2

# %% [markdown]
# Now let the score of the true class of one sample grow, while the other 99 scores stay as they are.
#
# **Figure.** Three losses of one sample. The hard loss has a corner and is zero to the right of it. The smooth loss
# bends over a range of scores that is several $k\tau$ wide. Like cross-entropy, it tends to zero and never reaches it.

# %%
others = scores.detach()[0, 1:]
curves = measure.loss_curve_table(others, k=k, taus=[tau], margin=margin)
ax = figures.loss_curves(curves)

# %% [markdown]
# Move $\tau$, $k$ and the margin. What happens to the smooth loss when $\tau$ is small, and what happens when $\tau$ is
# large?
#
# **Figure.** The same losses for the values of the controls. With a small $\tau$ the smooth loss lies on the hard loss;
# with a large $\tau$ it stays far above it.

# %%
controls.explore(
    lambda ax, tau, k, margin: figures.loss_curves(
        measure.loss_curve_table(others, k=k, taus=[tau], margin=margin), ax=ax
    ),
    tau=tau,
    k=k,
    margin=margin,
)

# %% [markdown]
# ## The map
#
# | chapter | the question it answers |
# |---|---|
# | [1 · Top-k error and the hard loss](01_topk_error_and_hard_loss.ipynb) | Why is the obvious loss hard to train with? |
# | [2 · Smoothing with τ](02_smoothing_with_tau.ipynb) | What does $\tau$ change, and what does it keep? |
# | [3 · From subsets to polynomials](03_subsets_to_polynomials.ipynb) | How does a sum over $\binom{n}{k}$ sets become $kn$ operations? |
# | [4 · Staying in log space](04_staying_in_log_space.ipynb) | When do the numbers overflow, and what do logarithms cost? |
# | [5 · The backward pass](05_backward_pass.ipynb) | When do the derivatives break, and what does the paper do then? |
# | [6 · Pivot](06_pivot.ipynb) | Can the loss be accurate to rounding in float32, without logarithms and without an approximation? |
# | [7 · Speed](07_speed.ipynb) | What does the loss cost? |
# | [8 · Temperature](08_temperature_study.ipynb) | Which $\tau$ trains a network? |
# | [9 · Noisy labels](09_noisy_labels_study.ipynb) | Does the loss resist wrong labels better than cross-entropy? |
# | [10 · Small data](10_small_data_study.ipynb) | Does the loss help when there are few images? |
# | [11 · Top-k probabilities](11_topk_probabilities.ipynb) | How likely is each class to be in the answer? |
# | [12 · Margin](12_margin_study.ipynb) | Does the margin matter? |
# | [13 · Use it in your project](13_use_it_in_your_project.ipynb) | Which settings come first, and when is cross-entropy better? |
# | [14 · Paper versus ours](14_paper_versus_ours.ipynb) | Which numbers of the paper come out here, which do not, and which were not run? |
# | [15 · The family](15_the_family.ipynb) | Of all the losses for the top-$k$ error, which one should you use, and when? |
#
# Chapters 1, 2, 9 and 13 are enough if you are in a hurry. Chapters 3 to 7 are about the algorithms. The
# [errata](../book/errata.md) list what is wrong in the printed paper, and the [notation](../book/notation.md) page
# gives every symbol its name in the code.

# %% [markdown]
# ## Is everything installed?

# %%
notebook.check_environment()

# %% [markdown]
# ## How to run it again
#
# Run these commands in a terminal, in the project's folder. If you stop a command and start it again, it goes on where
# it stopped.
#
# | profile | command | data | time |
# |---|---|---|---|
# | smoke | `bash scripts/study.sh --profile smoke` | built in | 4 minutes; its numbers mean nothing |
# | quick | `bash scripts/study.sh` | built in | 9 minutes on 2 cores |
# | laptop | `bash scripts/study.sh --profile laptop` | CIFAR-100 | hours on a CPU |
# | paper | `bash scripts/study.sh --profile paper` | CIFAR-100, ImageNet | days to weeks on a GPU |
#
# `bash scripts/lab.sh` opens the chapters in JupyterLab. `bash scripts/study.sh --list` lists the chapters with their
# parameters and runs nothing. `bash scripts/study.sh 09 -p 09.epochs=3` runs chapter 9 with one parameter changed.

# %% [markdown]
# ## What we saw
#
# - Every possible answer of $k$ classes has a weight. The smooth top-$k$ loss is $-\tau \log$ of the share of the
#   weight that lies on answers with the true class.
# - The smooth loss is called like cross-entropy and contains cross-entropy as a special case.
# - The gradient of the smooth loss reaches every class. The gradient of the hard loss reaches at most two.
#
# ## Questions
#
# 1. The true class is among the five largest scores. Why can the loss still be positive?
# 2. Cross-entropy is zero only for an infinite score. How large must the true score be for the hard loss to be zero?

# %% [markdown]
# <details><summary>Answer 1</summary>
#
# The hard loss asks for more than a place among the five. It is zero only if the true score exceeds the $k$-th largest
# of the *other* scores by $k\alpha$. The smooth loss is positive for all finite scores, because the answers without the
# true class always have some weight.
#
# </details>
#
# <details><summary>Answer 2</summary>
#
# The true score must be at least the $k$-th largest score of the other classes plus $k\alpha$. With $k = 5$ and
# $\alpha = 1$ the true class has to be five units ahead of the fifth best of its rivals.
#
# </details>

# %% [markdown]
# ## Next
#
# [1 · Top-k error and the hard loss](01_topk_error_and_hard_loss.ipynb) shows why the obvious loss trains badly.
