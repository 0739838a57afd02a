import json
from collections.abc import Callable

import onnxruntime
import pytest

from keyblock.runtime import providers
from keyblock.runtime.cpus import bf16_feature
from keyblock.runtime.providers import Precision, Provider, ProviderError, resolve

AVAILABLE = onnxruntime.get_available_providers()
HAS_OPENVINO = "OpenVINOExecutionProvider" in AVAILABLE
needs_openvino = pytest.mark.skipif(not HAS_OPENVINO, reason="this ONNX Runtime has no OpenVINO (onnxruntime-openvino)")


@needs_openvino
def test_openvino_computes_in_the_precision_of_the_cpu() -> None:
    choice = resolve("openvino", threads=3)
    wanted = "bf16" if bf16_feature() else "fp32"
    (name, options), *rest = choice.ort_providers
    assert (name, rest) == ("OpenVINOExecutionProvider", [])
    assert options["device_type"] == "CPU"
    plugin = json.loads(options["load_config"])["CPU"]
    hint = {"bf16": "bf16", "fp32": "f32"}[wanted]
    assert (plugin["INFERENCE_PRECISION_HINT"], plugin["INFERENCE_NUM_THREADS"]) == (hint, "3")
    assert plugin["ENABLE_CPU_PINNING"] == "NO"  # two services of one machine would share a core
    assert choice.precision == wanted
    assert wanted in choice.why


CUDA, OPENVINO, CPU, TENSORRT = Provider.CUDA, Provider.OPENVINO, Provider.CPU, Provider.TENSORRT
BF16, FP16, INT8, STATIC, FP32 = Precision.BF16, Precision.FP16, Precision.INT8, Precision.INT8_STATIC, Precision.FP32
ALL = {CUDA, TENSORRT, OPENVINO, CPU}


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Makes this machine another one."""

    def make(present: set[Provider], bf16: str | None = None, vnni: str | None = None) -> None:
        monkeypatch.setattr(providers, "_missing", lambda provider: "" if provider in present else "none here")
        monkeypatch.setattr(providers, "bf16_feature", lambda: bf16)
        monkeypatch.setattr(providers, "vnni_feature", lambda: vnni)

    return make


@pytest.mark.parametrize(
    ("present", "bf16", "asked", "variants", "chosen"),
    [
        (ALL, "amx_bf16", "auto", ["int8", "fp16"], (CUDA, FP16)),
        (ALL, "amx_bf16", "auto", ["int8"], (CUDA, FP32)),
        ({TENSORRT, OPENVINO, CPU}, "amx_bf16", "auto", ["int8", "fp16"], (OPENVINO, BF16)),
        ({OPENVINO, CPU}, None, "auto", ["int8", "fp16"], (CPU, INT8)),
        ({OPENVINO, CPU}, None, "auto", [], (OPENVINO, FP32)),
        ({CPU}, "amx_bf16", "auto", ["int8"], (CPU, INT8)),
        ({CPU}, "amx_bf16", "auto", [], (CPU, FP32)),
        # int8 if requested, too, on a CPU where auto would take bf16
        ({OPENVINO, CPU}, "avx512_bf16", "auto in int8", ["int8"], (CPU, INT8)),
        ({OPENVINO, CPU}, "avx512_bf16", "auto in bf16", [], (OPENVINO, BF16)),
        ({OPENVINO, CPU}, "avx512_bf16", "auto in fp32", ["int8"], (OPENVINO, FP32)),
        ({OPENVINO, CPU}, "avx512_bf16", "cpu in fp32", ["int8"], (CPU, FP32)),
        ({OPENVINO, CPU}, "avx512_bf16", "cpu in int8", ["int8"], (CPU, INT8)),
        ({OPENVINO, CPU}, "avx512_bf16", "openvino", ["int8"], (OPENVINO, BF16)),
    ],
)
def test_the_fastest_that_is_there_or_the_requested_one_is_taken(
    machine: Callable[..., None],
    present: set[Provider],
    bf16: str | None,
    asked: str,
    variants: list[str],
    chosen: tuple[Provider, Precision],
) -> None:
    machine(present, bf16)
    provider, _, precision = asked.partition(" in ")
    choice = resolve(provider, precision=precision or "auto", variants=variants)
    assert (choice.provider, choice.precision) == chosen
    assert choice.why.startswith("auto; " if provider == "auto" else "asked for; ")
    if asked == "auto":
        assert f"{chosen[0]} in {chosen[1]}" in choice.why
        assert ("no cuda: none here" in choice.why) == (CUDA not in present)


@pytest.mark.parametrize(("bf16", "beside"), [(None, "f32"), ("avx512_bf16", "bf16")])
def test_eight_bits_with_fixed_scales_where_vnni_adds_them(machine: Callable[..., None], bf16: str | None, beside: str) -> None:
    """Faster than bf16; what the graph does not multiply in 8 bits is computed in the best arithmetic that there is."""
    machine({OPENVINO, CPU}, bf16, "avx512_vnni")
    choice = resolve("auto", variants=["int8", "int8-static"])
    assert (choice.provider, choice.precision) == (OPENVINO, STATIC)
    assert choice.why.endswith("openvino in int8-static, since the CPU has avx512_vnni")
    assert json.loads(choice.ort_providers[0][1]["load_config"])["CPU"]["INFERENCE_PRECISION_HINT"] == beside
    machine({OPENVINO, CPU}, bf16)
    choice = resolve("auto", variants=["int8-static"])
    assert choice.precision is (BF16 if bf16 else FP32)
    assert "no int8-static on openvino: this CPU has neither avx512_vnni nor avx_vnni" in choice.why
    machine({CPU}, bf16, "avx512_vnni")
    assert resolve("auto", variants=["int8-static"]).precision is FP32


def test_amx_multiplies_bf16_as_fast_so_int8_is_used_only_on_request(machine: Callable[..., None]) -> None:
    machine({OPENVINO, CPU}, "amx_bf16", "avx512_vnni")
    choice = resolve("auto", variants=["int8-static"])
    assert choice.precision is BF16
    assert choice.why.endswith(
        "no int8-static on openvino: amx_bf16 multiplies bf16 as fast; openvino in bf16, since the CPU has amx_bf16"
    )
    assert "int8-static" not in resolve("auto").why, "the bundle has none"
    assert resolve("openvino", precision="int8-static", variants=["int8-static"]).precision is STATIC


def test_why_names_what_was_passed_over_and_the_cpus_feature(machine: Callable[..., None]) -> None:
    machine({OPENVINO, CPU})
    assert resolve("auto", variants=["int8"]).why == (
        "auto; no cuda: none here; no bf16 on openvino: this CPU has neither amx_bf16 nor avx512_bf16; cpu in int8"
    )
    machine({OPENVINO, CPU}, "amx_bf16")
    assert resolve("openvino").why == "asked for; openvino in bf16, since the CPU has amx_bf16"
    assert resolve("cpu").why == (
        "asked for; no int8 on cpu: the bundle has no int8 graphs (keyblock-export --variant int8 writes them); cpu in fp32"
    )


@pytest.mark.parametrize(
    ("asked", "precision", "problem"),
    [
        (
            "cpu",
            "bf16",
            "precision bf16 was asked for, but cpu computes in int8 or fp32; ask for one of them, or for provider auto",
        ),
        ("openvino", "int8", "but openvino computes in int8-static or bf16 or fp32"),
        ("openvino", "bf16", "but no bf16 on openvino: this CPU has neither amx_bf16 nor avx512_bf16; ask for precision auto"),
        ("cpu", "int8", "but no int8 on cpu: the bundle has no int8 graphs"),
        ("auto", "fp16", "but no cuda: none here; ask for precision auto"),
        ("cuda", "auto", "provider cuda was asked for, but none here; install"),
    ],
)
def test_a_requested_provider_that_is_missing_is_an_error(
    machine: Callable[..., None], asked: str, precision: str, problem: str
) -> None:
    machine({OPENVINO, CPU})
    with pytest.raises(ProviderError) as raised:
        resolve(asked, precision=precision)
    assert problem in str(raised.value)


def test_unknown_names_list_the_known() -> None:
    with pytest.raises(ProviderError, match="unknown provider 'rocm'; known: cuda, tensorrt, openvino, cpu, auto"):
        resolve("rocm")
    with pytest.raises(ProviderError, match="unknown precision 'fp8'; known: bf16, fp16, int8, int8-static, fp32, auto"):
        resolve("cpu", precision="fp8")


def test_a_build_for_gpus_that_finds_none_has_fallen_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: ["CUDAExecutionProvider", "CPUExecutionProvider"])
    monkeypatch.setattr(providers, "cuda_devices", lambda: 0)
    assert resolve("auto").fell_back
    assert not resolve("cpu").fell_back  # it was asked for
    monkeypatch.setattr(providers, "cuda_devices", lambda: 1)
    assert not resolve("auto").fell_back
