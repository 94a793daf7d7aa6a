from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.model.cluster import Cluster, NodeGroup, build_cluster
from fairlead.model.errors import InputError
from fairlead.traces.clusters import format_cluster, parse_cluster, read_cluster, write_cluster

from .conftest import Write


@pytest.mark.parametrize(("text", "near"), [("V100", 'did you mean "v100:8"?'), ("v100=8,p100=8", "v100:36,p100:36x8")])
def test_what_is_neither_a_file_nor_gpus_by_type_is_told_both_forms(text: str, near: str) -> None:
    with pytest.raises(InputError, match="wanted a cluster file, or GPUs by type as in v100:8") as caught:
        read_cluster(text)
    assert near in str(caught.value)


def test_a_cluster_file_lists_groups_of_nodes(write: Write) -> None:
    text = "fairlead: cluster/1\nnodes:\n  - {count: 2, gpu: v100, gpus: 4}\n  - {gpu: A100, gpus: 8, memory_gib: 80, name: dgx}\n"
    cluster = read_cluster(write(text))
    assert cluster.types == ("v100", "a100")
    assert cluster.capacity.tolist() == [8, 8]
    assert cluster.memory_gib.tolist() == [16.0, 80.0]
    assert cluster.nodes == ("v100-1", "v100-2", "dgx-1")


def test_the_short_form_is_read_where_no_such_file_exists() -> None:
    assert read_cluster("v100:36,p100:36x8").capacity.tolist() == [36, 36]


def test_a_gpu_whose_name_is_a_number_needs_no_quotes() -> None:
    assert parse_cluster("nodes: [{gpu: 3090, gpus: 2}]", "c.yaml").types == ("3090",)


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ("nodes:\n- {gpu: v100, gpus: 4}\n- {gpu: v100,\n   gpus: .nan}\n", 4, 'gpus is ".nan"; wanted a whole number'),
        ("nodes:\n- {gpu: v100, gpus: 0}\n", 2, "gpus is 0; wanted a whole number from 1"),
        ("nodes:\n- {gpu: v100, gpus: -4}\n", 2, "gpus is -4"),
        ("nodes:\n- {gpu: v100, gpus: 4, count: 99999999999}\n", 2, "count is 99999999999"),
        ("nodes:\n- {gpu: v100, gpus: '4'}\n", 2, 'gpus is "4"; wanted a whole number'),
        ("nodes:\n- gpu: v100\n  gpus: 4\n  memory_gib: .inf\n", 4, 'memory_gib is ".inf"; wanted a number'),
        ("nodes:\n- gpu: v100\n  gpus: 4\n  memory_gib: 1e400\n", 4, "wanted a finite number"),
        ("nodes:\n- gpu: v100\n  gpus: 4\n  memory_gib: -1\n", 4, "memory_gib is -1.0"),
        ("nodes:\n- {gpu: v100, gpu_count: 4}\n", 2, 'unknown key "gpu_count"; did you mean "count"?'),
        ("nodes:\n- {gpu: v100, colour: 4}\n", 2, 'unknown key "colour"; known: count, gpu, gpus'),
        ("nodes:\n- gpu: v100\n  gpus: 4\n  gpus: 8\n", 4, 'key "gpus" appears twice'),
        ("nodes:\n- {gpu: v100}\n", 2, "item 1 of nodes has no gpus"),
        ("nodes:\n- gpus: 4\n  gpu: quantum\n", 3, 'the memory of GPU type "quantum" is unknown'),
        ("nodes:\n- 4\n", 2, 'item 1 of nodes is "4"; wanted keys'),
        ("nodes: 4\n", 1, 'nodes is "4"; wanted a list'),
        ("nodes: []\n", 1, "the cluster has no nodes"),
        ("fairlead: trace/1\nnodes: []\n", 1, 'this is a "trace/1" file; wanted cluster/1'),
        ("nodes:\n- {gpu: v100, gpus: 4, name: a}\n- {gpu: v100, gpus: 4, name: [b]}\n", 3, "name is a list"),
        ("nodes:\n- {gpu: [v100\n", 3, "is not YAML"),
        ("- nodes\n", 1, "a cluster file is a list"),
    ],
)
def test_a_bad_cluster_file_is_refused_with_file_and_line(text: str, line: int, says: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_cluster(text, "c.yaml")
    assert str(caught.value).startswith(f"c.yaml line {line}: ")
    assert says in str(caught.value)


@pytest.mark.parametrize("text", ["", "[" * 10_000, "\x00", "a: b"])
def test_what_is_no_cluster_at_all_is_refused_without_a_traceback(text: str) -> None:
    with pytest.raises(InputError, match=r"c\.yaml"):
        parse_cluster(text, "c.yaml")


def test_a_missing_file_is_an_input_error_that_names_it() -> None:
    with pytest.raises(InputError, match=r"nowhere/c\.yaml: no such file") as caught:
        read_cluster("nowhere/c.yaml")
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("text", ["v100:0", "v100:-4", "v100:4x0", "v100:x", "v100:nan", "quantum:4", "v100:4,"])
def test_a_bad_short_form_is_refused_with_the_text_that_was_given(text: str) -> None:
    with pytest.raises(InputError) as caught:
        read_cluster(text)
    assert text in str(caught.value)


def test_a_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        read_cluster(tmp_path)


def test_a_file_that_is_not_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "c").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="not UTF-8"):
        read_cluster(tmp_path / "c")


GROUPS = st.builds(
    NodeGroup,
    count=st.integers(1, 4),
    gpu=st.sampled_from(["v100", "a100", "3090", "t4"]),
    gpus=st.integers(1, 8),
    memory_gib=st.sampled_from([None, 16.0, 80.0, 10.5]),
    name=st.none(),
)


@given(st.lists(GROUPS, min_size=1, max_size=6))
def test_a_written_cluster_reads_back_as_the_same(groups: list[NodeGroup]) -> None:
    cluster = build_cluster(groups)
    assert same(parse_cluster(format_cluster(cluster), "c.yaml"), cluster)


def test_named_groups_survive_writing(tmp_path: Path) -> None:
    cluster = build_cluster([NodeGroup(2, "v100", 4, name='rack "1"'), NodeGroup(1, "v100", 4), NodeGroup(1, "t4", 4)])
    write_cluster(cluster, tmp_path / "c.yaml")
    assert same(read_cluster(tmp_path / "c.yaml"), cluster)


def same(one: Cluster, other: Cluster) -> bool:
    return (one.types, one.gpu, one.nodes) == (other.types, other.gpu, other.nodes) and all(
        getattr(one, name).tolist() == getattr(other, name).tolist()
        for name in ("memory_gib", "node_type", "node_gpus")
    )
