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
# # 14. MrPrism: segmentation and confidence in turns
#
# *Core chapter.* {cite:t}`wu2022` let two networks take turns. One segments, told how far each rater can be trusted. The other looks at the
# segmentation and says how far each rater can be trusted. Round and round, and at test time nobody's labels are needed. The
# paper reports that every round makes the answer better. This chapter is a detective story in three parts: what the
# authors wanted, what their formulas do, and, once these are mended, what the rounds really carry.
#
# **You will be able to**
#
# - draw the loop, write it in eight lines, and say which loss teaches which network;
# - find the one letter in a formula that decides whether a network learns from its labels at all;
# - prove that a loss can never tell raters apart, whatever its value;
# - judge a method of many rounds: how far did the answer *move*, what was handed on, and what does a plain network do with the same loss?
#
# **You need to know** chapter 13 (confidence is a row of a confusion matrix) and chapter 8 (the likelihood of a label).
#
# **Time** about two hours with the exercises (an estimate), of which the computer needs the seconds below.
#
# **Data** drawn pictures of an optic disc with its cup, and seven simulated raters, as in chapter 13.

# %%
try:
    import warnings

    import torch
    from IPython.display import Markdown
    from torch.nn.functional import one_hot

    import course_lib.checks.recurrence as checks
    from course_lib import book, data, experiments, fundus, fusion, metrics, networks, plots, training
    from course_lib.annotations import MISSING, Annotations
    from course_lib.confusion import apply, log, posterior
    from course_lib.experiments import claims
    from course_lib.experiments.masks import Drawn
    from course_lib.experiments.recurrence import masks_learned_from
    from course_lib.experiments.rivals import fitted, fused
    from course_lib.fundus import CUP, GOOD, PANELS
    from course_lib.mask_annotators import draw_masks
    from course_lib.methods.aggnet import AggNet
    from course_lib.methods.prism import Prism, Step
    from course_lib.networks import seeded
except ImportError as error:
    import sys

    raise SystemExit(
        f"{error}: this notebook runs on {sys.executable}, where the course is not installed. In a terminal, in the "
        f'folder that holds pyproject.toml, type\n\n    "{sys.executable}" -m pip install -e .\n\nand restart the kernel.'
    ) from None

# %% tags=["card", "hide-input"]
book.card(14)

# %% [markdown]
# As in every chapter, `COURSE_SIZE` picks a column of the next table. At `ci` every cell runs, but the networks learn next to
# nothing; what is *asserted* holds at every size, and what is *reported* needs `lesson`.

# %% tags=["parameters"]
P = training.sized(  # (ci, lesson, paper)
    pictures=(16, 112, 1000),  # that networks learn from, with seven masks each
    tested=(8, 60, 400),
    side=(16, 24, 128),  # pixels
    epochs=(1, 8, 60),
    settle=(1, 2, 10),  # the last epochs, at a tenth of the rate
    batch_size=(8, 8, 8),
    short=(1, 4, 20),  # epochs of the settings that are broken on purpose
    signed=(16, 4, 4),  # epochs in which a sign is learned
)
print(f"size {training.size()}: {P}")

# %% [markdown]
# ## 1. The idea in one picture
#
# ```text
# picture ── Encoder ──► features ──┐
#                                   ▼
# at first: all raters alike ──►  ConP  ──► segmentation ──►  DivP  ──► a matrix for each rater
#                                   ▲                                          │
#                                   └───────────── the next recurrence ◄───────┘
# ```
#
# *ConP*, the converging prism, makes one mask out of a picture and confidences. *DivP*, the diverging prism, takes this mask apart
# again: it says what each rater would make of it. In this book its answer is a confusion matrix for each rater, as chapter 13 found it
# must be. *Rec0* is the first segmentation, made before anything is known of the raters; *Rec1* is the next, and so on. The
# raters' labels teach the two networks. They are not needed to use them.
#
# Three panels of seven raters. `jitter`: two are good, five careless, each in a way of their own. `dominant`: two are good, five
# draw the cup too large, and are fooled by the same pictures. `perfect`: all seven are good.

# %%
K, R, WHO = 3, 7, [f"rater {r}" for r in range(1, 8)]
PANEL = PANELS | {"perfect": (fundus.rater(**GOOD),) * R}


def draw(panel):
    """Pictures to learn from and to be tested on, and what the panel drew of the first."""
    train, test = (fundus.disc_and_cup(n, size=P.side, generator=seeded(40_002 + part)) for part, n in enumerate((P.pictures, P.tested)))
    said = draw_masks(train.truth, train.images, PANEL[panel], n_classes=K, generator=seeded(50_001))  # (N, R, H, W)
    return Drawn(train, test, Annotations(train.images, said, n_classes=K))


drawn = {panel: draw(panel) for panel in ("jitter", "dominant", "perfect")}
print(f"pictures {tuple(drawn['jitter'].train.images.shape)}, masks {tuple(drawn['jitter'].crowd.labels.shape)}")

# %% [markdown]
# This is the training cell of the chapter; it checks that parameters and loss live on the device it names. One `Prism` for each
# panel, in the *corrected* reading, all from the same first weights. Three recurrences are trained.
# (`fit` may warn that the matrices of a single run have collapsed. It is silenced here, and section 5 looks for itself.)

# %% tags=["training"]
BUDGET = {"epochs": P.epochs + P.settle, "settle": P.settle, "batch_size": P.batch_size}
device, prisms = training.pick_device(), {}
for panel, one in drawn.items():
    prisms[panel] = Prism(3, R, K, recurrences=3, generator=seeded(1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        history = training.fit(prisms[panel], one.crowd, seeds=1, progress=False, lr=5e-3, **BUDGET)
    assert all(parameter.device.type == device.type for parameter in prisms[panel].parameters())
    assert history.device.startswith(device.type)
    print(f"{panel}: {history}")


# %% [markdown]
# Ask the network of `jitter` for four recurrences of pictures that it has not seen, one more than it was trained for:

# %%
@torch.no_grad()
def ask(model, images, n=4):
    """Rec0, Rec1, ...: log p of each class (n, N, K, H, W), and what DivP read off it, matrices (n, N, R, K, K)."""
    model.eval()
    steps = model.steps(images.to(next(model.parameters()).device), n)
    return torch.stack([s.log_y.cpu() for s in steps]), torch.stack([s.log_z[..., 0, 0].cpu() for s in steps]).exp()


# %% [markdown]
# All three networks, on the same pictures:

# %%
answers = {panel: ask(model, drawn[panel].test.images) for panel, model in prisms.items()}
test = drawn["jitter"].test  # the same pictures in all panels
print(f"segmentations {tuple(answers['jitter'][0].shape)}, matrices {tuple(answers['jitter'][1].shape)}")

# %% tags=["hide-input"]
p, A = answers["jitter"][0].exp(), answers["jitter"][1]
n = int((p[1] - p[0]).abs().sum((1, 2, 3)).argmax())  # the picture whose map moved most
plots.described(
    plots.masks(p[:, n].argmax(1), test.truth[n], [f"Rec{i}" for i in range(4)], image=test.images[n].mean(0),
                title="After the first round, nothing happens any more"),
    "The unseen picture whose map moves most, in four recurrences of the network of jitter. White is right, yellow is the other of "
    f"rim and cup, blue is missed, orange too much (size {training.size()}).",
)  # fmt: skip

# %% [markdown]
# And the matrices that DivP reads off Rec0 of this one picture. No label of it was ever seen by anybody.

# %% tags=["hide-input"]
plots.described(
    plots.confusion_row(A[0, n], WHO, title="What DivP says of the raters", classes=["bg", "rim", "cup"]),
    "Matrices that DivP gives for one unseen picture. Every column sums to 1.",
)

# %% [markdown]
# So the loop runs, and its parts look sensible. Now the questions.
#
# ## 2. Predict
#
# Yes or no?

# %%
guess = {
    "jitter: Rec1 draws a better cup than Rec0": True,
    "dominant: Rec1 draws a better cup than Rec0": True,
    "perfect: the recurrences leave the answer alone": True,
    "jitter: Rec3 is still another map than Rec2": True,
    "jitter: MrPrism beats a plain network taught by Dawid-Skene's masks": True,
    "dominant: MrPrism beats a plain network taught by the vote": True,
    "another picture's confidences would spoil the answer": True,
}

# %% [markdown]
# ## 3. The maths
#
# ### Algorithm 1, and three ways to read it
#
# With $f$ the features of the picture, recurrence $i$ is
#
# $$
# \tilde y_i = \operatorname{ConP}(f,\ w_{i-1}), \qquad \tilde z_i = \operatorname{DivP}(\tilde y_i), \qquad w_i = \log \tilde z_i ,
# \qquad y^{\text{fuse}}_i = \tilde z_i \odot z ,
# $$ (eq-ch14-loop)
#
# where $z$ are the raters' masks and $\odot$ fuses them with these confidences. Two losses are added up over recurrences:
#
# $$
# \mathcal L^i_{\text{rec}} = L_{\text{ssim}}(\tilde y_i,\ y^{\text{fuse}}_{i-1}) + L_{\text{ssim}}(y^{\text{fuse}}_i,\ \tilde y_i),
# \qquad
# \mathcal L^i = \mathcal L^i_{\text{rec}} + \zeta\, \mathcal L^i_{\text{sff}} \ \text{ or } \ \mathcal L^i_{\text{rec}} + \zeta\, \mathcal L^i_{\text{MH}} .
# $$ (eq-ch14-loss)
#
# ConP learns the masks that were fused with the *last* confidences; DivP is to give confidences whose fusion agrees with the
# segmentation. The library has three readings of this, a few lines apart (`Prism(..., variant=...)`):
#
# | | `printed` | `released` | `corrected` |
# | --- | --- | --- | --- |
# | a confidence is | $\log p(\text{says } k)$ | $p(\text{says } k)$, no logarithm | a row of a $K \times K$ matrix |
# | labels are fused by | $\operatorname{softmax} \sum_m w^m \cdot z^m$ | weighted vote | Bayes, ConP's answer for a prior |
# | at first | all classes alike | all raters alike | .8 on every diagonal |
# | DivP is taught by | agreeing fusions, $\mathcal L_{\text{sff}}$ | the same | $\mathcal L_{\text{MH}}$: the likelihood of each label |
# | the sign of SSIM | a loss | mended: the code has it upside down | a loss |
#
# Chapter 13 proved that in the first of them a class loses by being voted for. Here it comes back as a *target*:

# %%
said = drawn["perfect"].crowd.labels[:4]  # (4, R, H, W)
together = (said == said[:, :1]).all(1)  # pixels of which all seven say the same
readings = {name: Prism(3, R, K, width=4, n_heads=2, variant=name, generator=seeded(0)) for name in ("printed", "released", "corrected")}
for name, model in readings.items():
    step = model.eval().steps(drawn["perfect"].train.images[:4], 1)[0]
    kept = (model.fused(step, said).argmax(1) == said[:, 0])[together].double().mean()
    print(f"{name:>9}: of the pixels on which all seven agree, the target keeps {kept:.0%}")
    assert (kept > 0.99) == (name != "printed")

# %% [markdown]
# ### One letter: $y^{\text{self}}$ or $y^{\text{fuse}}$
#
# Eq. 8, in the text, teaches ConP with $y^{\text{self}}_{i-1}$. Line 16 of Algorithm 1 teaches it with $y^{\text{fuse}}_{i-1}$. The second fuses
# the raters' labels. The first fuses the labels that DivP *foretells*, $\mathcal T(\tilde z)$: it is computed from $\tilde z$ alone. Look for $z$
# in Eq. 5, and there is none. A network that is taught by $y^{\text{self}}$ is taught by its own answers.
#
# That can be tested without any training. Change the labels, and see whether the target changes:

# %%
class SelfTaught(Prism):
    """Eq. 8 as it stands: the labels that are fused are those that DivP foretells."""

    def fused(self, step, labels, *, prior=None):
        prior = torch.zeros_like(step.log_y) if prior is None else prior
        foretold = apply(step.log_z, prior).argmax(2)  # (B, R, H, W): of each rater the likeliest word
        return super().fused(step, foretold, prior=prior)


x, said = drawn["jitter"].train.images[:4], drawn["jitter"].crowd.labels[:4]
for make in (Prism, SelfTaught):
    model = make(3, R, K, width=4, n_heads=2, generator=seeded(0)).eval()
    step = model.steps(x, 1)[0]
    same = torch.equal(model.fused(step, said, prior=step.log_y), model.fused(step, (said + 1) % K, prior=step.log_y))
    print(f"{make.__name__:>10}: the same target for all labels? {same}")
    assert same == (make is SelfTaught)

# %% [markdown]
# So `fuse`, as in Algorithm 1, is right, and `self` cannot be. Section 6 trains it all the same.
#
# ### Two losses for DivP
#
# The plain one (Eq. 9) asks each head for its own rater's labels. With matrices this is the loss of part II, with the segmentation
# for the truth:
#
# $$
# \mathcal L_{\text{MH}} = - \frac{1}{n} \sum_{m,\ \text{pixels}} \log \sum_j A^{(m)}_{z^m,\, j}\ \tilde y_j ,
# $$ (eq-ch14-heads)
#
# the mean over the $n$ labels that were given. The paper prefers the *shuffle loss* (Eq. 10). Exchange the confidences of the raters at random,
# $\pi$; the fusion of the labels and the fusion of the foretold labels should be the same all the same:
#
# $$
# \mathcal L_{\text{sff}} = L_{\text{ce}}\Big( \operatorname{softmax} \sum_m w^{\pi(m)} \cdot \mathcal T_{.5}(\tilde z^m),\ \ \operatorname{softmax} \sum_m w^{\pi(m)} \cdot z^m \Big) .
# $$ (eq-ch14-shuffle)
#
# Two things are wrong with it. A threshold has no gradient: $\mathcal T_{.5}$ is flat wherever it has a derivative. (The library leaves the
# foretold labels soft.) And it never says *whose* label is whose. At first all heads are alike, $w^1 = \dots = w^7$. Then both
# fusions are sums of equal terms: in one of them, labels go in only as a *count of votes*. Which rater cast them has no
# influence, not on the loss and not on its gradient. All heads get the same gradient, so they are alike after the step, and after
# the next, for ever. An optimiser cannot break a symmetry that the loss has.

# %%
def gradient_spread(model, seed=0):
    """Largest difference between raters of the gradient of DivP's last layer, before any training, as a share of its size."""
    torch.manual_seed(seed)  # of the shuffle
    model.zero_grad()
    model.loss((x, said, torch.arange(R).expand(len(x), R), torch.arange(len(x)))).backward()
    g = model.divp.head.weight.grad.unflatten(0, (R, K * K))
    return float((g.amax(0) - g.amin(0)).max() / g.abs().max())


spread = {}
for loss in ("heads", "shuffle"):
    spread[loss] = gradient_spread(Prism(3, R, K, width=4, n_heads=2, losses=(loss,), generator=seeded(0)))
    print(f"{loss:>8}: gradients of the seven heads differ by {spread[loss]:.1e} of their size")
assert spread["shuffle"] < 1e-3 < 0.01 < spread["heads"]

# %% [markdown]
# And the value of the shuffle loss, with the raters' labels exchanged among them:

# %%
model = Prism(3, R, K, width=4, n_heads=2, losses=("shuffle",), recurrences=1, generator=seeded(0))
values = []
for order in ([0, 1, 2, 3, 4, 5, 6], [6, 2, 0, 1, 5, 4, 3], [3, 4, 5, 6, 0, 1, 2]):
    torch.manual_seed(0)
    values.append(float(model.loss((x, said[:, order], None, torch.arange(len(x)))).detach()))
print("loss with three orders of the raters:", [f"{v:.5f}" for v in values])
assert max(values) - min(values) < 1e-5

# %% [markdown]
# ### SSIM is a similarity
#
# $1 - \text{SSIM}$ is a loss: 0 where two maps are equal. SSIM itself is 1 there. The released code calls a function that returns the
# similarity and *adds* it to what is minimised.

# %%
y = one_hot(test.truth, K).movedim(-1, 1).float()
like, unlike = float(metrics.ssim(y, y)), float(metrics.ssim(y, y.flip(1)))
print(f"SSIM of the truth with itself {like:.2f}, with cup and background exchanged {unlike:.2f}")
assert like > unlike  # whoever minimises SSIM prefers the second

# %% [markdown]
# ### Three smaller slips
#
# A threshold has no gradient, and of three classes it can mark none (Eq. 12). The logarithm of a threshold is 0 or $-\infty$ (Eq. 19).
# And a step *along* the gradient, as in lines 19 to 21 of Algorithm 1, makes a loss larger:

# %%
foretold = torch.tensor([0.4, 0.35, 0.25], requires_grad=True)
marked = (foretold > 0.5).float()
assert not marked.requires_grad and marked.sum() == 0 and marked.log().tolist() == [-torch.inf] * 3
nats = lambda z: -z.log_softmax(0)[0]  # noqa: E731  (the loss of a label 0)
(slope,) = torch.autograd.grad(nats(foretold), foretold)
assert nats(foretold + 0.1 * slope) > nats(foretold) > nats(foretold - 0.1 * slope)
print(f"marked: {marked.tolist()}; loss {nats(foretold):.3f}, after a step as printed {nats(foretold + 0.1 * slope):.3f}, downhill {nats(foretold - 0.1 * slope):.3f}")

# %% [markdown]
# ### A size, and a $\beta$
#
# Table 5 of the paper lists layers with the sizes of what they return: the first block of DivP, a convolution with stride 2 and a pooling with stride 2, returns $32 \times 32$; ConP doubles
# $8 \times 8$ four times. The text says that all pictures are $256 \times 256$. Run the layers, padded by half
# of what they look at, as is usual:

# %% tags=["hide-input"]
with torch.device("meta"):  # sizes alone, no numbers
    opening = torch.nn.Sequential(torch.nn.Conv2d(1, 1, 8, stride=2, padding=3), torch.nn.MaxPool2d(3, stride=2, padding=1))
    doubled = torch.nn.Sequential(*[torch.nn.ConvTranspose2d(1, 1, 2, stride=2) for _ in range(4)])
    begins = {side: opening(torch.zeros(1, 1, side, side)).shape[-1] for side in (128, 256)}
    ends_at = doubled(torch.zeros(1, 1, 8, 8)).shape[-1]
print(f"DivP begins with {begins[128]} pixels a side for pictures of 128, with {begins[256]} for 256; ConP ends at {ends_at}")
assert begins == {128: 32, 256: 64} and ends_at == 128

# %% [markdown]
# They fit pictures of 128. Next, Eq. 3 comes with a weight $\beta$ that is to *increase*, and is not seen again: Eq. 13 adds the losses of all recurrences up alike. What would it do? Line 2 of Eq. 6 asks for
# the $y$ that makes $\frac{\beta + 1}{2} (y - y')^2 + \frac12 (y^{\text{fuse}} - y)^2$ smallest. How far does $y$ go from $y'$ towards what the raters say?

# %% tags=["hide-input"]
way = torch.linspace(0, 1, 10_001).double()  # y' = 0, y_fuse = 1
share = {beta: float(way[((beta + 1) / 2 * way**2 + (1 - way) ** 2 / 2).argmin()]) for beta in (0, 1, 10, 100)}
print("share of the way: " + ", ".join(f"beta {beta}: {s:.3f}" for beta, s in share.items()) + "; a loss with y_fuse alone for its target: 1")
assert all(abs(s - 1 / (beta + 2)) < 1e-3 for beta, s in share.items()) and max(share.values()) <= 0.5

# %% [markdown]
# Half of the way at most, and less in each round if $\beta$ grows. The loss that is trained (line 16 of Algorithm 1) has $y^{\text{fuse}}$ alone for its target: all the way, in every round. So it is
# not Eq. 6 with any $\beta \ge 0$, and we leave $\beta$ out, as the algorithm does.
#
# ### What is detached
#
# "The gradients are back-forward individually in each recurrence": whatever goes into the next recurrence, or serves as a target, is
# treated as a constant. So SSIM teaches Encoder and ConP only, and $\mathcal L_{\text{MH}}$ teaches DivP only. No gradient ever tells DivP that its matrices
# helped ConP. That has a good side, a small memory, and a bad one: nothing in the loss rewards a *useful* recurrence. Without its own loss DivP
# learns nothing at all:

# %%
model = Prism(3, R, K, width=4, n_heads=2, losses=(), generator=seeded(0))
model.loss((x, said, None, torch.arange(len(x)))).backward()
moves = lambda part: any(p.grad is not None and p.grad.any() for p in part.parameters())  # noqa: E731
print(f"SSIM alone has a gradient for: Encoder {moves(model.encoder)}, ConP {moves(model.conp)}, DivP {moves(model.divp)}")
assert moves(model.encoder) and moves(model.conp) and not moves(model.divp)

# %% [markdown]
# ## 4. From scratch
#
# ### The loop
#
# Encoder, ConP and DivP are small networks, and they are in `course_lib.prism_networks`. The recurrence itself is these lines:

# %%
def recur(model, x, n):
    """Rec0, Rec1, ...: pairs of log p(class) (B, K, H, W) and log matrices (B, R, K, K, H, W)."""
    features, found = model.encoder(x), []
    log_A = model.identity.log_softmax(2).expand(len(x), R, K, K, *x.shape[2:])  # nothing known: all alike
    for _ in range(n):
        log_y = model.conp(features, log_A.detach().flatten(1, 3)).log_softmax(1)
        maps = model.divp(log_y.exp().detach()).mean((2, 3), keepdim=True)  # one matrix a picture
        log_A = (maps.unflatten(1, (R, K, K)) + model.identity).log_softmax(2).expand_as(log_A)
        found.append((log_y, log_A))
    return found


x, said = x.to(device), said.to(device)
with torch.no_grad():
    for ours, theirs in zip(recur(prisms["jitter"].eval(), x, 4), prisms["jitter"].steps(x, 4)):
        assert torch.allclose(ours[0], theirs.log_y, atol=1e-5) and torch.allclose(ours[1], theirs.log_z, atol=1e-5)  # shown == shipped
print("four recurrences, the same maps and matrices as the library's")

# %% [markdown]
# There is not one label in it. The whole loop, with its rounds, is a function of the picture. Keep this in mind: *any* network that maps
# pictures to masks could in principle do what it does.
#
# ### The loss of one recurrence
#
# The first target: all raters trusted alike, .8 on the diagonal. Then SSIM for ConP, and {eq}`eq-ch14-heads` for DivP.

# %%
def loss_slow(model, x, labels):
    """The loss of Rec0: x (B, C, H, W), labels (B, R, H, W), none missing."""
    ((log_y, log_A),) = recur(model, x, 1)
    alike = model.identity.log_softmax(2).expand_as(log_A)
    target = posterior(alike, torch.zeros_like(log_y), labels).exp()  # no prior yet
    total = 0
    for r in range(R):
        says = (log_A[:, r] + log_y.detach()[:, None]).logsumexp(2)  # (B, K, H, W): log p(rater r says each class)
        total = total - says.gather(1, labels[:, r : r + 1]).sum()
    return 1 - metrics.ssim(log_y.exp(), target) + model.zeta * total / labels.numel()


model = Prism(3, R, K, width=4, n_heads=2, recurrences=1, generator=seeded(2)).to(device)
by_hand, library = float(loss_slow(model, x, said).detach()), float(model.loss((x, said, None, torch.arange(len(x)))).detach())
print(f"by hand {by_hand:.6f}, library {library:.6f}")
assert abs(by_hand - library) < 1e-5

# %% [markdown]
# ### What a recurrence costs
#
# Autograd keeps arrays for the way back. Count the numbers that it keeps, each array once, by the number of recurrences. With
# `frugal=True` the arrays *inside* a recurrence are made again when they are needed:

# %%
def held(n, **how):
    """Numbers that are kept for the way back, of n recurrences."""
    kept, model = {}, Prism(3, R, K, width=4, n_heads=2, recurrences=n, generator=seeded(0), **how).to(device)
    remember = lambda a: (kept.__setitem__(a.data_ptr(), a.numel()), a)[1]  # noqa: E731
    with torch.autograd.graph.saved_tensors_hooks(remember, lambda a: a):
        loss = model.loss((x, said, None, torch.arange(len(x))))
    return sum(kept.values()) if loss.requires_grad else 0


# %% [markdown]
# Four lengths, both ways:

# %%
numbers = {frugal: [held(n, frugal=frugal) for n in (1, 2, 3, 4)] for frugal in (False, True)}
for frugal, kept in numbers.items():
    print(f"frugal={frugal!s:<5}: " + ", ".join(f"{k:,}" for k in kept) + " numbers with 1, 2, 3, 4 recurrences")
assert numbers[True][3] - numbers[True][2] < 0.25 * (numbers[False][3] - numbers[False][2])

# %% [markdown]
# ## 5. The experiment
#
# ### Does the map move?
#
# For each panel, soft Dice of the cup of four recurrences, and how far the map moved since the last one: the sum over classes of
# $|p_{i+1} - p_i|$, the mean over pixels and pictures. It is 0 if nothing moved and 2 if everything did.

# %%
cup = lambda log_p, truth: metrics.soft_dice(log_p, truth, CUP)  # noqa: E731
recs, steps_of = {}, {}
for panel, (log_y, _) in answers.items():
    recs[panel] = [cup(each, test.truth) for each in log_y]
    steps_of[panel] = [0.0] + [float((b.exp() - a.exp()).abs().sum(1).mean()) for a, b in zip(log_y, log_y[1:])]
    print(f"{panel:>9}: " + "   ".join(f"Rec{i} {s:.3f} (moved {m:.4f})" for i, (s, m) in enumerate(zip(recs[panel], steps_of[panel]))))


def outcome(sentence, seen):
    judged = "seen" if seen else "your run differed"
    print(f"{judged if training.size() != 'ci' else 'at size ci nothing is decided'}: {sentence}")


# %% [markdown]
# In words, with a line for each thing to look for:

# %%
outcome("everywhere, the first round moves the map far more than the second", all(m[1] > 5 * m[2] for m in steps_of.values()))
outcome("after Rec1 nothing moves: less than a hundredth of a class a pixel", all(max(m[2:]) < 0.01 for m in steps_of.values()))

# %% tags=["hide-input"]
plots.described(
    plots.curve(range(4), recs, title="One step, up or down, and then nothing", xlabel="recurrence", ylabel="soft Dice of the cup", model="jitter"),
    f"Soft Dice of the cup on unseen pictures, by recurrence, of one network a panel (size {training.size()}).",
)  # fmt: skip

# %% [markdown]
# So "four recurrences" are two: Rec0, and all the others. A table that shows only scores would have shown "converged". And the step from Rec0 to
# Rec1 is no law. It depends on the panel, and on the draw: with other masks and weights, the same panel gives a large gain or none. (Change the seeds
# of `draw` and `Prism`.)
#
# ### Why Rec1 differs from Rec0 at all
#
# Look at what each of them is *taught*. Rec0's target trusts all raters alike; it is close to the vote. Rec1's target is fused with the
# matrices that DivP has found by then, and with Rec0 for a prior. Both can be held against the truth of the training pictures:

# %%
@torch.no_grad()
def targets(model, one):
    """What Rec0 and Rec1 are taught: soft masks (N, K, H, W) of the training pictures."""
    model.eval()
    here = next(model.parameters()).device
    said, rec0 = one.crowd.labels.to(here), model.steps(one.train.images.to(here), 1)[0]
    alike = Step(torch.zeros_like(rec0.log_y), model.identity.log_softmax(2).expand_as(rec0.log_z))
    return [q.cpu() for q in (model.fused(alike, said), model.fused(rec0, said, prior=rec0.log_y))]


# %% [markdown]
# Beside the vote, and beside what the two recurrences draw on unseen pictures:

# %%
gained = {}
for panel, model in prisms.items():
    vote = one_hot(fusion.majority(drawn[panel].crowd.labels, K, generator=seeded(1)), K).movedim(-1, 1).double()
    scores = [cup(log(q.double()), drawn[panel].train.truth) for q in (vote, *targets(model, drawn[panel]))]
    gained[panel] = scores[2] - scores[1], recs[panel][1] - recs[panel][0]
    print(f"{panel:>9}: the vote {scores[0]:.3f}; taught to Rec0 {scores[1]:.3f}, to Rec1 {scores[2]:.3f}; on unseen pictures Rec0 {recs[panel][0]:.3f}, Rec1 {recs[panel][1]:.3f}")
outcome("jitter: Rec1 is taught by far better masks than Rec0", gained["jitter"][0] > 0.03)
outcome("dominant: Rec1 has hardly a better target, and is no better", gained["dominant"][0] < 0.05 and gained["dominant"][1] < 0.01)

# %% [markdown]
# The paper calls the rise from Rec0 to Rec1 "self-calibration": the answer to *this* picture improves itself. What these numbers say is simpler. Rec0
# is taught something else than Rec1. In `jitter` the second lesson is by far the better one; but both recurrences are one network with the same weights,
# and the better lesson can lift Rec0 as well, so that little is left for Rec1 to gain. In `dominant` the second lesson is hardly better, for the matrices believe five
# who err together, and Rec1 may lose. Look at `perfect`, too. Its raters leave nothing to be calibrated, so whatever its two recurrences do there is no
# calibration either.

# %%
gap = recs["perfect"][1] - recs["perfect"][0]
print(f"perfect raters: Rec1 - Rec0 = {gap:+.3f}; moved {steps_of['perfect'][1]:.4f}, then {steps_of['perfect'][2]:.4f}")
with_seven = masks_learned_from(prisms["perfect"], drawn["perfect"])
agree = (drawn["perfect"].crowd.labels == drawn["perfect"].crowd.labels[:, :1]).all(1)
overruled = (with_seven.argmax(1) != drawn["perfect"].crowd.labels[:, 0])[agree].double().mean()
print(f"of the pixels on which all seven perfect raters agree, MrPrism's fusion overrules them in {overruled:.2%}")

# %% [markdown]
# If the last number is not nearly 0, you have met a trap of every model that learns matrices and truth together (chapter 10). The network was slow to
# find the cup; the matrices were faster, and explained it away, as "what these seven say where it is rim". Nothing in the loss forbids it: seven
# raters with the same odd matrix explain these labels, too. At twice this learning rate we have seen it happen; the vote never loses the cup.
#
# ### What is handed on?
#
# Here is the question that decides the case. From one recurrence to the next goes *only* the matrices. If the loop calibrates each picture,
# each picture must get its own. So swap them. Give ConP, for Rec1, the matrices of *another* picture; or the mean over all pictures,
# a constant that needs no DivP at all:

# %%
@torch.no_grad()
def handed(model, images):
    """Rec1 with its own confidences, with another picture's, and with the mean of all: log p (N, K, H, W) each."""
    model.eval()
    images = images.to(next(model.parameters()).device)
    features, c = model.encoder(images), model.steps(images, 1)[0].log_z.flatten(1, 3)
    given = {"its own": c, "another picture's": c.roll(1, 0), "the mean of all": c.mean(0, keepdim=True).expand_as(c)}
    return {name: model.step(features, maps).log_y.cpu() for name, maps in given.items()}


# %% [markdown]
# In brackets, how far the map is from the one with its own confidences, by the same measure as above:

# %%
apart = {}
for panel, model in prisms.items():
    found = handed(model, test.images)
    apart[panel] = {name: float((q.exp() - found["its own"].exp()).abs().sum(1).mean()) for name, q in found.items()}
    print(f"{panel:>9}: " + "; ".join(f"{name} {cup(q, test.truth):.3f} (apart {apart[panel][name]:.4f})" for name, q in found.items()))
    spread = answers[panel][1][0].std(0).max()  # over pictures, of the entry that varies most
    print(f"{'':>9}  matrices: from picture to picture, no entry varies by more than {spread:.4f} (standard deviation)")
outcome("a constant does as well as the picture's own confidences", all(a["the mean of all"] < 0.01 for a in apart.values()))

# %% [markdown]
# Case closed, for this reading at this size. DivP says of every picture the same, as it should: a rater's matrix is a habit of the *rater*, and how these raters
# err depends on the segmentation hardly at all. So what goes round in the loop is a constant. "Recurrence" is then one network that is
# run twice, with one of two settings of a switch: *trust all alike*, or *trust as learned*. It cannot converge to anything over rounds, since
# after the first round there is nothing new to say.
#
# Raters whose habits do depend on what they see, the panel `specialists`, are the fairer case; so is `where="pixel"`. Chapter 15 takes the method apart.
#
# ### Against plain networks, with the same loss
#
# Now the rivals. A U-Net of the same width, the same pictures, steps, and the same $1 - \text{SSIM}$ (at its own best rate, .01; MrPrism's is .005), taught by masks that were fused
# *before* anything was trained: by the vote, by Dawid-Skene on pixels, and, as a ceiling, the truth. And one more: taught by the masks that
# MrPrism makes of the training labels with its last matrices. The loss must be the same, since soft Dice rewards sharp maps, and SSIM makes them.

# %%
def plain(q, panel):
    """A U-Net taught by soft masks q (N, K, H, W)."""
    return fitted(AggNet(networks.unet(3, K, width=12, generator=seeded(1)), q), drawn[panel].crowd, 1, lr=1e-2, **BUDGET)


lessons, nets = {}, {}
for panel in ("jitter", "dominant"):
    for how in ("mode_label", "dawid_skene"):
        lessons[panel, how] = fused(how, drawn[panel], 1)
    lessons[panel, "MrPrism's masks"] = masks_learned_from(prisms[panel], drawn[panel])
lessons["jitter", "truth"] = fused("truth", drawn["jitter"], 1)
for (panel, how), q in lessons.items():
    if (panel, how) != ("dominant", "dawid_skene"):  # chapter 13 has shown what five who share their mistakes do to it
        nets[panel, how] = plain(q, panel)
lessons["dominant", "truth"], nets["dominant", "truth"] = lessons["jitter", "truth"], nets["jitter", "truth"]  # the same pictures

# %% tags=["hide-input"]
NAMES = {"mode_label": "the vote", "dawid_skene": "Dawid-Skene", "MrPrism's masks": "MrPrism's masks", "truth": "the truth (ceiling)"}
lines = ["| | " + " | ".join(f"{panel}: masks, network" for panel in ("jitter", "dominant")) + " |", "| --- | --- | --- |"]
score = {}
for how, name in NAMES.items():
    for panel in ("jitter", "dominant"):
        there = (panel, how) in nets
        score[panel, how] = cup(training.predict_log_p(nets[panel, how], test.images), test.truth) if there else float("nan")
    quality = {panel: cup(log(lessons[panel, how]), drawn[panel].train.truth) for panel in ("jitter", "dominant")}
    lines.append(f"| plain network, taught by {name} | " + " | ".join(f"{quality[p]:.3f}, {score[p, how]:.3f}".replace("nan", "–") for p in quality) + " |")
for i in (0, 1, 3):
    lines.append(f"| MrPrism, Rec{i} | " + " | ".join(f"{recs[p][i]:.3f}" for p in ("jitter", "dominant")) + " |")
Markdown("\n".join(lines))

# %% [markdown]
# Soft Dice of the cup: of the masks that taught a network, on the training pictures, and of the network, on unseen ones. One run each: differences
# of a point or two mean nothing, and in `dominant` networks of one and the same teacher differ by more than that from draw to draw.

# %%
outcome("jitter: a plain network on Dawid-Skene's masks is not behind MrPrism by two points", score["jitter", "dawid_skene"] > recs["jitter"][3] - 0.02)
for panel in ("jitter", "dominant"):
    outcome(f"{panel}: a plain network on MrPrism's masks is not behind MrPrism by two points", score[panel, "MrPrism's masks"] > recs[panel][3] - 0.02)
# %% [markdown]
# And your guesses of section 2:

# %%
seen = {
    "jitter: Rec1 draws a better cup than Rec0": recs["jitter"][1] > recs["jitter"][0],
    "dominant: Rec1 draws a better cup than Rec0": recs["dominant"][1] > recs["dominant"][0],
    "perfect: the recurrences leave the answer alone": abs(gap) < 0.02,
    "jitter: Rec3 is still another map than Rec2": steps_of["jitter"][3] > 0.01,
    "jitter: MrPrism beats a plain network taught by Dawid-Skene's masks": recs["jitter"][3] > score["jitter", "dawid_skene"] + 0.01,
    "dominant: MrPrism beats a plain network taught by the vote": recs["dominant"][3] > score["dominant", "mode_label"] + 0.01,
    "another picture's confidences would spoil the answer": apart["jitter"]["another picture's"] > 0.01,
}
for sentence, guessed in guess.items():
    print(f"you said {'yes' if guessed else 'no ':<3}, measured {'yes' if seen[sentence] else 'no ':<3}: {sentence}")

# %% [markdown]
# What the masks are is what counts more than the loop: a plain network that is taught by MrPrism's masks comes to within two points of MrPrism, in one pass. And
# in `jitter`, where the matrices are worth a lot, Dawid-Skene finds them without any network, in a second.
#
# ### Five draws
#
# One draw decides nothing. The committed results have five of each panel, with the settings of `course run prism-readings` and
# `course run prism-table1`: soft Dice of the cup, mean and 95 % interval over draws.

# %%
def committed(name, methods, metrics_wanted):
    """A Markdown table of a committed result, or a sentence where there is none."""
    try:
        result = experiments.read(data.shipped(f"results/{name}.lesson.json"))
    except FileNotFoundError:
        return f"*The five draws of `{name}` are not committed yet: `course run {name}` makes them.*"
    panels = list(dict.fromkeys(row["setting"]["annotators"] for row in result["rows"]))
    lines = ["| method | panel | " + " | ".join(metrics_wanted.values()) + " |", "| --- | --- |" + " --- |" * len(metrics_wanted)]
    for method in methods:
        for panel in panels:
            rows = [r["metrics"] for r in result["rows"] if r["method"] == method and r["setting"]["annotators"] == panel]
            cells = [[r[m] for r in rows if m in r] for m in metrics_wanted]
            spans = ["{:.3f} ± {:.3f}".format(*plots.interval(c)) if len(c) > 1 else "" for c in cells]
            lines += [f"| {method} | {panel} | " + " | ".join(spans) + " |"] if rows else []
    return "\n".join(lines)


# %% [markdown]
# First the three readings, with what they make of the training labels ("fused") and how far their maps move:

# %% tags=["hide-input"]
WANTED = {f"soft_dice_cup_rec{i}": f"Rec{i}" for i in (0, 1, 3)} | {"moved_rec1": "moved, Rec1", "moved_rec3": "moved, Rec3", "fused_soft_dice_cup": "fused"}
Markdown(committed("prism-readings", ("prism_printed", "prism_released", "prism"), WANTED))

# %% [markdown]
# Then MrPrism beside plain networks and other methods, all with the same loss and steps; `prism_taught` is a plain network, taught by
# MrPrism's masks:

# %% tags=["hide-input"]
RIVALS = ("truth", "mode_label", "staple", "dawid_skene", "aggnet", "global_joint", "mrnet", "prism", "prism_taught")
Markdown(committed("prism-table1", RIVALS, {"soft_dice_disc": "disc", "soft_dice_cup": "cup", "fused_soft_dice_cup": "fused"}))

# %% [markdown]
# ## 6. Break it
#
# ### The wrong sign of SSIM
#
# As the released code has it: the similarity is added to the loss. A plain network, the *truth* for a teacher, a few dozen steps, once with either sign.

# %%
class AsReleased(AggNet):
    """Minimises the similarity with its target."""

    def loss(self, batch):
        x, _, _, index = batch
        return metrics.ssim(self.log_p(x).exp(), self.q[index])


signs = {}
for name, make in (("1 - SSIM", AggNet), ("+ SSIM", AsReleased)):
    net = make(networks.unet(3, K, width=12, generator=seeded(1)), fused("truth", drawn["jitter"], 1))
    fitted(net, drawn["jitter"].crowd, 1, epochs=P.signed, batch_size=P.batch_size, lr=1e-2)
    log_p = training.predict_log_p(net, test.images)
    signs[name] = float(metrics.ssim(log_p.exp(), y)), metrics.soft_dice(log_p, test.truth, 1), cup(log_p, test.truth)
    print(f"{name:>8}: similarity with the truth {signs[name][0]:+.3f}, soft Dice of the disc {signs[name][1]:.3f}, of the cup {signs[name][2]:.3f}")
assert signs["1 - SSIM"][0] > signs["+ SSIM"][0] + 0.1

# %% [markdown]
# The network does what it is told. Whoever reads only a falling loss curve sees nothing odd: both fall.
#
# ### Three other lessons, the same loop
#
# Now MrPrism with its parts exchanged, for a few epochs with two recurrences, at twice the rate of before: as corrected; with target $y^{\text{self}}$ (Eq. 8); with the shuffle loss
# alone; and, for half as long, as printed.

# %%
broken = {}
for name, (make, how) in {
    "corrected": (Prism, {}),
    "target y_self": (SelfTaught, {}),
    "shuffle alone": (Prism, {"losses": ("shuffle",)}),
    "printed": (Prism, {"variant": "printed"}),
}.items():
    model = make(3, R, K, recurrences=2, generator=seeded(1), **how)
    epochs = -(-P.short // 2) if name == "printed" else P.short
    broken[name] = fitted(model, drawn["jitter"].crowd, 1, epochs=epochs, batch_size=P.batch_size, lr=1e-2)
# %% [markdown]
# On unseen pictures:

# %%
ends = {name: training.predict_log_p(model, test.images) for name, model in broken.items()}
for name, log_p in ends.items():
    area = (log_p.argmax(1) > 0).double().mean()
    print(f"{name:>13}: soft Dice of the disc {metrics.soft_dice(log_p, test.truth, 1):.3f}, of the cup {cup(log_p, test.truth):.3f}; calls {area:.0%} of the pixels disc")
print(f"{'the truth':>13}: {(test.truth > 0).double().mean():.0%} of the pixels are disc")

# %% tags=["hide-input"]
plots.described(
    plots.masks(torch.stack([log_p[n].argmax(0) for log_p in ends.values()]), test.truth[n], list(ends), image=test.images[n].mean(0),
                title="One letter, one loss, one formula"),
    f"The unseen picture of section 1, drawn by four short runs on jitter (size {training.size()}).",
)  # fmt: skip

# %% [markdown]
# With $y^{\text{self}}$ the network teaches itself what it happens to say, and ends with one class for everything. As printed, it learns masks in which
# the class that was voted for has lost. And with the shuffle loss alone, look at the raters:

# %%
def unlike(model):
    """Largest difference between two raters in any entry of their matrices, mean over pictures."""
    A = ask(model, test.images, 2)[1][-1]  # (N, R, K, K)
    return float((A.amax(1) - A.amin(1)).amax((1, 2)).mean())


# %% [markdown]
# Good and careless raters should differ a lot:

# %%
identities = {name: unlike(broken[name]) for name in ("corrected", "shuffle alone")}
print(f"raters differ by at most: {', '.join(f'{name} {value:.1e}' for name, value in identities.items())}")
assert identities["shuffle alone"] < 0.01 * max(identities["corrected"], 0.01) or identities["shuffle alone"] < 1e-3
outcome("y_self ends with one class", float((ends["target y_self"].argmax(1) > 0).double().mean()) < 0.01)
outcome("printed loses disc and cup", metrics.soft_dice(ends["printed"], test.truth, 1) < 0.5)

# %% [markdown]
# After all its steps, seven raters have the very same matrix: the good and the careless. The symmetry of section 3 is not a matter of long enough
# training. Its score may be decent for some steps, since a fusion with all raters alike is a vote, and the vote is a decent teacher here. But
# what it was trained for, to know the raters, it has not begun to learn; and the one matrix that all share is held by nothing, and can drift until it says
# nothing of the truth: look at the cup above. (With a random start of the heads they would differ; but by the accident of the start, not by what they said. Nothing ties a
# head to its rater.) The paper finds that $\mathcal L_{\text{MH}}$ "is no longer needed" beside the shuffle. Here it is the only thing that knows who is who.
#
# ## 7. Exercises
#
# Write your answer into the cell that says `NotImplementedError`, then run the check below it.
#
# ```{exercise} Fuse and detach (★, 15 minutes)
# :label: ex-ch14-target
#
# Exercise 14.1. The target of the next recurrence. `log_A` (B, R, K, K, H, W) are the log matrices of DivP, said before truth, `log_y` (B, K, H, W)
# what ConP says, `labels` (B, R, H, W), -1 where a rater was not asked. Return $p$ (B, K, H, W): Bayes, with ConP's answer for a prior, and no
# gradient into what made it. Without `course_lib`.
# ```

# %% tags=["stub"]
def next_target(log_A, log_y, labels):
    """(B, R, K, K, H, W), (B, K, H, W), (B, R, H, W) -> (B, K, H, W)."""
    raise NotImplementedError


# %% [markdown]
# <details><summary>Hint 1: a nudge</summary>
#
# It is exercise 13.1 for all pixels at once, in logarithms. Which axis of `log_A` does a label pick from?
#
# </details>
# <details><summary>Hint 2: the formula</summary>
#
# $p_k \propto \exp\big(\log \tilde y_k + \sum_{m:\, \text{asked}} \log A^{(m)}_{z^m,\, k}\big)$.
#
# </details>
# <details><summary>Hint 3: the shape of the code</summary>
#
# `rows = torch.take_along_dim(log_A, labels.clamp(min=0)[:, :, None, None], 2)[:, :, 0]` is (B, R, K, H, W). `torch.where` puts 0 where a label is
# missing. Sum over raters, add the prior, `.softmax(1)`, `.detach()`.
#
# </details>

# %% tags=["check", "raises-exception"]
checks.next_target(next_target)


# %% tags=["solution", "hide-cell"] jupyter={"source_hidden": true}
def next_target(log_A, log_y, labels):
    """(B, R, K, K, H, W), (B, K, H, W), (B, R, H, W) -> (B, K, H, W)."""
    rows = torch.take_along_dim(log_A, labels.clamp(min=0)[:, :, None, None], 2)[:, :, 0]  # (B, R, K, H, W)
    evidence = torch.where((labels >= 0)[:, :, None], rows, 0).sum(1)
    return (log_y + evidence).softmax(1).detach()


checks.next_target(next_target)
step = prisms["jitter"].steps(x, 1)[0]
target = next_target(step.log_z, step.log_y, said)
alone = next_target(step.log_z, step.log_y, torch.full_like(said, MISSING))
print(f"no labels at all: the target is ConP's own answer, {float((alone - step.log_y.exp().detach()).abs().max()):.1e} apart")
print(f"with seven masks it is another one: {float((target - alone).abs().sum(1).mean()):.3f} apart")

# %% [markdown]
# **What you should see, and why.** Where nobody was asked, the target is what ConP said: it teaches nothing there, and does no harm. If the target were
# not detached, the loss could also fall by moving the *target* towards the answer, the cheapest way to agree.
#
# ```{exercise} The loss of the heads (★★, 15 minutes)
# :label: ex-ch14-heads
#
# Exercise 14.2. {eq}`eq-ch14-heads`, with labels missing. The same arguments. Return one number: the mean, over all labels that were given, of
# $-\log$ of their probability, when the truth is as ConP says it and the rater errs as DivP says. No gradient may reach ConP.
# ```

# %% tags=["stub"]
def loss_of_heads(log_A, log_y, labels):
    """(B, R, K, K, H, W), (B, K, H, W), (B, R, H, W) -> a number."""
    raise NotImplementedError


# %% [markdown]
# <details><summary>Hint 1: a nudge</summary>
#
# Add up over the truth, for each rater by itself, *before* the logarithm. Then over labels.
#
# </details>
# <details><summary>Hint 2: the formula</summary>
#
# $\log \sum_j \exp\,(\log A_{z,\,j} + \log \tilde y_j)$ is a `logsumexp` over $j$. Divide by how many labels there are, not by how many there could be.
#
# </details>
# <details><summary>Hint 3: the shape of the code</summary>
#
# `rows` as in exercise 14.1; `said = (rows + log_y.detach()[:, None]).logsumexp(2)` is (B, R, H, W); then `-said[labels >= 0].mean()`.
#
# </details>

# %% tags=["check", "raises-exception"]
checks.loss_of_heads(loss_of_heads)


# %% tags=["solution", "hide-cell"] jupyter={"source_hidden": true}
def loss_of_heads(log_A, log_y, labels):
    """(B, R, K, K, H, W), (B, K, H, W), (B, R, H, W) -> a number."""
    rows = torch.take_along_dim(log_A, labels.clamp(min=0)[:, :, None, None], 2)[:, :, 0]  # (B, R, K, H, W)
    said = (rows + log_y.detach()[:, None]).logsumexp(2)  # (B, R, H, W)
    return -said[labels >= 0].mean()


checks.loss_of_heads(loss_of_heads)
for i, step in enumerate(prisms["jitter"].eval().steps(x, 3)):
    print(f"Rec{i}: {float(loss_of_heads(step.log_z, step.log_y, said).detach()):.4f} nats a label")
start = prisms["jitter"].identity.log_softmax(2).expand_as(step.log_z)
print(f"with the start for all raters: {float(loss_of_heads(start, step.log_y, said).detach()):.4f}")

# %% [markdown]
# **What you should see, and why.** The loss of the raters hardly depends on the recurrence: the matrices are nearly the same in all of them, and only the
# segmentation differs. Against the start there is a clear difference, if the network has learned at all.
#
# ```{exercise} How far it moves (★, 10 minutes)
# :label: ex-ch14-moved
#
# Exercise 14.3. The number that a table of recurrences should always show. `log_p` (B, n, K, H, W) are the logarithms of the maps of $n$ recurrences. Return
# $(n - 1,)$: from each to the next, $\sum_k |p_k - p'_k|$, the mean over pictures and pixels.
# ```

# %% tags=["stub"]
def moved(log_p):
    """(B, n, K, H, W) -> (n - 1,)."""
    raise NotImplementedError


# %% [markdown]
# <details><summary>Hint 1: a nudge</summary>
#
# Probabilities, not logarithms: a change from $10^{-9}$ to $10^{-6}$ is nothing that anybody sees.
#
# </details>
# <details><summary>Hint 2: the formula</summary>
#
# $\frac{1}{B H W} \sum_{b, h, w} \sum_k |p^{(i+1)} - p^{(i)}|$, between 0 and 2.
#
# </details>
# <details><summary>Hint 3: the shape of the code</summary>
#
# `p = log_p.exp()`, then `(p[:, 1:] - p[:, :-1]).abs()`; one `.sum` over an axis, one `.mean` over three.
#
# </details>

# %% tags=["check", "raises-exception"]
checks.moved(moved)


# %% tags=["solution", "hide-cell"] jupyter={"source_hidden": true}
def moved(log_p):
    """(B, n, K, H, W) -> (n - 1,)."""
    p = log_p.exp()
    return (p[:, 1:] - p[:, :-1]).abs().sum(2).mean((0, 2, 3))


checks.moved(moved)
for panel, model in prisms.items():
    far = moved(ask(model, test.images, 8)[0].transpose(0, 1))
    print(f"{panel:>9}, eight recurrences: " + " ".join(f"{m:.1e}" for m in far.tolist()))

# %% [markdown]
# **What you should see, and why.** Each number is a small part of the one before, until only rounding is left. The loop does converge, and fast: not because two networks have come to
# an agreement, but because what they hand on hardly depends on what they were handed.
#
# ```{exercise} Can this loss tell raters apart? (★★★, 20 minutes)
# :label: ex-ch14-told
#
# Exercise 14.4. Write the test of section 3 yourself. `model` is a `Prism` whose heads are still alike; `batch` is what its `loss` takes. Take the gradient
# of the loss with respect to the weights of DivP's last layer, `model.divp.head.weight` (R K K, C, 1, 1), the raters one after the other. Return, of all
# entries, the largest difference between two raters. The model may have been used before: old gradients must not count.
# ```

# %% tags=["stub"]
def told_apart(model, batch):
    """A Prism, (x, labels, who, index) -> a number."""
    raise NotImplementedError


# %% [markdown]
# <details><summary>Hint 1: a nudge</summary>
#
# `.backward()` *adds* to the gradients that are there.
#
# </details>
# <details><summary>Hint 2: the formula</summary>
#
# With the gradient as $g_{r,\, e}$, rater and entry: $\max_e\, (\max_r g_{r,\, e} - \min_r g_{r,\, e})$.
#
# </details>
# <details><summary>Hint 3: the shape of the code</summary>
#
# `model.zero_grad()`, `model.loss(batch).backward()`, `g = model.divp.head.weight.grad.unflatten(0, (model.R, -1))`; then `amax(0)` and `amin(0)`.
#
# </details>

# %% tags=["check", "raises-exception"]
checks.told_apart(told_apart)


# %% tags=["solution", "hide-cell"] jupyter={"source_hidden": true}
def told_apart(model, batch):
    """A Prism, (x, labels, who, index) -> a number."""
    model.zero_grad()
    model.loss(batch).backward()
    g = model.divp.head.weight.grad.unflatten(0, (model.R, -1))  # (R, K K, C, 1, 1)
    return float((g.amax(0) - g.amin(0)).max())


checks.told_apart(told_apart)
batch = (x, said, torch.arange(R, device=x.device).expand(len(x), R), torch.arange(len(x)))
for losses in (("heads",), ("shuffle",), ("heads", "shuffle")):
    model = Prism(3, R, K, width=4, n_heads=2, losses=losses, generator=seeded(0)).to(x.device)
    print(f"{' + '.join(losses):>15}: {told_apart(model, batch):.1e}")

# %% [markdown]
# **What you should see, and why.** One loss that knows who is who is enough, and the shuffle adds nothing to it. The test needs no training, no truth, and a
# second of computing. Before you train a model of people for a day, ask whether its loss knows them.
#
# ## 8. What the paper claims and what we measured
#
# Drawn from `book/claims.yaml` and the committed results, never typed.

# %% tags=["hide-input"]
judged = claims.table(experiment="prism-readings")
Markdown(judged if judged.count("\n") > 1 else "*No claim is judged by these results yet.*")

# %% [markdown]
# What this chapter asserted needs no result file: that the printed fusion loses a unanimous vote, that $y^{\text{self}}$ has no label in it, that the shuffle
# loss has one gradient for all raters, that $+\,$SSIM learns the opposite. Each is a cell with an `assert`.
#
# ## 9. Three questions
#
# <details><summary>1. A table has Rec0 84.3, Rec1 87.6, Rec2 88.7, Rec3 88.5, and the text says that the method calibrates itself. What would you ask for?</summary>
#
# How far the map moved in each round. What Rec0 was taught, and what Rec1 was. The score of Rec1 when the confidences of another picture are
# handed on. And a plain network with the same loss and steps, taught by the same fused masks.
#
# </details>
#
# <details><summary>2. The loop needs no labels at test time. So how can it know, on a new picture, that rater 3 draws cups too large?</summary>
#
# It learned that in training, from labels. On a new picture DivP repeats it. It could only add something if rater 3's habit depended on what the
# segmentation shows; then DivP could say "of a cup like this, rater 3 draws too much". It still would not have seen the rater.
#
# </details>
#
# <details><summary>3. Why not let the gradient run through all recurrences, so that DivP is rewarded for matrices that help ConP?</summary>
#
# Then the matrices would be whatever helps ConP: a code between two networks, and no longer confusion matrices. And the target, if it is not
# detached, can be moved towards the answer. One may want the first; then do not call it a rater's confidence.
#
# </details>
#
# ## 10. Further reading and errata
#
# **Further reading.** {cite:t}`wu2022` is the paper of this part. {cite:t}`albarqouni2016` take the same turns between a network and matrices, but by counting, over all
# pictures: the `AggNet` of the library. {cite:t}`dawid1979` without any network. {cite:t}`wang2004` for SSIM. {doc}`/notebooks/10_what_the_trace_identifies` for why
# matrices can explain a class away.
#
# **Errata** of {cite:t}`wu2022`, as far as this chapter needs them; those of the fusion itself are in {doc}`/notebooks/13_confidence`.
#
# - Eq. 8 teaches ConP with $y^{\text{self}}$, which has no label in it; Algorithm 1, line 16, has $y^{\text{fuse}}$. Only the second can work (sections 3 and 6).
#   Eq. 6 and Eq. 16 of the supplement disagree in the same way, and Eq. 15 calls `self` what is computed from the labels.
# - Eq. 12 and line 15: $\mathcal T_{.5}$ has no gradient, so the foretold labels cannot learn. With three classes it can also mark none at all.
# - Eq. 10: with heads that are alike the loss has the same gradient for all of them, and cannot tell raters apart (asserted).
# - Lines 19 to 21 *add* $\lambda$ times the gradient: that climbs (section 3). It must be minus.
# - The released code minimises SSIM, a similarity, where the paper has a loss (section 6).
# - Eq. 19 (supplement) exchanges the logarithm and the threshold: $\log \mathcal T(\tilde z)$ is 0 or $-\infty$.
# - Table 5 lists the sizes of a network for pictures of 128 pixels; the text has 256 (section 3, asserted).
# - The $\beta$ of Eq. 3, "increasing", appears in no loss, and no $\beta \ge 0$ gives the loss that is trained (section 3, asserted).
