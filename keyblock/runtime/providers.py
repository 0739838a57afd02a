"""The choice of an ONNX Runtime execution provider. It is an error to ask for a provider that is not available."""

import ctypes
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeVar

from keyblock.runtime.cpus import BF16_FLAGS, VNNI_FLAGS, bf16_feature, default_threads, vnni_feature


class ProviderError(RuntimeError):
    """The requested provider is not available, or fell back; the message says in one line why and what to do."""


class Provider(StrEnum):
    """The execution provider; `auto` takes the fastest of WAYS that is available and loads the graph."""

    CUDA = "cuda"
    TENSORRT = "tensorrt"
    OPENVINO = "openvino"
    CPU = "cpu"
    AUTO = "auto"


class Precision(StrEnum):
    """Arithmetic of the matrix products; `auto` is the fastest available."""

    BF16 = "bf16"
    FP16 = "fp16"
    INT8 = "int8"
    INT8_STATIC = "int8-static"
    FP32 = "fp32"
    AUTO = "auto"


M = TypeVar("M", bound=StrEnum)
ORT_NAMES = {
    Provider.CUDA: "CUDAExecutionProvider",
    Provider.TENSORRT: "TensorrtExecutionProvider",
    Provider.OPENVINO: "OpenVINOExecutionProvider",
    Provider.CPU: "CPUExecutionProvider",
}
GPU = (Provider.CUDA, Provider.TENSORRT)
_INSTALL = {
    Provider.CUDA: "install keyblock[gpu] in an environment without the cpu extra",
    Provider.TENSORRT: "install keyblock[gpu] and TensorRT in an environment without the cpu extra",
    Provider.OPENVINO: "install keyblock[cpu] on x86-64 Linux in an environment without the gpu extra",
}


WAYS = (  # fastest first
    (Provider.CUDA, Precision.FP16),
    (Provider.CUDA, Precision.FP32),
    (Provider.TENSORRT, Precision.FP32),
    (Provider.OPENVINO, Precision.INT8_STATIC),
    (Provider.OPENVINO, Precision.BF16),
    (Provider.CPU, Precision.INT8),
    (Provider.OPENVINO, Precision.FP32),
    (Provider.CPU, Precision.FP32),
)
_OF_VARIANTS = (Precision.INT8, Precision.INT8_STATIC, Precision.FP16)


Graph = tuple[Provider, str]
"""A provider and the variant of the graph that it is to load; the variant is empty for the bundle's own graph."""
NONE_FAILED: Mapping[Graph, str] = {}


@dataclass(frozen=True)
class Choice:
    """An available provider.

    Attributes:
        provider: never `auto`.
        ort_providers: names and options for ``onnxruntime.InferenceSession``, the chosen provider first.
        why: one sentence for the log and for /info.
        precision: precision of the matrix products; never `auto`. A bundle has separate graphs for int8 and fp16.
        fell_back: whether this build could use a GPU, but `auto` found none that loads the graph.
        variant: the variant of the graph that it loads; empty for the bundle's own graph.
    """

    provider: Provider
    ort_providers: list[tuple[str, dict[str, Any]]]
    why: str
    precision: Precision = Precision.FP32
    fell_back: bool = False
    variant: str = ""


def resolve(
    requested: Provider | str,
    *,
    threads: int | None = None,
    precision: Precision | str = Precision.AUTO,
    variants: Collection[str] = (),
    failed: Mapping[Graph, str] = NONE_FAILED,
) -> Choice:
    """Choose the first of WAYS that fits the request and is available. `auto` never chooses TensorRT: it stalls on each new shape.

    Args:
        requested: the provider that the configuration names.
        threads: size of the OpenVINO pool; the container's CPU quota by default.
        precision: the precision that the configuration names; CUDA's fp32 has TF32 products, ONNX Runtime's default.
        variants: precisions for which the bundle has separate graphs: int8, int8-static, fp16.
        failed: graphs that providers cannot load, and why.

    Raises:
        ProviderError: the provider is not available, loads no graph, or cannot compute in that precision.
    """
    requested, precision = _member(Provider, requested), _member(Precision, precision)
    if requested is not Provider.AUTO and (missing := _missing(requested)):
        raise ProviderError(f"provider {requested} was asked for, but {missing}; {_INSTALL[requested]}, or ask for cpu or auto")
    passed: list[str] = []
    for provider, arithmetic in _candidates(requested, precision):
        is_auto = precision is Precision.AUTO
        if arithmetic is Precision.INT8_STATIC and is_auto and arithmetic not in variants:
            continue  # few bundles have int8-static graphs, so the reason does not mention them for the others
        variant = arithmetic.value if arithmetic in variants else ""
        if missing := _missing(provider):
            passed.append(f"no {provider}: {missing}")
        elif reason := failed.get((provider, variant)):
            passed.append(f"no {provider}: {reason}")
        elif reason := _lacking(arithmetic, variants) or (_no_faster(arithmetic) if is_auto else None):
            passed.append(f"no {arithmetic} on {provider}: {reason}")
        else:
            head = "auto" if requested is Provider.AUTO else "asked for"
            chosen = f"{provider} in {arithmetic}{_reason(arithmetic)}"
            fell_back = requested is Provider.AUTO and provider not in GPU and ORT_NAMES[Provider.CUDA] in _available()
            why = _reasons([head, *passed, chosen])
            return Choice(provider, _options(provider, arithmetic, threads), why, arithmetic, fell_back, variant)
    raise ProviderError(f"precision {precision} was asked for, but {_reasons(passed)}; ask for precision auto")


def _candidates(requested: Provider, precision: Precision) -> list[tuple[Provider, Precision]]:
    """The members of WAYS that fit the request. Raises ProviderError if there are none."""
    of_provider = [way for way in WAYS if way[0] is requested or (requested is Provider.AUTO and way[0] is not Provider.TENSORRT)]
    ways = [way for way in of_provider if precision in (way[1], Precision.AUTO)]
    if not ways:
        known = " or ".join(arithmetic for _, arithmetic in of_provider)
        raise ProviderError(
            f"precision {precision} was asked for, but {requested} computes in {known}; ask for one of them, or for provider auto"
        )
    return ways


def _lacking(arithmetic: Precision, variants: Collection[str]) -> str:
    """Why an available provider cannot compute in this arithmetic; empty if it can."""
    if arithmetic in _OF_VARIANTS and arithmetic not in variants:
        return f"the bundle has no {arithmetic} graphs (keyblock-export --variant {arithmetic} writes them)"
    if arithmetic is Precision.BF16 and not bf16_feature():
        return f"this CPU has neither {' nor '.join(BF16_FLAGS)}"
    if arithmetic is Precision.INT8_STATIC and not vnni_feature():
        return f"this CPU has neither {' nor '.join(VNNI_FLAGS)}"
    return ""


def _no_faster(arithmetic: Precision) -> str:
    """Why the arithmetic after this one in WAYS is faster; empty if it is not."""
    feature = bf16_feature()
    return f"{feature} multiplies bf16 as fast" if arithmetic is Precision.INT8_STATIC and feature == "amx_bf16" else ""


def _reason(arithmetic: Precision) -> str:
    feature = {Precision.BF16: bf16_feature, Precision.INT8_STATIC: vnni_feature}.get(arithmetic)
    return f", since the CPU has {feature()}" if feature else ""


def _reasons(parts: list[str]) -> str:
    return "; ".join(dict.fromkeys(parts))


def _member(kind: type[M], value: str) -> M:
    try:
        return kind(value)
    except ValueError:
        raise ProviderError(f"unknown {kind.__name__.lower()} {value!r}; known: {', '.join(kind)}") from None


def _available() -> list[str]:
    import onnxruntime  # late: naming a provider needs no ONNX Runtime

    names: list[str] = onnxruntime.get_available_providers()
    return names


def _missing(provider: Provider) -> str:
    """Why the provider is not available; empty if it is."""
    available = _available()
    if ORT_NAMES[provider] not in available:
        import onnxruntime

        return f"this build of ONNX Runtime ({onnxruntime.__version__}) has only {', '.join(available)}"
    if provider in GPU and not cuda_devices():
        return "the machine shows no CUDA device (driver missing, or no GPU given to the container)"
    return ""


def _options(provider: Provider, arithmetic: Precision, threads: int | None) -> list[tuple[str, dict[str, Any]]]:
    """Provider names and options in ONNX Runtime's form."""
    if provider is Provider.OPENVINO:
        return [(ORT_NAMES[provider], _openvino_options(threads or default_threads(), arithmetic))]
    names = [ORT_NAMES[provider]] if provider is Provider.CPU else [ORT_NAMES[provider], ORT_NAMES[Provider.CPU]]
    return [(name, _OPTIONS.get(name, {})) for name in names]


# the arena grows by what a shape needs: shapes are a small closed set, so doubling would only waste GPU memory
_OPTIONS: dict[str, dict[str, Any]] = {ORT_NAMES[Provider.CUDA]: {"arena_extend_strategy": "kSameAsRequested"}}


def _openvino_options(threads: int, precision: Precision) -> dict[str, Any]:
    beside_int8 = precision is Precision.INT8_STATIC and bf16_feature()  # bf16 for products that are not in 8 bits
    plugin = {
        "INFERENCE_PRECISION_HINT": "bf16" if precision is Precision.BF16 or beside_int8 else "f32",
        "INFERENCE_NUM_THREADS": str(threads),
        "PERFORMANCE_HINT": "LATENCY",  # one stream: a single thread feeds a session
        "ENABLE_CPU_PINNING": "NO",  # with pinning, two processes would bind their first threads to the same core
    }
    return {"device_type": "CPU", "load_config": json.dumps({"CPU": plugin})}


def cuda_devices() -> int:
    """How many CUDA devices the driver shows; 0 without a driver."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return 0
    count = ctypes.c_int(0)
    if driver.cuInit(0) != 0 or driver.cuDeviceGetCount(ctypes.byref(count)) != 0:
        return 0
    return count.value
