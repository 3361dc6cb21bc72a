"""What to do next, in plain words: rules from what the labels told."""

from __future__ import annotations

from typing import Any

from .held_out import CASES, CHANCE, EACH, NET_EACH, NET_PIXELS, NET_SHARED, NETWORKS, PLACES, SHARED, VOTE

BY_MODEL = {
    VOTE: "The vote fits as well as anything richer: use it, and keep the matrices as a description of the annotators.",
    SHARED: "One matrix for all fits as well as one each: annotators err alike, or gave too few labels to show how "
    "they differ. Chapter 2 fuses so; a network can share a matrix too (chapter 5).",
    EACH: "Annotators differ, and a matrix each pays: use the fused labels of this report (chapter 2; of masks, 7).",
    CASES: "Annotators change from case to case: fuse each case by itself, as this report did, and do not carry a "
    "matrix from one case to another (chapter 7).",
    PLACES: "How an annotator errs hangs on the place, at rims for instance: matrices for each pixel, learned with a "
    "network, are made for that (chapter 8).",
    NET_SHARED: "The pictures help, and one matrix for all is enough: the fused labels of this report come from the "
    "network and the labels together. Train the network longer, with a matrix that all share (chapter 5), before you "
    "use it on new pictures.",
    NET_EACH: "The pictures help, and annotators differ: the fused labels of this report come from the network and a "
    "matrix for each annotator, learned together. Train that model longer and with care (chapter 3 for classes, "
    "chapter 8 for masks) before you use it on new pictures.",
    NET_PIXELS: "The pictures help, and tell where each annotator errs: the fused masks of this report come from the "
    "network and a matrix for each pixel (chapter 8). Such matrices can foretell annotators well about a wrong truth: "
    "find out the truth of ten pictures, and compare it with the fused masks before you use any (chapter 9).",
}

FEW = 30
COPIES = (
    "The other labels foretell a label clearly better than any network that sees the picture. Either the pictures are "
    "too few or do not show what was asked, or something else binds these labels together: ask whether somebody "
    "copied, and find out the truth of some 20 items drawn at random (chapter 19, exercises 19.3 and 19.4)."
)
PICTURES_DID_NOT_HELP = (
    "The networks that looked at the pictures foretold labels no better, or not clearly so, with as many pictures and "
    "as short a training as here; the fused labels of this report are good to train one on."
)
LOST = (
    "The {model} foretold labels better, but it is not used: {lost}. It knows the annotators and has lost the truth; "
    "chapters 8 and 10 say how to keep it."
)
BLIND = (
    "The networks cannot show whether the pictures help: {lost}. They saw one pixel in {reduced} along each side, so "
    "that thin things vanish. The fused labels of this report do not hang on them; chapter 8 trains such networks with "
    "care."
)
TWO = (
    "There are two annotators, and where two differ labels alone cannot say who is right: other matrices explain the "
    "same labels as well. Take skills and fused labels for a guess, and have a third label some 20 items where they "
    "differ, or find out the truth of these."
)
NOT_ROW_DOMINANT = (
    "A matrix for each annotator foretells labels best, but does not tell what the classes are called: use the fused "
    "labels of this report only if they stand that comparison."
)
PICTURES_MAY_HELP = (
    "If there are pictures, let the report compare networks that look at them (--images), or train the network and the "
    "matrices together yourself (chapter 3 for classes, chapter 8 for masks)."
)


def sentences(found: dict[str, Any]) -> list[str]:
    """At most a dozen sentences, the gravest first; never empty."""
    told = [
        *_about_size(found),
        *_about_truth(found),
        *_about_agreement(found),
        *_about_annotators(found),
        *_about_dominance(found),
        *_about_doubt(found),
        *_about_model(found),
    ]
    return sorted(told, key=lambda sentence: sentence != COPIES)  # it casts doubt on all others


def _about_size(found: dict[str, Any]) -> list[str]:
    if found["kind"] == "masks" or found["items"] >= FEW:
        return []
    return [
        f"{found['items']} items are very few: read every number here as a first guess, and no difference between "
        "annotators as proven."
    ]


def _about_truth(found: dict[str, Any]) -> list[str]:
    """Whether the doubts were too small, by the items whose truth came along; the vote promises nothing."""
    known, promised = found["accuracy_on_given_truth"], found["fused"]["expected_errors"]
    if not known or found["fused_by"] == VOTE:
        return []
    wrong = 1 - known["fused"]
    if wrong - promised <= 3 * (max(promised * (1 - promised), 1e-9) / known["items"]) ** 0.5:
        return []
    better = f" Even the vote is right more often ({known['vote']:.1%})." if known["vote"] > known["fused"] else ""
    return [
        f"Of the {known['items']:,} items whose truth came along, {wrong:.1%} of the fused labels are wrong; the model "
        f"expects {promised:.1%}. Its doubts are too small: annotators err together, or their matrices come from few "
        f"labels. Look at items drawn at random, too, and not only at those in doubt (chapter 19).{better}"
    ]


def _about_agreement(found: dict[str, Any]) -> list[str]:
    agreed = found["agreement"]
    if agreed["same_label"] is None:
        return [
            "No item has two labels, so nothing shows who is reliable. Have a tenth of the items, drawn at random, "
            "labelled by a second annotator; then make this report again."
        ]
    alpha = agreed["krippendorff_alpha"]
    two = [TWO] if len(found["annotators"]) == 2 and found["fused_by"] not in (*NETWORKS, VOTE) else []
    if found["kind"] == "masks" or alpha is None or alpha >= 0.667:
        return two
    return [
        *two,
        f"Annotators agree little (Krippendorff's alpha {alpha:.2f}; below 0.667 he advises against conclusions). Read "
        "the items most in doubt together, and make the instructions clearer, before you collect more labels.",
    ]


def _about_annotators(found: dict[str, Any]) -> list[str]:
    L, told = len(found["classes"]), []
    enough = [a for a in found["annotators"] if a["labels"] >= (10 * L if found["kind"] == "classes" else 1)]
    guess = [a["name"] for a in enough if abs(a["skill"] - 1 / L) <= 0.1 and not _marks_rightly(found, a["name"])]
    if guess:
        told.append(
            f"{_names(guess)}: labels that say next to nothing of the truth (skill near {1 / L:.2f}, a guess). Look "
            "at ten of them before you pay for more. A model with a matrix each already gives them no weight."
        )
    swapped = [a for a in enough if a["worst_confusion"]["probability"] > 0.5 and a["name"] not in guess]
    told += [_mostly(found, a) for a in swapped[:2]]
    sizes = [a for a in found["annotators"] if (ratio := a.get("area_ratio")) and not 0.67 <= ratio <= 1.5]
    if sizes:
        shown = ", ".join(f"{a['name']} {a['area_ratio']:.2f}" for a in sizes[:4])
        told.append(
            f"Marked area against the fused one: {shown} (1 is equal). Do these annotators mean another border of the "
            "same thing? If so, say which is wanted, rather than fusing both."
        )
    return told


def _marks_rightly(found: dict[str, Any], name: str) -> bool:
    """Who draws a small part of a thing has a skill near a guess, and yet is right wherever something is marked."""
    marked = found["matrices"][name][1:] if found["kind"] == "masks" else []
    return any(max(row) > 3 * min(row) and max(row) > 0.05 for row in marked)


def _mostly(found: dict[str, Any], annotator: dict[str, Any]) -> str:
    """Two names exchanged, or one that is given too rarely: only the first is a matter of names."""
    worst, classes = annotator["worst_confusion"], found["classes"]
    i, j = classes.index(worst["says"]), classes.index(worst["truth"])
    back = found["matrices"][annotator["name"]][j][i]  # says j where the truth is i
    told = f"{annotator['name']} mostly says {worst['says']} where the truth seems to be {worst['truth']} "
    told += f"({worst['probability']:.2f})"
    if back > 0.5:
        return (
            f"{told}, and the other way round ({back:.2f}): ask whether they exchange the two. Such labels are useful."
        )
    if found["kind"] == "masks" and 0 in (i, j):
        return f"{told}: ask where they take the border to be, or what they leave out."
    return f"{told}, but not the other way round ({back:.2f}): show them some, and ask what they take for {classes[j]}."


def _about_dominance(found: dict[str, Any]) -> list[str]:
    if found["dominance"] > 0:
        return []
    return [
        "The mean matrix is not row dominant, so another naming of the classes may explain these labels as well. Find "
        "out the truth of some 20 items, and compare them with the fused labels before you use any."
    ]


def _about_doubt(found: dict[str, Any]) -> list[str]:
    share = found["fused"]["share_in_doubt"]
    what = "pixels lie in doubt; the pictures of this report show where" if found["kind"] == "masks" else "items"
    if found["kind"] == "masks":
        return [f"{share:.1%} of the {what}. Show these to an expert first."] if share > 0 else []
    if share <= 0.005:
        return []
    return [
        f"{share:.1%} of the {what} are in doubt ({found['doubt']}). Ask for one more label of these first, by the "
        "annotators of the highest skill (chapter 20)."
    ]


def _about_model(found: dict[str, Any]) -> list[str]:
    if not found["held_out"]:
        return ["Too few items have two labels to compare models by labels laid aside; the vote is used."]
    if found["held_out"][0]["model"] == CHANCE:
        return [
            "No model foretells a label better than the shares of the classes: these labels hang together by chance "
            "alone. Is the column of the items the right one?"
        ]
    told = BY_MODEL[chosen := found["fused_by"]]
    if chosen == EACH and found["dominance"] <= 0:
        told = NOT_ROW_DOMINANT
    if chosen in NETWORKS:
        return [told]
    if lost := [fit for fit in found["held_out"] if fit["lost"] and fit["behind"] < 0]:
        return [told, LOST.format(**lost[0])]
    looked = [fit for fit in found["held_out"] if fit["model"] in NETWORKS]
    reduced = max((run.get("reduced", 1) for run in found["networks"]["runs"]), default=1)
    if reduced > 1 and all(fit["lost"] for fit in looked):
        return [told, BLIND.format(lost=looked[0]["lost"], reduced=reduced)]
    if found["networks"]["runs"]:
        near = min((fit for fit in found["held_out"] if fit["model"] in NETWORKS), key=lambda fit: fit["behind"])
        clearly = found["kind"] == "classes" and chosen != VOTE and near["behind"] > (near["half"] or float("inf"))
        return [told, COPIES if clearly else PICTURES_DID_NOT_HELP]
    return [told, PICTURES_MAY_HELP] if chosen == EACH else [told]


def _names(names: list[str]) -> str:
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return ", ".join(names[:5]) + more
