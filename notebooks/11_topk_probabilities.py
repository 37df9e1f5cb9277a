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
image = 0
draws = 200_000

# %%
from itertools import combinations

import ipywidgets
import pandas as pd
import torch

from smooth_topk import (
    log_symmetric_polynomials,
    smooth_topk_loss,
    topk_probabilities,
)
from smooth_topk.study import figures, measure, tables
from smooth_topk.study.chapters import controls, notebook
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
# With five classes and pairs there are ten sets.

# %%
names = list("abcde")
scores = torch.tensor([2.0, 1.2, 1.0, 0.1, -0.8], dtype=torch.float64)
pairs = list(combinations(range(5), 2))
share = torch.stack([scores[list(pair)].sum() for pair in pairs]).softmax(0)
with_class = [[i in pair for pair in pairs] for i in range(5)]
marginals = torch.stack([share[torch.tensor(chosen)].sum() for chosen in with_class])


def in_words(probabilities):
    pairs = zip(names, probabilities.tolist(), strict=True)
    return "   ".join(f"{name}: {probability:.4f}" for name, probability in pairs)


print(in_words(marginals))

# %% [markdown]
# **Figure.** How likely each class is to be in the pair. Each bar is the stack of the pairs that contain the class.
# Every pair appears in two bars, so the bars sum to 2.

# %%
ax = figures.membership_bars(measure.membership_table(scores, names, k=2), names)

# %%
# The package gives the same probabilities, and they sum to 2. It divides scores by
# kτ as the loss does, so that τ = 1/k is appendix C.
assert torch.allclose(topk_probabilities(scores, 2, tau=1 / 2), marginals)
assert torch.isclose(marginals.sum(), torch.tensor(2.0, dtype=torch.float64))

# %% [markdown]
# There is another way to draw the same set. Toss one coin per class, with odds $\exp(s_i)$ to 1, and keep the toss only
# if exactly $k$ coins show heads. The classes then compete for $k$ places.

# %%
heads = torch.rand(draws, 5, generator=random) < scores.sigmoid()
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

# %%
x = scores.clone().requires_grad_()
(derivative,) = torch.autograd.grad(log_symmetric_polynomials(x, 2)[2], x)
print("∂ log σ₂ / ∂s of each class")
print(in_words(derivative))
assert torch.allclose(derivative, marginals)

# %% [markdown]
# The paper prints $\sigma_i$ in place of $\sigma_k$, with the index of the class as the degree
# ([erratum 3](../book/errata.md#3-the-marginals-are-derivatives-of-log-σₖ)). As printed, class *a* would use
# $\sigma_1$, class *b* $\sigma_2$, and so on. Only the class whose number happens to be $k$ gets the right value.

# %%
log_sigma = log_symmetric_polynomials(x, 5)  # degrees 0 to 5
slopes = [
    torch.autograd.grad(log_sigma[i + 1], x, retain_graph=True)[0] for i in range(5)
]
printed = [slope[i].item() for i, slope in enumerate(slopes)]
comparison = {"from σₖ": marginals.tolist(), "from σᵢ, as printed": printed}
comparison = pd.DataFrame(comparison, index=names).map("{:.4f}".format)
tables.show(comparison.rename_axis("class"))

# %%
# Only class b, number 2, is right as printed, and the printed values do not sum to 2.
right = torch.isclose(torch.tensor(printed, dtype=torch.float64), marginals)
assert right.tolist() == [False, True, False, False, False]
assert abs(sum(printed) - 2) > 0.1

# %% [markdown]
# ## Softmax is the case k = 1
#
# With $k = 1$ a set is a class, and the marginals are softmax. With $k = n$ there is only one set, and every class is
# in it.

# %%
# k = 1 gives softmax, k = n gives ones.
assert torch.allclose(topk_probabilities(scores, 1), scores.softmax(0))
assert torch.allclose(topk_probabilities(scores, 5), torch.ones_like(scores))

# %% [markdown]
# Now take real scores: those of a trained network for ImageNet images, 1,000 classes each, recorded in `book/results`.
# Where they are not recorded, random scores are used instead, and the next line says so.

# %% tags=["hide-input"]
recorded = imagenet_scores.read_scores()
if recorded is None:
    print(f"ImageNet scores: {imagenet_scores.NOT_RECORDED}. Random scores stand in.")
    many = 3 * torch.randn(128, 1000, generator=random, dtype=torch.float64)
    labels, class_names = torch.arange(128), [f"class {i}" for i in range(1000)]
else:
    many, labels = recorded.scores, recorded.labels
    class_names = recorded.class_names
    print(
        f"{len(many)} images, scored by {recorded.network}. The network was probably "
        "trained on these images, so no accuracy here is an ImageNet accuracy."
    )

# %% [markdown]
# **Figure.** Softmax and top-$k$ probabilities of one image. The true class is bold, and the dotted line is the end of
# the answer. Softmax shares 1 among the classes, so that one sure class leaves nothing for the others. The marginals
# share $k$, at most 1 per class, so they also show which classes come second, third and so on.

# %%
true_name = class_names[labels[image]]
table = measure.probability_table(many[image], class_names, k=k)
ax = figures.probability_bars(table, k=k, true_name=true_name)

# %%
# Softmax sums to 1, the marginals sum to k, and none of them exceeds 1.
assert abs(table["softmax"].sum() - 1) < 1e-9
assert abs(table["marginal"].sum() - k) < 1e-6
assert table["marginal"].max() <= 1 + 1e-12

# %% [markdown]
# Move $k$: with $k = 1$ the two kinds of bars are equal. Move the image: where does softmax give nearly all of its
# weight to the first class?
#
# **Figure.** Softmax and top-$k$ probabilities for the image and the $k$ of the controls. With a larger $k$ every
# top-$k$ probability is larger, while softmax stays as it is.


# %%
def draw(ax, k, image):
    table = measure.probability_table(many[image], class_names, k=k)
    true_name = class_names[labels[image]]
    figures.probability_bars(table, k=k, ax=ax, true_name=true_name)


last = len(many) - 1
options = {"description": "image", "style": controls.STYLE}
controls.explore(
    draw, k=k, image=ipywidgets.IntSlider(value=image, max=last, **options)
)

# %% [markdown]
# ## One crop: nothing changes
#
# A larger score has a larger marginal, for every $k$. So the $k$ largest marginals belong to the $k$ largest scores,
# and the top-$k$ answer to a single crop is the same by scores, by softmax and by marginals.

# %%
# On all recorded images the answers by score and by marginal are the same sets.
by_score = many.topk(k).indices
by_marginal = topk_probabilities(many, k, tau=1 / k).topk(k).indices
assert torch.equal(by_score.sort().values, by_marginal.sort().values)

# %% [markdown]
# ## Several crops: something may change
#
# Ten crops of an image give ten lists of scores, and the answer comes from an average. Averaging softmax suits the
# top-1 answer: if we pick a crop at random and draw a class from its softmax, the average is the probability that this
# class is $i$. For the top-$k$ answer one should average the probability of being among the $k$. The two averages can
# disagree.
#
# **Figure.** Two crops, four classes and $k = 2$. The first crop is sure of *a* and has a clear opinion on the second
# place, which is *b*. The second crop is sure of nothing. By softmax the mean answers *a* and *c*, by marginals *a* and
# *b*.

# %%
four = list("abcd")
first_crop, second_crop = [8.0, 3.0, 1.0, 0.0], [1.0, 0.6, 1.0, 0.2]
crops = torch.tensor([first_crop, second_crop], dtype=torch.float64)
table = measure.crop_table(crops, four, k=2)
axes = figures.crop_bars(table, k=2)

# %% [markdown]
# In the first crop, softmax gives nearly all of its weight to *a*. Nothing is left to say that *b* comes second, so the
# crop that is sure of nothing decides the second place. The marginals count both crops.

# %%
# The mean of softmax answers a and c, the mean of marginals a and b.
mean = table[table["crop"] == "mean"]
assert set(mean.nlargest(2, "softmax")["name"]) == {"a", "c"}
assert set(mean.nlargest(2, "marginal")["name"]) == {"a", "b"}

# %% [markdown]
# Move the score of *a* in the first crop. From which value on does *b* drop out of the answer by
# softmax?
#
# **Figure.** The first crop and the mean of both crops, for the score of the control. From a score of 1.25 on the mean
# answers *a* and *b* by marginals, up to the largest score. By softmax it answers *a* and *c* once the score is large.


# %%
def draw(axes, confidence):
    changed = crops.clone()
    changed[0, 0] = confidence
    table = measure.crop_table(changed, four, k=2)
    figures.crop_bars(table[table["crop"] != "crop 2"], k=2, axes=axes)


slider = {"min": 0.0, "max": 10.0, "step": 0.25, "description": "score of a"}
controls.explore(
    draw,
    panels=(1, 2),
    size=(5.4, 3.4),
    confidence=ipywidgets.FloatSlider(value=8.0, **slider),
)

# %% [markdown]
# This shows that the answers differ, not which answer is better. Only data can tell.
#
# ## Ten crops of real images
#
# The paper reports that marginals gain "at least 0.2 %" top-5 accuracy over softmax for all losses, and up to 1 % for
# cross-entropy with little data. It prints no table of this. The table below is ours, for a trained network on ImageNet
# images that it has very likely seen in training. So compare the rows with one another, and not with ImageNet
# accuracies. In brackets are 95 % intervals over the images. A difference whose interval contains zero shows nothing.

# %% tags=["hide-input"]
path = paths.recorded_folder() / "imagenet_ten_crops.csv"
measured = pd.read_csv(path) if path.exists() else None
images = "not recorded" if measured is None else f"{measured.images.max():,} images"
print(f"{path.name}: {images}")
tables.show(tables.ten_crop_table(measured))

# %% [markdown]
# Accuracies can differ only where the answers do. How often is that? The scores of ten crops of a few of these images
# are recorded too, and the table counts on how many of them the top-$k$ answer is not the one of averaged softmax.

# %% tags=["hide-input"]
stored = imagenet_scores.read_scores(imagenet_scores.TEN_CROPS)
if stored is None:
    print(f"Scores of ten crops: {imagenet_scores.NOT_RECORDED}.")
else:
    answers = crop_answers(stored.scores, k)
    sets = {
        way: answer.topk(k).indices.sort().values for way, answer in answers.items()
    }
    of_baseline, total = sets.pop(BASELINE), len(stored.scores)
    differ = {
        way: int((found != of_baseline).any(1).sum()) for way, found in sets.items()
    }
    counts = pd.Series(differ, name=f"other answer, of {total} images")
    display(tables.show(counts.to_frame().rename_axis("method")))

# %% [markdown]
# ## Which scale?
#
# Appendix C takes the scores as they are, which is $\tau = 1/k$ and what this chapter did so far. The loss divides them
# by $k\tau$, and a network that was trained with the loss has scores that fit this division. So does
# `topk_probabilities(scores, k, tau=tau)`, whose default is $\tau = 1$ as in the loss. Then $-\tau \log p_y$ is the loss
# without margin. A large $\tau$ makes all classes equally likely, and a small $\tau$ makes the answer certain.

# %%
certain = topk_probabilities(many[:1], k, tau=1e-4)
alike = topk_probabilities(many[:1], k, tau=1e6)
print(f"τ = 1e-4: largest probability {certain.max():.3f}")
print(f"τ = 1e6:  largest probability {alike.max():.4f}")
print(f"k/n = {k / many.shape[1]:.4f}")

# %%
# -τ log p is the loss without margin; a large τ gives k/n to every class.
probability = topk_probabilities(many, k)[torch.arange(len(many)), labels]
losses = smooth_topk_loss(many, labels, k=k, margin=0, reduction="none")
assert torch.allclose(-probability.log(), losses, atol=1e-6)
equal = torch.full_like(alike, k / many.shape[1])
assert torch.allclose(alike, equal, rtol=1e-3)

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
#
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
# Whether it helps is a matter of data. On the recorded images of this chapter the difference is too small to be seen.
#
# </details>

# %% [markdown]
# ## Next
#
# [12 · Margin](12_margin_study.ipynb) asks whether the margin matters.
