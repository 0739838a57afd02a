"""The dashboards: the service at a glance, and the model with its batches in detail."""

from k8s.monitoring.panels import Board, Kind, Panel, Query, Row, Unit
from k8s.monitoring.promql import WINDOW, aggregated, quantile, rate, scoped
from service.telemetry.metrics import STAGES

COUNTED = "!~invalid|cancelled"  # the requests that count for the service's objective
BAD = "=~failed|refused"
ALL_REQUESTS = rate("requests", outcome=COUNTED)
DEADLINES = rate("deadlines")
ANSWERED = rate("latency", suffix="_count")
POD = '{namespace=~"$namespace", pod=~"$pod"}'
OF_KEYBLOCK = f"and on (namespace, pod) {scoped('build')}"  # restricts metrics that any process has to KeyBlock's pods
BUSY = f"clamp_max({rate('batch_seconds', ['pod'], suffix='_sum')}, 1)"


def share(part: str, whole: str) -> str:
    """A share, 0 to 1; no number if the whole is 0. Prometheus extrapolates rates separately, so a part may exceed the whole."""
    return f"clamp_max({part} / {whole}, 1)"


def mean(total: str, number: str) -> str:
    """A mean; no number if there is nothing to take it of, though some of the total may have been counted already."""
    return f"{total} / ({number} > 0)"


GLANCE = Row(
    "At a glance",
    [
        Panel(
            "Replicas ready",
            "Pods whose model is warmed up and whose model thread lives. If some are missing, see `/health/ready` of the other "
            "pods.",
            Kind.STAT,
            Unit.NUMBER,
            [Query(aggregated("sum", scoped("ready")))],
            4,
        ),
        Panel(
            "Requests",
            "Rerank requests per second, of all outcomes.",
            Kind.STAT,
            Unit.REQUESTS,
            [Query(rate("requests"))],
            4,
        ),
        Panel(
            "Not served",
            "Share of requests that failed (5xx) or were refused for want of room (429, 503). Requests that were invalid or that "
            "clients cancelled do not count. The objective is 0.1%.",
            Kind.STAT,
            Unit.SHARE,
            [Query(share(rate("requests", outcome=BAD), ALL_REQUESTS))],
            4,
            (0.001, 0.01),
        ),
        Panel(
            "Latency, p99",
            "99 of 100 requests are answered within this time after their last byte. The objective is 2.5 s.",
            Kind.STAT,
            Unit.SECONDS,
            [Query(quantile("latency", 0.99))],
            4,
            (1, 2.5),
        ),
        Panel(
            "Queue, oldest",
            "How long the oldest request in the queue has waited for the model, in the pod with the longest wait.",
            Kind.STAT,
            Unit.SECONDS,
            [Query(aggregated("max", scoped("queue_age")))],
            4,
            (2, 5),
        ),
        Panel(
            "Deadlines that cost quality",
            "Share of the requests with a deadline whose ranking was reduced: fewer tokens, or "
            "documents that the model did not score.",
            Kind.STAT,
            Unit.SHARE,
            [Query(share(rate("degraded_requests"), DEADLINES))],
            4,
            (0.05, 0.2),
        ),
    ],
)
GOLDEN = Row(
    "Traffic, errors, latency",
    [
        Panel(
            "Requests by outcome",
            "ok; invalid (4xx: the client's mistake); refused (429, or 503 while warming up); cancelled (the client left); "
            "failed (5xx).",
            Kind.STACKED,
            Unit.REQUESTS,
            [Query(rate("requests", ["outcome"]), "{{outcome}}")],
        ),
        Panel(
            "Not served, as a share",
            "The two parts of the error budget that is spent: failures are faults, refusals mean too little capacity.",
            Kind.LINES,
            Unit.SHARE,
            [Query(share(rate("requests", outcome=f"={kind}"), ALL_REQUESTS), kind) for kind in ("failed", "refused")],
            steps=(0.001, 0.01),
        ),
        Panel(
            "Requests by dialect",
            "The API that clients use: the native one (also Jina's, Cohere's, vLLM's and Infinity's), or that of TEI, Voyage, "
            "vLLM's scores or NIM. Queries: of requests with several, each of which counts as one native request.",
            Kind.LINES,
            Unit.REQUESTS,
            [Query(rate("requests", ["dialect"]), "{{dialect}}"), Query(rate("queries"), "queries")],
        ),
        Panel(
            "Latency",
            "Time from a request's last byte to its answer. Points are single requests whose trace was sampled.",
            Kind.LINES,
            Unit.SECONDS,
            [Query(quantile("latency", q), f"p{q * 100:g}") for q in (0.5, 0.95, 0.99)],
            12,
            exemplars=True,
        ),
        Panel(
            "Latency, all requests",
            "How many requests took how long. Two bands mean two kinds of requests: small and large, or by text and by id.",
            Kind.HEATMAP,
            Unit.SECONDS,
            [Query(rate("latency", ["le"], suffix="_bucket"), "{{le}}")],
            12,
        ),
    ],
)
TIME = Row(
    "Where the time goes",
    [
        Panel(
            "Mean request, by stage",
            f"The stages of a mean request, stacked: {', '.join(STAGES)}. Queue grows with load, prepare with the "
            "length of documents that are not in the cache. Model depends on the replica's hardware.",
            Kind.STACKED,
            Unit.SECONDS,
            [Query(mean(rate("stages", suffix="_sum", stage=f"={stage}"), ANSWERED), stage) for stage in STAGES],
            12,
        ),
        Panel(
            "Slowest hundredth, by stage",
            "The 99th percentile of each stage by itself. It shows which stage makes the tail.",
            Kind.LINES,
            Unit.SECONDS,
            [Query(quantile("stages", 0.99, ["stage"]), "{{stage}}")],
            12,
            exemplars=True,
        ),
    ],
)
SATURATION = Row(
    "Saturation",
    [
        Panel(
            "Model thread, busy",
            "Share of the time in which a replica's model thread computes. At 1 it is saturated: requests wait, then are refused. "
            "The autoscaler should act long before that.",
            Kind.LINES,
            Unit.SHARE,
            [Query(BUSY, "{{pod}}")],
            steps=(0.8, 0.95),
        ),
        Panel(
            "Queue, oldest",
            "How long the oldest request in the queue has waited. A sawtooth means that the queue drains; a rising floor means "
            "that it does not.",
            Kind.LINES,
            Unit.SECONDS,
            [Query(aggregated("max", scoped("queue_age"), ["pod"]), "{{pod}}")],
            steps=(2, 5),
        ),
        Panel(
            "Waiting work",
            "Seconds until all waiting work is done, at the measured pace. Beyond `max_backlog_ms` (60 s) requests are refused. "
            "A single request is refused if it would wait for others longer than `max_wait_ms` (10 s).",
            Kind.LINES,
            Unit.SECONDS,
            [Query(aggregated("max", scoped("wait"), ["pod"]), "{{pod}}")],
        ),
        Panel(
            "Requests in flight, and waiting",
            "In flight: admitted, but the answer is not written yet. Waiting: the model has not taken all of its sequences yet.",
            Kind.LINES,
            Unit.NUMBER,
            [
                Query(aggregated("sum", scoped("in_flight")), "in flight"),
                Query(aggregated("sum", scoped("queued_requests")), "waiting for the model"),
            ],
        ),
        Panel(
            "Processors",
            "Processor seconds per second, by pod. At its limit the container is throttled: both preparation and the model slow "
            "down.",
            Kind.LINES,
            Unit.NUMBER,
            [Query(aggregated("sum", f"rate(process_cpu_seconds_total{POD}[{WINDOW}]) {OF_KEYBLOCK}", ["pod"]), "{{pod}}")],
        ),
        Panel(
            "Memory",
            "Resident memory of the process. It settles after the first minutes; steady growth beyond that is a leak.",
            Kind.LINES,
            Unit.BYTES,
            [Query(aggregated("sum", f"process_resident_memory_bytes{POD} {OF_KEYBLOCK}", ["pod"]), "{{pod}}")],
        ),
    ],
)
LESS = Row(
    "Less than was asked for",
    [
        Panel(
            "Refused and denied",
            "Reasons for refusing: unready (warming up); wait (the request would wait too long, or too much work waits); requests, "
            "bytes, documents (a limit on all requests in flight). Denied: without a key (401), or without the scope (403). File: "
            "the page wanted the text of a file.",
            Kind.STACKED,
            Unit.REQUESTS,
            [
                Query(rate("refused", ["why"]), "{{why}}"),
                Query(rate("denied", ["why"]), "denied: {{why}}"),
                Query(rate("files", ["outcome"]), "file: {{outcome}}"),
            ],
            6,
        ),
        Panel(
            "What deadlines cost",
            "tokens (fewer per document: costs little); blocks (a learned selector had no time for some); selector (documents "
            "ordered by their blocks alone); order (documents not read: costs much).",
            Kind.LINES,
            Unit.REQUESTS,
            [Query(rate("degraded", ["how"]), "{{how}}")],
            6,
        ),
        Panel(
            "What chose the blocks that are read",
            "evidence (the selector's scores); model (it scored single blocks); position (nothing in the document stood out for "
            "the query, so its first blocks were read, or blocks that were hardly more similar to it).",
            Kind.STACKED,
            Unit.DOCUMENTS_A_SECOND,
            [Query(rate("selected", ["by"]), "{{by}}")],
            6,
        ),
        Panel(
            "Deadlines",
            "met; late (by no more than promised: 50 ms or a batch); missed (by more than that, which should not happen).",
            Kind.STACKED,
            Unit.REQUESTS,
            [Query(rate("deadlines", ["outcome"]), "{{outcome}}")],
            6,
        ),
    ],
)
ANSWERS = Row(
    "What answers",
    [
        Panel(
            "Spans, and results below min_score",
            "Spans that answers name (relevant_spans), results that answers leave out because their score is too low, and "
            "answers that have no result left for that reason.",
            Kind.LINES,
            Unit.NUMBER,
            [
                Query(rate("spans"), "spans a second"),
                Query(rate("below"), "left out a second"),
                Query(rate("emptied"), "answers left empty a second"),
            ],
            12,
        ),
        Panel(
            "Tokens of pruned answers",
            "contexts: tokens that are passed on; documents: tokens of the same results' whole documents.",
            Kind.LINES,
            Unit.TOKENS_A_SECOND,
            [Query(rate("context_tokens", ["of"]), "{{of}}")],
            12,
        ),
    ],
)
CONNECTIONS = Row(
    "Connections",
    [
        Panel(
            "Open connections",
            "At `max_connections` (4,096) a new connection closes the one that has been idle longest.",
            Kind.LINES,
            Unit.NUMBER,
            [Query(aggregated("sum", scoped("connections"), ["pod", "port"]), "{{pod}}, {{port}}")],
            12,
        ),
        Panel(
            "Connections that the service ended",
            "large_head, late_head, malformed: requests that no well-behaved client sends. unread: the client did not read an "
            "answer within `answer_seconds`. crowded: closed to make room for other connections.",
            Kind.STACKED,
            Unit.CONNECTIONS_A_SECOND,
            [Query(rate("closed", ["why"]), "{{why}}")],
            12,
        ),
    ],
)
DOCUMENTS = Row(
    "Documents",
    [
        Panel(
            "Documents ranked",
            "Documents of answered requests per second. Without a block: nothing in them can be scored. Skipped: by the pre-"
            "ranking, so the model did not read them.",
            Kind.LINES,
            Unit.DOCUMENTS_A_SECOND,
            [Query(rate("documents"), "ranked"), Query(rate("unscored"), "without a block"), Query(rate("skipped"), "skipped")],
        ),
        Panel(
            "Found, not prepared",
            "Share of documents that were prepared already: of documents sent as text, in the cache; of documents sent as ids, in "
            "the store (stale ones are prepared again). Scores: share of sequences (a document's chosen blocks with the query) "
            "whose scores were in the cache.",
            Kind.LINES,
            Unit.SHARE,
            [
                Query(share(rate("cache_lookups", outcome="=hit"), rate("cache_lookups")), "cache"),
                Query(share(rate("store_lookups", outcome="=hit"), rate("store_lookups")), "store"),
                Query(share(rate("score_lookups", outcome="=hit"), rate("score_lookups")), "scores"),
            ],
        ),
        Panel(
            "Store of documents",
            "Requests to /documents by outcome, and errors of the store. Requests with texts do not need the store.",
            Kind.LINES,
            Unit.REQUESTS,
            [
                Query(rate("store_requests", ["outcome"]), "{{outcome}}"),
                Query(rate("store_errors", ["why"]), "error: {{why}}"),
            ],
        ),
        Panel(
            "Documents in the store",
            "Documents that the store holds, as the replica with the highest number reports (each reports a shared store), and "
            "documents that it deleted for want of room: if that number grows, the store is too small. Documents on servers that "
            "are away are not counted. Unread ones wait for the sentence encoder.",
            Kind.LINES,
            Unit.NUMBER,
            [
                Query(aggregated("max", scoped("store_documents")), "kept"),
                Query(aggregated("sum", scoped("store_unread")), "unread"),
                Query(aggregated("max", scoped("store_evicted")), "forgotten"),
                Query(aggregated("max", scoped("store_away")), "servers away"),
            ],
        ),
        Panel(
            "Documents put",
            "Documents stored and acknowledged per second, and those that the sentence encoder read.",
            Kind.LINES,
            Unit.DOCUMENTS_A_SECOND,
            [Query(rate("stored"), "stored"), Query(rate("understood"), "read by the encoder")],
        ),
        Panel(
            "Cache and store, size",
            "Bytes of prepared documents in the cache of each replica (limit: `cache_bytes`) and in the store (`store_bytes`), and "
            "of scores in the cache of each replica (`score_cache_bytes`). The store's size leaves out replicas whose store does "
            "not answer.",
            Kind.LINES,
            Unit.BYTES,
            [
                Query(aggregated("max", scoped("cache_bytes"), ["pod"]), "cache of {{pod}}"),
                Query(aggregated("max", scoped("score_cache_bytes"), ["pod"]), "scores of {{pod}}"),
                Query(aggregated("max", f"{scoped('store_bytes')} and on (namespace, pod) {scoped('store_up')} == 1"), "store"),
            ],
        ),
    ],
)
OVERVIEW = Board(
    "keyblock-overview",
    "KeyBlock / Service",
    "State of the rerank service: traffic, errors, latency, saturation, and what it gives up to meet deadlines.",
    [GLANCE, GOLDEN, TIME, SATURATION, LESS, ANSWERS, CONNECTIONS, DOCUMENTS],
)

SERVED = Row(
    "What is served",
    [
        Panel(
            "Models",
            "Each model and the number of replicas that serve it, with arithmetic, provider and version. Two versions mean a "
            "rollout in progress.",
            Kind.STAT,
            Unit.NUMBER,
            [
                Query(
                    aggregated("count", scoped("build"), ["model", "precision", "provider", "version"]),
                    "{{model}}, {{precision}} on {{provider}}, {{version}}",
                )
            ],
            8,
        ),
        Panel(
            "Fallen back",
            "Replicas whose image could use a GPU but which compute on the CPU, since they see no GPU.",
            Kind.STAT,
            Unit.NUMBER,
            [Query(aggregated("sum", aggregated("max", scoped("fell_back"), ["namespace", "pod"])))],
            3,
            (1,),
        ),
        Panel(
            "Reloads",
            "Reloads of the bundles in the last hour, by outcome. failed: a bundle cannot be served, so the old bundles still are.",
            Kind.STAT,
            Unit.NUMBER,
            [Query(aggregated("sum", f"increase({scoped('reloads')}[1h])", ["outcome"]), "{{outcome}}")],
            4,
        ),
        Panel(
            "Until ready",
            "Time in which the slowest replica loads its bundle and runs every batch shape once. A new replica needs that long "
            "before it helps.",
            Kind.STAT,
            Unit.SECONDS,
            [Query(aggregated("max", scoped("load"), ["phase"]), "{{phase}}")],
            9,
        ),
    ],
)
MODELS = Row(
    "By model",
    [
        Panel(
            "Answered",
            "Requests per second that each model answers.",
            Kind.STACKED,
            Unit.REQUESTS,
            [Query(rate("latency", ["model"], suffix="_count"), "{{model}}")],
        ),
        Panel(
            "Latency, p99",
            "99th percentile of the latency of each model's requests.",
            Kind.LINES,
            Unit.SECONDS,
            [Query(quantile("latency", 0.99, ["model"]), "{{model}}")],
            exemplars=True,
        ),
        Panel(
            "Sequences waiting",
            "Sequences that wait for each model, to select or to score.",
            Kind.STACKED,
            Unit.NUMBER,
            [Query(aggregated("sum", scoped("queued"), ["model"]), "{{model}}")],
        ),
    ],
)
FED = f"({rate('tokens')} + {rate('padding')})"
BATCHES = Row(
    "Batches",
    [
        Panel(
            "Tokens read by the model",
            "Tokens per second that the model reads, to rank and to select, and padding.",
            Kind.STACKED,
            Unit.TOKENS_A_SECOND,
            [
                Query(rate("tokens"), "tokens"),
                Query(rate("padding"), "padding"),
            ],
        ),
        Panel(
            "Padding",
            "Share of the computed tokens that is padding. It is high if lengths are mixed, or if few requests share a batch.",
            Kind.LINES,
            Unit.SHARE,
            [Query(share(rate("padding"), FED), "padding")],
        ),
        Panel(
            "Batches by outcome",
            "failed: its requests were answered with 500. split: it did not fit into memory, or one sequence was at fault, so it "
            "was run again in halves.",
            Kind.STACKED,
            Unit.BATCHES_A_SECOND,
            [Query(rate("batches", ["outcome"]), "{{outcome}}")],
        ),
        Panel(
            "Time of a batch",
            "A new request waits for the running batch: at most `batch_ms` (50), as the warm-up measured it on an idle machine.",
            Kind.LINES,
            Unit.SECONDS,
            [Query(quantile("batch_seconds", q), f"p{q * 100:g}") for q in (0.5, 0.99)],
        ),
        Panel(
            "Time of a batch, all batches",
            "Bands are the shapes of batches. If a band moves up, the machine is slowing down.",
            Kind.HEATMAP,
            Unit.SECONDS,
            [Query(rate("batch_seconds", ["le"], suffix="_bucket"), "{{le}}")],
        ),
        Panel(
            "Fill of a batch",
            "How many batches are how full: their sequences, as a share of the most that a batch of that length may have. Low fill "
            "under load means that requests are small and few; low fill without load is normal.",
            Kind.HEATMAP,
            Unit.SHARE,
            [Query(rate("batch_fill", ["le"], suffix="_bucket"), "{{le}}")],
        ),
    ],
)
SELECTION = Row(
    "Blocks and documents",
    [
        Panel(
            "Blocks of a document",
            "considered: blocks of a mean document; scored: blocks read to rank it; asked: blocks that the model read to select.",
            Kind.LINES,
            Unit.NUMBER,
            [Query(f"{rate('blocks', ['step'])} / on () group_left () ({rate('documents')} > 0)", "{{step}}")],
        ),
        Panel(
            "Blocks read by the ranker",
            "Share of all blocks. The smaller it is, the longer the documents are, and the more depends on the selection.",
            Kind.LINES,
            Unit.SHARE,
            [Query(share(rate("blocks", step="=scored"), rate("blocks", step="=considered")), "scored")],
        ),
        Panel(
            "Tokens of a document",
            "Tokens that the model reads for a mean document. Deadlines and `max_tokens_per_doc` lower the number.",
            Kind.LINES,
            Unit.NUMBER,
            [
                Query(mean(rate("tokens"), rate("documents")), "tokens"),
                Query(mean(rate("looked"), rate("documents")), "in second looks, some of them from the cache"),
            ],
        ),
    ],
)
UPSTREAM = Row(
    "Upstream",
    [
        Panel(
            "Requests to the upstream",
            "By outcome. late: the deadline passed. nonsense: the answer was not valid. skipped: not sent, since the upstream "
            "was away. After every outcome but ok and retried, the documents lack the upstream's scores.",
            Kind.STACKED,
            Unit.REQUESTS,
            [Query(rate("upstream_requests", ["outcome"]), "{{outcome}}")],
            width=12,
            needs="upstream",
        ),
        Panel(
            "Time of the upstream",
            "Time until the upstream has answered, retries included.",
            Kind.LINES,
            Unit.SECONDS,
            [Query(quantile("upstream_seconds", q), f"p{q * 100:g}") for q in (0.5, 0.99)],
            width=12,
            needs="upstream",
        ),
    ],
)
DEVICE = Row(
    "Device",
    [
        Panel(
            "Model thread, busy",
            "Share of the time in which the model thread of each replica computes.",
            Kind.LINES,
            Unit.SHARE,
            [Query(BUSY, "{{pod}}")],
            steps=(0.8, 0.95),
        ),
        Panel(
            "GPU utilisation",
            "Share of the last second in which the GPU ran anything, as the driver reports. If it is low while the model thread is "
            "busy, batches are too small to fill the GPU.",
            Kind.LINES,
            Unit.SHARE,
            [Query(aggregated("max", scoped("gpu_utilization"), ["pod", "gpu"]), "{{pod}} GPU {{gpu}}")],
            needs="GPU",
        ),
        Panel(
            "GPU memory",
            "Memory in use by all processes, and the GPU's total.",
            Kind.LINES,
            Unit.BYTES,
            [
                Query(aggregated("max", scoped("gpu_memory"), ["pod", "gpu"]), "{{pod}} GPU {{gpu}}"),
                Query(aggregated("max", scoped("gpu_memory_total"), ["pod", "gpu"]), "{{pod}} GPU {{gpu}}, all of it"),
            ],
            needs="GPU",
        ),
    ],
)
MODEL_BOARD = Board(
    "keyblock-model",
    "KeyBlock / Model and batches",
    "The served models and their work: batches, padding, blocks, and the device.",
    [SERVED, MODELS, BATCHES, SELECTION, UPSTREAM, DEVICE],
)
BOARDS = (OVERVIEW, MODEL_BOARD)
