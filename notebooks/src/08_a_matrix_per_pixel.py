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
# # 8. A confusion matrix per pixel
#
# *Core chapter.* People who outline things do not err evenly. They err at the rim, in thin strokes, on one kind of picture.
# {cite:t}`zhang2020` give every annotator a confusion matrix at every pixel of every picture, and let a network say what
# is in it. This chapter builds that model, trains it on five masks a picture and on one, and finds one line of its loss
# that has to change before it works.
#
# **You will be able to**
#
# - write the loss of a label at a pixel, and compute it without forming a single product $A p$;
# - say what a sum over annotators forgets, and score all labels of a pixel together instead;
# - start the matrices at the identity, and measure them where they exist: in the true class's column;
# - notice without a truth that a run is lost.
#
# **You need to know** chapter 3 (the trace, the identity start) and chapter 7 (masks, Dice, STAPLE, the panels).
#
# **Time** about two hours with the exercises (an estimate), of which the computer needs the seconds below.
#
# **Data** digits in noise {cite:p}`lecun1998`, outlined by simulated annotators after {cite:t}`zhang2020`. They ship with
# the course.

# %%
try:
    import math
    import warnings

    import numpy as np
    import torch
    from IPython.display import Markdown
    from matplotlib.figure import Figure

    import course_lib.checks.pixels as checks
    from course_lib import book, confusion, data, experiments, fusion, metrics, networks, plots, scenes, training
    from course_lib.annotations import Annotations
    from course_lib.diagnose import collapse_warnings
    from course_lib.experiments import claims
    from course_lib.experiments.masks import quietly
    from course_lib.experiments.pixels import suspicious
    from course_lib.mask_annotators import PANELS, draw_masks, target_columns
    from course_lib.methods.pixels import Pixels
    from course_lib.methods.trace import Vanilla
    from course_lib.networks import seeded
    from course_lib.pixel_cms import HeardRows, PixelCM, true_columns
except ImportError as error:
    import sys

    raise SystemExit(
        f"{error}: this notebook runs on {sys.executable}, where the course is not installed. In a terminal, in the "
        f'folder that holds pyproject.toml, type\n\n    "{sys.executable}" -m pip install -e .\n\nand restart the kernel.'
    ) from None

# %% tags=["card", "hide-input"]
book.card(8)

# %% [markdown]
# As in every chapter, `COURSE_SIZE` picks a column of the next table.

# %% tags=["parameters"]
P = training.sized(  # (ci, lesson, paper)
    images=(100, 800, 3600),  # pictures that the networks learn from
    tested=(40, 200, 1000),
    epochs=(4, 6, 20),
    batch_size=(5, 32, 64),
    starts=(1, 3, 5),  # seeds of the matrices that do not start at the identity
)
print(f"size {training.size()}: {P}")

# %% [markdown]
# ## 1. The idea in one picture
#
# One digit of chapter 7, and its second panel: one annotator is good, one draws too wide, one too thin, one leaves large
# gaps, one leaves the page blank. Let each draw it once, and then 32 times. The first is what you get as data. The second
# is what you would like to know: how often each *says foreground* of each pixel.

# %%
NAMES = ["good", "over", "under", "wrong", "blank"]
panel = PANELS["missing_foreground"]
digits = data.split(data.mnist5k())
few = scenes.digits(digits.train.take(torch.arange(8)), generator=seeded(0))  # images, truth, number of classes
image, truth = few.images[4:5], few.truth[4:5]
once = draw_masks(truth, image, panel, n_classes=2, generator=seeded(1))[0]  # (R, H, W)
often = target_columns(truth, image, panel, n_classes=2, draws=32, generator=seeded(2))[0]  # (R, L, H, W)
print(f"one drawing each {tuple(once.shape)}, p(said | truth) {tuple(often.shape)}")


# %% tags=["hide-input"]
def maps(rows, title, caption, alt, label="probability"):
    """Lines of five small maps: rows {name: (5, H, W)}."""
    fig = Figure(figsize=(5, 1.0 * len(rows) + 1.1), layout="constrained")
    fig.suptitle(title, x=0.01, ha="left", weight="bold")
    axes = fig.subplots(len(rows), 5, squeeze=False)
    for k, (name, values) in enumerate(rows.items()):
        for r, ax in enumerate(axes[k]):
            shade = ax.imshow(values[r], cmap="cividis", vmin=0, vmax=1, interpolation="nearest")
            ax.set(title=NAMES[r] if k == 0 else "", ylabel=name if r == 0 else "", xticks=[], yticks=[])
    fig.colorbar(shade, ax=axes, location="bottom", ticks=[0, 0.5, 1], label=label)
    return plots.described(fig, caption, alt)


maps(
    {"drawn once": once, "p(marks)": often[:, 1]},
    "Where somebody errs is not everywhere",
    "One digit and five annotators, panel missing_foreground. Above: one drawing each. Below: how often each marks a "
    "pixel, over 32 drawings.",
    "Two rows of five small maps. Good: the digit, unsure at the rim. Over: a wide digit, unsure in the outer rim. Under: "
    "only the middle of strokes. Wrong: the digit in pieces above, an even half-bright digit below. Blank: nothing.",
)

# %% [markdown]
# Below stands one column of each pixel's matrix: the column of its *true* class, $(1 - p, p)$ with two classes. Inside of
# the digit, bright means right. Outside, bright means wrong.
#
# One matrix for the whole picture can only say the mean of such a map. How much does it leave unsaid? Split the
# pixels by how deep they lie. `rim` is background that touches the digit, `edge` is foreground that touches background.

# %%
near = lambda x: torch.nn.functional.max_pool2d(x.float(), 3, stride=1, padding=1) > 0  # noqa: E731
inside, outside = truth[0] == 1, truth[0] == 0
parts = {"far": ~near(truth)[0], "rim": near(truth)[0] & outside, "edge": near(1 - truth)[0] & inside, "deep": ~near(1 - truth)[0]}
print("marks        " + "".join(f"{name:>8}" for name in ["outside", *parts, "inside"]))
for r, name in enumerate(NAMES):
    shares = [often[r, 1][where].mean() for where in (outside, *parts.values(), inside)]
    print(f"{name:>10}   " + "".join(f"{share:8.2f}" for share in shares))
assert often[1, 1][parts["rim"]].mean() > often[1, 1][parts["far"]].mean() + 0.5

# %% [markdown]
# The outer columns are all that one matrix can hold: a specificity and a sensitivity. *Over* has a decent specificity, and
# it is a mean of 1 far away and nearly 0 at the rim. *Under* is right deep inside and wrong at the edge. Whoever knows the
# four inner columns will not be fooled at the rim.
#
# ## 2. Predict
#
# Here is what will be trained, on this panel, always with the same small U-Net. Guess the Dice on unseen pictures, each
# between 0 and 1. A network that is trained on the truth reaches about .9.

# %%
guess = {
    "vote": 0.5,  # the network learns from the vote
    "STAPLE": 0.5,  # from STAPLE's masks
    "pixel, printed": 0.5,  # a matrix a pixel, each label scored on its own, as the paper prints it
    "pixel, together": 0.5,  # the same, with all labels of a pixel scored together
    "pixel, one label": 0.5,  # each picture shown to one annotator only
}

# %% [markdown]
# And write down: which of the five do you expect to mark too *much*? In this panel one annotator of five does.
#
# ## 3. The maths
#
# ### What is said at a pixel
#
# Let $x$ be a picture, $y_{hw}$ the truth at pixel $(h, w)$, $\tilde y^{(r)}_{hw}$ what annotator $r$ says of it. The model of
# {cite:t}`zhang2020` is chapter 3's, with a matrix for each pixel of each picture:
#
# $$
# p(\tilde y^{(r)}_{hw} = i \mid x) = \sum_j A^{(r)}_{ij}(x, h, w)\; p_j(x, h, w) .
# $$ (eq-ch8-said)
#
# This is their Eq. 2; $p$ comes from a segmentation network, $A$ from further layers (their Fig. 1). They call the truth
# $y$, say "said" and "truth" in the same order as this book, and count pixels $(w, h)$.
#
# ### The loss, as printed
#
# Their Eqs. 3 and 4 sum over annotators, and put the trace *inside* of the sum over labels that exist:
#
# $$
# \sum_n \sum_{r \,\in\, S(x_n)} \Bigl[ \mathrm{CE}\bigl(A^{(r)} p,\ \tilde y^{(r)}\bigr) + \lambda \operatorname{tr} A^{(r)} \Bigr] .
# $$ (eq-ch8-printed)
#
# That is a gain over chapter 3's paper: whoever labels little is not shrunk more. Ours is the mean
# over observed labels in the place of the sum. At one pixel, cross-entropy reads one row of the matrix:
#
# $$
# -\log (A^{(r)} p)_{\tilde y} = -\operatorname{logsumexp}_j \bigl( \log A^{(r)}_{\tilde y, j} + \log p_j \bigr) .
# $$ (eq-ch8-row)
#
# ### The loss, together
#
# Equation {eq}`eq-ch8-printed` sums over the truth once for *each annotator*, as if each had a truth of their own. Their
# Eq. 1 says why: labels are taken to be independent given the picture. But the picture is noisy. Where it leaves the truth
# open, two good annotators agree with each other, and that is because of the truth. What is plausible is independence given
# picture *and truth*. Then there is one sum for the pixel:
#
# $$
# -\log \sum_j p_j \prod_r A^{(r)}_{\tilde y^{(r)}, j} .
# $$ (eq-ch8-joint)
#
# This is what Dawid-Skene and STAPLE maximise, with a network in the place of the prior $\pi$. With one label a pixel the
# two are the same, and so they are where $p$ is 0 or 1. Else they differ, and how much is the subject of this chapter:
#
# - The sum knows of each annotator *how often* they say what. It never looks at two labels at once, so it cannot know who
#   agrees with whom. Any pair $(A, p)$ with the same $A^{(r)} p$ costs the same.
# - So it may settle on a "truth" that is not one: for instance on the mask of whoever is most predictable. That
#   annotator then has the identity for a matrix, and the others' matrices explain the rest.
# - Together, one annotator's mask is a poor "truth": the others agree among each other more than it can explain.
#
# ### Only one column exists
#
# At a pixel whose truth is 1, nobody can observe what annotators would say if it were 0. So column 1 is a fact about people,
# column 0 is a number in a computer. We compare learned matrices with `target_columns` in the **true class's column** only.
# (The paper has $1/L$ in the others. Chapter 10 shows that they drift to wherever the trace pulls them, and that the
# theorem behind the trace does not hold at a pixel.)

# %% [markdown]
# ## 4. From scratch
#
# ### The loop over pixels
#
# Two tiny pictures, three annotators, one of whom did not see the second picture. A network and matrices with random
# weights give us numbers to work with.

# %%
cm = PixelCM(3, 2, 8, generator=seeded(1))
torch.nn.init.normal_(cm.last.weight, generator=seeded(2))  # off its start
model = Pixels(networks.unet(1, 2, generator=seeded(0)), cm, lam=0.0).eval()
x, labels = torch.rand(2, 1, 8, 8, generator=seeded(3)), torch.randint(0, 2, (2, 3, 8, 8), generator=seeded(4))
labels[1, 2] = -1
log_p, log_A = model.log_p(x).detach(), model.log_A(x).detach()
print(f"log p {tuple(log_p.shape)}, log A {tuple(log_A.shape)}: said before truth")


# %% [markdown]
# Equation {eq}`eq-ch8-said`, pixel by pixel:

# %%
def loss_slow(log_A, log_p, labels):
    """(N, R, L, L, H, W), (N, L, H, W), (N, R, H, W) -> mean of - log (A p)[said] over observed labels."""
    A, p, losses = log_A.exp(), log_p.exp(), []
    for n, r, h, w in (labels >= 0).nonzero().tolist():
        says = A[n, r, :, :, h, w] @ p[n, :, h, w]  # (L,)
        losses.append(-says[labels[n, r, h, w]].log())
    return torch.stack(losses).mean()


# %% [markdown]
# ### Gather the said row
#
# The loop computes all of $A p$ and reads one entry of it. Equation {eq}`eq-ch8-row` takes the row first. With `gather`
# that is one line for all pixels:

# %%
def loss_gathered(log_A, log_p, labels):
    """The same, from row `said` of each matrix."""
    said = labels.clamp(min=0)[:, :, None, None].expand(-1, -1, 1, *log_A.shape[3:])  # (N, R, 1, L, H, W)
    rows = log_A.gather(2, said).squeeze(2)  # (N, R, L, H, W): log A[said, j]
    return -(rows + log_p[:, None]).logsumexp(2)[labels >= 0].mean()


# %% [markdown]
# The loop, the line, and what the library trains with:

# %%
shipped_loss = model.loss((x, labels, None, torch.arange(2))).detach()  # (images, labels, who, index)
for name, value in {"loop": loss_slow(log_A, log_p, labels), "gathered": loss_gathered(log_A, log_p, labels), "library": shipped_loss}.items():
    print(f"{name:>9}: {float(value):.6f}")
    assert abs(float(value) - float(shipped_loss)) < 1e-5

# %% [markdown]
# A row is also cheaper: with four classes it is a quarter of the matrix, and nothing is multiplied that is not read. The
# library's `HeardRows` returns these rows and the traces, and writes its own way back:

# %%
rows, traces = HeardRows.apply(log_A, labels)  # (N, R, L, H, W), (N, R, H, W)
assert torch.allclose(rows[labels[:, :, None].expand_as(rows) >= 0], confusion.said_rows(log_A, labels)[labels[:, :, None].expand_as(rows) >= 0])
assert torch.allclose(traces, log_A.exp().diagonal(dim1=2, dim2=3).sum(-1), atol=1e-5)
print(f"rows {tuple(rows.shape)}, traces {tuple(traces.shape)}")

# %% [markdown]
# ### The gradient is an E-step
#
# What does a label teach? Ask autograd for the derivative of $\log (A p)_{\tilde y}$ by the row that was read:

# %%
leaf = log_A.clone().requires_grad_()
score = confusion.label_log_likelihood(leaf, log_p, labels)[0].sum()  # the first picture, on which all spoke
(back,) = torch.autograd.grad(score, leaf)  # (N, R, L, L, H, W)
alone = torch.stack([confusion.posterior(log_A[:1, [r]], log_p[:1], labels[:1, [r]]).exp() for r in range(3)], 1)  # (1, R, L, H, W)
at_said = confusion.said_rows(back, labels)[:1]
assert torch.allclose(at_said, alone, atol=1e-5)
assert torch.allclose(back[:1].abs().sum((2, 3)), torch.ones(1), atol=1e-5)  # all else is 0
print("the gradient at the said row is p(truth | this label), and 0 at every other row")

# %% [markdown]
# So each step of gradient descent contains the E-step of chapters 2 and 7; nobody had to program it. Whose posterior it is
# depends on the loss. With the sum, each label has a posterior of its own. Together, there is one for the pixel:

# %%
leaf_p = log_p.clone().requires_grad_()
(pull,) = torch.autograd.grad(confusion.joint_log_likelihood(log_A, leaf_p, labels)[0].sum(), leaf_p)
assert torch.allclose(pull[0], confusion.posterior(log_A, log_p, labels)[0].exp(), atol=1e-5)
(pulls,) = torch.autograd.grad(confusion.label_log_likelihood(log_A, leaf_p, labels)[0].mean(0).sum(), leaf_p)
assert torch.allclose(pulls[0], alone[0].mean(0), atol=1e-5)
print("to p: together, p(truth | all labels); summed, the mean of the posteriors of single labels")

# %% [markdown]
# The mean of posteriors is a vote, each voice weighed by what it is worth alone. The posterior of all labels *multiplies*
# evidence, as STAPLE does.
#
# ### Who agrees with whom
#
# Now the claim of section 3, in numbers. Three annotators with two classes, right with .9, .8 and .7, and pixels whose picture
# leaves the truth open, $p = (\frac12, \frac12)$. What they say then is known exactly: eight triples, each with its probability.

# %%
both_ways = lambda right: torch.stack([torch.stack([right, 1 - right], 1), torch.stack([1 - right, right], 1)], 1)  # noqa: E731
right, half = torch.tensor([0.9, 0.8, 0.7]), torch.tensor([0.5, 0.5])
like_3 = right * right[2] + (1 - right) * (1 - right[2])  # how often each says what annotator 3 says
like_3[2] = 1.0
stories = {
    "the truth": (both_ways(right), half),
    "annotator 3 is always right": (both_ways(like_3), half),
    "the truth is surely 1": (both_ways(torch.full((3,), 0.5)), torch.tensor([0.0, 1.0])),
}

# %% [markdown]
# Three stories about these people, each a pair $(A, p)$. The second takes annotator 3, the worst, for the truth. All are
# asked to explain the eight triples:

# %%
triples = torch.cartesian_prod(*[torch.arange(2)] * 3)  # (8, R)
explain = lambda score, A, p: score(confusion.log(A)[None], confusion.log(p).expand(8, 2), triples)  # noqa: E731
often_said = explain(confusion.joint_log_likelihood, *stories["the truth"]).exp()  # (8,)
costs = {}
for story, (A, p) in stories.items():
    summed, joint = (-(often_said * score).sum() for score in (explain(confusion.label_log_likelihood, A, p).sum(1), explain(confusion.joint_log_likelihood, A, p)))
    costs[story] = float(summed), float(joint), float(confusion.trace(A).mean())
    print(f"{story:>28}: summed {summed:.3f}, together {joint:.3f}, mean trace {costs[story][2]:.2f}")
assert max(c[0] for c in costs.values()) - min(c[0] for c in costs.values()) < 1e-5
assert all(costs["the truth"][1] < costs[story][1] - 0.01 for story in list(stories)[1:])

# %% [markdown]
# Summed, the three cost the same to the last digit; the trace even prefers the wrong ones. Together, the truth is cheapest.
# So there is information in five masks of one picture that the printed loss throws away.
#
# ### The identity start
#
# "Foreground" and "background" are names. What ties the network's class 1 to the annotators' class 1 is the start. The paper
# trains the matrices towards a large trace first. A bias does it at once: the last layer's weights are zero, so at first
# every pixel of every picture has the matrix that stands in the bias.

# %%
def head(n_features, R, L, start):
    """Features (B, C, H, W) -> logits (B, R L L, H, W), at first those of `start` on the diagonal, everywhere."""
    layer = torch.nn.Conv2d(n_features, R * L * L, 1)
    torch.nn.init.zeros_(layer.weight)
    layer.bias.data = torch.full((L, L), (1 - start) / (L - 1)).fill_diagonal_(start).log().flatten().repeat(R)
    return layer


logits = head(8, 5, 2, 0.9)(torch.randn(2, 8, 28, 28, generator=seeded(5))).unflatten(1, (5, 2, 2))  # (B, R, L, L, H, W)
A = logits.softmax(2)  # over what is said
assert torch.allclose(A, torch.tensor([[0.9, 0.1], [0.1, 0.9]])[..., None, None].expand_as(A), atol=1e-6)
print(f"{tuple(A.shape)}: every matrix has .9 on its diagonal, whatever the features are")

# %% [markdown]
# The library's `PixelCM` is this head on the U-Net's last features, with one small layer and the two coordinates before
# it. The network for the truth and the matrices share their trunk; the matrices learn at a third of the network's rate.
#
# ## 5. The experiment
#
# ### One draw, live
#
# Five masks a picture, and the same pictures with one mask each, from whoever was asked.

# %%
train = scenes.digits(digits.train.take(torch.arange(P.images)), generator=seeded(10))
test = scenes.digits(digits.test.take(torch.arange(P.tested)), generator=seeded(13))
said = draw_masks(train.truth, train.images, panel, n_classes=2, generator=seeded(11))  # (N, R, H, W)
single = draw_masks(train.truth, train.images, panel, n_classes=2, per_item=1, generator=seeded(11))  # -1 for four of five
vote, staple = fusion.majority(said, 2)[:, None], quietly(fusion.staple, said, 2).labels[:, None]
print(f"{P.images} pictures; masks a picture: {said.shape[1]}, and {(single[:, :, 0, 0] >= 0).sum(1).max()}")

# %% [markdown]
# Two networks learn from fused masks, as in chapter 7, and one from single masks as they are. Three learn matrices as
# well: as printed, together, and with one label a picture. This is the training cell of the chapter; it checks that
# parameters and loss live on the device it names.

# %% tags=["training"]
RUNS = {  # name: labels, and whether they are scored together; None for a network without matrices
    "vote": (vote, None),
    "STAPLE": (staple, None),
    "as it is, one label": (single, None),
    "pixel, printed": (said, False),
    "pixel, together": (said, True),
    "pixel, one label": (single, False),
}


def trained(masks, joint, *, lam=0.01, cm=None, seed=0):
    """A fitted method and how its training went; warnings wait until we ask for them."""
    net = networks.unet(1, 2, generator=seeded(seed))
    method = Vanilla(net) if joint is None else Pixels(net, cm or PixelCM(5, 2, 8, generator=seeded(77)), lam=lam, joint=joint)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        crowd = Annotations(train.images, masks, n_classes=2)
        return method, training.fit(method, crowd, epochs=P.epochs, batch_size=P.batch_size, lr=1e-2, seeds=seed, progress=False)


device, nets = training.pick_device(), {}
for name, (masks, joint) in RUNS.items():
    nets[name], history = trained(masks, joint)
    assert all(parameter.device.type == device.type for parameter in nets[name].parameters())
    assert history.device.startswith(device.type)
print(history)

# %% [markdown]
# Unseen pictures, in other noise, and masks of them that nobody trained on. The targets are counted over 16 drawings.

# %%
heard = draw_masks(test.truth, test.images, panel, n_classes=2, generator=seeded(40))  # (N, R, H, W)
target = target_columns(test.truth, test.images, panel, n_classes=2, draws=16, generator=seeded(41))  # (N, R, L, H, W)


@torch.no_grad()
def asked(method):
    """log p and log A (or None) of the test pictures, on the CPU."""
    x = test.images.to(next(method.parameters()).device)
    log_A = method.eval().log_A(x)
    return method.log_p(x).cpu(), None if log_A is None else log_A.cpu()


dice = lambda log_p: metrics.dice(log_p.argmax(1), test.truth, empty=1.0).foreground  # noqa: E731
answers = {name: asked(net) for name, net in nets.items()}
scores = {name: dice(log_p) for name, (log_p, _) in answers.items()}

# %% [markdown]
# Compare with your guesses:

# %%
print("guessed  measured")
for name, score in scores.items():
    print(f"{guess.get(name, math.nan):7.2f}  {score:8.2f}  {name}")


# %% tags=["hide-input"]
shown = ["vote", "STAPLE", "pixel, printed", "pixel, together", "pixel, one label"]
found = torch.stack([answers[name][0][4].argmax(0) for name in shown])  # (M, H, W)
fig = plots.masks(found, test.truth[4], [name.replace("pixel, ", "pixel,\n") for name in shown], image=test.images[4, 0], title="The same masks, five conclusions")
plots.described(fig, f"One unseen digit. White is right, blue was missed, orange is too much. Size {training.size()}.")


# %% [markdown]
# The vote misses what three of five miss. The printed loss has drifted the other way: look at its rim, and whose it is.

# %%
def outcome(sentence, seen):
    print(f"{'seen' if seen else 'your run differed'}: {sentence}")


print("Dice of the answers with each annotator's masks")
for name in ("pixel, printed", "pixel, together"):
    near_to = [metrics.dice(answers[name][0].argmax(1), heard[:, r], empty=1.0).foreground for r in range(5)]
    print(f"{name:>16}: " + ", ".join(f"{who} {score:.2f}" for who, score in zip(NAMES, near_to)))
outcome("scored together it is better than as printed", scores["pixel, together"] > scores["pixel, printed"] + 0.05)
outcome("and better than the network on the vote", scores["pixel, together"] > scores["vote"] + 0.02)

# %% [markdown]
# The printed loss comes close to *over*, the widest annotator, whose masks are also the easiest to foretell from the
# picture. For that "truth" *over* has hardly any mistake left, and everybody else misses much. Section 4 said that the sum
# cannot object.
#
# ### The matrices
#
# What did they learn of the annotators? At each pixel, the true class's column, beside its target (the paper's Fig. 2):

# %% tags=["hide-input"]
columns = {name: true_columns(answers[name][1], test.truth) for name in RUNS if name.startswith("pixel")}  # (N, R, L, H, W)
maps(
    {"target": target[4, :, 1], "together": columns["pixel, together"][4, :, 1], "printed": columns["pixel, printed"][4, :, 1]},
    "Learned: who marks what, given the truth",
    f"p(marks | true class) at each pixel of the same unseen digit. Size {training.size()}.",
    "Three rows of five small maps. Target: good a digit, over a wide one, under thin, wrong half-bright, blank dark. "
    "Together: much the same, smoother. Printed: the wide rim of over is missing.",
)

# %% [markdown]
# The third row is the drift again: the rim of *over* is missing. That model takes the rim for foreground, where *over* is
# right. What *over* says of background there, nobody asked: the column that we compare was never read.
#
# As one number: the root mean square error in that column, each class with the same weight (`metrics.cm_rmse`). A number
# needs references. The identity says "nobody errs". The best constant is what one matrix an annotator can do at best:
# it needs the truth, and it is what a perfect STAPLE would know.

# %%
identity = torch.nn.functional.one_hot(test.truth, 2).movedim(-1, 1)[:, None].expand_as(target).float()
constant = metrics.best_constant(target, test.truth)
errors = {name: metrics.cm_rmse(found, target, test.truth) for name, found in {"identity": identity, "best constant": constant, **columns}.items()}
for name, error in errors.items():
    print(f"{name:>16}: {error:.3f}")
outcome("together, the matrices are better than the best constant ones", errors["pixel, together"] < errors["best constant"])

# %% [markdown]
# Scored together, matrices of pixels tell more of these people than any matrix of a picture could, and that is the best
# of the paper's idea. With $A$ and $p$ the model foretells each annotator's mask, too (Figs. 5 and 6 of the paper):

# %% tags=["hide-input"]
will_mark = confusion.apply(answers["pixel, together"][1], answers["pixel, together"][0])[4, :, 1].exp()  # (R, H, W)
maps(
    {"drew": heard[4], "A p": will_mark, "more than ½": (will_mark > 0.5).float()},
    "Foretold: what each will draw",
    f"Above, a mask that the model has not seen. Middle, A p, the probability that the annotator marks a pixel. Below, where "
    f"it is more than one half. Size {training.size()}.",
    "Three rows of five small maps. The probabilities of good and over look like their masks; that of wrong is a dull "
    "digit, of which little or nothing is left below; blank is dark.",
    label="probability to mark",
)

# %% [markdown]
# Mind *wrong*, whose gaps are at random places. $A p$ says so honestly: a half-bright digit. The mask above one half is then
# nothing like a mask of *wrong*. To imitate an annotator, draw from $A p$; do not round it. (And pixel by pixel you will get
# salt and pepper, not gaps: the model has no way to say that neighbours go together. Chapter 11 does.)
#
# ### Five draws, two panels
#
# One draw is an anecdote. The next figures are drawn from results that ship with the course (`course run
# ladder-missing-foreground --seeds 5`, and so on): five draws, each with new noise, new masks, new weights.

# %% tags=["hide-input"]
shipped = lambda name: experiments.read(data.shipped(f"results/{name}.lesson.json"))  # noqa: E731
PANELS_SHIPPED = ("missing_foreground", "as_released")
ladders, one_label = ({name: shipped(f"{of}-" + name.replace("_", "-")) for name in PANELS_SHIPPED} for of in ("ladder", "one-label"))
METHODS = ["truth", "mode_label", "staple", "spatial_staple", "pixel_no_trace", "pixel", "pixel_joint", "global", "global_joint"]


def five_draws(name, title):
    rows = ladders[name]["rows"]
    fig = plots.bars_with_spread(rows, "dice", METHODS, model="pixel_joint", xlabel="Dice on unseen pictures", title=title)
    return plots.described(
        fig,
        f"Panel {name}, five labels a picture. A dot is a draw, the line the 95 % interval. mode label is the vote; global is "
        f"one matrix an annotator; joint means scored together. Size {ladders[name]['size']}.",
    )


five_draws("missing_foreground", "Three of five miss most of it")

# %% tags=["hide-input"]
five_draws("as_released", "Two of five draw too wide, in the same places")

# %% [markdown]
# Draw by draw, with the same pictures, masks and first weights:

# %%
def paired(name, method, other, metric="dice", **setting):
    a, b = (experiments.values(ladders[name], m, metric, **setting) for m in (method, other))
    mean, half = plots.interval(a - b)
    return f"{name}: {method} - {other} {mean:+.3f} ± {half:.3f}, ahead in {(a > b).sum()} of {len(a)} draws"


for name in ladders:
    for other in ("pixel", "staple", "mode_label", "global_joint"):
        print(paired(name, "pixel_joint", other))

# %% [markdown]
# A dot at 0 is a network that learned to draw nothing. Read the last line of each block with care: scored together, a
# matrix a pixel comes level with one matrix an annotator, and not clearly ahead of it. The freedom costs truth, agreement
# pays it back. And where the vote is good, as on `as_released`, no model need do better. The matrices are another matter:

# %%
print(f"{'CM-RMSE':>18}  identity  best constant  global_joint  pixel  pixel_joint")
for name, result in ladders.items():
    of = lambda method, metric="cm_rmse": experiments.values(result, method, metric).mean()  # noqa: E731, B023
    print(f"{name:>18}  {of('pixel', 'cm_rmse_identity'):8.3f}  {of('pixel', 'cm_rmse_constant'):13.3f}  {of('global_joint'):12.3f}  {of('pixel'):5.3f}  {of('pixel_joint'):11.3f}")

# %% [markdown]
# Which matrix for which data is chapter 9.
#
# ### One label a picture
#
# The dearest case in practice: each picture was outlined once. STAPLE of one mask is that mask (chapter 7). A network with
# matrices compares people *across* pictures, since whoever draws wide does so on every digit. But there is nobody to agree
# with, and {eq}`eq-ch8-joint` is {eq}`eq-ch8-printed`. What does it cost?

# %% tags=["hide-input"]
PAIRS = {  # with five labels, with one
    "no matrices": ("mode_label", "mean_label"), "global": ("global_joint", "global"), "place": ("place_joint", "place"),
    "pixel, no trace": ("pixel_no_trace",) * 2, "pixel": ("pixel_joint", "pixel"), "known matrices": ("oracle",) * 2,
}  # fmt: skip
lines = ["| panel | matrices | Dice, five labels | Dice, one label | CM-RMSE, five | CM-RMSE, one |", "| --- | --- | --- | --- | --- | --- |"]
for name in PANELS_SHIPPED:
    for what, (five, one) in PAIRS.items():
        runs = [(ladders[name], five, 5), (one_label[name], one, 1)]
        cells = [plots.interval(experiments.values(result, m, metric, per_item=n)) for metric in ("dice", "cm_rmse") for result, m, n in runs]
        lines.append(f"| `{name}` | {what} | " + " | ".join(f"{mean:.3f} ± {half:.3f}" for mean, half in cells) + " |")
Markdown("\n".join(lines))

# %% [markdown]
# Five labels are scored together where there are matrices that learn (`pixel, no trace` is as printed), and fused by a vote
# where there are none. The live run of one label, above, is one such run. Read the table together with the last line of
# each panel: a network that *knows* everybody's mean matrix loses far less by having one label than the matrices of pixels
# do. So it is not the truth alone that one label cannot find; it is truth and matrices at once. What it costs is
# *agreement*, the evidence that no renaming can fake.
#
# And agreement is no cure for everything. Look at `place`, a matrix for each place that is the same in all pictures: these
# people do not err by place, and scored together it stays lost. Chapter 9 goes after that.
#
# ### The weight of the trace
#
# The paper's Fig. 3 varies $\lambda$ from .001 to .9. Three draws each:

# %% tags=["hide-input"]
trace_curve = shipped("lambda-curve")
lambdas = sorted({row["setting"]["lam"] for row in trace_curve["rows"]})
wanted = {"together": ("pixel_joint", 5), "printed": ("pixel", 5), "one label": ("pixel", 1)}
by_lambda = {name: np.array([experiments.values(trace_curve, m, "dice", per_item=n, lam=lam) for lam in lambdas]).T for name, (m, n) in wanted.items()}
fig = plots.curve(lambdas, by_lambda, log=True, model="together", xlabel="lambda", ylabel="Dice", title="Too much trace destroys the truth")
plots.described(fig, f"Panel missing_foreground, mean and range of {len(by_lambda['together'])} draws. Size {trace_curve['size']}.")

# %% [markdown]
# Does a little help? The same draws with $\lambda = .01$ and without the trace, and then with a lot of it:

# %%
at = dict(zip(lambdas, range(len(lambdas))))
for name, values in by_lambda.items():
    for low, high in ((0.0, 0.01), (0.01, 0.1), (0.1, 0.4)):
        mean, half = plots.interval(values[:, at[high]] - values[:, at[low]])
        print(f"{name:>10}: lambda {high:g} against {low:g}: {mean:+.3f} ± {half:.3f}")

# %% [markdown]
# An interval that holds 0 says that these draws do not settle it. Section 6 says why a large $\lambda$ must go wrong.
#
# ### How careless may they be?
#
# The paper's Fig. 4 makes annotators better and worse. Here each is careless in a share of the pictures, and draws well in
# the others; on the axis stands what their masks are worth.

# %% tags=["hide-input"]
noise = shipped("noise-curve")
shares = sorted({row["setting"]["careless"] for row in noise["rows"]}, reverse=True)
worth = [experiments.values(noise, "pixel_joint", "annotator_dice", careless=share).mean() for share in shares]
ways = {"vote": "mode_label", "STAPLE": "staple", "global, together": "global_joint", "pixel, printed": "pixel", "pixel, together": "pixel_joint"}
by_noise = {name: np.array([experiments.values(noise, m, "dice", careless=share) for share in shares]).T for name, m in ways.items()}
fig = plots.curve(worth, by_noise, model="pixel, together", xlabel="mean Dice of the annotators' masks", ylabel="Dice", title="The worse the annotators, the more the method matters")
plots.described(fig, f"From always careless (left) to careless in {shares[-1]:.0%} of the pictures. Mean and range of {len(by_noise['vote'])} draws, size {noise['size']}.")

# %% [markdown]
# How far are the best and the worst method apart?

# %%
for score, *means in zip(worth, *(values.mean(0) for values in by_noise.values())):
    best = list(by_noise)[int(np.argmax(means))]
    print(f"annotators {score:.2f}: from {min(means):.3f} to {max(means):.3f}, apart {max(means) - min(means):.3f}, best: {best}")

# %% [markdown]
# Before you model your annotators, find out how much is to be gained: two masks of the same pictures and their Dice with each
# other tell you where on this axis you are.
#
# ### A guard that needs no truth
#
# In practice you have no Dice. What can be asked of a run without the truth? Two things that section 5 taught us:
#
# - how much foreground does it find, as a share of what the annotator marks who marks *most*? A network that equals the
#   widest annotator has probably become that annotator; one that marks more has lost the truth altogether; one that marks
#   hardly anything has given it up;
# - do the columns of its matrices still differ? If not, labels say nothing of the truth.
#
# `experiments.pixels.suspicious` asks the first, in numbers; `diagnose.collapse_warnings` speaks of the worst cases, and
# `training.fit` calls it by itself.

# %%
def guarded(name, log_p, log_A):
    """Print what the guard sees, and beside it the Dice, which it does not."""
    numbers = {"foreground": float((log_p.argmax(1) > 0).float().mean()), "largest_annotator": float((heard > 0).float().mean((0, 2, 3)).max())}
    spoken = collapse_warnings(log_p, log_A, heard)
    flagged = suspicious(numbers) or bool(spoken)
    print(f"{name:>18}: foreground {numbers['foreground'] / numbers['largest_annotator']:4.2f} of the largest annotator's, {'FLAGGED' if flagged else 'quiet  '} (Dice {dice(log_p):.2f})")
    return flagged


for name in columns:
    guarded(name, *answers[name])

# %% [markdown]
# And over all committed runs with matrices of this chapter, with the $\lambda$s that destroy among them. Here we call a
# run lost whose Dice is below .7; the guard does not know it:

# %%
print("                               good: quiet  flagged   lost: quiet  flagged")
ran = {**ladders, **{f"{name}, one label": result for name, result in one_label.items()}, "lambda curve": trace_curve}
for name, result in ran.items():
    table = np.zeros((2, 2), int)
    for row in result["rows"]:
        if row["method"].split("_")[0] in ("global", "place", "coarse", "pixel"):
            table[int(row["metrics"]["dice"] < 0.7), int(suspicious(row["metrics"]))] += 1
    print(f"{name:>29} {table[0, 0]:11} {table[0, 1]:8} {table[1, 0]:13} {table[1, 1]:8}")

# %% [markdown]
# "Good, flagged" are false alarms, "lost, quiet" are misses. Mind the misses: a run that has drifted half of the way to the
# widest annotator stays below the line, and on `as_released`, whose widest is very wide, half of the way is too far. There
# is no line that is right for every panel. And the guard takes for granted that whoever marks most marks too much; where
# nobody draws too wide it accuses good runs (chapter 9). A flag is a reason to look, silence is no proof.
#
# ## 6. Break it
#
# ### Too much trace
#
# Take the good model of section 5, and turn it round: exchange foreground and background in $p$, and the two columns of
# every matrix. What do the labels, and what does the trace, think of that?

# %%
log_p, log_A = answers["pixel, together"]
turned_p, turned_A = log_p.flip(1), log_A.flip(3)  # the axis of the truth in both
for score in (confusion.label_log_likelihood, confusion.joint_log_likelihood):
    assert torch.allclose(score(log_A, log_p, heard), score(turned_A, turned_p, heard), atol=1e-4)
traces = [float(A.exp().diagonal(dim1=2, dim2=3).sum(-1).mean()) for A in (log_A, turned_A)]
assert abs(sum(traces) - 2) < 1e-4  # L = 2: what is on one diagonal is off the other
print(f"as learned: Dice {dice(log_p):.2f}, trace {traces[0]:.2f}; turned round: Dice {dice(turned_p):.2f}, trace {traces[1]:.2f}")
outcome("the labels cannot tell, and the trace prefers the wrong one", traces[1] < traces[0])

# %% [markdown]
# So with any $\lambda > 0$ the turned model has the smaller loss. A small one cannot carry the run over the hill between the two; the
# identity start put it on the right side. At $\lambda = .4$, a value of the paper's Fig. 3, the truth is lost: turned round,
# or given up on the way.

# %%
heavy = asked(trained(said, True, lam=0.4)[0])
flagged = guarded("lambda .4", *heavy)
outcome("with lambda .4 the truth is lost", dice(heavy[0]) < scores["pixel, together"] - 0.3)

# %% [markdown]
# ### No identity start
#
# If all columns of a matrix are equal, labels teach the network nothing at all:

# %%
z = torch.randn(4, 2, 5, 5, generator=seeded(6), requires_grad=True)
level = torch.full((1, 5, 2, 2, 1, 1), 0.5).log()
any_labels = torch.randint(0, 2, (4, 5, 5, 5), generator=seeded(7))
confusion.joint_log_likelihood(level, z.log_softmax(1), any_labels).sum().backward()
assert z.grad.abs().max() < 1e-5
print(f"largest gradient to the network from matrices of 1 / L: {z.grad.abs().max():.1e}")

# %% [markdown]
# So a start near $1/L$ leaves it to small random weights which class is which. Here is such a start for several seeds: .501 on
# the diagonal, random last weights, all else as in the good run.

# %%
blind = {}
for seed in range(P.starts):
    cm = PixelCM(5, 2, 8, start=0.501, generator=seeded(77 + seed))
    torch.nn.init.normal_(cm.last.weight, std=0.3, generator=seeded(90 + seed))
    blind[seed] = asked(trained(said, True, cm=cm, seed=seed)[0])
    guarded(f"no start, seed {seed}", *blind[seed])
outcome("not one of them finds what the identity start finds", max(dice(p) for p, _ in blind.values()) < scores["pixel, together"] - 0.1)

# %% [markdown]
# Such runs may explain labels as well as good ones do (chapter 10 has the numbers). All background, all foreground, or a swollen
# something: the matrices explain everything.
#
# ### Softmax over the wrong axis
#
# `softmax(2)` runs over what is said, `softmax(3)` over the truth. With square matrices each gives the right shape, and
# nothing complains. But columns do not sum to 1 any more:

# %%
some = torch.randn(1, 5, 2, 2, 3, 3, generator=seeded(8))
for axis in (2, 3):
    sums = some.softmax(axis).sum(2)  # down each column
    print(f"softmax({axis}): columns sum to {sums.min():.2f} ... {sums.max():.2f}")
assert (some.softmax(2).sum(2) - 1).abs().max() < 1e-5 < (some.softmax(3).sum(2) - 1).abs().max()

# %% [markdown]
# What does it do to the loss? If rows sum to 1, each row may put all its weight on the same truth. Then *every* label has the
# probability 1:

# %%
all_zero = torch.tensor([[1.0, 0.0], [1.0, 0.0]])[None, None, ..., None, None].expand(1, 5, 2, 2, 1, 1)  # rows sum to 1
always_0 = torch.tensor([1.0, 0.0])[None, :, None, None].expand(4, 2, 5, 5)
cost = -confusion.label_log_likelihood(confusion.log(all_zero), confusion.log(always_0), any_labels).mean()
print(f"loss on random labels, of a network that always says background: {abs(float(cost)):.3f}")
assert abs(float(cost)) < 1e-6

# %% [markdown]
# A perfect loss, and nothing learned. `confusion.check_cm` finds it in one call; write it into your own tests.
#
# ### Softmax twice
#
# `cross_entropy` of PyTorch expects logits. The public code of {cite:t}`zhang2020` gives it $A p$, which is a probability
# already. It runs, it goes down, it looks like learning. Two things are wrong with it. First, its floor:

# %%
perfect = torch.tensor([[1.0, 0.0]])  # A p: certain of class 0, and right
floor = torch.nn.functional.cross_entropy(perfect, torch.tensor([0]))
print(f"the loss of a perfect answer: {floor:.4f} = log(1 + 1/e)")
assert abs(float(floor) - math.log(1 + math.exp(-1))) < 1e-6

# %% [markdown]
# Second, where its minimum lies. Somebody marks a pixel in a share of the drawings. Which probability does each loss like
# best?

# %%
q = torch.linspace(0.001, 0.999, 999)  # what A p may say
twice = torch.stack([1 - q, q], 1).log_softmax(1)  # (999, 2)
print("marked  best for - log q  best for softmax twice")
for share in (0.5, 0.6, 0.7, 0.8):
    once_best, twice_best = (q[(share * log_1 + (1 - share) * log_0).argmax()] for log_0, log_1 in ((torch.log(1 - q), torch.log(q)), twice.T))
    print(f"{share:6.2f}  {once_best:16.2f}  {twice_best:22.2f}")
    assert abs(once_best - share) < 2e-3 and abs(twice_best - min((1 + math.log(share / (1 - share))) / 2, 0.999)) < 2e-3

# %% [markdown]
# Frequencies are pushed away from one half: .6 becomes .70, and from about .73 on everything becomes 1. Annotators who
# err *sometimes* are made into annotators who err always or never. Dice need not suffer much from that; the matrices do.
#
# ### Unlike with unlike
#
# The same code measures matrices by comparing a *joint* table, p(said and truth), with a conditional one. A perfect
# annotator, and a perfect estimate of them:

# %%
joint_table = torch.stack([torch.stack([((test.truth == i) & (test.truth == j)).float().mean() for j in range(2)]) for i in range(2)])
conditional = joint_table / joint_table.sum(0)
print(f"joint {[round(v, 2) for v in joint_table.flatten().tolist()]}, conditional {[round(v, 2) for v in conditional.flatten().tolist()]}")
print(f"root mean square difference: {((joint_table - conditional) ** 2).mean().sqrt():.3f}; it should be 0")
assert torch.allclose(conditional, torch.eye(2), atol=1e-6) and (joint_table - conditional).abs().max() > 0.5

# %% [markdown]
# Nothing is left of such a number but the share of background. Columns first, then compare.
#
# ## 7. Exercises
#
# Write your answer into the cell that says `NotImplementedError`, then run the check below it.
#
# ```{exercise} The loss of the said row (★, 15 minutes)
# :label: ex-ch8-loss
#
# Exercise 8.1. `log_A` (N, R, L, L, H, W), `log_p` (N, L, H, W), `labels` (N, R, H, W) with -1 where nobody spoke. Return
# the mean over observed labels of $-\log (A p)_{\tilde y}$, one number. Try it without looking at section 4.
# ```

# %% tags=["stub"]
def label_loss(log_A, log_p, labels):
    """-> a number."""
    raise NotImplementedError


# %% [markdown]
# <details><summary>Hint 1: a nudge</summary>
#
# What is said is axis 2 of `log_A`, the truth is axis 3. Which of the two do you look up, over which do you sum?
#
# </details>
# <details><summary>Hint 2: the formula</summary>
#
# {eq}`eq-ch8-row`. A sum of probabilities whose logarithms you have is a `logsumexp`.
#
# </details>
# <details><summary>Hint 3: the shape of the code</summary>
#
# `at = labels.clamp(min=0)[:, :, None, None].expand(-1, -1, 1, *log_A.shape[3:])`, then `log_A.gather(?, at).squeeze(?)`,
# add `log_p[:, None]`, `logsumexp(?)`, and keep `[labels >= 0]`.
#
# </details>

# %% tags=["check", "raises-exception"]
checks.label_loss(label_loss)


# %% tags=["solution", "hide-cell"] jupyter={"source_hidden": true}
def label_loss(log_A, log_p, labels):
    """-> a number."""
    at = labels.clamp(min=0)[:, :, None, None].expand(-1, -1, 1, *log_A.shape[3:])  # (N, R, 1, L, H, W)
    rows = log_A.gather(2, at).squeeze(2)  # (N, R, L, H, W)
    return -(rows + log_p[:, None]).logsumexp(2)[labels >= 0].mean()


checks.label_loss(label_loss)

# %% [markdown]
# **What you should see, and why.** One number, and no matrix was multiplied. The index -1 is the trap: Python reads it as
# "the last", so a forgotten mask gives no error, only people who are blamed for what they never said.
#
# ```{exercise} All labels of a pixel together (★★, 15 minutes)
# :label: ex-ch8-joint
#
# Exercise 8.2. The same arguments. Return the log-likelihood of all labels of each pixel together, $\log \sum_j p_j \prod_r
# A^{(r)}_{\tilde y^{(r)}, j}$, as (N, H, W). A missing label says nothing.
# ```

# %% tags=["stub"]
def together(log_A, log_p, labels):
    """-> (N, H, W)."""
    raise NotImplementedError


# %% [markdown]
# <details><summary>Hint 1: a nudge</summary>
#
# In which order do the sum over annotators and the sum over the truth stand?
#
# </details>
# <details><summary>Hint 2: the formula</summary>
#
# $\operatorname{logsumexp}_j \bigl( \log p_j + \sum_r \log A^{(r)}_{\tilde y^{(r)}, j} \bigr)$; the terms of missing labels are 0.
#
# </details>
# <details><summary>Hint 3: the shape of the code</summary>
#
# `rows` as in exercise 8.1, times `(labels >= 0)[:, :, None]`; then `.sum(?)`, add `log_p`, `.logsumexp(?)`.
#
# </details>

# %% tags=["check", "raises-exception"]
checks.together(together)


# %% tags=["solution", "hide-cell"] jupyter={"source_hidden": true}
def together(log_A, log_p, labels):
    """-> (N, H, W)."""
    at = labels.clamp(min=0)[:, :, None, None].expand(-1, -1, 1, *log_A.shape[3:])  # (N, R, 1, L, H, W)
    rows = log_A.gather(2, at).squeeze(2) * (labels >= 0)[:, :, None]  # (N, R, L, H, W)
    return (rows.sum(1) + log_p).logsumexp(1)


checks.together(together)

# %% [markdown]
# **What you should see, and why.** Two lines are swapped against 8.1, and that is the whole difference between `pixel,
# printed` and `pixel, together` in section 5. Count $p$ once: it is what the *picture* says, however many people look at it.
#
# ```{exercise} How far to raise the diagonal (★, 10 minutes)
# :label: ex-ch8-start
#
# Exercise 8.3. Section 4 took the logarithm of a matrix for a bias. The library raises only the diagonal: the logits are
# $d\, I$. Return the $d$ for which the softmax over what is said has `start` on the diagonal, with L classes.
# ```

# %% tags=["stub"]
def raised_by(start, L):
    """-> a number."""
    raise NotImplementedError


# %% [markdown]
# <details><summary>Hint 1: a nudge</summary>
#
# Write down one column of logits: one $d$, and how many zeros? What is its softmax?
#
# </details>
# <details><summary>Hint 2: the formula</summary>
#
# $e^d / (e^d + L - 1) = \text{start}$, solved for $d$.
#
# </details>
# <details><summary>Hint 3: the shape of the code</summary>
#
# `math.log(start * ? / (1 - start))`
#
# </details>

# %% tags=["check", "raises-exception"]
checks.raised_by(raised_by)


# %% tags=["solution", "hide-cell"] jupyter={"source_hidden": true}
def raised_by(start, L):
    """-> a number."""
    from math import log

    return log(start * (L - 1) / (1 - start))


checks.raised_by(raised_by)

# %% [markdown]
# **What you should see, and why.** The more classes, the higher the diagonal has to stand, since each of the others takes its
# share. A fixed number that is right for two classes is a poor start for twenty.
#
# ```{exercise} The guard (★★, 15 minutes)
# :label: ex-ch8-guard
#
# Exercise 8.4. `found` (N, H, W) is what a network answers, `labels` (N, R, H, W) what was said, -1 in pictures that an
# annotator was not shown; class 0 is the background. Return the network's share of foreground, divided by the share of the
# annotator who marks most (of the pixels they were shown).
# ```

# %% tags=["stub"]
def swelling(found, labels):
    """(N, H, W), (N, R, H, W) -> a number."""
    raise NotImplementedError


# %% [markdown]
# <details><summary>Hint 1: a nudge</summary>
#
# Which pixels may you count for annotator $r$, in the numerator and in the denominator?
#
# </details>
# <details><summary>Hint 2: the formula</summary>
#
# $\frac{\#\{\text{found} > 0\} / (N H W)}{\max_r \#\{\tilde y^{(r)} > 0\} / \#\{\tilde y^{(r)} \ge 0\}}$
#
# </details>
# <details><summary>Hint 3: the shape of the code</summary>
#
# `(labels > 0).sum((0, 2, 3)) / ?` is one share for each annotator; then `.max()`.
#
# </details>

# %% tags=["check", "raises-exception"]
checks.swelling(swelling)


# %% tags=["solution", "hide-cell"] jupyter={"source_hidden": true}
def swelling(found, labels):
    """(N, H, W), (N, R, H, W) -> a number."""
    shares = (labels > 0).sum((0, 2, 3)) / (labels >= 0).sum((0, 2, 3))  # (R,)
    return (found > 0).float().mean() / shares.max()


checks.swelling(swelling)
for name in RUNS:
    print(f"{name:>20}: {swelling(answers[name][0].argmax(1), heard):.2f}, Dice {scores[name]:.2f}")

# %% [markdown]
# **What you should see, and why.** Near 1 the network has become its widest annotator, above 1 it is lost. The networks
# without matrices stand low when the vote misses much; the number says *too much*, and is blind to *too little* until
# hardly anything is left.
#
# ## 8. What the paper claims and what we measured
#
# Drawn from `book/claims.yaml` and the committed results, never typed. Claims of the authors' reply are among them.

# %% tags=["hide-input"]
tables = [claims.table(experiment=name) for name in ("ladder-missing-foreground", "ladder-as-released", "one-label", "lambda", "noise")]
head_lines, claimed = tables[0].splitlines()[:2], [line for table in tables for line in table.splitlines()[2:]]
Markdown("\n".join(head_lines + claimed) if claimed else "*No claim on these experiments has been judged yet.*")

# %% [markdown]
# `pixel` is the loss as printed, `pixel_joint` the same scored together. The paper's severities are not given; the two
# panels are ours (chapter 7).
#
# ## 9. Three questions
#
# <details><summary>1. Your model's third annotator has nearly the identity for a matrix at every pixel. Is that person your
# best?</summary>
#
# Perhaps. Or the network's "truth" has become that person's mask, and then of course they are always right. Ask whether
# they also mark most, how the others agree with each other, and look at some pictures yourself.
#
# </details>
#
# <details><summary>2. You have one label for most pictures and five for some. Which loss?</summary>
#
# Together. For pictures with one label the two are the same; for the others it reads who agrees with whom. And the few
# pictures with five teach matrices that the many with one then share. Money for labels may be better spent so than evenly.
#
# </details>
#
# <details><summary>3. A matrix a pixel explains unseen masks better than one matrix an annotator, and its Dice is lower.
# How can that be?</summary>
#
# Explaining labels needs $A p$ only, and freedom in $A$ makes up for any $p$. The better explanation is a real one, of the
# *people*. Of the truth it says little, unless labels are scored together, and even then only if people err
# independently given the truth (chapters 7 and 10).
#
# </details>
#
# ## 10. Further reading, and errata found
#
# - The model, its experiments and the authors' theorem: {cite:t}`zhang2020`; the theorem is taken apart in
#   {doc}`/notebooks/10_what_the_trace_identifies`.
# - All labels of an item together, with a network for the truth: {cite:t}`raykar2010`.
# - The same likelihood without pictures: {cite:t}`dawid1979`, {cite:t}`warfield2004`.
#
# **Errata** in {cite:t}`zhang2020` and in its public code, as a draft.
#
# - Eq. 1 takes annotators to be independent given the *picture*. Where a picture leaves the truth open that contradicts Eq.
#   2, which has a truth behind each label. Section 4 has three explanations that the resulting loss cannot tell apart; the
#   joint likelihood can.
# - The public code scores `cross_entropy` of $A p$: softmax twice. Its floor at two classes is .3133, and a frequency of .6
#   comes back as .70 (section 6).
# - The identity start (section 3.4) is not in the public code of the pixel-wise matrices. Without it the truth is a matter of
#   the seed (section 6).
# - The public code's matrix error compares a joint table with a conditional one, and is not 0 for a perfect estimate
#   (section 6).
# - Off the true class's column the matrices are said to be $1/L$. They are whatever start and trace make of them (chapter 10).
#
# **Next.** Chapter 9 asks how much a matrix should depend on: nothing, the place, the picture, or the pixel.
