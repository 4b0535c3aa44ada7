package io.jccl.topology;

import java.util.Objects;
import org.jspecify.annotations.Nullable;

/**
 * A network interface.
 *
 * @param id index in {@link Topology#nodes()}
 * @param name as printed: {@code NIC0} or {@code mlx5_0}
 * @param device its device according to the legend, such as {@code mlx5_0}; null if there is none
 * @param gbps port bandwidth per direction in GB/s (10^9 bytes); 0 if unknown
 */
public record Nic(int id, String name, @Nullable String device, double gbps) implements Node {
    /** Checks that the name is not null. */
    public Nic {
        Objects.requireNonNull(name, "name");
    }
}
