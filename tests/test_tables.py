"""Tables of labels: read long and wide, with names kept, and written as others read them."""

import numpy as np
import pandas
import pytest
import torch

from course_lib.annotations import MISSING, Annotations
from course_lib.tables import write_crowdkit, write_fused


@pytest.fixture
def table(tmp_path):
    def write(text: str, name: str = "labels.csv", encoding: str = "utf-8"):
        (tmp_path / name).write_bytes(text.encode(encoding))
        return tmp_path / name

    return write


def test_a_row_a_label_becomes_items_annotators_and_named_classes(table):
    path = table("item,annotator,label\nb.png,bo,cat\na.png,al,dog\nb.png,al,cat\n")
    found = Annotations.from_csv(path)
    assert found.item_names == ("b.png", "a.png")  # as they come
    assert found.names == ("al", "bo") and found.classes == ("cat", "dog")
    assert found.labels.tolist() == [[0, 0], [1, MISSING]] and found.images.shape == (2, 0)


@pytest.mark.parametrize("mark", [",", ";", "\t"])
def test_crowdkits_columns_in_any_order_and_with_any_separator(table, mark):
    lines = ["Worker,note,LABEL,task", "w10,x,1,t1", "w9,,0,t1", "w9,y,1,t2"]
    found = Annotations.from_csv(table("\n".join(lines).replace(",", mark)))
    assert found.names == ("w9", "w10") and found.labels.tolist() == [[0, 1], [1, MISSING]]


@pytest.mark.parametrize("mark", [",", ";", "\t"])
def test_excels_own_first_line_is_no_row(table, mark):
    found = Annotations.from_csv(table(f"sep={mark}\nitem,annotator,label\na,r,x\na,s,y\n".replace(",", mark)))
    assert found.names == ("r", "s") and found.classes == ("x", "y")
    with pytest.raises(ValueError, match="line 3, names no item"):
        Annotations.from_csv(table(f"sep={mark}\nitem,annotator,label\n,r,x\na,s,y\n".replace(",", mark)))


def test_a_row_an_item_has_a_column_for_each_annotator_and_gaps(table):
    found = Annotations.from_csv(table('id,al,"bo, MD",truth\n7,yes,no,no\n8,,yes,yes\n9,NaN,no,\n'))
    assert found.names == ("al", "bo, MD") and found.classes == ("no", "yes")
    assert found.labels.tolist() == [[1, 0], [MISSING, 1], [MISSING, 0]]
    assert found.truth.tolist() == [0, 1, MISSING]


def test_numbers_are_classes_in_the_order_of_numbers(table):
    found = Annotations.from_csv(table("item,annotator,label\na,r,10\na,s,2\nb,r,2.0\nb,s,10\n"))
    assert found.classes == ("2", "10") and found.labels.tolist() == [[1, 0], [0, 1]]


def test_named_classes_keep_one_that_nobody_used_and_a_code_can_mean_no_label(table):
    path = table("item,annotator,label\na,r,low\na,s,high\nb,r,?\n")
    found = Annotations.from_csv(path, classes=["low", "mid", "high"], missing=["?"])
    assert found.n_classes == 3 and found.labels.tolist() == [[0, 2], [MISSING, MISSING]]


def test_none_is_a_finding_and_na_one_only_if_it_is_named(table):
    path = table("item,annotator,label\na,r,none\na,s,mild\nb,r,NA\n")
    assert Annotations.from_csv(path).labels.tolist() == [[1, 0], [MISSING, MISSING]]
    named = Annotations.from_csv(path, classes=["none", "mild", "NA"])
    assert named.labels.tolist() == [[0, 1], [2, MISSING]]


def test_other_columns_and_encodings_by_name(table):
    path = table("Bild,Ärztin,Urteil\nx,Käthe,böse\nx,Jörg,gut\n", encoding="latin-1")
    options = {"item": "Bild", "annotator": "Ärztin", "label": "Urteil", "encoding": "latin-1"}
    found = Annotations.from_csv(path, **options)
    assert set(found.names) == {"Käthe", "Jörg"} and found.classes == ("böse", "gut")


def test_a_subset_of_items_keeps_their_names(table):
    found = Annotations.from_csv(table("item,annotator,label\na,r,0\nb,r,1\nc,r,0\n"))
    for index in ([2, 0], torch.tensor([True, False, True]), slice(0, 3, 2), np.array([0, 2])):
        assert set(found.items(index).item_names) == {"a", "c"}


def test_what_is_written_for_crowdkit_comes_back_the_same(table, tmp_path):
    found = Annotations.from_csv(table("item,annotator,label\na,r,cat\na,s,dog\nb,s,dog\n"))
    path = write_crowdkit(tmp_path / "out.csv", found)
    assert Annotations.from_csv(path).labels.equal(found.labels)
    assert pandas.read_csv(path).to_numpy().tolist() == [["a", "r", "cat"], ["a", "s", "dog"], ["b", "s", "dog"]]


def test_crowdkit_takes_the_table_and_agrees_with_our_vote(table, tmp_path):
    from crowdkit.aggregation import MajorityVote

    said = np.random.default_rng(0).integers(0, 3, (30, 3))
    said[:, 1] = said[:, 0]  # no ties
    rows = [f"i{n},w{r},{k}" for n, row in enumerate(said) for r, k in enumerate(row)]
    found = Annotations.from_csv(table("\n".join(["task,worker,label", *rows])))
    voted = MajorityVote().fit_predict(pandas.read_csv(write_crowdkit(tmp_path / "out.csv", found)))
    assert [int(voted[name]) for name in found.item_names] == said[:, 0].tolist()


def test_fused_labels_are_written_with_the_probability_of_each_class(table, tmp_path):
    found = Annotations.from_csv(table("item,annotator,label\na,r,cat\nb,r,dog\n"))
    path = write_fused(tmp_path / "fused.csv", found, torch.tensor([[0.75, 0.25], [0.5, 0.5]]))
    assert path.read_text() == "item,label,p_cat,p_dog\na,cat,0.75,0.25\nb,cat,0.5,0.5\n"
    with pytest.raises(ValueError, match=r"\(2, 2\)"):
        write_fused(path, found, torch.ones(2, 3))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["fused.csv", "labels.csv"]


def test_a_network_refuses_labels_without_images(table):
    from course_lib import networks, training
    from course_lib.methods.trace import Trace

    found = Annotations.from_csv(table("item,annotator,label\na,r,0\na,s,1\nb,r,1\n"))
    with pytest.raises(ValueError, match="labels without images, and a network has nothing to look at"):
        training.fit(Trace(networks.mlp(4, 2, generator=networks.seeded(0)), 2, 2), found, epochs=1)
