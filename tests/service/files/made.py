"""Small files of the kinds that people have, made by hand: what stands in them can be seen here."""

import io
import zipfile
from collections.abc import Mapping, Sequence

WORD_XML = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
_TYPES = """<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types">
<Default Extension="rels"
ContentType="application/vnd.openxmlformats-package.relationships+xml"/>
<Default Extension="xml" ContentType="application/xml"/>
<Override PartName="/word/document.xml"
ContentType="application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml"/></Types>"""
_RELATIONS = """<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships"><Relationship Id="r1"
Type="http://schemas.openxmlformats.org/officeDocument/2006/relationships/officeDocument" Target="word/document.xml"/>
</Relationships>"""
_CONTAINER = """<container xmlns="urn:oasis:names:tc:opendocument:xmlns:container" version="1.0"><rootfiles>
<rootfile full-path="OEBPS/book.opf" media-type="application/oebps-package+xml"/></rootfiles></container>"""


def archive(parts: Mapping[str, str | bytes]) -> bytes:
    """A ZIP archive of these parts."""
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED) as made:
        for name, content in parts.items():
            kind = zipfile.ZIP_STORED if name == "mimetype" else zipfile.ZIP_DEFLATED
            made.writestr(name, content, kind)
    return written.getvalue()


def pdf(pages: Sequence[Sequence[str]], trailer: str = "") -> bytes:
    """A PDF with these lines (ASCII) on its pages."""
    parts = ["<< /Type /Catalog /Pages 2 0 R >>", "", "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>"]
    kids = []
    for lines in pages:
        shown = "\n".join(f"({line}) Tj 0 -14 Td" for line in lines)
        content = f"BT /F1 12 Tf 72 720 Td\n{shown}\nET"
        parts.append(f"<< /Length {len(content)} >>\nstream\n{content}\nendstream")
        used = f"/Resources << /Font << /F1 3 0 R >> >> /Contents {len(parts)} 0 R"
        parts.append(f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] {used} >>")
        kids.append(f"{len(parts)} 0 R")
    parts[1] = f"<< /Type /Pages /Kids [{' '.join(kids)}] /Count {len(kids)} >>"
    return _numbered(parts, trailer)


def _numbered(parts: Sequence[str], trailer: str) -> bytes:
    written, places = b"%PDF-1.7\n", []
    for number, part in enumerate(parts, 1):
        places.append(len(written))
        written += f"{number} 0 obj\n{part}\nendobj\n".encode("ascii")
    table = "".join(f"{place:010} 00000 n \n" for place in places)
    head = f"xref\n0 {len(parts) + 1}\n0000000000 65535 f \n{table}trailer\n<< /Size {len(parts) + 1} /Root 1 0 R {trailer} >>"
    return written + f"{head}\nstartxref\n{len(written)}\n%%EOF\n".encode("ascii")


def paragraph(text: str, style: str = "") -> str:
    """A paragraph of a Word document."""
    styled = f'<w:pPr><w:pStyle w:val="{style}"/></w:pPr>' if style else ""
    return f"<w:p>{styled}<w:r><w:t>{text}</w:t></w:r></w:p>"


def table(*rows: Sequence[str]) -> str:
    """A table of a Word document."""
    cells = ("".join(f"<w:tc>{paragraph(cell)}</w:tc>" for cell in row) for row in rows)
    return f"<w:tbl>{''.join(f'<w:tr>{row}</w:tr>' for row in cells)}</w:tbl>"


def word(*parts: str, **more: str) -> bytes:
    """A Word document of paragraphs and tables."""
    body = f'<?xml version="1.0" encoding="UTF-8"?><w:document {WORD_XML}><w:body>{"".join(parts)}</w:body></w:document>'
    return archive({"[Content_Types].xml": _TYPES, "_rels/.rels": _RELATIONS, "word/document.xml": body, **more})


def page(body: str) -> str:
    """A chapter of a book."""
    head = '<head><title/><link rel="stylesheet" href="a.css"/></head>'
    return f'<?xml version="1.0" encoding="utf-8"?>\n<html xmlns="http://www.w3.org/1999/xhtml">{head}<body>{body}</body></html>'


def epub(chapters: Mapping[str, str], title: str = "A book", **more: str) -> bytes:
    """A book whose chapters are read in this order; the archive has them backwards."""
    items = "".join(f'<item id="c{n}" href="{name}" media-type="application/xhtml+xml"/>' for n, name in enumerate(chapters))
    spine = "".join(f'<itemref idref="c{n}"/>' for n in range(len(chapters)))
    package = f"""<package xmlns="http://www.idpf.org/2007/opf" version="3.0"><metadata xmlns:dc="http://purl.org/dc/elements/1.1/">
<dc:title>{title}</dc:title></metadata><manifest><item id="css" href="a.css" media-type="text/css"/>{items}</manifest>
<spine>{spine}</spine></package>"""
    pages = {f"OEBPS/{name.replace('%20', ' ')}": page(body) for name, body in reversed(chapters.items())}
    return archive(
        {"mimetype": "application/epub+zip", "META-INF/container.xml": _CONTAINER, "OEBPS/book.opf": package, **pages, **more}
    )


SAMPLES = {
    "a PDF": pdf([["The river rises."]]),
    "a Word document (DOCX)": word(paragraph("The river rises.")),
    "an EPUB": epub({"a.xhtml": "<p>The river rises."}),
    "an HTML page": b"<!doctype html><title>Rivers</title><p>The river rises.",
}
