"""Turns pages of HTML into text, with Markdown's marks for headings, list items, table rows and code, in the page's order."""

import re
from typing import Any

from lxml import etree

from service.files.decoding import decode_page
from service.files.extracted import Extracted
from service.files.markdown import Markdown

HEADINGS = {f"h{level}": "#" * level + " " for level in range(1, 7)}
INVISIBLE = frozenset(
    """script style template noscript head nav button svg object iframe canvas audio video select datalist
    annotation annotation-xml rp rt""".split()
)
BLOCK_TAGS = frozenset("p table dl blockquote figure hr section article main aside header footer address details fieldset".split())
LINE_TAGS = frozenset("div li tr td th dt dd figcaption caption summary legend center form option body html".split())
CELLS = ("td", "th")
TOO_DEEP = "nests more than 2,000 elements; what follows is not read"
_HIDDEN = re.compile(r"display\s*:\s*none")
# XHTML closes elements in a way unknown to HTML: everything behind <title/> would belong to the title
_XHTML = re.compile(r"\s*<\?xml\b|[^\0]{0,1000}?xmlns=[\"']http://www\.w3\.org/1999/xhtml")
_CLOSED = re.compile(r"<(?!(?:area|base|br|col|embed|hr|img|input|link|meta|param|source|track|wbr)\b)([\w:.-]+)((?:\s[^<>]*)?)/>")


def read_page(content: bytes) -> Extracted:
    """The visible text of a page of HTML or XHTML, without the navigation, whatever is wrong with its tags."""
    source, problem = decode_page(content)
    found = page_text(source)
    return found._replace(problem=problem or found.problem)


def page_text(source: str) -> Extracted:
    """The visible text of a page's source."""
    if _XHTML.match(source):
        source = _CLOSED.sub(r"<\1\2></\1>", source)
    # UTF-8, whatever the page declares about its original bytes; huge_tree, since pages nest deeper than libxml2's default limit
    parser = etree.HTMLParser(encoding="utf-8", huge_tree=True, remove_comments=True, remove_pis=True, no_network=True)
    try:
        root = etree.fromstring(source.replace("\0", "").encode("utf-8", "replace"), parser)
    except etree.XMLSyntaxError:
        root = None
    if root is None:  # the page is empty
        return Extracted("")
    found = root.find(".//title")
    title = "" if found is None else " ".join("".join(found.itertext()).split())
    return Extracted(_Reader().read(root), title, TOO_DEEP if _was_truncated(parser) else "")


class _Reader:
    """Goes through a page once, without recursion."""

    def __init__(self) -> None:
        self._text = self._target = Markdown()
        self._row: list[str] | None = None  # the finished cells of the current row of a data table
        self._rows = 0  # rows of this table that are finished
        self._lists: list[int | None] = []  # number of the last item of each open list; None for an unnumbered list

    def read(self, root: Any) -> str:
        """The text of an element with everything in it."""
        walk = etree.iterwalk(root, events=("start", "end"))
        skipped: Any = None
        for event, element in walk:
            if event == "start" and (element.tag == "pre" or _is_invisible(element)):
                skipped = element
                walk.skip_subtree()
            elif event == "start":
                self._begin(element)
                self._target.write(element.text or "")
            else:
                if element is not skipped:
                    self._end(element)
                elif element.tag == "pre":
                    self._code(element)
                self._target.write(element.tail or "")
        return str(self._text)

    def _begin(self, element: Any) -> None:
        tag = element.tag
        if tag == "table" and self._row is None and _is_data(element):
            self._row, self._rows = [], 0
        if tag in CELLS and self._row is not None:
            self._target = Markdown()
        elif tag == "br":
            self._target.end_line(2 if self._target.line_ended else 1)
        elif tag in HEADINGS:
            self._target.end_line(2)
            self._target.begin(HEADINGS[tag])
        elif tag in ("ul", "ol"):
            self._target.end_line(1 if self._lists else 2)
            self._lists.append(0 if tag == "ol" else None)
        elif tag == "li":
            self._target.begin(self._item())
        else:
            self._break(tag)

    def _end(self, element: Any) -> None:
        tag = element.tag
        if self._row is not None and tag in (*CELLS, "tr", "table"):
            self._end_in_table(element, self._row)
        elif tag in HEADINGS:
            self._target.forget_mark()
            self._target.end_line(2)
        elif tag in ("ul", "ol"):
            self._lists.pop()
            self._target.end_line(1 if self._lists else 2)
        elif tag == "li":
            self._target.forget_mark()
            self._target.end_line()
        else:
            self._break(tag)

    def _end_in_table(self, element: Any, row: list[str]) -> None:
        if element.tag in CELLS:
            row.append(" ".join(str(self._target).split()))
            self._target = self._text
            return
        is_head = element.getparent() is not None and element.getparent().tag == "thead"
        is_head |= all(cell.tag == "th" for cell in element)
        self._text.write_row(row, is_head=is_head and not self._rows)
        self._rows += any(row)
        row.clear()
        if element.tag == "table":
            self._row = None
            self._text.end_line(2)

    def _item(self) -> str:
        """The mark of the list's next item."""
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
        if self._target is self._text:
            self._target.write_code(code)
        else:
            self._target.write(code)

    def _break(self, tag: str) -> None:
        if tag in BLOCK_TAGS:
            self._target.end_line(2)
        elif tag in LINE_TAGS:
            self._target.end_line()


def _was_truncated(parser: Any) -> bool:
    """Whether libxml2 stopped before the end of the page."""
    return any(error.type_name == "ERR_RESOURCE_LIMIT" for error in parser.error_log)


def _is_invisible(element: Any) -> bool:
    """Whether a reader of the page cannot see the element, or it leads to other pages."""
    attributes = element.attrib
    return (
        element.tag in INVISIBLE
        or "hidden" in attributes
        or attributes.get("role") == "navigation"
        or ("style" in attributes and _HIDDEN.search(attributes["style"]) is not None)
    )


def _is_data(table: Any) -> bool:
    """Whether a table holds data in rows and columns; a table with a table inside, or with a single column, is layout."""
    if table.get("role") in ("presentation", "none") or table.find(".//table") is not None:
        return False
    return any(len(row) > 1 for row in table.iter("tr"))
