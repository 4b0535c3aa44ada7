package io.jccl.topology.read;

import io.jccl.topology.LinkModel;
import io.jccl.topology.Source;
import io.jccl.topology.read.NvlinkStatus.GpuLinks;
import java.util.List;
import java.util.function.Consumer;
import org.jspecify.annotations.Nullable;

/**
 * The generation of each GPU of a path matrix, and what follows from it: compute capability, number
 * of NVLinks, bandwidth of one. Thread-safe once made.
 */
final class GpuGenerations {
    private final PathMatrix matrix;
    private final ReadOptions options;
    private final Consumer<String> warnings;
    private final int gpus;
    private final int[] sm;
    private final int[] maxLinks;
    private final double[] c2c;
    private Source source = Source.DEFAULT;

    GpuGenerations(
            PathMatrix matrix,
            ReadOptions options,
            List<List<Integer>> fabrics,
            Consumer<String> warnings) {
        this.matrix = matrix;
        this.options = options;
        this.warnings = warnings;
        gpus = matrix.gpus().size();
        sm = new int[gpus];
        maxLinks = new int[gpus];
        c2c = new double[gpus];
        determine(fabrics);
    }

    /** Compute capability times ten; 0 if not known. */
    int sm(int gpu) {
        return sm[gpu];
    }

    /** Compute capability of the newest GPU; 0 if none is known. */
    int newestSm() {
        int newest = 0;
        for (int s : sm) {
            newest = Math.max(newest, s);
        }
        return newest;
    }

    /** Where the compute capabilities come from. */
    Source source() {
        return source;
    }

    /** The most NVLinks that such a GPU has. */
    int maxLinks(int gpu) {
        return maxLinks[gpu];
    }

    /** Bandwidth of its NVLink-C2C to the CPU in GB/s; 0 if it has none. */
    double c2c(int gpu) {
        return c2c[gpu];
    }

    @Nullable GpuLinks status(int gpu) {
        NvlinkStatus status = options.nvlinks();
        return status == null ? null : status.gpu(matrix.gpus().get(gpu).index()).orElse(null);
    }

    @Nullable String model(int gpu) {
        if (options.gpuModel() != null) {
            return options.gpuModel();
        }
        GpuLinks links = status(gpu);
        return links == null || links.model().isEmpty() ? null : links.model();
    }

    /**
     * Determines generations from the options, from nvidia-smi nvlink -s, or from the number of
     * links.
     *
     * @param fabrics sets of GPUs that NVLinks join
     */
    private void determine(List<List<Integer>> fabrics) {
        GpuModels.Model given = GpuModels.given(options);
        boolean all = true;
        for (int i = 0; i < gpus; i++) {
            maxLinks[i] = GpuModels.MAX_LINKS;
            String model = model(i);
            GpuModels.Model found = model == null ? null : GpuModels.find(model).orElse(null);
            GpuLinks links = status(i);
            if (found != null) {
                sm[i] = found.sm();
                maxLinks[i] = found.links();
                c2c[i] = found.c2c();
            } else if (links != null) {
                sm[i] = GpuModels.smOfRate(links.rawGbps());
                if (model != null) {
                    warnings.accept(
                            "the model '" + model + "' of GPU " + links.index() + " is not known");
                }
            }
            all &= sm[i] > 0;
        }
        if (all && gpus > 0) {
            source = given != null ? Source.USER : Source.GPU_MODEL;
            return;
        }
        guess(fabrics);
    }

    private void guess(List<List<Integer>> fabrics) {
        int smallest = Integer.MAX_VALUE;
        int largest = 0;
        int group = 0;
        for (List<Integer> fabric : fabrics) {
            group = Math.max(group, fabric.size());
            for (int x : fabric) {
                for (int y : fabric) {
                    int links = x == y ? 0 : GpuModels.links(matrix.code(x, y));
                    if (links > 0) {
                        smallest = Math.min(smallest, links);
                        largest = Math.max(largest, links);
                    }
                }
            }
        }
        GpuModels.Guess guess = largest == 0 ? null : GpuModels.guess(smallest, largest, group);
        String what = smallest == largest ? "NV" + largest : "NV" + smallest + " to NV" + largest;
        String how =
                "give the model of the GPUs (--gpu-model), or add the output of nvidia-smi nvlink -s";
        if (guess == null) {
            warnings.accept(
                    "the GPU generation is not known"
                            + (largest > 0 ? " (" + what + " fits none that is known)" : "")
                            + ": bandwidths are conservative defaults; "
                            + how);
            return;
        }
        warnings.accept(
                "the GPU generation is a guess: %s fits %s; compute capability %s.%s is taken; %s"
                        .formatted(what, guess.who(), guess.sm() / 10, guess.sm() % 10, how));
        for (int i = 0; i < gpus; i++) {
            if (sm[i] == 0) {
                sm[i] = guess.sm();
                maxLinks[i] = guess.links();
            }
        }
    }

    /** Raw rate of a link in GB/s according to nvidia-smi nvlink -s; 0 if not known. */
    double raw(int gpu) {
        GpuLinks links = status(gpu);
        return links == null ? 0 : links.rawGbps();
    }

    /** Bandwidth of one NVLink in GB/s. */
    double perLink(int gpu) {
        double gbps = LinkModel.nvlink(sm[gpu]);
        return raw(gpu) > 0 ? gbps * GpuModels.speed(sm[gpu], raw(gpu)) : gbps;
    }
}
