package io.jccl.topology.read;

import io.jccl.topology.Warning;
import java.util.List;

/** The output of an nvidia-smi command, as a table. Immutable. */
public sealed interface Dump permits PathMatrix, P2pMatrix, NvlinkStatus {
    /**
     * Problems in the text.
     *
     * @return the warnings, in the order of the text
     */
    List<Warning> warnings();
}
