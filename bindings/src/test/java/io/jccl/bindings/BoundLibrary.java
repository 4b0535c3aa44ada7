package io.jccl.bindings;

import io.jccl.bindings.generated.cublas.cublas_h;
import io.jccl.bindings.generated.cuda.cuda_h;
import io.jccl.bindings.generated.cudart.cudart_h;
import io.jccl.bindings.generated.mpi.mpi_h;
import io.jccl.bindings.generated.nccl.nccl_h;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.MemoryLayout;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.lang.reflect.Parameter;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.jspecify.annotations.Nullable;

/** The libraries: what is bound of each, read from the compiled classes. */
enum BoundLibrary {
    NCCL(NcclApi.class, nccl_h.class, Need.NCCL, "nccl.h", List.of("NCCL_VERSION_CODE")),
    CUDART(
            CudaApi.class,
            cudart_h.class,
            Need.CUDART,
            "cuda_runtime_api.h",
            List.of("CUDART_VERSION")),
    /** Its header comes with the CUDA runtime's. */
    CUDA(CudaDriverApi.class, cuda_h.class, Need.CUDART, "cuda.h", List.of("CUDA_VERSION")),
    CUBLAS(CublasApi.class, cublas_h.class, Need.CUBLAS, "cublas_v2.h", List.of("CUBLAS_VERSION")),
    /** Its binary interface is the same in all releases of 4.1. */
    MPI(
            MpiApi.class,
            mpi_h.class,
            Need.MPI,
            "mpi.h",
            List.of("OMPI_MAJOR_VERSION", "OMPI_MINOR_VERSION"));

    /**
     * A C function of a call table.
     *
     * @param library the table's
     * @param method in the table
     */
    record Function(BoundLibrary library, Method method) {
        String symbol() {
            return Binder.symbol(method);
        }

        boolean isObject() {
            Symbol symbol = method.getAnnotation(Symbol.class);
            return symbol != null && symbol.address();
        }

        @Override
        public String toString() {
            return method.getName();
        }
    }

    private static final String DESCRIPTOR = "$descriptor";

    private final Class<? extends NativeApi> api;
    private final Class<?> header;
    private final Need need;
    private final String include;
    private final List<String> versionMacros;

    /** By symbol; read once, because reflection copies thousands of methods for each question. */
    private @Nullable Map<String, List<String>> parameters;

    private @Nullable List<Class<?>> invokers;

    BoundLibrary(
            Class<? extends NativeApi> api,
            Class<?> header,
            Need need,
            String include,
            List<String> versionMacros) {
        this.api = api;
        this.header = header;
        this.need = need;
        this.include = include;
        this.versionMacros = versionMacros;
    }

    Class<? extends NativeApi> api() {
        return api;
    }

    Need need() {
        return need;
    }

    /** The C header, such as {@code nccl.h}. */
    String include() {
        return include;
    }

    /** The macros that have to be equal for the header to be the one that is bound. */
    List<String> versionMacros() {
        return versionMacros;
    }

    /** The functions of the call table, without predefined objects. */
    Stream<Function> functions() {
        return table().filter(function -> !function.isObject());
    }

    /** The predefined objects of the call table. */
    Stream<Function> objects() {
        return table().filter(Function::isObject);
    }

    private Stream<Function> table() {
        return Binder.functions(api).values().stream()
                .sorted(Comparator.comparing(Method::getName))
                .map(method -> new Function(this, method));
    }

    /** The symbols of all functions that jextract generated. */
    Set<String> generatedFunctions() {
        return Stream.concat(
                        Arrays.stream(header.getMethods())
                                .map(Method::getName)
                                .filter(name -> name.endsWith(DESCRIPTOR))
                                .map(name -> name.substring(0, name.indexOf('$'))),
                        invokers().map(Class::getSimpleName))
                .collect(Collectors.toUnmodifiableSet());
    }

    /** The generated signature; the symbol has to be in a library that this class loader loaded. */
    FunctionDescriptor generated(String symbol) throws ReflectiveOperationException {
        Optional<Class<?>> invoker =
                invokers().filter(type -> type.getSimpleName().equals(symbol)).findFirst();
        if (invoker.isPresent()) {
            Field field = invoker.get().getDeclaredField("BASE_DESC");
            field.setAccessible(true);
            return (FunctionDescriptor) field.get(null);
        }
        return (FunctionDescriptor) header.getMethod(symbol + DESCRIPTOR).invoke(null);
    }

    /** The names of a function's parameters in the header. */
    List<String> generatedParameters(String symbol) {
        Map<String, List<String>> all = parameters;
        if (all == null) {
            all =
                    Arrays.stream(header.getMethods())
                            .collect(
                                    Collectors.groupingBy(
                                            Method::getName,
                                            Collectors.flatMapping(
                                                    method ->
                                                            Arrays.stream(method.getParameters())
                                                                    .map(Parameter::getName),
                                                    Collectors.toList())));
            parameters = all;
        }
        return all.getOrDefault(symbol, List.of());
    }

    /** What jextract makes of {@code f()}: C says nothing of its parameters. */
    private Stream<Class<?>> invokers() {
        List<Class<?>> all = invokers;
        if (all == null) {
            all =
                    Arrays.stream(header.getClasses())
                            .filter(type -> hasMethod(type, "descriptor"))
                            .toList();
            invokers = all;
        }
        return all.stream();
    }

    /** Enum constants and macros: static methods without arguments that are no functions. */
    Stream<Method> constants() {
        Set<String> functions = generatedFunctions();
        return Arrays.stream(header.getMethods())
                .filter(method -> Modifier.isStatic(method.getModifiers()))
                .filter(method -> method.getParameterCount() == 0)
                .filter(method -> method.getName().indexOf('$') < 0)
                .filter(method -> !functions.contains(method.getName()))
                .sorted(Comparator.comparing(Method::getName));
    }

    /** The value of a constant, as text. */
    String constant(String name) {
        try {
            return String.valueOf(header.getMethod(name).invoke(null));
        } catch (ReflectiveOperationException e) {
            throw new LinkageError(name, e);
        }
    }

    /** Typedefs of numbers and pointers. */
    Stream<Field> typedefs() {
        return Arrays.stream(header.getDeclaredFields())
                .filter(field -> Modifier.isPublic(field.getModifiers()))
                .filter(field -> MemoryLayout.class.isAssignableFrom(field.getType()))
                .sorted(Comparator.comparing(Field::getName));
    }

    /** Structs, and typedefs of structs: they extend them. */
    Stream<Class<?>> structs() {
        try (Stream<Path> files = Files.list(Path.of(ChildJvm.rootOf(header), packagePath()))) {
            return files
                    .map(file -> file.getFileName().toString())
                    .filter(name -> name.endsWith(".class") && name.indexOf('$') < 0)
                    .map(name -> name.substring(0, name.lastIndexOf('.')))
                    .sorted()
                    .<Class<?>>map(this::type)
                    .filter(type -> hasMethod(type, "layout"))
                    .toList()
                    .stream();
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    private String packagePath() {
        return header.getPackageName().replace('.', '/');
    }

    private Class<?> type(String name) {
        try {
            return Class.forName(header.getPackageName() + "." + name);
        } catch (ClassNotFoundException e) {
            throw new LinkageError(name, e);
        }
    }

    private static boolean hasMethod(Class<?> type, String name) {
        return Arrays.stream(type.getMethods())
                .anyMatch(m -> m.getName().equals(name) && m.getParameterCount() == 0);
    }
}
