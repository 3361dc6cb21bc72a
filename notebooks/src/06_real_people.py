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

# %%

# %% [markdown]
# # 6. Real people, real images
#
# *Core chapter.* The panels of chapters 1 to 4 were tidy: a handful of annotators, equally busy, each seen thousands of
# times. A real crowd is not. Some people label a hundred images, some three; those who work most are not those who know
# most; and at the end somebody asks for a ranking. This chapter takes the recipe of {doc}`/notebooks/03_the_trace` to
# such a crowd, and asks how much one may believe of what it says about *people*.
#
# **You will be able to**
#
# - describe a crowd before you model it: who labelled how much, and who agrees with whom;
# - train on many annotators with few labels each, and compare with the vote and with Dawid-Skene, pair by pair;
# - say which matrices the labels cannot determine, and put an interval on a skill;
# - load MedMNIST pictures or the LabelMe crowd, and say what to be careful about when people are ranked.
#
# **You need to know** chapter 3 (the recipe), a standard error, and what a vote and Dawid-Skene do.
#
# **Time** about two hours with the exercises (an estimate), of which the computer needs the seconds below.
#
# **Data** drawn pictures of six "views of the heart" with eight drawn readers, which need no file; the committed results
# on LabelMe, 1,000 photographs labelled by 59 real people {cite:p}`rodrigues2018`; both sets yourself, where you have
# the files.

# %%
try:
    import torch
    from IPython.display import Markdown
    from matplotlib.figure import Figure

    import course_lib.checks.people as checks
    from course_lib import annotators, book, confusion, crowds, data, experiments, fusion, metrics, networks, plots, training
    from course_lib.annotations import MISSING, Annotations
    from course_lib.experiments import claims
    from course_lib.methods.trace import Trace, Vanilla
    from course_lib.networks import seeded
except ImportError as error:
    import sys

    raise SystemExit(
        f"{error}: this notebook runs on {sys.executable}, where the course is not installed. In a terminal, in the "
        f'folder that holds pyproject.toml, type\n\n    "{sys.executable}" -m pip install -e .\n\nand restart the kernel.'
    ) from None

# %% tags=["card", "hide-input"]
book.card(6)

# %% [markdown]
# As in every chapter, `COURSE_SIZE` picks a column of the next table.

# %% tags=["parameters"]
P = training.sized(  # (ci, lesson, paper)
    draws=(1, 5, 10),  # crowds in the comparison
    epochs=(15, 40, 200),
    resamples=(50, 400, 1000),  # for the bootstrap
)
print(f"size {training.size()}: {P}")

# %% [markdown]
# ## 1. The idea in one picture
#
# {cite:t}`tanno2019` tried their method on ultrasound pictures of the heart: six views, six sonographers, two people who
# are no experts. Those pictures are private. So here are **drawings** that are difficult in the same way: dark chambers in
# a bright fan, and views that differ by one small chamber.

# %%
views = crowds.six_views(2700, seeded(0))
x, truth = data.small(views.images), views.labels  # (N, 1, 14, 14), (N,)
train, test = slice(0, 1700), slice(1700, None)
print(views, crowds.VIEWS)

# %% tags=["hide-input"]
fig = Figure(figsize=(6, 4.2), layout="constrained")
for k, ax in enumerate(fig.subplots(2, 3).flat):
    ax.imshow(views.images[truth == k][3], cmap="gray", vmin=0, vmax=255)
    ax.set(title=f"{k}: {crowds.VIEWS[k]}", xticks=[], yticks=[])
plots.described(
    fig, "One drawing of each class. Compare 2 with 3, and 4 with 5: one small chamber more.",
    "Six small grey pictures of dark ellipses in a noisy fan, one for each view; neighbours look alike.",
)  # fmt: skip

# %% [markdown]
# Eight readers share the work, two to an image. Readers 1 to 6 are experts, who now and then mix up views that look
# alike. Readers 7 and 8 mostly guess, and they are the busiest.

# %%
A = crowds.eight_readers(seeded(1))  # (R, L, L)
said = annotators.annotate(truth[train], A, per_item=2, workload=crowds.WORKLOAD, generator=seeded(2))  # (N, R)
names = tuple(f"expert {r + 1}" for r in range(6)) + ("reader 7", "reader 8")
crowd = Annotations(x[train], said, n_classes=6, names=names)
print(f"{crowd.n_items} images, {crowd.n_observed} labels of {crowd.n_annotators} readers")

# %% [markdown]
# This is what a crowd looks like: mostly gaps.

# %% tags=["hide-input"]
fig = Figure(figsize=(6.2, 3.2), layout="constrained")
ax = fig.subplots()
shown = said[:60].T.float()
ax.imshow(shown.masked_fill(shown < 0, float("nan")), cmap="cividis", aspect="auto", interpolation="none")
ax.set(yticks=range(8), xlabel="image", title="Two labels an image; the lowest two rows are the fullest")
ax.set_yticklabels(names)
plots.described(
    fig, "The labels of the first 60 images. A shade is a class, white is silence.",
    "A grid of 8 readers by 60 images, mostly empty; the two rows of the readers who are no experts hold most marks.",
)  # fmt: skip

# %% [markdown]
# ## 2. Predict
#
# Write down three guesses before you go on.
#
# 1. The vote of two labels is a coin toss wherever they differ. A network is trained on it. Will it be right more or less
#    often than the vote itself?
# 2. Reader 8 knows one picture in ten and guesses the rest. How often will reader 8 agree with the vote?
# 3. A reader labelled 30 images of six classes and was right in 27. Between which numbers does the skill lie?
#
# ## The recipe
#
# First count, then fit. Who labelled how much, and how often does somebody agree with the others who saw the same image?

# %%
def agreement(labels):
    """Share of pairs (this annotator's label, another's of the same image) that are equal: (N, R) -> (R,)."""
    seen = labels != MISSING
    both = (seen[:, :, None] & seen[:, None]) & ~torch.eye(labels.shape[1], dtype=torch.bool)  # (N, R, R)
    same = both & (labels[:, :, None] == labels[:, None])
    return same.sum((0, 2)) / both.sum((0, 2))


for name, n, share in zip(names, crowd.observed.sum(0), agreement(said)):
    print(f"{name}: {n:4d} labels, agrees with {share:.0%} of the others' labels")

# %% [markdown]
# Agreement needs no truth and no model, and it already tells much. But it is relative: an expert who mostly shares images
# with reader 8 looks bad. The recipe is that of chapter 3, unchanged; this is also the training cell of the chapter, which
# checks that parameters and loss live on the device it names.

# %% tags=["training"]
model = Trace(networks.mlp(196, 6, generator=seeded(0)), crowd.n_annotators, crowd.n_classes, lam=0.02)
history = training.fit(model, crowd, epochs=P.epochs)
device = training.pick_device()
assert all(parameter.device.type == device.type for parameter in model.parameters())
assert history.device.startswith(device.type)
print(history)

# %% [markdown]
# And what it learned of the pictures, and of the people:

# %%
print(f"accuracy on unseen pictures: {metrics.accuracy(training.predict(model, x[test]), truth[test]):.3f}")
for name, learned, true in zip(names, model.skills(), confusion.skills(A)):
    print(f"{name}: learned skill {learned:.2f}, true {true:.2f}")

# %% [markdown]
# ## 3. The maths: what few labels can say
#
# Nothing in the loss of chapter 3 changes with the number of annotators. What changes is how much each matrix is worth.
# Suppose for a moment that the truth is known. Annotator $r$ saw $n_{rj}$ images of class $j$ and was right in a share of
# $\hat a_{jj}$ of them. Each diagonal entry is a proportion, and the skill $s_r = \frac1L \sum_j A^{(r)}_{jj}$ is their
# mean, so
#
# $$
# \operatorname{sd}(\hat s_r) = \frac1L \sqrt{\sum_j \frac{A^{(r)}_{jj}\,(1 - A^{(r)}_{jj})}{n_{rj}}}.
# $$ (eq-ch6-sd)
#
# With $n_{rj} = n_r / L$ this is about $\sqrt{s (1 - s) / n_r}$: a skill of .85 from 30 labels is uncertain by .065, so that
# its 95 % interval is a quarter wide. We check the formula by drawing such a reader again and again:

# %%
per_class = 5
seen = torch.arange(6).repeat_interleave(per_class)  # 30 images
again = torch.stack([annotators.annotate(seen, A[:1], generator=seeded(k))[:, 0] for k in range(1000)])  # (1000, 30)
measured = (again == seen).view(1000, 6, per_class).float().mean(2).mean(1)  # (1000,) skills
a = A[0].diagonal()
formula = (a * (1 - a) / per_class).sum().sqrt() / 6
print(f"standard deviation of the measured skill {measured.std():.3f}, formula {formula:.3f}")
assert abs(measured.std() / formula - 1) < 0.15

# %% [markdown]
# **Not identified.** If $n_{rj} = 0$, nobody can know column $j$: the likelihood does not contain it. It stays where it
# started, or drifts to where the trace and the network's doubts push it, and that number is then printed as if it had been
# measured. An annotator with fewer labels than classes has at least one such column, whatever the method. So before any fit, count:

# %%
def counts(labels, n_classes):
    """How many annotators have fewer labels than classes, and than ten a class."""
    n = (labels != MISSING).sum(0)
    return f"{len(n)} annotators: {(n < n_classes).sum()} with fewer labels than classes, {(n < 10 * n_classes).sum()} with fewer than ten a class"


print(counts(said, 6), "| first 60 images alone:", counts(said[:60], 6))

# %% [markdown]
# ## 4. From scratch
#
# A table of 1,000 images by 59 people is 96 % gaps. A loss that walks over all of it would do twenty times the work
# needed. So `fit` stores, for each image, only what was said and who said it. First as a loop:

# %%
def who_spoke_slow(labels):
    rows = [[(int(i), r) for r, i in enumerate(row) if i != MISSING] for row in labels]
    widest = max(map(len, rows))
    return torch.tensor([row + [(MISSING, 0)] * (widest - len(row)) for row in rows]).unbind(2)


# %% [markdown]
# Then without one: a stable sort moves the gaps of each row to the right, and what all rows can spare is cut off.

# %%
def who_spoke(labels):
    """(N, R) with gaps -> what was said (N, G) and who said it (N, G), where nobody labelled more than G times."""
    gap = labels == MISSING
    who = gap.int().argsort(dim=1, stable=True)[:, : int((~gap).sum(1).max())]  # (N, G)
    said = labels.gather(1, who)
    return said, torch.where(said == MISSING, 0, who)


assert all(torch.equal(a, b) for a, b in zip(who_spoke(said), who_spoke_slow(said)))
print(f"{tuple(said.shape)} -> {tuple(who_spoke(said)[0].shape)}")

# %% [markdown]
# The likelihood is the same either way. Now you know what the argument `who` of chapter 3 was for.

# %%
log_A, log_p = confusion.log(A)[None], training.predict_log_p(model, x[train])
few, who = who_spoke(said)
full = confusion.label_log_likelihood(log_A, log_p, said).sum()
short = confusion.label_log_likelihood(log_A, log_p, few, who).sum()
print(f"over all {said.numel()} entries {full:.3f}, over {few.numel()}: {short:.3f}")
assert torch.allclose(full, short, rtol=1e-4)

# %% [markdown]
# ## 5. The experiment
#
# ### Drawn readers: here we know everything
#
# Five methods, the same pictures and first weights. `truth` is trained on the true labels: the ceiling. `trace` and
# `no_trace` are the recipe with $\lambda = .02$ and 0. `dawid_skene` and `vanilla` are plain networks on fused labels:
# what Dawid-Skene makes of them, and the vote. Plain networks stop early on held-out *fused* labels, never on the truth.
# Every draw is another set of eight readers.

# %%
result = experiments.run("six-views", seeds=P.draws)
order = ["truth", "trace", "no_trace", "dawid_skene", "vanilla"]
print(f"{len(result['rows'])} runs in {result['seconds']:.0f} s on {result['device']}")

# %% tags=["hide-input"]
fig = plots.bars_with_spread(
    result["rows"], "accuracy", order, title="Knowing who speaks is worth more than a vote", xlabel="test accuracy",
)  # fmt: skip
plots.described(fig, f"Each dot is one draw of eight readers; the line is the 95 % interval. Size {training.size()}.")

# %% [markdown]
# The comparison is paired: draw by draw, the same labels. So look at differences, whose interval is narrower than the two
# bars suggest.

# %%
def paired(result, metric, method, other, **setting):
    """The difference of two methods, draw by draw, in words."""
    gap = experiments.values(result, method, metric, **setting) - experiments.values(result, other, metric, **setting)
    mean, half = plots.interval(gap)
    spread = f"± {half:.3f}" if len(gap) > 1 else "(one draw: no interval)"
    return f"{metric}, {method} - {other}: {mean:+.3f} {spread}, ahead in {(gap > 0).sum()} of {len(gap)} draws"


for other in order[2:]:
    print(paired(result, "accuracy", "trace", other))
if (experiments.values(result, "trace", "accuracy") - experiments.values(result, "vanilla", "accuracy")).mean() < 0:
    print("your run differed: in ours the recipe was ahead of the vote")

# %% [markdown]
# Two labels an image are enough for Dawid-Skene to find out who guesses, so a plain network on its labels can be as good
# as the recipe on drawn readers. On the vote it is not. The trace changes little in the accuracy.
#
# ### Are the skills right?
#
# This is the paper's Fig. 7 (b) with known readers. Three estimates of each skill against the truth: the recipe's, the
# count matrix of what the network decides (chapter 3), and the agreement with the vote, which is what is usually quoted.

# %%
one_hot = torch.nn.functional.one_hot
vote = fusion.majority(said, 6, generator=seeded(0))
against_vote = confusion.skills(confusion.count_matrices(said, one_hot(vote, 6).float()))
decided = one_hot(training.predict(model, x[train]), 6).float()  # (N, L)
counted = confusion.skills(confusion.count_matrices(said, decided))
estimates = {"recipe": model.skills(), "counted": counted, "against the vote": against_vote}

# %% tags=["hide-input"]
fig = Figure(figsize=(6, 4.6), layout="constrained")
ax = fig.subplots()
for (name, values), marker in zip(estimates.items(), "osv"):
    color = plots.MODEL if name == "recipe" else plots.BASELINES[name == "counted"]
    ax.plot(confusion.skills(A), values, marker, color=color, label=name, markersize=8, alpha=0.8)
ax.plot([0.1, 1], [0.1, 1], color=plots.TRUTH, linewidth=1)
ax.set(xlabel="true skill", ylabel="estimated skill", title="The vote flatters those who take part in it")
ax.legend(frameon=False)
plots.described(
    fig, f"Eight readers; on the line an estimate is right. The two on the left are no experts. Size {training.size()}.",
    "Estimated against true skill: recipe and counts near the diagonal, agreement with the vote too high for the two "
    "readers who guess and too low for the experts.",
)  # fmt: skip

# %% [markdown]
# The recipe and the counts set the experts well apart from the others, the vote only just. For a reader who gave one of two
# labels wins each tie half of the time by construction: the vote makes guessers look better, and the experts who sat
# beside them worse.

# %%
for name, values in estimates.items():
    off = values - confusion.skills(A)
    print(f"{name:>17}: experts off by {off[:6].mean():+.2f} in the mean, the other two by {off[6:].mean():+.2f}")
assert against_vote[6:].mean() > confusion.skills(A)[6:].mean() + 0.1

# %% [markdown]
# ### Fifty-nine real people
#
# LabelMe: photographs of eight kinds of scenes, labelled by 59 workers of a crowd platform, 2.5 labels an image
# {cite:p}`rodrigues2018`. Nobody drew these people. The figure is drawn from the results that ship with the course
# (`course run labelme-crowd --seeds 5`). A draw is here another tenth held out and other weights: the labels are what they
# are, so the intervals say nothing about another crowd.
#
# One thing to hold against these numbers: the network with dropout, and its number of epochs, were chosen after looking at
# the true labels of the 500 validation images, and after the plain network of section 6 had been seen to fail on the test
# images. The noisy held-out labels alone would have chosen otherwise: their likelihood was best for networks that stopped
# earlier. Whoever has no truth could not have made this choice, so read the lead below as what is possible.

# %% tags=["hide-input"]
labelme = experiments.read(data.shipped("results/labelme-crowd.lesson.json"))
careful = [row for row in labelme["rows"] if row["setting"]["network"] == "dropout"]
fig = plots.bars_with_spread(careful, "accuracy", order, title="Real people: better than a vote, far from the truth", xlabel="test accuracy on 1,188 photographs")
plots.described(fig, f"LabelMe, a network with dropout on 512 features. Size {labelme['size']}, {labelme['device']}.")

# %% [markdown]
# In differences:

# %%
for other in order[2:]:
    print(paired(labelme, "accuracy", "trace", other, network="dropout"))

# %% [markdown]
# The matrices help, and most of the way to the true labels remains: no matrix that is the same for every image can say
# that *this* street looks like an inside of a city. The trace itself adds little to the accuracy. And the learned
# skills are too high, though less so with the trace (the start, .95, is still there where labels are few):

# %%
for method in ("trace", "no_trace", "dawid_skene", "vanilla"):
    mean, half = plots.interval(experiments.values(labelme, method, "skill_bias", network="dropout"))
    print(f"{method:>11}: skills too high by {mean:+.3f} ± {half:.3f}")

# %% [markdown]
# ### With your own copy
#
# If you have the files, the next cell counts the real crowd and runs the comparison again. They are in the folder
# `data/LabelMe` of <https://github.com/fmenat/PyLearningCrowds>; put them into a folder `labelme_crowd`, and name the
# folder *above* it in `COURSE_DATA`. They have no published checksum and no stated licence, so the course neither
# downloads nor ships them.

# %%
try:
    real = crowds.labelme().train
    print(counts(real.labels, 8), f"| busiest {real.observed.sum(0).max()} labels, median {real.observed.sum(0).median()}")
    own = experiments.run("labelme-crowd", seeds=P.draws)
    print(paired(own, "accuracy", "trace", "vanilla", network="dropout"))
except FileNotFoundError:
    print("LabelMe is not here (COURSE_DATA/labelme_crowd): the text above says how to get it")

# %% [markdown]
# The same for real medical pictures: BreastMNIST, 546 ultrasound images, from MedMNIST {cite:p}`yang2023`. It has no
# crowd, so three readers are drawn: one careful, one who calls too much malignant (class 0), one who guesses. With
# `pip install medmnist` (the extra `medical-io`), `crowds.medmnist("breastmnist")` fetches it once, with its checksum.

# %%
panel = torch.tensor([[[0.9, 0.05], [0.1, 0.95]], [[0.95, 0.4], [0.05, 0.6]], [[0.5, 0.5], [0.5, 0.5]]])  # said, truth
try:
    breast = crowds.medmnist("breastmnist", fetch=False)
    opinions = annotators.annotate(breast.train.labels, panel, per_item=1, generator=seeded(0))
    seen_by_three = Annotations(breast.train.images, opinions, n_classes=2)
    nets = [networks.small_cnn(1, 2, generator=seeded(0)) for _ in range(2)]
    for method in (Trace(nets[0], 3, 2), Vanilla(nets[1])):
        training.fit(method, seen_by_three, epochs=P.epochs)
        columns = confusion.count_matrices(training.predict(method, breast.test.images)[:, None], one_hot(breast.test.labels, 2).float())
        print(f"{type(method).__name__}: mean of sensitivity and specificity {confusion.skills(columns)[0]:.2f}")
except FileNotFoundError:
    print("BreastMNIST is not here: crowds.medmnist('breastmnist') fetches it once")

# %% [markdown]
# A single run on 156 test images decides nothing; it shows that the path from a file to a fit is short.
#
# ## 6. Break it
#
# **A network that learns by heart.** 900 photographs with 512 features each are few. A network without dropout can learn
# every single label by heart; then each annotator is explained by the network and nobody is left to be wrong. The
# shipped results have both networks:

# %%
for network in ("dropout", "plain"):
    bias = experiments.values(labelme, "trace", "skill_bias", network=network).mean()
    print(f"{network}: skills too high by {bias:+.2f}; {paired(labelme, 'accuracy', 'trace', 'vanilla', network=network)}")
plain = experiments.values(labelme, "trace", "accuracy", network="plain") - experiments.values(labelme, "vanilla", "accuracy", network="plain")
assert plain.mean() < 0

# %% [markdown]
# Without dropout the recipe loses to the early-stopped vote. Part I's digits did not show this, because 3,600 images are
# many for that network. A sign that needs no truth: learned skills that all stay close to .95, and a training loss that
# goes on towards 0.
#
# **A stranger with three labels.** Add a ninth reader who labelled three pictures of class 2, and called all of them 3. See
# what the recipe reports.

# %%
column = torch.full((crowd.n_items, 1), MISSING)
three = (truth[train] == 2).nonzero()[:3, 0]
column[three, 0] = 3
nine = crowd.with_labels(torch.cat([said, column], 1), names=(*names, "stranger"))
with_stranger = Trace(networks.mlp(196, 6, generator=seeded(0)), 9, 6)
training.fit(with_stranger, nine, epochs=P.epochs, progress=False)
learned = with_stranger.confusion()[8].diagonal()
print(f"the stranger, right in 0 of 3: learned skill {learned.mean():.2f}, column by column {learned.numpy().round(2)}")
assert learned[3] > 0.8  # of this class the stranger never saw an image

# %% [markdown]
# Three labels, all wrong, and the largest entry says that the stranger is an authority on class 3, which they never saw:
# "says 3" is also explained, a little, by images that might be 3, and nothing contradicts it. The other columns are the
# start, pulled down by a trace that no label holds up. None of these numbers is knowledge. A skill without its count of
# labels is not a result.
#
# ### What it means to rank people by skill
#
# A learned skill looks like a mark. Before anybody's pay, place or name depends on it, five things.
#
# - **Few labels, wide intervals.** Equation {eq}`eq-ch6-sd` is a lower bound, since the truth itself is estimated. Neighbours
#   in a ranking are mostly ties (see below).
# - **Fairness.** Skill is measured on the images that somebody was given. Who gets the difficult ones looks worse. Compare
#   people on the same images, or drawn by chance, or not at all. And who disagrees with a majority that is wrong is
#   marked down for being right.
# - **Privacy.** A matrix with a name is data about a person at work. Ask, store it apart from the labels, publish
#   numbers without names, and not even those for groups so small that everybody knows who "reader 8" is.
# - **People or slots.** In many data sets, column 1 is "the first reader", somebody else for each image. A matrix of a slot
#   describes nobody. `Annotations(..., identities=False)` records that.
# - **What for.** To weigh labels, a matrix is enough and stays inside the model. To find a task that needs better instructions,
#   look at matrices, not at their mean. To judge people, it was not made.
#
# How wide are the intervals? Resample the images, count again, and look at the middle 95 %. First as a loop:

# %%
def bootstrap_skills(labels, q, n, generator):
    """n resamples of the items, skills counted anew in each: (N, R), (N, L) -> (n, R)."""
    draws = [torch.randint(len(labels), (len(labels),), generator=generator) for _ in range(n)]
    return torch.stack([confusion.skills(confusion.count_matrices(labels[i], q[i])) for i in draws])


many = bootstrap_skills(said, decided, P.resamples, seeded(5))
few_images = bootstrap_skills(said[:150], decided[:150], P.resamples, seeded(6))

# %% tags=["hide-input"]
fig = Figure(figsize=(6, 4), layout="constrained")
ax = fig.subplots()
for samples, shift, color, label in ((many, -0.12, plots.MODEL, "1,700 images"), (few_images, 0.12, plots.BASELINES[0], "the first 150")):
    low, middle, high = samples.quantile(torch.tensor([0.025, 0.5, 0.975]), dim=0)
    ax.errorbar(middle, torch.arange(8) + shift, xerr=[middle - low, high - middle], fmt="o", color=color, label=label)
ax.plot(confusion.skills(A), range(8), "|", color=plots.TRUTH, markersize=18, label="true")
ax.set(yticks=range(8), xlabel="skill", title="With 150 images most of the ranking is chance")
ax.set_yticklabels(names)
ax.invert_yaxis()
ax.legend(frameon=False, loc="lower left", bbox_to_anchor=(0, 0.3))
plots.described(
    fig, "Bootstrap intervals (95 %) of counted skills. They hold the network fixed, so the true uncertainty is larger.",
    "Eight readers with a narrow interval from all images and a wide one from 150; the experts' intervals overlap.",
)  # fmt: skip

# %% [markdown]
# The bootstrap repeats the counting, not the training: where the network itself is wrong in the same way each time, the
# interval is narrow and beside the truth. And a reader who was right in every one of a few labels gets an interval of
# width 0, which exercise 6.1 mends.
#
# ## 7. Exercises
#
# Write your answer into the cell that says `NotImplementedError`, then run the check below it.
#
# ```{exercise} The interval of a skill (★★, 10 minutes)
# :label: ex-ch6-interval
#
# Exercise 6.1. An annotator was right in `right` of `n` labels. Return `(low, high)`, the 95 % interval of Wilson for the
# probability of being right: with $z = 1.96$,
# $\displaystyle \frac{\text{right} + z^2 / 2}{n + z^2} \pm \frac{z}{n + z^2} \sqrt{\frac{\text{right}\,(n - \text{right})}{n} + \frac{z^2}{4}}$.
# ```

# %% tags=["stub"]
def skill_interval(right, n):
    """Two integers -> (low, high)."""
    raise NotImplementedError


# %% [markdown]
# <details><summary>Hint 1: a nudge</summary>
#
# It is as if about two more right labels and two more wrong ones had been seen.
#
# </details>
# <details><summary>Hint 2: the formula</summary>
#
# Compute the middle and the half width apart. What is right in all $n$ still has a half width, from $z^2 / 4$.
#
# </details>
# <details><summary>Hint 3: the shape of the code</summary>
#
# `middle = (right + z**2 / 2) / (n + z**2)`, `half = z / (n + z**2) * (... + z**2 / 4) ** 0.5`
#
# </details>

# %% tags=["check", "raises-exception"]
checks.skill_interval(skill_interval)


# %% tags=["solution", "hide-cell"] jupyter={"source_hidden": true}
def skill_interval(right, n):
    """Two integers -> (low, high)."""
    z = 1.96
    middle = (right + z**2 / 2) / (n + z**2)
    half = z / (n + z**2) * (right * (n - right) / n + z**2 / 4) ** 0.5
    return middle - half, middle + half


checks.skill_interval(skill_interval)
for right, n in ((3, 3), (27, 30), (900, 1000)):
    print(f"{right} of {n}: {skill_interval(right, n)[0]:.2f} to {skill_interval(right, n)[1]:.2f}")

# %% [markdown]
# **What you should see, and why.** Three of three leaves nearly everything open. Your third guess of section 2 is the
# second line. The usual $p \pm 1.96$ standard errors has no width at all for three of three.
#
# ```{exercise} A weighted vote (★★, 10 minutes)
# :label: ex-ch6-vote
#
# Exercise 6.2. `labels` is (N, R) with −1 for missing, `weight` is (R,), positive. Return (N,): for each item the class
# whose labels have the largest sum of weights, and −1 where nobody said anything.
# ```

# %% tags=["stub"]
def weighted_vote(labels, weight, n_classes):
    """(N, R), (R,), integer -> (N,)."""
    raise NotImplementedError


# %% [markdown]
# <details><summary>Hint 1: a nudge</summary>
#
# Sum weights class by class, (N, L), then take the `argmax`.
#
# </details>
# <details><summary>Hint 2: the formula</summary>
#
# $\operatorname{argmax}_i \sum_r w_r\, 1[\text{said}_r = i]$. A missing label equals no class.
#
# </details>
# <details><summary>Hint 3: the shape of the code</summary>
#
# `torch.stack([((labels == c) * weight).sum(1) for c in range(n_classes)], 1)`, then `torch.where` for empty rows.
#
# </details>

# %% tags=["check", "raises-exception"]
checks.weighted_vote(weighted_vote)


# %% tags=["solution", "hide-cell"] jupyter={"source_hidden": true}
def weighted_vote(labels, weight, n_classes):
    """(N, R), (R,), integer -> (N,)."""
    sums = torch.stack([((labels == c) * weight).sum(1) for c in range(n_classes)], 1)  # (N, L)
    return torch.where((labels != -1).any(1), sums.argmax(1), -1)


checks.weighted_vote(weighted_vote)
trials = {"equal": torch.ones(8), "by workload": crowd.observed.sum(0).float(), "by learned skill": model.skills()}
for name, weight in trials.items():
    print(f"weights {name}: {metrics.accuracy(weighted_vote(said, weight, 6), truth[train]):.3f} of the labels right")

# %% [markdown]
# **What you should see, and why.** To trust whoever works most is natural, and here it is a mistake: the busiest know
# least. (Where good work is rewarded with more work, it is the other way round.) Weights by learned skill do well, yet
# one number cannot say that somebody is sure of class 0 and never of class 3; a matrix can.
#
# ```{exercise} Who said too little? (★, 5 minutes)
# :label: ex-ch6-few
#
# Exercise 6.3. Given `labels` (N, R) with −1 for missing, return for each annotator whether they labelled fewer items than
# there are classes: (R,), True or False.
# ```

# %% tags=["stub"]
def too_few(labels, n_classes):
    """(N, R), integer -> (R,) bool."""
    raise NotImplementedError


# %% [markdown]
# <details><summary>Hint 1: a nudge</summary>
#
# Along which axis do you count to get one number an annotator?
#
# </details>
# <details><summary>Hint 2: the formula</summary>
#
# $n_r = \sum_n 1[\text{label}_{nr} \ne -1]$, and then $n_r < L$.
#
# </details>
# <details><summary>Hint 3: the shape of the code</summary>
#
# `(labels != -1).sum(?) < ?`
#
# </details>

# %% tags=["check", "raises-exception"]
checks.too_few(too_few)


# %% tags=["solution", "hide-cell"] jupyter={"source_hidden": true}
def too_few(labels, n_classes):
    """(N, R), integer -> (R,) bool."""
    return (labels != -1).sum(0) < n_classes


checks.too_few(too_few)
print(f"of nine readers: {too_few(nine.labels, 6).sum()}, {[name for name, few in zip(nine.names, too_few(nine.labels, 6)) if few]}")

# %% [markdown]
# **What you should see, and why.** Only the stranger of section 6. The test is a low bar: who passes it may still have seen no
# image of some class, and a matrix has $L (L - 1)$ free numbers. If you have LabelMe, run it on `real.labels`.
#
# ## 8. What the paper claims and what we measured
#
# Drawn from `book/claims.yaml` and the committed results, never typed. The paper's pictures are private, ours are
# drawings and our readers drawn: a verdict here says whether the *mechanism* shows, not whether the paper's numbers are
# right.

# %% tags=["hide-input"]
Markdown(claims.table("002", experiment="six-views"))

# %% [markdown]
# ## 9. Three questions
#
# <details><summary>1. You remove the two readers who are no experts before training. Is that better?</summary>
#
# Rarely. Once their matrices are known, their labels carry little but true information, and the model weighs them
# accordingly. And to remove them you had to rank people first. Remove labels that come from a misunderstanding of the
# task, not from people with low marks.
#
# </details>
# <details><summary>2. On LabelMe the intervals are narrow. Would you expect the same difference with another crowd?</summary>
#
# The intervals cover weights, order and the held-out tenth: the same 59 people each time. For another crowd one would have
# to resample people, and one data set holds only one crowd. The drawn readers of section 5 show how much crowds differ.
#
# </details>
# <details><summary>3. Every image has one label, from one of 59 people. Which of this chapter's methods still work?</summary>
#
# The vote and Dawid-Skene return the label itself. The recipe still works, because the network compares people through
# images that look alike; but its matrices need more labels for each person, not fewer.
#
# </details>
#
# ## 10. Further reading, and errata found
#
# {cite:t}`tanno2019`, section 3.4, is what section 5 imitates; {cite:t}`rodrigues2018` collected the LabelMe crowd and put a
# layer for each annotator on top of a network; {cite:t}`raykar2010` is the two-class ancestor, with doctors;
# {cite:t}`yang2023` is MedMNIST.
#
# The paper counts its pictures twice, in section 3.4 and in the appendix. Are the two counts one?

# %% tags=["hide-input"]
training_images, validation_images, appendix = 240_000, 22_000, "26,2000"  # as printed
print(f"{training_images:,} + {validation_images:,} = {training_images + validation_images:,}; the appendix has {appendix}")
assert int(appendix.replace(",", "")) == training_images + validation_images and appendix != f"{262_000:,}"

# %% [markdown]
# Digit for digit, with the comma in the wrong place. (So what the appendix calls *training* is training and validation together.)
#
# Errata found: a slip of print, "26,2000" pictures in the appendix; section 3.4 has 240,000 for training and 22,000 for
# validation, whose sum it is. And a caution: the paper's truth is where three experienced sonographers agree, so
# pictures on which experts differ are not in the measurement.
