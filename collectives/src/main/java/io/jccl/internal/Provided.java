package io.jccl.internal;

import java.util.ServiceLoader;

/**
 * Finds the single implementation of an interface whose package must not depend on it. It is
 * declared twice, in the module descriptor and in {@code META-INF/services}, for module path and
 * class path.
 */
public final class Provided {
    private Provided() {}

    /**
     * Creates the implementation that this jar contains.
     *
     * @param <T> the interface
     * @param service the interface
     * @return a new object
     */
    public static <T> T by(Class<T> service) {
        return ServiceLoader.load(service, service.getClassLoader())
                .findFirst()
                .orElseThrow(() ->
                        new LinkageError(
                                ("no implementation of %s: a jar made of several needs the files"
                                                + " of all their META-INF/services")
                                        .formatted(service.getName())));
    }
}
