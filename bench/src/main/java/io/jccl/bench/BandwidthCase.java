package io.jccl.bench;

import java.util.Arrays;
import java.util.List;

/** The test cases of {@code jccl bandwidth}, with nvbandwidth's names where it has the case. */
public enum BandwidthCase {
    HOST_TO_DEVICE("host_to_device_memcpy_ce", "memcpy CE CPU(row) -> GPU(column)"),
    DEVICE_TO_HOST("device_to_host_memcpy_ce", "memcpy CE CPU(row) <- GPU(column)"),
    HOST_TO_DEVICE_BOTH(
            "host_to_device_bidirectional_memcpy_ce", "memcpy CE CPU(row) <-> GPU(column)"),
    DEVICE_TO_HOST_BOTH(
            "device_to_host_bidirectional_memcpy_ce", "memcpy CE CPU(row) <-> GPU(column)"),
    PEER_READ("device_to_device_memcpy_read_ce", "memcpy CE GPU(row) <- GPU(column)"),
    PEER_WRITE("device_to_device_memcpy_write_ce", "memcpy CE GPU(row) -> GPU(column)"),
    PEER_READ_BOTH(
            "device_to_device_bidirectional_memcpy_read_ce",
            "memcpy CE GPU(row) <-> GPU(column) Total"),
    PEER_WRITE_BOTH(
            "device_to_device_bidirectional_memcpy_write_ce",
            "memcpy CE GPU(row) <-> GPU(column) Total"),
    LOCAL("device_local_copy", "memcpy local GPU(column)"),

    // Cases that nvbandwidth does not have.
    HOST_TO_DEVICE_PAGEABLE(
            "host_to_device_pageable_memcpy_ce", "memcpy CE pageable CPU(row) -> GPU(column)"),
    DEVICE_TO_HOST_PAGEABLE(
            "device_to_host_pageable_memcpy_ce", "memcpy CE pageable CPU(row) <- GPU(column)"),
    HOST_TO_DEVICE_ENGINE(
            "host_to_device_transfer_engine", "transfer engine CPU(row) -> GPU(column)"),
    DEVICE_TO_HOST_ENGINE(
            "device_to_host_transfer_engine", "transfer engine CPU(row) <- GPU(column)"),
    HOST_TO_DEVICE_LATENCY(
            "host_to_device_latency_ce", "memcpy CE of 8 bytes CPU(row) -> GPU(column)"),
    DEVICE_TO_HOST_LATENCY(
            "device_to_host_latency_ce", "memcpy CE of 8 bytes CPU(row) <- GPU(column)"),
    NVME_READ("nvme_read", "drive(row) -> pinned CPU(column)"),
    NVME_WRITE("nvme_write", "drive(row) <- pinned CPU(column)");

    static final List<String> LABELS = Arrays.stream(values()).map(BandwidthCase::label).toList();

    private final String label;
    private final String what;

    BandwidthCase(String label, String what) {
        this.label = label;
        this.what = what;
    }

    public String label() {
        return label;
    }

    public boolean isLatency() {
        return label.contains("_latency_");
    }

    public boolean isNvme() {
        return this == NVME_READ || this == NVME_WRITE;
    }

    public boolean isPeer() {
        return label.startsWith("device_to_device_");
    }

    /** Whether the device of the row reads instead of writing. */
    boolean isRead() {
        return label.endsWith("_read_ce");
    }

    /** Whether copies run in both directions at once. */
    boolean isBothWays() {
        return label.contains("_bidirectional_");
    }

    /** The heading of its matrix. */
    public String heading() {
        return what + (isLatency() ? " latency (us)" : " bandwidth (GB/s)");
    }

    public static BandwidthCase of(String label) {
        return Arrays.stream(values())
                .filter(c -> c.label.equals(label))
                .findFirst()
                .orElseThrow(() ->
                        new IllegalArgumentException(
                                "test case '"
                                        + label
                                        + "' is unknown, expected one of "
                                        + String.join(", ", LABELS)));
    }
}
