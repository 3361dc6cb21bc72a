"""Every exercise of every chapter: its solution passes, its stub is not done, each listed mistake is named."""

import re

import pytest
import torch
from exercises import defined, outside

from course_lib.checks import (
    CheckFailed,
    NotDone,
    ablation,
    asking,
    classes,
    coarse,
    confidence,
    em,
    identify,
    labels_only,
    ladder,
    masks,
    own,
    people,
    pixels,
    plausible,
    radiologists,
    recurrence,
    replicate,
    retina,
    rivals,
    start,
    strokes,
)

CHECKS = {
    0: start,
    2: labels_only,
    3: classes,
    4: em,
    5: rivals,
    6: people,
    7: masks,
    8: pixels,
    9: ladder,
    10: identify,
    11: plausible,
    12: radiologists,
    13: confidence,
    14: recurrence,
    15: ablation,
    16: strokes,
    17: coarse,
    18: retina,
    19: own,
    20: asking,
    21: replicate,
}  # chapter 1's have a file of their own
TABLES = {
    (0, "share_right"): start.SHARE_MISTAKES,
    (0, "ill_if_positive"): start.BAYES_MISTAKES,
    (0, "log_softmax"): start.SOFTMAX_MISTAKES,
    (0, "one_step"): start.STEP_MISTAKES,
    (2, "one_item"): labels_only.ITEM_MISTAKES,
    (2, "counted_matrices"): labels_only.COUNT_MISTAKES,
    (2, "fit_score"): labels_only.FIT_MISTAKES,
    (2, "room"): labels_only.ROOM_MISTAKES,
    (3, "one_label"): classes.LABEL_MISTAKES,
    (3, "our_lambda"): classes.LAMBDA_MISTAKES,
    (3, "shrunken"): classes.SHRINK_MISTAKES,
    (3, "sharers_margin"): classes.SHARER_MISTAKES,
    (4, "e_step"): em.STEP_MISTAKES,
    (4, "how_many"): em.COUNT_MISTAKES,
    (4, "contest"): em.CONTEST_MISTAKES,
    (5, "bootstrap_target"): rivals.TARGET_MISTAKES,
    (5, "start_diagonal"): rivals.START_MISTAKES,
    (5, "mixture"): rivals.MIXTURE_MISTAKES,
    (5, "mutual_information"): rivals.INFORMATION_MISTAKES,
    (6, "skill_interval"): people.INTERVAL_MISTAKES,
    (6, "weighted_vote"): people.VOTE_MISTAKES,
    (6, "too_few"): people.THIN_MISTAKES,
    (7, "mean_dice"): masks.DICE_MISTAKES,
    (7, "pattern_matrices"): masks.PATTERN_MISTAKES,
    (7, "thick_only"): masks.THIN_MISTAKES,
    (7, "two_panels"): masks.PANEL_MISTAKES,
    (8, "label_loss"): pixels.LOSS_MISTAKES,
    (8, "together"): pixels.JOINT_MISTAKES,
    (8, "raised_by"): pixels.BIAS_MISTAKES,
    (8, "swelling"): pixels.GUARD_MISTAKES,
    (9, "freedom"): ladder.FREEDOM_MISTAKES,
    (9, "says"): ladder.SAYS_MISTAKES,
    (9, "pick"): ladder.PICK_MISTAKES,
    (9, "halves"): ladder.HALVES_MISTAKES,
    (10, "uniform_rest"): identify.REST_MISTAKES,
    (10, "impostor"): identify.IMPOSTOR_MISTAKES,
    (10, "per_class"): identify.MEAN_MISTAKES,
    (11, "apart"): plausible.APART_MISTAKES,
    (11, "kl_by_draws"): plausible.KL_MISTAKES,
    (11, "fair_energy"): plausible.ENERGY_MISTAKES,
    (11, "best_match"): plausible.MATCH_MISTAKES,
    (12, "alpha_interval"): radiologists.ALPHA_MISTAKES,
    (12, "limit"): radiologists.LIMIT_MISTAKES,
    (12, "by_patient"): radiologists.SHUFFLE_MISTAKES,
    (12, "folds"): radiologists.FOLD_MISTAKES,
    (13, "one_pixel"): confidence.PIXEL_MISTAKES,
    (13, "tipping_prior"): confidence.TIPPING_MISTAKES,
    (13, "another"): confidence.ANOTHER_MISTAKES,
    (13, "shared"): confidence.SHARED_MISTAKES,
    (14, "next_target"): recurrence.TARGET_MISTAKES,
    (14, "loss_of_heads"): recurrence.HEADS_MISTAKES,
    (14, "moved"): recurrence.MOVED_MISTAKES,
    (14, "told_apart"): recurrence.TOLD_MISTAKES,
    (15, "paired_interval"): ablation.INTERVAL_MISTAKES,
    (15, "that_fit"): ablation.FIT_MISTAKES,
    (15, "one_thing"): ablation.CHANGE_MISTAKES,
    (15, "chosen_blind"): ablation.CHOICE_MISTAKES,
    (16, "negative_loss"): strokes.NEGATIVE_MISTAKES,
    (16, "counted"): strokes.DENIAL_MISTAKES,
    (16, "information"): strokes.INFORMATION_MISTAKES,
    (16, "other_class"): strokes.UNMARKED_MISTAKES,
    (17, "boxes"): coarse.BOX_MISTAKES,
    (17, "wrong_share"): coarse.DISC_MISTAKES,
    (17, "foreground_words"): coarse.WORD_MISTAKES,
    (17, "coarsest"): coarse.COARSEST_MISTAKES,
    (18, "tree_iou"): retina.IOU_MISTAKES,
    (18, "recall_by_width"): retina.WIDTH_MISTAKES,
    (18, "tested_patches"): retina.CHILD_MISTAKES,
    (21, "verdict"): replicate.VERDICT_MISTAKES,
    (21, "differences"): replicate.DIFFERENCE_MISTAKES,
    (19, "foretell"): own.FORETELL_MISTAKES,
    (19, "simplest"): own.SIMPLEST_MISTAKES,
    (19, "surprise"): own.SURPRISE_MISTAKES,
    (19, "copies"): own.COPIES_MISTAKES,
    (20, "per_price"): asking.PRICE_MISTAKES,
    (20, "years_prior"): asking.YEARS_MISTAKES,
    (20, "with_limits"): asking.LIMIT_MISTAKES,
    (20, "labels_needed"): asking.NEEDED_MISTAKES,
}
ANSWERS = {
    "contest": "design",
    "two_panels": "design",
    "counted": "counted_M",
}  # where the reader's function has another name than its check
LISTED = [(*where, sentence, wrong) for where, table in TABLES.items() for sentence, wrong in table.items()]
NONSENSE = {0: (object(),), 2: (object(),), 6: (3,)}


@pytest.mark.parametrize(("chapter", "name"), TABLES)
def test_the_solution_passes_and_the_stub_is_not_done(chapter, name, capsys):
    check, answer = getattr(CHECKS[chapter], name), ANSWERS.get(name, name)
    check(defined(chapter, "solution")[answer])
    assert re.match(rf"✓ Exercise {chapter}\.\d: right{'' if chapter == 0 else '[.]'}", capsys.readouterr().out)
    with pytest.raises(NotDone):
        check(defined(chapter, "stub")[answer])


@pytest.mark.parametrize(
    ("chapter", "name", "sentence", "wrong"), LISTED, ids=[f"{c} {n}: {s[:40]}" for c, n, s, _ in LISTED]
)
def test_each_listed_mistake_is_named(chapter, name, sentence, wrong):
    with pytest.raises(CheckFailed) as stop:
        getattr(CHECKS[chapter], name)(wrong)
    assert str(stop.value).endswith(sentence)


@pytest.mark.parametrize(("chapter", "name"), TABLES)
def test_nonsense_is_refused_in_words(chapter, name):
    for nonsense in ("seven", None, torch.zeros(2, 2), *NONSENSE.get(chapter, ())):
        with pytest.raises(CheckFailed):
            getattr(CHECKS[chapter], name)(lambda *arguments, nonsense=nonsense: nonsense)


@pytest.mark.parametrize(("chapter", "name"), TABLES)
def test_no_cell_outside_the_exercises_needs_a_solution(chapter, name):
    assert not re.search(rf"\b{ANSWERS.get(name, name)}\(", outside(chapter))
