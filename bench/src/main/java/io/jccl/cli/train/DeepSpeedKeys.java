package io.jccl.cli.train;

import static java.util.Map.entry;

import java.util.List;
import java.util.Map;
import java.util.Set;
import org.jspecify.annotations.Nullable;

/** Keys of DeepSpeed's configuration that are no flags: without effect, or of one value. */
final class DeepSpeedKeys {
    static final String ZERO = "zero_optimization.";
    static final String UPDATE = "optimizer.params.";
    private static final String SCHEDULE = "scheduler.params.";

    /** For float16: how its loss scale adapts. */
    private static final Map<String, String> SCALE =
            Map.ofEntries(
                    entry("fp16.loss_scale", "0.0"),
                    entry("fp16.loss_scale_window", "2000.0"),
                    entry("fp16.hysteresis", "1.0"));

    /** Keys that must have a value, since the trainer has no flag for them: what it does. */
    private static final Map<String, String> FIXED =
            Map.ofEntries(
                    entry(UPDATE + "eps", "1.0E-8"),
                    entry(UPDATE + "amsgrad", "false"),
                    entry(UPDATE + "bias_correction", "true"),
                    entry(UPDATE + "fp32_optimizer_states", "true"),
                    entry(UPDATE + "nesterov", "false"),
                    entry(UPDATE + "dampening", "0.0"),
                    entry(UPDATE + "maximize", "false"),
                    entry(SCHEDULE + "last_batch_iteration", "-1.0"),
                    entry("fp16.fp16_master_weights_and_grads", "false"),
                    entry("bf16.bf16_master_weights_and_grads", "false"),
                    entry("bf16.bf16_optimizer_states", "false"),
                    entry(ZERO + "zero_quantized_weights", "false"),
                    entry(ZERO + "zero_quantized_gradients", "false"),
                    entry("sparse_attention", ""),
                    entry("progressive_layer_drop.enabled", "false"),
                    entry("curriculum_learning.enabled", "false"),
                    entry("compression_training", ""));

    /** Keys without which the trainer differs from DeepSpeed: both defaults. */
    static final List<Map.Entry<String, String>> OTHER_DEFAULTS =
            List.of(
                    entry("gradient_clipping", "0 here, 1.0 in DeepSpeed from 0.19.3 on"),
                    entry("fp16.loss_scale_window", "2000 here, 1000 in DeepSpeed"),
                    entry("fp16.hysteresis", "1 here, 2 in DeepSpeed"));

    /** Keys that change nothing of the result: how it is computed, or what is printed. */
    private static final Set<String> WITHOUT_EFFECT =
            Set.of(
                    ZERO + "overlap_comm",
                    ZERO + "contiguous_gradients",
                    ZERO + "reduce_scatter",
                    ZERO + "reduce_bucket_size",
                    ZERO + "allgather_partitions",
                    ZERO + "allgather_bucket_size",
                    ZERO + "round_robin_gradients",
                    ZERO + "sub_group_size",
                    ZERO + "cpu_offload_pin_memory",
                    ZERO + "stage3_max_live_parameters",
                    ZERO + "stage3_max_reuse_distance",
                    ZERO + "stage3_prefetch_bucket_size",
                    ZERO + "stage3_param_persistence_threshold",
                    ZERO + "stage3_gather_16bit_weights_on_model_save",
                    UPDATE + "set_grad_none",
                    UPDATE + "fused",
                    UPDATE + "foreach",
                    UPDATE + "capturable",
                    UPDATE + "differentiable",
                    // Of Adam's weight decay, which has to be 0; AdamW is always AdamW.
                    UPDATE + "adam_w_mode",
                    "steps_per_print",
                    "wall_clock_breakdown",
                    "memory_breakdown",
                    "dump_state",
                    "zero_allow_untested_optimizer",
                    "zero_force_ds_cpu_optimizer",
                    "prescale_gradients",
                    "gradient_predivide_factor",
                    "disable_allgather");

    /** Sections of the same kind; those of fp16 and of offload have their switch above. */
    private static final List<String> SECTIONS_WITHOUT_EFFECT =
            List.of(
                    "fp16.",
                    "aio.",
                    "activation_checkpointing.",
                    "comms_logger.",
                    "flops_profiler.",
                    "autotuning.",
                    "tensorboard.",
                    "wandb.",
                    "csv_monitor.",
                    "checkpoint.",
                    ZERO + "offload_optimizer.",
                    ZERO + "offload_param.");

    private DeepSpeedKeys() {}

    /**
     * The value that a key must have.
     *
     * @param scaled whether the run has a loss scale
     * @return null for any; empty if the key must be left out
     */
    static @Nullable String fixed(String key, boolean scaled) {
        return scaled && SCALE.containsKey(key) ? SCALE.get(key) : FIXED.get(key);
    }

    static boolean isWithoutEffect(String key) {
        return WITHOUT_EFFECT.contains(key)
                || SECTIONS_WITHOUT_EFFECT.stream().anyMatch(key::startsWith);
    }

    /** Whether a key is an argument of the optimizer or the schedule. */
    static boolean isParameter(String key) {
        return key.startsWith(UPDATE) || key.startsWith(SCHEDULE);
    }
}
