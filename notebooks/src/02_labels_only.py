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
# # 2. Labels only: Dawid-Skene
#
# *Core chapter.* Chapter 1 ended with a promise: the labels of the digits still hold the answer, for whoever knows how
# each annotator errs. Nobody tells us that. This chapter finds it out from the labels alone, with an algorithm from 1979
# that fits in three lines {cite:p}`dawid1979`. No image is looked at until section 5.
#
# **You will be able to**
#
# - fuse labels by a mean, a vote and by Dawid-Skene, and say what each assumes;
# - write expectation maximisation (EM) for the truth and the annotators' matrices, and explain both of its steps;
# - say how many labels an item must have before reliability can be seen at all;
# - tell when Dawid-Skene will beat the vote, and when it will lose to it.
#
# **You need to know** chapter 1: a matrix $A$ whose columns sum to 1, how to count one, and Bayes' rule for independent
# annotators.
#
# **Time** about 90 minutes with the exercises (an estimate), of which the computer needs the seconds below.
#
# **Data** the grades that five anaesthetists gave to 45 patients {cite:p}`dawid1979`, and 5,000 handwritten digits
# {cite:p}`lecun1998` with simulated annotators. Both ship with the course.

# %%
try:
    import warnings

    import torch
    from IPython.display import Markdown

    import course_lib.checks.labels_only as checks
    from course_lib import annotators, book, confusion, data, fusion, metrics, networks, plots, training
    from course_lib.annotations import MISSING, Annotations
    from course_lib.confusion import count_matrices, log
    from course_lib.methods.trace import Vanilla
    from course_lib.networks import seeded
except ImportError as error:
    import sys

    raise SystemExit(
        f"{error}: this notebook runs on {sys.executable}, where the course is not installed. In a terminal, in the "
        f'folder that holds pyproject.toml, type\n\n    "{sys.executable}" -m pip install -e .\n\nand restart the kernel.'
    ) from None

# %% tags=["card", "hide-input"]
book.card(2)

# %% [markdown]
# As in every chapter, `COURSE_SIZE` picks a column of the next table.

# %% tags=["parameters"]
P = training.sized(  # (ci, lesson, paper)
    draws=(2, 5, 20),  # simulated panels behind each point of a curve
    skills=((0.25, 0.35, 0.6), (0.2, 0.25, 0.3, 0.35, 0.45, 0.6), (0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.6)),
    more=(2, 10, 20),  # how often the images are shown again, to see what more items do
    net_draws=(2, 5, 10),  # panels whose fused labels train a network
    epochs=(4, 20, 40),
    rounds=(40, 200, 200),  # EM stops after so many, settled or not
)
print(f"size {training.size()}: {P}")

# %% [markdown]
# ## 1. The idea in one picture
#
# Before an operation, an anaesthetist reads the notes and grades how fit the patient is, from 1 to 4. In 1979 five of
# them graded the same 45 patients; the first did it three times, some weeks apart. So there are seven columns, but only
# five people. Nobody knows the right grades. (Inside the code grades start at 0, as all classes do.)

# %%
grades, names = data.anaesthetists()  # (N, R) = (45, 7), and seven names
people = [0, 0, 0, 1, 2, 3, 4]  # columns of one number are one person
alike = (grades == grades[:, :1]).all(1)
print("columns:", names)
print(f"of {len(grades)} patients, {int(alike.sum())} got the same grade seven times")

# %% [markdown]
# Dawid-Skene turns this table into two things at once: for each patient the probability of each grade, and for each
# person a confusion matrix. We use it first, and build it afterwards.

# %%
fused = fusion.dawid_skene(grades, 4, people=people, smoothing=0)
print(f"settled after {fused.iterations} rounds: {fused.converged}")

# %% tags=["hide-input"]
from matplotlib.figure import Figure  # noqa: E402  (it belongs to this figure alone)

order = (fused.p @ torch.arange(4.0).double()).argsort()
fig = Figure(figsize=(5, 5.6), layout="constrained")
fig.suptitle("From seven opinions to one belief")
left, right = fig.subplots(1, 2, width_ratios=(7, 4))
shade = left.imshow(grades[order] + 1, cmap="cividis", vmin=1, vmax=4, aspect="auto", interpolation="nearest")
left.set(title="what was said", xticks=range(7), xlabel="reading", ylabel="patients, sorted by what was found", yticks=[])
left.set_xticklabels(names)
belief = right.imshow(fused.p[order], cmap="Greys", vmin=0, vmax=1, aspect="auto", interpolation="nearest")
right.set(title="p(grade)", xticks=range(4), xlabel="grade", yticks=[])
right.set_xticklabels(range(1, 5))
fig.colorbar(shade, ax=left, location="bottom", ticks=[1, 2, 3, 4], label="grade said")
fig.colorbar(belief, ax=right, location="bottom", ticks=[0, 0.5, 1], label="probability")
plots.described(
    fig,
    "Left: the grades of 45 patients by seven readings. Right: the probability of each grade given all seven.",
    "Two tables with one line for each patient. Left, shades of the grades 1 to 4, mostly alike along a line, with "
    "scattered other grades. Right, nearly every line has one black cell: almost all beliefs are certain.",
)

# %% [markdown]
# Where the seven agree there is nothing to do. The interesting lines are the mixed ones. These are the patients for whom
# Dawid-Skene and the vote give different grades:

# %%
vote = fusion.majority(grades, 4)  # (N,)
found = fused.p.argmax(1)  # (N,)
for n in (vote != found).nonzero().flatten().tolist():
    print(f"patient {n + 1:2}: said {(grades[n] + 1).tolist()}, vote {vote[n] + 1}, Dawid-Skene {found[n] + 1}")
    print(f"            p(grade 1..4) = {fused.p[n].numpy().round(3)}")

# %% [markdown]
# It overrules majorities of five to two and of four to three, settles a tie, and is nearly certain. By what right? Because of what it found out about the people.

# %% tags=["hide-input"]
plots.described(
    plots.confusion_row(
        fused.A[[0, 3, 4, 5, 6]], [f"observer {k}" for k in range(1, 6)], classes=["1", "2", "3", "4"],
        title="Each observer has a habit",
    ),
    "Confusion matrices of the five anaesthetists, as estimated from the grades alone. Columns are (estimated) truths.",
)  # fmt: skip

# %% [markdown]
# Read the last column of the first matrix: of the patients in grade 4, observer 1 calls more than half a 3. So if the
# others say 4, three readings of "3" by observer 1 are no strong argument. And it is *one* habit, read three times.
#
# Where did it get the truth from, to count these mistakes against? From the matrices. And the matrices? From the truth.
# That circle is the idea of this chapter, and the question is why it does not just turn on the spot.

# %% [markdown]
# ## 2. Predict
#
# Write down four guesses before you run on. All are about digits, labelled by five simulated annotators. At skill .45
# the vote of five flippers is right for about three quarters of the images.

# %%
guess = {
    "Dawid-Skene is right, flippers of skill .35, five labels an image": 0.5,
    "Dawid-Skene is right, flippers of skill .45, two labels an image": 0.5,
    "Dawid-Skene is right, hammer-spammers of skill .25, five labels": 0.5,
    "a network is right that was trained on the first of these": 0.5,
}

# %% [markdown]
# ## 3. The maths
#
# There are $N$ items, $R$ annotators and $L$ classes; annotator $r$ said $\tilde y_n^{(r)}$ of item $n$. The truths $y_n$
# are hidden. The model has two kinds of unknown numbers: how frequent each class is, $\pi_j = p(y = j)$, and the matrices
# $A^{(r)}_{ij}$. Given the truth, annotators err independently. So the labels of one item have the probability
#
# $$
# p(\tilde y_n) = \sum_j \pi_j \prod_{r \text{ spoke}} A^{(r)}_{\tilde y_n^{(r)},\, j} ,
# $$ (eq-ch2-item)
#
# with the product *inside* of the sum: one truth stands behind all labels of an item. The log-likelihood
# $\sum_n \log p(\tilde y_n)$ is what a good set of $\pi$ and $A$ makes large. It has no closed solution, but two halves of
# it have.
#
# **If the matrices were known**, Bayes' rule gives the truth, as in chapter 1. This is the **E-step** (Eq. 2.5 of
# {cite:t}`dawid1979`):
#
# $$
# q_{nj} = p(y_n = j \mid \tilde y_n) \;\propto\; \pi_j \prod_{r \text{ spoke}} A^{(r)}_{\tilde y_n^{(r)},\, j} .
# $$ (eq-ch2-e)
#
# **If the truth were known**, the matrices would be a matter of counting, as in chapter 1. Here the truth is soft, so
# each item makes a stroke of weight $q_{nj}$ in every column $j$. This is the **M-step** (Eqs. 2.3 and 2.4):
#
# $$
# A^{(r)}_{ij} = \frac{\sum_{n:\, \tilde y_n^{(r)} = i} q_{nj}}{\sum_{n:\, r \text{ spoke}} q_{nj}} , \qquad
# \pi_j = \frac1N \sum_n q_{nj} .
# $$ (eq-ch2-m)
#
# Start with $q$ = the mean label, that is the share of an item's labels that each class got. Then M, E, M, E, ..., until
# nothing moves.
#
# ### Why the circle climbs
#
# Each round makes the log-likelihood larger, or leaves it. For any $q_n$ that sums to 1,
#
# $$
# \log p(\tilde y_n) \;\ge\; \sum_j q_{nj} \log \frac{\pi_j \prod_r A^{(r)}_{\tilde y_n^{(r)},\, j}}{q_{nj}} ,
# $$ (eq-ch2-bound)
#
# because the logarithm of a mean is at least the mean of the logarithms. The E-step picks the $q$ for which both sides
# are equal. The M-step makes the right side as large as it can be for that $q$ (weighted counting maximises
# $\sum_i c_i \log a_i$ under $\sum_i a_i = 1$), so the left side cannot have become smaller. You will watch this in
# exercise 2.3.
#
# ### What it does not promise
#
# It climbs to *a* top, not to the highest, and the highest need not be the truth. Three things follow from
# {eq}`eq-ch2-item`, and section 6 shows each of them.
#
# - Rename the classes in $\pi$ and in the columns of every matrix, and the likelihood is the same. **Only the start says
#   which class is called which.**
# - If items have one label each, the product has one factor and {eq}`eq-ch2-item` only says how often each annotator
#   uses each name. **Then there is nothing to learn about reliability.**
# - If annotators copy from each other, the product is wrong, and **agreement is taken for skill.**
#
# The vote and the mean are in here as well. Chapter 1 showed that Bayes' rule with one matrix for all, constant on the
# diagonal and constant off it, names the winner of the vote.
#
# | method | what it assumes of the people | what it estimates |
# | --- | --- | --- |
# | mean label | nothing; it keeps the doubt | nothing |
# | vote | equal, symmetric mistakes, independent | nothing |
# | Dawid-Skene | independent, given the truth | $\pi$ and one matrix for each person |

# %% [markdown]
# ## 4. From scratch
#
# ### The E-step, for one patient
#
# Prior, times one row of each matrix, divided by the sum. As a loop, for the first patient on whom vote and Dawid-Skene
# differ:

# %%
n = int((vote != found).nonzero()[0])
belief_n = fused.prior.clone()  # (L,)
for r, said in enumerate(grades[n]):
    belief_n *= fused.A[r, said]  # row `said`: one factor for each truth
belief_n /= belief_n.sum()
print("by hand:", belief_n.numpy().round(3), " from the library:", fused.p[n].numpy().round(3))
assert torch.allclose(belief_n, fused.p[n], atol=1e-4)

# %% [markdown]
# For all items at once, and with logarithms. `said_rows` picks row *said* of everybody's matrix, `evidence` adds these
# rows up where somebody spoke, and `posterior` adds the prior; `log_softmax` divides by the sum. You have used
# `posterior` in chapter 1. It serves every chapter of this book; only what stands in the place of the prior changes.

# %% tags=["shipped"]
# shipped: course_lib.confusion
def evidence(log_A, labels, who=None):
    return torch.where((labels != MISSING)[:, :, None], confusion.said_rows(log_A, labels, who), 0).sum(1)  # (B, L)


def posterior(log_A, log_prior, labels, who=None):
    return (log_prior + evidence(log_A, labels, who)).log_softmax(1)  # (B, L)


# %% [markdown]
# ### EM in three lines
#
# The M-step is `count_matrices` of chapter 1, which already takes a soft truth. So all of Dawid-Skene is a loop of
# three lines:

# %%
def em(labels, p, rounds, smoothing=0.0):
    for _ in range(rounds):
        A = count_matrices(labels, p, smoothing=smoothing)  # M-step: (R, L, L)
        prior = p.mean(0)  # (L,)
        p = posterior(log(A)[None], log(prior).expand_as(p), labels).exp()  # E-step: (N, L)
    return p, A, prior


# %% [markdown]
# Watch one of the mixed patients while it turns. The start is the mean label. `rounds` is how often we went around.

# %%
start = fusion.mean_label(grades, 4)  # (N, L)
print(f"start     {start[n].numpy().round(3)}")
for rounds in (1, 2, 4, 8, 16):
    p, A, prior = em(grades, start, rounds)
    print(f"{rounds:2} rounds {p[n].numpy().round(3)}, all grades {prior.numpy().round(3)}")

# %% [markdown]
# Why does it not turn on the spot? The mean label is wrong here and there, but it is right on the whole. Matrices that
# are counted against it are a little too kind or too harsh, but already say who tends to which mistake. Better matrices
# give better beliefs about the mixed items, and those give better matrices.
#
# ### Several readings by one person
#
# The loop above treats seven columns as seven people. But a habit that shows three times is still one habit. The
# library puts the readings of a person below one another and counts one matrix from all of them:

# %%
def matrices_of_people(labels, p, people):
    if len(set(people)) == len(people):
        return count_matrices(labels, p)
    A = {}
    for person in set(people):
        own = labels[:, [c for c, name in enumerate(people) if name == person]]  # (N, readings)
        q = p.repeat_interleave(own.shape[1], 0)  # (N readings, L)
        A[person] = count_matrices(own.reshape(-1, 1), q)[0]
    return torch.stack([A[person] for person in people])


assert torch.allclose(matrices_of_people(grades, fused.p, people), fused.A, atol=1e-4)  # where EM stands still

# %% [markdown]
# `fusion.dawid_skene` is our loop with that, with a test for whether it has settled, and with warnings. Given the same
# number of rounds it returns the same numbers:

# %%
seven = fusion.dawid_skene(grades, 4, smoothing=0)
p, A, prior = em(grades, start, seven.iterations)
assert torch.allclose(seven.p, p, atol=1e-9) and torch.allclose(seven.A, A, atol=1e-9)
print("frequencies of the grades, seven people:", seven.p.mean(0).numpy().round(2))
print("frequencies of the grades, five people: ", fused.p.mean(0).numpy().round(2))

# %% [markdown]
# The second line is what the paper of 1979 prints. A program that gets the published numbers from the published table
# has passed a test that one cannot write oneself:

# %%
printed = torch.tensor([0.40, 0.42, 0.11, 0.07])
assert torch.allclose(fused.p.mean(0).float(), printed, atol=0.005)
assert torch.equal(fused.A[0], fused.A[1]) and torch.equal(fused.A[1], fused.A[2])  # one person, one matrix

# %% [markdown]
# ## 5. The experiment
#
# ### Vote against Dawid-Skene
#
# With patients nobody can say who is right. With digits and simulated annotators we can. `fuse` draws a panel of five,
# lets it label all training digits, and returns the share of right labels by either method. EM may stop before it has
# settled; the library warns, and here we count instead.

# %%
digits = data.split(data.mnist5k())
truth = digits.train.labels  # (N,)
PANELS = {"flippers": annotators.pairwise_flippers, "hammer-spammers": annotators.hammer_spammers}


def fuse(kind, skill, draw, per_item=None):
    generator = seeded(100 + draw)
    A = PANELS[kind](5, 10, skill, generator=generator)  # (R, L, L)
    labels = annotators.annotate(truth, A, per_item=per_item, generator=generator)  # (N, R)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # "still moved", "no item has two labels"
        ds = fusion.dawid_skene(labels, 10, max_iterations=P.rounds)
    vote = fusion.majority(labels, 10, generator=generator)
    return metrics.accuracy(vote, truth), metrics.accuracy(ds.p.argmax(1), truth), ds.converged


# %% [markdown]
# First flippers: each has one wrong name for every digit, and uses it whenever not right.

# %%
def over_skill(kind):
    """(draws, skills, 3): vote, Dawid-Skene, settled."""
    return torch.tensor([[fuse(kind, skill, d) for skill in P.skills] for d in range(P.draws)])


flippers = over_skill("flippers")
lines = {"vote": flippers[:, :, 0], "Dawid-Skene": flippers[:, :, 1]}

# %% tags=["hide-input"]
plots.described(
    plots.curve(P.skills, lines, model="Dawid-Skene", xlabel="skill of the five annotators", ylabel="labels that are right",
                title="Flippers: habits are found, and undone"),
    f"Share of right labels over skill, five labels an image. Lines are means over {P.draws} panels, bands reach from the "
    f"worst panel to the best (size {training.size()}).",
)  # fmt: skip

# %% [markdown]
# On the right half nearly every label is right, made from labels most of which are wrong. On the left it collapses, and
# it collapses by panel: the band is wide. There the start is so poor that for some digits the commonest name is a wrong
# one, and EM climbs from there to a truth in which classes are mixed up.
#
# Now hammer-spammers: they know the digit with probability *skill*, and otherwise say anything.

# %%
spammers = over_skill("hammer-spammers")
lines = {"vote": spammers[:, :, 0], "Dawid-Skene": spammers[:, :, 1]}
print(f"settled: {flippers[:, :, 2].mean():.0%} of the flippers' runs, {spammers[:, :, 2].mean():.0%} of the spammers'")

# %% tags=["hide-input"]
plots.described(
    plots.curve(P.skills, lines, model="Dawid-Skene", xlabel="skill of the five annotators", ylabel="labels that are right",
                title="Hammer-spammers: nothing to find, and a price for looking"),
    f"As above, for hammer-spammers: they have no habit, and all are alike. Size {training.size()}.",
)  # fmt: skip

# %% [markdown]
# Here Dawid-Skene is *worse* than the vote where skills are low, and equal where they are high. That deserves an
# explanation.
#
# ### A better fit is not a better truth
#
# Equal, symmetric, independent: for these people the vote is Bayes' rule itself (chapter 1), so there is nothing to
# gain. And there is something to lose. Five matrices have 450 free numbers, which the labels must pay for. Compare the
# mean log-likelihood of what EM found with that of the *true* matrices:

# %%
def fit_of(A, prior, labels):
    """Mean over items of log p(labels)."""
    log_prior = log(prior).expand(len(labels), -1)
    return float(confusion.joint_log_likelihood(log(A)[None], log_prior, labels).mean())


A = annotators.hammer_spammers(5, 10, 0.2, generator=seeded(100)).double()  # (R, L, L)
labels = annotators.annotate(truth, A, generator=seeded(101))  # (N, R)
p, A_found, prior = em(labels, fusion.mean_label(labels, 10), P.rounds, smoothing=0.01)
shares = torch.bincount(truth, minlength=10) / len(truth)  # (L,)
fits = {"the true matrices": fit_of(A, shares.double(), labels), "what EM found": fit_of(A_found, prior, labels)}
for name, fit in fits.items():
    print(f"{name:>18}: log-likelihood of an item {fit:.3f}")
assert fits["what EM found"] > fits["the true matrices"]

# %% [markdown]
# It found something that explains the labels *better* than the truth does. That is overfitting, in a model with no
# network in it: habits are read into noise. Two cures. Let the model have fewer freedoms: one number for each person
# (how often they are right), the rest spread evenly. Or show it more items.

# %%
q = fusion.mean_label(labels, 10)
for _ in range(P.rounds // 4):
    s = torch.einsum("rii,i->r", count_matrices(labels, q), q.mean(0))[:, None, None]  # (R, 1, 1): p(right)
    one_coin = s * torch.eye(10) + (1 - s) / 9 * (1 - torch.eye(10))  # (R, L, L)
    q = posterior(log(one_coin)[None], log(q.mean(0)).expand_as(q), labels).exp()
many = truth.repeat(P.more)
many_labels = annotators.annotate(many, A, generator=seeded(102))
p_many, _, _ = em(many_labels, fusion.mean_label(many_labels, 10), P.rounds // 2, smoothing=0.01)

# %% [markdown]
# All four on the same panel:

# %%
print(f"vote                                {metrics.accuracy(fusion.majority(labels, 10, generator=seeded(0)), truth):.3f}")
print(f"Dawid-Skene, a matrix a person      {metrics.accuracy(p.argmax(1), truth):.3f}")
print(f"Dawid-Skene, a number a person      {metrics.accuracy(q.argmax(1), truth):.3f}")
print(f"Dawid-Skene, {P.more:2} times as many items {metrics.accuracy(p_many.argmax(1), many):.3f}")

# %% [markdown]
# Keep this in mind for the whole book: *which* matrix is a choice, and every freedom must be paid for.
#
# ### How many labels an item?
#
# Labels are expensive. Flippers of skill .45 again, but only some of the five see each image.

# %%
numbers = [1, 2, 3, 4, 5]
by_number = torch.tensor([[fuse("flippers", 0.45, d, per_item=m) for m in numbers] for d in range(P.draws)])

# %% tags=["hide-input"]
plots.described(
    plots.curve(numbers, {"vote": by_number[:, :, 0], "Dawid-Skene": by_number[:, :, 1]}, model="Dawid-Skene",
                xlabel="labels an image", ylabel="labels that are right", title="The second label makes the difference"),
    f"Share of right labels over the number of labels an image, flippers of skill .45; {P.draws} panels "
    f"(size {training.size()}).",
)  # fmt: skip

# %% [markdown]
# With one label both return it: the two points coincide. A second label gives the vote nothing at all (a tie is a coin),
# but it gives Dawid-Skene pairs: of images that one person calls 3, what does the other say? That is where habits show.
#
# ### Does better fusion make a better network?
#
# Fused labels are a means. We train the same small network on the true labels, on the vote and on Dawid-Skene's labels.
# The labels-only methods fuse training and validation images together, because every item helps to know the people.

# %%
SETTINGS = {"flippers": 0.35, "hammer-spammers": 0.25}
METHODS = ["truth", "Dawid-Skene", "vote"]
both = torch.cat([digits.train.labels, digits.validation.labels])  # (N + V,)


def fused_labels(kind, draw):
    """Labels (N + V,) of training and validation images by method."""
    generator = seeded(500 + draw)
    A = PANELS[kind](5, 10, SETTINGS[kind], generator=generator)
    labels = annotators.annotate(both, A, generator=generator)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ds = fusion.dawid_skene(labels, 10, max_iterations=P.rounds)
    return {"truth": both, "Dawid-Skene": ds.p.argmax(1), "vote": fusion.majority(labels, 10, generator=generator)}


# %% [markdown]
# One container for each run; all share the same images.

# %%
parts = {"train": (digits.train, slice(None, len(truth))), "validation": (digits.validation, slice(len(truth), None))}
holders = {name: Annotations(data.small(part.images), part.labels[:, None], n_classes=10) for name, (part, _) in parts.items()}
runs = [(kind, method, d) for kind in SETTINGS for method in METHODS for d in range(P.net_draws)]
fused_by = {(kind, d): fused_labels(kind, d) for kind in SETTINGS for d in range(P.net_draws)}
crowds = {
    name: [holders[name].with_labels(fused_by[kind, d][method][where][:, None]) for kind, method, d in runs]
    for name, (_, where) in parts.items()
}  # fmt: skip
print(f"{len(runs)} runs on images {tuple(crowds['train'][0].images.shape)}")

# %% [markdown]
# This is the training cell of the chapter. All runs are trained side by side as one stacked model, each stopped early by
# its own fused validation labels. It checks that all parameters, and the loss, live on the device it names.

# %% tags=["training"]
nets = [Vanilla(networks.mlp(196, 10, generator=seeded(d))) for _, _, d in runs]
history = training.fit(nets, crowds["train"], epochs=P.epochs, validation=crowds["validation"], seeds=[d for _, _, d in runs])
device = training.pick_device()
assert all(parameter.device.type == device.type for net in nets for parameter in net.parameters())
assert history.device.startswith(device.type)
print(history)

# %% [markdown]
# Now the test images, which nobody has touched until here.

# %%
test_images, tested = data.small(digits.test.images), []
for (kind, method, d), net in zip(runs, nets):
    accuracy = metrics.accuracy(training.predict(net, test_images), digits.test.labels)
    fused_right = metrics.accuracy(fused_by[kind, d][method], both)
    tested.append({"method": method, "draw": d, "kind": kind, "metrics": {"accuracy": accuracy, "labels": fused_right}})

# %% tags=["hide-input"]
plots.described(
    plots.bars_with_spread([row for row in tested if row["kind"] == "flippers"], "accuracy", METHODS, model="Dawid-Skene",
                           title="Flippers: better labels, better network", xlabel="test accuracy, skill .35"),
    f"Test accuracy of one small network trained on three kinds of labels. Each dot is one of {P.net_draws} panels, the "
    f"stroke is the mean, the line its 95 % interval (size {training.size()}).",
)  # fmt: skip

# %% tags=["hide-input"]
plots.described(
    plots.bars_with_spread([row for row in tested if row["kind"] == "hammer-spammers"], "accuracy", METHODS,
                           model="Dawid-Skene", title="Hammer-spammers: the vote is not beaten",
                           xlabel="test accuracy, skill .25"),
    f"As above, for hammer-spammers. Size {training.size()}.",
)  # fmt: skip

# %% [markdown]
# Set the networks beside the labels that they learned from.

# %%
def mean_of(kind, method, metric):
    found = [row["metrics"][metric] for row in tested if (row["kind"], row["method"]) == (kind, method)]
    return sum(found) / len(found)


print("                                labels right   network right")
for kind in SETTINGS:
    for method in METHODS:
        print(f"{kind:>15} {method:>12}   {mean_of(kind, method, 'labels'):13.3f}   {mean_of(kind, method, 'accuracy'):13.3f}")

# %% [markdown]
# On flippers, better fusion makes a better network. Still the gap between the networks is smaller than the gap between
# their labels: a network averages over images that look alike, and so repairs part of what a vote gets wrong.
# On hammer-spammers the network repairs most of what the vote got wrong, because wrong votes there have no direction.
# Wrong labels of Dawid-Skene can have one: how often does a wrong label of a digit bear that digit's commonest wrong name?
# (No direction at all would be one ninth.)

# %%
def direction(labels):
    """Share of wrong labels that bear their digit's commonest wrong name."""
    table = torch.zeros(10, 10).index_put_((labels, both), torch.ones(len(both)), accumulate=True)  # [said, truth]
    wrong = table * (1 - torch.eye(10))
    return float(wrong.max(0).values.sum() / wrong.sum())


for method in ("vote", "Dawid-Skene"):
    fused_draws = [fused_by["hammer-spammers", d][method] for d in range(P.net_draws)]
    towards_one = sum(map(direction, fused_draws)) / P.net_draws
    largest = sum(float(torch.bincount(each).max()) / len(both) for each in fused_draws) / P.net_draws
    print(f"{method:>11}: {towards_one:.2f} bear the commonest wrong name; the commonest class has {largest:.2f} of all labels")

# %% [markdown]
# The classes are equally frequent, a tenth each. In Dawid-Skene a class that happens to be thought a little more frequent
# wins more of the doubtful images, and so looks more frequent still: $\pi$ feeds on itself. The wrong labels then flock
# to the same few names. That is systematic, and a network learns what is systematic.
#
#
# Now compare with your guesses.

# %%
def at(curve, xs, x):
    return float(curve[:, list(xs).index(x), 1].mean())


measured = [
    at(flippers, P.skills, 0.35),
    at(by_number, numbers, 2),
    at(spammers, P.skills, 0.25),
    mean_of("flippers", "Dawid-Skene", "accuracy"),
]
print("guessed  measured")
for (question, guessed), value in zip(guess.items(), measured):
    print(f"{guessed:7.2f}  {value:8.2f}  {question}")

# %% [markdown]
# As in chapter 1, outcomes of random experiments are reported, not asserted.

# %%
def outcome(sentence, seen):
    print(f"{'seen' if seen else 'your run differed'}: {sentence}")


vote_at = lambda curve, xs, x: float(curve[:, list(xs).index(x), 0].mean())
outcome("flippers of skill .35: Dawid-Skene beats the vote", measured[0] > vote_at(flippers, P.skills, 0.35) + 0.1)
outcome("with two labels it already does", measured[1] > vote_at(by_number, numbers, 2) + 0.1)
outcome("hammer-spammers of skill .25: the vote beats Dawid-Skene", measured[2] < vote_at(spammers, P.skills, 0.25))
outcome("on flippers its network is better, too", measured[3] > mean_of("flippers", "vote", "accuracy"))

# %% [markdown]
# ## 6. Break it
#
# ### A veto by somebody who had never said that
#
# Take the anaesthetists' matrices, and a new patient. Six readings say grade 3. Only observer 2 says grade 2.

# %%
new = torch.tensor([[2, 2, 2, 1, 2, 2, 2]])  # counted from 0
believed = {}
for smoothing in (0, 0.01):
    panel = fusion.dawid_skene(grades, 4, people=people, smoothing=smoothing)
    believed[smoothing] = confusion.posterior(log(panel.A)[None], log(panel.prior)[None], new)[0].exp()
    print(f"smoothing {smoothing}: p(grade 1..4) = {believed[smoothing].numpy().round(3)}")
assert believed[0].argmax() == 1 and believed[0][1] > 0.99 and believed[0.01].argmax() == 2

# %% [markdown]
# One voice beats six. In the 45 patients observer 2 had never called a grade 3 a 2, so the count is zero, its logarithm
# is minus infinity (or very far down: `log` stops at 1e-30), and no other evidence can pay for that. *Never seen in five
# patients* was read as *impossible*. Smoothing puts a hundredth of a stroke into every box beforehand, and that is
# enough. It is the default of the library; the paper's estimate is `smoothing=0`.
#
# ### One label an item
#
# Give each image to one annotator only, and let EM run from the mean label.

# %%
panel = annotators.pairwise_flippers(5, 10, 0.45, generator=seeded(1))
single = annotators.annotate(truth, panel, per_item=1, generator=seeded(2))  # (N, R), four of five are -1
label_itself = fusion.mean_label(single, 10)  # (N, L), one-hot
p, A_single, prior = em(single, label_itself, 10)
assert torch.allclose(p, label_itself, atol=1e-12)  # it has not moved
assert torch.allclose(A_single, torch.eye(10).double().expand(5, -1, -1), atol=1e-12)
print(f"after 10 rounds: right {metrics.accuracy(p.argmax(1), truth):.3f}, everybody's skill {confusion.skills(A_single).numpy().round(2)}")

# %% [markdown]
# The start explains every label perfectly, so all five come out as perfect. It is a **fixed point**: M gives the
# identity, E gives the label back. No one is compared with anyone.
#
# It is not even a firm place to stand. `log` turns a zero into 1e-30, and that grain of dust grows from round to round:

# %%
for rounds in (10, 20, 30, 100):
    p_later, _, prior_later = em(single, label_itself, rounds)
    print(f"{rounds:3} rounds: moved by {float((p_later - label_itself).abs().max()):.0e}, right "
          f"{metrics.accuracy(p_later.argmax(1), truth):.3f}, commonest class {float(prior_later.max()):.2f} of all")  # fmt: skip
assert metrics.accuracy(p_later.argmax(1), truth) < metrics.accuracy(label_itself.argmax(1), truth) + 0.1

# %% [markdown]
# Wherever it drifts, it has come no nearer to the truth: what the labels say of people here is how often each of them
# uses each name, and many explanations fit that. Smoothing moves it as well, from the first round on.
# `fusion.dawid_skene` therefore returns the labels, and warns. A network can help, because it compares annotators through
# images that look alike; that is chapter 3.
#
# ### The wrong start
#
# Nothing but the start tells EM which class is called which. Rename the classes in it, and leave the labels as they are.

# %%
labels = annotators.annotate(truth, panel, generator=seeded(3))  # (N, R), dense
good = fusion.mean_label(labels, 10)
results = {}
for name, begin in {"mean label": good, "renamed": good.roll(1, 1)}.items():  # every class gets its neighbour's share
    p, A_found, prior = em(labels, begin, 60, smoothing=0.01)
    results[name] = metrics.accuracy(p.argmax(1), truth), fit_of(A_found, prior, labels)
    print(f"{name:>10}: right {results[name][0]:.3f}, log-likelihood of an item {results[name][1]:.4f}")
assert results["renamed"][0] < 0.1 < 0.9 < results["mean label"][0]
assert abs(results["renamed"][1] - results["mean label"][1]) < 1e-6

# %% [markdown]
# Exactly the same fit, and no label right. If the majority is wrong for whole classes, you start there. That is what
# happened at the left end of the flippers' curve. A *single* shared flip is not enough, though. Chapter 1 had three of
# five call a 1 a 7, and the vote was lost:

# %%
gang = annotators.pairwise_flippers(5, 10, 0.3, share=1, spread=0, generator=seeded(4))  # (R, L, L)
gang[:3, :, 1] = 0.3 * torch.eye(10)[1] + 0.7 * torch.eye(10)[7]  # the first three: truth 1 is called 7
gang_labels = annotators.annotate(truth, gang, generator=seeded(5))
gang_found = fusion.dawid_skene(gang_labels, 10).p.argmax(1)
gang_vote = fusion.majority(gang_labels, 10, generator=seeded(6))
ones = truth == 1
for name, answer in {"vote": gang_vote, "Dawid-Skene": gang_found}.items():
    print(f"{name:>11}: right for {float((answer == truth)[ones].double().mean()):.0%} of the ones")
print(f"margin of dominance {confusion.dominance(gang):.2f}")

# %% [markdown]
# Without dominance, and yet found: the three flip in chorus, but the other two do not, and the rest of the digits
# had already shown who can be trusted with what. Losing dominance ends a guarantee; it does not end every hope.
#
# ### People who copy
#
# Three of five copy from each other; the other two are better than they, and work alone.

# %%
team = annotators.pairwise_flippers(3, 10, 0.5, share=1, generator=seeded(7))  # one copied, and two more
team[1:] = annotators.hammer_spammers(2, 10, 0.7, generator=seeded(8))
own = annotators.annotate(truth, team, generator=seeded(9))  # (N, 3)
copied = own[:, [0, 0, 0, 1, 2]]  # (N, 5): the first three columns are one
p_copied = fusion.dawid_skene(copied, 10, tolerance=1e-4)
p_known = fusion.dawid_skene(own, 10, tolerance=1e-4)  # who copies is known: the copies are left out
accuracy = {name: metrics.accuracy(f.p.argmax(1), truth) for name, f in {"copies": p_copied, "no copies": p_known}.items()}
print(f"copies taken for people: right {accuracy['copies']:.3f}, believed skills {confusion.skills(p_copied.A).numpy().round(2)}")
print(f"copies left out:         right {accuracy['no copies']:.3f}, believed skills {confusion.skills(p_known.A).numpy().round(2)}")
assert accuracy["copies"] < accuracy["no copies"] - 0.2 and confusion.skills(p_copied.A)[0] > 0.9

# %% [markdown]
# Three columns that always agree look like three excellent people, and the two better ones look bad beside them. The
# formula multiplies three factors where there is one. (`people=` does not mend this: it shares the matrix, but still
# multiplies. Repeated readings of the anaesthetist are fresh readings; copies are not.) Before you fuse, look at how
# often pairs agree: `metrics.pairwise_agreement`.

# %% [markdown]
# ## 7. Exercises
#
# Write your answer into the cell that says `NotImplementedError`, then run the check below it.
#
# ```{exercise} One item by hand (★, 10 minutes)
# :label: ex-ch2-estep
#
# Exercise 2.1. Write the E-step {eq}`eq-ch2-e` for one item. `A` is (R, L, L), `prior` is (L,), `said` is (R,) with −1
# where somebody said nothing. Return p(truth), of shape (L,).
# ```

# %% tags=["stub"]
def one_item(A, prior, said):
    """(R, L, L), (L,), (R,) with -1 -> (L,)."""
    raise NotImplementedError


# %% [markdown]
# <details><summary>Hint 1: a nudge</summary>
#
# Start from the prior. Everyone who spoke multiplies it by something of length L. Is that a row or a column of the
# matrix?
#
# </details>
# <details><summary>Hint 2: the formula</summary>
#
# $q_j \propto \pi_j \prod_r A^{(r)}_{\text{said},\, j}$: row *said*, over all truths $j$. Skip those who are missing.
#
# </details>
# <details><summary>Hint 3: the shape of the code</summary>
#
# `q = prior.clone()`, then `for r, i in enumerate(said): if i != -1: q = q * A[?, ?]`, and at the end `q / q.sum()`.
#
# </details>

# %% tags=["check", "raises-exception"]
checks.one_item(one_item)


# %% tags=["solution", "hide-cell"] jupyter={"source_hidden": true}
def one_item(A, prior, said):
    """(R, L, L), (L,), (R,) with -1 -> (L,)."""
    q = prior.clone()
    for r, i in enumerate(said):
        if i != -1:
            q = q * A[r, i]  # row `said`: (L,)
    return q / q.sum()


checks.one_item(one_item)

# %% [markdown]
# **What you should see, and why.** Someone who says nothing changes nothing, so an item without any label keeps the
# prior. With many annotators this product underflows, which is why the library adds logarithms.
#
# ```{exercise} Count with doubt (★★, 15 minutes)
# :label: ex-ch2-mstep
#
# Exercise 2.2. Write the M-step {eq}`eq-ch2-m` for the matrices. `labels` is (N, R) with −1 for missing, `q` is (N, L), a
# soft truth whose rows sum to 1. Return (R, L, L), [said, truth], columns summing to 1, without smoothing.
# ```

# %% tags=["stub"]
def counted_matrices(labels, q):
    """(N, R) with -1, (N, L) -> (R, L, L)."""
    raise NotImplementedError


# %% [markdown]
# <details><summary>Hint 1: a nudge</summary>
#
# Fix an annotator r and a name i. Which items were called i by r? Add up their rows of q: that is a whole row of counts.
#
# </details>
# <details><summary>Hint 2: the formula</summary>
#
# Counts: $c^{(r)}_{ij} = \sum_{n: \tilde y_n^{(r)} = i} q_{nj}$. Then divide each column by its sum over $i$. A missing
# label equals no class, so it is in no count and in no sum.
#
# </details>
# <details><summary>Hint 3: the shape of the code</summary>
#
# `counts = torch.stack([torch.stack([q[labels[:, r] == i].sum(0) for i in range(L)]) for r in range(R)])`, then
# `counts / counts.sum(?, keepdim=True)`.
#
# </details>

# %% tags=["check", "raises-exception"]
checks.counted_matrices(counted_matrices)


# %% tags=["solution", "hide-cell"] jupyter={"source_hidden": true}
def counted_matrices(labels, q):
    """(N, R) with -1, (N, L) -> (R, L, L)."""
    R, L = labels.shape[1], q.shape[1]
    counts = torch.stack([torch.stack([q[labels[:, r] == i].sum(0) for i in range(L)]) for r in range(R)])
    return counts / counts.sum(1, keepdim=True)  # the axis of what is said


checks.counted_matrices(counted_matrices)

# %% [markdown]
# **What you should see, and why.** Divide along the wrong axis and you get p(truth | said), which also looks like a
# matrix of probabilities, and depends on how frequent the classes are. Where nobody met a class the column is 0 / 0; the
# library puts the identity there, or a uniform column with smoothing.
#
# ```{exercise} Does it climb? (★★, 15 minutes)
# :label: ex-ch2-fit
#
# Exercise 2.3. Write the log-likelihood $\sum_n \log p(\tilde y_n)$ of {eq}`eq-ch2-item`. `A` is (R, L, L), `prior` is
# (L,), `labels` is (N, R) with −1 for missing. Return one number.
# ```

# %% tags=["stub"]
def fit_score(A, prior, labels):
    """(R, L, L), (L,), (N, R) with -1 -> a number."""
    raise NotImplementedError


# %% [markdown]
# <details><summary>Hint 1: a nudge</summary>
#
# You have computed nearly all of it in exercise 2.1. What did you divide by there?
#
# </details>
# <details><summary>Hint 2: the formula</summary>
#
# For one item, $p(\tilde y_n)$ is the sum over $j$ of prior times product: the number by which the E-step divides. Take
# its logarithm, then add over items.
#
# </details>
# <details><summary>Hint 3: the shape of the code</summary>
#
# A loop over `labels`: `q = prior.clone()`, multiply by `A[r, i]` for all who spoke, then
# `total = total + q.sum().log()`.
#
# </details>

# %% tags=["check", "raises-exception"]
checks.fit_score(fit_score)


# %% tags=["solution", "hide-cell"] jupyter={"source_hidden": true}
def fit_score(A, prior, labels):
    """(R, L, L), (L,), (N, R) with -1 -> a number."""
    total = 0.0
    for said in labels:
        q = prior.clone()
        for r, i in enumerate(said):
            if i != -1:
                q = q * A[r, i]
        total = total + float(q.sum().log())
    return total


checks.fit_score(fit_score)
scores = [fit_score(*em(grades, start, rounds)[1:], grades) for rounds in range(1, 13)]
assert all(later >= earlier - 1e-9 for earlier, later in zip(scores, scores[1:]))
print("round by round:", [round(score, 2) for score in scores])

# %% [markdown]
# **What you should see, and why.** It never falls, for the reason in {eq}`eq-ch2-bound`, and first rises quickly, then
# slowly. If the number falls in a program of yours, the program has a mistake: this is the best test of EM there is.
# (With smoothing another sum climbs, in which the smoothing has its part.) It must not be read as a mark: section 5 had a
# fit that was better than the truth's.
#
# ```{exercise} How many annotators? (★★, 10 minutes)
# :label: ex-ch2-room
#
# Exercise 2.4. All `R` annotators label everything, endlessly many items, `L` classes. What can be observed is how often
# each possible row of labels occurs. What is unknown are the class frequencies and the matrices. Return how many
# independent frequencies are observed, minus how many independent numbers are unknown.
# ```

# %% tags=["stub"]
def room(R, L):
    """integer, integer -> integer."""
    raise NotImplementedError


# %% [markdown]
# <details><summary>Hint 1: a nudge</summary>
#
# How many different rows of labels are there? And which sums are known to be 1 beforehand?
#
# </details>
# <details><summary>Hint 2: the formula</summary>
#
# Observed: $L^R - 1$. Unknown: $L - 1$ class frequencies, and $L - 1$ for each column of each matrix.
#
# </details>
# <details><summary>Hint 3: the shape of the code</summary>
#
# `(L**R - 1) - (? * L * (L - 1) + ?)`
#
# </details>

# %% tags=["check", "raises-exception"]
checks.room(room)


# %% tags=["solution", "hide-cell"] jupyter={"source_hidden": true}
def room(R, L):
    """integer, integer -> integer."""
    return (L**R - 1) - (R * L * (L - 1) + L - 1)


checks.room(room)
for L in (2, 4, 10):
    print(f"{L:2} classes, 1 to 5 annotators:", [room(R, L) for R in range(1, 6)])

# %% [markdown]
# **What you should see, and why.** With one or two annotators it is negative: more unknowns than equations, so many
# explanations fit equally well. With three there is enough, for any number of classes (two classes: exactly enough).
# Counting is necessary, not sufficient: if everybody guesses, no number of annotators helps. Why then did *two* labels
# an image do so well in section 5? There were five people, and every pair of them met on some images. And EM started
# near the truth, among all explanations that fit.
#
# ## 8. What the paper claims and what we measured
#
# The first row is of {cite:t}`dawid1979`, the others are remarks of {cite:t}`tanno2019` on EM. The verdicts are computed
# from this run.

# %% tags=["hide-input"]
ours = fused.p.mean(0)
worst = float((ours - printed).abs().max())
identity = bool(torch.allclose(A_single, torch.eye(10).double().expand(5, -1, -1), atol=1e-6))
below = [k for k, skill in enumerate(P.skills) if skill < 2 / 7]  # two of five share a flip: no dominance
low, high = float(flippers[:, below, 1].mean()), float(flippers[:, -1, 1].mean())
claims = [
    ("claim", "where", "theirs", "ours", "verdict"),
    ("---",) * 5,
    ("frequencies of the four grades", "Dawid and Skene 1979", " ".join(f"{x:.2f}" for x in printed),
     " ".join(f"{x:.2f}" for x in ours), "the same" if worst < 0.005 else "not the same"),
    ("with one label an image, EM gives identity matrices", "Tanno 2019, section 3.1", "no number",
     f"mean skill {float(confusion.skills(A_single).mean()):.2f}", "holds" if identity else "your run differed"),
    ("where dominance is lost, accuracy falls steeply", "Tanno 2019, section 3.1", "figure only",
     f"{low:.2f} below, {high:.2f} at skill {P.skills[-1]}",
     "seen for flippers, not for the gang of section 6" if low < high - 0.1 else "your run differed"),
]  # fmt: skip
assert worst < 0.005
Markdown("\n".join("| " + " | ".join(row) + " |" for row in claims))

# %% [markdown]
# The second and third claims were made for EM with a network in it (chapter 4); here they are tested for EM without one.
#
# ## 9. Three questions
#
# <details><summary>1. An annotator calls every digit by the name of the next one. What does Dawid-Skene make of their
# labels, and what does the vote?</summary>
#
# If the others are decent, the start is right on the whole, the count shows the habit, and each of these labels then
# counts as a nearly perfect one. In the vote every one of them is a wrong voice. If *most* annotators do the same, the
# start is the renamed truth, and EM stays there.
#
# </details>
#
# <details><summary>2. Two methods are compared on your data, where no truth is known. Dawid-Skene has the higher
# likelihood. Is it the better one?</summary>
#
# Not for that. A model with more freedom always fits at least as well, and section 5 had one that fitted better than the
# truth. Compare on labels that were held out, or let somebody you trust label a hundred items with care.
#
# </details>
#
# <details><summary>3. Dawid-Skene says .999 for a patient on whom seven readings disagree. Would you believe it?</summary>
#
# Not the nines. The product takes the seven as independent, and the matrices as known, although some of their columns
# were counted on a handful of patients. Real people share textbooks, and some patients are hard for everybody. Its
# first choice may be good, its certainty is too high.
#
# </details>
#
# ## 10. Further reading; errata found
#
# - The source, short and readable: {cite:t}`dawid1979`. Eqs. 2.3 to 2.5 are the three lines.
# - The same on pixels is STAPLE {cite:p}`warfield2004`, chapter 7. With a classifier in the place of the class
#   frequencies: {cite:t}`raykar2010`, chapter 4.
# - With few labels an item and a network inside EM: {cite:t}`khetan2018`.
#
# **Errata.** None in the paper of 1979: its printed frequencies come out to both decimals. A trap in reading it: the
# first observer's three readings share a matrix. Taken for three people, the two commonest grades change places
# (section 4). In {cite:t}`tanno2019`, Algorithm 2 starts from the labels divided by *R*, which sums to less than 1 where
# labels are missing; `mean_label` divides by the labels that are there.
#
# **Next.** {doc}`Chapter 3 </notebooks/03_the_trace>` puts a network in the place of the class frequencies, and learns
# from one label for each image, where this chapter stands still.
