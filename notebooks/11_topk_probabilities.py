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
# **You will** draw random sets of classes, read their marginals off the polynomials of chapter 3, compare them with
# softmax, and average them over the crops of an image.
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

from smooth_topk import log_symmetric_polynomials, topk_probabilities
from smooth_topk.study import controls, figures, notebook, recorded_scores, tables
from smooth_topk.study.ten_crops import BASELINE, crop_answers

notebook.start(profile)
random = torch.Generator().manual_seed(11)

# %% [markdown]
# ## A random set
#
# Softmax draws one class with probability proportional to $\exp(s_i)$. For an answer of $k$ classes, draw a *set*
# $\bar{\mathbf{y}}$ with probability proportional to $\exp(\sum_{j \in \bar{\mathbf{y}}} s_j)$. The probability of a
# class is that of all sets with it. With five classes and pairs there are ten sets:

# %%
names = list("abcde")
scores = torch.tensor([2.0, 1.2, 1.0, 0.1, -0.8], dtype=torch.float64)
pairs = list(combinations(range(5), 2))
share = torch.stack([scores[list(pair)].sum() for pair in pairs]).softmax(0)
marginals = torch.stack([sum(share[place] for place, pair in enumerate(pairs) if i in pair) for i in range(5)])
print({name: round(value.item(), 4) for name, value in zip(names, marginals, strict=True)})

# %% [markdown]
# Each bar is the stack of the pairs that contain the class. Every pair appears in two bars, so the bars sum to 2.

# %%
ax = figures.membership_bars(scores, names, k=2)

# %%
assert torch.allclose(topk_probabilities(scores, 2), marginals)
assert torch.isclose(marginals.sum(), torch.tensor(2.0, dtype=torch.float64))

# %% [markdown]
# There is another way to draw the same set. Toss a coin for each class, with odds $\exp(s_i)$ to 1, and keep the toss
# only if exactly $k$ coins show heads. The classes then compete for $k$ places:

# %%
heads = torch.rand(draws, 5, generator=random) < scores.sigmoid()
kept = heads[heads.sum(dim=1) == 2]
print(f"{len(kept)} of {draws} tosses kept:", [round(value, 3) for value in kept.double().mean(0).tolist()])
assert (kept.double().mean(0) - marginals).abs().max() < 5 / len(kept) ** 0.5

# %% [markdown]
# ## Proposition 7
#
# The sets need not be listed. The sum over all sets is the symmetric polynomial $\sigma_k(\exp \mathbf{s})$, and the
# sets with $i$ are those terms that have $\exp(s_i)$ as a factor:
#
# $$p_i^{(k)} = \frac{\exp(s_i)\,\sigma_{k-1}(\exp \mathbf{s}_{\setminus i})}{\sigma_k(\exp \mathbf{s})}
#   = \frac{\partial \log \sigma_k(\exp \mathbf{s})}{\partial s_i}.$$

# %%
x = scores.clone().requires_grad_()
(derivative,) = torch.autograd.grad(log_symmetric_polynomials(x, 2)[2], x)
print("∂ log σ₂ / ∂s:", [round(value, 4) for value in derivative.tolist()])
assert torch.allclose(derivative, marginals)

# %% [markdown]
# **A correction.** The paper prints $\sigma_i$ in place of $\sigma_k$, with the index of the class as the degree. Taken
# as printed, class *a* would use $\sigma_1$, class *b* $\sigma_2$, and so on. That is not a probability of being in a
# pair: only the class whose number happens to be $k$ gets the right value. This is correction 3 of the errata.

# %%
log_sigma = log_symmetric_polynomials(x, 5)  # degrees 0 to 5
printed = [torch.autograd.grad(log_sigma[i + 1], x, retain_graph=True)[0][i].item() for i in range(5)]
comparison = pd.DataFrame({"σ_k": marginals.tolist(), "σ_i, as printed": printed}, index=names)
tables.show(comparison.rename_axis("class"))

# %%
right = torch.isclose(torch.tensor(printed, dtype=torch.float64), marginals)
assert right.tolist() == [False, True, False, False, False]
assert abs(sum(printed) - 2) > 0.1

# %% [markdown]
# ## Softmax is the case k = 1

# %%
assert torch.allclose(topk_probabilities(scores, 1), scores.softmax(0))
assert torch.allclose(topk_probabilities(scores, 5), torch.ones_like(scores))  # an answer of all classes

# %% [markdown]
# Now real scores: 1,000 classes, one ImageNet image, a trained network, recorded in `book/results`. Where they are not
# recorded, random scores stand in and the next line says so.

# %%
recorded = recorded_scores.read_scores()
if recorded is None:
    print(f"ImageNet scores: {recorded_scores.NOT_RECORDED}. Random scores stand in.")
    many, labels = 3 * torch.randn(128, 1000, generator=random, dtype=torch.float64), torch.arange(128)
    class_names = [f"class {number}" for number in range(1000)]
else:
    many, labels, class_names = recorded.scores, recorded.labels, recorded.class_names
    print(f"{len(many)} images, {recorded.network}. Likely its training images: no accuracy here is one of ImageNet.")

# %%
true_name = class_names[labels[image]]
table = figures.probability_table(many[image], class_names, k=k)
ax = figures.probability_bars(table, k=k, true_name=true_name)

# %% [markdown]
# The true class is in bold, and the dotted line is the end of the answer. Softmax shares 1 among the classes, so one
# sure class leaves nothing for the others. The marginals share $k$, at most 1 a class: they say who takes the second
# place, the third, up to the $k$-th.

# %%
assert abs(table["softmax"].sum() - 1) < 1e-9
assert abs(table["marginal"].sum() - k) < 1e-6
assert table["marginal"].max() <= 1 + 1e-12

# %% [markdown]
# Move $k$: with $k = 1$ the bars are equal. Move the image: where does softmax give up after the first class?

# %%
slider = ipywidgets.IntSlider(value=image, max=len(many) - 1, description="image", style=controls.STYLE)
controls.explore(
    lambda ax, k, image: figures.probability_bars(
        figures.probability_table(many[image], class_names, k=k), k=k, ax=ax, true_name=class_names[labels[image]]
    ),
    k=k,
    image=slider,
)

# %% [markdown]
# ## One crop: nothing changes
#
# A larger score has a larger marginal, for every $k$. So the $k$ largest marginals are the $k$ largest scores, and the
# top-$k$ answer to a single crop is the same by scores, by softmax and by marginals.

# %%
by_score, by_marginal = many.topk(k).indices, topk_probabilities(many, k).topk(k).indices
assert torch.equal(by_score.sort().values, by_marginal.sort().values)

# %% [markdown]
# ## Several crops: it does
#
# Ten crops of an image give ten lists of scores, and the answer comes from an average. Averaging softmax is grounded
# for the top-1 answer: it is the probability that a random crop's random class is $i$. For the top-$k$ answer the
# average should be of the probability to be among the $k$. The two can disagree. Here are two crops, four classes and
# $k = 2$: the first crop is sure of *a*, and has a clear opinion on the second place; the other is sure of nothing.

# %%
four = list("abcd")
crops = torch.tensor([[8.0, 3.0, 1.0, 0.0], [1.0, 0.6, 1.0, 0.2]], dtype=torch.float64)
table = figures.crop_table(crops, four, k=2)
axes = figures.crop_bars(table, k=2)

# %% [markdown]
# Softmax hears nothing of the first crop's second choice, because its first choice takes all. So the crop that is sure
# of nothing decides the second place. The marginals count both crops.

# %%
mean = table[table["crop"] == "mean"]
assert set(mean.nlargest(2, "softmax")["name"]) == {"a", "c"}
assert set(mean.nlargest(2, "marginal")["name"]) == {"a", "b"}

# %% [markdown]
# Move the score of *a* in the first crop. From which value on does softmax forget *b*?


# %%
def with_confidence(axes, confidence):
    changed = crops.clone()
    changed[0, 0] = confidence
    table = figures.crop_table(changed, four, k=2)
    figures.crop_bars(table[table["crop"] != "crop 2"], k=2, axes=axes)


confidence = ipywidgets.FloatSlider(value=8.0, min=0.0, max=10.0, step=0.25, description="score of a")
controls.explore(with_confidence, panels=(1, 2), size=(6.4, 3.4), confidence=confidence)

# %% [markdown]
# This shows that the answers differ, not which is better. That is a question for data.
#
# ## Ten crops of real images
#
# The paper reports that marginals gain "at least 0.2 %" top-5 accuracy over softmax for all losses, and up to 1 % for
# cross-entropy with little data. It prints no table of it. Ours, where it is recorded: a trained network on ImageNet
# images that it has very likely seen in training. Compare the rows with one another, not with ImageNet accuracies. In
# brackets are 95 % intervals over the images; a difference whose interval holds zero shows nothing.

# %%
path = notebook.recorded_folder() / "imagenet_ten_crops.csv"
measured = pd.read_csv(path) if path.exists() else None
print(f"{path.name}: {recorded_scores.NOT_RECORDED if measured is None else f'{measured.images.max()} images'}")
tables.show(tables.ten_crop_table(measured))

# %% [markdown]
# Accuracies can only differ where the answers do. How often is that? The scores of ten crops of a few of these images
# are recorded too.

# %%
stored = recorded_scores.read_scores(recorded_scores.TEN_CROPS)
if stored is None:
    print(f"Scores of ten crops: {recorded_scores.NOT_RECORDED}.")
else:
    answers = crop_answers(stored.scores, k)
    sets = {way: answer.topk(k).indices.sort().values for way, answer in answers.items()}
    for way, found in sets.items():
        differing = (found != sets[BASELINE]).any(1).sum()
        print(f"{way}: the top-{k} answer differs from averaged softmax in {differing} of {len(found)} images")

# %% [markdown]
# ## Which scale?
#
# Appendix C takes the scores as they are. The loss divides them by $k\tau$, and a network trained with it has scores of
# that scale. `topk_probabilities(scores, k, tau=tau)` uses the weights of the loss; with $k\tau = 1$ the two agree. A
# large $\tau$ makes all classes alike, a small one makes the answer certain.

# %%
assert torch.allclose(topk_probabilities(many, k, tau=1 / k), topk_probabilities(many, k))
certain = topk_probabilities(many[:1], k, tau=1e-4)
alike = topk_probabilities(many[:1], k, tau=1e6)
print(f"τ = 1e-4: largest {certain.max():.3f}     τ = 1e6: largest {alike.max():.4f}, k/n = {k / many.shape[1]:.4f}")
assert torch.allclose(alike, torch.full_like(alike, k / many.shape[1]), rtol=1e-3)

# %% [markdown]
# ## What we saw
#
# - The probability of a class to be in a random set of $k$ classes is $\partial \log \sigma_k / \partial s_i$. These
#   marginals sum to $k$; the printed index $i$ is a misprint.
# - With $k = 1$ they are softmax. For one crop they never change the top-$k$ answer; averaged over crops they can.
# - Softmax is grounded for the top-1 answer: it says nothing about who is second to a sure first.
#
# ## Questions
#
# 1. Two classes have equal scores far above the rest, and $k = 2$. What are their marginals, what their softmax?
# 2. Why can a marginal never exceed 1, although they sum to $k$?
# 3. An ensemble of networks is like several crops. Would you average softmax or marginals for a top-5 answer?
#
# ## Next
#
# [12 · Margin](12_margin_study.ipynb) asks whether the margin matters.
