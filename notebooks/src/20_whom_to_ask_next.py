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
# # 20. Whom to ask next
#
# *Elective chapter.* In all chapters so far the labels were there. But somebody has to buy them, one by one, and what is
# bought next is your choice: which image, and which annotator. {cite:t}`tanno2019` and {cite:t}`zhang2020` close with that
# thought: the network knows which images are in doubt, the matrices know who can help. Neither tries it. This chapter does.
#
# **You will be able to**
#
# - compute what the next label is expected to tell, in nats, before it is bought;
# - keep count of how little is known of an annotator, and choose with that in mind;
# - compare ways to choose at an equal budget, and say what the choice of the image brings and what the choice of the person;
# - say where clever choosing brings nothing.
#
# **You need to know** chapter 2 (Dawid-Skene), chapter 3 (network and matrices) and what an entropy is.
#
# **Time** about two hours with the exercises (an estimate), of which the computer needs the seconds below.
#
# **Data** 3, 4, 5, 8 and 9 among the handwritten digits {cite:p}`lecun1998` that ship with the course, and drawn annotators.

# %%
try:
    from functools import cache

    import numpy as np
    import torch
    from IPython.display import Markdown
    from matplotlib.figure import Figure
    from scipy.optimize import linear_sum_assignment

    import course_lib.checks.asking as checks
    from course_lib import asking, book, data, experiments, metrics, plots, training
    from course_lib.annotations import MISSING
    from course_lib.confusion import log, posterior, skills
    from course_lib.experiments import asking as trial
    from course_lib.experiments import claims
    from course_lib.networks import seeded
except ImportError as error:
    import sys

    raise SystemExit(
        f"{error}: this notebook runs on {sys.executable}, where the course is not installed. In a terminal, in the "
        f'folder that holds pyproject.toml, type\n\n    "{sys.executable}" -m pip install -e .\n\nand restart the kernel.'
    ) from None

# %% tags=["card", "hide-input"]
book.card(20)

# %% [markdown]
# As in every chapter, `COURSE_SIZE` picks a column of the next table.

# %% tags=["parameters"]
P = training.sized(  # (ci, lesson, paper)
    n=(150, 500, 1500),  # images in the pool
    each=(5, 15, 45),  # labels of each annotator at the start
    batch=(45, 150, 450),  # labels bought in a round
    rounds=(2, 8, 8),
    epochs=(20, 20, 30),
    draws=(1, 5, 10),
)
print(f"size {training.size()}: {P}")

# %% [markdown]
# ## 1. The idea in one picture
#
# A pool of images without labels, and eight people who may be asked. Ask one of them about an image, and you get a label; ask
# the same person about the same image again, and you get the same label again. Among the eight are one expert, three who
# know six images in ten and guess the others, and four who always guess. Nobody tells you who is who. To begin with, each of
# them labels a few images at random.

# %%
world = trial.world("unequal", 0, n=P.n)
(asker,) = trial.started(world, 0, [trial.Rule("information", "draw")], each=P.each)
print(f"{len(world.truth)} images, {world.says.shape[1]} annotators, {(asker.labels != MISSING).sum()} labels so far")
print(f"images with no label: {(asker.labels == MISSING).all(1).sum()}")

# %% [markdown]
# Then it goes in rounds: choose a batch of pairs (image, annotator), buy these labels, fit, choose again. Here are three
# rounds with the rule that this chapter is about. The cell is also the chapter's training cell, which checks that the
# networks live on the device it names.

# %% tags=["training"]
for t in range(4):
    if t > 0:
        asker.ask(world.says, P.batch)
    history = trial.learn([asker], world, 0, epochs=P.epochs)
    right = metrics.accuracy(asker.p.argmax(1), world.truth)
    print(f"{(asker.labels != MISSING).sum():4d} labels: {right:.3f} of the pool are believed to be what they are")
device = training.pick_device()
assert all(w.device.type == device.type for net in asker.nets for w in net.parameters())
assert history.device.startswith(device.type)
print(history)

# %% [markdown]
# What is the next label worth? Each cell of the picture is one question that might be asked. It is worth little in the rows of people
# who guess, and little in the columns of images that are hardly in doubt. The black dots are what the rule asks next.

# %% tags=["hide-input"]
A = asker.counts / asker.counts.sum(1, keepdim=True)  # (R, L, L)
worth = asking.information(asker.p, A)  # (N, R)
people = skills(A).argsort(descending=True)
shown = worth.mean(1).argsort(descending=True)[torch.linspace(0, len(worth) - 1, 24).long()]
pairs = asking.choose("information", "draw", asker.labels, asker.p, asker.counts, n=P.batch, generator=seeded(1))
fig = Figure(figsize=(6.4, 3.4), layout="constrained")
ax = fig.subplots()
table = worth[shown][:, people].T.masked_fill((asker.labels[shown][:, people] != MISSING).T, float("nan"))
mesh = ax.imshow(table, cmap="cividis", aspect="auto", interpolation="none", vmin=0)
for image, who in pairs.tolist():
    if image in shown.tolist():
        ax.plot(shown.tolist().index(image), people.tolist().index(who), "o", mfc="black", mec="white", markersize=8)
names = [f"annotator {r + 1} ({skills(A)[r]:.2f})" for r in people.tolist()]
ax.set(yticks=range(8), xlabel="image, the most doubtful first", title="A label tells most where doubt meets skill")
ax.set_yticklabels(names)
fig.colorbar(mesh, label="expected information, nats")
plots.described(
    fig, "What the next label is expected to tell of an image's truth. In brackets the skill each annotator is believed to have. "
    f"White: asked already. Dots: asked next. Size {training.size()}.",
    "A grid of 8 annotators by 24 images; cells grow brighter towards the upper left, where skilled annotators meet doubtful "
    "images. The dots lie on the left, most of them in the upper rows.",
)  # fmt: skip

# %% [markdown]
# ## 2. Predict
#
# Write down a guess before you go on.
#
# 1. Choosing the *image* well, choosing the *person* well: which of the two brings more when skills differ as here? And when
#    all people are alike?
# 2. A simple rule needs no model: ask about the image whose votes are closest to a tie. Is it better than asking at random?
# 3. Half of the images are so grainy that nobody sees much. Which share of the labels will go to these, if one asks where a label
#    is expected to tell most?
#
# ## 3. The maths
#
# **What we believe of an image.** After some labels, Bayes gives each image a distribution over its truth, $p_n(j)$. The
# prior comes from a network, the evidence from the labels and the matrices (chapter 4).
#
# **What a label is expected to tell.** If annotator $r$ is asked about image $n$, label $i$ will come with probability
# $(A^{(r)} p_n)_i$. How much less uncertain will the truth be then, on average? That is the *mutual information* of truth and label
# {cite:p}`lindley1956,houlsby2011`:
#
# $$
# I_{nr} = \underbrace{H(p_n) - \sum_i (A^{(r)} p_n)_i\, H(p_n \mid \text{said } i)}_{\text{doubt about the truth that goes away}}
#        = \underbrace{H(A^{(r)} p_n) - \sum_j p_n(j)\, H(A^{(r)}_{\cdot j})}_{\text{surprise of the label that is not the annotator's noise}},
# $$ (eq-ch20-information)
#
# with $H(q) = -\sum_i q_i \log q_i$. It lies between 0 and $H(p_n)$. It is 0 for an image without doubt, and for a person whose columns are
# all alike. The second form needs no Bayes and is one line of code. A look at four people and one image:

# %%
p = torch.tensor([[0.5, 0.3, 0.2]])
kinds = {
    "always right": torch.eye(3),
    "always wrong, in the same way": torch.eye(3).roll(1, 0),
    "guesses": torch.full((3, 3), 1 / 3),
    "always says 0": torch.tensor([1.0, 0, 0])[:, None].expand(3, 3),
}
for (name, _), nats in zip(kinds.items(), asking.information(p, torch.stack([*kinds.values()]))[0]):
    print(f"{name}: {abs(nats):.3f} nats")
doubt = -(p * p.log()).sum()
print(f"doubt about the image: {doubt:.3f} nats")
assert torch.allclose(asking.information(p, torch.stack([*kinds.values()])), torch.tensor([[doubt, doubt, 0, 0]]), atol=1e-6)

# %% [markdown]
# Skill is not what counts, then: somebody who turns all names round tells as much as the expert, once one knows it. Information is
# "skill *for this image*": a person who mixes up 3 and 5 only is worthless where the doubt is between 3 and 5, and perfect elsewhere.
#
# **What we believe of a person.** After three labels nobody knows a matrix of 25 numbers. So each column gets a Dirichlet
# distribution, whose parameters are counts: what the annotator said where the truth seemed to be $j$, plus *pseudo-counts*
# $\alpha$ for the labels that one has not seen:
#
# $$
# c^{(r)}_{ij} = \alpha_{ij} + \sum_{n\,:\,r \text{ said } i} p_n(j), \qquad
# \bar A^{(r)}_{ij} = c^{(r)}_{ij} \Big/ \sum_{i'} c^{(r)}_{i'j}.
# $$ (eq-ch20-counts)
#
# Ours say "right six times in ten", with the weight of four labels a column. This is the M-step of chapter 2 with another
# numerator. One label of a matrix that is itself uncertain is said with the probability $\bar A^{(r)}_{ij}$, exactly: so
# {eq}`eq-ch20-information` with the *mean* matrix is the right expectation for the next label. But it is the expectation of *this* label only. Of somebody
# who has hardly been asked, the label also tells what *they* are worth. The rule called `draw` gives them their turn
# {cite:p}`thompson1933`: draw a matrix from each Dirichlet distribution, and ask whoever is best *in the draw*. Who is known
# well is drawn close to the mean, who is not now and then comes out on top.
#
# **A batch** holds each image once at most. Its second label would be worth less after the first, which the numbers do not
# know yet.
#
# **The network must not hear a label twice.** A network that was fitted to an image's label repeats it, and if that is then taken for
# a prior, the same label is evidence two times. So there are two networks, each fitted to one half of the pool, and the prior of
# an image is what the *other* half's network says of it.
#
# ## 4. From scratch
#
# The first form of {eq}`eq-ch20-information`, as a loop: what would each answer leave in doubt?

# %%
def entropy(p):
    return -torch.xlogy(p, p).sum(-1)


def information_slow(p, A):
    """p (L,), A (L, L) of one annotator -> nats."""
    left = 0
    for i, chance in enumerate(A @ p):
        left += chance * entropy(posterior(log(A)[None, None], log(p)[None], torch.tensor([[i]])).exp()[0])
    return entropy(p) - left


# %% [markdown]
# The second form, for all images and annotators at once:

# %%
def information(p, A):
    """p (N, L), A (R, L, L) -> (N, R) nats."""
    said = torch.einsum("rij,nj->nri", A, p)  # (N, R, L)
    noise = entropy(A.transpose(1, 2))  # (R, L), of each column
    return entropy(said) - p @ noise.T


# %% [markdown]
# Both must agree with each other, and with what the library ships:

# %%
mine = information(asker.p, A)
assert torch.allclose(mine, asking.information(asker.p, A), atol=1e-5)
assert torch.allclose(mine[:5], torch.stack([torch.stack([information_slow(q, a) for a in A]) for q in asker.p[:5]]), atol=1e-5)
assert (mine <= entropy(asker.p)[:, None] + 1e-5).all()
print(f"{mine.numel()} questions: the best is worth {mine.max():.3f} nats, the average one {mine.mean():.3f}")

# %% [markdown]
# Next the counts. A loop over labels is what {eq}`eq-ch20-counts` says:

# %%
def counted(labels, p, pseudo):
    """labels (N, R), p (N, L), pseudo (R, L, L) -> counts (R, L, L)."""
    counts = pseudo.clone()
    for n, r in (labels != MISSING).nonzero().tolist():
        counts[r, labels[n, r]] += p[n]
    return counts


pseudo = asking.pseudo_counts(8, 5)
p_next, counts = asking.believe(asker.labels, asker.log_prior, asker.pseudo)
assert torch.allclose(counted(asker.labels, p_next, pseudo), counts, atol=1e-3)
print("column of a class before any label:", pseudo[0, :, 0].numpy().round(2), "| the expert's now:", counts[people[0], :, 0].numpy().round(1))

# %% [markdown]
# Draws of a matrix scatter round the mean, and the less is known, the more so:

# %%
draws = asking.drawn(counts, 2000, generator=seeded(0))  # (2000, R, L, L)
fresh = asking.drawn(pseudo, 2000, generator=seeded(0))
assert torch.allclose(draws.mean(0), counts / counts.sum(1, keepdim=True), atol=0.02)
print(f"skill of annotator {people[0] + 1}: {skills(draws)[:, people[0]].mean():.2f} ± {skills(draws)[:, people[0]].std():.2f}")
print(f"of somebody never asked: {skills(fresh)[:, 0].mean():.2f} ± {skills(fresh)[:, 0].std():.2f}")

# %% [markdown]
# And the choice: for each image the person, of those not asked yet; then the images.

# %%
def choose(p, A, labels, n):
    """The n images whose next label is expected to tell most, whoever gives it; for each the best annotator."""
    worth = information(p, A).masked_fill(labels != MISSING, float("nan"))  # (N, R)
    images = worth.nanmean(1).nan_to_num(-1).argsort(descending=True)[:n]
    return torch.stack([images, worth[images].nan_to_num(-1).argmax(1)], 1)  # (n, 2)


mine = choose(asker.p, A, asker.labels, P.batch)
shipped = asking.choose("information", "best", asker.labels, asker.p, asker.counts, n=P.batch, generator=seeded(0))
assert {*map(tuple, mine.tolist())} == {*map(tuple, shipped.tolist())}
assert len(mine[:, 0].unique()) == P.batch and (asker.labels[tuple(mine.T)] == MISSING).all()
print(f"{P.batch} pairs, no image twice, no pair that was asked before")

# %% [markdown]
# Note that the *image* is chosen by the mean over all people who could still be asked, and not by its best pair. So the two choices
# can be taken apart: either may be replaced by chance, and the other stays what it is.
#
# ## 5. The experiment
#
# Four rules for the image: any (`random`); the one with the fewest labels (`least`); the one whose votes are closest to a tie
# (`disagree`); the one whose next label is expected to tell most (`information`). Two for the person: any (`random`), or best in a draw
# (`draw`). That makes eight, from the same start, with the same batches. Each answer is drawn once for a world, so that
# whoever asks the same question gets the same answer. Of each curve we take the area beneath it, divided by the labels
# bought: the mean accuracy on the way. None of the rules sees the truth; it only measures.

# %%
budget = trial.compare(trial.BUDGET, ("unequal",), seeds=P.draws, size=training.size(), device=None, progress=True)
live = {"rows": budget, "experiment": "ask-budget"}
at = [int(name.split("_")[1]) for name in budget[0]["metrics"] if name.startswith("fused_") and name != "fused_area"]
print(f"{len(budget)} runs, each buying {at[-1] - at[0]} labels after the first {at[0]}")


def lines(result, methods, metric, **setting):
    """{method: (draws, budgets)}."""
    return {m: np.stack([experiments.values(result, m, f"{metric}_{n}", **setting) for n in at], 1) for m in methods}


# %% tags=["hide-input"]
FOUR = ("random_random", "information_random", "random_draw", "information_draw")
image, person = (experiments.values(live, m, "fused_area").mean() for m in FOUR[1:3])
fig = plots.curve(
    at, lines(live, FOUR, "fused"), model="information_draw", xlabel="labels bought", ylabel="pool: share believed rightly",
    title=f"One expert, three fair, four who guess: {'whom' if person > image else 'what'} one asks counts more than {'what' if person > image else 'whom'}",
)  # fmt: skip
plots.described(fig, f"Image rule, then annotator rule. Mean of {P.draws} draw(s), and the lowest and highest. Size {training.size()}.")

# %% [markdown]
# The runs are paired: same images, same people, same answers. So the differences are what to look at.

# %%
def gap(result, method, other, metric="fused_area", **setting):
    """The difference of two rules draw by draw: (mean, half width of its 95 % interval)."""
    return plots.interval(experiments.values(result, method, metric, **setting) - experiments.values(result, other, metric, **setting))


def in_words(mean, half):
    """A number and what its interval decides."""
    return f"{mean:+.3f} ± {half:.3f}" + (" **ahead**" if mean > half else " *behind*" if -mean > half else "")


def table_of(head, body):
    rows = [" | ".join(row) for row in [head, ["---"] * len(head), *body]]
    return Markdown("\n".join(f"| {row} |" for row in rows))


for other in ("information_random", "random_draw", "information_draw"):
    mean, half = gap(live, other, "random_random")
    print(f"{other} - random_random: {mean:+.3f}" + (f" ± {half:.3f}" if P.draws > 1 else " (one draw: no interval)"))
if gap(live, "information_draw", "random_random")[0] < 0:
    print("your run differed: in ours the two rules together were ahead of chance")

# %% [markdown]
# ### Four kinds of crowds
#
# The committed results have more draws, and three more worlds: `by_class`, where each of the eight knows two of the five classes
# well and the others hardly; `equal`, where all know six in ten; `hard_images`, where all know 85 in a hundred, but half of the
# images are grainy, and of those only ten in a hundred.

# %%
@cache
def committed(name):
    """A committed result, None where it has not been computed."""
    try:
        return experiments.read(data.shipped(f"results/{name}.lesson.json"))
    except FileNotFoundError:
        return None


def later(name):
    return Markdown(f"*What stands here is drawn from `course run {name}`, which has not been run for this edition yet.*")


full = committed("ask-budget")
at = [int(name.split("_")[1]) for name in (full or live)["rows"][0]["metrics"] if name.startswith("right_")]

# %% tags=["hide-input"]
LOOKS = {"random_random": ("#949494", ":", "any image, anyone"), "information_random": ("#5F5F5F", "--", "image chosen"),
         "random_draw": ("#E69F00", "-.", "person chosen"), "information_draw": (plots.MODEL, "-", "both chosen")}  # fmt: skip
if full:
    fig = Figure(figsize=(6.6, 6), layout="constrained")
    for regime, ax in zip(trial.REGIMES, fig.subplots(2, 2).flat):
        for method, y in lines(full, FOUR, "fused", regime=regime).items():
            (color, dash, label), half = LOOKS[method], [plots.interval(column)[1] for column in y.T]
            ax.plot(at, y.mean(0), color=color, linestyle=dash, linewidth=2, label=label)
            ax.fill_between(at, y.mean(0) - half, y.mean(0) + half, color=color, alpha=0.15, linewidth=0)
        ax.set(title=regime, xlabel="labels bought")
        ax.grid(color="#E5E5E5", linewidth=0.7)
    fig.supylabel("share of the pool believed rightly")
    fig.suptitle("Choosing the image pays nearly everywhere,\nchoosing the person where few are good", x=0.01, ha="left", fontsize=12, weight="bold")
    fig.legend(*ax.get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False, fontsize=9)
plots.described(
    fig, f"Budget curves in four worlds: mean and 95 % interval of {len(experiments.select(full, 'random_draw', regime='equal'))} draws, size lesson.",
    "Four panels of rising curves. " + " ".join(
        f"{regime}: at the end " + ", ".join(f"{LOOKS[m][2]} {y[:, -1].mean():.3f}" for m, y in lines(full, FOUR, 'fused', regime=regime).items()) + "."
        for regime in trial.REGIMES),
) if full else later("ask-budget")  # fmt: skip

# %% [markdown]
# Now each rule alone, and the two together, against asking anyone about any image. First of the pool: the mean share believed rightly
# on the way. A word stands where the 95 % interval of the paired differences lies on one side of 0.

# %% tags=["hide-input"]
COLUMNS = {"image by information": "information_random", "person by draw": "random_draw", "both": "information_draw",
           "least labelled": "least_random", "votes disagree": "disagree_random"}  # fmt: skip


def against_chance(metric):
    body = [[r, f"{experiments.values(full, 'random_random', metric, regime=r).mean():.3f}",
             *(in_words(*gap(full, m, "random_random", metric, regime=r)) for m in COLUMNS.values())] for r in trial.REGIMES]  # fmt: skip
    return table_of(["pool" if metric == "fused_area" else "network", "any, anyone", *COLUMNS], body)


against_chance("fused_area") if full else later("ask-budget")

# %% [markdown]
# Then the network, on images that nobody labelled:

# %% tags=["hide-input"]
against_chance("area") if full else later("ask-budget")

# %% [markdown]
# What does each choice add when the other is already made well?

# %% tags=["hide-input"]
ADDED = {"the image, given the person": ("information_draw", "random_draw"), "the person, given the image": ("information_draw", "information_random"),
         "doubt instead of disagreement, given the person": ("information_draw", "disagree_draw")}  # fmt: skip
table_of(["pool", *ADDED], [[r, *(in_words(*gap(full, a, b, regime=r)) for a, b in ADDED.values())] for r in trial.REGIMES]) if full else later("ask-budget")

# %% [markdown]
# The sentence that this chapter owes, drawn from the same numbers:

# %% tags=["hide-input"]
def where_ahead(method, metric="fused_area"):
    """The worlds in which a rule's interval lies above chance, in words."""
    found = [r for r in trial.REGIMES if (g := gap(full, method, "random_random", metric, regime=r))[0] > g[1]]
    return f"ahead of chance in {len(found)} of {len(trial.REGIMES)} worlds" + (f" ({', '.join(found)})" if found else "")


Markdown("\n".join(
    f"- {name}: the pool is {where_ahead(m)}; the network is {where_ahead(m, 'area')}." for name, m in COLUMNS.items()
)) if full else later("ask-budget")  # fmt: skip

# %% [markdown]
# How to read this, as it came out in the committed results. **The image**: choosing helps even where all people are alike, since labels stop going to images that are
# settled. **The person**: choosing helps where people differ *and* few are good. Where all are alike there is nobody to be found; looking
# for them costs nothing that we could measure, and brings nothing. **The network** gains less than the pool. It learns from five hundred pictures together, and a
# few labels mended among them change it little. **Even spreading and disagreement**, the rules without a model, are not better than
# chance where people differ, and can be worse. In `by_class` there is a riddle: choosing the person alone brings nothing there. Did it not find the right people?
#
# Whom did the rules ask? How likely the labels bought in each round were to be right:

# %% tags=["hide-input"]
table_of(["world", "rule", *(f"{n} labels" for n in at[1:])], [
    [r, LOOKS[m][2], *(f"{y:.2f}" for y in lines(full, [m], "right", regime=r)[m].mean(0)[1:])]
    for r in ("unequal", "by_class") for m in ("random_random", "random_draw", "information_draw")
]) if full else later("ask-budget")  # fmt: skip

# %% [markdown]
# It did: the answers it buys get better and better. In `unequal` this falls again at the end, because the expert has been asked about
# nearly all that is in doubt. (An expert with unlimited time is a gift of the simulation; exercises 20.1 and 20.3 take it away.)
# To see where the better answers went, play one world from start to end, and sort what is still wrong by the number of labels an image got:

# %%
def play(regime, rules, seed=0):
    """One world from start to end: the world, the askers, and how many images had two labels early on."""
    world, twice = trial.world(regime, seed, n=P.n), []
    askers = trial.started(world, seed, [trial.Rule(*rule.split("_")) for rule in rules], each=P.each)
    for t in range(P.rounds + 1):
        for a in askers:
            if t > 0:
                a.ask(world.says, P.batch)
        trial.learn(askers, world, seed, epochs=P.epochs, progress=False)
        if t == max(1, P.rounds * 3 // 8):  # about one label an image
            twice = [int(((a.labels != MISSING).sum(1) >= 2).sum()) for a in askers]
    return world, askers, twice


world_c, askers_c, twice = play("by_class", ("random_random", "random_draw", "information_draw", "least_random"))
for a, two in zip(askers_c, twice):
    few, wrong = (a.labels != MISSING).sum(1) <= 1, a.p.argmax(1) != world_c.truth
    print(f"{a.rule.images}, {a.rule.people}: {wrong[few].sum()} wrong of {few.sum()} images with 0 or 1 label, "
          f"{wrong[~few].sum()} wrong of {(~few).sum()} with more; two labels early on: {two} images")  # fmt: skip

# %% [markdown]
# That solves it. With images at random, a good part of the mistakes are on images that hardly anybody was asked about, and better people do
# not mend those: the good answers go to images that were clear already. Choosing by information also leaves many images with one label or none. But
# it leaves the right ones, where the network and the one label leave no doubt. The last number hints at why even spreading can
# be worse than chance. For a long time it gives every image one label; but only where two people saw the same image does anything show who can be
# trusted.
#
# ## 6. Break it
#
# ### Asking who seems best after three labels
#
# Two people, one right in 90 of 100, one in 75. Each shows three labels on images whose truth is known. Then you ask, 300 times, whoever
# has been right more often so far, and each time learn whether the label was right.

# %%
TRUE = (0.90, 0.75)


def game(rule, seed, n=300):
    """Returns how often the first one was asked after the start, and the (right, asked) counts of both."""
    rng = np.random.default_rng(seed)
    asked = np.array([3, 3])
    right = rng.binomial(asked, TRUE)
    for _ in range(n):
        guess = right / asked if rule == "greedy" else rng.beta(1 + right, 1 + asked - right)
        who = int(np.argmax(guess + 1e-9 * rng.random(2)))  # a tie is broken by chance
        right[who] += rng.random() < TRUE[who]
        asked[who] += 1
    return asked[0] - 3, right, asked


games = {rule: [game(rule, seed) for seed in range(200)] for rule in ("greedy", "draw")}
for rule, played in games.items():
    share = np.array([g[0] for g in played]) / 300
    print(f"{rule}: the better one gets {share.mean():.0%} of the questions; under a tenth of them in {(share < 0.1).mean():.0%} of the games")

# %% [markdown]
# Greed gets stuck, and here is why. Who is not asked is not learned about: in the games where the better one was never asked
# again, the three labels of the beginning are still all that is known, and at least one of them was wrong. Nothing can change that while the other one's
# rate stays above two thirds, and for somebody who is right in three of four it often does.

# %%
stuck = [g for g in games["greedy"] if g[0] == 0]
assert stuck and all(asked[0] == 3 and right[0] < 3 for _, right, asked in stuck)
assert all(right[1] / asked[1] >= right[0] / asked[0] for _, right, asked in stuck)
assert not any(g[0] == 0 for g in games["draw"])
print(f"in {len(stuck)} of 200 games the better one was never asked again after 3 labels")

# %% [markdown]
# The same inside the experiment: the person by the mean matrix (`best`) or by a draw, with our pseudo-counts of four labels a column, and with
# nearly none. All of them choose the image by information; chosen is only whom to ask.

# %% tags=["hide-input"]
beliefs = committed("ask-beliefs")
table_of(["pool", *(f"{who}, {w:g} labels" for who in asking.PEOPLE for w in (4.0, 0.04))], [
    [r, *(f"{m:.3f} ± {h:.3f}" for who in asking.PEOPLE for w in (4.0, 0.04)
          for m, h in [plots.interval(experiments.values(beliefs, f"information_{who}", "fused_area", regime=r, weight=w))])]
    for r in trial.REGIMES[:3]
]) if beliefs else later("ask-beliefs")  # fmt: skip

# %% tags=["hide-input"]
if beliefs:
    for r in trial.REGIMES[:3]:
        without, draw = (gap(beliefs, "information_draw", "information_best", regime=r, weight=w) for w in (0.04, 4.0))
        values = [experiments.values(beliefs, "information_draw", "fused_area", regime=r, weight=w) for w in (4.0, 0.04)]
        prior = plots.interval(values[0] - values[1])
        print(f"{r}: pseudo-counts are worth {prior[0]:+.3f} ± {prior[1]:.3f}; a draw instead of the mean {draw[0]:+.3f} ± {draw[1]:.3f}")

# %% [markdown]
# The larger part of modesty is in the prior: without pseudo-counts everybody's matrix is believed after a handful of
# labels, for choosing *and* for fusing. Once the matrices are modest, the mean does nearly as well as the draw, though in `unequal` with a wider
# spread over the draws of the world: a start of a few labels each, chosen at random, and batches that must go round many images explore already.
#
# ### Hearing a label twice
#
# Take the network that was fitted to an image's own label for the prior, instead of the other half's. Look at the images on
# which the belief they were taught was wrong:

# %%
taught = asker.p.argmax(1)
trial.learn([asker], world, 0, epochs=4 * P.epochs, progress=False)
first, second = (training.predict_log_p(net, world.images).exp() for net in asker.nets)
even = (torch.arange(len(taught)) % 2 == 0)[:, None]
own, other = torch.where(even, first, second), torch.where(even, second, first)
wrong = (taught != world.truth) & (asker.labels != MISSING).any(1)
sure = [float(q[wrong, taught[wrong]].mean()) for q in (own, other)]
print(f"{wrong.sum()} images were taught wrongly. Probability of that mistake: by its own network {sure[0]:.2f}, by the other half's {sure[1]:.2f}")
if sure[0] < sure[1]:
    print("your run differed: in ours the network's own word was the surer one")

# %% [markdown]
# A network repeats its teacher's mistakes with confidence. As a prior this makes the image look settled, the expected information falls,
# and nobody is ever asked about it again.
#
# ### Doubt that no label can end
#
# On the grainy images all guess. The model does not know this: each annotator has one matrix, for all images alike. So the images stay in doubt, the
# next label still promises something, and the promise is never kept. The share of each round's labels that went to grainy images:

# %% tags=["hide-input"]
HARD = ("random_random", "disagree_random", "information_random", "information_draw")
table_of(["rule", *(f"{n} labels" for n in at[1:])], [
    [m, *(f"{y:.0%}" for y in lines(full, [m], "hard", regime="hard_images")[m].mean(0)[1:])] for m in HARD
]) if full else later("ask-budget")  # fmt: skip

# %% [markdown]
# Half would be their share. What do they get for it?

# %%
world_h, askers_h, _ = play("hard_images", ("random_random", "information_random", "information_draw"))
for a in askers_h:
    ok, n, hard = (a.p.argmax(1) == world_h.truth).float(), (a.labels != MISSING).sum(1).float(), world_h.hard
    print(f"{a.rule.images}, {a.rule.people}: clear images {ok[~hard].mean():.3f} right with {n[~hard].mean():.1f} labels each, "
          f"grainy ones {ok[hard].mean():.3f} with {n[hard].mean():.1f}")  # fmt: skip

# %% [markdown]
# At `lesson` size the clear images are better off with *fewer* labels, because the ones among them that need another get it. That is the whole gain. The
# grainy ones swallow the rest of the budget and are hardly better for it. Asking where it is hardest *feels* right. The remedy is a better
# model: matrices that depend on the image (chapter 8), so that the model itself expects to learn nothing there.
#
# ## 7. Exercises
#
# Write your answer into the cell that says `NotImplementedError`, then run the check below it.
#
# ```{exercise} Experts are dear (★, 10 minutes)
# :label: ex-ch20-price
#
# Exercise 20.1. `worth` (N, R) is the expected information of each question, `labels` (N, R) what was said, -1 where nobody was
# asked, `price` (R,) what a label of each annotator costs. Return the pair (image, annotator), two integers, that gives most
# information for its price.
# ```

# %% tags=["stub"]
def per_price(worth, labels, price):
    """(N, R), (N, R), (R,) -> (image, annotator)."""
    raise NotImplementedError


# %% [markdown]
# <details><summary>Hint 1: a nudge</summary>
#
# Nats for a unit of money. And no question is asked twice.
#
# </details>
# <details><summary>Hint 2: the formula</summary>
#
# $\arg\max_{n, r} I_{nr} / c_r$ over the pairs with no label.
#
# </details>
# <details><summary>Hint 3: the shape of the code</summary>
#
# `best = (worth / price).masked_fill(?, -1).argmax()` is a place in the flattened table; `divmod(int(best), R)` is the pair.
#
# </details>

# %% tags=["check", "raises-exception"]
checks.per_price(per_price)


# %% tags=["solution", "hide-cell"] jupyter={"source_hidden": true}
def per_price(worth, labels, price):
    """(N, R), (N, R), (R,) -> (image, annotator)."""
    best = (worth / price).masked_fill(labels != MISSING, -1).argmax()
    return divmod(int(best), worth.shape[1])


checks.per_price(per_price)
expert = int(people[0])
for dear in (1, 2, 5, 20):
    price = torch.ones(8)
    price[expert] = dear
    n, who = per_price(worth, asker.labels, price)
    print(f"the best annotator costs {dear:2d}: ask annotator {who + 1} ({skills(A)[who]:.2f}) about image {n}")

# %% [markdown]
# **What you should see, and why.** Up to some price the one believed to be best is the bargain, from then on another one is. Several labels of
# fair people may be worth one of an expert. A budget in money changes who is asked, but not the rule.
#
# ```{exercise} Years of experience (★★, 15 minutes)
# :label: ex-ch20-years
#
# Exercise 20.2. {cite:t}`zhang2020` propose to use what is known of the annotators, such as their years of experience. Make it a
# prior. With $y$ years the skill is guessed to be $s(y) = \frac1L + (.95 - \frac1L)(1 - e^{-y/5})$, and mistakes fall on the wrong classes
# alike. `years` (R,); return pseudo-counts (R, L, L) whose columns each sum to `weight`.
# ```

# %% tags=["stub"]
def years_prior(years, n_classes, weight):
    """(R,), L, labels a column -> (R, L, L)."""
    raise NotImplementedError


# %% [markdown]
# <details><summary>Hint 1: a nudge</summary>
#
# With 0 years one guesses. How often is a guess right? First the matrix, then its weight.
#
# </details>
# <details><summary>Hint 2: the formula</summary>
#
# $\alpha_{jj} = w\, s(y)$, and $\alpha_{ij} = w\, (1 - s(y)) / (L - 1)$ for $i \ne j$.
#
# </details>
# <details><summary>Hint 3: the shape of the code</summary>
#
# `s[:, None, None] * eye + ((1 - s) / (L - 1))[:, None, None] * (1 - eye)`, times the weight.
#
# </details>

# %% tags=["check", "raises-exception"]
checks.years_prior(years_prior)


# %% tags=["solution", "hide-cell"] jupyter={"source_hidden": true}
def years_prior(years, n_classes, weight):
    """(R,), L, labels a column -> (R, L, L)."""
    s = 1 / n_classes + (0.95 - 1 / n_classes) * (1 - (-years / 5).exp())  # (R,)
    eye = torch.eye(n_classes)
    return weight * (s[:, None, None] * eye + ((1 - s) / (n_classes - 1))[:, None, None] * (1 - eye))


checks.years_prior(years_prior)
PRIORS = {"no years": None, "the right years": 1, "years turned round": -1}
shares = {name: [] for name in PRIORS}
for seed in range(min(P.draws, 4)):
    here = trial.world("unequal", seed, n=P.n)
    years = torch.tensor([0.5, 0.5, 0.5, 0.5, 5, 6, 7, 20])
    rank = here.right.mean(0).argsort().argsort()  # of each annotator, the least skilled first
    crew = trial.started(here, seed, [trial.Rule("information", "draw")] * 3, each=P.each)
    for (name, turn), a in zip(PRIORS.items(), crew):
        a.pseudo = a.pseudo if turn is None else years_prior(years[rank if turn == 1 else 7 - rank], 5, 4.0)
        a.update()
    for t in range(P.rounds + 1):
        _ = [a.ask(here.says, P.batch) for a in crew if t > 0]
        trial.learn(crew, here, seed, epochs=P.epochs, progress=False)
        _ = [shares[name].append(metrics.accuracy(a.p.argmax(1), here.truth)) for name, a in zip(PRIORS, crew)]
for name, values in shares.items():
    print(f"{name:>18}: " + " ".join(f"{x:.2f}" for x in np.reshape(values, (-1, P.rounds + 1)).mean(0)))

# %% [markdown]
# **What you should see, and why.** One column a round. Years that go with skill are worth several rounds at the start, when there are few
# labels, and little at the end. Years that mislead cost far more than the good ones gain. The guessers are taken for experts, they are
# asked, the truth is fitted to what *they* say, and this bent truth speaks for them: even with all labels bought the pool need not recover,
# although the prior weighs no more than four labels a column. A prior on *people* decides who is believed from the first round on. Check it
# against a few images whose truth is known, before you let it choose.
#
# ```{exercise} Nobody has time for everything (★★★, 20 minutes)
# :label: ex-ch20-limits
#
# Exercise 20.3. In one round nobody can be asked more than `most` times. `worth` (N, R), `labels` (N, R). Build the batch greedily: take the
# best pair, then the best of those that are still allowed, and so on, up to `n`. Allowed is a pair without a label, whose image is
# not in the batch yet, and whose annotator has been taken fewer than `most` times. Return the pairs (n, 2), image before annotator.
# ```

# %% tags=["stub"]
def with_limits(worth, labels, n, most):
    """(N, R), (N, R), how many, how many an annotator -> (n, 2)."""
    raise NotImplementedError


# %% [markdown]
# <details><summary>Hint 1: a nudge</summary>
#
# Keep a table in which everything that is no longer allowed is $-\infty$.
#
# </details>
# <details><summary>Hint 2: the formula</summary>
#
# After taking $(n, r)$: row $n$ becomes $-\infty$; column $r$ as well, if this was the annotator's last free question.
#
# </details>
# <details><summary>Hint 3: the shape of the code</summary>
#
# `left = worth.masked_fill(labels != MISSING, -torch.inf)`; in a loop `divmod(int(left.argmax()), R)`, then two assignments. Stop
# early where everything is $-\infty$.
#
# </details>

# %% tags=["check", "raises-exception"]
checks.with_limits(with_limits)


# %% tags=["solution", "hide-cell"] jupyter={"source_hidden": true}
def with_limits(worth, labels, n, most):
    """(N, R), (N, R), how many, how many an annotator -> (n, 2)."""
    left, asked, pairs = worth.masked_fill(labels != MISSING, -torch.inf), torch.zeros(worth.shape[1]), []
    while len(pairs) < n and left.max() > -torch.inf:
        image, who = divmod(int(left.argmax()), worth.shape[1])
        pairs.append((image, who))
        asked[who] += 1
        left[image] = -torch.inf
        if asked[who] == most:
            left[:, who] = -torch.inf
    return torch.tensor(pairs)


checks.with_limits(with_limits)
for most in (P.batch, P.batch // 3, P.batch // 6, P.batch // 8 + 1):
    chosen = with_limits(worth, asker.labels, P.batch, most)
    busy = chosen[:, 1].bincount(minlength=8)[people].tolist()
    print(f"at most {most:3d} each: {busy} questions, best annotator first; in all {worth[tuple(chosen.T)].sum():6.2f} nats promised")
most = P.batch // 8
greed = worth[tuple(with_limits(worth, asker.labels, 8 * most, most).T)].sum()
slots = worth.masked_fill(asker.labels != MISSING, -9).repeat_interleave(most, 1).numpy()  # (N, R most)
print(f"at most {most} each: greed is promised {greed / slots[linear_sum_assignment(slots, maximize=True)].sum():.1%} of the best plan's nats")

# %% [markdown]
# **What you should see, and why.** The tighter the limit, the more questions go to people who tell less. The sum that is promised falls,
# slowly at first: the expert's time is then spent on the most doubtful images, where it is worth most. Greed is not always
# the best plan with limits. An assignment solver finds the best one, and the last line says how close greed comes.
#
# ```{exercise} Labels saved (★★, 10 minutes)
# :label: ex-ch20-saved
#
# Exercise 20.4. Curves are drawn upwards, and paid for sideways. `budgets` (T,) rise, `accuracy` (T,) mostly does. Return the number of labels
# at which the straight lines between the points *first* reach `goal`. The curve starts below the goal and does reach it.
# ```

# %% tags=["stub"]
def labels_needed(budgets, accuracy, goal):
    """(T,), (T,), number -> labels."""
    raise NotImplementedError


# %% [markdown]
# <details><summary>Hint 1: a nudge</summary>
#
# Find the first point at or above the goal. The crossing lies between it and the one before.
#
# </details>
# <details><summary>Hint 2: the formula</summary>
#
# $b_{k-1} + (b_k - b_{k-1})\,(g - a_{k-1}) / (a_k - a_{k-1})$.
#
# </details>
# <details><summary>Hint 3: the shape of the code</summary>
#
# `k = int((accuracy >= goal).int().argmax())` is the first. `np.interp(goal, accuracy, budgets)` would want a curve that never
# falls.
#
# </details>

# %% tags=["check", "raises-exception"]
checks.labels_needed(labels_needed)


# %% tags=["solution", "hide-cell"] jupyter={"source_hidden": true}
def labels_needed(budgets, accuracy, goal):
    """(T,), (T,), number -> labels."""
    k = int((accuracy >= goal).int().argmax())
    part = (goal - accuracy[k - 1]) / (accuracy[k] - accuracy[k - 1])
    return float(budgets[k - 1] + part * (budgets[k] - budgets[k - 1]))


checks.labels_needed(labels_needed)
for regime in trial.REGIMES if full else ():
    y = {m: torch.tensor(v.mean(0)) for m, v in lines(full, FOUR, "fused", regime=regime).items()}
    goal = float(y["random_random"][-1])  # what chance reaches with the whole budget
    needed = {m: labels_needed(torch.tensor(at), v, goal) for m, v in y.items() if v.max() >= goal}
    print(f"{regime}, to reach {goal:.3f}: " + ", ".join(f"{LOOKS[m][2]} {x:.0f}" for m, x in needed.items()))

# %% [markdown]
# **What you should see, and why.** A gap of a few hundredths upwards is a gap of hundreds of labels sideways, because the curves
# are flat by then. Both numbers are true. Say which one you report, and name the goal before you look.
#
# ## 8. What the papers claim and what we measured
#
# {cite:t}`tanno2019` say in passing that knowing the annotators' skills can be used to decide who labels which example; {cite:t}`zhang2020` announce it as
# future work, with the network choosing the samples ("active learning") and the annotators' matrices choosing the experts ("active
# labelling"). There is no number to compare with. What we measured is in section 5.

# %% tags=["hide-input"]
judged = claims.table(experiment="ask-budget")
Markdown(judged if judged.count("\n") > 1 else "*No claim of the papers is judged by these results: they give no number.*")

# %% [markdown]
# It is measured on drawn annotators who answer as the model believes they do (but for `hard_images`), whose answers are independent, and who are never
# tired. Real gains may well be smaller. Network, pseudo-counts and batches are the same for all rules. The learning rate was raised once, after
# a pilot of two draws in which the networks had hardly learned; it is the only setting that was chosen with the truth in view. No rule saw a true label.
#
# ## 9. Three questions
#
# <details><summary>1. An annotator is wrong in nine of ten cases, always with the same wrong name. Should one ask them?</summary>
#
# Yes, once the matrix is known well: the information is as high as that of somebody who is right in nine of ten. Until then it is a
# gamble, since only comparison with others shows which way to turn the names. Our pseudo-counts say "mostly right", and it takes
# several labels a column to overrule them.
#
# </details>
#
# <details><summary>2. You choose images by information and report the accuracy on the images that were labelled. What is wrong?</summary>
#
# These images were chosen because they are doubtful, so they are no sample of anything; each rule would be measured on other
# images. Measure on a fixed pool or on unseen images, drawn before anything was chosen. For the same reason class shares of chosen images
# are no class shares.
#
# </details>
#
# <details><summary>3. When should one stop buying?</summary>
#
# When the best question promises less than its price. $I_{nr}$ is measured in nats, so one has to say what a nat is worth; but its decline
# over the rounds can be seen without any truth. Beware of doubt that no label can end (section 6): its promise never falls.
#
# </details>
#
# ## 10. Further reading
#
# {cite:t}`lindley1956` made expected information the measure of an experiment before it is made; {cite:t}`houlsby2011` brought it to
# classification. {cite:t}`thompson1933` is the draw. {cite:t}`raykar2010` put priors on annotators' skills. {cite:t}`welinder2010` rate annotators while
# the labels come in, and ask for more only where it is needed; {cite:t}`yan2011` choose image and annotator together, with skills that
# depend on the image; {cite:t}`long2015` do so with Gaussian processes. {cite:t}`raykar2014` treat the whole sequence of questions as a decision process,
# with exploration now and then.
