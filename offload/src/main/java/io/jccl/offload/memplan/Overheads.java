package io.jccl.offload.memplan;

/**
 * Memory used in addition to the model: the same constants for every plan, each with its source.
 *
 * @param runtime bytes per GPU of the CUDA context and the loaded kernels
 * @param deviceWaste part of device memory that allocators cannot use, 0 to 0.9
 * @param hostReserve bytes per machine of the operating system and the programs
 * @param hostWaste part of host memory that pools cannot allocate, 0 to 0.9
 * @param nvmeWaste part of a drive that the file system keeps, 0 to 0.9
 * @param nvmeCopies versions of parameters and optimizer state kept on NVMe, 1 or 2: with 2, the
 *     last whole step survives a crash within the next one
 * @param prefetch layers fetched ahead of the one that computes
 */
public record Overheads(
        long runtime,
        double deviceWaste,
        long hostReserve,
        double hostWaste,
        double nvmeWaste,
        int nvmeCopies,
        int prefetch) {
    /**
     * Hugging Face's "Model training anatomy" reports 1343 MiB in use after one small tensor was
     * put on a GPU.
     */
    public static final long CUDA_RUNTIME = 1343L << 20;

    /**
     * An upper bound of the measured waste of JCCL's pools. Caching allocators may do worse: arXiv
     * 1910.02054, section 3.2, saw more than 30% in extreme cases.
     */
    public static final double POOL_WASTE = 0.05;

    /** For the operating system, the JVM's heap and page tables: an assumption. */
    public static final long HOST_RESERVE = 4L << 30;

    /** Blocks that mke2fs reserves for root by default (mke2fs(8), -m). */
    public static final double FILE_SYSTEM_WASTE = 0.05;

    /**
     * NCCL's most channels (NCCL_MAX_NCHANNELS: 32 before NCCL 2.24), each with a buffer of 4 MiB
     * (NCCL_BUFFSIZE) per direction.
     */
    public static final long NCCL_BUFFERS = 2L * 32 * (4 << 20);

    /** cuBLAS's recommended workspace on Hopper, the largest (cublasSetWorkspace). */
    public static final long WORKSPACE = 32L << 20;

    /** DeepSpeed's buffer_size for offloaded parameters: elements of one slot before NVMe. */
    public static final double NVME_SLOT = 1e8;

    /** DeepSpeed's buffer_count for offloaded parameters. */
    public static final int NVME_SLOTS = 5;

    /** Optimizer state in host memory if it lives on NVMe: read, being updated, being written. */
    public static final int NVME_STATE_SLOTS = 3;

    /**
     * The constants above, one layer fetched ahead, two versions on NVMe, as {@code
     * io.jccl.offload.zero} keeps them.
     */
    public static final Overheads DEFAULT =
            new Overheads(
                    CUDA_RUNTIME, POOL_WASTE, HOST_RESERVE, POOL_WASTE, FILE_SYSTEM_WASTE, 2, 1);

    /** No overheads: the model only. */
    public static final Overheads NONE = new Overheads(0, 0, 0, 0, 0, 1, 1);

    /** Checks the arguments. */
    public Overheads {
        Checks.range("the runtime's memory", runtime, 0, 1L << 50, "give bytes per GPU");
        Checks.range("the device's waste", deviceWaste, 0, 0.9, "give a part such as 0.05");
        Checks.range("the host's reserve", hostReserve, 0, 1L << 55, "give bytes per machine");
        Checks.range("the host's waste", hostWaste, 0, 0.9, "give a part such as 0.05");
        Checks.range("the file system's waste", nvmeWaste, 0, 0.9, "give a part such as 0.05");
        Checks.range("versions on NVMe", nvmeCopies, 1, 2, "2 survive a crash, 1 does not");
        Checks.range("layers fetched ahead", prefetch, 0, 1000, "1 hides a copy behind a layer");
    }
}
