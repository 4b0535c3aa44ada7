package io.jccl.compute;

import io.jccl.device.Buffer;
import io.jccl.device.Stream;
import io.jccl.device.cuda.CudaKernel;
import io.jccl.device.cuda.CudaStream;
import io.jccl.device.cuda.KernelLaunch;

/** Launches the kernels of select.h and orthonormal.h. */
final class CudaCompression implements GradientCompression {
    /** Chunks of a vector whose selected elements are counted apart, and elements of a tile. */
    private static final int CHUNKS = 1024;

    private static final int TILE = 4 * CudaKernel.BLOCK;

    /** Digits of a magnitude, from the highest, by the bits above and below each. */
    private static final int[] BOUNDS = {31, 20, 10, 0};

    private final CudaCompute compute;
    private final CudaKernel clear;
    private final CudaKernel histogram;
    private final CudaKernel digit;
    private final CudaKernel count;
    private final CudaKernel offsets;
    private final CudaKernel move;
    private final CudaKernel add;
    private final CudaKernel normalize;
    private final CudaKernel orthonormalize;
    private final CudaKernel findZero;
    private final CudaKernel redraw;

    CudaCompression(CudaCompute compute) {
        this.compute = compute;
        clear = compute.kernel("fill_u32");
        histogram = compute.kernel("select_histogram");
        digit = compute.kernel("select_digit");
        count = compute.kernel("select_count");
        offsets = compute.kernel("select_offsets");
        move = compute.kernel("select_move");
        add = compute.kernel("add_selection");
        normalize = compute.kernel("normalize");
        orthonormalize = compute.kernel("orthonormalize");
        findZero = compute.kernel("find_zero_columns");
        redraw = compute.kernel("redraw_zero_columns");
    }

    @Override
    public void selectLargest(Buffer x, Buffer selection, Buffer scratch, Stream stream) {
        CudaStream s = compute.on(stream);
        long n = x.count();
        long k = selection.count() / 2;
        clear.launch()
                .put(scratch)
                .put(0)
                .put((long) SELECTION_SCRATCH)
                .run(s, compute.blocks(SELECTION_SCRATCH));
        for (int i = 0; i + 1 < BOUNDS.length; i++) {
            int above = BOUNDS[i];
            int below = BOUNDS[i + 1];
            histogram
                    .launch()
                    .put(x)
                    .put(n)
                    .put(above)
                    .put(below)
                    .put(scratch)
                    .run(s, compute.blocks(n));
            digit.launch().put(scratch).put(i == 0 ? (int) k : 0).put(above - below).run(s, 1);
        }
        // Whole tiles, the same on every GPU.
        long tiles = (n + TILE - 1) / TILE;
        long chunk = (tiles + CHUNKS - 1) / CHUNKS * TILE;
        int chunks = (int) ((n + chunk - 1) / chunk);
        int blocks = compute.blocksOf(chunks);
        count.launch().put(x).put(n).put(chunk).put(scratch).run(s, blocks);
        offsets.launch().put(scratch).put(chunks).run(s, 1);
        move.launch().put(x).put(n).put(chunk).put(scratch).put(selection).put(k).run(s, blocks);
    }

    @Override
    public void addSelection(Buffer selection, Buffer target, Stream stream) {
        long k = selection.count() / 2;
        add.launch()
                .put(selection)
                .put(k)
                .put(target)
                .put(target.count())
                .run(compute.on(stream), compute.blocks(k));
    }

    private static KernelLaunch launch(CudaKernel kernel, ThinMatrices matrices) {
        return kernel.launch()
                .put(matrices.elements())
                .put(matrices.table())
                .put((long) matrices.shapes().size());
    }

    @Override
    public void normalize(ThinMatrices matrices, Stream stream) {
        launch(normalize, matrices).run(compute.on(stream), compute.blocksOf(matrices.columns()));
    }

    @Override
    public void orthonormalize(ThinMatrices matrices, Stream stream) {
        launch(orthonormalize, matrices)
                .run(compute.on(stream), compute.blocksOf(matrices.shapes().size()));
    }

    @Override
    public void redrawZeroColumns(ThinMatrices matrices, Buffer drawn, long seed, Stream stream) {
        CudaStream s = compute.on(stream);
        launch(findZero, matrices)
                .put(matrices.zero())
                .run(s, compute.blocksOf(matrices.columns()));
        launch(redraw, matrices).put(matrices.zero()).put(seed).put(drawn).run(s, 1);
    }
}
