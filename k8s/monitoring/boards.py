"""The dashboards: the service at a glance, and the model with its batches in detail."""

from k8s.monitoring.panels import Board, Kind, Panel, Query, Row, Unit
from k8s.monitoring.promql import WINDOW, over, quantile, rate, shown
from service.telemetry.metrics import STAGES

COUNTED = "!~invalid|cancelled"  # requests that the service has to answer for
BAD = "=~failed|refused"
ALL_REQUESTS = rate("requests", outcome=COUNTED)
DEADLINES = rate("deadlines")
ANSWERED = rate("latency", suffix="_count")
POD = '{namespace=~"$namespace", pod=~"$pod"}'
OURS = f"and on (namespace, pod) {shown('build')}"  # metrics of any process, of ours
BUSY = f"clamp_max({rate('batch_seconds', ['pod'], suffix='_sum')}, 1)"


def share(part: str, whole: str) -> str:
    """0 to 1, and no number where there is no whole. Prometheus extrapolates each rate by itself, so a part may seem the larger."""
    return f"clamp_max({part} / {whole}, 1)"


GLANCE = Row(
    "At a glance",
    [
        Panel(
            "Replicas ready",
            "Pods whose model is warmed up and whose model thread lives. Fewer than were asked for: see `/health/ready` of the "
            "others.",
            Kind.STAT,
            Unit.NUMBER,
            [Query(over("sum", shown("ready")))],
            4,
        ),
        Panel(
            "Requests",
            "Rerank requests of all outcomes, a second.",
            Kind.STAT,
            Unit.REQUESTS,
            [Query(rate("requests"))],
            4,
        ),
        Panel(
            "Not served",
            "Share of requests that failed (5xx) or were refused for want of room (429, 503). What clients got wrong, and what "
            "they gave up, is left out. The objective is 0.1%.",
            Kind.STAT,
            Unit.SHARE,
            [Query(share(rate("requests", outcome=BAD), ALL_REQUESTS))],
            4,
            (0.001, 0.01),
        ),
        Panel(
            "Latency, p99",
            "99 of 100 requests are answered within this time, from their last byte on. The objective is 2.5 s.",
            Kind.STAT,
            Unit.SECONDS,
            [Query(quantile("latency", 0.99))],
            4,
            (1, 2.5),
        ),
        Panel(
            "Queue, oldest",
            "How long the oldest request with sequences waiting for the model has waited, in the pod where that is longest.",
            Kind.STAT,
            Unit.SECONDS,
            [Query(over("max", shown("queue_age")))],
            4,
            (2, 5),
        ),
        Panel(
            "Deadlines that cost quality",
            "Of the requests with a deadline, the share that was answered with less than the usual ranking: fewer tokens, or "
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
            "ok; invalid (4xx: the client's mistake); refused (429, or 503 while warming up); cancelled (the client went); "
            "failed (5xx).",
            Kind.STACKED,
            Unit.REQUESTS,
            [Query(rate("requests", ["outcome"]), "{{outcome}}")],
        ),
        Panel(
            "Not served, as a share",
            "What eats the error budget, apart: failures are faults, refusals are want of capacity.",
            Kind.LINES,
            Unit.SHARE,
            [Query(share(rate("requests", outcome=f"={kind}"), ALL_REQUESTS), kind) for kind in ("failed", "refused")],
            steps=(0.001, 0.01),
        ),
        Panel(
            "Requests by dialect",
            "Which API the clients speak: the native one (Jina's, Cohere's, vLLM's and Infinity's too) or TEI's.",
            Kind.STACKED,
            Unit.REQUESTS,
            [Query(rate("requests", ["dialect"]), "{{dialect}}")],
        ),
        Panel(
            "Latency",
            "From a request's last byte to its answer. Points are single requests whose trace was sampled.",
            Kind.LINES,
            Unit.SECONDS,
            [Query(quantile("latency", q), f"p{q * 100:g}") for q in (0.5, 0.95, 0.99)],
            12,
            exemplars=True,
        ),
        Panel(
            "Latency, all requests",
            "How many requests took how long. Two bands are two kinds of requests: small and large, or by text and by id.",
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
            f"The stages of a mean request, one on the other: {', '.join(STAGES)}. Queue grows with load; prepare with the "
            "length of "
            "documents that are not in the cache; model with what the replica computes on.",
            Kind.STACKED,
            Unit.SECONDS,
            [Query(f"{rate('stages', suffix='_sum', stage=f'={stage}')} / {ANSWERED}", stage) for stage in STAGES],
            12,
        ),
        Panel(
            "Slowest hundredth, by stage",
            "The 99th percentile of each stage by itself: which one makes the tail.",
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
            "The autoscaler should act long before.",
            Kind.LINES,
            Unit.SHARE,
            [Query(BUSY, "{{pod}}")],
            steps=(0.8, 0.95),
        ),
        Panel(
            "Queue, oldest",
            "How long the oldest request with sequences waiting has waited. It saws while the queue drains; a floor that rises "
            "does not.",
            Kind.LINES,
            Unit.SECONDS,
            [Query(over("max", shown("queue_age"), ["pod"]), "{{pod}}")],
            steps=(2, 5),
        ),
        Panel(
            "Waiting work",
            "Seconds until all that waits is done, at the measured pace. Beyond `max_backlog_ms` (60 s) requests are refused; "
            "a single "
            "one is where it would wait for others more than `max_wait_ms` (10 s).",
            Kind.LINES,
            Unit.SECONDS,
            [Query(over("max", shown("wait"), ["pod"]), "{{pod}}")],
        ),
        Panel(
            "Requests in flight, and waiting",
            "In flight: let in, and the answer not yet written. Waiting: with sequences that the model has not taken yet.",
            Kind.LINES,
            Unit.NUMBER,
            [
                Query(over("sum", shown("in_flight")), "in flight"),
                Query(over("sum", shown("queued_requests")), "waiting for the model"),
            ],
        ),
        Panel(
            "Processors",
            "Processor seconds a second, a pod. At its limit the container is throttled: preparation and the model slow down "
            "alike.",
            Kind.LINES,
            Unit.NUMBER,
            [Query(over("sum", f"rate(process_cpu_seconds_total{POD}[{WINDOW}]) {OURS}", ["pod"]), "{{pod}}")],
        ),
        Panel(
            "Memory",
            "Resident memory of the process. It settles after the first minutes; steady growth beyond that is a leak.",
            Kind.LINES,
            Unit.BYTES,
            [Query(over("sum", f"process_resident_memory_bytes{POD} {OURS}", ["pod"]), "{{pod}}")],
        ),
    ],
)
LESS = Row(
    "Less than was asked for",
    [
        Panel(
            "Refused and denied",
            "unready (warming up); wait (it would wait too long for others, or too much waits); requests, bytes, documents (a "
            "limit on "
            "what is in flight). Denied: without a key (401), or without the scope (403).",
            Kind.STACKED,
            Unit.REQUESTS,
            [Query(rate("refused", ["why"]), "{{why}}"), Query(rate("denied", ["why"]), "denied: {{why}}")],
            6,
        ),
        Panel(
            "What deadlines cost",
            "escalation (the model not asked in doubt); tokens (fewer a document: cheap); blocks (a learned selector had no time "
            "for some); selector (documents ordered by their blocks alone); order (documents not read: dear).",
            Kind.LINES,
            Unit.REQUESTS,
            [Query(rate("degraded", ["how"]), "{{how}}")],
            6,
        ),
        Panel(
            "What chose the blocks that are read",
            "evidence (the selector's scores); model (asked about single blocks); position: nothing in the document "
            "stood out for the query: its first blocks were read, or such as were hardly nearer to it.",
            Kind.STACKED,
            Unit.DOCUMENTS_A_SECOND,
            [Query(rate("selected", ["by"]), "{{by}}")],
            6,
        ),
        Panel(
            "Deadlines",
            "met; late by no more than is promised (50 ms or a batch); missed: more than that, which should not happen.",
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
            "Spans that answers name (relevant_spans), and results that they leave out for their score.",
            Kind.LINES,
            Unit.NUMBER,
            [Query(rate("spans"), "spans a second"), Query(rate("below"), "left out a second")],
            12,
        ),
        Panel(
            "Tokens of pruned answers",
            "contexts: what is passed on; documents: what the same results' documents have.",
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
            "At `max_connections` (4,096) a new one ends the one that has been idle longest.",
            Kind.LINES,
            Unit.NUMBER,
            [Query(over("sum", shown("connections"), ["pod", "port"]), "{{pod}}, {{port}}")],
            12,
        ),
        Panel(
            "Connections that the service ended",
            "large_head, late_head, malformed: what no well-behaved client sends. unread: an answer that was not read within "
            "`answer_seconds`. crowded: to make room for others.",
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
            "Documents of answered requests, a second; of these those without anything to score, and those that promise too little "
            "for the model to read.",
            Kind.LINES,
            Unit.DOCUMENTS_A_SECOND,
            [Query(rate("documents"), "ranked"), Query(rate("unscored"), "without a block"), Query(rate("spared"), "spared")],
        ),
        Panel(
            "Found, not prepared",
            "Share of documents found prepared: in the cache, of those sent with their text; in the store, of those sent as an "
            "id. Stale "
            "ones are prepared again. And of sequences (a document's chosen blocks with the query) whose scores were in the cache.",
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
            "Requests to /documents by outcome, and what the store could not do. Requests with texts do not need it.",
            Kind.LINES,
            Unit.REQUESTS,
            [
                Query(rate("store_requests", ["outcome"]), "{{outcome}}"),
                Query(rate("store_errors", ["why"]), "error: {{why}}"),
            ],
        ),
        Panel(
            "Documents in the store",
            "What it holds, in the replica that reports most (each reports a shared store), and what it forgot for want of room: "
            "growth of the latter means that the store is too small. What servers that are away hold is not counted.",
            Kind.LINES,
            Unit.NUMBER,
            [
                Query(over("max", shown("store_documents")), "kept"),
                Query(over("max", shown("store_evicted")), "forgotten"),
                Query(over("max", shown("store_away")), "servers away"),
            ],
        ),
        Panel(
            "Documents put",
            "Documents stored a second, and acknowledged.",
            Kind.LINES,
            Unit.DOCUMENTS_A_SECOND,
            [Query(rate("stored"), "stored")],
        ),
        Panel(
            "Cache and store, size",
            "Bytes of prepared documents: in the cache of each replica, whose limit is `cache_bytes`, and in the store "
            "(`store_bytes`); of scores in the cache of each replica (`score_cache_bytes`). "
            "Replicas without a store, or whose store does not answer, are left out.",
            Kind.LINES,
            Unit.BYTES,
            [
                Query(over("max", shown("cache_bytes"), ["pod"]), "cache of {{pod}}"),
                Query(over("max", shown("score_cache_bytes"), ["pod"]), "scores of {{pod}}"),
                Query(over("max", f"{shown('store_bytes')} and on (namespace, pod) {shown('store_up')} == 1"), "store"),
            ],
        ),
    ],
)
OVERVIEW = Board(
    "keyblock-overview",
    "KeyBlock / Service",
    "How the rerank service does: traffic, errors, latency, saturation, and what it gives up to be in time.",
    [GLANCE, GOLDEN, TIME, SATURATION, LESS, ANSWERS, CONNECTIONS, DOCUMENTS],
)

SERVED = Row(
    "What is served",
    [
        Panel(
            "Models",
            "Each model and the replicas that serve it: arithmetic, provider and version. Two versions are a rollout in progress.",
            Kind.STAT,
            Unit.NUMBER,
            [
                Query(
                    over("count", shown("build"), ["model", "precision", "provider", "version"]),
                    "{{model}}, {{precision}} on {{provider}}, {{version}}",
                )
            ],
            8,
        ),
        Panel(
            "Fallen back",
            "Replicas whose image could use a GPU and which compute on the CPU, since none is shown to them.",
            Kind.STAT,
            Unit.NUMBER,
            [Query(over("sum", shown("fell_back")))],
            3,
            (1,),
        ),
        Panel(
            "Reloads",
            "Times in the last hour that the bundles were read again, by outcome. failed: a bundle cannot be served, and the "
            "old ones are.",
            Kind.STAT,
            Unit.NUMBER,
            [Query(over("sum", f"increase({shown('reloads')}[1h])", ["outcome"]), "{{outcome}}")],
            4,
        ),
        Panel(
            "Processes started again",
            "Times in the last hour, of services with several processes: those that speak HTTP, and the model's. The label `why` "
            "of the metric, and the log, say what had become of the one before.",
            Kind.STAT,
            Unit.NUMBER,
            [Query(over("sum", f"increase({shown('restarts')}[1h])", ["process"]), "{{process}}")],
            4,
            (1,),
        ),
        Panel(
            "Until ready",
            "What the slowest replica took to load its bundle, and to run every batch shape once. A new replica helps no sooner.",
            Kind.STAT,
            Unit.SECONDS,
            [Query(over("max", shown("load"), ["phase"]), "{{phase}}")],
            5,
        ),
    ],
)
MODELS = Row(
    "By model",
    [
        Panel(
            "Answered",
            "Requests answered by each model, a second.",
            Kind.STACKED,
            Unit.REQUESTS,
            [Query(rate("latency", ["model"], suffix="_count"), "{{model}}")],
        ),
        Panel(
            "Latency, p99",
            "Of the requests that each model answered.",
            Kind.LINES,
            Unit.SECONDS,
            [Query(quantile("latency", 0.99, ["model"]), "{{model}}")],
            exemplars=True,
        ),
        Panel(
            "Sequences waiting",
            "For each model, to select or to score.",
            Kind.STACKED,
            Unit.NUMBER,
            [Query(over("sum", shown("queued"), ["model"]), "{{model}}")],
        ),
    ],
)
FED = f"({rate('tokens')} + {rate('padding')})"
BATCHES = Row(
    "Batches",
    [
        Panel(
            "Tokens fed",
            "Tokens that the model reads, a second: to rank and to select, to choose blocks of documents in doubt, and padding.",
            Kind.STACKED,
            Unit.TOKENS_A_SECOND,
            [
                Query(f"{rate('tokens')} - {rate('escalation_tokens')}", "tokens"),
                Query(rate("escalation_tokens"), "in doubt"),
                Query(rate("padding"), "padding"),
            ],
        ),
        Panel(
            "Padding",
            "Share of what is computed that is padding. High where lengths are mixed, or where few requests share a batch.",
            Kind.LINES,
            Unit.SHARE,
            [Query(share(rate("padding"), FED), "padding")],
        ),
        Panel(
            "Batches by outcome",
            "failed: its requests were answered with 500. split: it did not fit the memory, or one sequence was at fault, and "
            "it was "
            "run again in halves.",
            Kind.STACKED,
            Unit.BATCHES_A_SECOND,
            [Query(rate("batches", ["outcome"]), "{{outcome}}")],
        ),
        Panel(
            "Time of a batch",
            "A newcomer waits for the batch in hand: at most `batch_ms` (50), which the warm-up measured on an idle machine.",
            Kind.LINES,
            Unit.SECONDS,
            [Query(quantile("batch_seconds", q), f"p{q * 100:g}") for q in (0.5, 0.99)],
        ),
        Panel(
            "Time of a batch, all batches",
            "Bands are the shapes of batches. A band that moves up is a machine that slows down.",
            Kind.HEATMAP,
            Unit.SECONDS,
            [Query(rate("batch_seconds", ["le"], suffix="_bucket"), "{{le}}")],
        ),
        Panel(
            "Fill of a batch",
            "Sequences in a batch, of those that one of its length may have: how many batches are how full. Low fill under "
            "load means "
            "that requests are small and few; low fill without load is as it should be.",
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
            "considered: that a mean document has; scored: that the model read to rank it; asked: that it read to select.",
            Kind.LINES,
            Unit.NUMBER,
            [Query(f"{rate('blocks', ['step'])} / on () group_left () {rate('documents')}", "{{step}}")],
        ),
        Panel(
            "Blocks read by the ranker",
            "Share of all blocks. The smaller, the longer the documents, and the more rests on the selection.",
            Kind.LINES,
            Unit.SHARE,
            [Query(share(rate("blocks", step="=scored"), rate("blocks", step="=considered")), "scored")],
        ),
        Panel(
            "Tokens of a document",
            "Tokens fed for a mean document. Deadlines, and `max_tokens_per_doc`, lower it.",
            Kind.LINES,
            Unit.NUMBER,
            [Query(f"{rate('tokens')} / ({rate('documents')} > 0)", "tokens")],
        ),
    ],
)
UPSTREAM = Row(
    "Upstream",
    [
        Panel(
            "Requests to the upstream",
            "By outcome. late: the deadline passed. nonsense: the answer was no answer. spared: not sent, since the upstream "
            "was away. All but ok and retried cost their documents the upstream's scores.",
            Kind.STACKED,
            Unit.REQUESTS,
            [Query(rate("upstream_requests", ["outcome"]), "{{outcome}}")],
            width=12,
            needs="upstream",
        ),
        Panel(
            "Time of the upstream",
            "Until it has answered, retries included.",
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
            "Share of the last second in which the GPU ran anything, as the driver reports. Low while the model thread is busy: "
            "batches are "
            "too small to fill it.",
            Kind.LINES,
            Unit.SHARE,
            [Query(over("max", shown("gpu_utilization"), ["pod", "gpu"]), "{{pod}} GPU {{gpu}}")],
            needs="GPU",
        ),
        Panel(
            "GPU memory",
            "In use, by whatever process, of what the GPU has.",
            Kind.LINES,
            Unit.BYTES,
            [
                Query(over("max", shown("gpu_memory"), ["pod", "gpu"]), "{{pod}} GPU {{gpu}}"),
                Query(over("max", shown("gpu_memory_total"), ["pod", "gpu"]), "{{pod}} GPU {{gpu}}, all of it"),
            ],
            needs="GPU",
        ),
    ],
)
MODEL_BOARD = Board(
    "keyblock-model",
    "KeyBlock / Model and batches",
    "What is served and how the model is fed: batches, padding, blocks, and the device it runs on.",
    [SERVED, MODELS, BATCHES, SELECTION, UPSTREAM, DEVICE],
)
BOARDS = (OVERVIEW, MODEL_BOARD)
