package io.jccl.bindings;

import java.lang.foreign.MemorySegment;
import java.lang.foreign.SymbolLookup;
import java.lang.foreign.ValueLayout;
import java.util.HashMap;
import java.util.Map;

/**
 * The differences between the binary interfaces of MPI libraries: the width of handles, the values
 * of constants and the layout of {@code MPI_Status}.
 *
 * <p>The values are those of three headers: {@code mpi.h} of Open MPI 4.1.4 (the same in 5.0),
 * {@code mpi.h} of MPICH 4.0.2 (the same in all libraries of the MPICH ABI Compatibility
 * Initiative, https://www.mpich.org/abi/), and {@code mpi.h} of the standard ABI 1.0 as in chapter
 * 20 of MPI 5.0 and https://github.com/mpi-forum/mpi-abi-stubs. A test compares each with the value
 * that a C compiler prints.
 */
public enum MpiAbi {
    /** Open MPI 4 and 5: handles are addresses of objects that the library exports. */
    OPEN_MPI(Long.BYTES),
    /** MPICH 3 and newer, Intel MPI, MVAPICH, Cray MPICH: handles are ints. */
    MPICH(Integer.BYTES),
    /** {@code libmpi_abi.so} of MPI 5: handles are pointers, predefined ones small numbers. */
    STANDARD(Long.BYTES);

    /** Constants by name, in the order of the enum; a dash where the library exports the object. */
    private static final String CONSTANTS =
            """
            MPI_COMM_WORLD                   -       0x44000000  0x101
            MPI_COMM_SELF                    -       0x44000001  0x102
            MPI_COMM_NULL                    -       0x4000000   0x100
            MPI_GROUP_EMPTY                  -       0x48000000  0x109
            MPI_GROUP_NULL                   -       0x8000000   0x108
            MPI_REQUEST_NULL                 -       0x2c000000  0x180
            MPI_MESSAGE_NULL                 -       0x2c000000  0x128
            MPI_MESSAGE_NO_PROC              -       0x6c000000  0x129
            MPI_INFO_NULL                    -       0x1c000000  0x130
            MPI_ERRHANDLER_NULL              -       0x14000000  0x140
            MPI_ERRORS_RETURN                -       0x54000001  0x143
            MPI_ERRORS_ARE_FATAL             -       0x54000000  0x141
            MPI_DATATYPE_NULL                -       0xc000000   0x200
            MPI_BYTE                         -       0x4c00010d  0x247
            MPI_CHAR                         -       0x4c000101  0x243
            MPI_INT8_T                       -       0x4c000137  0x240
            MPI_UINT8_T                      -       0x4c00013b  0x241
            MPI_INT16_T                      -       0x4c000238  0x248
            MPI_UINT16_T                     -       0x4c00023c  0x249
            MPI_INT32_T                      -       0x4c000439  0x250
            MPI_UINT32_T                     -       0x4c00043d  0x251
            MPI_INT64_T                      -       0x4c00083a  0x258
            MPI_UINT64_T                     -       0x4c00083e  0x259
            MPI_FLOAT                        -       0x4c00040a  0x210
            MPI_DOUBLE                       -       0x4c00080b  0x214
            MPI_C_BOOL                       -       0x4c00013f  0x238
            MPI_AINT                         -       0x4c000843  0x201
            MPI_COUNT                        -       0x4c000845  0x202
            MPI_OP_NULL                      -       0x18000000  0x20
            MPI_SUM                          -       0x58000003  0x21
            MPI_PROD                         -       0x58000004  0x24
            MPI_MIN                          -       0x58000002  0x22
            MPI_MAX                          -       0x58000001  0x23
            MPI_LAND                         -       0x58000005  0x30
            MPI_BAND                         -       0x58000006  0x28
            MPI_LOR                          -       0x58000007  0x31
            MPI_BOR                          -       0x58000008  0x29
            MPI_LXOR                         -       0x58000009  0x32
            MPI_BXOR                         -       0x5800000a  0x2a
            MPI_MINLOC                       -       0x5800000b  0x38
            MPI_MAXLOC                       -       0x5800000c  0x39
            MPI_REPLACE                      -       0x5800000d  0x3c
            MPI_NO_OP                        -       0x5800000e  0x3d
            MPI_IN_PLACE                     1       -1          1
            MPI_STATUS_IGNORE                0       1           0
            MPI_STATUSES_IGNORE              0       1           0
            MPI_THREAD_SINGLE                0       0           0
            MPI_THREAD_FUNNELED              1       1           1024
            MPI_THREAD_SERIALIZED            2       2           2048
            MPI_THREAD_MULTIPLE              3       3           4096
            MPI_ANY_SOURCE                   -1      -2          -1
            MPI_ANY_TAG                      -1      -1          -2
            MPI_PROC_NULL                    -2      -1          -3
            MPI_UNDEFINED                    -32766  -32766      -32766
            MPI_COMM_TYPE_SHARED             0       1           221
            MPI_TAG_UB                       0       1681915905  501
            MPI_IDENT                        0       0           201
            MPI_CONGRUENT                    1       1           202
            MPI_MAX_ERROR_STRING             256     512         512
            MPI_MAX_LIBRARY_VERSION_STRING   256     8192        8192
            MPI_MAX_OBJECT_NAME              64      128         128
            MPI_MAX_PROCESSOR_NAME           256     128         256
            MPI_ERR_BUFFER                   1       1           1
            MPI_ERR_COUNT                    2       2           2
            MPI_ERR_TYPE                     3       3           3
            MPI_ERR_COMM                     5       5           5
            MPI_ERR_RANK                     6       6           6
            MPI_ERR_TRUNCATE                 15      14          15
            MPI_ERR_OTHER                    16      15          16
            MPI_ERR_INTERN                   17      16          17
            MPI_ERR_IN_STATUS                18      17          19
            MPI_ERR_PENDING                  19      18          18
            MPI_ERR_NO_MEM                   39      34          39
            sizeof(MPI_Status)               24      20          32
            offsetof(MPI_Status,MPI_SOURCE)  0       8           0
            offsetof(MPI_Status,MPI_TAG)     4       12          4
            offsetof(MPI_Status,MPI_ERROR)   8       16          8
            """;

    private static final Map<String, String[]> TABLE = new HashMap<>();

    static {
        CONSTANTS
                .lines()
                .forEach(line -> {
                    String[] fields = line.strip().split(" +", -1);
                    TABLE.put(fields[0], fields);
                });
    }

    private final int handleBytes;

    MpiAbi(int handleBytes) {
        this.handleBytes = handleBytes;
    }

    /** The names with a value in the table; names of objects only where they are not symbols. */
    static java.util.Set<String> names() {
        return java.util.Collections.unmodifiableSet(TABLE.keySet());
    }

    /**
     * Whether a name denotes an object that the library exports, so that its value is an address.
     */
    boolean isSymbol(String name) {
        String[] fields = TABLE.get(name);
        return fields == null || fields[1 + ordinal()].equals("-");
    }

    private String field(String name) {
        String[] fields = TABLE.get(name);
        if (fields == null) {
            throw new IllegalArgumentException(
                    "'" + name + "' is not a constant of MPI in the table");
        }
        return fields[1 + ordinal()];
    }

    /**
     * A constant of {@code mpi.h}.
     *
     * @param name such as {@code MPI_ANY_SOURCE}, {@code sizeof(MPI_Status)} or {@code
     *     offsetof(MPI_Status,MPI_TAG)}
     * @return its value; pointers as numbers
     * @throws IllegalArgumentException if there is no such constant, or it is an object whose
     *     address only the library knows
     */
    public long constant(String name) {
        String value = field(name);
        if (value.equals("-")) {
            throw new IllegalArgumentException(name + " is an object of the library");
        }
        return Long.decode(value);
    }

    /**
     * The width of a handle in memory, such as an element of an array of requests.
     *
     * @return 4 or 8 bytes
     */
    public int handleBytes() {
        return handleBytes;
    }

    /**
     * Reads a handle that MPI has written.
     *
     * @param memory an array of handles
     * @param index its index
     * @return the handle, as the methods of {@link MpiApi} take it
     */
    public long handle(MemorySegment memory, long index) {
        return handleBytes == Long.BYTES
                ? memory.getAtIndex(ValueLayout.JAVA_LONG, index)
                : memory.getAtIndex(ValueLayout.JAVA_INT, index);
    }

    /**
     * Writes a handle for MPI to read.
     *
     * @param memory an array of handles
     * @param index its index
     * @param handle its new value
     */
    public void setHandle(MemorySegment memory, long index, long handle) {
        if (handleBytes == Long.BYTES) {
            memory.setAtIndex(ValueLayout.JAVA_LONG, index, handle);
        } else {
            memory.setAtIndex(ValueLayout.JAVA_INT, index, (int) handle);
        }
    }

    /**
     * Recognizes a loaded library, whose version is known to be one that JCCL works with.
     *
     * @param symbols its symbols
     */
    static MpiAbi of(SymbolLookup symbols) {
        // A library that also has another interface returns -1.
        if (VersionProbe.standardAbi(symbols) > 0) {
            return STANDARD;
        }
        return symbols.find("ompi_mpi_comm_world").isPresent() ? OPEN_MPI : MPICH;
    }
}
