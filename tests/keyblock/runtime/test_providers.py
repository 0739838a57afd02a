import json

import onnxruntime
import pytest

from keyblock.runtime.cpus import bf16_feature
from keyblock.runtime.providers import ORT_NAMES, Precision, Provider, ProviderError, cuda_devices, openvino_precision, resolve

AVAILABLE = onnxruntime.get_available_providers()
HAS_OPENVINO = "OpenVINOExecutionProvider" in AVAILABLE
HAS_CUDA = "CUDAExecutionProvider" in AVAILABLE and cuda_devices() > 0
needs_openvino = pytest.mark.skipif(not HAS_OPENVINO, reason="this ONNX Runtime has no OpenVINO (onnxruntime-openvino)")


def test_cpu_is_always_there() -> None:
    choice = resolve("cpu")
    assert choice.provider is Provider.CPU
    assert choice.ort_providers == [("CPUExecutionProvider", {})]
    assert choice.precision is Precision.F32


@pytest.mark.parametrize("asked", [Provider.CUDA, Provider.TENSORRT, Provider.OPENVINO])
def test_what_is_not_there_is_an_error(asked: Provider) -> None:
    if ORT_NAMES[asked] in AVAILABLE and (asked is Provider.OPENVINO or cuda_devices()):
        assert resolve(asked).provider is asked
        return
    with pytest.raises(ProviderError, match=rf"provider {asked} was asked for, but .*; install .*, or ask for cpu or auto"):
        resolve(asked)


def test_auto_says_why() -> None:
    choice = resolve(Provider.AUTO)
    expected = Provider.CUDA if HAS_CUDA else Provider.OPENVINO if HAS_OPENVINO else Provider.CPU
    assert choice.provider is expected
    assert choice.why.startswith("auto; ")
    assert HAS_CUDA or "no cuda: " in choice.why


@needs_openvino
def test_openvino_computes_in_the_precision_of_the_cpu() -> None:
    choice = resolve("openvino", threads=3)
    wanted = "bf16" if bf16_feature() else "f32"
    (name, options), *rest = choice.ort_providers
    assert (name, rest) == ("OpenVINOExecutionProvider", [])
    assert options["device_type"] == "CPU"
    plugin = json.loads(options["load_config"])["CPU"]
    assert plugin == {"INFERENCE_PRECISION_HINT": wanted, "INFERENCE_NUM_THREADS": "3", "PERFORMANCE_HINT": "LATENCY"}
    assert choice.precision == wanted
    assert wanted in choice.why


@needs_openvino
def test_openvino_in_full_precision() -> None:
    choice = resolve("openvino", precision="f32")
    assert choice.precision is Precision.F32
    assert '"f32"' in choice.ort_providers[0][1]["load_config"]


@pytest.mark.parametrize(
    ("asked", "feature", "precision", "why"),
    [
        (Precision.AUTO, "amx_bf16", Precision.BF16, "bf16, since the CPU has amx_bf16"),
        (Precision.AUTO, None, Precision.F32, "f32, since the CPU has no bf16"),
        (Precision.F32, "amx_bf16", Precision.F32, "f32 was asked for"),
        (Precision.BF16, "avx512_bf16", Precision.BF16, "bf16 was asked for"),
    ],
)
def test_the_cpu_decides_the_precision(asked: Precision, feature: str | None, precision: Precision, why: str) -> None:
    assert openvino_precision(asked, feature) == (precision, why)


def test_a_precision_that_the_cpu_lacks_is_an_error() -> None:
    with pytest.raises(ProviderError, match="neither amx_bf16 nor avx512_bf16"):
        openvino_precision(Precision.BF16, None)


def test_bf16_is_openvinos() -> None:
    with pytest.raises(ProviderError, match="cpu computes in f32 here"):
        resolve("cpu", precision="bf16")


def test_unknown_names_list_the_known() -> None:
    with pytest.raises(ProviderError, match="unknown provider 'rocm'; known: cuda, tensorrt, openvino, cpu, auto"):
        resolve("rocm")
    with pytest.raises(ProviderError, match="unknown precision 'fp8'; known: bf16, f32, auto"):
        resolve("cpu", precision="fp8")
