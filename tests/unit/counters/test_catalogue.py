"""The data files: well formed, sourced, and each formula against numbers worked out by hand."""

from __future__ import annotations

import pytest

from sonde.counters import catalogue
from sonde.counters.catalogue import Catalogue, raw_config
from sonde.counters.derive import Count, derive
from sonde.counters.formula import Formula

NAMES = catalogue.names()

# What two seconds have counted.
SECONDS = 2
COUNTS = {
    "task_clock_ns": 3_000_000_000,
    "context_switches": 40,
    "cpu_migrations": 2,
    "page_faults": 90,
    "major_faults": 1,
    "cycles": 1000,
    "instructions": 2500,
    "ref_cycles": 800,
    "branches": 500,
    "branch_misses": 25,
    "cache_references": 200,
    "cache_misses": 50,
    # Intel
    "dtlb_load_misses_walk_completed": 6,
    "dtlb_store_misses_walk_completed": 4,
    "itlb_misses_walk_completed": 5,
    "l1d_replacement": 100,
    "l2_trans_l1d_wb": 50,
    "l2_lines_in_all": 70,
    "l2_trans_l2_wb": 30,
    "fp_arith_inst_retired_scalar_double": 10,
    "fp_arith_inst_retired_p128_packed_double": 20,
    "fp_arith_inst_retired_p256_packed_double": 30,
    "fp_arith_inst_retired_p512_packed_double": 40,
    "fp_arith_inst_retired_scalar_single": 10,
    "fp_arith_inst_retired_p128_packed_single": 20,
    "fp_arith_inst_retired_p256_packed_single": 30,
    "fp_arith_inst_retired_p512_packed_single": 40,
    "fp_comp_ops_exe_sse_scalar_double": 10,
    "fp_comp_ops_exe_sse_packed_double": 20,
    "simd_fp_256_packed_double": 30,
    "fp_comp_ops_exe_sse_scalar_single": 10,
    "fp_comp_ops_exe_sse_packed_single": 20,
    "simd_fp_256_packed_single": 30,
    "idq_uops_not_delivered_core": 800,
    "uops_issued_any": 2400,
    "uops_retired_retire_slots": 2000,
    "int_misc_recovery_cycles": 50,
    "slots": 100,
    "topdown_retiring": 40,
    "topdown_bad_spec": 10,
    "topdown_fe_bound": 20,
    "topdown_be_bound": 30,
    "offcore_all_reads_llc_miss_dram": 10,
    "offcore_all_demand_mlc_pref_reads_llc_miss_any_response": 10,
    "offcore_all_reads_llc_miss_any_response": 10,
    "offcore_all_reads_l3_miss_local_dram": 10,
    "offcore_demand_data_rd_l3_miss_local_dram_any_snoop": 10,
    "offcore_demand_data_rd_dram": 10,
    "offcore_reads_to_core_dram": 10,
    "offcore_all_reads_llc_miss_local_dram": 10,
    "offcore_all_reads_llc_miss_remote_dram": 5,
    "offcore_all_data_rd_l3_miss_local_dram_any_snoop": 10,
    "offcore_all_rfo_l3_miss_local_dram_any_snoop": 5,
    "offcore_all_data_rd_l3_miss_any_snoop": 10,
    "offcore_all_rfo_l3_miss_any_snoop": 5,
    "offcore_all_reads_l3_miss_local_dram_any_snoop": 10,
    "offcore_all_reads_l3_miss_remote_hop1_dram_any_snoop": 5,
    # AMD
    "ls_l1_d_tlb_miss_all_l2_miss": 15,
    "bp_l1_tlb_miss_l2_tlb_miss": 20,
    "l2_request_g1_reads": 80,
    "l2_cache_req_stat_ic_dc_miss_in_l2": 10,
    "l2_pf_miss_l2_hit_l3": 20,
    "l2_pf_miss_l2_l3": 30,
    "fp_ret_sse_avx_ops_sp": 600,
    "fp_ret_sse_avx_ops_dp": 400,
    "fp_ret_sse_avx_ops_all": 700,
    "ls_refills_from_sys_dram": 10,
    "ls_sw_pf_dc_fill_dram": 20,
    "ls_hw_pf_dc_fill_dram": 30,
    "ls_any_fills_from_sys_dram": 25,
    "de_no_dispatch_per_slot_no_ops_from_frontend": 1200,
    "de_no_dispatch_per_slot_backend_stalls": 1800,
    "de_no_dispatch_per_slot_smt_contention": 600,
    "de_src_op_disp_all": 2400,
    "ex_ret_ops": 1800,
    # Arm
    "br_retired": 400,
    "br_mis_pred_retired": 10,
    "l1d_cache": 400,
    "l1d_cache_refill": 100,
    "l1d_cache_wb": 60,
    "l2d_cache_refill": 40,
    "l2d_cache_wb": 10,
    "dtlb_walk": 5,
    "itlb_walk": 10,
    "ll_cache_miss_rd": 12,
    "fp_fixed_ops_spec": 100,
    "fp_scale_ops_spec": 50,
    "stall_slot_frontend": 2600,
    "stall_slot_backend": 1600,
    "stall_slot": 4200,
    "op_retired": 900,
    "op_spec": 1000,
    "stall_frontend": 300,
    "stall_backend": 450,
}

ANY = {
    "cpus_used": 1.5,  # 3 s of CPU time in 2 s
    "context_switches_per_second": 20,
    "page_faults_per_second": 45,
    "ipc": 2.5,
    "instructions_per_second": 1250,
    "clock_ratio": 1.25,
    "branch_miss_ratio": 0.05,
    "branch_misses_per_1000_instructions": 10,
    "cache_miss_ratio": 0.25,
    "cache_misses_per_1000_instructions": 20,
}
INTEL = ANY | {
    "dtlb_walks_per_1000_instructions": 4,  # 10 in 2500
    "itlb_walks_per_1000_instructions": 2,
    "l3_bandwidth": 3200,  # 100 lines of 64 bytes in 2 s
}
WRITES_COUNTED = {"l2_bandwidth": 4800}  # 150 lines
FILLS_ONLY = {"l2_bandwidth": 3200}  # 100 lines
SLOTS_OF_FOUR = {  # of 4000
    "topdown_frontend_bound": 0.2,
    "topdown_bad_speculation": 0.15,  # 400 + 4 × 50
    "topdown_retiring": 0.5,
    "topdown_backend_bound": 0.15,
}
METRICS = {  # of 100
    "topdown_frontend_bound": 0.2,
    "topdown_bad_speculation": 0.1,
    "topdown_retiring": 0.4,
    "topdown_backend_bound": 0.3,
}
UP_TO_256 = {"flops_dp": 85, "flops_sp": 165}  # 10 + 2 × 20 + 4 × 30 and 10 + 4 × 20 + 8 × 30, in 2 s
UP_TO_512 = {"flops_dp": 245, "flops_sp": 485}  # and 8 × 40, 16 × 40
ONE_SOURCE = {"memory_read_bandwidth": 320}  # 10 lines in 2 s
TWO_SOURCES = {"memory_read_bandwidth": 480}  # 15 lines
AMD = ANY | {
    "dtlb_walks_per_1000_instructions": 6,
    "itlb_walks_per_1000_instructions": 8,
    "l2_bandwidth": 2560,  # 80 lines
    "l3_bandwidth": 1920,  # 60 lines
}
ARM = {name: value for name, value in ANY.items() if name != "branch_misses_per_1000_instructions"} | {
    "branch_miss_ratio": 0.025,
    "l1d_miss_ratio": 0.25,
    "dtlb_walks_per_1000_instructions": 2,
    "itlb_walks_per_1000_instructions": 4,
    "l2_bandwidth": 5120,  # 160 lines
    "l3_bandwidth": 1600,  # 50 lines
    "memory_read_bandwidth": 384,  # 12 lines
}
STALLS = {"frontend_stalled_ratio": 0.3, "backend_stalled_ratio": 0.45}

SANDY = INTEL | WRITES_COUNTED | UP_TO_256 | ONE_SOURCE | SLOTS_OF_FOUR
EXPECTED: dict[str, dict[str, float]] = {
    "sandy_bridge": SANDY,
    "sandy_bridge_ep": SANDY,
    "ivy_bridge": SANDY,
    "ivy_bridge_ep": SANDY,
    "haswell": INTEL | WRITES_COUNTED | ONE_SOURCE | SLOTS_OF_FOUR,
    "haswell_ep": INTEL | WRITES_COUNTED | TWO_SOURCES | SLOTS_OF_FOUR,
    "broadwell": INTEL | WRITES_COUNTED | UP_TO_256 | TWO_SOURCES | SLOTS_OF_FOUR,
    "broadwell_ep": INTEL | WRITES_COUNTED | UP_TO_256 | TWO_SOURCES | SLOTS_OF_FOUR,
    "skylake": INTEL | FILLS_ONLY | UP_TO_256 | ONE_SOURCE | SLOTS_OF_FOUR,
    "skylake_sp": INTEL | FILLS_ONLY | UP_TO_512 | TWO_SOURCES | SLOTS_OF_FOUR,
    "cascade_lake": INTEL | FILLS_ONLY | UP_TO_512 | TWO_SOURCES | SLOTS_OF_FOUR,
    "ice_lake": INTEL | FILLS_ONLY | UP_TO_512 | ONE_SOURCE | METRICS,
    "ice_lake_sp": INTEL | FILLS_ONLY | UP_TO_512 | ONE_SOURCE | METRICS,
    "sapphire_rapids": INTEL | FILLS_ONLY | UP_TO_512 | ONE_SOURCE | METRICS,
    "zen1": AMD | {"flops_sp": 300, "flops_dp": 200},
    "zen2": AMD | {"flops": 350, "memory_read_bandwidth": 1920},  # 60 lines
    "zen3": AMD | {"flops": 350, "memory_read_bandwidth": 800},  # 25 lines
    "zen4": AMD
    | {"flops": 350, "memory_read_bandwidth": 800}
    | {  # of 6000 slots
        "topdown_frontend_bound": 0.2,
        "topdown_bad_speculation": 0.1,
        "topdown_retiring": 0.3,
        "topdown_backend_bound": 0.3,
        "topdown_smt_contention": 0.1,
    },
    "zen5": AMD
    | {"flops": 350, "memory_read_bandwidth": 800}
    | {  # of 8000 slots
        "topdown_frontend_bound": 0.15,
        "topdown_bad_speculation": 0.075,
        "topdown_retiring": 0.225,
        "topdown_backend_bound": 0.225,
        "topdown_smt_contention": 0.075,
    },
    "neoverse_n1": ARM | STALLS,
    "neoverse_n2": ARM
    | {"flops": 75}
    | {  # of 5000 slots, the stalls less one per cycle: 1600 and 3200; 9 of 10 operations retire
        "topdown_frontend_bound": 0.32,
        "topdown_backend_bound": 0.32,
        "topdown_retiring": 0.324,
        "topdown_bad_speculation": 0.036,
    },
    "neoverse_v1": ARM
    | {"flops": 100}
    | {  # of 8000 slots; 0.475 of them hold operations
        "topdown_frontend_bound": 0.325,
        "topdown_backend_bound": 0.2,
        "topdown_retiring": 0.4275,
        "topdown_bad_speculation": 0.0475,
    },
    "neoverse_v2": ARM | {"flops": 75} | STALLS,
    "generic": ANY,
}


def counted(found: Catalogue) -> dict[tuple[str, str], Count]:
    return {(group.name, event.key): Count(COUNTS[event.key], 5, 5) for group in found.groups for event in group.events}


@pytest.mark.parametrize("name", NAMES)
def test_every_formula_gives_what_was_worked_out_by_hand(name: str) -> None:
    found = catalogue.load(name)

    results = {result.name: result.value for result in derive(found, counted(found), SECONDS)}

    assert results == pytest.approx(EXPECTED[name])
    assert set(results) == {formula.name for formula in found.formulas}


@pytest.mark.parametrize("name", NAMES)
def test_a_file_names_its_sources_and_has_events_for_every_formula(name: str) -> None:
    found = catalogue.load(name)

    assert found.title
    assert all(len(source) > 20 for source in found.sources)
    for formula in found.formulas:
        group = next(group for group in found.groups if group.name == formula.group)
        assert Formula(formula.expression).names - {"seconds"} <= {event.key for event in group.events}, formula
        assert formula.help.endswith("."), formula
        assert formula.unit in ("", "ratio", "1/s", "bytes/s"), formula


@pytest.mark.parametrize("name", NAMES)
def test_a_group_fits_the_counters_of_the_processor(name: str) -> None:
    # Intel up to Cascade Lake has four counters per thread and fixed ones for cycles and instructions; slots and the
    # top-down metrics are fixed ones too. AMD has six, Arm six and a cycle counter.
    found = catalogue.load(name)
    most = 4 if found.vendor == "intel" else 6

    for group in found.groups:
        fixed = {"cycles", "instructions", "ref_cycles", "slots"} if found.vendor == "intel" else set()
        needed = [e for e in group.events if e.type != 1 and e.key not in fixed and not e.name.startswith("topdown-")]
        assert len(needed) <= most, group


def test_selectors_are_put_together_as_the_kernel_takes_them() -> None:
    # /sys/bus/event_source/devices/cpu/format: event config:0-7 (AMD 0-7,32-35), umask 8-15, cmask 24-31
    assert raw_config("intel", 0x0D, 0x03, 1) == 0x0100030D
    assert raw_config("amd", 0x1A0, 0x1E, 0) == 0x100001EA0
    assert raw_config("arm", 0x80C0, 0, 0) == 0x80C0


def test_an_offcore_event_carries_its_response() -> None:
    events = {event.key: event for group in catalogue.load("ice_lake_sp").groups for event in group.events}

    memory = events["offcore_reads_to_core_dram"]
    assert (memory.type, memory.config, memory.config1) == (4, 0x01B7, 0x73C000477)


def test_an_unknown_microarchitecture_is_a_key_error() -> None:
    with pytest.raises(KeyError):
        catalogue.load("../generic")
