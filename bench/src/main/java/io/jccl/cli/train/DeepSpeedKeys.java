package io.jccl.cli.train;

import java.util.List;
import java.util.Set;

/** Keys of DeepSpeed's configuration that a training run may have, whatever their value. */
final class DeepSpeedKeys {
    static final String ZERO = "zero_optimization.";

    /** Keys that change nothing of the result: how it is computed, or what is printed. */
    static final Set<String> WITHOUT_EFFECT =
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
    static final List<String> SECTIONS_WITHOUT_EFFECT =
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
}
