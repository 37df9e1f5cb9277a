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
# # 10 · Small data
#
# **Question.** Does the smooth top-$k$ loss help when training images are few?
#
# **You will** compare the losses on nested subsets of five sizes, on features with five seeds and on images with one
# to three, and train the table yourself.
#
# **Paper.** Section 5.2 with Table 2.
#
# **Time.** 5 minutes to read; the training runs of the profile `quick` take about six minutes.

# %% tags=["parameters"]
profile = "quick"
epochs = None  # None: those of the profile

# %%
from smooth_topk.study import figures, tables
from smooth_topk.study.chapters import notebook, trainings
from smooth_topk.study.data.datasets import load_data
from smooth_topk.study.experiments import registry
from smooth_topk.study.records import evidence
from smooth_topk.study.tables import findings

notebook.start(profile)

# %% [markdown]
# The paper trains a ResNet-18 on 5, 10, 25, 50 and 100 % of ImageNet, the same number of epochs at every size. Its
# smooth loss $L_{5,0.1}$ leads by 2.1 points of top-5 at 5 % and is equal at 100 %. We did not run ImageNet. Two
# smaller settings take its place. **Features**: a head with one hidden layer on built-in features of CIFAR-100, 16
# epochs at every size, five seeds. **Images**: a small network on CIFAR-100 images, 12 epochs with one
# seed and 60 with three. Neither can confirm or refute a statement about ImageNet, but they can show whether the effect
# appears elsewhere.

# %% tags=["hide-input"]
features_grid = registry.table_2_small_data("quick", seeds=findings.RECORDED_SEEDS)
features = evidence.published(features_grid)
print(evidence.origin(features, features_grid))

# %% [markdown]
# ## What was found on features
#
# On features neither smooth loss leads at any size by more than its interval.
#
# **Figure.** Left: top-5 accuracy against the number of training images, the paper's ImageNet hollow, our features
# filled. Right: smooth loss minus cross-entropy in points, with 95 % intervals over five seeds, against the share of
# the training set; the paper's differences are those for the same shares of ImageNet. Above zero the smooth loss leads:
# the paper's does with few images, ours does not.

# %% tags=["hide-input"]
left, right = figures.new_panels(ncols=2, figsize=(9.6, 4.2))
figures.small_data_figure(features, ax=left)
shares = {2200: 0.05, 4500: 0.1, 11200: 0.25, 22500: 0.5, 45000: 1.0}
by_size = tables.differences_by_seed(features, by="train_images")
by_share = by_size.assign(share=by_size["train_images"].map(shares))
paper = tables.paper_table(2).pivot(index="share", columns="loss", values="mean")
gain = paper["L_{5,0.1}"] - paper["CE"]
figures.difference_figure(
    by_share, by="share", paper=gain.to_dict(), paper_label="paper, ImageNet", ax=right
)
label = right.set_xlabel("share of the training set")

# %%
tables.show(tables.small_data_table(features))

# %%
tables.show(tables.gain_table(features, by="train_images"))

# %% [markdown]
# The paper's gain with few images does not appear on features. $L_{5,0.1}$ is behind cross-entropy in the mean at every
# size, by 0.9 points at 5 % and by 0.3 at 100 %. $L_{5,1}$ is level with cross-entropy at 5 and 10 % and behind by 0.3
# to 0.6 points at the larger sizes. Training for too few epochs is not the reason at the small sizes. At 5 and 10 % the
# top-5 accuracy on training images is above 99.9 % for both smooth losses and above 99.8 % for cross-entropy. From 25 %
# on the training set is no longer fitted: cross-entropy puts 98.5, 96.1 and 94.0 % of its training images among the
# first five at 25, 50 and 100 %.
#
# **Where the hyper-parameters come from.** Each loss has the learning rate and weight decay that its 25 trials chose on
# validation images at $p = 0$ and $0.8$ with 20,000 images ([chapter 9](09_noisy_labels_study.ipynb)). They were not
# searched again for each size, so one of the losses may be better tuned at 5 %. In the paper the smooth loss has a
# learning rate and a weight decay of its own (1 and $2.5 \cdot 10^{-5}$) and cross-entropy the usual ones (0.1 and
# $10^{-4}$).

# %% tags=["hide-input"]
# The differences and accuracies in the text above are those of the recorded runs.
assert gain.round(1)[[0.05, 1.0]].tolist() == [2.1, -0.1]
assert len(features) == len({run.run_id for run in features_grid})
low, one = (
    findings.gains(features, "train_images", name).round(1)
    for name in ("L_{5,0.1}", "L_{5,1}")
)
assert (low.max(), low[2200], low[45000]) == (-0.3, -0.9, -0.3)
assert one[[2200, 4500]].abs().max() <= 0.2
assert one.loc[11200:].tolist() == [-0.6, -0.3, -0.5]
small = features[features["train_images"] < 5000]
last = evidence.epochs_of(small).groupby("run_id")["train_top5"].last()
fitted = small["run_id"].map(last).groupby(small["loss"]).mean()
assert fitted["smooth"] > 0.999
assert fitted["cross_entropy"] > 0.998
plain = features[features["loss"] == "cross_entropy"]
last = evidence.epochs_of(plain).groupby("run_id")["train_top5"].last()
by_images = plain["run_id"].map(last).groupby(plain["train_images"]).mean()
large = by_images[[11200, 22500, 45000]].mul(100).astype(float)
assert large.round(1).tolist() == [98.5, 96.1, 94.0]

# %%
settings = tables.settings_table({"Table 2 on features": features_grid})
tables.show(settings.droplevel("experiment"))

# %% [markdown]
# ## What was found on images
#
# We train a small network on the same shares of CIFAR-100 for 12 epochs, with one seed. The hyper-parameters are those
# that a narrow search of five trials per loss chose for 5,000 images under noise.
#
# **Figure.** Top-5 accuracy of the small network on images against the number of training images. Cross-entropy is ahead
# with few images, the smooth loss with many.

# %% tags=["hide-input"]
images_grid = registry.table_2_small_data("laptop")
images = evidence.published(images_grid)
print(evidence.origin(images, images_grid))
ax = figures.small_data_figure(images, paper=False)
title = ax.set_title("CIFAR-100 images, 12 epochs")

# %%
tables.show(tables.small_data_table(images))

# %%
tables.show(tables.gain_table(images, by="train_images"))

# %% [markdown]
# After 12 epochs the smooth loss is behind by 2.8 points at 5 % and ahead by 0.4 at 100 %: the opposite of the paper's
# order. With one seed there are no intervals, so this order may be chance. The length of training is one possible
# reason. All sizes are trained for 12 epochs, so the smallest set gets a twentieth of the steps, and with few images
# the smooth loss has fitted its training set less than cross-entropy has. The table shows top-5 accuracy on the
# training set after the last epoch.

# %% tags=["hide-input"]
last = evidence.epochs_of(images).groupby("run_id")["train_top5"].last()
fitted = images.assign(fitted=images["run_id"].map(last))
fitted = fitted.pivot(index="train_images", columns="loss", values="fitted")
fitted.columns = ["CE", "L_{5,1}"]
fitted.index = fitted.index.map("{:,}".format)
fitted = fitted.mul(100).map("{:.1f}".format).rename_axis("training images")
tables.show(fitted, "training top-5, last epoch (%), 1 seed")

# %% tags=["hide-input"]
# The smooth loss is 2.8 points behind at 5 % and 0.4 ahead at 100 %.
on_images = findings.gains(images, "train_images").round(1)
assert (on_images.iloc[0], on_images.iloc[-1]) == (-2.8, 0.4)

# %% [markdown]
# ## Images, trained until they are fitted
#
# To test that reason we trained the same network for 60 epochs on 64 images per class, the number per class in the
# paper's 5 % of ImageNet, and on 128, with both temperatures and three seeds. $L_{5,0.1}$ has the learning rate and
# weight decay of $L_{5,1}$. Because $5 \cdot 10^{-4}$ was the largest weight decay of cross-entropy in that narrow
# search, we tried larger ones as well, with one seed: up to three for cross-entropy, one for each smooth loss. The
# weight decay that validation images then preferred for cross-entropy has three seeds too.

# %% tags=["hide-input"]
fitted_grid = (
    *registry.small_data_on_images(),
    *registry.larger_decays_on_images(),
)
fitted_runs = evidence.published(fitted_grid)
print(evidence.origin(fitted_runs, fitted_grid))
last = evidence.epochs_of(fitted_runs).groupby("run_id")["train_top5"].last()
fitted_runs = fitted_runs.assign(train_top5=fitted_runs["run_id"].map(last))
headings = {
    "train_top5": "training top-5 (%)",
    "validation_top5": "validation top-5 (%)",
    "test_top5": "test top-5 (%)",
}
for size, part in fitted_runs.groupby("train_images"):
    table = tables.loss_table(
        part.sort_values(["loss", "tau", "weight_decay"]), headings
    )
    seeds = f"{size:,} images; 3 seeds where a standard deviation is given, else 1"
    display(tables.show(table.rename_axis(seeds, axis=1)))

# %% [markdown]
# Now the smooth loss leads, as in the paper and by more. The first table below has the weight decays of the search, the
# second the best that was tried for each loss, by validation images; cross-entropy had more trials. Differences are in
# points of test top-5, with 95 % intervals over seeds.

# %% tags=["hide-input"]
searched = evidence.published(registry.small_data_on_images())
best = tables.with_best_decay(fitted_runs)
for words, some in (("of the search", searched), ("best of those tried", best)):
    leads = tables.gain_table(some, by="train_images")
    display(tables.show(leads.rename_axis(words, axis=1)))

# %% [markdown]
# With the weight decays of the search $L_{5,1}$ is ahead by 8.3 points with 64 images per class and by 8.4 with 128. A
# larger weight decay takes cross-entropy from 50.7 to 56.4 % and from 62.0 to 66.8 %; a still larger one hurts it. With
# the best weight decay that was tried for each loss, $L_{5,1}$ leads by 3.6 points (3.0 to 4.2) and $L_{5,0.1}$ by 3.0
# (2.5 to 3.5) with 128 images per class. With 64, the leads of 2.6 and 2.0 points are not significant with three seeds.
# As under label noise ([chapter 9](09_noisy_labels_study.ipynb)), more than half of the lead disappears once
# cross-entropy gets enough weight decay. Weight decays were tried in steps of four, learning rates were not searched
# again, and no smaller weight decay was tried for the smooth losses: an even search may change what is left.

# %% tags=["hide-input"]
# The accuracies are those of the text, and losses with the searched decay have fitted.
assert len(fitted_runs) == len({run.run_id for run in fitted_grid})
assert (searched["run_id"].map(last) > 0.999).all()
plain = fitted_runs[fitted_runs["loss"] == "cross_entropy"]
plain = plain.groupby(["train_images", "weight_decay"])["test_top5"].mean()
plain = (100 * plain.astype(float)).round(1)
assert plain[6400][[5e-4, 8e-3]].tolist() == [50.7, 56.4]
assert plain[12800][[5e-4, 2e-3]].tolist() == [62.0, 66.8]
for some, expected in ((searched, [8.3, 8.4]), (best, [2.6, 3.6])):
    assert findings.gains(some, "train_images").round(1).tolist() == expected
found = tables.differences_by_seed(best, by="train_images")
found = tables.intervals(found, ["train_images", "loss"])
found = found.set_index(["train_images", "loss"])[["mean", "low", "high"]].round(1)
assert found.loc[12800, "L_{5,1}"].tolist() == [3.6, 3.0, 4.2]
assert found.loc[12800, "L_{5,0.1}"].tolist() == [3.0, 2.5, 3.5]
assert found.loc[6400, "L_{5,0.1}"].iloc[0] == 2.0
assert (found.loc[6400]["low"] < 0).all()

# %% [markdown]
# ## The paper's own setting
#
# The profile `paper` trains on the paper's shares of ImageNet and averages the top-5 probabilities of ten crops of each
# image, on a GPU server.

# %% tags=["hide-input"]
imagenet = registry.table_2_small_data("paper")
exact = evidence.published(imagenet)
print(evidence.origin(exact, imagenet))
if len(exact):
    display(tables.show(tables.small_data_table(exact, data="ImageNet")))

# %% [markdown]
# ## Run it here
#
# A subset has the same number of images of every class, and a smaller subset is part of a larger one. Runs of different
# sizes thus differ in their number of images and in nothing else.

# %%
grid = trainings.runs_of("table_2_small_data", profile, epochs=epochs)
sizes = list(dict.fromkeys(run.train_size for run in grid))
small, large = (
    load_data(next(run for run in grid if run.train_size == size)).train
    for size in sizes[:2]
)
assert set(small.rows.tolist()) < set(large.rows.tolist())
counts = small.labels.bincount()
assert counts.min() == counts.max()
print(f"Training sets of {', '.join(tables.size_name(size) for size in sizes)}.")

# %%
runs = trainings.run_missing(grid, profile)
print(evidence.origin(runs, grid))

# %% [markdown]
# **Figure.** The runs of this profile: smooth loss minus cross-entropy in points of top-5 by the number of training
# images, with 95 % intervals. Below zero cross-entropy leads.

# %% tags=["hide-input"]
found = tables.differences_by_seed(runs, by="train_images")
ax = figures.difference_figure(found, by="train_images")
title = ax.set_title(f"profile {profile}")

# %%
tables.show(tables.small_data_table(runs))

# %% [markdown]
# The same runs next to the published ones: top-5 accuracy on test images, in percent.

# %%
tables.show(trainings.published_and_yours(grid, profile))

# %% [markdown]
# ## What we saw
#
# - The subsets are nested and balanced; this was checked.
# - The paper's gain with few images (2.1 points at 5 % of ImageNet) does not appear on features: $L_{5,0.1}$ is 0.9
#   points behind cross-entropy at 5 %, although both losses were tuned (at 20,000 images) and fit their training sets.
# - On images with 12 epochs and one seed the smooth loss is behind with few images and ahead with many. With few images
#   it had fitted its training set less than cross-entropy had.
# - On 64 and 128 images per class, fitted in 60 epochs, the smooth loss leads by 8.3 and 8.4 points, and by 2.6 and 3.6
#   with the best weight decay that was tried for each loss; the 2.6 points are not significant (three seeds), and
#   cross-entropy had more trials.
#
# ## Questions
#
# 1. The paper trains for the same number of epochs at every size. What would change with the same number of steps?
# 2. Why is 5 % of a set of 1,000 classes a harder problem than 5 % of a set of 100 classes with as many images?
#
# <details><summary>Answer 1</summary>
#
# A small set would be seen more often per image, up to twenty times as often at 5 %. Every loss would fit it, so the
# comparison would be about which solution a loss prefers and no longer about how fast it gets there.
#
# </details>
# <details><summary>Answer 2</summary>
#
# There are ten times fewer images per class, and each image has to be distinguished from ten times more wrong classes.
# Chance in top-5 is 0.5 % instead of 5 %.
#
# </details>
#
# ## Next
#
# [11 · Top-k probabilities](11_topk_probabilities.ipynb) asks how likely each class is to be in the answer.
