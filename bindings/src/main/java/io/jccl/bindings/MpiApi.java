package io.jccl.bindings;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;

/**
 * The functions of MPI that JCCL uses, one to one with the standard's C binding in names, order of
 * arguments and meaning, whatever the library's binary interface ({@link #abi}).
 *
 * <p><b>Types.</b> A {@code long} is an opaque handle, the address of a message on the host, or an
 * {@code MPI_Aint}. A {@code MemorySegment} is memory that the call reads or writes, of the C type
 * in the prototype: {@code T* name} holds one {@code T}, {@code T name[]} several. Handles in
 * memory have the width {@link MpiAbi#handleBytes}; {@link MpiAbi#handle} reads them. Pass {@link
 * #statusIgnore} where a status is not needed. Arguments of a non-blocking call must live until its
 * request is complete. Constants and the layout of {@code MPI_Status} are in {@link MpiAbi}; those
 * in {@code io.jccl.bindings.generated.mpi} are valid for Open MPI only.
 *
 * <p><b>Results</b> are error codes; {@link #check} throws for all but success. By default MPI ends
 * the process instead of returning one: set {@link #MPI_ERRORS_RETURN} as the error handler of
 * every communicator.
 *
 * <p><b>Threads:</b> as {@link #MPI_Init_thread} grants.
 */
public interface MpiApi extends MpiDialect {
    // ---- predefined handles: addresses of the library's own objects

    /** {@code MPI_COMM_WORLD} */
    @Symbol(value = "ompi_mpi_comm_world", address = true)
    long MPI_COMM_WORLD();

    /** {@code MPI_COMM_SELF} */
    @Symbol(value = "ompi_mpi_comm_self", address = true)
    long MPI_COMM_SELF();

    /** {@code MPI_COMM_NULL} */
    @Symbol(value = "ompi_mpi_comm_null", address = true)
    long MPI_COMM_NULL();

    /** {@code MPI_GROUP_EMPTY} */
    @Symbol(value = "ompi_mpi_group_empty", address = true)
    long MPI_GROUP_EMPTY();

    /** {@code MPI_GROUP_NULL} */
    @Symbol(value = "ompi_mpi_group_null", address = true)
    long MPI_GROUP_NULL();

    /** {@code MPI_REQUEST_NULL} */
    @Symbol(value = "ompi_request_null", address = true)
    long MPI_REQUEST_NULL();

    /** {@code MPI_MESSAGE_NULL} */
    @Symbol(value = "ompi_message_null", address = true)
    long MPI_MESSAGE_NULL();

    /** {@code MPI_MESSAGE_NO_PROC} */
    @Symbol(value = "ompi_message_no_proc", address = true)
    long MPI_MESSAGE_NO_PROC();

    /** {@code MPI_INFO_NULL} */
    @Symbol(value = "ompi_mpi_info_null", address = true)
    long MPI_INFO_NULL();

    /** {@code MPI_ERRHANDLER_NULL} */
    @Symbol(value = "ompi_mpi_errhandler_null", address = true)
    long MPI_ERRHANDLER_NULL();

    /** {@code MPI_ERRORS_RETURN} */
    @Symbol(value = "ompi_mpi_errors_return", address = true)
    long MPI_ERRORS_RETURN();

    /** {@code MPI_ERRORS_ARE_FATAL} */
    @Symbol(value = "ompi_mpi_errors_are_fatal", address = true)
    long MPI_ERRORS_ARE_FATAL();

    /** {@code MPI_DATATYPE_NULL} */
    @Symbol(value = "ompi_mpi_datatype_null", address = true)
    long MPI_DATATYPE_NULL();

    /** {@code MPI_BYTE} */
    @Symbol(value = "ompi_mpi_byte", address = true)
    long MPI_BYTE();

    /** {@code MPI_CHAR} */
    @Symbol(value = "ompi_mpi_char", address = true)
    long MPI_CHAR();

    /** {@code MPI_INT8_T} */
    @Symbol(value = "ompi_mpi_int8_t", address = true)
    long MPI_INT8_T();

    /** {@code MPI_UINT8_T} */
    @Symbol(value = "ompi_mpi_uint8_t", address = true)
    long MPI_UINT8_T();

    /** {@code MPI_INT16_T} */
    @Symbol(value = "ompi_mpi_int16_t", address = true)
    long MPI_INT16_T();

    /** {@code MPI_UINT16_T} */
    @Symbol(value = "ompi_mpi_uint16_t", address = true)
    long MPI_UINT16_T();

    /** {@code MPI_INT32_T} */
    @Symbol(value = "ompi_mpi_int32_t", address = true)
    long MPI_INT32_T();

    /** {@code MPI_UINT32_T} */
    @Symbol(value = "ompi_mpi_uint32_t", address = true)
    long MPI_UINT32_T();

    /** {@code MPI_INT64_T} */
    @Symbol(value = "ompi_mpi_int64_t", address = true)
    long MPI_INT64_T();

    /** {@code MPI_UINT64_T} */
    @Symbol(value = "ompi_mpi_uint64_t", address = true)
    long MPI_UINT64_T();

    /** {@code MPI_FLOAT} */
    @Symbol(value = "ompi_mpi_float", address = true)
    long MPI_FLOAT();

    /** {@code MPI_DOUBLE} */
    @Symbol(value = "ompi_mpi_double", address = true)
    long MPI_DOUBLE();

    /** {@code MPI_C_BOOL} */
    @Symbol(value = "ompi_mpi_c_bool", address = true)
    long MPI_C_BOOL();

    /** {@code MPI_AINT} */
    @Symbol(value = "ompi_mpi_aint", address = true)
    long MPI_AINT();

    /** {@code MPI_COUNT} */
    @Symbol(value = "ompi_mpi_count", address = true)
    long MPI_COUNT();

    /** {@code MPI_OP_NULL} */
    @Symbol(value = "ompi_mpi_op_null", address = true)
    long MPI_OP_NULL();

    /** {@code MPI_SUM} */
    @Symbol(value = "ompi_mpi_op_sum", address = true)
    long MPI_SUM();

    /** {@code MPI_PROD} */
    @Symbol(value = "ompi_mpi_op_prod", address = true)
    long MPI_PROD();

    /** {@code MPI_MIN} */
    @Symbol(value = "ompi_mpi_op_min", address = true)
    long MPI_MIN();

    /** {@code MPI_MAX} */
    @Symbol(value = "ompi_mpi_op_max", address = true)
    long MPI_MAX();

    /** {@code MPI_LAND} */
    @Symbol(value = "ompi_mpi_op_land", address = true)
    long MPI_LAND();

    /** {@code MPI_BAND} */
    @Symbol(value = "ompi_mpi_op_band", address = true)
    long MPI_BAND();

    /** {@code MPI_LOR} */
    @Symbol(value = "ompi_mpi_op_lor", address = true)
    long MPI_LOR();

    /** {@code MPI_BOR} */
    @Symbol(value = "ompi_mpi_op_bor", address = true)
    long MPI_BOR();

    /** {@code MPI_LXOR} */
    @Symbol(value = "ompi_mpi_op_lxor", address = true)
    long MPI_LXOR();

    /** {@code MPI_BXOR} */
    @Symbol(value = "ompi_mpi_op_bxor", address = true)
    long MPI_BXOR();

    /** {@code MPI_MINLOC} */
    @Symbol(value = "ompi_mpi_op_minloc", address = true)
    long MPI_MINLOC();

    /** {@code MPI_MAXLOC} */
    @Symbol(value = "ompi_mpi_op_maxloc", address = true)
    long MPI_MAXLOC();

    /** {@code MPI_REPLACE} */
    @Symbol(value = "ompi_mpi_op_replace", address = true)
    long MPI_REPLACE();

    /** {@code MPI_NO_OP} */
    @Symbol(value = "ompi_mpi_op_no_op", address = true)
    long MPI_NO_OP();

    // ---- environment

    /** {@code int MPI_Init(int* argc, char*** argv)} */
    int MPI_Init(MemorySegment argc, MemorySegment argv);

    /** {@code int MPI_Init_thread(int* argc, char*** argv, int required, int* provided)} */
    int MPI_Init_thread(
            MemorySegment argc, MemorySegment argv, int required, MemorySegment provided);

    /** {@code int MPI_Query_thread(int* provided)} */
    int MPI_Query_thread(MemorySegment provided);

    /** {@code int MPI_Is_thread_main(int* flag)} */
    int MPI_Is_thread_main(MemorySegment flag);

    /** {@code int MPI_Initialized(int* flag)} */
    int MPI_Initialized(MemorySegment flag);

    /** {@code int MPI_Finalize()} */
    int MPI_Finalize();

    /** {@code int MPI_Finalized(int* flag)} */
    int MPI_Finalized(MemorySegment flag);

    /** {@code int MPI_Abort(MPI_Comm comm, int errorcode)} */
    int MPI_Abort(@Handle long comm, int errorcode);

    /** {@code int MPI_Get_version(int* version, int* subversion)} */
    int MPI_Get_version(MemorySegment version, MemorySegment subversion);

    /** {@code int MPI_Get_library_version(char* version, int* resultlen)} */
    int MPI_Get_library_version(MemorySegment version, MemorySegment resultlen);

    /** {@code int MPI_Get_processor_name(char* name, int* resultlen)} */
    int MPI_Get_processor_name(MemorySegment name, MemorySegment resultlen);

    /** {@code double MPI_Wtime()} */
    double MPI_Wtime();

    /** {@code double MPI_Wtick()} */
    double MPI_Wtick();

    // ---- errors

    /** {@code int MPI_Error_class(int errorcode, int* errorclass)} */
    int MPI_Error_class(int errorcode, MemorySegment errorclass);

    /** {@code int MPI_Error_string(int errorcode, char* string, int* resultlen)} */
    int MPI_Error_string(int errorcode, MemorySegment string, MemorySegment resultlen);

    /**
     * {@code int MPI_Comm_create_errhandler(MPI_Comm_errhandler_function* function, MPI_Errhandler*
     * errhandler)}
     */
    int MPI_Comm_create_errhandler(MemorySegment function, MemorySegment errhandler);

    /** {@code int MPI_Comm_set_errhandler(MPI_Comm comm, MPI_Errhandler errhandler)} */
    int MPI_Comm_set_errhandler(@Handle long comm, @Handle long errhandler);

    /** {@code int MPI_Comm_get_errhandler(MPI_Comm comm, MPI_Errhandler* erhandler)} */
    int MPI_Comm_get_errhandler(@Handle long comm, MemorySegment erhandler);

    /** {@code int MPI_Comm_call_errhandler(MPI_Comm comm, int errorcode)} */
    int MPI_Comm_call_errhandler(@Handle long comm, int errorcode);

    /** {@code int MPI_Errhandler_free(MPI_Errhandler* errhandler)} */
    int MPI_Errhandler_free(MemorySegment errhandler);

    // ---- communicators and groups

    /** {@code int MPI_Comm_rank(MPI_Comm comm, int* rank)} */
    int MPI_Comm_rank(@Handle long comm, MemorySegment rank);

    /** {@code int MPI_Comm_size(MPI_Comm comm, int* size)} */
    int MPI_Comm_size(@Handle long comm, MemorySegment size);

    /** {@code int MPI_Comm_dup(MPI_Comm comm, MPI_Comm* newcomm)} */
    int MPI_Comm_dup(@Handle long comm, MemorySegment newcomm);

    /** {@code int MPI_Comm_idup(MPI_Comm comm, MPI_Comm* newcomm, MPI_Request* request)} */
    int MPI_Comm_idup(@Handle long comm, MemorySegment newcomm, MemorySegment request);

    /** {@code int MPI_Comm_split(MPI_Comm comm, int color, int key, MPI_Comm* newcomm)} */
    int MPI_Comm_split(@Handle long comm, int color, int key, MemorySegment newcomm);

    /**
     * {@code int MPI_Comm_split_type(MPI_Comm comm, int split_type, int key, MPI_Info info,
     * MPI_Comm* newcomm)}
     */
    int MPI_Comm_split_type(
            @Handle long comm, int split_type, int key, @Handle long info, MemorySegment newcomm);

    /**
     * {@code int MPI_Comm_create_group(MPI_Comm comm, MPI_Group group, int tag, MPI_Comm* newcomm)}
     */
    int MPI_Comm_create_group(
            @Handle long comm, @Handle long group, int tag, MemorySegment newcomm);

    /** {@code int MPI_Comm_compare(MPI_Comm comm1, MPI_Comm comm2, int* result)} */
    int MPI_Comm_compare(@Handle long comm1, @Handle long comm2, MemorySegment result);

    /** {@code int MPI_Comm_group(MPI_Comm comm, MPI_Group* group)} */
    int MPI_Comm_group(@Handle long comm, MemorySegment group);

    /**
     * {@code int MPI_Comm_get_attr(MPI_Comm comm, int comm_keyval, void* attribute_val, int* flag)}
     */
    int MPI_Comm_get_attr(
            @Handle long comm, int comm_keyval, MemorySegment attribute_val, MemorySegment flag);

    /**
     * {@code int MPI_Comm_create_keyval(MPI_Comm_copy_attr_function* comm_copy_attr_fn,
     * MPI_Comm_delete_attr_function* comm_delete_attr_fn, int* comm_keyval, void* extra_state)}
     */
    int MPI_Comm_create_keyval(
            MemorySegment comm_copy_attr_fn,
            MemorySegment comm_delete_attr_fn,
            MemorySegment comm_keyval,
            MemorySegment extra_state);

    /** {@code int MPI_Comm_set_attr(MPI_Comm comm, int comm_keyval, void* attribute_val)} */
    int MPI_Comm_set_attr(@Handle long comm, int comm_keyval, MemorySegment attribute_val);

    /** {@code int MPI_Comm_delete_attr(MPI_Comm comm, int comm_keyval)} */
    int MPI_Comm_delete_attr(@Handle long comm, int comm_keyval);

    /** {@code int MPI_Comm_set_name(MPI_Comm comm, const char* comm_name)} */
    int MPI_Comm_set_name(@Handle long comm, MemorySegment comm_name);

    /** {@code int MPI_Comm_get_name(MPI_Comm comm, char* comm_name, int* resultlen)} */
    int MPI_Comm_get_name(@Handle long comm, MemorySegment comm_name, MemorySegment resultlen);

    /** {@code int MPI_Comm_free(MPI_Comm* comm)} */
    int MPI_Comm_free(MemorySegment comm);

    /** {@code int MPI_Group_size(MPI_Group group, int* size)} */
    int MPI_Group_size(@Handle long group, MemorySegment size);

    /** {@code int MPI_Group_rank(MPI_Group group, int* rank)} */
    int MPI_Group_rank(@Handle long group, MemorySegment rank);

    /**
     * {@code int MPI_Group_incl(MPI_Group group, int n, const int ranks[], MPI_Group* newgroup)}
     */
    int MPI_Group_incl(@Handle long group, int n, MemorySegment ranks, MemorySegment newgroup);

    /**
     * {@code int MPI_Group_excl(MPI_Group group, int n, const int ranks[], MPI_Group* newgroup)}
     */
    int MPI_Group_excl(@Handle long group, int n, MemorySegment ranks, MemorySegment newgroup);

    /**
     * {@code int MPI_Group_translate_ranks(MPI_Group group1, int n, const int ranks1[], MPI_Group
     * group2, int ranks2[])}
     */
    int MPI_Group_translate_ranks(
            @Handle long group1,
            int n,
            MemorySegment ranks1,
            @Handle long group2,
            MemorySegment ranks2);

    /** {@code int MPI_Group_free(MPI_Group* group)} */
    int MPI_Group_free(MemorySegment group);

    // ---- data types

    /** {@code int MPI_Type_contiguous(int count, MPI_Datatype oldtype, MPI_Datatype* newtype)} */
    int MPI_Type_contiguous(int count, @Handle long oldtype, MemorySegment newtype);

    /**
     * {@code int MPI_Type_vector(int count, int blocklength, int stride, MPI_Datatype oldtype,
     * MPI_Datatype* newtype)}
     */
    int MPI_Type_vector(
            int count, int blocklength, int stride, @Handle long oldtype, MemorySegment newtype);

    /**
     * {@code int MPI_Type_create_struct(int count, const int array_of_block_lengths[], const
     * MPI_Aint array_of_displacements[], const MPI_Datatype array_of_types[], MPI_Datatype*
     * newtype)}
     */
    int MPI_Type_create_struct(
            int count,
            MemorySegment array_of_block_lengths,
            MemorySegment array_of_displacements,
            MemorySegment array_of_types,
            MemorySegment newtype);

    /**
     * {@code int MPI_Type_create_resized(MPI_Datatype oldtype, MPI_Aint lb, MPI_Aint extent,
     * MPI_Datatype* newtype)}
     */
    int MPI_Type_create_resized(@Handle long oldtype, long lb, long extent, MemorySegment newtype);

    /** {@code int MPI_Type_dup(MPI_Datatype type, MPI_Datatype* newtype)} */
    int MPI_Type_dup(@Handle long type, MemorySegment newtype);

    /** {@code int MPI_Type_commit(MPI_Datatype* type)} */
    int MPI_Type_commit(MemorySegment type);

    /** {@code int MPI_Type_free(MPI_Datatype* type)} */
    int MPI_Type_free(MemorySegment type);

    /** {@code int MPI_Type_size(MPI_Datatype type, int* size)} */
    int MPI_Type_size(@Handle long type, MemorySegment size);

    /** {@code int MPI_Type_size_x(MPI_Datatype type, MPI_Count* size)} */
    int MPI_Type_size_x(@Handle long type, MemorySegment size);

    /** {@code int MPI_Type_get_extent(MPI_Datatype type, MPI_Aint* lb, MPI_Aint* extent)} */
    int MPI_Type_get_extent(@Handle long type, MemorySegment lb, MemorySegment extent);

    /** {@code int MPI_Type_get_extent_x(MPI_Datatype type, MPI_Count* lb, MPI_Count* extent)} */
    int MPI_Type_get_extent_x(@Handle long type, MemorySegment lb, MemorySegment extent);

    // ---- reduction operations

    /** {@code int MPI_Op_create(MPI_User_function* function, int commute, MPI_Op* op)} */
    int MPI_Op_create(MemorySegment function, int commute, MemorySegment op);

    /** {@code int MPI_Op_free(MPI_Op* op)} */
    int MPI_Op_free(MemorySegment op);

    /** {@code int MPI_Op_commutative(MPI_Op op, int* commute)} */
    int MPI_Op_commutative(@Handle long op, MemorySegment commute);

    /**
     * {@code int MPI_Reduce_local(const void* inbuf, void* inoutbuf, int count, MPI_Datatype
     * datatype, MPI_Op op)}
     */
    int MPI_Reduce_local(
            long inbuf, long inoutbuf, int count, @Handle long datatype, @Handle long op);

    // ---- collectives

    /** {@code int MPI_Barrier(MPI_Comm comm)} */
    int MPI_Barrier(@Handle long comm);

    /**
     * {@code int MPI_Bcast(void* buffer, int count, MPI_Datatype datatype, int root, MPI_Comm
     * comm)}
     */
    int MPI_Bcast(long buffer, int count, @Handle long datatype, int root, @Handle long comm);

    /**
     * {@code int MPI_Gather(const void* sendbuf, int sendcount, MPI_Datatype sendtype, void*
     * recvbuf, int recvcount, MPI_Datatype recvtype, int root, MPI_Comm comm)}
     */
    int MPI_Gather(
            long sendbuf,
            int sendcount,
            @Handle long sendtype,
            long recvbuf,
            int recvcount,
            @Handle long recvtype,
            int root,
            @Handle long comm);

    /**
     * {@code int MPI_Gatherv(const void* sendbuf, int sendcount, MPI_Datatype sendtype, void*
     * recvbuf, const int recvcounts[], const int displs[], MPI_Datatype recvtype, int root,
     * MPI_Comm comm)}
     */
    int MPI_Gatherv(
            long sendbuf,
            int sendcount,
            @Handle long sendtype,
            long recvbuf,
            MemorySegment recvcounts,
            MemorySegment displs,
            @Handle long recvtype,
            int root,
            @Handle long comm);

    /**
     * {@code int MPI_Scatter(const void* sendbuf, int sendcount, MPI_Datatype sendtype, void*
     * recvbuf, int recvcount, MPI_Datatype recvtype, int root, MPI_Comm comm)}
     */
    int MPI_Scatter(
            long sendbuf,
            int sendcount,
            @Handle long sendtype,
            long recvbuf,
            int recvcount,
            @Handle long recvtype,
            int root,
            @Handle long comm);

    /**
     * {@code int MPI_Scatterv(const void* sendbuf, const int sendcounts[], const int displs[],
     * MPI_Datatype sendtype, void* recvbuf, int recvcount, MPI_Datatype recvtype, int root,
     * MPI_Comm comm)}
     */
    int MPI_Scatterv(
            long sendbuf,
            MemorySegment sendcounts,
            MemorySegment displs,
            @Handle long sendtype,
            long recvbuf,
            int recvcount,
            @Handle long recvtype,
            int root,
            @Handle long comm);

    /**
     * {@code int MPI_Allgather(const void* sendbuf, int sendcount, MPI_Datatype sendtype, void*
     * recvbuf, int recvcount, MPI_Datatype recvtype, MPI_Comm comm)}
     */
    int MPI_Allgather(
            long sendbuf,
            int sendcount,
            @Handle long sendtype,
            long recvbuf,
            int recvcount,
            @Handle long recvtype,
            @Handle long comm);

    /**
     * {@code int MPI_Allgatherv(const void* sendbuf, int sendcount, MPI_Datatype sendtype, void*
     * recvbuf, const int recvcounts[], const int displs[], MPI_Datatype recvtype, MPI_Comm comm)}
     */
    int MPI_Allgatherv(
            long sendbuf,
            int sendcount,
            @Handle long sendtype,
            long recvbuf,
            MemorySegment recvcounts,
            MemorySegment displs,
            @Handle long recvtype,
            @Handle long comm);

    /**
     * {@code int MPI_Alltoall(const void* sendbuf, int sendcount, MPI_Datatype sendtype, void*
     * recvbuf, int recvcount, MPI_Datatype recvtype, MPI_Comm comm)}
     */
    int MPI_Alltoall(
            long sendbuf,
            int sendcount,
            @Handle long sendtype,
            long recvbuf,
            int recvcount,
            @Handle long recvtype,
            @Handle long comm);

    /**
     * {@code int MPI_Alltoallv(const void* sendbuf, const int sendcounts[], const int sdispls[],
     * MPI_Datatype sendtype, void* recvbuf, const int recvcounts[], const int rdispls[],
     * MPI_Datatype recvtype, MPI_Comm comm)}
     */
    int MPI_Alltoallv(
            long sendbuf,
            MemorySegment sendcounts,
            MemorySegment sdispls,
            @Handle long sendtype,
            long recvbuf,
            MemorySegment recvcounts,
            MemorySegment rdispls,
            @Handle long recvtype,
            @Handle long comm);

    /**
     * {@code int MPI_Alltoallw(const void* sendbuf, const int sendcounts[], const int sdispls[],
     * const MPI_Datatype sendtypes[], void* recvbuf, const int recvcounts[], const int rdispls[],
     * const MPI_Datatype recvtypes[], MPI_Comm comm)}
     */
    int MPI_Alltoallw(
            long sendbuf,
            MemorySegment sendcounts,
            MemorySegment sdispls,
            MemorySegment sendtypes,
            long recvbuf,
            MemorySegment recvcounts,
            MemorySegment rdispls,
            MemorySegment recvtypes,
            @Handle long comm);

    /**
     * {@code int MPI_Reduce(const void* sendbuf, void* recvbuf, int count, MPI_Datatype datatype,
     * MPI_Op op, int root, MPI_Comm comm)}
     */
    int MPI_Reduce(
            long sendbuf,
            long recvbuf,
            int count,
            @Handle long datatype,
            @Handle long op,
            int root,
            @Handle long comm);

    /**
     * {@code int MPI_Allreduce(const void* sendbuf, void* recvbuf, int count, MPI_Datatype
     * datatype, MPI_Op op, MPI_Comm comm)}
     */
    int MPI_Allreduce(
            long sendbuf,
            long recvbuf,
            int count,
            @Handle long datatype,
            @Handle long op,
            @Handle long comm);

    /**
     * {@code int MPI_Reduce_scatter(const void* sendbuf, void* recvbuf, const int recvcounts[],
     * MPI_Datatype datatype, MPI_Op op, MPI_Comm comm)}
     */
    int MPI_Reduce_scatter(
            long sendbuf,
            long recvbuf,
            MemorySegment recvcounts,
            @Handle long datatype,
            @Handle long op,
            @Handle long comm);

    /**
     * {@code int MPI_Reduce_scatter_block(const void* sendbuf, void* recvbuf, int recvcount,
     * MPI_Datatype datatype, MPI_Op op, MPI_Comm comm)}
     */
    int MPI_Reduce_scatter_block(
            long sendbuf,
            long recvbuf,
            int recvcount,
            @Handle long datatype,
            @Handle long op,
            @Handle long comm);

    /**
     * {@code int MPI_Scan(const void* sendbuf, void* recvbuf, int count, MPI_Datatype datatype,
     * MPI_Op op, MPI_Comm comm)}
     */
    int MPI_Scan(
            long sendbuf,
            long recvbuf,
            int count,
            @Handle long datatype,
            @Handle long op,
            @Handle long comm);

    /**
     * {@code int MPI_Exscan(const void* sendbuf, void* recvbuf, int count, MPI_Datatype datatype,
     * MPI_Op op, MPI_Comm comm)}
     */
    int MPI_Exscan(
            long sendbuf,
            long recvbuf,
            int count,
            @Handle long datatype,
            @Handle long op,
            @Handle long comm);

    // ---- non-blocking collectives; message buffers and arrays must live until the request is
    // complete

    /** {@code int MPI_Ibarrier(MPI_Comm comm, MPI_Request* request)} */
    int MPI_Ibarrier(@Handle long comm, MemorySegment request);

    /**
     * {@code int MPI_Ibcast(void* buffer, int count, MPI_Datatype datatype, int root, MPI_Comm
     * comm, MPI_Request* request)}
     */
    int MPI_Ibcast(
            long buffer,
            int count,
            @Handle long datatype,
            int root,
            @Handle long comm,
            MemorySegment request);

    /**
     * {@code int MPI_Igather(const void* sendbuf, int sendcount, MPI_Datatype sendtype, void*
     * recvbuf, int recvcount, MPI_Datatype recvtype, int root, MPI_Comm comm, MPI_Request*
     * request)}
     */
    int MPI_Igather(
            long sendbuf,
            int sendcount,
            @Handle long sendtype,
            long recvbuf,
            int recvcount,
            @Handle long recvtype,
            int root,
            @Handle long comm,
            MemorySegment request);

    /**
     * {@code int MPI_Igatherv(const void* sendbuf, int sendcount, MPI_Datatype sendtype, void*
     * recvbuf, const int recvcounts[], const int displs[], MPI_Datatype recvtype, int root,
     * MPI_Comm comm, MPI_Request* request)}
     */
    int MPI_Igatherv(
            long sendbuf,
            int sendcount,
            @Handle long sendtype,
            long recvbuf,
            MemorySegment recvcounts,
            MemorySegment displs,
            @Handle long recvtype,
            int root,
            @Handle long comm,
            MemorySegment request);

    /**
     * {@code int MPI_Iscatter(const void* sendbuf, int sendcount, MPI_Datatype sendtype, void*
     * recvbuf, int recvcount, MPI_Datatype recvtype, int root, MPI_Comm comm, MPI_Request*
     * request)}
     */
    int MPI_Iscatter(
            long sendbuf,
            int sendcount,
            @Handle long sendtype,
            long recvbuf,
            int recvcount,
            @Handle long recvtype,
            int root,
            @Handle long comm,
            MemorySegment request);

    /**
     * {@code int MPI_Iscatterv(const void* sendbuf, const int sendcounts[], const int displs[],
     * MPI_Datatype sendtype, void* recvbuf, int recvcount, MPI_Datatype recvtype, int root,
     * MPI_Comm comm, MPI_Request* request)}
     */
    int MPI_Iscatterv(
            long sendbuf,
            MemorySegment sendcounts,
            MemorySegment displs,
            @Handle long sendtype,
            long recvbuf,
            int recvcount,
            @Handle long recvtype,
            int root,
            @Handle long comm,
            MemorySegment request);

    /**
     * {@code int MPI_Iallgather(const void* sendbuf, int sendcount, MPI_Datatype sendtype, void*
     * recvbuf, int recvcount, MPI_Datatype recvtype, MPI_Comm comm, MPI_Request* request)}
     */
    int MPI_Iallgather(
            long sendbuf,
            int sendcount,
            @Handle long sendtype,
            long recvbuf,
            int recvcount,
            @Handle long recvtype,
            @Handle long comm,
            MemorySegment request);

    /**
     * {@code int MPI_Iallgatherv(const void* sendbuf, int sendcount, MPI_Datatype sendtype, void*
     * recvbuf, const int recvcounts[], const int displs[], MPI_Datatype recvtype, MPI_Comm comm,
     * MPI_Request* request)}
     */
    int MPI_Iallgatherv(
            long sendbuf,
            int sendcount,
            @Handle long sendtype,
            long recvbuf,
            MemorySegment recvcounts,
            MemorySegment displs,
            @Handle long recvtype,
            @Handle long comm,
            MemorySegment request);

    /**
     * {@code int MPI_Ialltoall(const void* sendbuf, int sendcount, MPI_Datatype sendtype, void*
     * recvbuf, int recvcount, MPI_Datatype recvtype, MPI_Comm comm, MPI_Request* request)}
     */
    int MPI_Ialltoall(
            long sendbuf,
            int sendcount,
            @Handle long sendtype,
            long recvbuf,
            int recvcount,
            @Handle long recvtype,
            @Handle long comm,
            MemorySegment request);

    /**
     * {@code int MPI_Ialltoallv(const void* sendbuf, const int sendcounts[], const int sdispls[],
     * MPI_Datatype sendtype, void* recvbuf, const int recvcounts[], const int rdispls[],
     * MPI_Datatype recvtype, MPI_Comm comm, MPI_Request* request)}
     */
    int MPI_Ialltoallv(
            long sendbuf,
            MemorySegment sendcounts,
            MemorySegment sdispls,
            @Handle long sendtype,
            long recvbuf,
            MemorySegment recvcounts,
            MemorySegment rdispls,
            @Handle long recvtype,
            @Handle long comm,
            MemorySegment request);

    /**
     * {@code int MPI_Ialltoallw(const void* sendbuf, const int sendcounts[], const int sdispls[],
     * const MPI_Datatype sendtypes[], void* recvbuf, const int recvcounts[], const int rdispls[],
     * const MPI_Datatype recvtypes[], MPI_Comm comm, MPI_Request* request)}
     */
    int MPI_Ialltoallw(
            long sendbuf,
            MemorySegment sendcounts,
            MemorySegment sdispls,
            MemorySegment sendtypes,
            long recvbuf,
            MemorySegment recvcounts,
            MemorySegment rdispls,
            MemorySegment recvtypes,
            @Handle long comm,
            MemorySegment request);

    /**
     * {@code int MPI_Ireduce(const void* sendbuf, void* recvbuf, int count, MPI_Datatype datatype,
     * MPI_Op op, int root, MPI_Comm comm, MPI_Request* request)}
     */
    int MPI_Ireduce(
            long sendbuf,
            long recvbuf,
            int count,
            @Handle long datatype,
            @Handle long op,
            int root,
            @Handle long comm,
            MemorySegment request);

    /**
     * {@code int MPI_Iallreduce(const void* sendbuf, void* recvbuf, int count, MPI_Datatype
     * datatype, MPI_Op op, MPI_Comm comm, MPI_Request* request)}
     */
    int MPI_Iallreduce(
            long sendbuf,
            long recvbuf,
            int count,
            @Handle long datatype,
            @Handle long op,
            @Handle long comm,
            MemorySegment request);

    /**
     * {@code int MPI_Ireduce_scatter(const void* sendbuf, void* recvbuf, const int recvcounts[],
     * MPI_Datatype datatype, MPI_Op op, MPI_Comm comm, MPI_Request* request)}
     */
    int MPI_Ireduce_scatter(
            long sendbuf,
            long recvbuf,
            MemorySegment recvcounts,
            @Handle long datatype,
            @Handle long op,
            @Handle long comm,
            MemorySegment request);

    /**
     * {@code int MPI_Ireduce_scatter_block(const void* sendbuf, void* recvbuf, int recvcount,
     * MPI_Datatype datatype, MPI_Op op, MPI_Comm comm, MPI_Request* request)}
     */
    int MPI_Ireduce_scatter_block(
            long sendbuf,
            long recvbuf,
            int recvcount,
            @Handle long datatype,
            @Handle long op,
            @Handle long comm,
            MemorySegment request);

    /**
     * {@code int MPI_Iscan(const void* sendbuf, void* recvbuf, int count, MPI_Datatype datatype,
     * MPI_Op op, MPI_Comm comm, MPI_Request* request)}
     */
    int MPI_Iscan(
            long sendbuf,
            long recvbuf,
            int count,
            @Handle long datatype,
            @Handle long op,
            @Handle long comm,
            MemorySegment request);

    /**
     * {@code int MPI_Iexscan(const void* sendbuf, void* recvbuf, int count, MPI_Datatype datatype,
     * MPI_Op op, MPI_Comm comm, MPI_Request* request)}
     */
    int MPI_Iexscan(
            long sendbuf,
            long recvbuf,
            int count,
            @Handle long datatype,
            @Handle long op,
            @Handle long comm,
            MemorySegment request);

    // ---- point to point

    /**
     * {@code int MPI_Send(const void* buf, int count, MPI_Datatype datatype, int dest, int tag,
     * MPI_Comm comm)}
     */
    int MPI_Send(long buf, int count, @Handle long datatype, int dest, int tag, @Handle long comm);

    /**
     * {@code int MPI_Ssend(const void* buf, int count, MPI_Datatype datatype, int dest, int tag,
     * MPI_Comm comm)}
     */
    int MPI_Ssend(long buf, int count, @Handle long datatype, int dest, int tag, @Handle long comm);

    /**
     * {@code int MPI_Recv(void* buf, int count, MPI_Datatype datatype, int source, int tag,
     * MPI_Comm comm, MPI_Status* status)}
     */
    int MPI_Recv(
            long buf,
            int count,
            @Handle long datatype,
            int source,
            int tag,
            @Handle long comm,
            MemorySegment status);

    /**
     * {@code int MPI_Isend(const void* buf, int count, MPI_Datatype datatype, int dest, int tag,
     * MPI_Comm comm, MPI_Request* request)}
     */
    int MPI_Isend(
            long buf,
            int count,
            @Handle long datatype,
            int dest,
            int tag,
            @Handle long comm,
            MemorySegment request);

    /**
     * {@code int MPI_Issend(const void* buf, int count, MPI_Datatype datatype, int dest, int tag,
     * MPI_Comm comm, MPI_Request* request)}
     */
    int MPI_Issend(
            long buf,
            int count,
            @Handle long datatype,
            int dest,
            int tag,
            @Handle long comm,
            MemorySegment request);

    /**
     * {@code int MPI_Irecv(void* buf, int count, MPI_Datatype datatype, int source, int tag,
     * MPI_Comm comm, MPI_Request* request)}
     */
    int MPI_Irecv(
            long buf,
            int count,
            @Handle long datatype,
            int source,
            int tag,
            @Handle long comm,
            MemorySegment request);

    /**
     * {@code int MPI_Sendrecv(const void* sendbuf, int sendcount, MPI_Datatype sendtype, int dest,
     * int sendtag, void* recvbuf, int recvcount, MPI_Datatype recvtype, int source, int recvtag,
     * MPI_Comm comm, MPI_Status* status)}
     */
    int MPI_Sendrecv(
            long sendbuf,
            int sendcount,
            @Handle long sendtype,
            int dest,
            int sendtag,
            long recvbuf,
            int recvcount,
            @Handle long recvtype,
            int source,
            int recvtag,
            @Handle long comm,
            MemorySegment status);

    /**
     * {@code int MPI_Sendrecv_replace(void* buf, int count, MPI_Datatype datatype, int dest, int
     * sendtag, int source, int recvtag, MPI_Comm comm, MPI_Status* status)}
     */
    int MPI_Sendrecv_replace(
            long buf,
            int count,
            @Handle long datatype,
            int dest,
            int sendtag,
            int source,
            int recvtag,
            @Handle long comm,
            MemorySegment status);

    /** {@code int MPI_Probe(int source, int tag, MPI_Comm comm, MPI_Status* status)} */
    int MPI_Probe(int source, int tag, @Handle long comm, MemorySegment status);

    /** {@code int MPI_Iprobe(int source, int tag, MPI_Comm comm, int* flag, MPI_Status* status)} */
    int MPI_Iprobe(
            int source, int tag, @Handle long comm, MemorySegment flag, MemorySegment status);

    /**
     * {@code int MPI_Mprobe(int source, int tag, MPI_Comm comm, MPI_Message* message, MPI_Status*
     * status)}
     */
    int MPI_Mprobe(
            int source, int tag, @Handle long comm, MemorySegment message, MemorySegment status);

    /**
     * {@code int MPI_Improbe(int source, int tag, MPI_Comm comm, int* flag, MPI_Message* message,
     * MPI_Status* status)}
     */
    int MPI_Improbe(
            int source,
            int tag,
            @Handle long comm,
            MemorySegment flag,
            MemorySegment message,
            MemorySegment status);

    /**
     * {@code int MPI_Mrecv(void* buf, int count, MPI_Datatype type, MPI_Message* message,
     * MPI_Status* status)}
     */
    int MPI_Mrecv(
            long buf, int count, @Handle long type, MemorySegment message, MemorySegment status);

    /**
     * {@code int MPI_Imrecv(void* buf, int count, MPI_Datatype type, MPI_Message* message,
     * MPI_Request* request)}
     */
    int MPI_Imrecv(
            long buf, int count, @Handle long type, MemorySegment message, MemorySegment request);

    /** {@code int MPI_Get_count(const MPI_Status* status, MPI_Datatype datatype, int* count)} */
    int MPI_Get_count(MemorySegment status, @Handle long datatype, MemorySegment count);

    /**
     * {@code int MPI_Get_elements_x(const MPI_Status* status, MPI_Datatype datatype, MPI_Count*
     * count)}
     */
    int MPI_Get_elements_x(MemorySegment status, @Handle long datatype, MemorySegment count);

    // ---- requests

    /** {@code int MPI_Wait(MPI_Request* request, MPI_Status* status)} */
    int MPI_Wait(MemorySegment request, MemorySegment status);

    /**
     * {@code int MPI_Waitall(int count, MPI_Request array_of_requests[], MPI_Status*
     * array_of_statuses)}
     */
    int MPI_Waitall(int count, MemorySegment array_of_requests, MemorySegment array_of_statuses);

    /**
     * {@code int MPI_Waitany(int count, MPI_Request array_of_requests[], int* index, MPI_Status*
     * status)}
     */
    int MPI_Waitany(
            int count, MemorySegment array_of_requests, MemorySegment index, MemorySegment status);

    /**
     * {@code int MPI_Waitsome(int incount, MPI_Request array_of_requests[], int* outcount, int
     * array_of_indices[], MPI_Status array_of_statuses[])}
     */
    int MPI_Waitsome(
            int incount,
            MemorySegment array_of_requests,
            MemorySegment outcount,
            MemorySegment array_of_indices,
            MemorySegment array_of_statuses);

    /** {@code int MPI_Test(MPI_Request* request, int* flag, MPI_Status* status)} */
    int MPI_Test(MemorySegment request, MemorySegment flag, MemorySegment status);

    /**
     * {@code int MPI_Testall(int count, MPI_Request array_of_requests[], int* flag, MPI_Status
     * array_of_statuses[])}
     */
    int MPI_Testall(
            int count,
            MemorySegment array_of_requests,
            MemorySegment flag,
            MemorySegment array_of_statuses);

    /**
     * {@code int MPI_Testany(int count, MPI_Request array_of_requests[], int* index, int* flag,
     * MPI_Status* status)}
     */
    int MPI_Testany(
            int count,
            MemorySegment array_of_requests,
            MemorySegment index,
            MemorySegment flag,
            MemorySegment status);

    /**
     * {@code int MPI_Testsome(int incount, MPI_Request array_of_requests[], int* outcount, int
     * array_of_indices[], MPI_Status array_of_statuses[])}
     */
    int MPI_Testsome(
            int incount,
            MemorySegment array_of_requests,
            MemorySegment outcount,
            MemorySegment array_of_indices,
            MemorySegment array_of_statuses);

    /** {@code int MPI_Cancel(MPI_Request* request)} */
    int MPI_Cancel(MemorySegment request);

    /** {@code int MPI_Test_cancelled(const MPI_Status* status, int* flag)} */
    int MPI_Test_cancelled(MemorySegment status, MemorySegment flag);

    /** {@code int MPI_Request_free(MPI_Request* request)} */
    int MPI_Request_free(MemorySegment request);

    /** {@code int MPI_Request_get_status(MPI_Request request, int* flag, MPI_Status* status)} */
    int MPI_Request_get_status(@Handle long request, MemorySegment flag, MemorySegment status);

    // ---- memory, info

    /** {@code int MPI_Alloc_mem(MPI_Aint size, MPI_Info info, void* baseptr)} */
    int MPI_Alloc_mem(long size, @Handle long info, MemorySegment baseptr);

    /** {@code int MPI_Free_mem(void* base)} */
    int MPI_Free_mem(long base);

    /** {@code int MPI_Info_create(MPI_Info* info)} */
    int MPI_Info_create(MemorySegment info);

    /** {@code int MPI_Info_set(MPI_Info info, const char* key, const char* value)} */
    int MPI_Info_set(@Handle long info, MemorySegment key, MemorySegment value);

    /** {@code int MPI_Info_free(MPI_Info* info)} */
    int MPI_Info_free(MemorySegment info);

    // ---- additions to the library

    /**
     * The send buffer of an operation in place.
     *
     * @return {@code MPI_IN_PLACE}
     */
    default long inPlace() {
        return abi().constant("MPI_IN_PLACE");
    }

    /**
     * Placeholder for a status that is not needed.
     *
     * @return {@code MPI_STATUS_IGNORE}, which is {@code MPI_STATUSES_IGNORE} too
     */
    default MemorySegment statusIgnore() {
        return MemorySegment.ofAddress(abi().constant("MPI_STATUS_IGNORE"));
    }

    /**
     * Throws unless an operation succeeded.
     *
     * @param code what it returned
     * @param operation its name, such as {@code MPI_Allreduce}
     * @throws MpiException if the code is not {@code MPI_SUCCESS}, with MPI's text for it
     */
    default void check(int code, String operation) {
        if (code != 0) {
            throw MpiException.of(this, code, operation);
        }
    }

    /**
     * MPI's text for an error code.
     *
     * @param code an error code
     * @return its text, or {@code UNKNOWN(12345)} if it is not an error code
     */
    default String errorString(int code) {
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment text = arena.allocate(abi().constant("MPI_MAX_ERROR_STRING") + 1);
            MemorySegment length = arena.allocate(ValueLayout.JAVA_INT);
            return MPI_Error_string(code, text, length) == 0
                    ? text.getString(0)
                    : "UNKNOWN(" + code + ")";
        }
    }
}
