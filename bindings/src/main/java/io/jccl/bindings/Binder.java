package io.jccl.bindings;

import java.lang.classfile.ClassFile;
import java.lang.classfile.CodeBuilder;
import java.lang.classfile.TypeKind;
import java.lang.constant.ClassDesc;
import java.lang.constant.ConstantDescs;
import java.lang.constant.DirectMethodHandleDesc;
import java.lang.constant.DynamicConstantDesc;
import java.lang.constant.MethodTypeDesc;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemoryLayout;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.SymbolLookup;
import java.lang.foreign.ValueLayout;
import java.lang.invoke.MethodHandle;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.MethodHandles.Lookup;
import java.lang.invoke.MethodType;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.lang.reflect.Parameter;
import java.util.Arrays;
import java.util.Map;
import java.util.Optional;
import java.util.function.Function;
import java.util.stream.Collectors;
import org.jspecify.annotations.Nullable;

/**
 * Creates call tables: implements an interface of C functions by a class in which each method is
 * one {@code invokeExact} on a constant handle.
 *
 * <p>The class is generated at run time, since written by hand it would be the same four lines some
 * three hundred times. Its handles are dynamic constants: the compiler treats them like {@code
 * static final} fields, but each is linked when its method first runs. Functions that are not
 * called therefore cost nothing, and a function missing in an old library does not affect the
 * others.
 *
 * <p>Java types map to C types as follows; a test compares every signature with jextract's:
 *
 * <ul>
 *   <li>{@code int}: {@code int}, {@code unsigned}, every enum;
 *   <li>{@code long}: {@code size_t}, 64-bit integers, opaque handles, and addresses that Java
 *       never dereferences (device memory, message buffers);
 *   <li>{@code float}, {@code double}: themselves;
 *   <li>{@code MemorySegment}: a pointer to host memory that the function reads or writes, a
 *       function pointer, or, with {@link ByValue}, a struct;
 *   <li>{@code String}, as a result only: {@code const char*}, empty for null.
 * </ul>
 */
final class Binder {
    private static final Lookup LOOKUP = MethodHandles.lookup();

    private static final DirectMethodHandleDesc LINK =
            ConstantDescs.ofConstantBootstrap(
                    desc(Binder.class), "link", ConstantDescs.CD_MethodHandle);

    private static final Map<Class<?>, ValueLayout> LAYOUTS =
            Map.of(
                    int.class, ValueLayout.JAVA_INT,
                    long.class, ValueLayout.JAVA_LONG,
                    float.class, ValueLayout.JAVA_FLOAT,
                    double.class, ValueLayout.JAVA_DOUBLE,
                    MemorySegment.class, ValueLayout.ADDRESS,
                    String.class, ValueLayout.ADDRESS);

    /** The superclass of generated classes. */
    abstract static class Table implements MpiDialect {
        private final Binder binder;

        Table(Binder binder) {
            this.binder = binder;
        }

        @Override
        public final LoadedLibrary library() {
            return binder.loaded;
        }

        @Override
        public final MpiAbi abi() {
            return binder.abi;
        }

        @Override
        public final boolean supports(String function) {
            Method method = binder.functions.get(function);
            if (method == null) {
                throw new IllegalArgumentException(
                        "'%s' is not a function of %s"
                                .formatted(function, binder.api.getSimpleName()));
            }
            return binder.find(method).isPresent();
        }

        @Override
        public final String toString() {
            return binder.loaded.toString();
        }
    }

    private final Class<?> api;
    private final LoadedLibrary loaded;
    private final SymbolLookup symbols;

    /** Used only by tables of MPI. */
    private final MpiAbi abi;

    private final Map<String, Method> functions;

    private Binder(Class<?> api, LoadedLibrary loaded, SymbolLookup symbols, MpiAbi abi) {
        this.api = api;
        this.loaded = loaded;
        this.symbols = symbols;
        this.abi = abi;
        this.functions = functions(api);
    }

    /**
     * Binds an interface to a library.
     *
     * @param api an interface whose abstract methods are C functions
     * @param loaded the library
     * @param symbols its symbols
     * @return the table
     */
    static <T extends NativeApi> T bind(Class<T> api, LoadedLibrary loaded, SymbolLookup symbols) {
        return bind(api, loaded, symbols, MpiAbi.OPEN_MPI);
    }

    /**
     * Binds an interface to a library.
     *
     * @param api an interface whose abstract methods are C functions
     * @param loaded the library
     * @param symbols its symbols
     * @param abi how handles of MPI are passed, and the values of predefined ones
     * @return the table
     */
    static <T extends NativeApi> T bind(
            Class<T> api, LoadedLibrary loaded, SymbolLookup symbols, MpiAbi abi) {
        Binder binder = new Binder(api, loaded, symbols, abi);
        try {
            Lookup made = LOOKUP.defineHiddenClassWithClassData(binder.classFile(), binder, true);
            MethodType constructor = MethodType.methodType(void.class, Binder.class);
            return api.cast(made.findConstructor(made.lookupClass(), constructor).invoke(binder));
        } catch (Throwable t) {
            throw new LinkageError("cannot implement " + api.getName(), t);
        }
    }

    /**
     * The C functions of a table.
     *
     * @param api the interface
     * @return its own abstract methods by name, without inherited ones
     */
    static Map<String, Method> functions(Class<?> api) {
        return Arrays.stream(api.getMethods())
                .filter(m -> Modifier.isAbstract(m.getModifiers()))
                .filter(m -> m.getDeclaringClass() == api)
                .collect(Collectors.toUnmodifiableMap(Method::getName, Function.identity()));
    }

    /**
     * The C signature of a method.
     *
     * @param function a method of a call table
     * @return its layouts
     */
    static FunctionDescriptor descriptor(Method function) {
        return descriptor(function, MpiAbi.OPEN_MPI);
    }

    private static FunctionDescriptor descriptor(Method function, MpiAbi abi) {
        MemoryLayout[] arguments =
                Arrays.stream(function.getParameters())
                        .map(parameter ->
                                abi.handleBytes() == Integer.BYTES
                                                && parameter.isAnnotationPresent(Handle.class)
                                        ? ValueLayout.JAVA_INT
                                        : layout(parameter))
                        .toArray(MemoryLayout[]::new);
        Class<?> result = function.getReturnType();
        return result == void.class
                ? FunctionDescriptor.ofVoid(arguments)
                : FunctionDescriptor.of(layout(function, result), arguments);
    }

    /**
     * The symbol of a method.
     *
     * @param function a method of a call table
     * @return its name in the library
     */
    static String symbol(Method function) {
        Symbol symbol = function.getAnnotation(Symbol.class);
        return symbol == null ? function.getName() : symbol.value();
    }

    private static MemoryLayout layout(Parameter parameter) {
        ByValue struct = parameter.getAnnotation(ByValue.class);
        if (struct == null) {
            return layout(parameter.getDeclaringExecutable(), parameter.getType());
        }
        try {
            return (MemoryLayout) struct.value().getMethod("layout").invoke(null);
        } catch (ReflectiveOperationException e) {
            throw new LinkageError(struct.value() + " is not a generated struct", e);
        }
    }

    private static ValueLayout layout(Object function, Class<?> type) {
        @Nullable ValueLayout layout = LAYOUTS.get(type);
        if (layout == null) {
            throw new AssertionError(function + ": " + type + " does not map to a C type");
        }
        return layout;
    }

    private byte[] classFile() {
        ClassDesc table = desc(Table.class);
        MethodTypeDesc constructor = MethodTypeDesc.of(ConstantDescs.CD_void, desc(Binder.class));
        ClassDesc made = ClassDesc.of(Binder.class.getPackageName(), "Ffm" + api.getSimpleName());
        return ClassFile.of()
                .build(
                        made,
                        c -> {
                            c.withFlags(ClassFile.ACC_FINAL | ClassFile.ACC_SYNTHETIC);
                            c.withSuperclass(table);
                            c.withInterfaceSymbols(desc(api));
                            c.withMethodBody(
                                    ConstantDescs.INIT_NAME,
                                    constructor,
                                    0,
                                    code ->
                                            code.aload(0)
                                                    .aload(1)
                                                    .invokespecial(
                                                            table,
                                                            ConstantDescs.INIT_NAME,
                                                            constructor)
                                                    .return_());
                            functions.forEach((name, function) -> {
                                MethodTypeDesc type = desc(function);
                                c.withMethodBody(
                                        name,
                                        type,
                                        ClassFile.ACC_PUBLIC | ClassFile.ACC_FINAL,
                                        code -> call(code, name, type));
                            });
                        });
    }

    private static void call(CodeBuilder code, String name, MethodTypeDesc type) {
        code.ldc(DynamicConstantDesc.ofNamed(LINK, name, ConstantDescs.CD_MethodHandle));
        for (int i = 0; i < type.parameterCount(); i++) {
            code.loadLocal(TypeKind.from(type.parameterType(i)), code.parameterSlot(i));
        }
        code.invokevirtual(ConstantDescs.CD_MethodHandle, "invokeExact", type)
                .return_(TypeKind.from(type.returnType()));
    }

    /** Bootstrap of the handles: called once for each function that is ever called. */
    @SuppressWarnings("unused")
    static MethodHandle link(Lookup made, String name, Class<?> type)
            throws IllegalAccessException {
        Binder binder = MethodHandles.classData(made, ConstantDescs.DEFAULT_NAME, Binder.class);
        Method function = binder.functions.get(name);
        if (function == null) {
            throw new AssertionError(name);
        }
        return binder.link(function);
    }

    private MethodHandle link(Method function) {
        MethodType type =
                MethodType.methodType(function.getReturnType(), function.getParameterTypes());
        Optional<MemorySegment> address = find(function);
        if (address.isEmpty()) {
            return refusing(type, missing(function));
        }
        if (isObject(function)) {
            return MethodHandles.constant(long.class, address.get().address());
        }
        MethodHandle handle =
                Linker.nativeLinker().downcallHandle(address.get(), descriptor(function, abi));
        if (!type.returnType().equals(String.class)) {
            // Handles that are ints in C are longs here.
            handle = MethodHandles.explicitCastArguments(handle, type);
        }
        return type.returnType() == String.class
                ? MethodHandles.filterReturnValue(handle, method("string", MemorySegment.class))
                : handle;
    }

    private static boolean isObject(Method function) {
        Symbol symbol = function.getAnnotation(Symbol.class);
        return symbol != null && symbol.address();
    }

    private Optional<MemorySegment> find(Method function) {
        if (isObject(function) && !abi.isSymbol(function.getName())) {
            return Optional.of(MemorySegment.ofAddress(abi.constant(function.getName())));
        }
        Since since = function.getAnnotation(Since.class);
        return since != null && !loaded.version().atLeast(Version.of(since.value()))
                ? Optional.empty()
                : symbols.find(symbol(function));
    }

    private String missing(Method function) {
        Since since = function.getAnnotation(Since.class);
        String library = loaded.library().title();
        if (symbols instanceof DriverSymbols driver) {
            return driver.whyNot(symbol(function));
        }
        return since != null && !loaded.version().atLeast(Version.of(since.value()))
                ? "%s needs %s %s, loaded %s from %s"
                        .formatted(
                                function.getName(),
                                library,
                                since.value(),
                                loaded.version(),
                                loaded.path())
                : "%s is missing in %s %s from %s: the library was built without it"
                        .formatted(function.getName(), library, loaded.version(), loaded.path());
    }

    /** A handle that throws a new exception at every call. */
    private static MethodHandle refusing(MethodType type, String message) {
        MethodHandle thrower =
                MethodHandles.throwException(
                        type.returnType(), UnsupportedOperationException.class);
        MethodHandle maker = method("refusal", String.class).bindTo(message);
        return MethodHandles.dropArguments(
                MethodHandles.foldArguments(thrower, maker), 0, type.parameterList());
    }

    @SuppressWarnings("unused")
    private static UnsupportedOperationException refusal(String message) {
        return new UnsupportedOperationException(message);
    }

    @SuppressWarnings("unused")
    private static String string(MemorySegment text) {
        return text.address() == 0 ? "" : text.reinterpret(Long.MAX_VALUE).getString(0);
    }

    private static MethodHandle method(String name, Class<?> parameter) {
        try {
            Class<?> result = Binder.class.getDeclaredMethod(name, parameter).getReturnType();
            return LOOKUP.findStatic(Binder.class, name, MethodType.methodType(result, parameter));
        } catch (ReflectiveOperationException e) {
            throw new LinkageError(name, e);
        }
    }

    private static ClassDesc desc(Class<?> type) {
        return type.describeConstable().orElseThrow();
    }

    private static MethodTypeDesc desc(Method method) {
        return MethodType.methodType(method.getReturnType(), method.getParameterTypes())
                .describeConstable()
                .orElseThrow();
    }
}
