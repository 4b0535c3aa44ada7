package io.jccl.kernel;

import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.lang.invoke.MethodHandles;

/** Creates hidden copies of classes whose static finals come from class data. */
public final class Templates {
    /**
     * Whether the Vector API's incubator module was resolved when this JVM started. It is read from
     * here on; a clause in module-info would make javac warn everyone who requires this module.
     */
    public static final boolean VECTOR =
            ModuleLayer.boot()
                    .findModule("jdk.incubator.vector")
                    .map(vector -> Templates.class.getModule().addReads(vector))
                    .isPresent();

    private Templates() {}

    static <T> T copy(Class<T> type, String template, Object data) {
        try (InputStream in = Templates.class.getResourceAsStream(template + ".class")) {
            if (in == null) {
                throw new IllegalStateException(template + ".class is missing from the jar");
            }
            return type.cast(
                    MethodHandles.lookup()
                            .defineHiddenClassWithClassData(in.readAllBytes(), data, true)
                            .lookupClass()
                            .getDeclaredConstructor()
                            .newInstance());
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        } catch (ReflectiveOperationException e) {
            throw new IllegalStateException("no kernel from " + template + " for " + data, e);
        }
    }
}
