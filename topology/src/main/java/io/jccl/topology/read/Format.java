package io.jccl.topology.read;

/** Formats of a text. */
public enum Format {
    /**
     * Detected from the text: XML if it starts with one of NCCL's tags, else output of nvidia-smi.
     */
    AUTO,
    /** Output of {@code nvidia-smi topo} or {@code nvidia-smi nvlink -s}, with text around it. */
    SMI,
    /** NCCL's topology XML, as written by {@code NCCL_TOPO_DUMP_FILE}. */
    NCCL_XML
}
