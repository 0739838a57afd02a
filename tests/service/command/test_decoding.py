"""What people have as files: texts in their encodings, and what is no text."""

import io
import time
import zipfile

import pytest

from service.command.decoding import Decoded, NotTextError, decode

CAT = "吾輩は猫である。名前はまだ無い。どこで生れたかとんと見当がつかぬ。"


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        ("café au lait", "latin-1"),
        ("The naïve approach fails in most of the cases that we have seen.", "latin-1"),
        ("The tenant\u2019s notice is \u201ctwo months\u201d \u2013 no more. It costs £5.", "cp1252"),
        ("The committee met in the usual room. " * 300 + "\u2013 £5, café" + " It spoke of the usual things." * 300, "cp1252"),
        ("Der Mieter kann das Mietverhältnis kündigen, wenn er die Frist einhält.", "latin-1"),
        ("El inquilino podrá rescindir el contrato; ¿cuánto cuesta? ¡Mañana!", "cp1252"),
        (CAT, "shift_jis"),
        (CAT * 3, "euc_jp"),
        ("README: このプログラムは blocks を選ぶ。See docs.", "shift_jis"),
        ("Москва является столицей России и крупнейшим городом страны.", "cp1251"),
        ("Zażółć gęślą jaźń. Książka leży na stole, a źródło jest wśród łąk.", "cp1250"),
        ("北京是中华人民共和国的首都\uff0c历史悠久。今天天气很好\uff0c我们去公园散步。", "gb18030"),
    ],
)
def test_other_encodings_are_guessed_and_the_guess_is_told(text: str, encoding: str) -> None:
    decoded = decode(text.encode(encoding))
    assert decoded.text == text
    assert decoded.problem.startswith("is not UTF-8; read as ")


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32"])
@pytest.mark.parametrize(
    "text", [CAT, "Wien 😀", "", "<p align='center'>A readme in Markdown</p>\n\n# Title", "PK is a kick", "BM25"]
)
def test_unicode_is_no_guess(text: str, encoding: str) -> None:
    assert decode(text.encode(encoding)) == Decoded(text)


@pytest.mark.parametrize(
    "text",
    [
        "ID3 is an algorithm that learns decision trees.",
        "FLAC is a codec without loss.",
        "GIF89a is a format of images.",
        "RIFF over WAVE and WEBP",
        "Lieftype",
        "bzh1 is a name",
    ],
)
def test_a_text_about_a_format_is_a_text(text: str) -> None:
    assert decode(text.encode()) == Decoded(text)


def test_many_comments_before_a_text_take_no_time() -> None:
    """Each comment more doubled it: forty would take days."""
    comments = "<!-- generated -->\n" * 400
    started = time.process_time()
    assert decode(f"{comments}# Title".encode()) == Decoded(f"{comments}# Title")
    assert time.process_time() - started < 1
    with pytest.raises(NotTextError, match="is an HTML page"):
        decode(f"{comments}<html>".encode())


@pytest.mark.parametrize("order", ["le", "be"])
@pytest.mark.parametrize("width", [16, 32])
def test_either_order_of_bytes(width: int, order: str) -> None:
    assert decode(f"\ufeffWien {CAT}".encode(f"utf-{width}-{order}")) == Decoded(f"Wien {CAT}")


def archive(*names: str) -> bytes:
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w") as made:
        for name in names:
            made.writestr(name, "application/epub+zip" if name == "mimetype" else "<xml/>")
    return written.getvalue()


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (b"%PDF-1.7\n1 0 obj << >> endobj", "a PDF"),
        (archive("[Content_Types].xml", "_rels/.rels", "word/document.xml"), "a Word document (DOCX)"),
        (archive("mimetype", "META-INF/container.xml"), "an EPUB"),
        (archive("a.txt"), "a ZIP archive"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1\0\0", "an old Office document (DOC, XLS or PPT)"),
        (b"{\\rtf1\\ansi text}", "rich text (RTF)"),
        (b"\x1f\x8b\x08\0", "compressed"),
        (b"\x89PNG\r\n\x1a\n", "an image"),
        (b"\xff\xd8\xff\xe0\0\x10JFIF", "an image"),
        (b"GIF89a\x01\0\x01\0\x80\0\0", "an image"),
        (b"RIFF\x24\0\0\0WEBPVP8 ", "an image"),
        (b"RIFF\x24\0\0\0WAVEfmt \x10\0", "sound or video"),
        (b"ID3\x04\0\0\0\0\x0f\x76", "sound or video"),
        (b"OggS\0\x02", "sound or video"),
        (b"fLaC\0\0\0\x22", "sound or video"),
        (b"\0\0\0\x20ftypisom", "sound or video"),
        (b"<!DOCTYPE html>\n<html><script>alert(1)</script>", "an HTML page"),
        (b"\xef\xbb\xbf\n<!-- saved --><HTML lang=en>", "an HTML page"),
        (b'<?xml version="1.0"?>\n<!DOCTYPE html PUBLIC "x">', "an HTML page"),
        (b"\x7fELF\x02\x01\x01\0\0", "binary"),
    ],
)
def test_what_is_no_text_is_refused_by_its_name(content: bytes, kind: str) -> None:
    with pytest.raises(NotTextError) as refused:
        decode(content)
    said, advice = str(refused.value).split(", skipped: ")
    assert said == f"is {kind}"
    assert advice
