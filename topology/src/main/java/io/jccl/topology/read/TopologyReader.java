package io.jccl.topology.read;

import io.jccl.topology.Topology;
import io.jccl.topology.TopologyFormatException;

/**
 * Reads the topology of a machine from a text: what {@code nvidia-smi topo -m}, {@code -mp}, {@code
 * -p2p} or {@code nvlink -s} printed, with any text around it, or NCCL's topology XML. Safe for use
 * by many threads.
 */
public final class TopologyReader {
    private TopologyReader() {}

    /**
     * Reads the tables of nvidia-smi.
     *
     * @param text what was printed
     * @param options how to read it
     * @return the path matrix if there is one, else the p2p matrix, else the state of the NVLinks
     * @throws TopologyFormatException if there is none of these, or it is damaged
     */
    public static Dump dump(String text, ReadOptions options) {
        throw new TopologyFormatException(0, 0, "not read yet");
    }

    /**
     * Reads the graph of a machine.
     *
     * @param text what was printed, or XML
     * @param options how to read it
     * @return the graph, with warnings about what was odd, guessed or left out
     * @throws TopologyFormatException if the text is none of the formats, or damaged
     */
    public static Topology topology(String text, ReadOptions options) {
        throw new TopologyFormatException(0, 0, "not read yet");
    }
}
