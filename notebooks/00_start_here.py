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
# **You will** see the smooth top-$k$ loss in one picture, call it in three lines, and find your way through the chapters.
#
# **Paper.** Berrada, Zisserman and Kumar, *Smooth Loss Functions for Deep Top-k Classification*, ICLR 2018
# ([arXiv:1802.07595](https://arxiv.org/abs/1802.07595)).
#
# **Time.** 5 minutes to read, seconds to run.

# %% tags=["parameters"]
profile = "quick"
k = 5
tau = 1.0
margin = 1.0

# %%
import math
from itertools import combinations

import torch
from torch.nn import functional as F

from smooth_topk import hard_topk_loss, smooth_topk_loss
from smooth_topk.study.chapters import controls, notebook
from smooth_topk.study.chapters.spider import spider
from smooth_topk.study.figures.style import BLUE, GREY, bars

notebook.start(profile)

# %% [markdown]
# ## The loss in one picture
#
# A photograph shows a spider in its web. The label says *spider web*. A trained network gives every class a score, and
# four kinds of spider have larger scores than the web:

# %%
seven, names, web = spider()
for name, score in zip(names, seven.tolist(), strict=True):
    print(f"{name:8}{score:6.3f}{'  the label' if name == names[web] else ''}")

# %% [markdown]
# These seven names are the example of chapters 0 to 6 (*gold* is short for *black and gold garden spider*, *widow* for
# *black widow*). If the network may give $k = 5$ of them, it has 21 possible answers: the 21 sets of five names. An
# answer is right if *web* is in it.
#
# Every answer gets a weight. An answer with high scores weighs more: its weight is $\exp(m/\tau)$, where $m$ is the mean
# of its five scores. You choose the *temperature* $\tau > 0$. The smaller $\tau$ is, the more of the weight goes to the
# best answer. A wrong answer gets the additional factor $\exp(\alpha/\tau)$. You choose the *margin* $\alpha$ too.
#
# **The smooth top-$k$ loss is $-\tau \log$ of the share of the weight that lies on right answers.** The loss is small
# if nearly all of the weight lies on right answers.
#
# Move $\tau$. Which answer gets all of the weight when $\tau$ is small? Move the margin. Which bars become longer?
#
# **Figure.** The 21 answers of five names, one column each. The dots show which names belong to the answer, and the bar
# shows the share of its weight. Right answers are blue.


# %% tags=["hide-input"]
def draw_answers(ax, tau, margin):
    answers = list(combinations(range(len(seven)), k))
    right = torch.tensor([web in answer for answer in answers])
    mean = seven[torch.tensor(answers)].mean(1)
    share = torch.softmax((mean + margin * ~right) / tau, 0)
    loss = smooth_topk_loss(seven, torch.tensor(web), k=k, tau=tau, margin=margin)
    assert math.isclose(-tau * math.log(share[right].sum()), loss, rel_tol=1e-6)
    columns = mean.argsort(descending=True).argsort()
    rows = torch.arange(len(names)) * -0.11 - 0.16
    for chosen, colour in ((right, BLUE), (~right, GREY)):
        bars(ax, columns[chosen], share[chosen], color=colour)
        members = rows[torch.tensor(answers)[chosen]].flatten()
        ax.plot(columns[chosen].repeat_interleave(k), members, "o", color=colour, ms=4)
    blue = 100 * share[right].sum()
    ax.set_title(f"right answers: {blue:.0f} % of the weight, loss {loss:.2f}")
    ax.set_yticks([*rows, 0, 0.5, 1], [*names, "0", "½", "1"])
    ax.get_yticklabels()[web].set_weight("bold")
    ax.set(ylim=(-0.9, 1.02), xticks=[], xlabel="answers, the best on the left")
    ax.grid(False)


controls.explore(draw_answers, size=(6.4, 4.2), tau=tau, margin=margin)

# %% [markdown]
# With a large $\tau$ all answers count nearly alike. With a small $\tau$ one answer takes all of the weight. The answer
# with the five largest scores is right, but the answer in the second column is nearly as good and has the bonus of the
# margin, so it wins as long as the margin is above 0.33. The loss becomes small only when the right answers are ahead
# by more than the margin.

# %%
# The best right answer is ahead of the best wrong one by 0.33.
others = torch.cat([seven[:web], seven[web + 1 :]])
lead = (seven[:5].mean() - others[:5].mean()).item()
assert round(lead, 2) == 0.33

# %% [markdown]
# ## The loss in three lines
#
# The function is called like cross-entropy. It sums the weights of all answers without listing them: with 1,000 classes
# and $k = 5$ there are $8 \cdot 10^{12}$ of them.

# %%
scores = torch.tensor([8.450, 8.090, 6.689, 5.804, 5.800, 4.166, 3.893])
label = torch.tensor(4)  # spider web
loss = smooth_topk_loss(scores, label, k=5, tau=1.0, margin=1.0)
print(f"{loss:.4f}")

# %%
# These are the scores of the picture.
assert torch.equal(scores.double().round(decimals=3), seven)
assert label == web

# %% [markdown]
# The smooth loss has two well-known relatives. With $k = 1$, $\tau = 1$ and no margin it *is* cross-entropy. As $\tau$
# goes to zero it becomes the hard top-$k$ loss, a hinge. The gradient of the smooth loss reaches every class. The
# gradient of the hard loss reaches two classes at most, and [chapter 1](01_topk_error_and_hard_loss.ipynb) shows a
# network that learns slowly from it.

# %%
# With k = 1, τ = 1 and no margin the loss is cross-entropy; at τ = 0.0001 it is the
# hard loss to three decimals. All of its derivatives differ from zero at τ = 1.
one_guess = smooth_topk_loss(scores, label, k=1, tau=1.0, margin=0.0)
assert torch.allclose(one_guess, F.cross_entropy(scores, label))
nearly_hard = smooth_topk_loss(scores, label, k=k, tau=1e-4, margin=margin)
hard = hard_topk_loss(scores, label, k=k, margin=margin)
assert torch.allclose(nearly_hard, hard, atol=1e-3)
moved = scores.clone().requires_grad_()
for function, reached in ((smooth_topk_loss, len(names)), (hard_topk_loss, 2)):
    (gradient,) = torch.autograd.grad(function(moved, label, k=k), moved)
    assert (gradient != 0).sum() == reached

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
# Chapters 1, 2, 9 and 13 are enough if you are in a hurry. Chapters 3 to 7 are about the algorithms. To install the
# package or to run everything again, see [Reproduce](../book/reproduce.md). The [errata](../book/errata.md) list what
# is wrong in the printed paper, and the [notation](../book/notation.md) page gives every symbol its name in the code.

# %% [markdown]
# ## What we saw
#
# - Every possible answer of $k$ classes has a weight. The smooth top-$k$ loss is $-\tau \log$ of the share of the
#   weight that lies on right answers.
# - The smooth loss is called like cross-entropy and contains cross-entropy as a special case.
# - The gradient of the smooth loss reaches every class. The gradient of the hard loss reaches two classes at most.
#
# ## Questions
#
# 1. The answer with the five largest scores contains *web*, so it is right. Why is the loss not zero?
# 2. Cross-entropy is zero only for an infinite score. How large must the true score be for the hard loss to be zero?

# %% [markdown]
# <details><summary>Answer 1</summary>
#
# The loss looks at all 21 answers. Wrong answers have a weight too, and the margin multiplies it by $e^{\alpha/\tau}$.
# Even the hard loss, which compares the best right answer with the best wrong one, is 0.67 here: the mean of the best
# right answer is larger, but not by the margin $\alpha = 1$.
#
# </details>
#
# <details><summary>Answer 2</summary>
#
# The true score must be at least the $k$-th largest score of the other classes plus $k\alpha$. With $k = 5$ and
# $\alpha = 1$ the score of *web* has to exceed that of *ant*, the fifth largest of the other six, by 5.
#
# </details>

# %% [markdown]
# ## Next
#
# [1 · Top-k error and the hard loss](01_topk_error_and_hard_loss.ipynb) shows why the obvious loss trains badly.
