package io.jccl.offload.timeplan;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.topology.Gpu;
import io.jccl.topology.Source;
import java.util.Optional;
import org.jspecify.annotations.Nullable;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

class GpuTypeTest {
    @ParameterizedTest
    @CsvSource({
        "Tesla V100-SXM2-16GB, V100-16",
        "Tesla V100-SXM2-32GB, V100",
        "Tesla V100S-PCIE-32GB, V100S",
        "Tesla V100-PCIE-16GB, V100-PCIe-16",
        "Tesla V100-PCIE-32GB, V100-PCIe",
        "NVIDIA A800 80GB PCIe, A800-PCIe",
        "NVIDIA H800 PCIe, H800-PCIe",
        "NVIDIA A100-SXM4-40GB, A100-40",
        "A100-SXM4-80GB, A100",
        "NVIDIA A100-PCIE-40GB, A100-PCIe-40",
        "NVIDIA A100 80GB PCIe, A100-PCIe",
        "NVIDIA H100 80GB HBM3, H100",
        "NVIDIA H100 PCIe, H100-PCIe",
        "NVIDIA H100 NVL, H100-NVL",
        "NVIDIA GH200 480GB, GH200",
        "NVIDIA B200, B200",
        "NVIDIA L4, L4",
        "NVIDIA L40, L40",
        "NVIDIA L40S, L40S",
        "NVIDIA A10, A10",
        "NVIDIA A40, A40",
        "NVIDIA RTX A6000, A6000",
        "NVIDIA RTX 6000 Ada Generation, 6000-Ada",
        "NVIDIA GeForce RTX 3090, 3090",
        "nvidia geforce rtx 4090, 4090",
    })
    void byTheDriversName(String model, String type) {
        assertEquals(type, GpuType.ofModel(model).map(GpuType::name).orElse("none"));
        assertEquals(type, GpuType.of(gpu(model, 0)).name());
    }

    /** Other cards of a known generation have other memory or speed. */
    @ParameterizedTest
    @ValueSource(
            strings = {
                "NVIDIA A10G",
                "NVIDIA A2",
                "NVIDIA A100-SXM-64GB",
                "NVIDIA A100-SXM4-40GB MIG 1g.5gb",
                "NVIDIA GH200 144G HBM3e",
                "NVIDIA H20-3e",
                "NVIDIA H200 NVL",
                "NVIDIA H100 80GB HBM2e",
                "NVIDIA RTX A4000",
                "NVIDIA RTX A5000",
                "NVIDIA GeForce RTX 3080",
                "NVIDIA GeForce RTX 3090 Ti",
                "NVIDIA GeForce RTX 4090 Laptop GPU",
            })
    void anotherCardIsNotTaken(String model) {
        assertEquals(Optional.empty(), GpuType.ofModel(model));
        String message =
                String.valueOf(
                        assertThrows(
                                        IllegalArgumentException.class,
                                        () -> GpuType.of(gpu(model, 86)))
                                .getMessage());
        assertTrue(message.startsWith("the type of GPU0, " + model + ", is not known"), message);
        assertTrue(message.contains("--gpu-type"), message);
    }

    @Test
    void withoutANameByComputeCapability() {
        assertEquals("3090", GpuType.of(gpu(null, 86)).name());
        assertThrows(IllegalArgumentException.class, () -> GpuType.of(gpu(null, 75)));
    }

    private static Gpu gpu(@Nullable String model, int sm) {
        return new Gpu(0, "GPU0", 0, model, sm, Source.GPU_MODEL, null, null, null, null);
    }
}
