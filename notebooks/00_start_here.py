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
# **Question.** When a network may answer with $k$ labels, which loss should train it?
#
# **You will** meet the smooth top-$k$ loss in five lines, see the map of the chapters, check your installation, and
# learn how to run everything again.
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
import torch
from torch.nn import functional as F

from smooth_topk import hard_topk_loss, smooth_topk_loss
from smooth_topk.study import controls, figures, notebook

notebook.start(profile)

# %% [markdown]
# ## The loss in five lines
#
# A classifier gives a score to each of $n$ classes. Its top-$k$ answer is the set of the $k$ largest scores, and it is
# wrong when the true class $y$ is not in that set. The smooth loss compares all sets of $k$ classes with those that
# contain $y$ (eq. 9 of the paper); the parameter $\tau$ says how much the sets below the best one count.
# It is called like cross-entropy:

# %%
scores = torch.randn(4, 100, generator=torch.Generator().manual_seed(0)).requires_grad_()
labels = torch.tensor([3, 14, 15, 92])
loss = smooth_topk_loss(scores, labels, k=k, tau=tau, margin=margin)
loss.backward()
print(f"loss {loss.item():.4f}, derivatives that are not zero: {(scores.grad != 0).float().mean():.0%}")

# %% [markdown]
# Two checks. With $k=1$, $\tau=1$ and no margin it is cross-entropy. With a small $\tau$ it is the hard top-$k$ loss,
# which has at most two derivatives that are not zero and so teaches a network little.

# %%
cross_entropy = F.cross_entropy(scores, labels)
assert torch.allclose(smooth_topk_loss(scores, labels, k=1, tau=1.0, margin=0.0), cross_entropy)

nearly_hard = smooth_topk_loss(scores, labels, k=k, tau=1e-4, margin=margin)
hard = hard_topk_loss(scores, labels, k=k, margin=margin)
assert torch.allclose(nearly_hard, hard, atol=1e-3)

(derivatives,) = torch.autograd.grad(hard, scores)
assert (derivatives != 0).sum(dim=1).max() <= 2

# %% [markdown]
# The loss of one sample while the score of its true class grows and the other 99 scores stay as they are. The hard
# loss has a corner and is zero beyond it; the smooth loss bends over a range as wide as $k\tau$ and reaches zero only
# in the limit, like cross-entropy.

# %%
others = scores.detach()[0, 1:]
ax = figures.loss_curves(figures.loss_curve_table(others, k=k, taus=[tau], margin=margin))
# %% [markdown]
# Move $\tau$, $k$ and the margin. What happens to the curve when $\tau$ is small, and when it is large?

# %%
controls.explore(
    lambda ax, tau, k, margin: figures.loss_curves(
        figures.loss_curve_table(others, k=k, taus=[tau], margin=margin), ax=ax
    ),
    tau=tau,
    k=k,
    margin=margin,
)

# %% [markdown]
# ## The map
#
# | chapters | question |
# |---|---|
# | 1 · Top-k error and the hard loss | Why is the obvious loss hard to train with? |
# | 2 · Smoothing with tau | What does $\tau$ change, and what does it keep? |
# | 3 · From subsets to polynomials | How do $\binom{n}{k}$ terms become $kn$ operations? |
# | 4 · Staying in log space | When do the numbers overflow? |
# | 5 · The backward pass | When do the derivatives break, and what does the paper do then? |
# | 6 · Pivot | Can it be exact in float32 without log space and without an approximation? |
# | 7 · Speed | What does it cost? |
# | 8 · Temperature | Which $\tau$ trains? |
# | 9 · Noisy labels | Does it resist wrong labels better than cross-entropy? |
# | 10 · Small data | Does it help when data are few? |
# | 11 · Top-k probabilities | How likely is each class to be in the answer? |
# | 12 · Margin | Does the margin matter? |
# | 13 · Use it in your project | Which settings first, and when is cross-entropy better? |
# | 14 · Paper versus ours | Which numbers of the paper come out here, which do not, which were not run? |
#
# In a hurry: chapters 1, 2, 9 and 13. For the algorithms: 3 to 7.

# %% [markdown]
# ## Is everything installed?

# %%
notebook.check_environment()

# %% [markdown]
# ## How to run it again
#
# Each command is for a terminal in the project's folder, and each goes on where it stopped.
#
# | profile | command | data | time |
# |---|---|---|---|
# | smoke | `bash scripts/study.sh --profile smoke` | built in | 4 minutes; its numbers mean nothing |
# | quick | `bash scripts/study.sh` | built in | 8 minutes on 2 cores |
# | laptop | `bash scripts/study.sh --profile laptop` | CIFAR-100 | hours on a CPU |
# | paper | `bash scripts/study.sh --profile paper` | CIFAR-100, ImageNet | days to weeks on a GPU |
#
# `bash scripts/lab.sh` opens the chapters in JupyterLab. `python scripts/run_study.py --list` shows what a profile
# would run, and `-p 09.epochs=3` changes one parameter of one chapter.

# %% [markdown]
# ## What we saw
#
# - The smooth top-$k$ loss is called like cross-entropy and contains it as a special case.
# - Its gradient reaches every class; that of the hard loss reaches two.
#
# ## Questions
#
# 1. Why can the loss be positive although the true class is among the first five?
# 2. Cross-entropy is zero only for an infinite score. From which score on is the hard loss zero?
#
# ## Next
#
# [1 · Top-k error and the hard loss](01_topk_error_and_hard_loss.ipynb) shows why the obvious loss trains badly.
