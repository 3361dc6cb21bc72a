# ---
# jupyter:
#   jupytext:
#     cell_metadata_filter: tags,jupyter,-all
#     notebook_metadata_filter: kernelspec,jupytext,-jupytext.text_representation.jupytext_version
#     text_representation:
#       extension: .py
#       format_name: percent
#       format_version: '1.3'
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 0. Start here
#
# *Core chapter.* What the book is about, whether you are ready for it, whether your machine is, and a first network that
# learns from people who contradict each other.
#
# **You will be able to**
#
# - say in two sentences what this book does;
# - choose a path through it, and know what to read up before;
# - run a chapter at the size that your machine can bear;
# - solve an exercise, and train a first model.
#
# **You need to know** a little Python. The readiness check below says what else.
#
# **Time** about 45 minutes with the exercises (an estimate), of which the computer needs the few seconds below.
#
# **Data** 5,000 handwritten digits {cite:p}`lecun1998`, which ship with the course. Nothing needs a network.

# %%
try:
    import platform

    import torch
    from IPython.display import Markdown
    from matplotlib.figure import Figure

    import course_lib.checks.start as checks
    from course_lib import annotators, book, confusion, data, metrics, networks, plots, training
    from course_lib.annotations import Annotations
    from course_lib.methods.trace import Trace, Vanilla
    from course_lib.networks import seeded
except ImportError as error:
    import sys

    raise SystemExit(
        f"{error}: this notebook runs on {sys.executable}, where the course is not installed. In a terminal, in the "
        f'folder that holds pyproject.toml, type\n\n    "{sys.executable}" -m pip install -e .\n\nand restart the kernel.'
    ) from None

# %% tags=["card", "hide-input"]
book.card(0)

# %% [markdown]
# ## Sizes and devices
#
# **Size.** Everything in this book can be run in three sizes. `ci` takes seconds and is for testing; `lesson` is what you
# read here, minutes on a laptop; `paper` is as large as in the papers, for a bigger computer. The variable `COURSE_SIZE`
# chooses, and a cell like the next one, near the top of every chapter, says what that changes.

# %% tags=["parameters"]
P = training.sized(  # (ci, lesson, paper)
    draws=(1, 3, 10),  # panels of five annotators
    epochs=(9, 20, 60),  # how often each image is seen
)
print(f"size {training.size()}: {P}")

# %% [markdown]
# **Device.** Size and device are two things: any size runs on any device. `auto` takes a GPU where there is one
# (`cuda`, or `mps` on a Mac), else the CPU; the variable `COURSE_DEVICE` overrides that. Both variables are set before
# the kernel starts, for instance `COURSE_SIZE=ci course lab` in a terminal.
#
# ## The idea in one picture
#
# Here is one image, and what five people say of it. They are simulated, so that we know the truth.

# %%
digits = data.split(data.mnist5k())
images, truth = data.small(digits.train.images), digits.train.labels  # (N, 1, 14, 14), (N,)
A = annotators.pairwise_flippers(5, 10, skill=0.45, generator=seeded(0))  # (R, L, L): five people, each a matrix
everything = annotators.annotate(truth, A, generator=seeded(1))  # (N, R): all five label all images
different = torch.tensor([len(set(row)) for row in everything.tolist()])  # (N,) how many names an image got
n = int(different.argmax())  # the first image about which they disagree most

# %% tags=["hide-input"]
fig = Figure(figsize=(5, 2.4), layout="constrained")
left, right = fig.subplots(1, 2)
left.imshow(digits.train.images[n], cmap="gray_r")
for r, label in enumerate(everything[n].tolist()):
    right.plot(0.05, r, plots.MARKERS[r], color=plots.ANNOTATORS[r], markeredgecolor="black", markersize=9)
    right.text(0.15, r, f"annotator {r + 1} says {label}", va="center", fontsize=12)
right.set(xlim=(0, 1), ylim=(4.6, -0.6))
for ax in (left, right):
    ax.set_axis_off()
said = ", ".join(map(str, everything[n].tolist()))
plots.described(
    fig, "One image, five people. Whom do you believe?",
    f"A handwritten {truth[n]} on the left; on the right the five annotators' labels: {said}.",
)  # fmt: skip

# %% [markdown]
# With real images there is no truth to look up: five radiologists draw five outlines, and that is all there is. Throw the
# labels together and you train on the mistakes, too. This book does something else. It gives every person a small
# matrix, $A_{ij} = p(\text{says } i \mid \text{truth is } j)$, the **confusion matrix**, and learns the truth and all the
# matrices together.
#
# That one idea carries the whole book. The chapters differ in what the matrix depends on.

# %% tags=["hide-input"]
PARTS = {
    "I. Classes: a matrix for each person": "1 2 3 4 5e 6",
    "II. Pixels: a matrix for each pixel": "7 8 9e 10e 11e 12e",
    "III. Recurrence: segment, then trust": "13 14 15e",
    "IV. Coarse labels: strokes": "16 17 18e",
    "V. Your own data": "19 20e 21e",
}
fig = Figure(figsize=(5, 4.2), layout="constrained")
ax = fig.subplots()
for y, (part, chapters) in enumerate(PARTS.items()):
    ax.text(-0.4, y - 0.42, part, fontsize=11)
    for x, chapter in enumerate(chapters.split()):
        core = not chapter.endswith("e")
        look = {"boxstyle": "circle,pad=0.35", "facecolor": plots.MODEL if core else "white", "edgecolor": plots.MODEL}
        ax.text(x * 0.9, y, chapter.strip("e").rjust(2), ha="center", va="center", color="white" if core else "black", bbox=look)
ax.set(xlim=(-0.5, 5), ylim=(4.6, -0.7))
ax.set_axis_off()
plots.described(
    fig, "The map. Filled: core chapters, to be read in this order. Open: electives and reference, for those who want more.",
    "Five rows of numbered chapters. " + "; ".join(f"{part}: {c.replace('e', ' (elective)')}" for part, c in PARTS.items()),
)  # fmt: skip

# %% [markdown]
# The front page lists all chapters with their titles.
#
# ## Three paths
#
# | you have | read | and do |
# | --- | --- | --- |
# | one hour | the picture that opens {doc}`/notebooks/01_annotators_disagree`, sections 1 and 5 of {doc}`/notebooks/03_the_trace` | one exercise of either |
# | one day | chapters 1, 3, 7 and 8, and the "not class k" demonstration of 16 | your own CSV: `course report`, and section 5 of 19 |
# | four weeks | a part a week: classes, pixels, recurrence, coarse labels | the exercises, and a project on your own annotators |
#
# ## Are you ready?
#
# Ten questions. Each wants a number or one of the letters.

# %% tags=["hide-input"]
Markdown(checks.questions())

# %% [markdown]
# Write your answers in the place of `None`, for instance `1: 0.25` or `3: "b"`, and run the cell and the one below it.
# Nobody sees the score but you.

# %%
answers = {
    1: None,
    2: None,
    3: None,
    4: None,
    5: None,
    6: None,
    7: None,
    8: None,
    9: None,
    10: None,
}

# %% [markdown]
# The next cell marks them. For each wrong one it says why, and where to read up.

# %%
score = checks.readiness(answers)

# %% [markdown]
# <details><summary>All ten answers</summary>
#
# 1: one half. 2: 0.4. 3: a. 4: one third. 5: c. 6: 0. 7: b. 8: 10. 9: c. 10: a.
#
# </details>
#
# ## Is your machine?
#
# If you can run the next cell, nearly everything is there. `course doctor`, in a terminal, says the same and a little
# more.

# %%
print(f"Python {platform.python_version()}, torch {torch.__version__}, {platform.system()} {platform.machine()}")
print(f"device {training.pick_device()}, size {training.size()}, memory in use {training.peak_mb(torch.device('cpu')):,.0f} MB")
print(f"data: {len(digits.train)} digits to train on, {len(digits.test)} to test on")

# %% [markdown]
# If a chapter takes much longer than its card says, choose a smaller size. If the device is `cpu` although there is a
# GPU, the installed torch was built without support for it; the book works all the same.
#
# ## The first training run
#
# Now the idea at work. Five annotators, each of them right 45 % of the time. Each image is shown to **one** of them, so
# nobody can ever be outvoted. Two networks learn from the same labels.

# %%
crowd, panels = [], []
data_of_all = Annotations(images, everything, n_classes=10)
for k in range(P.draws):
    panels.append(annotators.pairwise_flippers(5, 10, skill=0.45, generator=seeded(k)))
    labels = annotators.annotate(truth, panels[k], per_item=1, generator=seeded(100 + k))  # (N, R), -1: not asked
    crowd.append(data_of_all.with_labels(labels))
print(f"{len(truth)} images and {int(crowd[0].observed.sum())} labels in each of {P.draws} draw(s) of five annotators")

# %% [markdown]
# The first network, `vanilla`, takes every label for the truth. The second, `trace`, has one matrix for each annotator,
# and a small term in its loss that chapter 3 is about. This is the training cell; every chapter has one. It checks that
# the network lives on the device that it names.

# %% tags=["training"]
vanilla = [Vanilla(networks.mlp(196, 10, generator=seeded(k))) for k in range(P.draws)]
trace = [Trace(networks.mlp(196, 10, generator=seeded(k)), 5, 10, lam=0.02) for k in range(P.draws)]
seeds = list(range(P.draws))
print("vanilla:", training.fit(vanilla, crowd, epochs=P.epochs, seeds=seeds))
history = training.fit(trace, crowd, epochs=P.epochs, seeds=seeds)
device = training.pick_device()
assert all(parameter.device.type == device.type for parameter in trace[0].parameters())
assert history.device.startswith(device.type)
print("trace:  ", history)

# %% [markdown]
# And this is what it was good for: accuracy on digits that nobody has labelled.

# %%
unseen, its_truth = data.small(digits.test.images), digits.test.labels
scores = {
    name: [metrics.accuracy(training.predict(net, unseen), its_truth) for net in nets]
    for name, nets in {"vanilla": vanilla, "trace": trace}.items()
}
right = [float(metrics.annotator_accuracy(c.labels, truth).nanmean()) for c in crowd]

# %% tags=["hide-input"]
rows = [("who", "right", "95 % interval"), ("---",) * 3]
for name, values in {"a label": right, **scores}.items():
    center, half = plots.interval(values)
    rows.append((name, f"{center:.3f}", f"± {half:.3f}" if len(values) > 1 else "one draw only"))
Markdown("\n".join("| " + " | ".join(row) + " |" for row in rows))

# %% [markdown]
# Both networks are right far more often than the labels that they learned from. And the one that asks *who said it* is
# ahead: a little after a short training, more after a longer one, in which `vanilla` begins to learn the mistakes by heart.

# %%
gap = sum(scores["trace"]) / P.draws - sum(scores["vanilla"]) / P.draws
print(f"trace - vanilla: {gap:+.3f}")
if gap < 0:
    print("your run differed: in ours the trace was ahead")

# %% [markdown]
# It also knows its people. Here are two of the matrices that it found, beside the true ones. Nobody told it either these
# or a single truth.

# %% tags=["hide-input"]
pair = torch.stack([panels[0][0], trace[0].confusion()[0], panels[0][1], trace[0].confusion()[1]])
fig = plots.confusion_row(pair, ["1, true", "1, learned", "2, true", "2, learned"], title="Columns are truths, rows what is said")
plots.described(fig, f"True and learned confusion matrices of two annotators. Size {training.size()}.")

# %% [markdown]
# How that can work is what you will read in chapters 1 to 3: it is less magical than it looks, and it has limits, which
# the book shows you too.
#
# ## Exercises
#
# Every exercise has the same parts. A box says what is wanted, with the shapes. A cell holds a function that raises
# `NotImplementedError`: write your answer there. Three hints are folded, from a nudge to nearly everything. A cell
# checks your function and, if it is wrong, names the likely mistake. A solution is folded away, and then follows what you
# should have seen. Start with one that is hardly an exercise.
#
# ```{exercise} How it works (★, 2 minutes)
# :label: ex-ch0-share
#
# Exercise 0.1. Given what somebody `said` (N,) and the `truth` (N,), both tensors of integers, return the share of
# answers that are right: a number between 0 and 1.
# ```

# %% tags=["stub"]
def share_right(said, truth):
    """(N,), (N,) -> a number."""
    raise NotImplementedError


# %% [markdown]
# <details><summary>Hint 1: a nudge</summary>
#
# Compare the two first. What does `said == truth` hold?
#
# </details>
# <details><summary>Hint 2: the formula</summary>
#
# The mean of ones and zeros is the share of ones.
#
# </details>
# <details><summary>Hint 3: the shape of the code</summary>
#
# `(said == truth).double().?()`
#
# </details>

# %% tags=["check", "raises-exception"]
checks.share_right(share_right)


# %% tags=["solution", "hide-cell"] jupyter={"source_hidden": true}
def share_right(said, truth):
    """(N,), (N,) -> a number."""
    return (said == truth).double().mean()


checks.share_right(share_right)

# %% [markdown]
# **What you should see, and why.** A line with a tick. While the stub stands, the check says that the exercise is not
# done yet, and the notebook runs on: nothing later depends on your answers. Now return `(said == truth).sum()` and look
# at what the check says.
#
# ```{exercise} The test that is 90 % right (★, 5 minutes)
# :label: ex-ch0-bayes
#
# Exercise 0.2. A share `prior` of all people is ill. A test is positive for a share `right_if_ill` of the ill, and
# negative for a share `right_if_healthy` of the healthy. Return the probability that somebody who tests positive is ill.
# ```

# %% tags=["stub"]
def ill_if_positive(prior, right_if_ill, right_if_healthy):
    """Three probabilities -> a probability."""
    raise NotImplementedError


# %% [markdown]
# <details><summary>Hint 1: a nudge</summary>
#
# There are two kinds of people who test positive. How many of each are there?
#
# </details>
# <details><summary>Hint 2: the formula</summary>
#
# $p(\text{ill} \mid +) = p(\text{ill})\, p(+ \mid \text{ill}) \,/\, p(+)$, and $p(+)$ is a sum over the ill and the
# healthy.
#
# </details>
# <details><summary>Hint 3: the shape of the code</summary>
#
# `ill = prior * right_if_ill`, `healthy = (1 - prior) * ?`, and return `ill / (? + ?)`.
#
# </details>

# %% tags=["check", "raises-exception"]
checks.ill_if_positive(ill_if_positive)


# %% tags=["solution", "hide-cell"] jupyter={"source_hidden": true}
def ill_if_positive(prior, right_if_ill, right_if_healthy):
    """Three probabilities -> a probability."""
    ill = prior * right_if_ill
    healthy = (1 - prior) * (1 - right_if_healthy)
    return ill / (ill + healthy)


checks.ill_if_positive(ill_if_positive)
print(f"prior 0.1: {ill_if_positive(0.1, 0.9, 0.9):.2f}; prior 0.5: {ill_if_positive(0.5, 0.9, 0.9):.2f}")

# %% [markdown]
# **What you should see, and why.** The same test means different things to different people: the prior decides. The test
# *is* an annotator, with two classes. Its confusion matrix has `right_if_ill` and `right_if_healthy` on the diagonal, and
# what you have just computed is the posterior that every method of this book computes.
#
# ```{exercise} A softmax that survives (★★, 10 minutes)
# :label: ex-ch0-softmax
#
# Exercise 0.3. Return the logarithm of the softmax of `logits` (B, L), along the classes, as (B, L). It must work for
# logits of 1000 and of −1000. Use `exp`, `log`, `sum` and `max`, not the ready-made functions.
# ```

# %% tags=["stub"]
def log_softmax(logits):
    """(B, L) -> (B, L), each row of whose exp sums to 1."""
    raise NotImplementedError


# %% [markdown]
# <details><summary>Hint 1: a nudge</summary>
#
# What is `torch.tensor(1000.0).exp()`? And what may one add to all logits of a row without changing its softmax?
#
# </details>
# <details><summary>Hint 2: the formula</summary>
#
# With $m = \max_k z_k$: $\log \operatorname{softmax}(z)_j = (z_j - m) - \log \sum_k e^{z_k - m}$. Now the largest term of
# the sum is 1: it can neither overflow nor vanish.
#
# </details>
# <details><summary>Hint 3: the shape of the code</summary>
#
# `z = logits - logits.max(1, keepdim=True).values`, then `z - z.exp().sum(?, keepdim=True).log()`.
#
# </details>

# %% tags=["check", "raises-exception"]
checks.log_softmax(log_softmax)


# %% tags=["solution", "hide-cell"] jupyter={"source_hidden": true}
def log_softmax(logits):
    """(B, L) -> (B, L), each row of whose exp sums to 1."""
    z = logits - logits.max(1, keepdim=True).values  # the largest of each row is 0
    return z - z.exp().sum(1, keepdim=True).log()


checks.log_softmax(log_softmax)

# %% [markdown]
# **What you should see, and why.** The obvious code gives `inf` or `nan` as soon as one logit is large; a single one
# ruins a training run. So the whole library stays in logarithms: a product of probabilities becomes a sum, and a sum of
# them becomes the `logsumexp` that you have just written.
#
# ```{exercise} One step downhill (★★, 10 minutes)
# :label: ex-ch0-step
#
# Exercise 0.4. A network of one layer has weights `W` (L, D). For one image `x` (D,) its logits are `W @ x`, and its
# loss is $-\log \operatorname{softmax}(W x)_y$, where `y` is the true class. Return the weights after one step of
# gradient descent with learning rate `lr`, without autograd.
# ```

# %% tags=["stub"]
def one_step(W, x, y, lr):
    """(L, D), (D,), integer, number -> (L, D)."""
    raise NotImplementedError


# %% [markdown]
# <details><summary>Hint 1: a nudge</summary>
#
# First find the gradient with respect to the logits. It is small where the network is right.
#
# </details>
# <details><summary>Hint 2: the formula</summary>
#
# With $p = \operatorname{softmax}(W x)$ and $e_y$ the one-hot vector of the true class, $\partial \ell / \partial W =
# (p - e_y)\, x^\top$.
#
# </details>
# <details><summary>Hint 3: the shape of the code</summary>
#
# `error = (W @ x).softmax(0)`, `error[y] -= 1`, and return `W - lr * torch.outer(?, ?)`.
#
# </details>

# %% tags=["check", "raises-exception"]
checks.one_step(one_step)


# %% tags=["solution", "hide-cell"] jupyter={"source_hidden": true}
def one_step(W, x, y, lr):
    """(L, D), (D,), integer, number -> (L, D)."""
    error = (W @ x).softmax(0)  # (L,)
    error[y] -= 1
    return W - lr * torch.outer(error, x)


checks.one_step(one_step)

# %% [markdown]
# **What you should see, and why.** The gradient is *error times input*. Training a network is this step, many thousand
# times, with the gradient found by autograd and shared out over all layers. Nothing else happened in the training cell
# above.
#
# ## Next
#
# - {doc}`Chapter 1 </notebooks/01_annotators_disagree>` makes a matrix of each person, lets you label digits yourself, and
#   shows how far a vote gets.
# - The words are explained in the {doc}`glossary </book/glossary>`, the symbols in {doc}`/book/notation`.
# - The method of the first training run is that of {cite:t}`tanno2019`.
