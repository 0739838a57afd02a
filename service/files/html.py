"""Turns pages of HTML into text with Markdown's marks for headings, list items, table rows and code (html-to-markdown)."""

import html
import re

from html_to_markdown import ConversionOptions, PreprocessingOptions, WarningKind, convert

from service.files.decoding import decode_page
from service.files.kinds import Extracted

DEEPEST = 1024  # elements in each other, as many as the library allows
TOO_DEEP = f"nests more than {DEEPEST:,} elements; what is deeper is not read"
INLINE = "a abbr b cite code del dfn em i ins kbd mark q s samp small strong sub sup u var".split()  # only their text is written
UNSEEN = "nav button rt rp object canvas audio video select datalist annotation annotation-xml [role=navigation]".split()
_OPTIONS = ConversionOptions(
    bullets="-",
    compact_tables=True,
    autolinks=False,
    skip_images=True,
    extract_metadata=False,  # it would stand before the text
    preprocessing=PreprocessingOptions(enabled=False),  # it would drop forms
    strip_tags=INLINE,
    exclude_selectors=UNSEEN,
    max_depth=DEEPEST,
)
_TITLE = re.compile(r"<title\b[^<>]*>([^<]*)", re.IGNORECASE)
_LINE_END = re.compile(r"[ \t]+$", re.MULTILINE)
# XHTML closes elements in a way unknown to HTML: everything behind <title/> would belong to the title
_XHTML = re.compile(r"\s*<\?xml\b|[^\0]{0,1000}?xmlns=[\"']http://www\.w3\.org/1999/xhtml")
_CLOSED = re.compile(r"<(?!(?:area|base|br|col|embed|hr|img|input|link|meta|param|source|track|wbr)\b)([\w:.-]+)((?:\s[^<>]*)?)/>")


def read_page(content: bytes) -> Extracted:
    """The visible text of a page of HTML or XHTML, without the navigation, whatever is wrong with its tags."""
    source = decode_page(content)
    found = page_text(source.text)
    return found._replace(problem=source.problem or found.problem)


def page_text(source: str) -> Extracted:
    """The visible text of a page's source."""
    if _XHTML.match(source):
        source = _CLOSED.sub(r"<\1\2></\1>", source)
    converted = convert(source.replace("\0", ""), _OPTIONS)
    title = _TITLE.search(source)
    return Extracted(
        _LINE_END.sub("", converted.content or "").strip("\n"),
        " ".join(html.unescape(title[1]).split()) if title else "",
        TOO_DEEP if any(warning.kind == WarningKind.DEPTH_LIMIT_EXCEEDED for warning in converted.warnings) else "",
    )
