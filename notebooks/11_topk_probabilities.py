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
# # 11 · Top-k probabilities
#
# **Question.** How likely is each class to be in a top-$k$ answer, and what is that good for?
#
# **You will** draw random sets of classes, compute the probability of each class from the polynomials of chapter 3,
# compare these probabilities with softmax, and average them over the crops of an image.
#
# **Paper.** Section 5.2, *Probabilities for Multiple Crops*; Proposition 7 of appendix C.
#
# **Time.** 15 minutes to read, seconds to run.

# %% tags=["parameters"]
profile = "quick"
k = 5
image = 64
draws = 200_000

# %%
from itertools import combinations

import ipywidgets
import numpy as np
import pandas as pd
import torch

from smooth_topk import (
    log_symmetric_polynomials,
    smooth_topk_loss,
    topk_probabilities,
)
from smooth_topk.study import figures, tables
from smooth_topk.study.chapters import controls, notebook
from smooth_topk.study.chapters.spider import spider
from smooth_topk.study.figures.style import BLUE, DARK, bars
from smooth_topk.study.measure.ten_crops import BASELINE, crop_answers
from smooth_topk.study.records import imagenet_scores, paths

notebook.start(profile)
random = torch.Generator().manual_seed(11)

# %% [markdown]
# ## A random set
#
# Softmax draws one class, with probability proportional to $\exp(s_i)$. An answer of $k$ classes is a *set*. So draw
# a set $\bar{\mathbf{y}}$ with probability proportional to $\exp(\sum_{j \in \bar{\mathbf{y}}} s_j)$. The probability
# of a class is then the total probability of all sets that contain it. Such a sum over sets is called a *marginal*.
# The seven names of the spider in its web have 21 pairs:

# %%
scores, names, _ = spider()
pairs = list(combinations(range(7), 2))
share = scores[torch.tensor(pairs)].sum(1).softmax(0)
marginals = torch.zeros(7, dtype=torch.float64)
for pair, probability in zip(pairs, share, strict=True):
    marginals[list(pair)] += probability


def in_words(probabilities):
    words = zip(names, probabilities.tolist(), strict=True)
    return "   ".join(f"{name} {probability:.3f}" for name, probability in words)


print(in_words(marginals))

# %% [markdown]
# **Figure.** How likely each name is to be in the pair. Each bar is the stack of the pairs that contain the name. Every
# pair appears in two bars, so the bars sum to 2.

# %% tags=["hide-input"]
ax = figures.new_axes()
heights = np.zeros(7)
for pair, probability in sorted(zip(pairs, share.tolist(), strict=True)):
    for name in pair:
        options = {"bottom": heights[name], "facecolor": BLUE, "edgecolor": "white"}
        ax.bar(name, probability, 0.7, alpha=0.75, **options)
        heights[name] += probability
ax.set_xticks(range(7), names)
ax.set(ylabel="probability of being in the pair", ylim=(0, 1))
ax.grid(axis="x", visible=False)

# %%
# The package gives the same probabilities, and they sum to 2. It divides the scores by
# kτ as the loss does: τ = 1/k leaves them as they are.
assert torch.allclose(topk_probabilities(scores, 2, tau=1 / 2), marginals)
assert torch.isclose(marginals.sum(), torch.tensor(2.0, dtype=torch.float64))

# %% [markdown]
# There is another way to draw the same set. Toss one coin per class, with odds proportional to $\exp(s_i)$, and keep the
# toss only if exactly $k$ coins show heads. The classes then compete for $k$ places. Here the odds are $\exp(s_i - 6.5)$
# to 1; the constant changes only how many tosses are kept.

# %%
heads = torch.rand(draws, 7, generator=random) < (scores - 6.5).sigmoid()
kept = heads[heads.sum(dim=1) == 2].double()
print(f"{len(kept):,} of {draws:,} tosses kept")
print(in_words(kept.mean(0)))
assert (kept.mean(0) - marginals).abs().max() < 5 / len(kept) ** 0.5

# %% [markdown]
# ## Proposition 7
#
# The sets need not be listed. The sum over all sets is the symmetric polynomial $\sigma_k(\exp \mathbf{s})$ of chapter
# 3, and the sets with class $i$ are those terms that have $\exp(s_i)$ as a factor:
#
# $$p_i^{(k)} = \frac{\exp(s_i)\,\sigma_{k-1}(\exp \mathbf{s}_{\setminus i})}{\sigma_k(\exp \mathbf{s})}
#   = \frac{\partial \log \sigma_k(\exp \mathbf{s})}{\partial s_i}.$$
#
# The paper prints $\sigma_i$ in place of $\sigma_k$, with the index of the class as the degree
# ([erratum 3](../book/errata.md#3-the-marginals-are-derivatives-of-log-σₖ)). As printed, the first class would use
# $\sigma_1$, the second $\sigma_2$, and so on. Only the class whose number happens to be $k$ gets the right value.

# %%
x = scores.clone().requires_grad_()
log_sigma = log_symmetric_polynomials(x, 7)  # degrees 0 to 7
slopes = [torch.autograd.grad(s, x, retain_graph=True)[0] for s in log_sigma[1:]]
printed = torch.stack([slope[i] for i, slope in enumerate(slopes)])
comparison = {"from σₖ, k = 2": slopes[1], "from σᵢ, as printed": printed}
tables.show(pd.DataFrame(comparison, index=names).T.map("{:.3f}".format))

# %%
# The derivatives of log σ_2 are the marginals. Of the printed values only that of the
# second class is right, and their sum is not 2.
assert torch.allclose(slopes[1], marginals)
assert torch.isclose(printed, marginals).nonzero().tolist() == [[1]]
assert abs(printed.sum() - 2) > 0.1

# %% [markdown]
# ## Softmax is the case k = 1
#
# With $k = 1$ a set is a class, and the marginals are softmax. With $k = n$ there is only one set, and every class is
# in it.

# %%
# k = 1 gives softmax, k = n gives ones.
assert torch.allclose(topk_probabilities(scores, 1), scores.softmax(0))
assert torch.allclose(topk_probabilities(scores, 7, tau=1 / 7), torch.ones_like(scores))

# %% [markdown]
# Next, all 1,000 classes of ImageNet: scores of a trained network, recorded in `book/results`.

# %% tags=["hide-input"]
recorded = imagenet_scores.read_scores()
many, labels, class_names = recorded.scores, recorded.labels, recorded.class_names
print(
    f"{len(many)} images, scored by {recorded.network}. The network was probably "
    "trained on these images, so no accuracy here is an ImageNet accuracy."
)


# %% tags=["hide-input"]
def draw_pairs(ax, shown, softmax, marginals, k):
    """Bars of top-k marginals next to bars of softmax."""
    places = np.arange(len(shown))
    hatched = {"facecolor": "white", "edgecolor": DARK, "hatch": "//"}
    name = f"in the top {k} (sums to {k})"
    bars(ax, places - 0.2, marginals, width=0.4, color=BLUE, label=name)
    bars(ax, places + 0.2, softmax, width=0.4, label="softmax (sums to 1)", **hatched)
    ax.grid(axis="x", visible=False)
    ax.set_xticks(places, shown)
    ax.set(ylabel="probability", ylim=(0, 1.05), yticks=(0, 0.25, 0.5, 0.75, 1))


# %% [markdown]
# **Figure.** Softmax and top-$k$ probabilities of the twelve most likely names of an image; image 64 is the spider. The
# true class is bold, and the dotted line is the end of the answer. Softmax distributes 1 among the classes, so that one
# sure class leaves nothing for the others. The marginals distribute $k$, at most 1 per class, so they also show which
# classes come second, third and so on. Move $k$: with $k = 1$ the two kinds of bars are equal.


# %% tags=["hide-input"]
def draw(ax, k, image):
    marginals = topk_probabilities(many[image], k, tau=1 / k)
    order = marginals.argsort(descending=True)[:12]
    shown = [class_names[index] for index in order]
    draw_pairs(ax, shown, many[image].softmax(0)[order], marginals[order], k)
    ax.axvline(k - 0.5, color=DARK, linewidth=1, linestyle=":")
    for tick, index in zip(ax.get_xticklabels(), order, strict=True):
        weight = "bold" if index == labels[image] else "normal"
        tick.set(rotation=40, ha="right", fontweight=weight)
    ax.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=2)


options = {"max": len(many) - 1, "description": "image", "style": controls.STYLE}
controls.explore(
    draw, size=(6.4, 4.6), k=k, image=ipywidgets.IntSlider(value=image, **options)
)

# %%
# The marginals sum to k and none exceeds 1. For one crop they never change the answer.
marginals = topk_probabilities(many, k, tau=1 / k)
assert torch.allclose(marginals.sum(1), torch.full((len(many),), float(k)).double())
assert marginals.max() <= 1 + 1e-12
answers = [values.topk(k).indices.sort().values for values in (many, marginals)]
assert torch.equal(*answers)

# %% [markdown]
# ## One crop: nothing changes
#
# A larger score has a larger marginal, for every $k$. So the $k$ largest marginals belong to the $k$ largest scores,
# and the top-$k$ answer to a single crop is the same by scores, by softmax and by marginals.
#
# ## Several crops: something may change
#
# Ten crops of an image give ten lists of scores, and the answer comes from an average. Averaging softmax suits the
# top-1 answer: if we pick a crop at random and draw a class from its softmax, the average is the probability that this
# class is $i$. For the top-$k$ answer one should average the probability of being among the $k$. The two averages can
# disagree.
#
# **Figure.** Two crops, four classes and $k = 2$: the first crop and the mean of both. The first crop has the scores 8,
# 3, 1 and 0. It is sure of *a* and has a clear opinion on the second place, which is *b*. The second crop, with the
# scores 1, 0.6, 1 and 0.2, is sure of nothing. Move the score of *a* in the first crop. From which value on does *b*
# drop out of the answer by softmax?


# %% tags=["hide-input"]
def mean_of_crops(score_of_a):
    """Softmax and marginals of the first crop, and their means over both crops."""
    crops = torch.tensor([[score_of_a, 3.0, 1.0, 0.0], [1.0, 0.6, 1.0, 0.2]])
    softmax, marginals = (
        crops.double().softmax(1),
        topk_probabilities(crops.double(), 2),
    )
    return {
        "crop 1": (softmax[0], marginals[0]),
        "mean of both crops": (softmax.mean(0), marginals.mean(0)),
    }


def answer(values):
    return "".join(sorted("abcd"[index] for index in values.topk(2).indices))


def draw(axes, score):
    for ax, (title, found) in zip(axes, mean_of_crops(score).items(), strict=True):
        draw_pairs(ax, list("abcd"), *found, 2)
        softmax, marginals = (" and ".join(answer(values)) for values in found)
        ax.set_title(f"{title}\nby softmax: {softmax}\nby marginals: {marginals}")
    axes[1].set(ylabel="")
    axes[0].legend(loc="upper left", bbox_to_anchor=(0.0, -0.1), frameon=False)


slider = {"min": 0.0, "max": 10.0, "step": 0.5, "description": "score of a"}
controls.explore(
    draw,
    panels=(1, 2),
    size=(5.4, 3.6),
    score=ipywidgets.FloatSlider(value=8.0, **slider),
)

# %%
# From 1.5 on the mean of marginals answers a and b; from 5 on that of softmax a and c.
found = {s: mean_of_crops(s)["mean of both crops"] for s in np.arange(0, 10.5, 0.5)}
assert all(answer(found[s][1]) == "ab" for s in found if s >= 1.5)
assert all((answer(found[s][0]) == "ac") == (s >= 5) for s in found if s >= 1.5)

# %% [markdown]
# In the first crop, softmax gives nearly all of its weight to *a*. Nothing is left to say that *b* comes second, so the
# crop that is sure of nothing decides the second place. The marginals count both crops. This shows that the answers
# differ, not which answer is better. Only data can tell.
#
# ## Ten crops of real images
#
# The paper reports that marginals gain "at least 0.2 %" top-5 accuracy over softmax for all losses, and up to 1 % for
# cross-entropy with little data. It prints no table of this. The table below is ours, for a trained network on ImageNet
# images that it has very likely seen in training. So compare the rows with one another, and not with ImageNet
# accuracies. In brackets are 95 % intervals from a bootstrap over the images. A difference whose interval contains zero
# is not significant. The last column counts the images, among 128 whose ten crops are recorded, on which the top-$k$
# answer differs from the answer by averaged softmax.

# %% tags=["hide-input"]
measured = pd.read_csv(paths.published_folder() / "imagenet_ten_crops.csv")
percent = measured.select_dtypes(float).mul(100).assign(method=measured["method"])
cells = {}
for metric, row in zip(measured["metric"], percent.itertuples(), strict=True):
    text = f"{row.accuracy:.1f} ({row.low:.1f} to {row.high:.1f})"
    cells.setdefault(f"top-{metric[3:]} (%)", {})[row.method] = text
    limits = row.difference, row.difference_low, row.difference_high
    text = tables.interval_text(*limits) if any(limits) else "0"
    cells.setdefault(f"top-{metric[3:]} − softmax averaged", {})[row.method] = text
stored = imagenet_scores.read_scores(imagenet_scores.TEN_CROPS)
ranked = crop_answers(stored.scores, k)
sets = {way: found.topk(k).indices.sort().values for way, found in ranked.items()}
column = f"other answer, of {len(stored.scores)} images"
cells[column] = {w: int((s != sets[BASELINE]).any(1).sum()) for w, s in sets.items()}
tables.show(pd.DataFrame(cells).rename_axis("method"))

# %% [markdown]
# ## Which scale?
#
# Appendix C uses the scores as they are, which is $\tau = 1/k$, and so did this chapter. The loss divides them by
# $k\tau$, and a network that was trained with the loss has scores that fit this division. So does
# `topk_probabilities(scores, k, tau=tau)`, whose default is $\tau = 1$ as in the loss. Then $-\tau \log p_y$ is the loss
# without margin. A large $\tau$ makes all classes equally likely, and a small $\tau$ makes the answer certain.

# %%
for value in (1e-4, 1.0, 1e6):
    print(f"τ = {value:g}: {in_words(topk_probabilities(scores, 2, tau=value))}")

# %%
# −τ log p is the loss without margin; a large τ gives k/n to every class.
probability = topk_probabilities(many, k)[torch.arange(len(many)), labels]
losses = smooth_topk_loss(many, labels, k=k, margin=0, reduction="none")
assert torch.allclose(-probability.log(), losses, atol=1e-6)
alike = topk_probabilities(many, k, tau=1e6)
assert torch.allclose(alike, torch.full_like(alike, k / many.shape[1]), rtol=1e-3)

# %% [markdown]
# ## What we saw
#
# - The probability that a class is in a random set of $k$ classes is $\partial \log \sigma_k / \partial s_i$. These
#   marginals sum to $k$. The index $i$ of $\sigma$ in the paper is a misprint.
# - With $k = 1$ the marginals are softmax. For one crop they never change the top-$k$ answer. Averaged over crops they
#   can.
# - Where one class takes nearly all of the softmax, softmax hardly shows which class comes second. The marginals do.
# - On 1,000 ImageNet images we see no gain: averaged marginals give 96.9 % top-5 accuracy and averaged softmax 97.1 %,
#   a difference of $-0.2$ points with an interval from $-0.6$ to $+0.2$. This neither confirms nor excludes the paper's
#   0.2 %.

# %%
# The numbers of the last point are those of the table.
rows = percent[measured["metric"] == "top5"].set_index("method")
gain = rows.loc["ten crops, top-5 marginals averaged"].drop("accuracy")
assert rows["accuracy"].round(1).tolist()[1::2] == [97.1, 96.9]
limits = ["difference", "difference_low", "difference_high"]
assert gain[limits].astype(float).round(1).tolist() == [-0.2, -0.6, 0.2]

# %% [markdown]
# ## Questions
#
# 1. Two classes have equal scores far above the rest, and $k = 2$. What are their marginals, and what is their softmax?
# 2. Why can a marginal never exceed 1, although the marginals sum to $k$?
# 3. An ensemble of networks is like several crops. Would you average softmax or marginals for a top-5 answer?

# %% [markdown]
# <details><summary>Answer 1</summary>
#
# Nearly all of the weight is on the one set of these two classes, so both marginals are nearly 1. Softmax gives each of
# them one half.
#
# </details>
#
# <details><summary>Answer 2</summary>
#
# A marginal is the probability of an event, that the class is in the set. The sum is $k$ because a set has $k$ members,
# so that $k$ such events happen at once.
#
# </details>
#
# <details><summary>Answer 3</summary>
#
# The argument for marginals is the same as for crops: the question is how likely a class is to be among the five.
# Whether it helps is a matter of data. On the recorded images of this chapter the difference is not significant.
#
# </details>

# %% [markdown]
# ## Next
#
# [12 · Margin](12_margin_study.ipynb) asks whether the margin matters.
