"""Attacks: bytes that ask for much memory, a long time or many places, sent while other clients ask."""

import gzip
import itertools
import json
import random
import re
import socket
import string
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import zstandard

from benchmarks.faults.drill import LOST, MIB, counted, drill, must, until
from service.keys.keys import make

HUGE = 3_900_000  # characters, just below the limit of a document
LARGEST = 60 * MIB  # of a body: just below the limit
UNANSWERED, PATIENCE = -1, 20.0  # in place of a status, after so many seconds
BESIDE_SECONDS = 10  # that others ask beside connections that are held
PLACES_SECONDS = 3.0  # that /health/live may take where the probe, too, has to get a place
MOST_MEBIBYTES = 500  # that a service may grow by
HEADS, ENDLESS = 1024, 100 * MIB  # connections; bytes that are sent without end
POD = {"max_bytes_in_flight": 256 * MIB}  # as in k8s/base
RANK, STORE = make("rank", ["rank"]), make("store", ["documents"])
KEYED = {**POD, "max_connections": 2 * HEADS, "api_keys": f"{RANK.entry}\n{STORE.entry}"}
EMOJI = "\U0001f600\u200d"
UNITS = {  # what the documents of the largest requests are made of
    "prose": "Bridges cross the river, and a boat of 1850 lies under them. ",
    "one-letter words": "a b c d. ",
    "marks": ".,!?;:-()",
    "line ends": "\n",
    "long words": "qjxzvkwyqjxzvkwy" * 6 + " ",
    "one word": "a",
    "marks on letters": "e\u0301o\u0308 ",
    "dropped between marks": "a.\u200b",
    "Chinese": "東京都は日本の首都である。河川の橋は長い",
    "Thai": "ภาษาไทยแม่น้ำและสะพาน ",
    "emoji and joiners": EMOJI,
}


@dataclass(frozen=True)
class Attack:
    """What is sent, and what must come of it.

    Attributes:
        sent: what each connection sends.
        allowed: statuses that it may be answered, beside LOST and UNANSWERED where `more` or `unread` is given.
        connections: all at once.
        more: sent after it without end, until the service closes the connection.
        unread: the connections are held, and nothing is read of them.
        first: sent before, and to be answered with 200.
        live: seconds that /health/live may take: a single request may not hold it up for half a second.
        refused: seconds that others may be refused, until there is room for them again.
        settings: of the service; with API keys, others have one that may rank.
    """

    sent: bytes
    allowed: tuple[int, ...] = (200,)
    connections: int = 1
    more: bytes = b""
    unread: bool = False
    first: bytes = b""
    live: float = 0.5
    refused: float = 2.0
    settings: Mapping[str, object] = field(default_factory=dict)


def http(method: str, path: str, body: bytes = b"", *, encoding: str = "", length: int | None = None, key: str = "") -> bytes:
    """A request as bytes; a body that is announced by its length alone does not come."""
    headers = {"Host": "localhost", "Content-Length": len(body) if length is None else length, "Content-Encoding": encoding}
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items() if value != "")]
    return "\r\n".join([*lines, *([f"Authorization: Bearer {key}"] if key else []), "", ""]).encode() + body


def packed(encoding: str, *, method: str = "POST", path: str = "/rerank", key: str = "", **body: object) -> bytes:
    """A request with a compressed body."""
    compress = {"gzip": gzip.compress, "zstd": zstandard.compress}[encoding]
    return http(method, path, compress(json.dumps(body, ensure_ascii=False).encode()), encoding=encoding, key=key)


def option(value: str) -> bytes:
    """A request with one more option, which is JSON already."""
    return f'{{"query":"river","documents":["the river"],{value}}}'.encode()


def pruned(documents: int, **more: object) -> bytes:
    """A request for few kilobytes of documents with many short sentences far apart, of each of which the heading is asked for."""
    unit = "river.\n" + "\n" * 205
    spans = {"mode": "enabled", "threshold": 0.0}
    texts = [(unit * (20_000 // len(unit) + 1))[:20_000]] * documents
    return packed("gzip", query="river", documents=texts, prune=True, relevant_spans=spans, **more)


def largest(unit: str) -> Attack:
    """The largest request of documents made of this, with all that may be asked of it."""
    text = unit * (HUGE // len(unit))
    documents = [text] * (LARGEST // len(json.dumps(text, ensure_ascii=False).encode()))
    asked = {"return_documents": True, "return_blocks": True, "prune": True, "relevant_spans": {"mode": "enabled"}}
    body = json.dumps({"query": "river", "documents": documents, **asked}, ensure_ascii=False).encode()
    return Attack(http("POST", "/rerank", body), (200, 413, 429, UNANSWERED))


def floods() -> Iterator[tuple[str, str, Attack]]:
    """Connections that send without end."""
    chunked = b"POST /rerank HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    ask = http("GET", "/openapi.json") * 5_000
    for name, what, allowed, sent, more in (
        ("endless-head", "100 MiB of header lines", 431, b"GET / HTTP/1.1\r\n", b"".join(b"a-%d: b\r\n" % n for n in range(9999))),
        ("url-in-pieces", "A URL that never ends", 431, b"GET /", b"a" * 16_000),
        ("tiny-chunks", "Bodies in chunks of one byte", 400, chunked, b"1\r\nx\r\n" * 40_000),
        ("endless-trailers", "Trailers that never end", 431, chunked + b"1\r\nx\r\n0\r\n", b"name: value\r\n" * 20_000),
        ("requests-at-once", "Requests without end, and nobody reads the answers", 200, ask, ask),
    ):
        yield name, f"{what}, on four connections", Attack(sent, (allowed,), 4, more, live=1.0)


def places() -> Iterator[tuple[str, str, Attack]]:
    """Connections that take places, or memory for requests in flight, and keep them."""
    head, put = http("POST", "/rerank", length=9), http("PUT", "/documents", length=99_999_999)
    room = {"max_connections": HEADS + 200}
    yield (
        "heads-without-bodies",
        "1,224 heads without bodies, the limit of connections",
        Attack(head, (), HEADS + 200, unread=True, live=PLACES_SECONDS, settings=room),
    )
    yield (
        "heads-of-uploads",
        "128 heads of PUT /documents without bodies",
        Attack(put, (), 128, unread=True, live=PLACES_SECONDS, settings=POD),
    )
    shown = packed("zstd", query="river", documents=["a " * 1_000_000] * 15, return_documents=True, deadline_ms=1)
    slow = {"answer_seconds": 2, "max_bytes_in_flight": 4 * 15 * 2_000_000}
    yield (
        "unread-answers",
        "20 requests of 2 KB with answers of 30 MB, unread",
        Attack(shown, (), 20, unread=True, live=PLACES_SECONDS, refused=BESIDE_SECONDS, settings=slow),
    )
    lines = [
        packed("zstd", method="PUT", path="/documents", key=STORE.secret, id="huge", text=text)
        for text in ("a b c d. " * 430_000, EMOJI * 1_900_000)
    ]
    shown = http("GET", "/documents/huge", key=STORE.secret)
    heads = http("POST", "/rerank", length=9, key=STORE.secret)
    for name, what, sent, number in (
        ("heads-without-a-key", "3,072 heads without a key", head, 3 * HEADS),
        ("heads-with-a-key", "3,072 heads with a key for documents only", heads, 3 * HEADS),
        ("shown-unread", "1,024 unread answers of 3.9 MB", shown, HEADS),
        ("uploads", "200 uploads that unpack to 3.9 MB", lines[0], 200),
        ("uploads-of-emoji", "200 uploads of 3.8 million emoji and joiners", lines[1], 200),
    ):
        must(number * len(sent) < MIB, f"{name} are {number * len(sent)} bytes")
        yield (
            name,
            f"{what} ({number * len(sent) // 1024} KB)",
            Attack(sent, (), number, unread=True, live=PLACES_SECONDS, first=lines[0], settings=KEYED),
        )


def bodies() -> Iterator[tuple[str, str, Attack]]:
    """Small bodies that ask for much, and large ones."""
    lists = zstandard.compress(b'{"id": "a", "text": [' + b"[]," * (21 * MIB) + b"[]]}\n")
    yield (
        "line-of-lists",
        "6 KB of zstd, a line of PUT /documents that unpacks to 63 MiB of lists",
        Attack(http("PUT", "/documents", lists, encoding="zstd"), (422,)),
    )
    empty = gzip.compress(option('"first_stage_scores":' + json.dumps([""] * 690_000, separators=(",", ":"))))
    errors = http("POST", "/rerank", empty, encoding="gzip")
    yield "errors-without-end", "2 KB of gzip: 690,000 empty strings as scores", Attack(errors, (422,))
    names = ["".join(name) for name in itertools.islice(itertools.product(string.ascii_letters + string.digits, repeat=3), 225_000)]
    members = json.dumps(dict.fromkeys(names, 0), separators=(",", ":"))
    fusion = option(f'"fusion":{{"name":"mapfuse",{members[1:]}')
    yield "options-of-another-size", "225,000 unknown parameters of a fusion", Attack(http("POST", "/rerank", fusion), (422,))
    frames = http("PUT", "/documents", zstandard.compress(b"") * (LARGEST // 9), encoding="zstd")
    yield "tiny-frames", "60 MiB of zstd frames of nine bytes to PUT /documents", Attack(frames, (400,))
    huge = json.dumps({"id": "huge", "text": UNITS["one-letter words"] * (HUGE // 9)}).encode()
    often = json.dumps({"query": "river", "documents": [{"id": "huge"}] * 60}).encode()
    yield (
        "stored-many-times",
        "A stored document of 3.9 million characters, 60 times in one request",
        Attack(http("POST", "/rerank", often), first=http("PUT", "/documents", huge), settings={"cache_bytes": 0}),
    )
    letters = random.Random(1)
    words = ["".join(letters.choices("qjxzvkwy", k=100)) for _ in range(50)]
    long = packed("zstd", query="river", documents=[" ".join(words * (HUGE // 101 // len(words)))])
    yield (
        "words-of-100-letters",
        "3.9 million characters in words of 100 letters (2.5 KB of zstd), 16 at once",
        Attack(long, (200, 429, UNANSWERED), 16, live=5.0),
    )
    yield (
        "headings-of-many-spans",
        "`prune` with a deadline of 1 s, for 100 documents of many sentences far apart",
        Attack(pruned(100, deadline_ms=1000)),
    )
    yield "small-requests-that-prune", "2 KB that ask for `prune`, 16 at once", Attack(pruned(19), (200, 429), 16, live=1.0)
    emoji = packed("gzip", query="river", documents=[EMOJI * (HUGE // 2)] * 4)
    yield (
        "emoji-and-joiners",
        "Four documents of 3.9 million emoji and joiners, four requests at once",
        Attack(emoji, (200, 429), 4, live=1.0, settings=POD),
    )
    tiny = b"".join(b'{"id": "%d", "text": "%d"}\n' % (n, n) for n in range(LARGEST // 34))
    yield "tiny-documents", "An upload of 60 MiB of tiny documents", Attack(http("PUT", "/documents", tiny), (200, UNANSWERED))


def attacked(attack: Attack, folder: Path) -> str:
    """What became of the attack, and of those who asked meanwhile. Raises NotHeldError."""
    key = RANK.secret if "api_keys" in attack.settings else ""
    with drill(folder, key=key, store=folder / "store", **attack.settings) as it:
        port, statuses = it.service.port, Counter[int]()
        if attack.first:
            with connected(port) as one:
                must(send(attack.first, b"", one) == 200, "what comes before it was refused")
        with it.asking() as seen, ExitStack() as held:
            ones = [held.enter_context(connected(port, attack.unread)) for _ in range(attack.connections)]
            if attack.unread:
                for one in ones:
                    with suppress(OSError):  # closed already, to make room
                        one.sendall(attack.sent)
                time.sleep(BESIDE_SECONDS)
            else:
                with ThreadPoolExecutor(len(ones)) as pool:
                    statuses.update(pool.map(partial(send, attack.sent, attack.more), ones))
        allowed = {*attack.allowed, *((LOST, UNANSWERED) if attack.more else ())}
        kept = attack.unread or attack.more  # others are kept from ranking; one who may rank can have them wait for large rankings
        others, answers = seen.check(bad_seconds=attack.refused if kept else float("inf")), counted(statuses)
        must(set(statuses) <= allowed, f"it was answered {answers}")
        must(max(seen.live) < attack.live and (attack.unread or seen.mebibytes < MOST_MEBIBYTES), seen.cost())
        until(lambda: it.in_flight() == 0 and it.health() == (200, 200), "nothing is in flight, and health is green")
        return f"{answers or 'held'}; {seen.cost()}; others: {others}"


@contextmanager
def connected(port: int, unread: bool = False) -> Iterator[socket.socket]:
    """A connection to the service; with a small buffer where nothing is read of it."""
    with socket.socket() as one:
        if unread:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        one.settimeout(PATIENCE)
        one.connect(("127.0.0.1", port))
        yield one


def send(sent: bytes, more: bytes, one: socket.socket) -> int:
    """Send it, and `more` until the service closes or it is enough. The status of the answer, LOST or UNANSWERED."""
    with suppress(OSError):
        one.sendall(sent)
        taken = 0
        while more and taken < ENDLESS:
            taken += one.send(more)
    try:
        found = re.match(rb"HTTP/1.1 (\d+) ", one.recv(100))
    except TimeoutError:
        return UNANSWERED
    except OSError:
        return LOST
    return int(found[1]) if found else LOST


def all_attacks() -> Iterator[tuple[str, str, Callable[[Path], str]]]:
    """The name of each attack, what it is, and what does it. Each is made when its turn comes: some are large."""
    for kind in (floods, places, bodies):
        for name, what, attack in kind():
            yield name, what, partial(attacked, attack)
    for name, unit in UNITS.items():
        title = f"60 MiB of {name}, with all that may be asked of it"
        yield f"largest-{name.replace(' ', '-')}", title, lambda folder, unit=unit: attacked(largest(unit), folder)
