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
# # 14 · Paper versus ours
#
# **Question.** Which numbers of the paper come out here, which do not, and which were not run?
#
# **You will** read every table of the paper and its Figure 2 with our value beside it, and where and when ours was
# computed.
#
# **Paper.** Tables 1 to 9, Figure 2.
#
# **Time.** 10 minutes to read, seconds to run: nothing is trained or measured here.

# %% tags=["parameters"]
profile = "quick"

# %%
import pandas as pd

from smooth_topk.study import configs, evidence, figures, notebook, sparsity, tables

notebook.start(profile)

# %% [markdown]
# Everything below is read from `book/results`, whichever profile is running. The paper's numbers are its own. Ours come
# from two profiles: `laptop` (CIFAR-100, a small net, short trainings on a CPU) and `paper` (the settings of the
# paper). A cell without a recorded run says "not run".

# %% [markdown]
# ## In short
#
# The profile `laptop` is small: mostly 5,000 images of CIFAR-100, a network of 160 thousand parameters, 24 epochs. It
# shows whether an effect exists at that scale. Accuracies are top-5 in percent, differences in points, means over
# seeds.

# %%
tables.show(tables.findings_table())

# %% [markdown]
# ## What was run

# %%
experiments = {
    "Tables 1 and 9: noisy labels": configs.table_1_noise,
    "Table 2: small training sets": configs.table_2_small_data,
    "Figure 2(a) and Table 6: temperature": configs.figure_2_temperature,
    "Table 7: margin, k = 1": configs.table_7_margin_top1,
    "Table 8: margin, k = 5": configs.table_8_margin_top5,
}
measured = {
    "Table 3: time of the forward pass": ["algorithm", "direction", "n", "seconds"],
    "Table 4: time of the backward pass": ["algorithm", "direction", "n", "seconds"],
    "Table 5: stability": ["algorithm", "dtype", "tau", "stable"],
    "Figure 2(b): derivatives that are not zero": ["network", "tau", "share"],
}

# %%
rows = {}
for name, experiment in experiments.items():
    for setting in ("laptop", "paper"):
        grid = experiment(setting)
        rows[name, setting] = {"recorded": evidence.origin(evidence.recorded_runs(grid), grid)}
for name, columns in measured.items():
    found = evidence.measurements(columns)
    rows[name, "any"] = {"recorded": evidence.where_and_when(pd.concat(found)) if found else tables.NOT_RUN}
overview = pd.DataFrame.from_dict(rows, orient="index")
overview.index = pd.MultiIndex.from_tuples(overview.index).rename(["the paper's", "profile"])
tables.show(overview)

# %% [markdown]
# Every recorded run has ended, and names its machine and its day; an accuracy is a share.

# %%
recorded = {setting: {name: evidence.recorded_runs(grid(setting)) for name, grid in experiments.items()}
            for setting in ("laptop", "paper")}  # fmt: skip
for runs in (runs for parts in recorded.values() for runs in parts.values() if len(runs)):
    assert runs["status"].isin(["finished", "diverged"]).all()
    assert runs[["cpu", "machine", "torch", "date"]].notna().all(axis=None)
    assert runs["test_top5"].dropna().between(0, 1).all()

# %% [markdown]
# ## Tables 1 and 9: noisy labels
#
# First with the noise of the text, drawn within a superclass.

# %%
noise = {setting: parts["Tables 1 and 9: noisy labels"] for setting, parts in recorded.items()}
tables.show(tables.noise_table(noise["laptop"], grouping="superclass"))

# %% [markdown]
# The same with the noise of the authors' public code, drawn among five consecutive labels.

# %%
tables.show(tables.noise_table(noise["laptop"], grouping="index_blocks"))

# %%
left, right = figures.new_axes(ncols=2, figsize=(9.6, 4.2), sharey=True)
figures.noise_figure(noise["laptop"], grouping="superclass", ax=left).set_title("laptop, superclass")
figures.noise_figure(noise["laptop"], grouping="index_blocks", ax=right).set_title("laptop, index blocks")
right.label_outer()

# %% [markdown]
# The smooth loss minus cross-entropy in top-5, seed by seed, for both groupings; then how far cross-entropy falls.

# %%
for grouping in ("superclass", "index_blocks"):
    display(tables.show(tables.gain_table(tables.of_grouping(noise["laptop"], grouping))))

# %%
tables.show(tables.drop_table(noise["laptop"]))

# %% [markdown]
# With the paper's own settings:

# %%
tables.show(tables.noise_table(noise["paper"], grouping="superclass"))

# %% [markdown]
# ## Table 2: small training sets
#
# Ours is CIFAR-100 at the paper's shares, a stand-in for ImageNet.

# %%
small = {setting: parts["Table 2: small training sets"] for setting, parts in recorded.items()}
tables.show(tables.small_data_table(small["laptop"]))

# %%
ax = figures.small_data_figure(small["laptop"])

# %% [markdown]
# On ImageNet, with the paper's own settings:

# %%
tables.show(tables.small_data_table(small["paper"], data="ImageNet"))

# %% [markdown]
# ## Tables 3 and 4: time
#
# The paper's seconds are of an Nvidia Titan Xp, ours of the machine named above each table. Batches of 256, $k = 5$.


# %%
def show_speed(direction):
    found = evidence.measurements(["algorithm", "direction", "n", "seconds"], direction=direction, k=5)
    for part in found or [pd.DataFrame(columns=["algorithm", "direction", "n", "seconds"])]:
        print(evidence.where_and_when(part) if len(part) else "ours: not run")
        display(tables.show(tables.speed_table(part, direction)))


show_speed("forward")

# %%
show_speed("backward")

# %% [markdown]
# ## Table 5: stability
#
# A check means no overflow. Where ours has a number in brackets it is the largest relative error: a result can be
# finite and wrong.

# %%
columns = ["algorithm", "dtype", "tau", "stable"]
for part in evidence.measurements(columns) or [pd.DataFrame(columns=columns)]:
    print(evidence.where_and_when(part) if len(part) else "ours: not run")
    display(tables.show(tables.stability_table(part)))

# %% [markdown]
# ## Figure 2 and Table 6: temperature

# %%
temperature = {setting: parts["Figure 2(a) and Table 6: temperature"] for setting, parts in recorded.items()}
curves = evidence.epochs_of(temperature["laptop"])
tables.show(tables.temperature_table(temperature["laptop"], curves))

# %%
ax = figures.training_curves_by_tau(curves, temperature["laptop"])
title = ax.set_title("Figure 2(a), laptop")

# %%
shares = sparsity.read_sparsity(notebook.recorded_folder())
ax = figures.gradient_sparsity(shares)
title = ax.set_title("Figure 2(b), DenseNet 40-12")

# %%
tables.show(tables.paper_facts().set_index(["panel", "fact"]))

# %% [markdown]
# With the paper's own settings:

# %%
tables.show(tables.temperature_table(temperature["paper"], evidence.epochs_of(temperature["paper"])))

# %% [markdown]
# ## Tables 7 and 8: margin
#
# The paper's are of ImageNet, validation set; ours of CIFAR-100, validation set.

# %%
tables.show(tables.margin_table(recorded["laptop"]["Table 7: margin, k = 1"], k=1))

# %%
tables.show(tables.margin_table(recorded["laptop"]["Table 8: margin, k = 5"], k=5))

# %% [markdown]
# ## What we saw
#
# - Every table of the paper stands above with ours beside it, or with "not run".
# - Numbers of ours that come from a smaller network, fewer images and shorter trainings answer whether an effect exists
#   at that scale. They do not check the paper's numbers.
# - What needs a GPU server is one command away: `python scripts/run_study.py --profile paper`.
#
# ## Questions
#
# 1. Which statement of the paper would you test next, and what would it cost?
# 2. Which of our tables would change your mind if it came out the other way?
# 3. One seed differs from another by how much, in the tables that have several?
