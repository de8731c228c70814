"""Pages of layers that keep a window and a compressed past, by hand from DeepSeek-V4-Flash."""

from tonnage.laws import compressed_blocks as law


def test_row_pages_are_aligned() -> None:
    assert law.row_page(rows=64) == 37_440  # 64 x 584 = 37,376, up to 65 x 576
    assert law.row_page(rows=2) == 1_728  # 1,168, up to 3 x 576


def test_index_page() -> None:
    assert law.index_page(rows=64, index_head_dim=128) == 8_640  # 64 x 132 = 8,448, up to 15 x 576


def test_state_pages() -> None:
    assert law.state_page(compress_ratio=4, width=512) == 32_832  # 4 tokens x 2 x 2 x 512 x 4 = 32,768
    assert law.state_page(compress_ratio=4, width=128) == 8_640
    assert law.state_page(compress_ratio=128, width=512) == 32_832  # 8 tokens x 2 x 512 x 4


def test_groups_that_pad_least() -> None:
    assert law.layers_per_group(class_layers=[21, 43, 21, 20], at_least=21) == 22
    assert law.layers_per_group(class_layers=[21, 44, 21, 20], at_least=21) == 22
    assert law.layers_per_group(class_layers=[3], at_least=4) == 4


def test_weighted_blocks() -> None:
    assert law.weighted_blocks(class_blocks=[10, 4], class_bytes=[100, 50]) == 12
    assert law.weighted_blocks(class_blocks=[10, 3], class_bytes=[100, 50]) == 12


def test_blocks_of_open_groups_are_short() -> None:
    assert law.state_block(compress_ratio=4) == 4
    assert law.state_block(compress_ratio=128) == 8
