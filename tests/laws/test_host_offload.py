"""What training leaves to the host."""

from tonnage.laws import host_offload, optimizer


def test_an_optimizer_of_zero_on_the_host_is_deepspeeds_own_eighteen_bytes_per_parameter():
    states = optimizer.elementwise_states(shapes=((1000, 1, 1),), states=2, state_bytes=4)

    assert 18_000 == host_offload.zero_gradients(trainable=1000) + optimizer.master_copy(parameters=1000) + states


def test_torchaos_copies_are_as_wide_as_the_parameters():
    assert 4_000 == host_offload.copied_gradients(trainable=1000, element_bytes=2)


def test_parameters_on_nvme_keep_five_buffers_and_what_max_in_cpu_lets_stay():
    assert 2 * (500_000_000 + 7_000) == host_offload.parameter_swap(elements=7_000, element_bytes=2)
    assert 3_000_000_000 == host_offload.parameter_swap(elements=70_000_000_000, element_bytes=2)


def test_states_on_nvme_pass_through_four_buffers_of_a_sub_group():
    assert 16 * 5_000 == host_offload.state_swap(elements=5_000)
    assert 16_000_000_000 == host_offload.state_swap(elements=5_000_000_000)


def test_the_saving_rank_holds_the_whole_state_dict_or_one_file_of_it():
    assert 140 == host_offload.state_dict(whole=140, on_host=True, largest_file=50)
    assert 50 == host_offload.state_dict(whole=140, on_host=False, largest_file=50)
    assert 20 == host_offload.state_dict(whole=20, on_host=False, largest_file=50)
