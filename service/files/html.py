"""Pages of HTML as text: headings, items of lists, rows of tables and code as Markdown marks them, in the page's order."""

import re
from typing import Any

from lxml import etree

from service.files.decoding import decode_page
from service.files.extracted import Extracted
from service.files.markdown import Markdown

HEADINGS = {f"h{level}": "#" * level + " " for level in range(1, 7)}
UNSEEN = frozenset(
    """script style template noscript head nav button svg object iframe canvas audio video select datalist
    annotation annotation-xml rp rt""".split()
)
PARTS = frozenset("p table dl blockquote figure hr section article main aside header footer address details fieldset".split())
LINES = frozenset("div li tr td th dt dd figcaption caption summary legend center form option body html".split())
CELLS = ("td", "th")
TOO_DEEP = "nests more than 2,000 elements; what follows is not read"
_HIDDEN = re.compile(r"display\s*:\s*none")
# XHTML closes elements in a way that HTML does not know: everything behind <title/> would be the title.
_XHTML = re.compile(r"\s*<\?xml\b|[^\0]{0,1000}?xmlns=[\"']http://www\.w3\.org/1999/xhtml")
_CLOSED = re.compile(r"<(?!(?:area|base|br|col|embed|hr|img|input|link|meta|param|source|track|wbr)\b)([\w:.-]+)((?:\s[^<>]*)?)/>")


def read_page(content: bytes) -> Extracted:
    """A page of HTML or XHTML, whatever is wrong with its tags: what a reader of it sees, without the navigation."""
    source, problem = decode_page(content)
    found = page_text(source)
    return found._replace(problem=problem or found.problem)


def page_text(source: str) -> Extracted:
    """The same of its source."""
    if _XHTML.match(source):
        source = _CLOSED.sub(r"<\1\2></\1>", source)
    # what the page declares was of its bytes; and pages nest deeper than libxml2 would like
    parser = etree.HTMLParser(encoding="utf-8", huge_tree=True, remove_comments=True, remove_pis=True, no_network=True)
    try:
        root = etree.fromstring(source.replace("\0", "").encode("utf-8", "replace"), parser)
    except etree.XMLSyntaxError:
        root = None
    if root is None:  # there is nothing in it
        return Extracted("")
    found = root.find(".//title")
    title = "" if found is None else " ".join("".join(found.itertext()).split())
    return Extracted(_Reader().read(root), title, TOO_DEEP if _cut_off(parser) else "")


class _Reader:
    """One way through a page, without recursion."""

    def __init__(self) -> None:
        self._text = self._to = Markdown()
        self._row: list[str] | None = None  # of a table of data: cells that are written, each in a text of its own
        self._rows = 0  # of this table, before this one
        self._lists: list[int | None] = []  # of each open list the number of its last item; None where it counts none

    def read(self, root: Any) -> str:
        """The text of an element and all that is in it."""
        walk = etree.iterwalk(root, events=("start", "end"))
        skipped: Any = None
        for event, element in walk:
            if event == "start" and (element.tag == "pre" or _unseen(element)):
                skipped = element
                walk.skip_subtree()
            elif event == "start":
                self._begin(element)
                self._to.write(element.text or "")
            else:
                if element is not skipped:
                    self._end(element)
                elif element.tag == "pre":
                    self._code(element)
                self._to.write(element.tail or "")
        return str(self._text)

    def _begin(self, element: Any) -> None:
        tag = element.tag
        if tag == "table" and self._row is None and _is_data(element):
            self._row, self._rows = [], 0
        if tag in CELLS and self._row is not None:
            self._to = Markdown()
        elif tag == "br":
            self._to.end_line(2 if self._to.line_ended else 1)
        elif tag in HEADINGS:
            self._to.end_line(2)
            self._to.begin(HEADINGS[tag])
        elif tag in ("ul", "ol"):
            self._to.end_line(1 if self._lists else 2)
            self._lists.append(0 if tag == "ol" else None)
        elif tag == "li":
            self._to.begin(self._item())
        else:
            self._break(tag)

    def _end(self, element: Any) -> None:
        tag = element.tag
        if self._row is not None and tag in (*CELLS, "tr", "table"):
            self._end_in_table(element, self._row)
        elif tag in HEADINGS:
            self._to.forget_mark()
            self._to.end_line(2)
        elif tag in ("ul", "ol"):
            self._lists.pop()
            self._to.end_line(1 if self._lists else 2)
        elif tag == "li":
            self._to.forget_mark()
            self._to.end_line()
        else:
            self._break(tag)

    def _end_in_table(self, element: Any, row: list[str]) -> None:
        if element.tag in CELLS:
            row.append(" ".join(str(self._to).split()))
            self._to = self._text
            return
        heads = element.getparent() is not None and element.getparent().tag == "thead"
        heads |= all(cell.tag == "th" for cell in element)
        self._text.write_row(row, is_head=heads and not self._rows)
        self._rows += any(row)
        row.clear()
        if element.tag == "table":
            self._row = None
            self._text.end_line(2)

    def _item(self) -> str:
        """The mark of the next item of a list."""
        last = self._lists[-1] if self._lists else None
        indent = "  " * (len(self._lists) - 1)
        if last is None:
            return f"{indent}- "
        self._lists[-1] = last + 1
        return f"{indent}{last + 1}. "

    def _code(self, element: Any) -> None:
        for line_break in element.iter("br"):
            line_break.tail = "\n" + (line_break.tail or "")
        code = "".join(element.itertext())
        if self._to is self._text:
            self._to.write_code(code)
        else:
            self._to.write(code)

    def _break(self, tag: str) -> None:
        if tag in PARTS:
            self._to.end_line(2)
        elif tag in LINES:
            self._to.end_line()


def _cut_off(parser: Any) -> bool:
    """Whether libxml2 stopped before the page's end."""
    return any(error.type_name == "ERR_RESOURCE_LIMIT" for error in parser.error_log)


def _unseen(element: Any) -> bool:
    """Whether a reader of the page does not see it, or it leads to other pages."""
    seen = element.attrib
    return (
        element.tag in UNSEEN
        or "hidden" in seen
        or seen.get("role") == "navigation"
        or ("style" in seen and _HIDDEN.search(seen["style"]) is not None)
    )


def _is_data(table: Any) -> bool:
    """Whether it has rows and columns, not a layout: a table inside, or a single column."""
    if table.get("role") in ("presentation", "none") or table.find(".//table") is not None:
        return False
    return any(len(row) > 1 for row in table.iter("tr"))
