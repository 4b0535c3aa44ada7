package io.jccl.device;

import java.lang.foreign.MemorySegment;

/**
 * A flat run of elements of one type in the memory of one device.
 *
 * {@snippet class="snippets.Collectives" region="buffer"}
 *
 * <p>{@linkplain #slice Slices} are views: they share the elements and end with the buffer they
 * were cut from. {@linkplain #wrap Wrapped} memory belongs to whoever made it; closing the buffer
 * only ends the view.
 *
 * <p><b>Threads:</b> any thread may read and write elements, with no more order between them than
 * ordinary fields have; completion of a stream's work orders it.
 */
public interface Buffer extends AutoCloseable {
    /**
     * Views memory that somebody else owns, such as a tensor of DJL or an NIO buffer ({@link
     * MemorySegment#ofBuffer}) or an array ({@link MemorySegment#ofArray}), without a copy.
     *
     * @param memory the elements, in native byte order; any alignment. It must stay alive while the
     *     buffer is used and be accessible to every thread that uses it, so not from {@code
     *     Arena.ofConfined()}
     * @param type element type
     * @return a buffer over all of the memory
     * @throws IllegalArgumentException if the size is no multiple of the element's, the memory is
     *     read-only or confined to one thread
     */
    static Buffer wrap(MemorySegment memory, DataType type) {
        return DeviceProvider.Holder.DEVICES.wrap(memory, type);
    }

    /**
     * Views host memory at a raw address that somebody else owns, such as the data pointer of a CPU
     * tensor. The address is trusted: a wrong one ends the JVM.
     *
     * @param address first byte, not 0 unless count is 0
     * @param type element type
     * @param count number of elements
     * @return a buffer over that memory
     * @throws IllegalArgumentException if count is negative, or the address 0
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
     * A view of some of the elements. A buffer keeps the last view, and returns it when it is asked
     * for the same elements again, so that a loop over a few buffers makes no garbage.
     *
     * @param from index of the first
     * @param count how many
     * @return a view that ends with this buffer
     * @throws IndexOutOfBoundsException if the range does not lie within the buffer
     */
    Buffer slice(long from, long count);

    /**
     * A buffer of its own over some of the memory, for allocators that carve large allocations.
     * Unlike a slice it may have another type, and is closed by itself.
     *
     * @param fromByte where it starts; a multiple of the element size keeps elements aligned
     * @param type its element type
     * @param count number of its elements
     * @param release what to do when it is closed, once; it is not called if this buffer is closed
     *     first, which ends the other too
     * @return the buffer
     * @throws IndexOutOfBoundsException if the range does not lie within this buffer
     */
    Buffer lease(long fromByte, DataType type, long count, Runnable release);

    /**
     * The memory itself, for code that works on it directly. The segment may outlive the buffer: do
     * not use it after {@link #close}. A buffer of {@link Device#host} alone has a segment that
     * ends with it; {@linkplain #lease leased} memory and memory shared with other processes are
     * reused, and a segment of a closed buffer then reads and writes what is another's by then.
     *
     * @return the elements in native byte order
     * @throws UnsupportedOperationException if the memory is not the host's
     * @throws IllegalStateException if the buffer is closed
     */
    MemorySegment asSegment();

    /**
     * One element as a float64. Integers of 64 bits may lose their last digits; see {@link
     * #getLong}.
     *
     * @param index which
     * @return its value
     */
    double get(long index);

    /**
     * Sets one element, rounded to nearest even if the type is narrower. For integer types the
     * fraction is cut off, what does not fit 64 bits becomes the nearest number that does, and the
     * rest wraps to the width of the type.
     *
     * @param index which
     * @param value its new value
     */
    void set(long index, double value);

    /**
     * One element of an integer type as a 64-bit integer; uint64 keeps its bits.
     *
     * @param index which
     * @return its value
     * @throws UnsupportedOperationException for floating-point types
     */
    long getLong(long index);

    /**
     * Sets one element of an integer type, wrapped to its width.
     *
     * @param index which
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
     * Copies all bytes in and waits for it. To copy in order with a device's work use {@link
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
     * Copies all bytes out and waits for it.
     *
     * @param target room for as many bytes as the buffer has
     * @throws IllegalArgumentException if the size differs
     */
    default void copyTo(MemorySegment target) {
        checkSize(target);
        target.copyFrom(asSegment());
    }

    private void checkSize(MemorySegment memory) {
        if (memory.byteSize() != byteSize()) {
            throw new IllegalArgumentException(
                    "the buffer has "
                            + byteSize()
                            + " bytes, the memory "
                            + memory.byteSize()
                            + "; both need the same");
        }
    }

    /**
     * Copies float32 elements in.
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
     * Copies float32 elements out.
     *
     * @param target room for as many elements as the buffer holds
     * @throws IllegalArgumentException if the type is not float32 or the length differs
     */
    default void copyTo(float[] target) {
        checkFloats(target.length);
        copyTo(MemorySegment.ofArray(target));
    }

    private void checkFloats(int length) {
        if (dataType() != DataType.FLOAT32 || count() != length) {
            throw new IllegalArgumentException(
                    "the buffer holds "
                            + count()
                            + " elements of "
                            + dataType().label()
                            + ", the array "
                            + length
                            + " of "
                            + DataType.FLOAT32.label());
        }
    }

    /**
     * Frees the memory if the buffer owns it. Closing twice does nothing. No operation on it may be
     * under way.
     */
    @Override
    void close();
}
