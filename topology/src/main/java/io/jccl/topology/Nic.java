package io.jccl.topology;

import java.util.Objects;
import org.jspecify.annotations.Nullable;

/**
 * A network interface.
 *
 * @param id place in {@link Topology#nodes()}
 * @param name as printed: {@code NIC0} or {@code mlx5_0}
 * @param device its device by the legend, if there is one: {@code mlx5_0}
 * @param gbps port bandwidth per direction in GB/s (10^9 bytes); 0 if unknown
 */
public record Nic(int id, String name, @Nullable String device, double gbps) implements Node {
    /** Checks that the name is there. */
    public Nic {
        Objects.requireNonNull(name, "name");
    }
}
