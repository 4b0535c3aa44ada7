package io.jccl.offload;

import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import java.util.Objects;
import org.jspecify.annotations.Nullable;

/**
 * A tensor of a layer, and its home while the layer does not compute: host memory, or a store of
 * tier {@link Tier#NVME}.
 *
 * @param name unique among the tensors of its kind in the layer
 * @param type element type
 * @param count number of elements, 0 or more
 * @param host its home in host memory; if that is not pinned, a GPU copies it through pinned slots.
 *     Null if its home is a store
 * @param place its home in a store; null if its home is host memory
 */
public record LayerTensor(
        String name,
        DataType type,
        long count,
        @Nullable Buffer host,
        TierStore.@Nullable Place place) {

    /** Checks that there is exactly one home. */
    public LayerTensor {
        Objects.requireNonNull(name, "name");
        Objects.requireNonNull(type, "type");
        if (count < 0) {
            throw new IllegalArgumentException(
                    "tensor '" + name + "' has count " + count + ", expected 0 or more");
        }
        if ((host == null) == (place == null)) {
            throw new IllegalArgumentException(
                    "tensor '%s' has %s, expected either host memory or a place in a store"
                            .formatted(name, host == null ? "no home" : "two homes"));
        }
        if (host != null && host.device().kind() != Device.Kind.HOST) {
            throw new IllegalArgumentException(
                    ("tensor '%s' lives on %s, expected host memory: what always stays on the"
                                    + " device needs no schedule")
                            .formatted(name, host.device()));
        }
        if (host != null && (host.dataType() != type || host.count() != count)) {
            throw new IllegalArgumentException(
                    String.format(
                            "tensor '%s' has %s elements of %s, its home %s of %s; both need the"
                                    + " same",
                            name, count, type.label(), host.count(), host.dataType().label()));
        }
    }

    /**
     * A tensor in host memory.
     *
     * @param name unique among the tensors of its kind in the layer
     * @param home its elements; the buffer stays open as long as the schedule is used
     * @return the tensor
     */
    public static LayerTensor pinned(String name, Buffer home) {
        return new LayerTensor(name, home.dataType(), home.count(), home, null);
    }

    /**
     * A tensor in a store.
     *
     * @param name unique among the tensors of its kind in the layer
     * @param type element type
     * @param count number of elements
     * @param home a place of that type and count, open as long as the schedule is used
     * @return the tensor
     */
    public static LayerTensor nvme(String name, DataType type, long count, TierStore.Place home) {
        return new LayerTensor(name, type, count, null, home);
    }

    /**
     * Size of all elements.
     *
     * @return bytes
     */
    public long byteSize() {
        return count * type.size();
    }
}
