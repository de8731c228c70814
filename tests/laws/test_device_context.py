import pytest

from tonnage.laws import device_context
from tonnage.units import KiB, MiB


@pytest.mark.parametrize(
    ("multiprocessors", "measured_mib"), [(188, 555), (34, 107), (142, 426), (82, 256), (170, 512)]
)
def test_context_grows_with_multiprocessors_as_measured_on_five_cards(multiprocessors, measured_mib):
    assert device_context.cuda(multiprocessors=multiprocessors) == pytest.approx(measured_mib * MiB, rel=0.05)


def test_no_multiprocessor_no_context():
    assert 0 == device_context.cuda(multiprocessors=0)


def test_libraries_bring_the_context_into_the_measured_range():
    a100, h100 = device_context.cuda(multiprocessors=108), device_context.cuda(multiprocessors=132)

    assert 460 * MiB <= a100 + device_context.torch_libraries() <= 920 * MiB
    assert 512 * MiB <= h100 + device_context.torch_libraries() <= 635 * MiB
    assert 900 * MiB <= a100 + device_context.torch_libraries_most()


def test_rocm_context_lies_between_the_two_measured_processes():
    assert 665 * MiB <= device_context.rocm() <= 730 * MiB


def test_cublas_workspace_is_8519680_bytes_before_hopper_and_32_mib_from_it():
    assert 8519680 == device_context.cublas_workspace(compute_capability_major=8)
    assert 8320 * KiB == device_context.cublas_workspace(compute_capability_major=7)
    assert 32 * MiB == device_context.cublas_workspace(compute_capability_major=9)


def test_metal_keeps_its_context_in_system_memory():
    assert 0 == device_context.metal()
