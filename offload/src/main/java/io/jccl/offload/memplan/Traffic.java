package io.jccl.offload.memplan;

/**
 * What one GPU moves a step.
 *
 * @param kind how: a collective, a copy, or a drive
 * @param what of what
 * @param bytes sent by one GPU (collectives and copies), or read or written for it (drives)
 */
public record Traffic(Kind kind, String what, long bytes) {
    /** Ways of moving bytes. A collective's are those of a ring. */
    public enum Kind {
        /** Sum over ranks, result on all: {@code 2 (n-1)/n} of the buffer. */
        ALL_REDUCE("allReduce"),
        /** Sum over ranks, result in shards: {@code (n-1)/n} of the buffer. */
        REDUCE_SCATTER("reduceScatter"),
        /** Shards to all: {@code (n-1)/n} of the buffer. */
        ALL_GATHER("allGather"),
        /** From one pipeline stage to the next. */
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
         * The name for people.
         *
         * @return such as {@code allReduce}
         */
        public String label() {
            return label;
        }
    }
}
