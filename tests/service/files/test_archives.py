"""Archives: broken ones, and those that unpack to more than anybody wants."""

import pytest

from service.files.archives import Archive
from service.files.extracted import UnreadableError
from tests.service.files.made import archive


def test_parts_are_read() -> None:
    made = Archive(archive({"a": "Wien", "b/c.xml": b"\0"}))
    assert (made.read("a"), made.read("b/c.xml"), "a" in made, "x" in made) == (b"Wien", b"\0", True, False)


def test_what_unpacks_to_more_than_the_bound_is_not_unpacked() -> None:
    content = archive({"a": bytes(700 * 1024), "b": bytes(700 * 1024), "b.png": bytes(10)})
    assert len(content) < 4000
    made = Archive(content, max_mib=1)
    made.count_all((".png",))
    assert len(made.read("a")) == 700 * 1024
    with pytest.raises(UnreadableError, match="its parts unpack to more than 1 MiB: save it as plain text"):
        made.read("b")
    with pytest.raises(UnreadableError, match="more than 1 MiB"):
        Archive(content, max_mib=1).count_all(("a", "b"))


def test_a_part_that_says_less_than_it_holds_is_not_read_to_its_end() -> None:
    content = archive({"a": bytes(1 << 20)})
    place = content.rindex(b"PK\x01\x02") + 24  # of the size in the table of contents
    with pytest.raises(UnreadableError, match="it is broken \\('a': "):
        Archive(content[:place] + (10).to_bytes(4, "little") + content[place + 4 :]).read("a")


@pytest.mark.parametrize("cut", [4, 40, -30])
def test_what_is_cut_off_is_broken(cut: int) -> None:
    with pytest.raises(UnreadableError, match="it is broken \\(File is not a zip file\\)"):
        Archive(archive({"a": "Wien"})[:cut])


def test_a_part_that_is_missing_or_damaged_is_named() -> None:
    content = archive({"a": b"W" * 100})
    with pytest.raises(UnreadableError, match="it has no 'x'"):
        Archive(content).read("x")
    with pytest.raises(UnreadableError, match="it is broken \\('a': "):
        Archive(content[:32] + bytes(4) + content[36:]).read("a")


def test_a_part_with_a_password() -> None:
    content = bytearray(archive({"a": "Wien"}))
    content[content.rindex(b"PK\x01\x02") + 8] |= 1
    content[6] |= 1
    with pytest.raises(UnreadableError, match="it is encrypted: give a copy without a password"):
        Archive(bytes(content)).read("a")
