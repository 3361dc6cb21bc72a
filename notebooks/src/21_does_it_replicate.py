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
# # 21. Does it replicate?
#
# *Reference chapter.* Four papers and a reply make claims, and this book has tested most of them. Here is the whole account: what
# holds, what does not, how sure that is, which formulas are wrong, and which cell proves it. No verdict is typed. All are computed from
# committed results, and you can compute them again.
#
# **You will be able to**
#
# - say what "it replicates" means in this book, and what it does not mean;
# - read an interval against a margin, and tell *no effect* from *not enough draws*;
# - rerun a claim and hold your numbers against the committed ones;
# - look up any table, figure or formula of the four papers;
# - add a claim of your own, with a check that a machine can recompute.
#
# **You need to know** what a confusion matrix is (chapter 1). Paired intervals are explained in full in chapter 15 and in short here.
#
# **Time** about 45 minutes with the exercises (an estimate), of which the computer needs the seconds below.
#
# **Data** 5,000 handwritten digits {cite:p}`lecun1998` for the live run, and the results of all experiments of the book.

# %%
try:
    import numpy as np
    import yaml
    from IPython.display import Markdown, display
    from matplotlib.figure import Figure

    import course_lib.checks.replicate as checks
    from course_lib import book, data, experiments, plots, training
    from course_lib.experiments import claim_tables, claims, classes, errata, papers
except ImportError as error:
    import sys

    raise SystemExit(
        f"{error}: this notebook runs on {sys.executable}, where the course is not installed. In a terminal, in the "
        f'folder that holds pyproject.toml, type\n\n    "{sys.executable}" -m pip install -e .\n\nand restart the kernel.'
    ) from None

# %% tags=["card", "hide-input"]
book.card(21)

# %% [markdown]
# As in every chapter, `COURSE_SIZE` picks a column. It concerns the live run of section 4 only; all else is read.

# %% tags=["parameters"]
P = training.sized(  # (ci, lesson, paper)
    draws=(3, 5, 10),  # panels of annotators in the live run
)
print(f"size {training.size()}: {P}")

# %% [markdown]
# ## 1. The idea in one picture
#
# A claim is of the form "method *a* is better than method *b* by more than a margin". Both run on the same draws: the same pictures,
# the same annotators, the same labels, the same first weights. So each draw gives one difference $d$, and the differences an interval
# of 95 %. Where that lies decides.

# %%
def forest(ax, names, judged, margins=True):
    """One line a claim: mean and 95 % interval of a - b, and where the claim wants it to lie above."""
    looks = {"holds": ("o", plots.MODEL), "weaker": ("^", plots.MODEL), "not reproduced": ("s", plots.BASELINES[0])}
    for y, (name, j) in enumerate(zip(names, judged)):
        marker, color = looks[j.verdict]
        ax.plot([j.low, j.high], [y, y], color=color, linewidth=2)
        ax.plot(j.mean, y, marker, color=color, markersize=6, markerfacecolor=color if j.verdict == "holds" else "white")
        if margins:
            ax.plot(j.claim["check"]["min_diff"], y, "|", color="black", markersize=9, markeredgewidth=1.5)
        ax.text(-0.02, y, name, transform=ax.get_yaxis_transform(), ha="right", va="center", fontsize=8.5)
    ax.axvline(0, color="black", linewidth=0.7)
    ax.set(yticks=[], ylim=(len(names) - 0.4, -0.6))
    ax.spines[["left", "top", "right"]].set_visible(False)
    ax.grid(axis="x", color="#E5E5E5", linewidth=0.7)


# %% [markdown]
# Five made-up claims, each with five draws:

# %%
MADE_UP = {
    "holds": (0.05, [0.11, 0.13, 0.10, 0.12, 0.14]),
    "holds, and costs a little": (-0.05, [-0.02, -0.01, 0.00, -0.02, -0.01]),
    "weaker": (0.05, [0.05, 0.06, 0.04, 0.07, 0.05]),
    "not reproduced: undecided": (0.0, [0.20, -0.03, 0.15, -0.10, 0.06]),
    "not reproduced: the other way": (0.0, [-0.11, -0.09, -0.12, -0.08, -0.10]),
}
shown = []
for name, (margin, differences_) in MADE_UP.items():
    word = name.split(":")[0].split(",")[0]
    shown.append(claims.Judged({"check": {"min_diff": margin}}, *claims.interval(np.array(differences_)), 5, word))

# %% tags=["hide-input"]
fig = Figure(figsize=(5, 2.6), layout="constrained")
ax = fig.subplots()
forest(ax, MADE_UP, shown)
ax.set_xlabel("a - b: further right is better for the claim")
plots.described(
    fig,
    "Made up, to show how to read what follows. Black tick: the margin that the claim asks for. Filled circle: holds. Open triangle: above 0, but "
    "not above the margin. Open square: not reproduced.",
    "Five intervals of a difference. " + " ".join(f"{name}: {j.low:+.2f} to {j.high:+.2f}." for name, j in zip(MADE_UP, shown)),
)  # fmt: skip

# %% [markdown]
# The last two get one word and are two findings. The fourth says *we do not know*: five draws cannot decide it. The fifth says *it was the
# other way round here*. The account below keeps them apart.
#
# **What a verdict does not say.** Our pictures are small or drawn, our people simulated, our networks fit on a laptop. "Not
# reproduced" means that the difference did not show *in this rebuilding*. It does not mean that the authors' numbers are wrong.
# "Holds" means that it showed here, and not that it will on your data.
#
# ## 2. Predict
#
# How large a share of each paper's tested claims holds? Write down a number between 0 and 1 for each before you read on.

# %%
guess = {
    "002": None,  # Tanno: one matrix for each annotator
    "000": None,  # Zhang: one for each pixel
    "004": None,  # the reply to its reviewers
    "001": None,  # Wu: MrPrism
    "003": None,  # Zhang: coarse strokes
}

# %% [markdown]
# ## 3. How a verdict is computed
#
# A row of `book/claims.yaml`:

# %%
everything = claims.claims()
print(yaml.safe_dump(everything[0], sort_keys=False, width=110))

# %% [markdown]
# `experiment` names a file in `book/results`, in which each line is one run. `check` says which number of which two methods is subtracted.
# With $n$ draws,
#
# $$
# \bar d \pm t_{.975,\,n-1}\, \frac{s_d}{\sqrt n}, \qquad \text{holds} \iff \text{lower end} > \text{min\_diff} .
# $$ (eq-ch21-interval)
#
# Here it is by hand, for this claim:

# %%
check = everything[0]["check"]
result = experiments.read(data.shipped(f"results/{everything[0]['experiment']}.json"))
each = {side: experiments.values(result, check[side], check["metric"], **check["where"]) for side in "ab"}  # (draws,), same order
d = each["a"] - each["b"]
t = {10: 2.262}[len(d)]  # Student's t for ten draws
low, high = d.mean() - t * d.std(ddof=1) / len(d) ** 0.5, d.mean() + t * d.std(ddof=1) / len(d) ** 0.5
print(f"{len(d)} draws, a - b = {d.round(3)}\nmean {d.mean():+.3f}, 95 % interval [{low:+.3f}, {high:+.3f}], asked for {check['min_diff']:+.2f}")

# %% [markdown]
# `claims.judge` does the same for any claim. A mistake there would be a mistake everywhere, so compare:

# %%
judged = [claims.judge(claim) for claim in everything]
assert np.allclose([judged[0].low, judged[0].high], [low, high], atol=1e-3)
assert all(j.verdict == claim["verdict"] for j, claim in zip(judged, everything))  # what the list says is what the rows say
print(f"{len(judged)} claims judged; the verdicts in the list are those that the results give")

# %% [markdown]
# ## 4. One claim, run again
#
# Trust is good. This claim takes seconds: with one label an image, one matrix for each annotator beats training on the labels as they
# are (`trace` against `vanilla`). The cell calls the experiment's own functions, for fewer draws. It is the training cell of this
# chapter, and checks that each network lives where it says.

# %%
device = training.pick_device()


def lives_there(method, run):
    """No numbers of its own: it only checks the device."""
    assert all(parameter.device.type == device.type for parameter in method.parameters())
    return {}


# %% [markdown]
# Five flippers, right in 45 of 100 cases, who label each image once between them:

# %% tags=["training"]
setting = classes.settings_of("pairwise_flippers", (check["where"]["skill"],), (1,))
rows = classes.compare(setting, ("trace", "vanilla"), seeds=P.draws, size=training.size(), progress=False, also=lives_there)
seconds, memory = sum(row["seconds"] for row in rows), max(row["peak_mb"] for row in rows)
print(f"{len(rows)} runs on {experiments.device_name()}: {seconds:.1f} s of training, {memory} MB at most")

# %% [markdown]
# Judged like the committed rows, and printed beside them:

# %%
live = {"experiment": "live", "rows": rows}
mine = experiments.values(live, "trace", "accuracy") - experiments.values(live, "vanilla", "accuracy")
again = claims.interval(mine)
verdict_now = "holds" if again[1] > check["min_diff"] else "weaker" if again[1] > 0 else "not reproduced"
print(f"committed: {judged[0].ours} -> {judged[0].verdict}")
print(f"your run:  {again[0]:+.3f} [{again[1]:+.3f}, {again[2]:+.3f}], n = {len(mine)} -> {verdict_now} (size {training.size()})")
print(f"draw by draw: committed {d[: len(mine)].round(3)}\n              your run  {mine.round(3)}")
if again[0] < 0:
    print("your run differed: in ours the trace was ahead")

# %% [markdown]
# The committed run is of `lesson` size, with ten draws. At that size the same draws have the same labels and first weights on every machine, so
# the two lines should agree but for their last digits: sums inside a network are rounded differently from one processor to the next. With fewer draws the
# interval is a little wider or narrower, as luck has it. At `ci` size the networks have learned for less long, and the gap is smaller.
#
# ## 5. The whole account
#
# ### How many hold

# %%
WORDS = ("holds", "weaker", "undecided", "the other way", "not tested")


def finding(j):
    """The verdict, with `not reproduced` split by what the interval says."""
    return j.verdict if j.verdict != "not reproduced" else "the other way" if j.high < min(0, j.claim["check"]["min_diff"]) else "undecided"


count = {paper: {word: sum(finding(j) == word for j in judged if j.claim["paper"] == paper) for word in WORDS} for paper in papers.TITLES}

# %% [markdown]
# "The other way" is an interval that lies wholly below 0, and below the margin where that is below 0. What is left is "undecided".

# %% tags=["hide-input"]
lines = ["| paper | " + " | ".join(WORDS) + " | claims |", "| --- |" + " --- |" * (len(WORDS) + 1)]
for paper, title in papers.TITLES.items():
    lines.append(f"| {title} | " + " | ".join(str(count[paper][word]) for word in WORDS) + f" | {sum(count[paper].values())} |")
total = {word: sum(count[paper][word] for paper in count) for word in WORDS}
lines.append("| **all** | " + " | ".join(str(total[word]) for word in WORDS) + f" | {sum(total.values())} |")
Markdown("\n".join(lines))

# %% [markdown]
# The same as shares of each paper's claims:

# %% tags=["hide-input"]
LOOKS = {"holds": (plots.MODEL, ""), "weaker": ("#7FB8D8", "//"), "undecided": ("#D9D9D9", ""), "the other way": ("#6B6B6B", "\\\\"), "not tested": ("white", "")}
fig = Figure(figsize=(5, 3.4), layout="constrained")
ax = fig.subplots()
for y, (paper, title) in enumerate(papers.TITLES.items()):
    left, n = 0.0, sum(count[paper].values())
    ax.text(0, y - 0.42, f"{title.replace(' to the reviewers of', ':')} ({n} claims)", fontsize=10)
    for word, (color, hatch) in LOOKS.items():
        share = count[paper][word] / n
        ax.barh(y, share, 0.5, left=left, color=color, hatch=hatch, edgecolor="black", linewidth=0.8)
        dark = word in ("holds", "the other way")
        if share > 0.04:
            box = {"facecolor": color, "edgecolor": "none", "pad": 1}
            ax.text(left + share / 2, y, count[paper][word], ha="center", va="center", color="white" if dark else "black", bbox=box)
        left += share
ax.legend(handles=[ax.barh(0, 0, color=c, hatch=h, edgecolor="black", label=w) for w, (c, h) in LOOKS.items()], ncols=3, loc="upper center", bbox_to_anchor=(0.5, 0), frameon=False)
ax.set(xlim=(0, 1), ylim=(4.4, -0.7))
ax.set_axis_off()
plots.described(
    fig, "The claims of each paper by what was found. A bar is all claims of a paper; numbers count them.",
    " ".join(f"{title}: " + ", ".join(f"{count[paper][w]} {w}" for w in WORDS) + "." for paper, title in papers.TITLES.items()),
)  # fmt: skip

# %% [markdown]
# And your guesses:

# %%
for paper, title in papers.TITLES.items():
    tested = sum(count[paper][word] for word in WORDS[:-1])
    said = "no guess" if guess[paper] is None else f"your guess {guess[paper]:.0%}"
    print(f"{title:<45} {count[paper]['holds'] / tested:4.0%} of {tested} tested claims hold; {said}")
by_chance = 0.025 * sum(j.n > 0 for j in judged)
print(f"\nif nothing differed from anything, about {by_chance:.0f} of {sum(j.n > 0 for j in judged)} intervals would lie above 0 by chance")

# %% [markdown]
# Read the shares with care. A claim is not a unit of anything: one table may give a dozen that stand and fall together, and some rows
# are our own yardsticks, marked as such. Nor is a share a grade for a paper. A paper whose claims are about classes can be rebuilt with
# digits; one that needs eyes, brains and lungs is rebuilt with drawings.
#
# ### How large, and how sure
#
# Every tested claim, one line each, sorted by its mean within its verdict. What is measured in megabytes is named in a caption instead. The
# name of a line is the claim's `id`; the tables below have its text.

# %%
ORDER = ("holds", "weaker", "not reproduced")


def pages(paper, most=30):
    """The tested claims of a paper in lots that fit a page."""
    mine = sorted((j for j in judged if j.claim["paper"] == paper and j.n and abs(j.mean) < 2), key=lambda j: (ORDER.index(j.verdict), -j.mean))
    lots = -(-len(mine) // most)
    return [mine[k * len(mine) // lots : (k + 1) * len(mine) // lots] for k in range(lots)]


# %% [markdown]
# Differences are in units of the metric, in most cases a share (accuracy, Dice, IoU), with signs such that the right is what
# the claim says:

# %% tags=["hide-input"]
for paper, title in papers.TITLES.items():
    outside = [f"{j.claim['id']} ({j.mean:+.0f} MB)" for j in judged if j.claim["paper"] == paper and j.n and abs(j.mean) >= 2]
    lots = pages(paper)
    for k, lot in enumerate(lots):
        fig = Figure(figsize=(5, 0.8 + 0.215 * len(lot)), layout="constrained")
        ax = fig.subplots(gridspec_kw={"left": 0.52})
        forest(ax, [j.claim["id"].replace("-", " ") for j in lot], lot)
        ax.set_xlabel("a - b, mean and 95 %")
        part = f", part {k + 1} of {len(lots)}" if len(lots) > 1 else ""
        left_out = f" Not drawn: {', '.join(outside)}." if outside and k == 0 else ""
        words = "; ".join(f"{j.claim['id'].replace('-', ' ')} {j.mean:+.2f}, {j.verdict}" for j in lot)
        caption = f"{title}{part}: {len(lot)} claims. Filled circle: holds; open triangle: weaker; open square: not reproduced; black tick: the margin.{left_out}"
        display(plots.described(fig, caption, f"Forest plot of {len(lot)} claims: {words}."))

# %% [markdown]
# Look at the widths. Where an interval is narrow and on the wrong side, something was found out. Where it is wide, nothing was: most of these
# are Dice of small objects, which some networks do not find at all.
#
# ### Find a claim
#
# Type words, choose a verdict. This works in the built page, too.

# %%
claim_tables.ClaimFilter(judged)

# %% [markdown]
# The same tables, unfiltered, for paper and for browsers without scripts. Each opens on a click:

# %%
claim_tables.tables(judged)

# %% [markdown]
# ## 6. Is anything left out?
#
# A list of claims is easily made of what one likes. So here is every table and figure of the papers, and what speaks of it. A test
# fails if one has neither a claim nor a reason.

# %% tags=["hide-input"]
assert papers.missing() == []
lines = ["| paper | shown | claims | what they say |", "| --- | --- | --- | --- |"]
for row in papers.rows():
    verdicts = [finding(judged[everything.index(claim)]) for claim in row.claims] if row.claims else []
    words = ", ".join(f"{verdicts.count(word)} {word}" for word in WORDS if word in verdicts) or f"*{row.why_none}*"
    lines.append(f"| {papers.TITLES[row.paper]} | {row.name} | {len(row.claims) or '-'} | {words} |")
Markdown("\n".join(lines))

# %% [markdown]
# What is not tested, and why:

# %% tags=["hide-input"]
lines = ["| claim | where | why not |", "| --- | --- | --- |"]
lines += [f"| {j.claim['claim']} | {papers.TITLES[j.claim['paper']]}, {j.claim['where']} | {j.claim['why']} |" for j in judged if not j.n]
Markdown("\n".join(lines))

# %% [markdown]
# And what was run, where. All verdicts rest on size `lesson`: small pictures and short training. Size `paper` and GPUs are for whoever
# has them; `course run NAME --size paper --commit` puts a result beside the others, and the next build of this page counts it.

# %%
def committed(name, size):
    """A result of the book, None where it was not computed."""
    try:
        return experiments.read(data.shipped(f"results/{name}.{size}.json"))
    except FileNotFoundError:
        return None


ran = {}
for size in ("lesson", "paper"):
    found = {name: committed(name, size) for name in experiments.EXPERIMENTS}
    ran[size] = results = {name: result for name, result in found.items() if result}
    n_runs = sum(len(r["rows"]) for r in results.values())
    print(f"{len(results)} of {len(experiments.EXPERIMENTS)} experiments at `{size}`: {n_runs} runs")
on_gpu = [one for one in book.ledger().values() if one["gpu"]]
print(f"{len(on_gpu)} of {len(book.ledger())} chapters have been run on a GPU; the others are not yet run on one")

# %% tags=["hide-input"]
lines = ["| experiment | size | runs | device | seconds |", "| --- | --- | --- | --- | --- |"]
for size, results in ran.items():
    for name, r in sorted(results.items()):
        lines.append(f"| `{name}` | {size} | {len(r['rows'])} | {r['device']} | {r['seconds']:.0f} |")
lines += [f"| `{name}` | paper | *not yet run* | | |" for name in sorted(experiments.EXPERIMENTS.keys() - ran["paper"].keys())]
Markdown("<details><summary>Every experiment</summary>\n\n" + "\n".join(lines) + "\n\n</details>")

# %% [markdown]
# ## 7. Errata
#
# Formulas are another matter than outcomes. Whether columns sum to 1 is not a question of draws: a cell with an `assert` decides it,
# at any size, on any machine. The last column shows the line; the chapter is linked. A test checks that each line stands in a cell of its
# chapter. Where two printed numbers disagree, the cell holds them against each other: those numbers are the paper's. What no cell could decide would say so.

# %% tags=["hide-input"]
linked = {int(path.stem[:2]): path.name for path in book.chapters()}
proved = sum(bool(row["asserts"]) for row in errata.errata())
display(Markdown(f"{len(errata.errata())} entries, {proved} of them asserted by a cell."))
for paper, title in papers.TITLES.items():
    display(Markdown(f"**{title}**\n\n{errata.table(paper, pages=linked)}"))

# %% [markdown]
# All four are read as drafts, and a draft may have mistakes. None of this is meant as blame: to be this easy to check, a paper has to
# print its formulas and its code, and these did.
#
# ## 8. Exercises
#
# ```{exercise} Read an interval (★, 5 minutes)
# :label: ex-ch21-verdict
#
# Exercise 21.1. Given the ends `low` and `high` of an interval of *a - b* and the margin `min_diff`, three numbers, return `"holds"`,
# `"weaker"` or `"not reproduced"`. Mind claims whose margin is below 0: *costs at most .05*.
# ```

# %% tags=["stub"]
def verdict(low, high, min_diff):
    """Three numbers -> a word."""
    raise NotImplementedError


# %% [markdown]
# <details><summary>Hint 1: a nudge</summary>
#
# Which end of the interval has to pass? And for "costs at most .05", must anything be above 0?
#
# </details>
# <details><summary>Hint 2: the formula</summary>
#
# It holds where the lower end exceeds the margin; it is weaker where it does not, but exceeds 0.
#
# </details>
# <details><summary>Hint 3: the shape of the code</summary>
#
# `return "holds" if low > ? else "weaker" if low > ? else ?`
#
# </details>

# %% tags=["check", "raises-exception"]
checks.verdict(verdict)


# %% tags=["solution", "hide-cell"] jupyter={"source_hidden": true}
def verdict(low, high, min_diff):
    """Three numbers -> a word."""
    return "holds" if low > min_diff else "weaker" if low > 0 else "not reproduced"


checks.verdict(verdict)
print(f"[-.02, +.03] with margin -.05: {verdict(-0.02, 0.03, -0.05)}; with margin 0: {verdict(-0.02, 0.03, 0)}")

# %% [markdown]
# **What you should see, and why.** One interval, two verdicts: a margin belongs to the claim and is fixed before one looks. With
# enough draws every difference is "significant". The margin says which difference would matter.
#
# ```{exercise} Make pairs (★★, 15 minutes)
# :label: ex-ch21-pairs
#
# Exercise 21.2. `rows` is a list of runs as in a result file, in *any* order: each a dict with `"method"`, `"draw"`, `"seed"` and `"metrics"`. Return
# the differences of `metric` between methods `a` and `b`, (draws,), in order of draw, where the seeds of a draw are averaged first.
# ```

# %% tags=["stub"]
def differences(rows, a, b, metric):
    """A list of dicts, two names, a name -> (draws,)."""
    raise NotImplementedError


# %% [markdown]
# <details><summary>Hint 1: a nudge</summary>
#
# Two seeds on one draw saw the same people. Are they two pieces of evidence?
#
# </details>
# <details><summary>Hint 2: the formula</summary>
#
# $d_k = \frac1{|S|}\sum_{s} a_{ks} - \frac1{|S|}\sum_{s} b_{ks}$ for each draw $k$.
#
# </details>
# <details><summary>Hint 3: the shape of the code</summary>
#
# First a function that returns the mean of a method on a draw. Then `[mean(a, k) - ? for k in sorted(?)]`.
#
# </details>

# %% tags=["check", "raises-exception"]
checks.differences(differences)


# %% tags=["solution", "hide-cell"] jupyter={"source_hidden": true}
def differences(rows, a, b, metric):
    """A list of dicts, two names, a name -> (draws,)."""

    def mean(method, draw):
        values = [row["metrics"][metric] for row in rows if (row["method"], row["draw"]) == (method, draw)]
        return sum(values) / len(values)

    return [mean(a, draw) - mean(b, draw) for draw in sorted({row["draw"] for row in rows if row["method"] == a})]


checks.differences(differences)
print(f"the live run: {np.round(differences(rows, 'trace', 'vanilla', 'accuracy'), 3)}")

# %% [markdown]
# **What you should see, and why.** The differences of the live run, as in section 4. Subtracting run by run works only as long as all
# rows are there and in order; on a cluster they come as they end.
#
# ## 9. How to add a claim
#
# Say it so that it can fail. What is compared, by which number, under which setting, by how much at least? Then write it as a dict. This one is ours,
# about the results of section 3: *matrices counted against what the network decides are closer to the truth than those it has learned*.

# %%
mine = {
    "id": "counted-closer-than-learned",
    "paper": "002",
    "where": "Eq. 4, our own question",
    "claim": "Matrices counted against the network's decisions are closer than those that it learned",
    "theirs": "not in the paper",
    "experiment": "trace-mnist5k.lesson",
    "check": {"metric_a": "cm_error", "metric_b": "count_cm_error", "a": "trace", "b": "trace", "where": {"skill": 0.45}, "min_diff": 0.0},
    "why": "to be filled in once we know",
}

# %% [markdown]
# Errors stand on the side of *b*, so that a positive difference speaks for the claim. Before you run the next cell, what do you expect?
# (Chapter 3 has the reason why it might be so: the trace shrinks.)

# %%
found = claims.judge(mine)
print(f"{mine['claim']}:\n{found.ours} -> {found.verdict}")

# %% [markdown]
# Whatever came out goes into the list, with a sentence on why; that is the agreement. As YAML:

# %%
print(yaml.safe_dump([mine | {"verdict": found.verdict}], sort_keys=False, width=110))

# %% [markdown]
# Where there is no result yet:
#
# 1. Write the experiment, a function in `course_lib/experiments` that returns rows, and name it in `EXPERIMENTS`.
# 2. `course run NAME --seeds 5 --commit` writes `book/results/NAME.lesson.json`. Commit the code first, since the file keeps the commit that
#    it was made with.
# 3. Add the row to `book/claims.yaml`, margin included, *before* you look at the numbers.
# 4. `pytest tests/test_errata.py tests/test_checks_chapter3.py -k "errata or out_of_date"` recomputes every verdict, and says what is
#    named and not listed.
#
# ## 10. Three questions
#
# <details><summary>1. A claim is "not reproduced" with an interval from -.10 to +.30. A friend concludes that the method does nothing. What do you say?</summary>
#
# That the interval allows for a large gain as well as for a loss. It is no evidence for "nothing". For that, the interval would have to be *narrow* around 0. Run
# more draws, or find what makes them so different.
#
# </details>
# <details><summary>2. Why are the seeds of one draw averaged before the interval is computed?</summary>
#
# A claim is about annotators and labels in general, so the draw of annotators is what must be repeated. Ten seeds on one draw would make a narrow
# interval around what is true of *these* five people.
#
# </details>
# <details><summary>3. You run a claim again and the verdict changes. Which number do you report?</summary>
#
# Both, and what differed between the runs. If they are of the same kind, put the draws together and judge all of them. Choosing
# the nicer one is choosing on the test set.
#
# </details>
#
# ## 11. Further reading
#
# - What moves a benchmark besides the method: {cite:t}`bouthillier2021`. Why choosing and judging need different data: {cite:t}`cawley2010`.
# - Why most published findings of small, flexible studies may be false, by arithmetic: {cite:t}`ioannidis2005`.
# - A hundred studies of psychology done again: {cite:t}`osc2015`.
# - The same in reinforcement learning, where seeds decide: {cite:t}`henderson2018`.
# - What a programme of checklists and code did to a large conference: {cite:t}`pineau2021`.
