package io.jccl.topology.read;

import io.jccl.topology.Warning;
import java.util.List;

/** What a command of nvidia-smi printed, as a table and not yet a graph. Immutable. */
public sealed interface Dump permits PathMatrix, P2pMatrix, NvlinkStatus {
    /**
     * What was odd in the text.
     *
     * @return the warnings, in the order of the text
     */
    List<Warning> warnings();
}
