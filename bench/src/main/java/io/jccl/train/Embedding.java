package io.jccl.train;

import static java.lang.foreign.ValueLayout.JAVA_FLOAT;

import io.jccl.device.Buffer;
import java.lang.foreign.MemorySegment;

/** The first layer: the sum of a token and a position embedding. */
final class Embedding {
    private final MemorySegment token;
    private final MemorySegment position;
    private final MemorySegment tokenGradient;
    private final MemorySegment positionGradient;
    private final int context;
    private final int hidden;

    Embedding(ParameterStore store, GptShape shape) {
        token = store.weight(0, 0).asSegment();
        position = store.weight(0, 1).asSegment();
        tokenGradient = store.gradient(0, 0).asSegment();
        positionGradient = store.gradient(0, 1).asSegment();
        context = shape.context();
        hidden = shape.hidden();
    }

    /** Some rows of a micro-batch. */
    void forward(int[] tokens, int firstRow, int rows, Buffer x) {
        MemorySegment to = x.asSegment();
        for (int r = 0; r < rows; r++) {
            long t = (long) tokens[firstRow + r] * hidden;
            long p = (long) ((firstRow + r) % context) * hidden;
            long at = (long) r * hidden;
            for (int i = 0; i < hidden; i++) {
                float v = token.getAtIndex(JAVA_FLOAT, t + i);
                to.setAtIndex(JAVA_FLOAT, at + i, v + position.getAtIndex(JAVA_FLOAT, p + i));
            }
        }
    }

    /** The gradients of all rows of a micro-batch. */
    void backward(int[] tokens, int rows, Buffer gradient) {
        MemorySegment from = gradient.asSegment();
        for (int r = 0; r < rows; r++) {
            long at = (long) r * hidden;
            add(from, at, tokenGradient, (long) tokens[r] * hidden);
            add(from, at, positionGradient, (long) (r % context) * hidden);
        }
    }

    private void add(MemorySegment from, long at, MemorySegment to, long toAt) {
        for (int i = 0; i < hidden; i++) {
            float sum = to.getAtIndex(JAVA_FLOAT, toAt + i) + from.getAtIndex(JAVA_FLOAT, at + i);
            to.setAtIndex(JAVA_FLOAT, toAt + i, sum);
        }
    }
}
