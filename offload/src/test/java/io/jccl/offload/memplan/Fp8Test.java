package io.jccl.offload.memplan;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.offload.memplan.Traffic.Kind;
import io.jccl.offload.timeplan.Hardware;
import io.jccl.offload.timeplan.StepTime;
import io.jccl.offload.timeplan.TimePlanner;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Plans whose products are in 8-bit floats. */
class Fp8Test {
    private static final Machine NODE = new Machine(8, 80L << 30, 1L << 41, 0, 1);

    private static Job job(String model, Machine machine) {
        return Job.of(Presets.of(model), machine).with(Precision.BF16);
    }

    private static Usage device(Job job) {
        return MemoryPlanner.plan(job, Techniques.PLAIN).device();
    }

    /**
     * A byte less for each input of a matrix: of queries, keys and values, of the MLP, and of its
     * last matrix. The attention's output is needed twice: in full for its own backward pass, and
     * narrowed for the matrix that follows.
     */
    @Test
    void inputsOfMatricesAreKeptNarrowed() {
        Job job = job("llama3-8b", NODE);
        Model m = job.model();
        double elements = 2.0 * m.hidden() + m.mlp().width() - m.hidden();
        double bytes = elements * m.sequence() * m.layers();
        Usage wide = device(job);
        Usage narrow = device(job.with(Precision.FP8));
        assertEquals(bytes, (double) (wide.activations() - narrow.activations()), 16);
        assertEquals(wide.parameters(), narrow.parameters());
        assertEquals(wide.gradients(), narrow.gradients());
        assertEquals(wide.optimizer(), narrow.optimizer());
    }

    /** Mixtral sends each token to two experts: their inputs and those of their last matrices. */
    @Test
    void inputsOfExpertsAreKeptNarrowed() {
        Job job = job("mixtral-8x7b", NODE);
        Model m = job.model();
        double h = m.hidden();
        double elements = 2 * h + 2 * (h + 14_336) - h;
        long kept = device(job).activations() - device(job.with(Precision.FP8)).activations();
        assertEquals(elements * m.sequence() * m.layers(), (double) kept, 16);
    }

    /** By rows and by columns beside the parameter, but for Megatron, which stores them alone. */
    @Test
    void narrowedWeightsAreCounted() {
        Job job = job("llama3-8b", NODE);
        double inLayers = job.model().layerParameters() * job.model().layers();
        Usage wide = device(job);
        Usage narrow = device(job.with(Precision.FP8));
        double more = (double) narrow.temporary() - wide.temporary();
        assertEquals(2 * inLayers, more, 16);
        Job megatron = job.with(TrainingSystem.MEGATRON);
        long before = device(megatron).total() - wide.activations() + narrow.activations();
        assertEquals(before, device(megatron.with(Precision.FP8)).total());
    }

    /** What goes to the experts is narrowed, what comes back is not. */
    @Test
    void tokensTravelNarrowedOneWay() {
        Techniques t = Techniques.PLAIN.withSplit(new ModelParallel(1, true, 1, 1, 1, 8));
        Job job = job("mixtral-8x7b", NODE);
        double wide = exchanged(MemoryPlanner.plan(job, t));
        assertEquals(0.75 * wide, exchanged(MemoryPlanner.plan(job.with(Precision.FP8), t)), 2);
    }

    private static double exchanged(Plan plan) {
        return plan.traffic().stream()
                .filter(x -> x.kind() == Kind.ALL_TO_ALL)
                .mapToLong(Traffic::bytes)
                .sum();
    }

    private static StepTime step(Job job, Techniques t, String machine) {
        return TimePlanner.predict(
                MemoryPlanner.plan(job, t), Hardware.named(machine, Hardware.Given.NONE), true);
    }

    /** Of eight experts at random on two machines, 2 (1 - 1/2^8) machines are met. */
    @Test
    void aTokenCrossesToAMachineOnce() {
        Techniques t = Techniques.PLAIN.withSplit(new ModelParallel(1, true, 1, 1, 1, 16));
        Job job = job("qwen3-30b-a3b", new Machine(8, 80L << 30, 1L << 41, 0, 2));
        double each = exchange(step(job, t, "H100x8"));
        double once = exchange(step(job.with(TrainingSystem.MEGATRON), t, "H100x8"));
        assertEquals(2 * (1 - Math.pow(0.5, 8)) / 8, once / each, 1e-9);
    }

    private static double exchange(StepTime time) {
        return time.moved().stream()
                .filter(x -> x.traffic().kind() == Kind.ALL_TO_ALL)
                .mapToDouble(StepTime.Moved::seconds)
                .sum();
    }

    /** The first exchange and what interference takes is waited for, no more. */
    @Test
    void megatronExchangesBehindCompute() {
        Techniques t = Techniques.PLAIN.withSplit(new ModelParallel(8, true, 1, 1, 1, 1));
        Job job = job("llama3-70b", NODE);
        StepTime waits = step(job, t, "H100x8");
        StepTime hides = step(job.with(TrainingSystem.MEGATRON), t, "H100x8");
        assertEquals(0, waits.hidden(), 1e-12);
        assertTrue(hides.hidden() > 0.5 * waits.exposed(), () -> hides + " of " + waits);
    }

    @Test
    void productsAreFasterAndNothingElse() {
        Job job = job("llama3-8b", NODE);
        StepTime wide = step(job, Techniques.PLAIN, "H100x8");
        StepTime narrow = step(job.with(Precision.FP8), Techniques.PLAIN, "H100x8");
        assertTrue(narrow.compute() < wide.compute());
        assertEquals(wide.update(), narrow.update(), 1e-12);
        // Utilisation is stated against what the hardware has for 8-bit floats.
        assertEquals(1979, narrow.peak());
    }

    @ParameterizedTest
    @ValueSource(strings = {"A100x8", "V100x8"})
    void hardwareWithoutIsRefused(String machine) {
        Job job = job("llama3-8b", NODE).with(Precision.FP8);
        var error =
                assertThrows(
                        IllegalArgumentException.class, () -> step(job, Techniques.PLAIN, machine));
        String other = machine.startsWith("A") ? "bf16" : "fp16 or fp32";
        assertEquals(
                machine.replace("x8", "") + " has no fp8 in hardware; give --precision " + other,
                error.getMessage());
    }

    /** The kernels for Hopper keep the same and are faster there; older GPUs run the others. */
    @Test
    void flash3IsFasterOnHopperAlone() {
        Job flash = job("llama3-8b", NODE);
        Job flash3 = flash.with(AttentionKernel.FLASH3);
        assertEquals(device(flash), device(flash3));
        assertTrue(
                step(flash3, Techniques.PLAIN, "H100x8").seconds()
                        < step(flash, Techniques.PLAIN, "H100x8").seconds());
        assertEquals(
                step(flash, Techniques.PLAIN, "A100x8").seconds(),
                step(flash3, Techniques.PLAIN, "A100x8").seconds());
    }
}
