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
# # 7. Masks that disagree
#
# *Core chapter.* Five people outline the same thing, and no two outlines are alike. This chapter makes one mask of five,
# with the tools of {doc}`/notebooks/02_labels_only`: call every pixel an item, and Dawid-Skene becomes STAPLE, which
# medicine has used since 2004 {cite:p}`warfield2004`. Then it asks the awkward question: is that better than a vote? The
# answer depends on *how* people err, and you will know beforehand which it will be.
#
# **You will be able to**
#
# - fuse masks by a vote, by STAPLE and by Spatial STAPLE, and write STAPLE in three lines;
# - read sensitivity and specificity off a confusion matrix;
# - say when STAPLE will beat the vote and when it will lose, and check which case is yours;
# - report a Dice that another person can compare with theirs.
#
# **You need to know** chapter 2: EM, the matrix $A$, and why people who copy are dangerous.
#
# **Time** about two hours with the exercises (an estimate), of which the computer needs the seconds below.
#
# **Data** digits in noise {cite:p}`lecun1998`, outlined by simulated annotators after {cite:t}`zhang2020`. They ship with
# the course. With your own copies: retinas drawn by two observers {cite:p}`fraz2012`, lung nodules by four radiologists
# {cite:p}`armato2011`.

# %%
try:
    import warnings

    import torch
    from IPython.display import Markdown
    from matplotlib.figure import Figure

    import course_lib.checks.masks as checks
    from course_lib import annotators, book, data, experiments, fusion, lidc, metrics, networks, observers, plots, scenes, training
    from course_lib.annotations import Annotations
    from course_lib.confusion import count_matrices, log, posterior
    from course_lib.experiments import claims
    from course_lib.experiments.masks import quietly
    from course_lib.mask_annotators import PANELS, draw_masks, faithful
    from course_lib.methods.trace import Vanilla
    from course_lib.networks import seeded
except ImportError as error:
    import sys

    raise SystemExit(
        f"{error}: this notebook runs on {sys.executable}, where the course is not installed. In a terminal, in the "
        f'folder that holds pyproject.toml, type\n\n    "{sys.executable}" -m pip install -e .\n\nand restart the kernel.'
    ) from None

# %% tags=["card", "hide-input"]
book.card(7)

# %% [markdown]
# As in every chapter, `COURSE_SIZE` picks a column of the next table.

# %% tags=["parameters"]
P = training.sized(  # (ci, lesson, paper)
    images=(100, 800, 3600),  # pictures whose masks are fused, and on which networks are trained
    tested=(60, 400, 1000),
    epochs=(6, 7, 20),
    batch_size=(10, 32, 64),
)
print(f"size {training.size()}: {P}")

# %% [markdown]
# ## 1. The idea in one picture
#
# Our pictures are digits in noise; the truth is where the clean digit was bright. Five annotators outline each: one is
# good, one draws too wide, one too thin, one too wide and with gaps, and one leaves the page blank. That is the cast of
# {cite:t}`zhang2020`. `PANELS` holds several such casts. In the first, `as_released`, the five are as bad as in the
# examples which the authors published.

# %%
digits = data.split(data.mnist5k())
few = scenes.digits(digits.train.take(torch.arange(8)), generator=seeded(0))  # images, truth, number of classes
five = draw_masks(few.truth, few.images, PANELS["as_released"], n_classes=2, generator=seeded(1))  # (N, R, H, W)
print(f"images {tuple(few.images.shape)}, truth {tuple(few.truth.shape)}, masks {tuple(five.shape)}")

# %% [markdown]
# Look at one digit, and at what the vote and STAPLE make of the five. White is right, blue was missed, orange is too much.

# %% tags=["hide-input"]
NAMES = ["good", "over", "under", "wrong", "blank"]


def against_truth(masks, n, title):
    """The picture, five drawings, the truth, two fusions."""
    vote, staple = fusion.majority(masks, 2)[n], quietly(fusion.staple, masks, 2).labels[n]
    drawn = torch.cat([masks[n], few.truth[n : n + 1], vote[None], staple[None]])
    return plots.masks(drawn, few.truth[n], [*NAMES, "truth", "vote", "STAPLE"], image=few.images[n, 0], title=title)


plots.described(
    against_truth(five, 4, "The vote is nearly right; STAPLE believes those who draw too wide"),
    "One noisy digit, five annotators, the truth, and two ways to make one mask of five. Panel as_released.",
    "Nine small pictures of one digit. Over and wrong have a wide orange rim, under is a thin white line in blue, blank "
    "is all blue. The vote is nearly all white; STAPLE has the same wide orange rim as over.",
)  # fmt: skip

# %% [markdown]
# STAPLE is the cleverer method: it weighs people by how reliable they are, and the vote does not. Here it weighed them
# wrongly. Hold on to that picture; the panel of the next sections has the same five habits, and the outcome is reversed.
#
# ## 2. Predict
#
# The second cast, `missing_foreground`, has the same five people in other moods: *over* is more careful, *wrong* leaves
# many large gaps. So three of five (under, wrong, blank) miss most of what is there.
#
# Dice is twice the overlap of two masks divided by the sum of their areas: 1 for equal masks, 0 for disjoint ones. Guess
# four, each between 0 and 1. Then guess on which panel a network will do better when it learns from STAPLE's masks.

# %%
guess = {
    ("as_released", "vote"): 0.5,
    ("as_released", "STAPLE"): 0.5,
    ("missing_foreground", "vote"): 0.5,
    ("missing_foreground", "STAPLE"): 0.5,
}

# %% [markdown]
# ## 3. The maths
#
# Masks are labels with two more axes: $\tilde y^{(r)}_{nhw}$ is what annotator $r$ says of the pixel $(h, w)$ of picture
# $n$, an array `(N, R, H, W)`. Beliefs are `(N, L, H, W)`. Everything of chapter 2 holds with *pixel* for *item*. In one
# picture, with a matrix $A^{(r)}$ for each annotator, Bayes' rule is the **E-step** of {cite:t}`warfield2004`:
#
# $$
# q_{jhw} = p(y_{hw} = j \mid \tilde y_{hw}) \;\propto\; \pi_j \prod_r A^{(r)}_{\tilde y^{(r)}_{hw},\, j} ,
# $$ (eq-ch7-e)
#
# and weighted counting over pixels is the **M-step**, which they write for two classes:
#
# $$
# A^{(r)}_{ij} = \frac{\sum_{h,w:\, \tilde y^{(r)}_{hw} = i} q_{jhw}}{\sum_{h,w} q_{jhw}} .
# $$ (eq-ch7-m)
#
# With two classes the diagonal has names that every doctor knows. With 1 for foreground,
#
# $$
# A^{(r)} = \begin{pmatrix} \text{specificity} & 1 - \text{sensitivity} \\ 1 - \text{specificity} & \text{sensitivity} \end{pmatrix} .
# $$ (eq-ch7-names)
#
# What STAPLE changes in Dawid-Skene is little:
#
# | | Dawid-Skene | STAPLE | Spatial STAPLE |
# | --- | --- | --- | --- |
# | an item is | a picture | a pixel | a pixel |
# | a matrix for each | annotator | annotator and picture | annotator, picture and neighbourhood |
# | the prior $\pi$ | counted anew each round | fixed: the share of all labels in the picture | fixed: the share in the window |
#
# Why fix $\pi$? Most pixels are background, so a prior that is counted anew may feed on itself, until the foreground is
# gone. The start is the mean label, as before. STAPLE for several classes is due to {cite:t}`rohlfing2004`; in our
# notation it is the same two equations with a larger $A$.
#
# Two assumptions are hidden in {eq}`eq-ch7-e`, and this chapter lives on them.
#
# - **No pixel knows its neighbours, and nobody looks at the picture.** Shuffle all pixels, and the answer is shuffled.
# - **Given the truth, annotators err independently.** Two people who both draw outlines too wide agree on the same wrong
#   pixels. Then {eq}`eq-ch7-e` counts one mistake as two witnesses.

# %% [markdown]
# ## 4. From scratch
#
# ### The loop over pixels
#
# Flatten one picture: 784 items, five labels each. Then it is chapter 2, with a prior that stays as it is.

# %%
def staple_slow(masks, L, rounds):
    """(R, H, W) -> beliefs (L, H, W), matrices (R, L, L)."""
    said = masks.flatten(1).T  # (H W, R)
    q = fusion.mean_label(said, L)  # (H W, L)
    prior = q.mean(0)  # (L,), and it stays
    for _ in range(rounds):
        A = count_matrices(said, q)  # M-step: (R, L, L)
        q = posterior(log(A)[None], log(prior).expand_as(q), said).exp()  # E-step: (H W, L)
    return q.T.unflatten(1, masks.shape[1:]), A


# %% [markdown]
# The library's `fusion.staple`, with as many rounds and without smoothing, gives the same:

# %%
found = quietly(lambda m, L: fusion.staple(m, L, smoothing=0), five[4], 2)
q, A = staple_slow(five[4], 2, found.iterations)
assert torch.allclose(q.float(), found.p[0], atol=1e-4) and torch.allclose(A, found.A[0], atol=1e-3)
print(f"{found.iterations} rounds over {five[4, 0].numel()} pixels")

# %% [markdown]
# ### The loop over patterns
#
# Most of these 784 items are the same: five times background. EM treats pixels of one pattern alike, because it knows
# nothing else of them. Five annotators of two classes have at most $2^5 = 32$ patterns. So run EM on the patterns that
# occur, each with the number of its pixels. Only the M-step must know the numbers.

# %%
def staple_patterns(masks, L, rounds):
    """(R, H, W) -> beliefs (L, H, W), and how many rows EM saw."""
    said, where, n = masks.flatten(1).T.unique(dim=0, return_inverse=True, return_counts=True)  # (U, R), (H W,), (U,)
    q = fusion.mean_label(said, L)  # (U, L)
    prior = (n[:, None] * q).sum(0) / n.sum()  # (L,)
    for _ in range(rounds):
        A = count_matrices(said, n[:, None] * q)  # a row counts n times
        q = posterior(log(A)[None], log(prior).expand_as(q), said).exp()  # (U, L)
    return q[where].T.unflatten(1, masks.shape[1:]), len(said)


quick, rows = staple_patterns(five[4], 2, found.iterations)
assert torch.allclose(quick, q, atol=1e-9)
print(f"the same beliefs from {rows} rows in the place of {five[4, 0].numel()} pixels")

# %% [markdown]
# A scan of a million pixels has no more rows than this digit. That is all the engineering there is in the library's
# `patterns.py`, which does it for all pictures of a stack at once.
#
# <details><summary>How long must EM run?</summary>
#
# EM slows down as it nears its end: each round goes a fixed share of what is left, and where annotators say little of each
# other that share is a thousandth. A test for small steps then stops far from the end. So the library leaps after 30
# plain rounds: from two steps it guesses where they lead (SQUAREM), and takes the leap only if the likelihood gains by
# it. `Fused.converged`, `.iterations` and `.change` tell what happened, and a warning comes if it did not settle.
#
# </details>
#
# ### A matrix for each place
#
# One matrix for a whole picture cannot say that somebody draws well on the left and badly on the right. The panel
# `by_place` is like that: two are good on the left and far too wide on the right; three see nothing on the left and are
# good on the right. By hand, Spatial STAPLE {cite:p}`asman2012` is STAPLE in each window. With two windows:

# %%
def in_halves(masks, L, **how):
    """(N, R, H, W) -> labels (N, H, W): STAPLE on the left half, and again on the right."""
    half = masks.shape[3] // 2
    parts = masks[..., :half], masks[..., half:]
    return torch.cat([quietly(lambda m, L: fusion.staple(m, L, **how).labels, part, L) for part in parts], 2)


placed = draw_masks(few.truth, few.images, PANELS["by_place"], n_classes=2, generator=seeded(2))
print("left half, Dice of STAPLE on it alone:", end=" ")
print(f"{metrics.dice(in_halves(placed, 2)[..., :14], few.truth[..., :14]).foreground:.2f}")

# %% [markdown]
# `fusion.spatial_staple` slides the window over the picture, borrows from the picture's global matrix where the window
# shows little, and blends. Section 5 measures where it helps.

# %% [markdown]
# ## 5. The experiment
#
# ### One name, several numbers: which Dice?
#
# Before you compare anything, agree on the number. Take three pictures of 10 pixels. The first has an object of 8 pixels,
# and all are found. The second has one of 2 pixels, none found. The third has nothing, and nothing is drawn.

# %%
truth3, drawn3 = torch.zeros(2, 3, 1, 10, dtype=torch.long)
truth3[0, 0, :8] = drawn3[0, 0, :8] = 1
truth3[1, 0, :2] = 1
for what, how in {"mean, empty left out": {}, "mean, empty counts 1": {"empty": 1.0}, "pooled pixels": {"pooled": True}}.items():
    print(f"{what:>21}: {metrics.dice(drawn3, truth3, **how).foreground:.3f}")
nothing = metrics.dice(0 * truth3, truth3)
print(f"an answer that is always background: foreground {nothing.foreground:.3f}, mean over both classes {nothing.macro:.3f}")
assert nothing.foreground == 0 and nothing.macro > 0.3
assert metrics.dice(drawn3, truth3).foreground == 0.5 and abs(metrics.dice(drawn3, truth3, pooled=True).foreground - 16 / 18) < 1e-6

# %% [markdown]
# Check by hand: $(1 + 0) / 2$; $(1 + 0 + 1) / 3$; $2 \cdot 8 / (8 + 10)$. One set of masks, three numbers. Pooling lets large
# objects speak for small ones; counting empty pictures rewards silence; and a mean over *both* classes pays for
# background, even when nothing at all is found. Here Dice is of the foreground, the mean over pictures, and an empty
# picture left empty counts 1 (it hardly ever happens with digits).
#
# ### Before any training
#
# Now the two panels, on all pictures. First what each annotator is worth, then what the fusions are worth.

# %%
train = scenes.digits(digits.train.take(torch.arange(P.images)), generator=seeded(10))
panels = ("as_released", "missing_foreground")
said = {name: draw_masks(train.truth, train.images, PANELS[name], n_classes=2, generator=seeded(11)) for name in panels}
FUSIONS = {
    "vote": fusion.majority,
    "STAPLE": lambda masks, L: fusion.staple(masks, L).labels,
    "Spatial STAPLE": lambda masks, L: fusion.spatial_staple(masks, L).labels,
}
fused = {(name, how): quietly(fuse, said[name], 2) for name in panels for how, fuse in FUSIONS.items()}

# %% [markdown]
# The table that should stand in every paper on this subject, before its first network:

# %% tags=["hide-input"]
def dice(drawn, truth=train.truth):
    return metrics.dice(drawn, truth, empty=1.0).foreground


lines = ["| panel | " + " | ".join([*NAMES, *FUSIONS]) + " |", "| --- |" + " --- |" * (5 + len(FUSIONS))]
for name in panels:
    scores = [dice(said[name][:, r]) for r in range(5)] + [dice(fused[name, how]) for how in FUSIONS]
    lines.append(f"| `{name}` | " + " | ".join(f"{score:.2f}" for score in scores) + " |")
Markdown("\n".join(lines))

# %% [markdown]
# Compare with your guesses:

# %%
print("guessed  measured")
for (name, how), guessed in guess.items():
    print(f"{guessed:7.2f}  {dice(fused[name, how]):8.2f}  {how} on {name}")
assert dice(fused["as_released", "STAPLE"]) < dice(fused["as_released", "vote"]) - 0.1
assert dice(fused["missing_foreground", "STAPLE"]) > dice(fused["missing_foreground", "vote"]) + 0.1

# %% [markdown]
# The winner flips with the panel. On the first the vote wins by far; on the second it loses to STAPLE. This is the digit of
# section 1 again, from the second panel:

# %% tags=["hide-input"]
other = draw_masks(few.truth, few.images, PANELS["missing_foreground"], n_classes=2, generator=seeded(1))
plots.described(
    against_truth(other, 4, "Three of five miss it: the vote does too, STAPLE does not"),
    "The same digit, outlined by the panel missing_foreground.",
    "Nine small pictures of one digit. Under, wrong and blank are mostly blue, and so is much of the vote; STAPLE is "
    "mostly white with a thin orange rim.",
)  # fmt: skip

# %% [markdown]
# ### Why
#
# The vote's case is simple. It calls a pixel foreground if three of five do. Where three miss it, nobody's skill helps.
#
# STAPLE's case needs its matrices. What did it *believe* of the five, and what is true?

# %%
def believed_and_true(name):
    """Sensitivity of each annotator: as STAPLE believes, and counted against the truth; (R,), (R,)."""
    found = quietly(fusion.staple, said[name], 2)
    pixels, one_hot = said[name].movedim(1, -1).flatten(0, 2), torch.nn.functional.one_hot(train.truth.flatten(), 2)
    return found.sensitivity[..., 1].nanmean(0), count_matrices(pixels, one_hot.double())[:, 1, 1]


for name in panels:
    print(name)
    for who, believed, true in zip(NAMES, *believed_and_true(name)):
        print(f"  {who:>6}: sensitivity believed {believed:.2f}, true {true:.2f}")

# %% [markdown]
# On `as_released` STAPLE takes *over* for the perfect one, and *good* for somebody who misses more than half. The two who draw too
# wide agree with each other on the rim, pixel after pixel, and to {eq}`eq-ch7-e` two who agree are two witnesses. How far
# are they from independent? If they were, knowing what *over* says of a background pixel would tell nothing of *wrong*:

# %%
background = train.truth == 0
for name in panels:
    over, wrong = said[name][:, 1][background], said[name][:, 3][background]
    print(f"{name}: 'wrong' marks {wrong.double().mean():.2f} of the background, "
          f"but {wrong[over == 1].double().mean():.2f} of the background that 'over' marks")  # fmt: skip

# %% [markdown]
# In the second panel it is the same in kind, only *wrong* has so many gaps that the two seldom meet. So the rule of thumb:
#
# - if most people **miss** things, the vote is lost, and STAPLE may be saved by the few who see, if they are at least two;
# - if several people **add** the same things, STAPLE is lost, and the vote holds as long as they are fewer than half.
#
# ### Where Spatial STAPLE wins
#
# The panel `by_place` of section 4, on all pictures. Windows of several sizes; and STAPLE in two halves, once with
# matrices of each picture, and once *pooled*: one matrix for an annotator and a half, counted over all pictures.

# %%
placed = draw_masks(train.truth, train.images, PANELS["by_place"], n_classes=2, generator=seeded(12))
found = quietly(fusion.spatial_staple, placed, 2)
by_window = {w: dice(quietly(lambda m, L, w=w: fusion.spatial_staple(m, L, window=w).labels, placed, 2)) for w in (15, 27)}
print(f"vote {dice(fusion.majority(placed, 2)):.2f}, STAPLE {dice(quietly(fusion.staple, placed, 2).labels):.2f}, "
      f"Spatial STAPLE (window 9) {dice(found.labels):.2f}")  # fmt: skip
print("other windows:", {w: round(score, 2) for w, score in by_window.items()})
print(f"two halves {dice(in_halves(placed, 2)):.2f}, two halves pooled {dice(in_halves(placed, 2, pooled=True)):.2f}")

# %% [markdown]
# Each window finds out for itself who can be trusted there. This is what Spatial STAPLE believes of the sensitivities
# and specificities, averaged over the pictures:

# %% tags=["hide-input"]
weight = found.prior.unbind(1)  # (N, h, w) twice: how much of each class a window shows
# found.A is (N, R, L, L, h, w): one matrix for each window
by_place = torch.stack([(found.A[:, :, k, k] * weight[k][:, None]).sum(0) / weight[k].sum(0) for k in (1, 0)])  # (2, R, h, w)
fig = Figure(figsize=(5, 3.1), layout="constrained")
fig.suptitle("Whom to trust depends on the place", x=0.01, ha="left", weight="bold")
for k, (row, what) in enumerate(zip(fig.subplots(2, 5), ("sensitivity", "specificity"))):
    for r, ax in enumerate(row):
        shade = ax.imshow(by_place[k, r], cmap="cividis", vmin=0, vmax=1, interpolation="nearest")
        ax.set(title=f"no. {r + 1}" if k == 0 else "", ylabel=what if r == 0 else "", xticks=[], yticks=[])
fig.colorbar(shade, ax=fig.axes, location="bottom", ticks=[0, 0.5, 1], label="as Spatial STAPLE believes")
plots.described(
    fig,
    f"Five annotators, panel by_place, each window weighted by how much it shows of the class. Mean over {P.images} "
    f"pictures (size {training.size()}).",
    "Two rows of five small maps. Sensitivity: annotators 1 and 2 bright everywhere; 3 to 5 dark on the left and bright "
    "right of the middle. Specificity: 1 and 2 darker on the right, 3 to 5 bright everywhere.",
)  # fmt: skip

# %% [markdown]
# Three to five are found out on the left, where they see nothing. One and two are found out on the right only in part: the
# two add the same rim, and that is the trap of `as_released` again, now in windows.
#
# Smaller windows know more of the place and less of everything else: few pixels must pay for five matrices. The winner
# is whoever was *told* what the matrix depends on, here the half of the picture and not the picture. Nobody tells you
# that with real data; chapter 8 lets a network find it out. Look back at the table, too: there nobody's habits depend on
# the place, and still Spatial STAPLE differs from STAPLE. It can stand between STAPLE and the vote, or ahead of both.
#
# ### Does better fusion make a better network?
#
# Masks are a means. Three small U-Nets for each panel learn from the truth, from the vote, from STAPLE: the same
# pictures, the same first weights, the same order. This is the training cell of the chapter; it checks that parameters
# and loss live on the device it names.

# %% tags=["training"]
labels = {(name, how): fused[name, how] for name in panels for how in ("vote", "STAPLE")} | {("both", "truth"): train.truth}
device, nets = training.pick_device(), {}
for key, mask in labels.items():
    nets[key] = Vanilla(networks.unet(1, 2, generator=seeded(0)))
    seen = Annotations(train.images, mask[:, None], n_classes=2)
    history = training.fit(nets[key], seen, epochs=P.epochs, batch_size=P.batch_size, lr=1e-2)
    assert all(parameter.device.type == device.type for parameter in nets[key].parameters())
    assert history.device.startswith(device.type)
print(history)

# %% [markdown]
# Unseen pictures, in other noise. The network sees the picture, and needs no annotator any more.

# %%
test = scenes.digits(digits.test.take(torch.arange(P.tested)), generator=seeded(13))
learned = {key: dice(training.predict(net, test.images), test.truth) for key, net in nets.items()}
for (name, how), score in learned.items():
    print(f"{name:>18}, {how:>6}: masks {dice(labels[name, how]):.2f}, network {score:.2f}")


# %% [markdown]
# A network repeats what it was shown, habits included: it learns STAPLE's wide rims as faithfully as the vote's gaps. On
# each panel, the better masks make the better network:

# %%
def outcome(sentence, seen):
    print(f"{'seen' if seen else 'your run differed'}: {sentence}")


outcome("as_released: the network on the vote is better", learned["as_released", "vote"] > learned["as_released", "STAPLE"] + 0.05)
outcome("missing_foreground: the network on STAPLE is better", learned["missing_foreground", "STAPLE"] > learned["missing_foreground", "vote"] + 0.05)

# %% [markdown]
# One draw of annotators is an anecdote. The next table and figure are drawn from results that ship with the course
# (`course run mask-fusion`, `course run masks-as-released`, `course run masks-missing-foreground`, each with
# `--seeds 5`): five draws, each with new noise, new masks, new weights. First the masks themselves, on all panels of five.

# %% tags=["hide-input"]
shipped = lambda name: experiments.read(data.shipped(f"results/{name}.lesson.json"))  # noqa: E731
masks5 = shipped("mask-fusion")
ways = ["vote", "staple", "staple_pooled", "spatial_staple"]
settings = sorted({(row["setting"]["scene"], row["setting"]["annotators"]) for row in masks5["rows"]})
lines = ["| pictures | panel | " + " | ".join(way.replace("_", " ") for way in ways) + " |", "| --- |" * 2 + " --- |" * 4]
for scene, panel in settings:
    scores = [plots.interval(experiments.values(masks5, way, "dice", scene=scene, annotators=panel)) for way in ways]
    best = max(mean for mean, _ in scores)
    cells = [f"{'**' * (mean == best)}{mean:.3f}{'**' * (mean == best)} ± {half:.3f}" for mean, half in scores]
    lines.append(f"| {scene} | `{panel}` | " + " | ".join(cells) + " |")
Markdown("\n".join(lines).replace("| --- || --- |", "| --- | --- |"))

# %% [markdown]
# Foreground Dice, mean and 95 % interval over the draws, the best of each line in bold. No column is best throughout. That
# is the result: there is no best fusion, only a fusion that fits how people err. Now the networks.

# %% tags=["hide-input"]
METHODS = ["truth", "mode_label", "mean_label", "separate", "staple", "spatial_staple"]
runs = {name: shipped("masks-" + name.replace("_", "-")) for name in panels}
plots.described(
    plots.bars_with_spread(runs["as_released"]["rows"], "dice", METHODS, model="staple", xlabel="Dice on unseen pictures",
                           title="as_released: the vote teaches better than STAPLE"),
    f"Networks trained on masks of the panel as_released. A dot is a draw, the line is the 95 % interval. mode label is "
    f"the vote, mean label all five masks at once, separate the mean of five networks. Size {runs['as_released']['size']}.",
)  # fmt: skip

# %% tags=["hide-input"]
plots.described(
    plots.bars_with_spread(runs["missing_foreground"]["rows"], "dice", METHODS, model="staple", xlabel="Dice on unseen pictures",
                           title="missing_foreground: the other way round"),
    f"The same six for the panel missing_foreground. Size {runs['missing_foreground']['size']}.",
)  # fmt: skip

# %% [markdown]
# Draw by draw, the same pictures and first weights:

# %%
def paired(name, method, other):
    gap = experiments.values(runs[name], method, "dice") - experiments.values(runs[name], other, "dice")
    mean, half = plots.interval(gap)
    return f"{name}: {method} - {other} {mean:+.3f} ± {half:.3f}, ahead in {(gap > 0).sum()} of {len(gap)} draws"


for name in panels:
    print(paired(name, "staple", "mode_label"))
    print(paired(name, "spatial_staple", "staple"))

# %% [markdown]
# ### Real masks
#
# Two sets which no one simulated. *LIDC*: 888 lung nodules, each outlined by four radiologists {cite:p}`armato2011`; they
# ship with the course (CC BY 3.0). But the four are anonymous, and others from scan to scan. Column 2 is a slot, not a
# person, so a matrix for each *picture* makes sense, and a pooled one does not; chapter 12 is about them. *CHASE_DB1*: the
# vessels of 28 retinas, drawn by two observers {cite:p}`fraz2012`. It is free (CC BY 4.0) from Kingston University's
# research data, item 96; put it where `COURSE_DATA` points. Without it the next cell is skipped.

# %%
try:
    retina = observers.chase_db1(shrink=4).masks  # (28, 2, H, W)
    print(f"CHASE_DB1: Dice of the two observers {metrics.pairwise_dice(retina)[0, 1]:.2f}")
    for how in ("vote", "STAPLE"):
        one = quietly(FUSIONS[how], retina, 2)
        share = [torch.equal(a, b) for a, b in zip(one, retina.min(1).values)]
        print(f"{how:>8}: equal to what both marked in {sum(share)} of {len(share)} pictures")
except FileNotFoundError as error:
    print(f"skipped: {str(error).split('. ')[0]} (course_lib.observers says how to get it)")

# %% [markdown]
# What can be fused with two? Where they agree there is nothing to do; where they differ, nobody is there to tell who is
# right. A vote settles every tie by a rule (ours: the lower class, background). EM has more unknowns than equations
# (exercise 2.4), and settles it by its start and its prior. Neither is knowledge. With two, report their agreement: it is
# also as much as you may ask of a network.

# %%
nodules = lidc.nodules().masks[::4]  # (222, 4, 64, 64)
pairs = metrics.pairwise_dice(nodules)
print(f"LIDC: Dice of two slots {pairs[~torch.eye(4, dtype=torch.bool)].mean():.2f}; area beside the mean reader's:")
for how, fuse in {**FUSIONS, "STAPLE in a box": lambda m, L: fusion.staple(m, L, box=True).labels}.items():
    print(f"{how:>16}: {quietly(fuse, nodules, 2).sum() / nodules.double().sum(dim=(0, 2, 3)).mean():.2f}")

# %% [markdown]
# With four readers who are all good, all fusions nearly agree. What differs is the *area*: a vote settles its many
# two-to-two ties for the background, and STAPLE's answer grows with the background that it is shown (section 6). A tumour
# is measured by its area, so this is no small thing.
#
# ## 6. Break it
#
# ### One label a picture
#
# Show each picture to one annotator only. Nobody is compared with anyone.

# %%
single = draw_masks(train.truth, train.images, PANELS["as_released"], n_classes=2, per_item=1, generator=seeded(14))
with warnings.catch_warnings(record=True) as raised:
    warnings.simplefilter("always")
    found = fusion.staple(single, 2)
print(raised[0].message)
assert torch.equal(found.labels, single.max(1).values)  # -1 where somebody did not draw: the largest is the label

# %% [markdown]
# STAPLE returned every label as it came. So did Spatial STAPLE, had we asked it: fusing one mask is the identity, for any
# method that fuses picture by picture. (Over *all* pictures a network can still compare: chapter 8.)
#
# ### Mistakes that go together
#
# Is it really the dependence that ruins STAPLE on `as_released`, or are these people just bad? Test it: keep everybody's
# matrix, and roll dice for each pixel on its own. Sensitivities and specificities are then the same as before; only that
# they err *together* is gone.

# %%
drawn = said["as_released"]
pixels, one_hot = drawn.movedim(1, -1).flatten(0, 2), torch.nn.functional.one_hot(train.truth.flatten(), 2)
A = count_matrices(pixels, one_hot.double())  # (R, L, L): the true matrices
rolled = annotators.annotate(train.truth.flatten(), A.float(), generator=seeded(15))  # (N H W, R)
rolled = rolled.unflatten(0, train.truth.shape).movedim(-1, 1)  # (N, R, H, W)
for what, masks in {"as drawn": drawn, "rolled": rolled}.items():
    vote, staple = (dice(quietly(FUSIONS[how], masks, 2)) for how in ("vote", "STAPLE"))
    print(f"{what:>8}: vote {vote:.3f}, STAPLE {staple:.3f}")
assert dice(quietly(FUSIONS["STAPLE"], drawn, 2)) < dice(fused["as_released", "vote"]) - 0.1 and staple > vote + 0.02

# %% [markdown]
# The same people, on paper. With independent mistakes STAPLE is nearly perfect, and better than the vote; with common ones
# it is far worse. A table of sensitivities cannot tell you which case is yours. The library looks for signs, and warns:

# %%
with warnings.catch_warnings(record=True) as raised:
    warnings.simplefilter("always")
    fusion.staple(drawn, 2)
for warning in raised:
    print(warning.message)
assert raised

# %% [markdown]
# ### The background decides
#
# A picture can be cropped near the object or far from it. Nothing about the object changes. Nested discs first, then five
# people with trembling hands, on canvases with more and more background:

# %%
y, x = torch.meshgrid(torch.arange(20) - 10, torch.arange(20) - 10, indexing="ij")
discs = torch.stack([(y**2 + x**2 <= radius**2).long() for radius in (2, 4, 7)])[None]  # (1, R, H, W)
disc = (y**2 + x**2 <= 36).long()[None]
hands = draw_masks(disc, disc[:, None].float(), [faithful(2.0)] * 5, n_classes=2, generator=seeded(1))
print("background added   discs: area, middle one's sensitivity   hands: area   hands in a box: area")
for more in (0, 10, 40, 100):
    a, b = (torch.nn.functional.pad(masks, (more,) * 4) for masks in (discs, hands))
    nested, free, boxed = (fusion.staple(masks, 2, box=box) for masks, box in ((a, False), (b, False), (b, True)))
    print(f"{more:16} {nested.labels.sum():14} {nested.sensitivity[0, 1, 1]:22.2f} {free.labels.sum():18} {boxed.labels.sum():14}")
    assert torch.equal(boxed.labels, torch.nn.functional.pad(fusion.staple(hands, 2, box=True).labels, (more,) * 4))

# %% [markdown]
# Background on which all agree makes everybody look specific: $A_{00}$ goes to 1. Then marking a pixel becomes a strong
# argument, not marking it a weak one, and the answer grows. The discs keep their area (the middle one wins), but what is
# believed of the middle one moves; the trembling hands' answer grows. With `box=True` EM sees only the rectangle round
# all that anybody marked, and padding changes nothing. Say in your report which of the two you used.
#
# ### Nothing marked, and ties
#
# Real data hold pictures in which nobody marks anything, and labels such as $\{0, 2\}$ with no 1 in between. Here is what
# our functions say:

# %%
with warnings.catch_warnings(record=True) as heard:
    warnings.simplefilter("always")
    empty = fusion.staple(torch.zeros(3, 8, 8, dtype=torch.long), 2)
    tied = torch.zeros(2, 6, 6, dtype=torch.long)  # two annotators, labels 0 and 2, many ties
    tied[0, 1:4, 1:4] = tied[1, 2:5, 2:5] = 2
    found = fusion.staple(tied, 3)
assert torch.isfinite(empty.p).all() and (empty.labels == 0).all() and empty.sensitivity[0, :, 1].isnan().all()
assert torch.isfinite(found.p).all() and set(found.labels.unique().tolist()) == {0, 2}
print(f"empty: foreground {empty.labels.sum()}, sensitivity {empty.sensitivity[0, 0, 1]}; ties: classes {found.labels.unique().tolist()}")
print("and both times it warns:", heard[0].message)

# %% [markdown]
# A sensitivity for a class that nobody ever said is `nan`, honestly; the *answer* is always one of the classes. Other
# programs choose otherwise. If SimpleITK is installed, ask it:

# %%
try:
    import numpy as np
    import SimpleITK as sitk

    as_itk = lambda masks: [sitk.GetImageFromArray(m.numpy().astype("uint8")) for m in masks]  # noqa: E731
    blank = sitk.GetArrayFromImage(sitk.STAPLE(as_itk(torch.zeros(3, 8, 8)), 1.0))
    several = sitk.GetArrayFromImage(sitk.MultiLabelSTAPLE(as_itk(tied)))
    print(f"nothing marked: {np.unique(blank)}; labels 0 and 2: {np.unique(several)}")
except ImportError:
    print("skipped: pip install SimpleITK")

# %% [markdown]
# Version 2.5 answers `nan` for the blank pictures, and for the ties a new label, 3 ("undecided"; one can set which). A loss
# function that meets either stops your training, at best. Look at `unique()` of every fused mask before you train on it.
#
# ## 7. Exercises
#
# Write your answer into the cell that says `NotImplementedError`, then run the check below it.
#
# ```{exercise} Dice, with the rule for empty masks (★, 10 minutes)
# :label: ex-ch7-dice
#
# Exercise 7.1. `predicted` and `truth` are (N, H, W) of 0 and 1. Return the mean over pictures of the foreground Dice, one
# number. A picture in which both are empty counts 1.
# ```

# %% tags=["stub"]
def mean_dice(predicted, truth):
    """(N, H, W), (N, H, W) -> a number."""
    raise NotImplementedError


# %% [markdown]
# <details><summary>Hint 1: a nudge</summary>
#
# Along which axes do you sum, so that one number is left for each picture?
#
# </details>
# <details><summary>Hint 2: the formula</summary>
#
# $2\,|P \cap T| / (|P| + |T|)$ for each picture. Where the denominator is 0, both are empty.
#
# </details>
# <details><summary>Hint 3: the shape of the code</summary>
#
# `both = (predicted * truth).sum((1, 2))`, `total = ...`, `torch.where(total > 0, ?, 1.0).mean()`.
#
# </details>

# %% tags=["check", "raises-exception"]
checks.mean_dice(mean_dice)


# %% tags=["solution", "hide-cell"] jupyter={"source_hidden": true}
def mean_dice(predicted, truth):
    """(N, H, W), (N, H, W) -> a number."""
    both = (predicted * truth).sum((1, 2))  # (N,)
    total = predicted.sum((1, 2)) + truth.sum((1, 2))
    return torch.where(total > 0, 2 * both / total.clamp(min=1), 1.0).mean()


checks.mean_dice(mean_dice)

# %% [markdown]
# **What you should see, and why.** Without the rule the third picture of section 5 is 0 / 0, and one `nan` in a mean makes
# the mean `nan`. Whichever rule you take, write it down; on data with many empty pictures the rule *is* the result.
#
# ```{exercise} The M-step on patterns (★★, 15 minutes)
# :label: ex-ch7-mstep
#
# Exercise 7.2. `table` (U, R) holds the patterns that occur, `n` (U,) how many pixels have each, `q` (U, L) the belief
# about each. Return the matrices of {eq}`eq-ch7-m`, (R, L, L), said before truth, without using `count_matrices`. Every
# class is believed in somewhere.
# ```

# %% tags=["stub"]
def pattern_matrices(table, n, q):
    """(U, R), (U,), (U, L) -> (R, L, L)."""
    raise NotImplementedError


# %% [markdown]
# <details><summary>Hint 1: a nudge</summary>
#
# A pattern that n pixels have is n rows of the long table. What does each of them add to the counts?
#
# </details>
# <details><summary>Hint 2: the formula</summary>
#
# $c^{(r)}_{ij} = \sum_{u:\, \text{table}_{ur} = i} n_u\, q_{uj}$, and then each column divided by its sum.
#
# </details>
# <details><summary>Hint 3: the shape of the code</summary>
#
# `weight = n[:, None] * q`, then `weight[table[:, r] == i].sum(0)` is row i of annotator r's counts.
#
# </details>

# %% tags=["check", "raises-exception"]
checks.pattern_matrices(pattern_matrices)


# %% tags=["solution", "hide-cell"] jupyter={"source_hidden": true}
def pattern_matrices(table, n, q):
    """(U, R), (U,), (U, L) -> (R, L, L)."""
    weight, L = n[:, None] * q, q.shape[1]  # (U, L)
    counts = torch.stack(
        [torch.stack([weight[table[:, r] == i].sum(0) for i in range(L)]) for r in range(table.shape[1])]
    )
    return counts / counts.sum(1, keepdim=True)


checks.pattern_matrices(pattern_matrices)

# %% [markdown]
# **What you should see, and why.** Forget the counts, and the pattern "all say background", which most pixels have, weighs
# no more than a pattern of one pixel. The E-step needs no counts: a belief is a belief, however many share it.
#
# ```{exercise} Blind to thin strokes (★★, 15 minutes)
# :label: ex-ch7-thin
#
# Exercise 7.3. Write an annotator who errs only where strokes are thin. `truth` is (N, H, W) of 0 and 1. Return what is left
# of it where a square of 3 x 3 pixels fits: all pixels that lie in such a square of foreground, and nothing else. What
# lies outside the picture does not matter: a square may reach over the edge.
# ```

# %% tags=["stub"]
def thick_only(truth):
    """(N, H, W) -> (N, H, W)."""
    raise NotImplementedError


# %% [markdown]
# <details><summary>Hint 1: a nudge</summary>
#
# First find the middles of the squares that fit, then draw the squares.
#
# </details>
# <details><summary>Hint 2: the formula</summary>
#
# The first is the minimum over 3 x 3 pixels (an erosion), the second the maximum (a dilation). Together: an opening.
#
# </details>
# <details><summary>Hint 3: the shape of the code</summary>
#
# `grow = lambda x: torch.nn.functional.max_pool2d(x, 3, stride=1, padding=1)` is the maximum, and minus the maximum of
# minus x is the minimum. It wants floats; give back integers with `.long()`.
#
# </details>

# %% tags=["check", "raises-exception"]
checks.thick_only(thick_only)


# %% tags=["solution", "hide-cell"] jupyter={"source_hidden": true}
def thick_only(truth):
    """(N, H, W) -> (N, H, W)."""
    grow = lambda x: torch.nn.functional.max_pool2d(x, 3, stride=1, padding=1)  # noqa: E731  (the padding never wins)
    middles = -grow(-truth.float())
    return grow(middles).long()


checks.thick_only(thick_only)
blind = thick_only(train.truth)  # (N, H, W)
print(f"marks {(blind & train.truth).sum() / train.truth.sum():.0%} of the foreground, and {(blind > train.truth).sum()} pixels too much")
for good, bad in ((1, 2), (2, 3)):
    crowd = torch.stack([train.truth] * good + [blind] * bad, 1)
    print(f"{good} good, {bad} blind:", {how: round(dice(quietly(FUSIONS[how], crowd, 2)), 2) for how in ("vote", "STAPLE")})

# %% [markdown]
# **What you should see, and why.** Most vote for missing thin strokes, so the vote misses them. One good annotator against
# two is not believed by STAPLE either: what one person marks alone looks like that person's mistake. Two against three
# are believed, since it would be odd if two marked the same pixels by chance. (And two who *copy*, or draw too wide
# together, are believed just so.) One number for a whole picture hides what goes on here: the sensitivity of the blind is
# 1 in thick strokes and 0 in thin ones. A matrix for each pixel can say that.
#
# ```{exercise} Two panels (★★★, 25 minutes)
# :label: ex-ch7-panels
#
# Exercise 7.4. Design two panels of five annotators each, from the parts of `course_lib.mask_annotators` (`faithful`,
# `over`, `under`, `fractured`, `where`, ...). With the first, STAPLE must beat the vote by at least .1 of Dice on digits;
# with the second it must lose by at least .1. Nobody may be useless: each annotator's own Dice must be at least .3.
# `design()` returns the two lists. The score is the smaller of the two gaps.
# ```

# %% tags=["stub"]
def design():
    """-> (five annotators, five annotators)."""
    raise NotImplementedError


# %% [markdown]
# <details><summary>Hint 1: a nudge</summary>
#
# The rule of thumb in section 5 names one kind of mistake for each.
#
# </details>
# <details><summary>Hint 2: the formula</summary>
#
# First: three who miss much, each something else or the same, and one or two who are good. Second: two who add the same
# rim, and three who do not.
#
# </details>
# <details><summary>Hint 3: the shape of the code</summary>
#
# `from course_lib.mask_annotators import faithful, over, under` inside of the function, then
# `return [faithful(0.3), faithful(0.3), under(), ?, ?], [faithful(), faithful(0.3), under(), ?, ?]`.
#
# </details>

# %% tags=["check", "raises-exception"]
checks.two_panels(design)


# %% tags=["solution", "hide-cell"] jupyter={"source_hidden": true}
def design():
    """-> (five annotators, five annotators)."""
    from course_lib.mask_annotators import faithful, over, under

    missing = [faithful(0.3), faithful(0.3), under(), under(), under()]
    adding = [faithful(), faithful(0.3), under(), over(2, 2), over(2, 2)]
    return missing, adding


checks.two_panels(design)

# %% [markdown]
# **What you should see, and why.** Three who draw too thin miss the same rim, and the vote with them; STAPLE believes the
# two others, whose agreement on that rim would be odd if it were wrong. Two who draw too wide agree on *their* rim, and
# STAPLE believes them by the same argument. One assumption, two faces.
#
# ## 8. What the paper claims and what we measured
#
# Drawn from `book/claims.yaml` and the committed results, never typed.

# %% tags=["hide-input"]
tables = [claims.table("000", experiment=name) for name in ("mask-fusion", "masks-as-released", "masks-missing-foreground")]
head, rows = tables[0].splitlines()[:2], [line for table in tables for line in table.splitlines()[2:]]
Markdown("\n".join(head + rows))

# %% [markdown]
# The paper's panel is described in words, its severities are not given. `as_released` was fitted to the Dice of the
# authors' published examples, `missing_foreground` was made so that the vote fails. A verdict here says on which of the
# two a claim shows.
#
# ## 9. Three questions
#
# <details><summary>1. STAPLE gives one of your five readers a sensitivity of 1.00. Do you congratulate?</summary>
#
# Look at the area first. Whoever draws the largest outline contains all the others, and is never seen to miss anything. The
# price is in the specificity, where it hardly shows, because background is large.
#
# </details>
#
# <details><summary>2. You fuse a stack of 100 slices, with a matrix for each slice or one for all (`pooled`). What do you
# gain and lose?</summary>
#
# Pooling pays for the matrices with a hundred times the pixels, and a slice in which nobody marked anything is no problem
# any more. It loses whoever tires in the middle. And it makes no sense if slot 2 is another person on each slice.
#
# </details>
#
# <details><summary>3. Your network reaches a Dice of .82 against the fused masks; two readers agree with each other at .78.
# Is it better than a reader?</summary>
#
# You cannot say. Against a mask that is a mean of readers, a careful mean does better than any reader does against another
# reader: the mean has fewer mistakes of its own, and shares those of the readers. Compare each reader and the network with
# the fusion of the *other* readers.
#
# </details>
#
# ## 10. Further reading, and errata found
#
# - STAPLE, where sensitivity and specificity come in: {cite:t}`warfield2004`; for several classes, {cite:t}`rohlfing2004`.
# - Performance that changes from place to place: {cite:t}`asman2012`.
# - One network for the truth and one for each annotator's mistakes, pixel by pixel: {cite:t}`zhang2020`, the next chapter.
#
# **Errata** in {cite:t}`zhang2020`, as a draft.
#
# - Table 1 has STAPLE above the vote (78.0 against 62.9). On the examples that the authors published with their code, the
#   order is the other way round; the panel `as_released` has their Dice, and section 5 shows why.
# - Table 2 has 54.1 for STAPLE with *one label a picture*, and 32.8 for training on the labels as they are. STAPLE of one
#   mask is that mask (section 6), so fusion of each picture cannot make the difference; what was fused is not said.
# - The public code averages the Dice of the background in. An answer of background everywhere then gets nearly half of
#   all points (section 5).
#
# **Next.** Chapter 8 lets a matrix depend on the annotator, the picture and the pixel, with a network to say how.
