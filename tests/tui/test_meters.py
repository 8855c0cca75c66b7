"""The GPU's meters: read through a fake NVML, matched by UUID, absent without a word."""

import asyncio
import sys
from types import SimpleNamespace

import msgspec
import pytest

from decodescope.analyzer.machine import meters as reading
from decodescope.analyzer.machine.meters import has_gpu, open_meters
from decodescope.analyzer.protocol.messages import Log, Meters, Stats, WorkerMessage, encode_frame
from decodescope.analyzer.recordings.recording import read_recording
from decodescope.analyzer.recordings.writer import RecordingWriter
from decodescope.analyzer.text.plain import to_ascii
from decodescope.tui.link import worker
from decodescope.tui.link.base import Jumped
from decodescope.tui.link.replay import ReplayLink
from tests.helpers.app.worker import is_a, of, scripted, sending, until
from tests.helpers.scripted import hello, settle, stats, text_of

UUID = "GPU-00000000-aaaa-bbbb-cccc-000000000001"


class NoSuchThing(Exception):
    """As `pynvml.NVMLError`."""


class FakeNvml:
    """Two GPUs, of which the second one works; what `lacks` names fails."""

    NVML_CLOCK_SM = 1
    NVML_TEMPERATURE_GPU = 0

    def __init__(self, *lacks: str, mask: int = 0) -> None:
        self.lacks = set(lacks)
        self.mask = mask
        self.open = 0
        self.reads = 0

    def __getattribute__(self, name: str):
        if name.startswith("nvml") and name in object.__getattribute__(self, "lacks"):
            raise NoSuchThing(name)
        return object.__getattribute__(self, name)

    def nvmlInit(self) -> None:
        self.open += 1

    def nvmlShutdown(self) -> None:
        self.open -= 1

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:
        if uuid != UUID:
            raise NoSuchThing(uuid)
        return "second"

    def nvmlDeviceGetPowerUsage(self, gpu: str) -> int:
        self.reads += 1
        return {"first": 70_000, "second": 312_400}[gpu]

    def nvmlDeviceGetEnforcedPowerLimit(self, gpu: str) -> int:
        return 700_000

    def nvmlDeviceGetClockInfo(self, gpu: str, clock: int) -> int:
        return 1_980 if clock == self.NVML_CLOCK_SM else 2_619

    def nvmlDeviceGetTemperature(self, gpu: str, sensor: int) -> int:
        return 54

    def nvmlDeviceGetMemoryInfo(self, gpu: str) -> SimpleNamespace:
        return SimpleNamespace(used=3 << 30, free=138 << 30, total=141 << 30)

    def nvmlDeviceGetUtilizationRates(self, gpu: str) -> SimpleNamespace:
        return SimpleNamespace(gpu=97, memory=40)

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, gpu: str) -> int:
        return self.mask


READ = Meters(312.4, 700.0, 1_980, 54, 3 << 30, 141 << 30, 97)


def test_the_gpu_of_the_worker_is_read():
    nvml = FakeNvml()
    meters = open_meters(UUID, nvml)
    assert meters is not None
    assert meters.read() == READ
    meters.close()
    assert nvml.open == 0


@pytest.mark.parametrize("lacks", ["nvmlInit", "nvmlDeviceGetHandleByUUID"])
def test_without_a_driver_or_the_gpu_there_are_no_meters(lacks):
    nvml = FakeNvml(lacks)
    assert open_meters(UUID, nvml) is None
    assert nvml.open == 0


def test_another_gpu_is_not_read_instead():
    nvml = FakeNvml()
    assert open_meters("GPU-of-another-machine", nvml) is None
    assert nvml.open == 0


def test_without_the_package_there_are_no_meters(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert open_meters(UUID) is None
    assert not has_gpu()


@pytest.mark.parametrize(
    ("lacks", "count", "found"),
    [((), 2, True), ((), 0, False), (["nvmlInit"], 2, False), (["nvmlDeviceGetCount"], 2, False)],
)
def test_a_machine_has_a_gpu_if_its_driver_sees_one(lacks, count, found):
    nvml = FakeNvml(*lacks)
    nvml.nvmlDeviceGetCount = lambda: count
    assert has_gpu(nvml) is found
    assert nvml.open == 0


CALLS = {
    "nvmlDeviceGetPowerUsage": {"power_w": None},
    "nvmlDeviceGetEnforcedPowerLimit": {"power_limit_w": None},
    "nvmlDeviceGetClockInfo": {"sm_clock_mhz": None},
    "nvmlDeviceGetTemperature": {"temperature_c": None},
    "nvmlDeviceGetMemoryInfo": {"memory_used_bytes": None, "memory_total_bytes": None},
    "nvmlDeviceGetUtilizationRates": {"utilization_percent": None},
    "nvmlDeviceGetCurrentClocksThrottleReasons": {},
}


@pytest.mark.parametrize("lacks", CALLS)
def test_what_a_gpu_cannot_report_is_none_and_the_rest_is_read(lacks):
    meters = open_meters(UUID, FakeNvml(lacks))
    assert meters is not None
    assert meters.read() == msgspec.structs.replace(READ, **CALLS[lacks])


def test_a_gpu_that_reports_nothing_has_no_reading():
    meters = open_meters(UUID, FakeNvml(*CALLS))
    assert meters is not None
    assert meters.read() is None


@pytest.mark.parametrize(
    ("mask", "reasons"),
    [
        (0x1, ()),
        (0x2 | 0x100, ()),
        (0x4, ("power cap",)),
        (0x8 | 0x40, ("hot (hardware)",)),
        (0x8, ("hardware slowdown",)),
        (0x4 | 0x20, ("hot", "power cap")),
        (0x8 | 0x80, ("power brake",)),
    ],
)
def test_throttling_is_named_and_idling_is_none(mask, reasons):
    meters = open_meters(UUID, FakeNvml(mask=mask))
    assert meters is not None
    read = meters.read()
    assert read is not None
    assert read.throttle == reasons


@pytest.fixture
def nvml(monkeypatch) -> FakeNvml:
    fake = FakeNvml()
    monkeypatch.setattr(worker, "METERS_INTERVAL_S", 0.01)
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    return fake


def greeting() -> bytes:
    return encode_frame(msgspec.structs.replace(hello(), gpu_uuid=UUID))


async def test_meters_arrive_while_the_worker_lives(tmp_path, nvml):
    link = scripted(tmp_path, sending(greeting()) + "control.recv(100)\n")
    await link.start()
    events = await until(link, is_a(Meters))
    assert events[-1] == READ
    await until(link, is_a(Meters))
    await link.restart()
    await until(link, is_a(Meters))
    await link.close()
    async with asyncio.timeout(20):
        while nvml.open:
            await asyncio.sleep(0.01)


async def test_only_the_latest_reading_waits_beside_the_latest_statistics(tmp_path, nvml):
    body = sending(greeting(), encode_frame(stats(1)), encode_frame(Log("info", "x")))
    link = scripted(tmp_path, body + "control.recv(100)\n")
    await link.start()
    await until(link, is_a(type(hello())))
    async with asyncio.timeout(20):
        while nvml.reads < 5:
            await asyncio.sleep(0.01)
    events = await until(link, is_a(Meters))
    assert len(of(events, Meters)) == 1
    assert len(of(events, Stats)) == 1
    await link.close()


async def test_a_worker_on_the_cpu_has_no_meters(tmp_path, nvml):
    link = scripted(tmp_path, sending(encode_frame(hello("cpu"))) + "control.recv(100)\n")
    await link.start()
    await until(link, is_a(type(hello())))
    await asyncio.sleep(0.2)
    assert nvml.reads == 0
    await link.close()


async def test_recordings_keep_meters_and_replays_show_them(tmp_path):
    path = tmp_path / "run.dsrec"
    writer = RecordingWriter(path)
    hot = msgspec.structs.replace(READ, throttle=("hot",))
    said: list[WorkerMessage] = [hello(), stats(1), READ, hot]
    for message in said:
        writer.write(message)
    writer.close()
    assert [frame.message for frame in read_recording(path).frames()] == said
    link = ReplayLink(path)
    await link.start()
    jumped = (await until(link, is_a(Jumped)))[-1]
    await link.close()
    assert [message for _, message in jumped.past] == said


async def test_the_strip_shows_meters_and_names_throttling_also_without_unicode(session):
    async with session.app.run_test(size=(200, 30)) as pilot:
        await session.run(pilot, READ)
        calm = text_of(session.app)
        session.link.say(msgspec.structs.replace(READ, throttle=("hot",), sm_clock_mhz=None))
        await settle(pilot)
        hot = text_of(session.app)
    for words in ("312 W", "1.98 GHz", "54 \u00b0C", "97 %"):
        assert words in calm
    assert "throttled" not in calm
    assert "throttled: hot" in hot
    assert "GHz" not in hot
    assert to_ascii("54 \u00b0C") == "54 'C"


def test_no_reason_has_two_names():
    assert len(set(reading._REASONS.values())) == len(reading._REASONS)
