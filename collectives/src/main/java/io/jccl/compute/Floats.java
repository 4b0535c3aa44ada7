package io.jccl.compute;

import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.kernel.RowKernel;
import java.lang.foreign.MemorySegment;

/** Elements of one type in host memory. */
record Floats(MemorySegment memory, DataType type) {
    static Floats of(Buffer b) {
        return new Floats(b.asSegment(), b.dataType());
    }

    void load(long index, float[] to, int count) {
        RowKernel.BEST.load(memory, type, index, to, 0, count);
    }

    float[] load(long index, int count) {
        float[] to = new float[count];
        load(index, to, count);
        return to;
    }

    void store(float[] from, long index, int count) {
        RowKernel.BEST.store(from, 0, memory, type, index, count);
    }
}
