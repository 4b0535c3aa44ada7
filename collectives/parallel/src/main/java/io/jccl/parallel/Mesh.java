package io.jccl.parallel;

import io.jccl.CollectiveMismatchException;
import io.jccl.Communicator;
import io.jccl.internal.Closing;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;

/**
 * A device mesh: the ranks of a communicator arranged as a grid with named axes, such as {@code
 * data} x {@code pipeline} x {@code tensor}, with a communicator for the ranks along each axis.
 *
 * {@snippet class="snippets.Parallel" region="mesh"}
 *
 * <p>The layout is row-major: the coordinate along the last axis varies fastest with the rank, so
 * the ranks of a group along the last axis are consecutive. With axes of sizes <i>s</i><sub>0</sub>
 * ... <i>s</i><sub>k-1</sub>, rank <i>r</i> has the coordinate (<i>r</i> / (<i>s</i><sub>i+1</sub>
 * ... <i>s</i><sub>k-1</sub>)) mod <i>s</i><sub>i</sub> along axis <i>i</i>.
 *
 * <p><b>Threads:</b> a mesh may be used by one thread at a time; each of its groups is a {@link
 * Communicator} with the rules given there.
 */
public final class Mesh implements AutoCloseable {
    /**
     * One axis of the grid.
     *
     * @param name its name, such as {@code "tensor"}; not empty
     * @param size number of ranks along it, 1 or more
     */
    public record Axis(String name, int size) {
        /** Accepts any name and size; {@link Mesh#create} checks them on all ranks together. */
        public Axis {
            Objects.requireNonNull(name, "name");
        }

        @Override
        public String toString() {
            return name + " of " + size;
        }
    }

    private final Communicator world;
    private final List<Axis> axes;

    /** Keyed by a bit set of the axes' positions, in the order of creation. */
    private final Map<Long, Communicator> groups = new LinkedHashMap<>();

    private boolean closed;

    private Mesh(Communicator world, List<Axis> axes) {
        this.world = world;
        this.axes = axes;
    }

    /**
     * Arranges the ranks and splits the communicator into the groups along each axis. All ranks
     * call it; it waits for them.
     *
     * @param world the ranks; must outlive the mesh, which does not close it
     * @param axes one or more, from the slowest to the fastest varying; the same on all ranks
     * @return this rank's view
     * @throws IllegalArgumentException if the product of the sizes is not the number of ranks, a
     *     size is not positive, or a name is empty or repeated; on all ranks
     * @throws CollectiveMismatchException if the ranks pass different axes; on all ranks
     */
    public static Mesh create(Communicator world, List<Axis> axes) {
        Objects.requireNonNull(world, "world");
        List<Axis> copy = List.copyOf(axes);
        // Checked first, so that no rank throws while others wait for it in a split.
        ConsistencyCheck.check(
                world, "the axes of a mesh", copy.stream().map(Axis::toString).toList());
        check(world.size(), copy);
        Mesh mesh = new Mesh(world, copy);
        try {
            for (int i = 0; i < copy.size(); i++) {
                mesh.group(1L << i);
            }
        } catch (RuntimeException e) {
            try {
                mesh.close();
            } catch (RuntimeException suppressed) {
                e.addSuppressed(suppressed);
            }
            throw e;
        }
        return mesh;
    }

    private static void check(int ranks, List<Axis> axes) {
        if (axes.isEmpty() || axes.size() > Long.SIZE - 1) {
            throw new IllegalArgumentException(
                    "the mesh has " + axes.size() + " axes, expected 1 to " + (Long.SIZE - 1));
        }
        Set<String> names = new HashSet<>();
        long product = 1;
        for (Axis a : axes) {
            if (a.name.isBlank()) {
                throw new IllegalArgumentException("an axis of " + axes + " has no name");
            }
            if (!names.add(a.name)) {
                throw new IllegalArgumentException(
                        "axis '" + a.name + "' is there twice in " + axes + "; names must differ");
            }
            if (a.size < 1) {
                throw new IllegalArgumentException(
                        "the size of axis '" + a.name + "' is " + a.size + ", expected 1 or more");
            }
            // Saturates: a product that large cannot be the number of ranks.
            product = Math.min(product * a.size, Integer.MAX_VALUE);
        }
        if (product != ranks) {
            throw new IllegalArgumentException(
                    ("the sizes of the axes %s have the product %s, but the communicator has %s"
                                    + " ranks; both must be the same")
                            .formatted(axes, product, ranks));
        }
    }

    /**
     * The axes.
     *
     * @return as passed to {@link #create}
     */
    public List<Axis> axes() {
        return axes;
    }

    /**
     * The communicator of the ranks that differ from this one only along one axis, including this
     * one, ordered by coordinate: the rank in the group is {@link #coordinate}.
     *
     * @param axis its name
     * @return their communicator, which the mesh closes; one rank if the axis has size 1
     * @throws IllegalArgumentException if there is no such axis
     */
    public Communicator group(String axis) {
        return group(1L << indexOf(axis));
    }

    /**
     * The communicator of the ranks that differ from this one only along the given axes, such as
     * all that hold the same part of a model, ordered by rank in the world. The first call for a
     * set of axes splits the world, so all ranks must make it, in the same order; later calls
     * return the same communicator. The order of the names does not matter.
     *
     * @param axes names of the axes; if empty, the group is this rank alone
     * @return their communicator, which the mesh closes
     * @throws IllegalArgumentException if there is no such axis, or a name is repeated
     */
    public Communicator group(List<String> axes) {
        long set = 0;
        for (String axis : axes) {
            long bit = 1L << indexOf(axis);
            if ((set & bit) != 0) {
                throw new IllegalArgumentException("axis '" + axis + "' is there twice in " + axes);
            }
            set |= bit;
        }
        return group(set);
    }

    private Communicator group(long set) {
        if (closed) {
            throw new IllegalStateException("the mesh is closed");
        }
        Communicator known = groups.get(set);
        if (known != null) {
            return known;
        }
        int colour = 0;
        int key = 0;
        for (int i = 0; i < axes.size(); i++) {
            int size = axes.get(i).size;
            if ((set >> i & 1) != 0) {
                key = key * size + coordinate(i);
            } else {
                colour = colour * size + coordinate(i);
            }
        }
        Communicator made =
                Objects.requireNonNull(world.split(colour, key), "a split with a colour");
        groups.put(set, made);
        return made;
    }

    /**
     * This rank's coordinate along an axis.
     *
     * @param axis its name
     * @return 0 to size - 1
     * @throws IllegalArgumentException if there is no such axis
     */
    public int coordinate(String axis) {
        return coordinate(indexOf(axis));
    }

    private int coordinate(int axis) {
        int rest = world.rank();
        for (int i = axes.size() - 1; i > axis; i--) {
            rest /= axes.get(i).size;
        }
        return rest % axes.get(axis).size;
    }

    /**
     * Number of ranks along an axis.
     *
     * @param axis its name
     * @return 1 or more
     * @throws IllegalArgumentException if there is no such axis
     */
    public int size(String axis) {
        return axes.get(indexOf(axis)).size;
    }

    private int indexOf(String axis) {
        Objects.requireNonNull(axis, "axis");
        for (int i = 0; i < axes.size(); i++) {
            if (axes.get(i).name.equals(axis)) {
                return i;
            }
        }
        throw new IllegalArgumentException(
                "there is no axis '" + axis + "', but " + axes.stream().map(Axis::name).toList());
    }

    /**
     * Closes the groups in reverse order of creation, but not the world. Closing twice has no
     * effect.
     */
    @Override
    public void close() {
        closed = true;
        List<Communicator> all = new ArrayList<>(groups.values());
        groups.clear();
        Closing.all(all.reversed());
    }

    @Override
    public String toString() {
        return "Mesh[rank " + world.rank() + " in " + axes + "]";
    }
}
