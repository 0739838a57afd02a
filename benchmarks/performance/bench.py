"""Shared by the parts of the benchmark: sizes, texts, weights and systems. A system starts when a part first needs it."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
import onnxruntime
from tokenizers import Tokenizer

from benchmarks.performance import LONGEST
from benchmarks.performance.limit import Encoder, encoder_of, peaks
from benchmarks.performance.peers import PEERS, Peer, PeerError, Running, start, versions
from benchmarks.performance.weights import write_hugging_face, write_wide_bundle
from keyblock.bundle import TOKENIZER_FILE
from tests.support.serving import Answer, Service
from tests.support.texts import Request, Source, collected, invented
from training.model.cross_encoder import CrossEncoder
from training.model.starting import read_ranker
from training.recipe import DEFAULT_BACKBONE, backbone_path

ROOT = Path(__file__).resolve().parents[2]
BUNDLE = ROOT / "models" / "default"
Rank = Callable[[Request], Answer]


@dataclass(frozen=True)
class Sizes:
    """How much is measured.

    Attributes:
        name: name of the set; ratios are comparable only within one set.
        documents, words: documents of a request, and words of a document.
        turns: turns of each system.
        grid_documents, grid_words: the same for the grid's requests.
        grid_turns: turns of the grid.
        clients: numbers of concurrent clients.
        client_documents: documents of a client's request.
        client_requests: requests of each client.
        client_words: words of a document in a client's request.
        long_words: words of the documents that are ten times as long.
        memory_first, memory_last: numbers of requests after which memory is read.
        starts: number of starts of the service.
    """

    name: str
    documents: int
    words: int
    turns: int
    grid_documents: tuple[int, ...]
    grid_words: tuple[int, ...]
    grid_turns: int
    clients: tuple[int, ...]
    client_documents: int
    client_requests: int
    client_words: int
    long_words: int
    memory_first: int
    memory_last: int
    starts: int


FULL = Sizes("full", 100, 2000, 3, (10, 100), (500, 2000, 20_000), 3, (1, 8, 32), 10, 3, 2000, 20_000, 100, 1000, 5)
QUICK = Sizes("quick", 16, 2000, 2, (4, 16), (500, 2000), 1, (4, 32), 10, 2, 500, 20_000, 20, 100, 2)


@dataclass
class Bench:
    """One run of the benchmark. Use it in a `with` block, which stops all started systems at its end.

    Attributes:
        sizes: how much is measured.
        threads: threads that every system may use.
        home: folder for environments, weights and logs.
        data: collection of the texts; None: random texts.
        wanted: keys of the peers to measure.
    """

    sizes: Sizes
    threads: int
    home: Path
    data: Path | None = None
    wanted: tuple[str, ...] = tuple(peer.key for peer in PEERS)
    peaks: dict[str, float] = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)
    versions: dict[str, dict[str, str]] = field(default_factory=dict)
    _services: dict[str, Service] = field(default_factory=dict)
    _peers: dict[str, Running] = field(default_factory=dict)
    _stack: ExitStack = field(default_factory=ExitStack)

    def __enter__(self) -> "Bench":
        self.home.mkdir(parents=True, exist_ok=True)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @cached_property
    def source(self) -> Source:
        """The source of requests; every run draws different ones of the same kind."""
        seed = int(np.random.SeedSequence().generate_state(1)[0])
        return collected(self.data, seed) if self.data else invented(BUNDLE / TOKENIZER_FILE, seed)

    @cached_property
    def ranker(self) -> CrossEncoder:
        """The embedded bundle's ranker in PyTorch."""
        return read_ranker(BUNDLE, backbone_path(DEFAULT_BACKBONE))

    @cached_property
    def encoder(self) -> Encoder:
        """Sizes of the ranker's encoder."""
        return encoder_of(self.ranker.encoder.config)

    @cached_property
    def model(self) -> Path:
        """A directory with the ranker's weights for the peers."""
        directory = self.home / "model"
        directory.mkdir(exist_ok=True)
        write_hugging_face(directory, self.ranker, BUNDLE / TOKENIZER_FILE)
        return directory

    @cached_property
    def _tokenizer(self) -> Tokenizer:
        tokenizer = Tokenizer.from_file(str(self.model / TOKENIZER_FILE))
        tokenizer.enable_truncation(LONGEST)
        return tokenizer

    def cut_lengths(self, request: Request) -> list[int]:
        """Tokens of the sequences of a reranker that truncates documents at the model's limit."""
        return [len(e.ids) for e in self._tokenizer.encode_batch([(request.query, document) for document in request.documents])]

    def bundle(self, wide: bool) -> Path:
        """The embedded bundle, or a copy whose budgets range up to 512 tokens."""
        return write_wide_bundle(BUNDLE, self.home / "wide", LONGEST).path if wide else BUNDLE

    def service(self, wide: bool) -> Service:
        """KeyBlock on the embedded bundle, or on the wide copy."""
        name = "keyblock-wide" if wide else "keyblock"
        if name not in self._services or not self._services[name].alive:
            service = Service(self.threads, self.home / f"{name}.log", bundle=self.bundle(wide))
            self._services[name] = self._stack.enter_context(service)
            provider = service.info["provider"]["chosen"]
            self.versions.setdefault(
                "KeyBlock", {"": service.info["version"], provider: f"on ONNX Runtime {onnxruntime.__version__}"}
            )
        return self._services[name]

    def peers(self, keys: tuple[str, ...] | None = None) -> dict[Peer, Running]:
        """The wanted peers that start. `absent` says why another peer did not start."""
        selected = [peer for peer in PEERS if peer.key in self.wanted and (keys is None or peer.key in keys)]
        for peer in selected:
            if peer.key not in self._peers and peer.name not in self.absent:
                self._start(peer)
        return {peer: self._peers[peer.key] for peer in selected if peer.key in self._peers}

    def _start(self, peer: Peer) -> None:
        print(f"starting {peer.name} ...", flush=True)
        try:
            running = start(peer, self.model, self.home, self.threads)
            self._stack.callback(running.stop)
            running.rank(self.source.request(8, 1000))  # the longest sequences
        except PeerError as error:
            self.drop(peer, error)
            return
        self._peers[peer.key] = running
        if peer.environment.name not in self.versions:
            self.versions[peer.environment.name] = versions(self.home / peer.environment.name / "bin" / "python")

    def drop(self, peer: Peer, error: PeerError) -> None:
        """Report a failed peer, and continue without it."""
        print(f"without {peer.name}: {error}", flush=True)
        self.absent[peer.name] = str(error)
        self._peers.pop(peer.key, None)

    def measure_peaks(self) -> dict[str, float]:
        """Measure the matrix products again. Returns the best rates so far, in operations a second, by library and precision."""
        for way, rate in peaks(self.threads).items():
            self.peaks[way] = max(rate, self.peaks.get(way, 0.0))
        return self.peaks

    @contextmanager
    def fresh_service(self, **settings: object) -> Iterator[Service]:
        """A new service on the embedded bundle; it stops after the block."""
        with Service(self.threads, self.home / "keyblock-fresh.log", bundle=BUNDLE, **settings) as service:
            yield service

    def mean_lengths(self, answer: Answer) -> list[int]:
        """Tokens of KeyBlock's sequences; each counts as the mean."""
        documents = max(1, len(answer.scores))
        return [round(answer.tokens / documents)] * documents
