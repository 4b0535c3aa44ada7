package io.jccl.offload.memplan;

/**
 * Bytes that one GPU moves per step.
 *
 * @param kind a collective, a copy, or access to a drive
 * @param what the data
 * @param bytes sent by one GPU (collectives and copies), or read or written for it (drives); {@link
 *     Long#MAX_VALUE} stands for more
 * @param group the ranks that exchange them
 * @param calls number of operations they are divided into
 */
public record Traffic(Kind kind, String what, long bytes, Group group, long calls) {
    /** Ranks that exchange bytes. */
    public enum Group {
        /** One rank with its machine's memory or drives. */
        MACHINE,
        /** Ranks that hold the same part of the model. */
        DATA,
        /** Ranks that split each layer. */
        TENSOR,
        /** Stages of a pipeline. */
        PIPELINE,
        /** Ranks that split a sample's tokens. */
        CONTEXT,
        /** Ranks that split the experts. */
        EXPERT
    }

    /** Ways of moving bytes. Volumes of collectives are those of a ring. */
    public enum Kind {
        /** Sum over ranks, result on all: {@code 2 (n-1)/n} of the buffer. */
        ALL_REDUCE("allReduce"),
        /** Sum over ranks, result in shards: {@code (n-1)/n} of the buffer. */
        REDUCE_SCATTER("reduceScatter"),
        /** Shards to all: {@code (n-1)/n} of the buffer. */
        ALL_GATHER("allGather"),
        /** Blocks from every rank to every rank. */
        ALL_TO_ALL("allToAll"),
        /** To the next stage of a pipeline, or the next rank of a ring. */
        SEND("send"),
        /** Over PCIe to the device. */
        TO_DEVICE("host to device"),
        /** Over PCIe from the device. */
        TO_HOST("device to host"),
        /** From a drive. */
        NVME_READ("NVMe read"),
        /** To a drive. */
        NVME_WRITE("NVMe write");

        private final String label;

        Kind(String label) {
            this.label = label;
        }

        /**
         * The display name.
         *
         * @return such as {@code allReduce}
         */
        public String label() {
            return label;
        }
    }
}
