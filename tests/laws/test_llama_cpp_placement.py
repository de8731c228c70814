import pytest

from tonnage.laws import llama_cpp_placement as placement


@pytest.mark.parametrize(
    ("layers", "offloaded", "first"), [(32, 33, 0), (32, 99, 0), (32, 1, 32), (32, 10, 23), (32, 0, 33)]
)
def test_the_last_units_go_to_the_gpu(layers, offloaded, first):
    assert first == placement.first_offloaded(num_layers=layers, n_gpu_layers=offloaded)


def test_equal_devices_share_units_evenly():
    devices = [placement.device_of_unit(unit=u, first=0, offloaded=8, shares=(1, 1)) for u in range(8)]

    assert [0] * 4 + [1] * 4 == devices


def test_shares_follow_tensor_split():
    devices = [placement.device_of_unit(unit=u, first=0, offloaded=10, shares=(3, 1)) for u in range(10)]

    assert 8 == devices.count(0)
    assert sorted(devices) == devices


def test_partial_offload_is_split_over_the_offloaded_units_only():
    devices = [placement.device_of_unit(unit=u, first=20, offloaded=13, shares=(1, 1)) for u in range(20, 33)]

    assert {0, 1} == set(devices)
