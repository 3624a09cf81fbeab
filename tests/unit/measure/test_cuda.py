"""CUDA devices: which calls of the driver are made, in which order, and what its errors become."""

from __future__ import annotations

import builtins
import sys
from typing import Any

import numpy as np
import pytest
from cuda.bindings import driver as real
from cuda.bindings.driver import CUresult as Result

from autotune.codegen import backend_for
from autotune.codegen.base import DeviceCode
from autotune.errors import BuildError, DeviceError
from autotune.measure.devices import DEVICES, DeviceAddress
from autotune.measure.devices.cuda import Api, CudaDevice, runs
from autotune.measure.devices.kernel import TOGETHER, DeviceKernel
from autotune.measure.devices.nvml import Nvml
from autotune.measure.storage import place_dense
from autotune.target import load_target
from tests.unit.codegen.nvptx_programs import MATMUL, TWO
from tests.unit.codegen.stream_programs import stream_matmul
from tests.unit.measure.fake_cuda import FakeCuda
from tests.unit.measure.fake_nvml import FakeNvml

SM90 = load_target("sm_90a")


def code(program: Any = TWO) -> DeviceCode:
    return DeviceCode.decode(backend_for(SM90).build(program, SM90, "k").code)


def opened(**failing: Any) -> tuple[FakeCuda, CudaDevice]:
    driver = FakeCuda(**failing)
    return driver, CudaDevice(Api(driver), 0, None)


def launch_all(device: CudaDevice, made: DeviceCode) -> None:
    module = device.load(made)
    memory = device.allocate(4096)
    for launch in made.launches:
        device.launch(
            module, launch, [DeviceAddress(memory=memory, offset_bytes=64) for _ in launch.args]
        )


def test_a_device_says_what_it_is() -> None:
    _, device = opened()
    facts = device.describe()
    assert (facts.name, facts.arch, facts.driver) == ("H0", "sm_90a", "CUDA 12.9")
    assert (facts.multiprocessors, facts.shared_bytes) == (132, 232448)
    assert {"wgmma", "async copy"} <= set(facts.features)


def test_data_comes_back_from_where_it_was_put() -> None:
    driver, device = opened()
    memory = device.allocate(256)
    array = np.arange(8, dtype=np.float32)
    device.upload(DeviceAddress(memory=memory, offset_bytes=32), array)
    device.fill(DeviceAddress(memory=memory), 32, 0xFF)
    back = np.zeros(16, np.float32)
    device.download(DeviceAddress(memory=memory), back)
    np.testing.assert_array_equal(back[8:], array)
    assert np.all(np.isnan(back[:8]))
    # copies take their turn in the stream, and are done when the call returns
    assert driver.order("cuMemcpyHtoDAsync", "cuMemcpyDtoHAsync", "cuStreamSynchronize") == [
        "cuMemcpyHtoDAsync", "cuStreamSynchronize", "cuMemcpyDtoHAsync", "cuStreamSynchronize",
    ]  # fmt: skip


def test_memory_is_given_back_with_its_last_reference() -> None:
    driver, device = opened()
    memory = device.allocate(256)
    assert not driver.named("cuMemFree")
    del memory
    assert len(driver.named("cuMemFree")) == 1


def test_kernels_are_launched_as_the_code_says() -> None:
    driver, device = opened()
    launch_all(device, code())
    assert [args[1] for args in driver.named("cuModuleGetFunction")] == [b"k_0", b"k_1"]
    for args in driver.named("cuLaunchKernel"):
        assert args[1:8] == (5, 1, 1, 8, 1, 1, 0)
        pointers, kinds = args[9]
        assert len(pointers) == len(kinds) == 2
        assert {p % 64 for p in pointers} == {(min(driver.memory) + 64) % 64}
    (image, *_) = driver.named("cuModuleLoadDataEx")[0]
    assert image.endswith(b"\0")
    assert b".target sm_90a" in image


def test_shared_memory_is_allowed_before_it_is_asked_for() -> None:
    driver, device = opened()
    launch_all(device, code(MATMUL))
    (((_, key, size)),) = driver.named("cuFuncSetAttribute")
    assert key.name == "CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES"
    assert size == driver.named("cuLaunchKernel")[0][7] == 2048


def test_tensors_that_are_fetched_are_described_once_per_address() -> None:
    driver, device = opened()
    made = code(stream_matmul())
    module, memory = device.load(made), device.allocate(4096)
    places = [DeviceAddress(memory=memory, offset_bytes=64 * i) for i in range(4)]
    for _ in range(2):
        device.launch(module, made.launches[0], places)
    values = real.CUtensorMapDataType, real.CUtensorMapSwizzle
    kind, swizzle = (
        values[0].CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
        values[1].CU_TENSOR_MAP_SWIZZLE_128B,
    )
    first, second = driver.encoded
    assert first[:5] == (int(kind), memory.address + 128, [200, 128], [400], [64, 128])
    assert second[:5] == (int(kind), memory.address + 192, [200, 128], [400], [64, 64])
    assert {e[6][1] for e in driver.encoded} == {int(swizzle)}
    for args in driver.named("cuLaunchKernel"):
        pointers, kinds = args[9]
        assert list(kinds[2:]) == [None, None]
        assert all(p.getPtr() % 64 == 0 for p in pointers[2:])
        assert args[4:8] == (288, 1, 1, 2 * (128 + 64) * 128 + 2 * 16)


def test_a_tensor_at_an_odd_address_is_not_fetched() -> None:
    _, device = opened()
    made = code(stream_matmul())
    module, memory = device.load(made), device.allocate(4096)
    places = [DeviceAddress(memory=memory, offset_bytes=8)] * 4
    with pytest.raises(BuildError, match="cannot fetch boxes"):
        device.launch(module, made.launches[0], places)


def test_times_are_those_of_events() -> None:
    driver, device = opened()
    start = device.mark()
    assert device.elapsed_s(start, device.mark()) == pytest.approx(2.5e-3)
    assert driver.order("cuEventRecord", "cuEventSynchronize", "cuEventElapsedTime") == [
        "cuEventRecord", "cuEventRecord", "cuEventSynchronize", "cuEventElapsedTime",
    ]  # fmt: skip


def test_a_graph_is_captured_once_and_replayed() -> None:
    driver, device = opened()
    made = code()
    module, memory = device.load(made), device.allocate(4096)

    def run() -> None:
        for launch in made.launches:
            device.launch(module, launch, [DeviceAddress(memory=memory) for _ in launch.args])

    replay = device.capture(run)
    for _ in range(3):
        replay()
    names = ("cuStreamBeginCapture", "cuLaunchKernel", "cuStreamEndCapture",
             "cuGraphInstantiate", "cuGraphDestroy", "cuGraphLaunch")  # fmt: skip
    assert driver.order(*names) == [
        names[0], names[1], names[1], names[2], names[3], names[4], *[names[5]] * 3,
    ]  # fmt: skip
    del replay
    assert len(driver.named("cuGraphExecDestroy")) == 1


def test_a_capture_that_fails_ends() -> None:
    driver, device = opened()

    def run() -> None:
        raise BuildError("no")

    with pytest.raises(BuildError):
        device.capture(run)
    assert driver.named("cuStreamEndCapture")


def test_the_cache_is_flushed_by_twice_its_size() -> None:
    driver, device = opened()
    device.flush_cache()
    device.flush_cache()
    assert [args[2] for args in driver.named("cuMemsetD8Async")] == [2 << 20] * 2
    assert len(driver.named("cuMemAlloc")) == 1


def test_ptx_that_the_driver_refuses_is_the_code_s_fault() -> None:
    _, device = opened(cuModuleLoadDataEx=Result.CUDA_ERROR_INVALID_PTX)
    with pytest.raises(BuildError, match="INVALID_PTX"):
        device.load(code())


@pytest.mark.parametrize("status", ["CUDA_ERROR_ILLEGAL_ADDRESS", "CUDA_ERROR_LAUNCH_TIMEOUT"])
def test_a_kernel_that_crashed_is_told_by_the_next_wait(status: str) -> None:
    _, device = opened(cuStreamSynchronize=getattr(Result, status))
    with pytest.raises(DeviceError, match=status.removeprefix("CUDA_ERROR_")):
        device.synchronize()


def test_a_launch_with_too_much_is_the_code_s_fault() -> None:
    _, device = opened(cuLaunchKernel=Result.CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES)
    with pytest.raises(BuildError, match="OUT_OF_RESOURCES"):
        launch_all(device, code())


def test_closing_gives_the_context_back() -> None:
    driver, device = opened()
    device.close()
    assert driver.order("cuStreamDestroy", "cuDevicePrimaryCtxRelease") == [
        "cuStreamDestroy", "cuDevicePrimaryCtxRelease",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("device", "wanted", "good"),
    [("sm_80", "sm_80", True), ("sm_89", "sm_80", True), ("sm_75", "sm_80", False),
     ("sm_90a", "sm_80", True), ("sm_90a", "sm_90a", True), ("sm_100a", "sm_90a", False)],
)  # fmt: skip
def test_which_gpu_runs_which_code(device: str, wanted: str, good: bool) -> None:
    assert runs(device, wanted) == good


def test_a_machine_without_a_driver_says_so_in_one_line() -> None:
    if DEVICES.get("cuda").find():
        assert DEVICES.get("cuda").open(SM90).describe().kind == "cuda"
        return
    with pytest.raises(DeviceError) as raised:
        DEVICES.get("cuda").open(SM90)
    assert "NVIDIA" in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_machine_without_the_package_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    original = builtins.__import__

    def no_cuda(name: str, *args: Any) -> Any:
        if name.startswith("cuda"):
            raise ImportError(name)
        return original(name, *args)

    monkeypatch.delitem(sys.modules, "cuda.bindings.driver", raising=False)
    monkeypatch.setattr(builtins, "__import__", no_cuda)
    assert DEVICES.get("cuda").find() == ()
    with pytest.raises(DeviceError, match=r"autotune-compiler\[cuda\]"):
        DEVICES.get("cuda").open(SM90)


def test_sensors_read_in_units_of_the_name() -> None:
    reading = Nvml(FakeNvml(True), "0:19:0").read()
    assert (reading.sm_hz, reading.memory_hz) == (1.98e9, 3.201e9)
    assert str(reading) == "1980/3201 MHz 41 C 120 W"


def test_clocks_are_locked_where_that_is_allowed_and_unlocked_again() -> None:
    api = FakeNvml(True)
    nvml = Nvml(api, "0:19:0")
    assert nvml.lock_clocks() == ""
    assert api.locked == (1980, 1980)
    nvml.close()
    assert api.locked == (0, 0)
    assert Nvml(FakeNvml(False), "0:19:0").lock_clocks() == "no permission"


def test_a_device_tells_the_conditions_where_it_has_sensors() -> None:
    driver = FakeCuda()
    with_sensors = CudaDevice(Api(driver), 0, Nvml(FakeNvml(False), "0:19:0"))
    assert with_sensors.conditions() == "1980/3201 MHz 41 C 120 W"
    assert CudaDevice(Api(driver), 0, None).conditions() == ""


def test_short_kernels_are_timed_without_waiting_for_the_host() -> None:
    """Many calls are launched as graphs, the odd ones by themselves."""
    driver, device = opened()
    made = code()
    storages = {name: place_dense(np.zeros(40, np.float32)) for name in made.params}
    kernel = DeviceKernel(device, made, storages)
    kernel.run(1)
    assert not driver.named("cuGraphLaunch")
    before = len(driver.named("cuLaunchKernel"))
    kernel.run(2 * TOGETHER + 3)
    kernel.run(TOGETHER)
    assert len(driver.named("cuGraphInstantiate")) == 1
    assert len(driver.named("cuGraphLaunch")) == 3
    assert len(driver.named("cuLaunchKernel")) - before == 2 * (TOGETHER + 3)
