"""Texts of every kind that `structure` tells apart, well made and badly: prose, Markdown, code, tables, records, conversations."""

from hypothesis import strategies as st


def _lines(text: str) -> list[str]:
    return text.replace("\n", "¦").split("¦")


SPACES = st.sampled_from([*[" "] * 4, *[""] * 4, "  ", "\t", "\u00a0", "\x1c", "\u3000", " \t "])
BREAKS = ["\n\n", "\r\n", "\r\n\r\n", "\r", "\n\r", "\n \n", "\x0b", "\x0c", "\x85", "\u2028", "\u2029"]
LONG = "Then it is a line that is longer than one hundred characters, as a wide editor may break it where a word ends"
WRAPPED = "a line of some fifty characters that is broken here"
MARKDOWN = _lines(
    """# Heading¦####### no heading¦## ¦#¦Title¦=====¦==¦== =¦-----¦--¦---|¦- item¦* item¦+ item¦• item¦・item¦・ item¦-item¦1. one
12) two¦(a) three¦1234. four¦(5. six¦)a. b¦(((a) b¦| a. B! C | d? E |¦|---|:-:|¦| --- |x|¦|¦||¦| |¦|a|¦```¦```python¦~~~¦~~~~¦`````
</p>¦</p >x¦</p></p>¦<p>¦</¦> quote¦@name¦@ name¦@é"""
)
CODE = _lines(
    """def f(x):¦    return x¦return¦x = 1¦x += 2¦x =+ 2¦a[0], b = "c", 'd' = 3¦x ==y¦x =y¦  y¦= z¦if x: # no¦if (a) {¦} else {
else {¦elsewhere:¦while:¦try:¦tryé:¦}¦});¦];,¦],¦}};¦]};x¦end¦end;¦ends¦end;;¦import os¦from a.b import c¦from  import x
from x import¦from x y import z¦yield x¦const é = 1¦letter = 1¦let a¦print(x)¦a.b.c(¦é.é(¦1(¦.(¦(¦x[¦{¦\\¦foo(a,¦bar);¦x;
# a comment¦async with a as b:¦class Foo(Bar):¦class Foo¦for x in y¦@cache¦raise¦await  x¦var\tx¦from a import¦from a imports b"""
)
RECORDS = _lines(
    """a,b,c¦d,e,f¦1,2¦g, h, i¦a;b;c¦d;e;f¦a;b, c,d¦a\tb\tc¦d\te\tf¦a\t b\tc\td¦a,b;c;d¦x,,,¦y,,, ¦,,,z¦7,M. Gruber! Yes,Linz
{"a": 1},¦{"a":1},{"b":[2,"x"]},  [5]¦[1,2]¦}¦],¦{"a": "b. C"}, {"d": 3}¦"x","y"¦[{"a": [1, 2]},{¦1,2,[3¦٣,"a¦,"a¦],x¦},¦],"""
)
TURNS = _lines(
    """Alice: are you there¦Bob:yes¦田中：はい¦田中 太郎: はい¦O'Neil-Smith Jr.: no¦_x: no¦9x: no¦a9_: no¦A: b. C? d
:¦：¦é：¦Ann :¦Ann : x¦ab cd ef gh ij kl mn op qr st uv wx yz 12: x
ab cd ef gh ij kl mn op qr st uv wx yz 123: x"""
)
PROSE = _lines(
    """Dr. No ran! Why? (so.) Yes¦東京。中文，句子！¦यह एक है। दूसरा॥¦ሰላም፧ ነው፣ ደህና።¦هل أنت؟ نعم، لا؛¦กิน ข้าว กับ Tom ไหม ก¦ພາສາ ລາວ
နေ။ ကောင်း၊¦៖ ខ្មែរ។ ពីរ¦a, b; c: d — e – f¦a,") b¦a,"x¦3,5 d:e¦、、。」¦ᜎ᜵”»x¦．．¦e.g. this¦\u0301,¦\ud800. A¦\U00020000¦a,)¦,x ,"""
)
UNITS = (
    'a¦_¦9¦中¦ก¦ก ¦😀¦A. ¦(¦"¦,¦,)¦, ¦a, ¦,   ¦},¦}, ¦}])¦、¦。¦။¦፧»¦#¦=¦-¦|¦| ¦|\n¦# ¦a b ¦a.a.a.(¦a.b[¦a.¦x = ¦  =¦[¦[\n¦</¦<'
    '¦<!¦:¦a: ¦A:\n¦from x ¦return ¦a,b,c\n¦| a. B |\n¦if a:\n¦  x(\n¦```\n¦\n¦\r\n¦\r¦ ¦\t¦ \n¦\x1c¦{"a":1,"b":[2,"x"]},'
    "¦word\n¦- a\n"
).split("¦")
"""What a text may be made of again and again, so that anything in proportion to the square of its length shows."""
PROSE += [
    WRAPPED,
    f"Then {WRAPPED}",
    LONG,
    f"{LONG},",
    f"{LONG}\U00020000",
    f"{LONG}.",
    LONG.lower(),
    "x" * 39,
    "x" * 40,
    "ab " * 33,
    "river" * 21,
]
LINES = st.one_of(*map(st.sampled_from, (MARKDOWN, CODE, RECORDS, TURNS, PROSE)))
PIECES = st.lists(LINES, min_size=1, max_size=3).map(" ".join)
BAD = st.text("#-*=|{}[]()<>/@:;,.!?_\"'`~\\ \t\n\r\x1caA9é中，：။ก\u2028\U00020000", max_size=30)


def _document(lines: list[tuple[str, str, str, str]]) -> str:
    return "".join("".join(line) for line in lines)


LAYOUTS = st.lists(
    st.tuples(SPACES, st.one_of(LINES, LINES, PIECES, BAD), SPACES, st.sampled_from(["\n"] * 8 + BREAKS)), max_size=12
).map(_document)
TEXTS = st.one_of(LAYOUTS, LAYOUTS, BAD, st.text(st.characters(codec=None)), st.lists(LINES, max_size=12).map("\n".join))
