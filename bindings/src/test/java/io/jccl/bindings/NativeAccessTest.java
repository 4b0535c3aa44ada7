package io.jccl.bindings;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.bindings.internal.ForeignMemory;
import java.lang.classfile.ClassFile;
import java.lang.constant.ClassDesc;
import java.lang.constant.ConstantDescs;
import java.lang.constant.MethodTypeDesc;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import org.junit.jupiter.api.Test;

/** The tests run as a careful user runs the library: this module may call native code, no other. */
class NativeAccessTest {
    private static final class Loader extends ClassLoader {
        Loader() {
            super(NativeAccessTest.class.getClassLoader());
        }

        Class<?> define(byte[] file) {
            return defineClass(null, file, 0, file.length);
        }
    }

    @Test
    void thisModuleHasNativeAccess() {
        Module module = Binder.class.getModule();
        assertEquals("io.jccl.bindings", module.getName());
        assertTrue(module.isNativeAccessEnabled());
        assertEquals(0, ForeignMemory.at(0, 8).address());
    }

    /** By a class that is made here, in a module of its own loader that nobody named. */
    @Test
    void otherModulesAreRefused() throws ReflectiveOperationException {
        Method call = restrictedCall();
        assertFalse(call.getDeclaringClass().getModule().isNativeAccessEnabled());
        InvocationTargetException thrown =
                assertThrows(
                        InvocationTargetException.class,
                        () -> call.invoke(null, MemorySegment.NULL));
        IllegalCallerException refusal =
                assertInstanceOf(IllegalCallerException.class, thrown.getCause());
        assertTrue(
                String.valueOf(refusal.getMessage()).contains("--illegal-native-access")
                        || String.valueOf(refusal.getMessage()).contains("native access"),
                refusal::toString);
    }

    /** {@code static MemorySegment widen(MemorySegment s) { return s.reinterpret(8); }} */
    private static Method restrictedCall() throws ReflectiveOperationException {
        ClassDesc segment = MemorySegment.class.describeConstable().orElseThrow();
        byte[] file =
                ClassFile.of()
                        .build(
                                ClassDesc.of("elsewhere.Restricted"),
                                c -> {
                                    c.withFlags(ClassFile.ACC_PUBLIC);
                                    c.withMethodBody(
                                            "widen",
                                            MethodTypeDesc.of(segment, segment),
                                            ClassFile.ACC_PUBLIC | ClassFile.ACC_STATIC,
                                            code ->
                                                    code.aload(0)
                                                            .loadConstant(
                                                                    ValueLayout.JAVA_LONG
                                                                            .byteSize())
                                                            .invokeinterface(
                                                                    segment,
                                                                    "reinterpret",
                                                                    MethodTypeDesc.of(
                                                                            segment,
                                                                            ConstantDescs.CD_long))
                                                            .areturn());
                                });
        return new Loader().define(file).getMethod("widen", MemorySegment.class);
    }
}
