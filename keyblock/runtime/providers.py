"""What computes: the choice of an ONNX Runtime execution provider. What was asked for and is not there is an error."""

import ctypes
import json
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeVar

import onnxruntime

from keyblock.runtime.cpus import bf16_feature, default_threads


class ProviderError(RuntimeError):
    """The provider asked for is not there, or fell back; one line that says why and what to do."""


class Provider(StrEnum):
    """Who computes; `auto` takes the first of cuda, openvino and cpu that is there."""

    CUDA = "cuda"
    TENSORRT = "tensorrt"
    OPENVINO = "openvino"
    CPU = "cpu"
    AUTO = "auto"


class Precision(StrEnum):
    """Arithmetic of OpenVINO's matrix products; `auto` is bf16 where the CPU has it in hardware, else f32."""

    BF16 = "bf16"
    F32 = "f32"
    AUTO = "auto"


M = TypeVar("M", bound=StrEnum)
ORT_NAMES = {
    Provider.CUDA: "CUDAExecutionProvider",
    Provider.TENSORRT: "TensorrtExecutionProvider",
    Provider.OPENVINO: "OpenVINOExecutionProvider",
    Provider.CPU: "CPUExecutionProvider",
}
_INSTALL = {
    Provider.CUDA: "install keyblock[gpu] in an environment without the cpu extra",
    Provider.TENSORRT: "install keyblock[gpu] and TensorRT in an environment without the cpu extra",
    Provider.OPENVINO: "install keyblock[cpu] on x86-64 Linux in an environment without the gpu extra",
}


@dataclass(frozen=True)
class Choice:
    """A provider that is there.

    Attributes:
        provider: never `auto`.
        ort_providers: names and options for ``onnxruntime.InferenceSession``, the wanted one first.
        why: one sentence for the log and for /info.
        precision: of the matrix products.
    """

    provider: Provider
    ort_providers: list[tuple[str, dict[str, Any]]]
    why: str
    precision: Precision = Precision.F32


def resolve(asked: Provider | str, *, threads: int | None = None, precision: Precision | str = Precision.AUTO) -> Choice:
    """Choose the provider.

    Args:
        asked: what the configuration names.
        threads: of the OpenVINO pool; the container's CPU quota by default.
        precision: of OpenVINO's arithmetic; the others compute in f32 (CUDA with TF32 products, ONNX Runtime's default).

    Raises:
        ProviderError: it is not there, or cannot compute in that precision.
    """
    asked, precision = _member(Provider, asked), _member(Precision, precision)
    if asked is not Provider.AUTO:
        if missing := _missing(asked):
            raise ProviderError(f"provider {asked} was asked for, but {missing}; {_INSTALL[asked]}, or ask for cpu or auto")
        return _choice(asked, "asked for", threads, precision)
    absent: list[str] = []
    for provider in (Provider.CUDA, Provider.OPENVINO):
        missing = _missing(provider)
        if not missing:
            return _choice(provider, "; ".join(["auto", *absent, f"{provider} is there"]), threads, precision)
        absent.append(f"no {provider}: {missing}")
    return _choice(Provider.CPU, "; ".join(["auto", *absent]), threads, precision)


def _member(kind: type[M], value: str) -> M:
    try:
        return kind(value)
    except ValueError:
        raise ProviderError(f"unknown {kind.__name__.lower()} {value!r}; known: {', '.join(kind)}") from None


def _missing(provider: Provider) -> str:
    """Why the provider is not there; empty when it is."""
    available = onnxruntime.get_available_providers()
    if ORT_NAMES[provider] not in available:
        return f"this build of ONNX Runtime ({onnxruntime.__version__}) has only {', '.join(available)}"
    if provider in (Provider.CUDA, Provider.TENSORRT) and not cuda_devices():
        return "the machine shows no CUDA device (driver missing, or no GPU given to the container)"
    return ""


def _choice(provider: Provider, why: str, threads: int | None, precision: Precision) -> Choice:
    if provider is not Provider.OPENVINO and precision is Precision.BF16:
        raise ProviderError(
            f"precision bf16 was asked for, but {provider} computes in f32 here; ask for openvino, or for precision auto"
        )
    if provider is Provider.OPENVINO:
        precision, reason = openvino_precision(precision, bf16_feature())
        options = _openvino_options(threads or default_threads(), precision)
        return Choice(provider, [(ORT_NAMES[provider], options)], f"{why}; {reason}", precision)
    names = [ORT_NAMES[provider]] if provider is Provider.CPU else [ORT_NAMES[provider], ORT_NAMES[Provider.CPU]]
    return Choice(provider, [(name, _OPTIONS.get(name, {})) for name in names], why)


# the arena asks for what a shape needs: shapes are a small closed set, so doubling would only waste GPU memory
_OPTIONS: dict[str, dict[str, Any]] = {ORT_NAMES[Provider.CUDA]: {"arena_extend_strategy": "kSameAsRequested"}}


def openvino_precision(asked: Precision, feature: str | None) -> tuple[Precision, str]:
    """The precision OpenVINO computes in on a CPU with this bf16 feature, and why. Raises ProviderError for bf16 without one."""
    if asked is Precision.BF16 and not feature:
        raise ProviderError("precision bf16 was asked for, but this CPU has neither amx_bf16 nor avx512_bf16; ask for auto or f32")
    if asked is not Precision.AUTO:
        return asked, f"{asked} was asked for"
    return (Precision.BF16, f"bf16, since the CPU has {feature}") if feature else (Precision.F32, "f32, since the CPU has no bf16")


def _openvino_options(threads: int, precision: Precision) -> dict[str, Any]:
    plugin = {
        "INFERENCE_PRECISION_HINT": precision.value,
        "INFERENCE_NUM_THREADS": str(threads),
        "PERFORMANCE_HINT": "LATENCY",  # one stream: a single thread feeds a session
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
