from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.model.cluster import NodeGroup, build_cluster
from fairlead.model.errors import InputError
from fairlead.model.slurm_text import compress_hosts, expand_hosts
from fairlead.traces.clusters import format_cluster, parse_cluster, read_cluster
from fairlead.traces.machines import conversion_notes

from .conftest import Shared, Write

SINFO = """NODELIST PARTITION GRES STATE
gpu01 short gpu:a100:4(S:0-1) idle
gpu01 long gpu:a100:4(S:0-1) idle
gpu[02-03] long gpu:tesla_v100-sxm2-32gb:8(S:0,1) mix
cpu01 short (null) idle
old1 short tmp:800G,gpu:k80:2,gpu:m60:1 idle
"""


def capacity(text: str) -> dict[str, int]:
    cluster = parse_cluster(text, "list")
    return dict(zip(cluster.types, cluster.capacity.tolist(), strict=True))


def test_openb_nodes_add_up_to_the_published_gpus(shared: Shared) -> None:
    for name in ("openb_node_list_all_node.csv", "openb_node_list_gpu_node.csv"):
        cluster = read_cluster(shared(f"alibaba-v2023/{name}"))
        count = dict(zip(cluster.types, cluster.capacity.tolist(), strict=True))
        assert count == {"p100": 265, "t4": 842, "v100": 195, "v100-32": 204 + 312, "a10": 4392 + 2}
        assert len(cluster.nodes) == 1213


def test_hidden_types_may_be_named_otherwise(shared: Shared) -> None:
    cluster = read_cluster(shared("alibaba-v2023/openb_node_list_gpu_node.csv"), {"G2": "a100", "G3": "h100"})
    assert dict(zip(cluster.types, cluster.capacity.tolist(), strict=True))["a100"] == 4392


def test_pai_machines_add_up_to_the_published_gpus(shared: Shared) -> None:
    cluster = read_cluster(shared("alibaba-pai-v2020/pai_machine_spec.csv"))
    count = dict(zip(cluster.types, cluster.capacity.tolist(), strict=True))
    assert count == {"p100": 798 * 2, "t4": 497 * 2, "k80": 280 * 8, "v100-32": 135 * 8, "v100": 104 * 8}


def test_an_imported_cluster_is_written_as_a_few_groups(shared: Shared) -> None:
    text = format_cluster(read_cluster(shared("alibaba-pai-v2020/pai_machine_spec.csv")))
    assert len(text.splitlines()) < 10
    assert parse_cluster(text, "c.yaml").total_gpus == 798 * 2 + 497 * 2 + (280 + 135 + 104) * 8


def test_a_sinfo_table_counts_every_node_once() -> None:
    assert capacity(SINFO) == {"a100": 4, "v100-32": 16, "k80": 2, "m60": 1}
    assert capacity(SINFO.replace(" ", "|")) == capacity(SINFO)


def test_sinfo_json_is_read() -> None:
    entries = [
        {"nodes": {"total": 2, "nodes": ["g1", "g2"]}, "gres": {"total": "gpu:a100:4(S:0-1)"}},
        {"nodes": {"total": 1, "nodes": ["g2"]}, "gres": {"total": "gpu:a100:4(S:0-1)"}},
        {"nodes": {"total": 1, "nodes": ["c1"]}, "gres": {"total": ""}},
    ]
    assert capacity(json.dumps({"sinfo": entries})) == {"a100": 8}
    assert capacity(json.dumps({"nodes": [{"name": "n1", "gres": "gpu:3090:2"}]})) == {"3090": 2}


def test_slurm_node_lists_are_spelt_out() -> None:
    assert list(expand_hosts("gpu[01-03,7],login1")) == ["gpu01", "gpu02", "gpu03", "gpu7", "login1"]
    assert list(expand_hosts("r[1-2]n[8-9]")) == ["r1n8", "r1n9", "r2n8", "r2n9"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (SINFO + "x1 short gpu:4 idle\n", r'line 7: GRES "gpu:4" names no type; give it one with --alias gpu='),
        (SINFO + "x1 short gpu:a100:many idle\n", "line 7: GRES .* is not understood"),
        (SINFO + "x1 short\n", "line 7: has 2 columns; wanted 4"),
        (SINFO + "x[a-b] short gpu:a100:4 idle\n", "line 7: node list"),
        (SINFO + "x[9-1] short gpu:a100:4 idle\n", "line 7: node list"),
        (
            SINFO + "x1 short gpu:quantum:4 idle\n",
            'line 7: the memory of GPU type "quantum" is unknown.*--alias quantum=',
        ),
        ("NODELIST GRES\nc1 (null)\n", "lists no node with GPUs"),
        ('{"sinfo": [{"gres": 5}]}', "is not JSON of sinfo"),
        ("sn,cpu_milli,memory_mib,gpu,model\nn1,1,1,-2,T4\n", "line 2: gpu is -2"),
        ("sn,cpu_milli,memory_mib,gpu,model\nn1,1,1,x,T4\n", 'line 2: gpu is "x"'),
        ("sn,cpu_milli,memory_mib,gpu,model\nn1,1\n", "line 2: has 2 fields"),
        ("a1,T4,96,512,2\na2,T4,96\n", "line 2: is not a machine of PAI"),
    ],
)
def test_a_bad_machine_list_is_refused_with_file_and_line(text: str, says: str) -> None:
    with pytest.raises(InputError, match=f"list.*{says}"):
        parse_cluster(text, "list")


def test_an_alias_names_gpus_that_slurm_does_not() -> None:
    cluster = parse_cluster("NODELIST GRES\nn1 gpu:4\n", "list", {"gpu": "v100"})
    assert (cluster.types, cluster.capacity.tolist()) == (("v100",), [4])


def test_gpus_may_be_spelt_as_drivers_do() -> None:
    assert read_cluster("NVIDIA-A100-SXM4-80GB:8x8,Tesla T4:4").types == ("a100-80", "t4")
    assert parse_cluster("nodes: [{gpu: Tesla V100-SXM2-32GB, gpus: 4}]", "c").memory_gib.tolist() == [32.0]


def test_a_conversion_notes_what_was_left_out_and_assumed(write: Write) -> None:
    path = write("NODELIST|GRES\ngpu1|gpu:v100:4\nlogin1|(null)\n")

    notes = conversion_notes(str(path), read_cluster(path))

    assert notes[0] == "left out: 1 node without GPUs"
    assert "v100 16 GiB" in notes[1]
    assert conversion_notes("v100:8", read_cluster("v100:8")) == ()


def test_nodes_of_slurm_keep_their_names_also_in_a_cluster_file() -> None:
    cluster = parse_cluster(SINFO, "list")
    assert cluster.nodes == ("gpu01", "gpu02", "gpu03", "old1", "old1+m60")

    text = format_cluster(cluster)
    again = parse_cluster(text, "c.yaml")

    assert 'hosts: "gpu[02-03]"' in text
    assert (again.nodes, again.types, again.type_of) == (cluster.nodes, cluster.types, cluster.type_of)


def test_hosts_of_a_cluster_file_are_the_names_of_its_nodes() -> None:
    cluster = parse_cluster(
        'nodes: [{hosts: "a[8-10],b", gpu: v100, gpus: 4}, {count: 1, gpu: v100, gpus: 4}]', "c.yaml"
    )
    assert cluster.nodes == ("a8", "a9", "a10", "b", "v100-1")

    with pytest.raises(InputError, match=r"c.yaml line 1: hosts are the names .* leave out count and name"):
        parse_cluster("nodes: [{hosts: a1, count: 2, gpu: v100, gpus: 4}]", "c.yaml")


@given(
    st.lists(st.tuples(st.sampled_from(["gpu", "n-", "v100-", "a1b"]), st.integers(0, 120)), min_size=1, unique=True)
)
def test_compressed_hosts_are_read_back_in_their_order(hosts: list[tuple[str, int]]) -> None:
    names = [f"{prefix}{number:02d}" for prefix, number in hosts]
    assert list(expand_hosts(compress_hosts(names))) == names


@given(
    st.lists(st.sampled_from([f"{p}-{n}" for p in ("v100", "k80", "x") for n in range(1, 5)]), min_size=1, unique=True)
)
def test_any_names_survive_a_cluster_file(names: list[str]) -> None:
    groups = [NodeGroup(1, "v100" if len(name) % 2 else "k80", 4, hosts=(name,)) for name in names]
    cluster = build_cluster(groups)
    again = parse_cluster(format_cluster(cluster), "c.yaml")
    assert (again.nodes, again.type_of) == (cluster.nodes, cluster.type_of)
