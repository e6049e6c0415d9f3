"""The picture of a pipeline: a box a stage, a line for each input."""

from tests.reports.pages import checked

from penstock.reports.pipeline import Box, draw


def test_a_chain_is_boxes_one_below_the_other_with_a_line_through_them():
    picture = draw([Box("from_arrays", "6 rows"), Box("map(<f>)", "", (0,), 0.5, is_marked=True)])
    text = checked(picture)
    assert "from_arrays" in text
    assert "map(<f>)" in text
    assert picture.count('class="box') == 2
    assert picture.count('class="box marked"') == 1
    assert picture.count("marked-bar") == 1
    assert "M14 23.0V77.0" in picture


def test_inputs_of_a_zip_have_columns_of_their_own():
    boxes = [
        Box("a"),
        Box("b"),
        Box("map", "", (1,)),
        Box("c"),
        Box("zip", "", (0, 2, 3)),
        Box("batch", "", (4,)),
    ]
    picture = draw(boxes)
    checked(picture)
    dots = [part.split('"')[0] for part in picture.split('cx="')[1:]]
    assert dots == ["14", "34", "34", "54", "14", "14"]


def test_of_many_inputs_the_first_and_the_last_are_drawn_and_the_rest_counted():
    boxes = [*(Box(f"source {number}") for number in range(500)), Box("mix", "", tuple(range(500)))]
    picture = draw(boxes)
    text = checked(picture)
    assert picture.count('class="box"') == 5
    assert "and 496 more" in text
    assert "source 499" in text


def test_long_names_are_cut_and_are_whole_as_a_title_and_nothing_is_no_picture():
    name = "map(" + "x" * 200 + ")"
    picture = draw([Box(name)])
    assert f"<title>{name}</title>" in picture
    assert "…" in checked(picture)
    assert draw([]) == ""
