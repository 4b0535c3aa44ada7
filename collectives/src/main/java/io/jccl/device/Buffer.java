package io.jccl.device;

import java.lang.foreign.MemorySegment;

/**
 * A contiguous array of elements of one type in the memory of one device.
 *
 * {@snippet class="snippets.Collectives" region="buffer"}
 *
 * <p>{@linkplain #slice Slices} are views: they share the elements and are closed with the buffer
 * that they are views of. {@linkplain #wrap Wrapped} memory remains owned by the caller; closing
 * the buffer only ends the view.
 *
 * <p>Not {@link java.nio.Buffer}: {@code import io.jccl.device.Buffer} takes precedence over {@code
 * import java.nio.*}, so a file can use both; the names of {@link java.nio.ByteBuffer} and the
 * others do not clash.
 *
 * <p><b>Threads:</b> any thread may read and write elements, with the ordering of plain fields
 * only. Waiting for a stream makes the effects of its work visible.
 */
public interface Buffer extends AutoCloseable {
    /**
     * Wraps memory owned by the caller, such as a DJL tensor, an NIO buffer ({@link
     * MemorySegment#ofBuffer}) or an array ({@link MemorySegment#ofArray}), without a copy.
     *
     * @param memory the elements, in native byte order; any alignment. It must stay alive while the
     *     buffer is in use and be accessible to all threads that use it, so it cannot be from
     *     {@code Arena.ofConfined()}
     * @param type element type
     * @return a buffer over all of the memory
     * @throws IllegalArgumentException if the size is not a multiple of the element size, or the
     *     memory is read-only or confined to one thread
     */
    static Buffer wrap(MemorySegment memory, DataType type) {
        return DeviceProvider.Holder.DEVICES.wrap(memory, type);
    }

    /**
     * Wraps host memory at a raw address, owned by the caller, such as the data pointer of a CPU
     * tensor. The address is not checked: a wrong one crashes the JVM.
     *
     * @param address first byte, not 0 unless count is 0
     * @param type element type
     * @param count number of elements
     * @return a buffer over that memory
     * @throws IllegalArgumentException if count is negative, or the address is 0
     */
    static Buffer wrapAddress(long address, DataType type, long count) {
        return DeviceProvider.Holder.DEVICES.wrapAddress(address, type, count);
    }

    /**
     * Element type.
     *
     * @return the type
     */
    DataType dataType();

    /**
     * Number of elements.
     *
     * @return 0 or more
     */
    long count();

    /**
     * Size of all elements.
     *
     * @return bytes
     */
    default long byteSize() {
        return count() * dataType().size();
    }

    /**
     * The device whose memory this is.
     *
     * @return the device
     */
    Device device();

    /**
     * Address of the first element in the memory of the device.
     *
     * @return a raw address; for an array on the Java heap, its offset in that array
     */
    long address();

    /**
     * A view of a range of elements. A buffer caches the last view and returns it again for the
     * same range, so that a loop over a few buffers allocates nothing.
     *
     * @param from index of the first
     * @param count number of elements
     * @return a view that ends with this buffer
     * @throws IndexOutOfBoundsException if the range does not lie within the buffer
     */
    Buffer slice(long from, long count);

    /**
     * An independent buffer over part of the memory, for allocators that divide large allocations.
     * Unlike a slice it may have another element type and is closed separately.
     *
     * @param fromByte offset in bytes; a multiple of the element size keeps elements aligned
     * @param type its element type
     * @param count number of its elements
     * @param release called once when the new buffer is closed; not called if this buffer is closed
     *     first, which closes the new one too
     * @return the buffer
     * @throws IndexOutOfBoundsException if the range does not lie within this buffer
     */
    Buffer lease(long fromByte, DataType type, long count, Runnable release);

    /**
     * The memory itself, for code that accesses it directly. Do not use the segment after {@link
     * #close}: only a buffer of {@link Device#host} invalidates its segment when closed.
     * {@linkplain #lease Leased} memory and memory shared with other processes are reused, so the
     * segment of a closed buffer may access another buffer's data.
     *
     * @return the elements in native byte order
     * @throws UnsupportedOperationException if the memory is not the host's
     * @throws IllegalStateException if the buffer is closed
     */
    MemorySegment asSegment();

    /**
     * Reads one element as a float64. 64-bit integers may be rounded; see {@link #getLong}.
     *
     * @param index index of the element
     * @return its value
     */
    double get(long index);

    /**
     * Sets one element, rounded to nearest even if the type is narrower. For integer types the
     * fraction is truncated, the value saturates at 64 bits, and then wraps to the width of the
     * type.
     *
     * @param index index of the element
     * @param value its new value
     */
    void set(long index, double value);

    /**
     * Reads one element of an integer type as a 64-bit integer; uint64 keeps its bits.
     *
     * @param index index of the element
     * @return its value
     * @throws UnsupportedOperationException for floating-point types
     */
    long getLong(long index);

    /**
     * Sets one element of an integer type, wrapped to its width.
     *
     * @param index index of the element
     * @param value its new value
     * @throws UnsupportedOperationException for floating-point types
     */
    void setLong(long index, long value);

    /**
     * Sets all bytes to zero.
     *
     * @return this buffer
     */
    Buffer zero();

    /**
     * Copies from host memory and waits for completion. To order a copy with other work use {@link
     * Stream#copy}.
     *
     * @param source as many bytes as the buffer has, in native byte order
     * @return this buffer
     * @throws IllegalArgumentException if the size differs
     */
    default Buffer copyFrom(MemorySegment source) {
        checkSize(source);
        asSegment().copyFrom(source);
        return this;
    }

    /**
     * Copies to host memory and waits for completion.
     *
     * @param target memory of as many bytes as the buffer has
     * @throws IllegalArgumentException if the size differs
     */
    default void copyTo(MemorySegment target) {
        checkSize(target);
        target.copyFrom(asSegment());
    }

    private void checkSize(MemorySegment memory) {
        if (memory.byteSize() != byteSize()) {
            throw new IllegalArgumentException(
                    "the buffer has %s bytes, the memory %s; both need the same"
                            .formatted(byteSize(), memory.byteSize()));
        }
    }

    /**
     * Copies float32 elements from an array and waits for completion.
     *
     * @param source as many elements as the buffer holds
     * @return this buffer
     * @throws IllegalArgumentException if the type is not float32 or the length differs
     */
    default Buffer copyFrom(float[] source) {
        checkFloats(source.length);
        return copyFrom(MemorySegment.ofArray(source));
    }

    /**
     * Copies float32 elements to an array and waits for completion.
     *
     * @param target an array of as many elements as the buffer holds
     * @throws IllegalArgumentException if the type is not float32 or the length differs
     */
    default void copyTo(float[] target) {
        checkFloats(target.length);
        copyTo(MemorySegment.ofArray(target));
    }

    private void checkFloats(int length) {
        if (dataType() != DataType.FLOAT32 || count() != length) {
            throw new IllegalArgumentException(
                    "the buffer holds %s elements of %s, the array %s of %s"
                            .formatted(
                                    count(), dataType().label(), length, DataType.FLOAT32.label()));
        }
    }

    /**
     * Frees the memory if the buffer owns it. No operation on it may be in flight. Closing twice
     * has no effect.
     */
    @Override
    void close();
}
