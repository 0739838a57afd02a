"""A text that grows piece by piece."""

from service.files.markdown import Markdown


def test_white_space_is_one_space_and_breaks_come_between_texts_alone() -> None:
    text = Markdown()
    text.end_line(2)
    for piece in (" a ", "\n b", "c", "", " ", "d"):
        text.write(piece)
    text.end_line()
    text.end_line(2)
    text.end_line()
    text.write(" \n ")
    text.write("e")
    text.end_line(2)
    assert str(text) == "a bc d\n\ne"


def test_marks_stand_before_what_is_written_next() -> None:
    text = Markdown()
    text.begin("# ")
    text.write("Title")
    text.begin("- ")
    text.forget_mark()
    text.begin("1. ")
    text.write("one")
    assert str(text) == "# Title\n1. one"


def test_rows() -> None:
    text = Markdown()
    text.write_row(["", ""], is_head=True)
    text.write_row(["a", ""], is_head=True)
    text.write_row(["1", "2"], is_head=False)
    text.write("behind")
    assert str(text) == "| a |  |\n| --- | --- |\n| 1 | 2 |\nbehind"


def test_code_keeps_its_lines_between_fences_longer_than_its_own() -> None:
    text = Markdown()
    text.write("before")
    text.write_code("\n  ```\n  x = 1\n\n````\n")
    text.write_code(" \n")
    text.write("behind")
    assert str(text) == "before\n\n`````\n  ```\n  x = 1\n\n````\n`````\n\nbehind"
