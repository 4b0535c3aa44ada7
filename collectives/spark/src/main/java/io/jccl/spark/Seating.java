package io.jccl.spark;

import io.jccl.error.JcclException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * Where all tasks run. All of them have the same information, so all make the same decision.
 *
 * @param seats by rank
 */
record Seating(List<Seat> seats) {
    /** The communication backend. */
    enum Engine {
        HOST,
        NCCL
    }

    static Seating parse(String[] texts) {
        List<Seat> seats = new ArrayList<>();
        for (int r = 0; r < texts.length; r++) {
            seats.add(Seat.parse(r, texts[r]));
        }
        return new Seating(List.copyOf(seats));
    }

    /** The engine for tasks at these places, or why there is none. */
    Engine engine() {
        Map<String, List<Integer>> byMemory = new LinkedHashMap<>();
        Map<String, Integer> gpus = new HashMap<>();
        for (int r = 0; r < seats.size(); r++) {
            Seat seat = seats.get(r);
            byMemory.computeIfAbsent(seat.memory(), k -> new ArrayList<>()).add(r);
            Integer other = seat.gpu().isEmpty() ? null : gpus.put(seat.gpu(), r);
            if (other != null && !"1".equals(System.getenv("NCCL_MULTI_RANK_GPU_ENABLE"))) {
                throw new JcclException(
                        ("ranks %s and %s both have %s, expected a GPU for each: set"
                                        + " spark.task.resource.gpu.amount to 1, or choose other"
                                        + " devices")
                                .formatted(other, r, seat.describe()));
            }
        }
        int onGpus = (int) seats.stream().filter(s -> !s.gpu().isEmpty()).count();
        if (onGpus == seats.size()) {
            return Engine.NCCL;
        }
        if (onGpus > 0) {
            throw new JcclException(
                    ("%s of %s tasks have a GPU, expected all or none: %s. Set"
                                    + " spark.task.resource.gpu.amount to 1 for all executors, or"
                                    + " pass Device.host() to SparkCommunicator.join")
                            .formatted(onGpus, seats.size(), everyone()));
        }
        if (byMemory.size() > 1) {
            throw new JcclException(
                    ("the tasks run in %s places without common shared memory, by rank %s: %s."
                                    + " Without GPUs the ranks have to share a machine (and its"
                                    + " /dev/shm, or the folder that JCCL_SHM_DIR names, if"
                                    + " executors are containers); across machines use GPUs"
                                    + " (spark.task.resource.gpu.amount=1), or start the program"
                                    + " under mpirun instead")
                            .formatted(byMemory.size(), byMemory.values(), everyone()));
        }
        return Engine.HOST;
    }

    private String everyone() {
        StringBuilder text = new StringBuilder();
        for (int r = 0; r < seats.size(); r++) {
            text.append(r == 0 ? "rank " : ", rank ")
                    .append(r)
                    .append(' ')
                    .append(seats.get(r).describe());
        }
        return text.toString();
    }
}
