package io.jccl.topology.read;

/** What a text is taken for. */
public enum Format {
    /** Whatever it looks like: XML if it starts with a tag of NCCL's, else output of nvidia-smi. */
    AUTO,
    /** Output of {@code nvidia-smi topo} or {@code nvidia-smi nvlink -s}, with text around it. */
    SMI,
    /** NCCL's topology XML, as {@code NCCL_TOPO_DUMP_FILE} gives it. */
    NCCL_XML
}
