package io.jccl.engine.nccl;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.ReduceOp;
import io.jccl.bindings.generated.nccl.nccl_h;
import io.jccl.device.DataType;
import java.util.HashSet;
import java.util.Locale;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** Types and operations have the numbers that nccl.h gives the names. */
class NcclCodesTest {
    private static final Map<ReduceOp.Kind, ReduceOp> OPS =
            Map.of(
                    ReduceOp.Kind.SUM, ReduceOp.SUM,
                    ReduceOp.Kind.PROD, ReduceOp.PROD,
                    ReduceOp.Kind.MIN, ReduceOp.MIN,
                    ReduceOp.Kind.MAX, ReduceOp.MAX,
                    ReduceOp.Kind.AVG, ReduceOp.AVG,
                    ReduceOp.Kind.PRE_MUL_SUM, ReduceOp.preMulSum(2.0));

    private static int constant(String name) throws ReflectiveOperationException {
        return (int) nccl_h.class.getMethod(name).invoke(null);
    }

    @ParameterizedTest
    @EnumSource(DataType.class)
    void typesAreNamedAlike(DataType type) throws ReflectiveOperationException {
        String name = type.name();
        String rest = name.substring(1).toLowerCase(Locale.ROOT);
        assertEquals(constant("nccl" + name.charAt(0) + rest), NcclCodes.of(type));
        assertTrue(NcclCodes.of(type) < constant("ncclNumTypes"));
    }

    @ParameterizedTest
    @EnumSource(ReduceOp.Kind.class)
    void operationsAreNamedAlike(ReduceOp.Kind kind) throws ReflectiveOperationException {
        int code = NcclCodes.of(Objects.requireNonNull(OPS.get(kind)), 2);
        if (kind == ReduceOp.Kind.PRE_MUL_SUM) {
            assertEquals(NcclCodes.MADE, code);
        } else {
            String name = kind.name();
            String rest = name.substring(1).toLowerCase(Locale.ROOT);
            assertEquals(constant("nccl" + name.charAt(0) + rest), code);
        }
        Set<Integer> all = new HashSet<>();
        OPS.values().forEach(op -> all.add(NcclCodes.of(op, 2)));
        assertEquals(OPS.size(), all.size(), "no two are the same");
    }
}
