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
# # 4 · Staying in log space
#
# **Question.** When do $e_i = \exp(s_i/(k\tau))$ and their products stop fitting into a floating point number, and is
# a result that fits also right?
#
# **You will** find the exact border of overflow, rebuild the tree of chapter 3 with logarithms, see Table 5 with our
# own row, and measure what the logarithms cost in digits.
#
# **Paper.** Appendix B.2.1 and B.4.3, Table 5.
#
# **Time.** 20 minutes to read, half a minute to run.

# %% tags=["parameters"]
profile = "quick"
k = 5
tau = 0.1
taus = [10.0, 1.0, 0.1, 0.01, 0.001, 0.0001]
scales = [0.1, 1.0, 10.0, 100.0]
samples = 3

# %%
from functools import partial
from math import comb, exp, log

import numpy as np
import pandas as pd
import torch

from smooth_topk import log_symmetric_polynomials, smooth_topk_loss
from smooth_topk.study import controls, figures, notebook, tables
from smooth_topk.study.recorded_scores import read_scores
from smooth_topk.symmetric_polynomials import divide_and_conquer, summation

notebook.start(profile)

# %% [markdown]
# ## Scores to work with
#
# The paper takes the scores of a ResNet-18 for 128 ImageNet images. If they are recorded in `book/results`, this
# chapter uses them; otherwise it says so and draws random scores of a similar spread.

# %%
recorded = read_scores()
if recorded:
    scores, labels, source = recorded.scores.float(), recorded.labels, f"ImageNet scores of {recorded.network}"
else:
    scores = 3 * torch.randn(128, 1000, generator=torch.Generator().manual_seed(0))
    labels, source = torch.arange(128), "random scores (ImageNet scores: not recorded)"
print(f"{source}: {tuple(scores.shape)}, largest {scores.max():.1f}, standard deviation {scores.std():.1f}")

# %% [markdown]
# ## The border of overflow
#
# Every floating point format has a largest number. Its logarithm is the largest exponent we can afford.

# %%
formats = {"float16": torch.float16, "bfloat16": torch.bfloat16, "float32": torch.float32, "float64": torch.float64}
largest = {name: log(torch.finfo(dtype).max) for name, dtype in formats.items()}
tables.show(pd.DataFrame({"log of the largest number": largest}).map("{:.1f}".format))

# %% [markdown]
# The largest term of $\sigma_j$ is the product of the $j$ largest $e_i$: $\exp(x_{[1]} + \cdots + x_{[j]})$ with $x =
# s/(k\tau)$. For $j = k$ the exponent is the *mean* of the $k$ largest scores divided by $\tau$. The bars are the
# decimal exponents of these terms for one sample, the lines the largest numbers.

# %%
sample = scores[0]
ax = figures.largest_terms(sample, k=k, tau=tau)

# %% [markdown]
# Move $\tau$: each factor of ten multiplies all exponents by ten. Move $k$: the bars change, but the last one hardly,
# since it is a mean.

# %%
controls.explore(lambda ax, tau, k: figures.largest_terms(sample, k=k, tau=tau, ax=ax), tau=tau, k=k)

# %% [markdown]
# So summation in plain numbers overflows as soon as the mean of the $k$ largest scores exceeds $\tau
# \log(\text{max})$, and cannot while it stays below by $\tau \log \binom{n}{k}$, the number of terms. The map shows
# its error for normal random scores over $\tau$, the scale of the scores and three formats. Crossed cells are not
# finite.

# %%
normal = torch.randn(8, 100, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def summation_error(dtype, tau, scale):
    x = normal * scale / (k * tau)
    truth = divide_and_conquer.log_sigma(x, k)[:, k]  # float64, in logarithms
    difference = (summation.log_sigma(x.to(dtype), k)[:, k].double() - truth).abs()
    return torch.where(difference.isnan(), torch.inf, difference).max().item()


# %%
cells = [(name, tau, scale) for name in ("float16", "float32", "float64") for tau in taus for scale in scales]
overflow = pd.DataFrame(cells, columns=["dtype", "tau", "scale"])
overflow["error"] = [summation_error(formats[name], tau, scale) for name, tau, scale in cells]
axes = figures.error_maps(overflow, panels="dtype", scale=(1e-16, 1.0))

# %% [markdown]
# The rule predicts the crossed cells. Half precision has no chance here: even if all weights are one, $\sigma_5$ of
# 100 classes is $\binom{100}{5}$, and that is more than 65,504, the largest float16.

# %%
assert comb(100, 5) > torch.finfo(torch.float16).max
mean_of_largest = normal.topk(k).values.mean(1).max().item()
for cell in overflow.itertuples():
    exponent = mean_of_largest * cell.scale / cell.tau
    if exponent > largest[cell.dtype]:
        assert cell.error == np.inf
    if exponent + log(comb(100, k)) < largest[cell.dtype]:
        assert cell.error < np.inf

# %% [markdown]
# ## Logarithms
#
# The remedy of appendix B.2.1: store $x = \log e$ instead of $e$. A product becomes a sum. A sum becomes
# *log-sum-exp*, with the largest exponent taken out first, so that every exponential is at most one.

# %%
a, b = 800.0, 799.0
m = max(a, b)
total = m + log(exp(a - m) + exp(b - m))
print(f"log(exp({a:g}) + exp({b:g})) = {total:.6f}, although exp({a:g}) is beyond float64")
assert abs(total - torch.tensor([a, b], dtype=torch.float64).logsumexp(0).item()) < 1e-12

# %% [markdown]
# The tree of chapter 3 with these two operations: a product of two polynomials adds all pairs of coefficients and
# takes log-sum-exp along the diagonals.


# %%
def log_multiply(p, q, k):
    """Logarithms of the coefficients 0..k of a product of two polynomials, from their logarithms."""
    pairs = p[:, None] + q[None, :]
    degree = torch.arange(len(p))[:, None] + torch.arange(len(q))
    return torch.stack([pairs[degree == d].logsumexp(0) for d in range(min(k, len(p) + len(q) - 2) + 1)])


# %%
x = torch.tensor([400.0, 401.0, 399.0, 402.0])
leaves = [torch.stack([torch.zeros(()), value]) for value in x]
root = log_multiply(log_multiply(*leaves[:2], k=3), log_multiply(*leaves[2:], k=3), k=3)
print("log σ_0, ..., log σ_3 =", [round(value, 3) for value in root.tolist()])

# %%
assert torch.allclose(root, log_symmetric_polynomials(x, 3, algorithm="divide_and_conquer"))
assert not log_symmetric_polynomials(x, 3, algorithm="summation").isfinite().all()

# %% [markdown]
# How far does it go? The paper reports single precision stable down to $\tau = 10^{-36}$. The logarithms themselves
# overflow when the mean of the largest scores divided by $\tau$ exceeds $3.4 \cdot 10^{38}$.

# %%
for small in (1e-36, 1e-39):
    log_sigma = log_symmetric_polynomials(sample / k / small, k, algorithm="divide_and_conquer")
    print(f"τ = {small:g}: log σ_k = {log_sigma[k]:.3g}")
assert log_symmetric_polynomials(sample / k / 1e-36, k, algorithm="divide_and_conquer").isfinite().all()

# %% [markdown]
# ## Table 5
#
# The paper's table asks one question: did the forward pass overflow? Ours is measured on recorded ImageNet scores,
# has a row for the pivot algorithm of chapter 6, and the largest relative error where the result is finite.

# %%
measured = notebook.recorded_folder() / "stability.csv"
columns = ["algorithm", "dtype", "tau", "stable"]
stability = pd.read_csv(measured) if measured.is_file() else pd.DataFrame(columns=columns)
tables.show(tables.stability_table(stability))

# %% [markdown]
# ## Finite is not right
#
# A float32 has 24 binary digits, wherever its point stands. A large logarithm leaves few of them behind the point.
# The loss needs the *difference* $\log \sigma_k - \log \sigma_{k-1}$, and each of the two is known no better than
# this:

# %%
spacing = {
    f"τ = {value:g}": float(np.spacing(np.float32(sample.topk(k).values.mean().item() / value))) for value in taus
}
tables.show(pd.DataFrame({"gap between neighbouring float32 at log σ_k": spacing}).map("{:.1e}".format))

# %%
assert spacing["τ = 0.0001"] > 1e-3

# %% [markdown]
# The loss is $\tau$ times a function of that difference, so the loss keeps its digits. Its gradient has a factor
# $\mathrm{sigmoid}$ of the difference, and no $\tau$ to save it. Here are the errors of loss and gradient of the
# first samples against a computation with 50 decimal digits (`smooth_topk.study.exact`). A cross at the top is not
# finite. To see the forward pass alone, the gradient of divide and conquer is that of automatic differentiation here;
# the paper's own backward pass is the next chapter.

# %%
algorithms = ["summation", "divide_and_conquer_autograd", "pivot"]
losses = {name: partial(smooth_topk_loss, algorithm=name, reduction="none") for name in algorithms}
options = {"taus": taus, "k": k, "scores": scores[:samples], "labels": labels[:samples]}
errors = tables.error_table(losses, **options)

# %%
ax = figures.error_curves(errors, x="tau", error="loss_error")

# %%
ax = figures.error_curves(errors, x="tau", error="gradient_error")

# %%
worst = errors.groupby("algorithm", sort=False)[["loss_error", "gradient_error"]].max()
assert np.isinf(worst.loc["summation", "loss_error"])
assert worst.loc["divide_and_conquer_autograd", "loss_error"] < 1e-4
assert worst.loc["pivot"].max() < 1e-6
tables.show(worst.map("{:.1e}".format).rename_axis("largest error, float32"))

# %% [markdown]
# In float64 the logarithms have digits to spare, and the same loss of digits does no harm.

# %%
double = tables.error_table(losses, dtype=torch.float64, **options)
worst_double = double.groupby("algorithm", sort=False)[["loss_error", "gradient_error"]].max()
assert worst_double.loc[["divide_and_conquer_autograd", "pivot"]].to_numpy().max() < 1e-10
tables.show(worst_double.map("{:.1e}".format).rename_axis("largest error, float64"))

# %% [markdown]
# ## What we saw
#
# - Plain numbers overflow when the mean of the $k$ largest scores exceeds $\tau$ times the logarithm of the largest
#   number.
# - In logarithms the tree is finite down to $\tau = 10^{-36}$, as the paper says.
# - Logarithms move the error instead of removing it: at $\tau = 10^{-4}$ neighbouring float32 logarithms are more
#   than 0.001 apart. The loss hardly notices, the gradient does.
# - Each addition costs an exponential and a logarithm.
#
# ## Questions
#
# 1. Adding a constant to all scores of a sample leaves the loss as it is. Does it leave Table 5 as it is?
# 2. Subtract the largest score from all scores first. Which overflow does that prevent, and what underflows instead?
# 3. Which quantity of size one could one store instead of $\sigma_j$? Chapter 6 has an answer.
#
# ## Next
#
# [5 · The backward pass](05_backward_pass.ipynb): the derivatives break in another place.
