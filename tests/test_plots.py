"""The figures: what is on them, that it can be read in grey, and that it comes with words."""

import io
import subprocess
import sys

import matplotlib
import matplotlib.colors
import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from PIL import Image

from course_lib import plots, style

A3 = np.array([[0.8, 0.1, 0.3], [0.2, 0.9, 0.2], [0.0, 0.0, 0.5]])  # A[said, truth]; not symmetric
ROWS = [
    {"method": method, "draw": draw, "seed": seed, "metrics": {"accuracy": mean + 0.01 * draw + 0.001 * seed}}
    for method, mean in (("trace", 0.9), ("vanilla", 0.8))
    for draw in (0, 1, 2)
    for seed in (0, 1)
]


def pixels(fig: Figure) -> np.ndarray:
    shown = plots.described(fig, "caption", "alt")
    return np.asarray(Image.open(io.BytesIO(shown.png)).convert("RGB")) / 255


def texts(fig: Figure) -> list[str]:
    return [text.get_text() for ax in fig.axes for text in ax.texts]


def flippers(R: int, L: int) -> np.ndarray:
    return np.stack([0.6 * np.eye(L) + 0.4 * np.roll(np.eye(L), r + 1, axis=0) for r in range(R)])


def every_figure() -> dict[str, Figure]:
    rng = np.random.default_rng(0)
    images, truth = rng.random((20, 28, 28)), np.arange(20) % 10
    labels = np.where(rng.random((20, 5)) < 0.6, truth[:, None], 3)
    return {
        "confusion_matrix": plots.confusion_matrix(flippers(1, 10)[0], title="One person's habits"),
        "confusion_row": plots.confusion_row(flippers(5, 10), title="Five habits"),
        "digits_grid": plots.digits_grid(images, labels, truth, title="They disagree"),
        "bars_with_spread": plots.bars_with_spread(ROWS, "accuracy", title="The trace wins"),
        "curve": plots.curve([0, 0.01, 0.1], {"trace": rng.random((3, 3)), "vanilla": [0.1, 0.2, 0.3]}, title="Up"),
        "history": plots.history({"loss": [3.0, 2.0, 1.5]}, title="Down"),
        "masks": plots.masks(rng.integers(0, 2, (8, 28, 28)), images[0] > 0.7, image=images[0], title="They differ"),
    }


@pytest.fixture(scope="module")
def figures():
    return every_figure()


def test_importing_the_figures_does_not_start_pyplot_or_change_a_setting():
    code = "import matplotlib as m; a = dict(m.rcParams); import course_lib.plots, sys; "
    code += "assert dict(m.rcParams) == a and 'matplotlib.pyplot' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_drawing_leaves_the_settings_of_matplotlib_as_they_were():
    before = dict(matplotlib.rcParams)
    plots.described(plots.confusion_row(flippers(2, 3)), "caption")
    assert dict(matplotlib.rcParams) == before


def test_a_dark_style_of_the_reader_does_not_make_the_figures_unreadable():
    with matplotlib.rc_context({"figure.facecolor": "black", "axes.facecolor": "black", "text.color": "white"}):
        assert pixels(plots.bars_with_spread(ROWS, "accuracy")).mean() > 0.8


@pytest.mark.parametrize(
    "name", ["confusion_matrix", "confusion_row", "digits_grid", "bars_with_spread", "curve", "history", "masks"]
)
def test_every_figure_is_small_fits_a_phone_and_describes_itself(figures, name):
    shown = plots.described(figures[name], "What to see <here>.")
    page = shown._repr_html_()
    assert len(shown.png) < 150_000 and shown.width == 480
    assert len(shown.alt) > 20 and f'alt="{shown.alt}"' in page.replace("&quot;", '"').replace("&#x27;", "'")
    assert "max-width:480px" in page and ">What to see &lt;here&gt;.</figcaption>" in page
    assert "png=" not in repr(shown)


@pytest.mark.parametrize(
    "name", ["confusion_matrix", "confusion_row", "digits_grid", "bars_with_spread", "curve", "history", "masks"]
)
def test_nothing_is_cut_off_at_the_edge(figures, name):
    shade = pixels(figures[name])
    assert all((edge == 1).all() for edge in (shade[0], shade[-1], shade[:, 0], shade[:, -1]))


def test_a_figure_without_caption_or_alt_is_refused():
    with pytest.raises(ValueError, match="caption and an alt"):
        plots.described(Figure(), "a caption")
    with pytest.raises(ValueError, match="caption and an alt"):
        plots.described(plots.confusion_matrix(A3), " ")


def test_numbers_on_a_matrix_stand_where_they_belong_and_zeros_are_dots():
    fig = plots.confusion_matrix(A3)
    assert texts(fig) == ["0.80", "0.10", "0.30", "0.20", "0.90", "0.20", "0.50"]
    dots = fig.axes[0].lines[0].get_xydata().tolist()
    assert dots == [[0, 2], [1, 2]]
    where = {text.get_text(): text.get_position() for text in fig.axes[0].texts}
    assert where["0.30"] == (2, 0)  # x = truth 2, y = says 0
    assert np.allclose(fig.axes[0].images[0].get_array(), A3)
    assert fig.axes[0].get_xlabel() == "truth" and fig.axes[0].get_ylabel() == "says"


def test_ten_classes_are_printed_without_leading_zero():
    A = np.eye(10)
    A[:2, 1] = 0.25, 0.75
    assert {".25", ".75", "1"} == set(texts(plots.confusion_matrix(torch.tensor(A))))


def test_numbers_are_readable_on_every_shade():
    def luminance(rgb):
        linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in rgb]
        return np.dot([0.2126, 0.7152, 0.0722], linear)

    for shade in matplotlib.colormaps["cividis"](np.linspace(0, 1, 101))[:, :3]:
        text = 0.0 if style.text_colour(shade) == "black" else 1.0
        light, dark = sorted([luminance(shade), text], reverse=True)
        assert (light + 0.05) / (dark + 0.05) >= 4.5


def test_shades_of_a_matrix_keep_their_order_in_grey():
    shades = matplotlib.colormaps["cividis"](np.linspace(0, 1, 20))[:, :3] @ [0.299, 0.587, 0.114]
    assert (np.diff(shades) > 0).all()


def test_a_matrix_says_its_worst_confusion_in_words():
    alt = plots.confusion_matrix(A3, names=["cat", "dog", "fox"]).get_label()
    assert "0.50 to 0.90" in alt and "says cat when the truth is fox: 0.30" in alt


@pytest.mark.parametrize(
    ("A", "message"),
    [
        (A3[:2], r"\(2, 3\)"),
        (A3.T, "transposed"),
        (A3 * 10, "counts"),
        (np.log(A3 + 1e-9), "logits"),
        (np.where(A3 == 0.5, np.nan, A3), "nan"),
        (A3 * 0.9, "sums to 0.900"),
        (A3[None], r"\(L, L\)"),
    ],
)
def test_a_wrong_matrix_is_refused_in_one_line(A, message):
    with pytest.raises(ValueError, match=message) as error:
        plots.confusion_matrix(A)
    assert "\n" not in str(error.value)


def test_a_row_of_matrices_wraps_and_names_everybody():
    wide, tall = plots.confusion_row(flippers(5, 3)), plots.confusion_row(flippers(5, 10))
    assert wide.get_figwidth() == tall.get_figwidth() == 5
    assert tall.get_figheight() > wide.get_figheight()
    assert [ax.get_title(loc="left").strip() for ax in tall.axes[:5]] == [f"annotator {r}" for r in range(1, 6)]
    with pytest.raises(ValueError, match="R=2 annotators; got 1"):
        plots.confusion_row(flippers(2, 3), ["only me"])


def test_annotators_differ_by_marker_as_well_as_by_colour():
    assert len(set(plots.ANNOTATORS)) == len(set(plots.MARKERS)) == 6
    assert plots.MODEL not in plots.ANNOTATORS and plots.TRUTH not in plots.ANNOTATORS


def test_every_annotators_colour_survives_the_packing_of_the_picture(figures):
    shade = pixels(figures["confusion_row"])
    for colour in plots.ANNOTATORS[:5]:
        assert (abs(shade - matplotlib.colors.to_rgb(colour)).max(-1) < 0.02).sum() > 20


def test_a_wrong_label_is_boxed_and_a_missing_one_is_a_dash():
    fig = plots.digits_grid(np.ones((1, 28, 28)), [[3, 7, -1]], [7])
    boxed = {text.get_text(): text.get_bbox_patch() is not None for text in fig.axes[0].texts}
    assert boxed == {"truth 7": False, "3": True, "7": False, "–": False}
    assert "truth 7: 3 7 none" in fig.get_label()


def test_without_the_truth_the_minority_is_boxed():
    fig = plots.digits_grid(np.ones((1, 28, 28)), torch.tensor([[4, 9, 9]]))
    assert [t.get_text() for t in fig.axes[0].texts if t.get_bbox_patch()] == ["4"]


def test_a_boxed_label_is_dark_in_grey():
    agree, differ = (pixels(plots.digits_grid(np.zeros((1, 28, 28)), [[k]], [7])) for k in (7, 1))
    dark = [(shade.mean(-1) < 0.2).sum() for shade in (agree, differ)]
    assert dark[1] > dark[0] + 300


def test_pictures_labels_and_truth_must_agree():
    for labels, truth in (([[1], [2]], None), ([1], None), ([[1]], [1, 2])):
        with pytest.raises(ValueError, match="N=1 images"):
            plots.digits_grid(np.ones((1, 28, 28)), labels, truth)


def test_the_interval_is_students():
    assert plots.interval([1.0, 2.0, 3.0, 4.0, 5.0]) == pytest.approx((3.0, 2.776 * np.sqrt(2.5 / 5)))
    assert plots.interval([0.7]) == (0.7, 0.0)
    assert plots.interval(np.arange(31.0))[1] == pytest.approx(
        2.042 * np.std(np.arange(31), ddof=1) / 31**0.5, rel=0.01
    )


def test_every_run_is_a_dot_and_runs_with_one_draw_count_once():
    fig = plots.bars_with_spread(ROWS, "accuracy")
    dots = [line for line in fig.axes[0].lines if line.get_marker() == "o"]
    assert [len(line.get_xdata()) for line in dots] == [6, 6]
    stroke = next(line for line in fig.axes[0].lines if line.get_marker() == "None")
    half = 4.303 * 0.01 / np.sqrt(3)  # three draws, not six runs
    assert np.ptp(stroke.get_xdata()) == pytest.approx(2 * half, rel=1e-3)
    assert [float(text) for text in texts(fig)] == pytest.approx([0.9105, 0.8105], abs=6e-4)


def test_the_model_is_blue_the_oracle_black_and_a_baseline_grey():
    looks = [style.method_look(name, "trace", k)["color"] for k, name in enumerate(("trace", "oracle", "vanilla"))]
    assert looks == [plots.MODEL, plots.TRUTH, plots.BASELINES[0]]


def test_an_unknown_method_or_metric_is_named():
    with pytest.raises(ValueError, match=r"'gem'.*\['trace', 'vanilla'\]"):
        plots.bars_with_spread(ROWS, "accuracy", ["gem"])
    with pytest.raises(ValueError, match="no row has"):
        plots.bars_with_spread(ROWS, "dice", ["trace"])


def test_names_at_the_ends_of_lines_do_not_print_on_each_other():
    fig = plots.curve([1, 2], {name: [0.5, 0.9 + 0.001 * k] for k, name in enumerate("abcd")})
    heights = sorted(text.get_position()[1] for text in fig.axes[0].texts)
    assert np.diff(heights).min() >= 0.08 - 1e-9


def test_a_line_of_the_wrong_length_is_refused_by_name():
    with pytest.raises(ValueError, match="'trace' needs one value for each of 3"):
        plots.curve([1, 2, 3], {"trace": [1, 2]})


def test_drawings_go_on_axes_that_are_passed():
    fig = Figure()
    left, right = fig.subplots(1, 2)
    assert plots.confusion_matrix(A3, left, title="left") is fig
    plots.curve([1, 2], {"trace": [1, 2]}, xlabel="lambda", ylabel="accuracy", ax=right)
    assert left.get_title(loc="left") == "left"
    assert "Confusion" in fig.get_label() and "accuracy over lambda" in fig.get_label()


def test_names_at_the_ends_of_lines_stand_apart_in_order_and_inside():
    crowded = {f"line {k}": [0.2, 0.99 + k / 1000] for k in range(6)}
    ax = plots.curve([0, 1], {**crowded, "low": [0.2, 0.1]}).axes[0]
    at = {text.get_text(): text.get_position()[1] for text in ax.texts if text.get_text() in {*crowded, "low"}}
    heights = [at[name] for name in ("low", *crowded)]
    assert heights == sorted(heights) and max(heights) <= 1.0001
    assert min(b - a for a, b in zip(heights, heights[1:], strict=False)) >= 0.0799


def shown_colours(fig: Figure, panel: int) -> np.ndarray:
    return np.asarray(fig.axes[panel].images[0].get_array())


def colour(kind: str) -> tuple[float, ...]:
    return matplotlib.colors.to_rgb(style.PIXELS[kind])


def legend(fig: Figure) -> list[str]:
    return [text.get_text() for text in fig.legends[0].get_texts()]


def test_a_mask_is_white_where_right_blue_where_missed_and_orange_where_too_much():
    fig = plots.masks(torch.tensor([[[1, 1, 0, 0]]]), torch.tensor([[1, 0, 1, 0]]), ["mine"])
    want = [colour(kind) for kind in ("right", "too much", "missed", "background")]
    assert np.allclose(shown_colours(fig, 0), [want])
    assert legend(fig) == ["right", "missed", "too much", "background"]
    assert fig.get_label() == "mine: 1 right, 1 missed, 1 too much."


def test_another_class_than_the_true_one_is_yellow_and_what_was_not_drawn_is_grey():
    fig = plots.masks(np.array([[[2, 1, 2, 0, 2, -1]]]), np.array([[2, 2, 0, 1, 1, 1]]))
    want = [colour(k) for k in ("right", "another class", "too much", "missed", "another class", "not drawn")]
    assert np.allclose(shown_colours(fig, 0), [want])
    assert legend(fig)[4:] == ["another class", "not drawn"]
    assert "annotator 1: 1 right, 1 missed, 1 too much, 2 another class, 1 not drawn" in fig.get_label()


def test_masks_stand_in_rows_of_three_after_the_picture_and_their_shapes_must_agree():
    fig = plots.masks(np.zeros((3, 4, 6)), np.zeros((4, 6)), ["a", "b", "c"], image=np.ones((4, 6)))
    assert [ax.get_title(loc="left") for ax in fig.axes[:4]] == ["image", "a", "b", "c"]
    assert len(fig.axes) == 6 and not fig.axes[5].axison
    for drawn in (np.zeros((4, 6)), np.zeros((2, 6, 4))):
        with pytest.raises(ValueError, match="must be"):
            plots.masks(drawn, np.zeros((4, 6)))


def test_the_colours_of_pixels_can_be_told_apart_in_grey():
    grey = [np.dot(colour(kind), [0.299, 0.587, 0.114]) for kind in style.PIXELS]
    assert np.diff(sorted(grey)).min() > 0.1


def test_matrices_stand_two_by_two_where_three_would_print_one_number_on_another():
    high = lambda L, classes=None: plots.confusion_row(flippers(6, L), classes=classes).get_figheight()  # noqa: E731
    assert high(4) > high(3) and high(3, ["none", "disc", "cup"]) > high(3, ["bg", "rim", "cup"]) == high(3)
